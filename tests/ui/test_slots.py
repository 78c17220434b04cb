"A person types and watches the mark move from slot to slot, in JupyterLab, by mouse and by keyboard, and on a narrow page"

import pytest
from conftest import open_guide, shoot

from dasd_lab.explore.workbench import SHIPPED
from dasd_lab.training.recipes import shipped_run

pytestmark = pytest.mark.skipif(
    not (shipped_run() / SHIPPED["LECCR"]).is_dir(), reason=f"no LECCR run in {shipped_run()}"
)
SCORES = "() => document.querySelector('.dl-slots .dl-slot-scores')?.innerText"


def test_slots_in_jupyterlab(lab, page):
    root = open_guide(page, "semantic_slots").locator(".dl-slots").first
    root.locator(".dl-map .heatmaplayer image").first.wait_for(timeout=300_000)
    cards = root.locator('.dl-hit[data-id="0"], .dl-hit[data-id="1"], .dl-hit[data-id="2"], .dl-hit[data-id="3"]')
    assert cards.count() == 4 and all(
        "on the whole picture" in a for a in cards.locator("img").evaluate_all("i => i.map(x => x.alt)")
    )
    marked = root.locator(".dl-hit.dl-marked")
    assert marked.count() == 1
    # typing compares with the picture that is shown, Enter searches
    box = root.locator(".dl-query input")
    picture = root.locator("img.dl-large").get_attribute("alt")
    before = page.evaluate(SCORES)
    box.fill("deux chiens dans une prairie")
    root.locator(".dl-hint", has_text="French").wait_for()
    page.wait_for_function(f"before => ({SCORES})() !== before", arg=before)
    assert root.locator("img.dl-large").get_attribute("alt") == picture and marked.count() == 1
    before = page.evaluate(SCORES)
    box.press("Enter")
    page.wait_for_function("alt => document.querySelector('.dl-slots img.dl-large').alt !== alt", arg=picture)
    page.wait_for_function(f"before => ({SCORES})() !== before", arg=before)
    # by keyboard to another slot, which is shown large; and back
    best = marked.get_attribute("data-id")
    other = "1" if best != "1" else "0"
    cards.nth(0).focus()
    page.keyboard.press("ArrowRight") if other == "1" else None
    page.keyboard.press("Enter")
    root.locator(".dl-told-map", has_text=f"Slot {int(other) + 1}:").wait_for()
    assert (
        root.locator(f'.dl-hit[data-id="{other}"]').get_attribute("aria-pressed") == "true"
        and marked.get_attribute("data-id") == best
    )
    root.locator("button.dl-back").click()
    root.locator(".dl-told-map", has_text=f"Slot {int(best) + 1}:").wait_for()
    # another picture, and its description
    description = root.locator(".dl-picture bdi[lang=en]").first.inner_text()
    root.locator(".dl-hit").nth(2).click()
    page.wait_for_function(
        "text => document.querySelector('.dl-slots .dl-picture bdi[lang=en]').innerText !== text", arg=description
    )
    root.locator("button.dl-take-wins").click()
    root.locator(".dl-wins .bars .point").first.wait_for(timeout=300_000)
    root.locator(".dl-told-wins", has_text="captions;").wait_for()
    root.locator("button.dl-take-nearest").click()
    root.locator(".dl-nearest td bdi").first.wait_for(timeout=300_000)
    root.locator(".dl-picture").scroll_into_view_if_needed()
    shoot(page, "slots_lab")
    page.set_viewport_size(dict(width=1024, height=800))
    page.wait_for_timeout(2000)
    assert page.evaluate(
        "() => { const p = document.querySelector('.dl-slots'); return p.scrollWidth <= p.clientWidth + 1 }"
    )
    assert not page.outside and not page.problems, (page.outside, page.problems)
