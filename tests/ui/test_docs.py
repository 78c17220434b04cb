"The documentation site, built once and opened from disk, without a server, as a reader may"

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MATHJAX = ROOT / "node_modules/mathjax/es5/tex-svg-full.js"

PAGES = ("index", "pages/install", "pages/papers", "pages/equations", "pages/architecture", "guides/first_search")
PAGES += ("guides/clusters_of_expression", "studies/claims")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    "The folder that `make docs` writes; a warning of the generator, such as a broken link, is an error"
    out = tmp_path_factory.mktemp("docs")
    command = [Path(sys.executable).parent / "sphinx-build", "-q", "-W", "--keep-going", "-c", ROOT / "tools/docs"]
    environment = os.environ | dict(OMP_NUM_THREADS="1")
    done = subprocess.run(
        [*command, "-d", out / "doctrees", ROOT / "nbs", out / "site"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return out / "site"


@pytest.fixture
def opened(site, page):
    "A function that opens a page from disk"
    return lambda name: page.goto((site / f"{name}.html").as_uri())


def test_no_page_names_a_folder_of_the_machine(site):
    assert not [path.name for path in site.rglob("*.html") if str(ROOT) in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_pages_fit_the_window_and_load_nothing_from_elsewhere(site, page, opened, width):
    page.set_viewport_size(dict(width=width, height=900))
    longest = sorted((site / "api").glob("*.html"), key=lambda path: path.stat().st_size)[-1]
    for name in (*PAGES, f"api/{longest.stem}"):
        opened(name)
        assert page.locator("h1").first.inner_text().strip(), name
        assert not page.problems and not page.outside, (name, page.problems, page.outside)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the window"
        assert not page.locator("article img:not([alt])").count(), name


@pytest.mark.parametrize(
    "query,wanted",
    [
        ("DynamicAdapter", "dasd_lab.methods.dasd.adapters.html"),
        ("Install", "pages/install.html"),
        ("adversarial", "pages/glossary.html"),
    ],
)
def test_search_works_without_a_server(page, opened, query, wanted):
    opened("index")
    page.locator("input[name=q]").fill(query)
    page.keyboard.press("Enter")
    page.locator(f'#search-results a[href*="{wanted}"]').first.wait_for()


def test_a_term_is_found_in_the_glossary_first(site, page):
    for term in ("caption", "backbone", "slot", "companion"):
        page.goto(f"{(site / 'search.html').as_uri()}?q={term}")
        page.locator("#search-results li a").first.wait_for()
        assert "pages/glossary.html" in page.locator("#search-results li a").first.get_attribute("href"), term
    page.goto(f"{(site / 'search.html').as_uri()}?q=zqxwv")
    page.get_by_text("did not match any documents").wait_for()


def test_a_figure_is_drawn_in_the_colours_of_the_page(page, opened):
    page.emulate_media(color_scheme="dark")
    opened("pages/shipped_models")
    place = page.locator(".figure-place").first
    place.scroll_into_view_if_needed()
    label = page.locator(".figure-place[data-drawn] .legendtext").first
    label.wait_for()
    assert brightness(label.evaluate("e => getComputedStyle(e).fill")) > 120
    assert brightness(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 60


def brightness(colour: str) -> float:
    "Mean of red, green and blue"
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.skipif(not MATHJAX.is_file(), reason="MathJax comes from npm, which is not there or found no package")
def test_formulas_are_drawn(page, opened):
    opened("pages/equations")
    page.locator("mjx-container svg").first.wait_for()
    assert page.locator("table mjx-container").count() >= 19 and not page.locator("mjx-merror").count()


def test_an_equation_leads_to_its_function(page, opened):
    opened("pages/equations")
    page.locator("a", has_text="DynamicAdapter.forward").first.click()
    page.wait_for_url("**/dasd_lab.methods.dasd.adapters.html#dasd_lab.methods.dasd.adapters.DynamicAdapter.forward")


def test_queries_from_right_to_left_are_laid_out_so(page, opened):
    opened("index")
    for row in page.locator(".ask").all():
        text, images = (row.locator(part).bounding_box()["x"] for part in (".query", ".found"))
        assert (text > images) == (row.get_attribute("dir") == "rtl")
