"The documentation site, built once and walked through as a reader would"

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from docs import links

PARTS = dict(
    first="*.html",
    guides="guides/*.html",
    explained="pages/*.html",
    studies="studies/*.html",
    api="api/*.html",
    source="source/*.html",
)
ONE_IN = dict(first=3, api=6, source=6)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    "`make docs` into a folder of its own"
    out = tmp_path_factory.mktemp("docs") / "site"
    environment = os.environ | dict(
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1"
    )
    done = subprocess.run(
        ["sh", ROOT / "tools/docs/build.sh", "--out", out],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return out


@pytest.fixture(scope="session")
def site(built, browser):
    "Its address on this machine"

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *a):
            pass

        def end_headers(self):
            self.send_header("cache-control", "max-age=3600")
            super().end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=built))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.fixture
def maths(built):
    if not (built / "site_libs/katex").is_dir():
        pytest.skip(
            "formulas are not drawn on this machine: KaTeX comes from npm, which is not there or found no package"
        )


def test_every_link_leads_somewhere(built):
    pages = links.read_site(built)
    assert (
        len(pages) > 100
        and not links.broken(built, pages)
        and not links.outside(built, pages)
        and not links.without_words(pages)
    )


def test_nothing_of_the_machine_is_on_a_page(built):
    for p in built.rglob("*.html"):
        assert str(ROOT) not in p.read_text(encoding="utf-8"), p.name


@pytest.mark.parametrize("part", PARTS)
def test_pages_open_without_a_word(built, site, page, part):
    "No error on the console, no request to another host, nothing wider than the window, and a heading"
    pages = sorted(built.glob(PARTS[part]), key=lambda p: -p.stat().st_size)
    # of one mould: the largest, and every so many below it; `make soak` opens all
    for p in pages[:: 1 if os.environ.get("SOAK") else ONE_IN.get(part, 1)]:
        page.goto(site + p.relative_to(built).as_posix(), wait_until="load")
        assert page.locator("h1").first.inner_text().strip(), p.name
        assert not page.problems and not page.outside, (p.name, page.problems, page.outside)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{p.name} is wider than the window"


@pytest.mark.parametrize("width", [400, 1024, 1600])
@pytest.mark.parametrize(
    "where",
    [
        "index.html",
        "pages/architecture.html",
        "pages/equations.html",
        "api/search.gallery.in_memory.html",
        "training.runs.html",
    ],
)
def test_no_layout_breaks(site, page, where, width):
    page.set_viewport_size(dict(width=width, height=900))
    page.goto(site + where)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    main = page.locator("main.content").bounding_box()
    assert main["width"] > 0.55 * width if width < 1600 else main["width"] > 700


def test_search_finds_and_opens_an_item_of_the_api(site, page):
    page.goto(site + "guides/first_search.html")
    page.locator(".smalldocs-search input").press_sequentially("DynamicAdapter")
    hit = page.locator('.smalldocs-search-results a[href*="api/dasd.adapters.html#DynamicAdapter"]').first
    hit.wait_for()
    hit.click()
    page.wait_for_url("**/api/dasd.adapters.html#DynamicAdapter*")
    page.locator("main h2", has_text="DynamicAdapter").first.wait_for()
    assert page.locator("main :is(h2, section)[id=DynamicAdapter]").is_visible()


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("install", "pages/install.html"),
        ("CLIP", "pages/clip_from_text.html"),
        ("short query", "pages/shipped_models.html#short-queries"),
        ("German", "guides/first_search.html#a-german-query"),
        ("photographs", "guides/photographs.html"),
        ("add a language", "guides/add_a_language.html"),
        ("which model", "pages/choose_a_model.html"),
    ],
)
def test_search_lists_pages_before_symbols(site, page, query, wanted):
    "The first hit is the page that a person wants, and no symbol is among the first three"
    hits = found(site, page, query)
    assert hits[0] == wanted, hits[:5]
    assert not [hit for hit in hits[:3] if hit.startswith("api/")], hits[:5]


def test_search_by_a_name_of_code_and_by_a_misspelt_word(site, page):
    assert found(site, page, "Gallery.search")[0] == "api/search.gallery.in_memory.html#Gallery.search"
    assert found(site, page, "read_weights")[0].endswith("#read_weights")
    assert any("glossary" in hit for hit in found(site, page, "glosary"))


def found(site, page, query: str) -> list[str]:
    "Addresses that the search lists, best first"
    page.goto(site + "index.html")
    page.locator(".smalldocs-search input").press_sequentially(query)
    page.wait_for_function("() => document.querySelectorAll('.smalldocs-search-results a').length > 0", timeout=30_000)
    page.wait_for_timeout(400)  # the last letters
    links = page.locator(".smalldocs-search-results a").all()
    return [link.get_attribute("href").removeprefix("./") for link in links]


@functools.cache
def longest_lines(built, folder: str) -> str:
    "The page of a folder whose code has the longest line"

    def longest(path):
        blocks = re.findall(r"(?s)<pre.*?</pre>", path.read_text(encoding="utf-8"))
        return max((len(line) for block in blocks for line in re.sub("<[^>]+>", "", block).split("\n")), default=0)

    return max((built / folder).glob("*.html"), key=longest).relative_to(built).as_posix()


# code that leaves the column of its page, or is cut without a way to scroll to the rest
OFF_THE_PAGE = """() => [...document.querySelectorAll('main pre')].filter(e => {
  const visible = b => getComputedStyle(b).overflowX === 'visible', edge = document.documentElement.clientWidth;
  return e.getBoundingClientRect().right > edge + 1 || (e.scrollWidth > e.clientWidth + 1 && visible(e));
}).map(e => e.textContent.slice(0, 60))"""


@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_code_stays_on_the_page(built, site, page, width):
    "On start pages, a guide, a study, and the pages of each kind with the longest lines"
    pages = [f"pages/{name}.html" for name in ("install", "five_minutes", "choose_a_model", "papers", "clip_from_text")]
    pages += ["index.html", "guides/add_a_language.html", "studies/claims.html"]
    pages += [longest_lines(built, folder) for folder in ("guides", "pages", "studies", "api", "source", ".")]
    page.set_viewport_size(dict(width=width, height=900))
    for where in dict.fromkeys(pages):
        page.goto(site + where)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, where
        assert not page.evaluate(OFF_THE_PAGE), where


def test_the_bar_begins_with_start(site, page):
    "Start, guides, studies, reference; the start pages in the order in which they are needed"
    page.goto(site + "pages/five_minutes.html")
    assert page.locator(".navbar-nav.me-auto a.nav-link").all_inner_texts() == [
        "Start",
        "Guides",
        "Studies",
        "Reference",
    ]
    assert page.locator(".navbar-nav.me-auto a.nav-link.active").all_inner_texts() == ["Start"]
    titles = page.locator("#quarto-sidebar a.sidebar-link").all_inner_texts()
    assert titles == ["Install", "Five minutes with your photographs", "Choose a model", "Add a language", "The papers"]
    for where in ("dasd.adapters.html", "api/dasd.adapters.html", "pages/glossary.html"):
        page.goto(site + where)
        assert page.locator(".navbar-nav.me-auto a.nav-link.active").all_inner_texts() == ["Reference"], where


def test_a_figure_answers(site, page):
    "The map of captions is drawn when it scrolls into view, and shows a caption on hover"
    page.goto(site + "pages/shipped_models.html")
    place = page.locator(".figure-place").first
    place.scroll_into_view_if_needed()
    page.locator(".figure-place[data-drawn] .scatterlayer .point").first.wait_for()
    points = page.locator(".figure-place .scatterlayer .point")
    assert points.count() == 320
    box = points.nth(100).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    hover_text = page.locator(".figure-place .hoverlayer .hovertext")
    hover_text.wait_for()
    assert len(hover_text.text_content()) > 20


def test_formulas_are_drawn(site, page, maths):
    page.goto(site + "pages/equations.html")
    page.locator(".katex").first.wait_for()
    assert page.locator("table .katex").count() >= 19 and page.locator(".katex-error").count() == 0
    assert not re.search(
        r"\\[a-z]+\{",
        page.locator("main table").first.evaluate(
            "e => { const c = e.cloneNode(true);"
            " c.querySelectorAll('.katex, code').forEach(x => x.remove()); return c.textContent }"
        ),
    )


def test_an_equation_leads_to_its_line(site, page):
    page.goto(site + "pages/equations.html")
    link = page.locator('a[href*="source/dasd.adapters.html#L"]', has_text="torch.einsum").first
    link.click()
    page.wait_for_url("**/source/dasd.adapters.html#L*")
    line = page.locator(".line:target")
    assert "torch.einsum(self.product, hidden, generated)" in line.inner_text()
    page.wait_for_function(
        "() => { const r = document.querySelector('.line:target').getBoundingClientRect();"
        " return r.top >= 0 && r.bottom <= innerHeight }"
    )
    step, shift = line.evaluate(
        "e => { const a = e.getBoundingClientRect(), b = e.previousElementSibling.getBoundingClientRect();"
        " return [a.top-b.top, a.left-b.left] }"
    )
    assert 10 < step < 40 and shift == 0, "lines stand below each other"


def test_the_drawing_shows_who_imports_whom(site, page):
    page.goto(site + "pages/architecture.html")
    box = page.locator(".m-training-losses")
    box.scroll_into_view_if_needed()
    shown = "e => getComputedStyle(e).opacity"
    wire = page.locator(".wire.by-training-losses.of-contracts")
    assert float(wire.evaluate(shown)) < 0.5
    box.hover()
    page.wait_for_timeout(100)
    assert float(wire.evaluate(shown)) == 1
    box.click()
    page.wait_for_url("**/training.losses.html")


def test_right_to_left_is_laid_out_so(site, page):
    page.goto(site + "index.html")
    for row in page.locator(".ask").all():
        first, last = (row.locator(".found img").nth(i).bounding_box()["x"] for i in (0, -1))
        text, pictures = (row.locator(s).bounding_box()["x"] for s in (".query", ".found"))
        rtl = row.get_attribute("dir") == "rtl"
        assert (first > last) == rtl and (text > pictures) == rtl
    assert page.locator(".ask[dir=rtl] .query[lang=ar]").count() == 1
    assert page.locator(".ask img").evaluate_all(
        "all => all.every(i => i.complete && i.naturalWidth > 60 && i.alt.length > 10)"
    )


def test_dark_is_dark(site, page):
    page.emulate_media(color_scheme="dark")
    page.goto(site + "pages/shipped_models.html")

    def light(css):
        r, g, b = map(int, re.findall(r"\d+", css)[:3])
        return (r + g + b) / 3

    background, ink = page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color] }"
    )
    assert light(background) < 60 and light(ink) > 180
    page.locator(".figure-place").first.scroll_into_view_if_needed()
    label = page.locator(".figure-place[data-drawn] .legendtext").first
    label.wait_for()
    assert light(label.evaluate("e => getComputedStyle(e).fill")) > 120
    page.locator(".quarto-color-scheme-toggle").first.click()
    page.wait_for_function("() => !document.documentElement.classList.contains('quarto-dark')")
    assert light(page.evaluate("() => getComputedStyle(document.body).backgroundColor")) > 240


def test_the_keyboard_is_enough(site, page):
    "From the search box to a page without a mouse"
    page.goto(site + "api/index.html")
    page.locator(".smalldocs-search input").focus()
    page.keyboard.type("Gallery.search")
    page.locator(".smalldocs-search-results a").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda u: not u.endswith("api/index.html"))
    assert "search" in page.url
