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
        def log_message(self, *a):
            pass

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
