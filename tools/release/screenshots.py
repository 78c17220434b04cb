"""Screenshots of the explorers for the documentation: nbs/images/*.webp, at most 150 kB each

    python tools/release/screenshots.py [--out nbs/images]

Opens the web page in Chromium, takes the first step in each tab, and saves what is shown."""

import argparse
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/ui"))
from conftest import FLAGS, Web, find_browser

# screenshot → name of its tab, selector of its panel
TABS = dict(
    ask=("Ask", ".dl-ask"),
    adapters=("Adapters", ".dl-adapters"),
    styles=("Styles", ".dl-styles"),
    slots=("Slots", ".dl-slots"),
    words=("Words", ".dl-shared-words"),
    training=("Train", ".dl-training"),
    comparison=("Compare", ".dl-compare"),
)
NO_PROGRESS = """() => [...document.querySelectorAll('.dl progress, .dl .dl-progress')]
    .every(e => getComputedStyle(e).display === 'none' || !e.offsetHeight)"""


def ask(page):
    "An Arabic query with two models, and the explanation of a hit"
    page.locator(".dl-ask .dl-fold", has_text="Models").click()
    page.locator(".dl-ask button", has_text="static adapter").click()
    box = page.locator(".dl-ask .dl-query input")
    box.fill("ثلاث قطط في المدينة")
    box.press("Enter")
    page.locator(".dl-ask .dl-grid[dir=rtl]").nth(1).wait_for()
    page.wait_for_function("() => document.querySelector('.dl-ask .dl-hit img').alt.startsWith('Three cats')")
    page.locator(".dl-ask .dl-hit").first.click()
    page.locator(".dl-ask button.dl-why").click()
    page.locator(".dl-ask .dl-spots img").nth(1).wait_for()


def words(page):
    "An Arabic word"
    page.locator(".dl-shared-words .dl-query input").first.fill("بطريق")
    page.locator(".dl-shared-words .dl-entry td[dir=rtl]").wait_for()


def settle(page, seconds: float = 4):
    "Wait until figures and images are drawn"
    page.wait_for_timeout(1000 * seconds)
    page.wait_for_function(NO_PROGRESS, timeout=180_000)
    page.wait_for_timeout(2000)


def save(page, path: Path, width: int = 1000, top: int = 1250):
    "Save the upper part of the page as a small WebP"
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot = shot.crop((0, 0, shot.width, min(shot.height, top)))
    shot = shot.resize((width, round(shot.height * width / shot.width)), Image.Resampling.LANCZOS)
    path.parent.mkdir(parents=True, exist_ok=True)
    shot.save(path, "WEBP", quality=70, method=6)


def click(selector: str):
    "A first step that is a click"
    return lambda page: page.locator(selector).first.click()


STEPS = dict(
    ask=ask,
    words=words,
    adapters=click(".dl-adapters button.dl-draw"),
    styles=click(".dl-styles button.dl-draw"),
    training=click(".dl-training button.dl-example"),
)


def save_tab(page, name: str, out: Path) -> None:
    "Screenshot of a tab after its first step"
    title, panel = TABS[name]
    page.locator(".dl-app .lm-TabBar-tab", has_text=title).first.click()
    page.locator(panel).first.wait_for()
    settle(page, 3)
    if name in STEPS:
        STEPS[name](page)
        settle(page, 6)
    settle(page)
    page.evaluate("() => window.scrollTo(0, 0)")
    save(page, out / f"{name}.webp", top=1600)


def main(out: Path) -> None:
    web = Web(Path(tempfile.mkdtemp()), DASD_LAB_WORLD="pictograms")
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=find_browser(), args=FLAGS)
            page = browser.new_page(viewport=dict(width=1400, height=1600))
            page.set_default_timeout(120_000)
            page.goto(web.url, timeout=180_000)
            page.locator(".dl-ask .dl-query input").wait_for()
            page.locator(".dl-ask button", has_text="月球上的一只企鹅").click()
            page.locator(".dl-ask .dl-hit img").nth(5).wait_for()
            settle(page, 1)
            save(page, out / "app.webp")
            for name in TABS:
                save_tab(page, name, out)
            browser.close()
    finally:
        web.stop()


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=ROOT / "nbs/images")
    main(**vars(p.parse_args()))
