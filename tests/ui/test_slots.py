"""The Slots explorer: typing, mouse, keyboard, and a narrow page"""

import pytest
from conftest import fits, open_tab, settle, shoot, unfold_details

from dasd_lab.explore.workbench import SHIPPED
from dasd_lab.runs.shipped import shipped_run

pytestmark = pytest.mark.skipif(
    not (shipped_run() / SHIPPED["LECCR"]).is_dir(), reason=f"no LECCR run in {shipped_run()}"
)
SCORES = "() => document.querySelector('.dl-slots .dl-slot-scores')?.innerText"
TIMEOUT = 300_000  # ms, for work of the kernel


def wait_for_scores(page, before):
    page.wait_for_function(f"before => ({SCORES})() !== before", arg=before)


def check_cards(root):
    cards = root.locator('.dl-hit[data-id="0"], .dl-hit[data-id="1"], .dl-hit[data-id="2"], .dl-hit[data-id="3"]')
    assert cards.count() == 4
    for alt in cards.locator("img").evaluate_all("images => images.map(image => image.alt)"):
        assert "on the whole image" in alt
    assert root.locator(".dl-hit.dl-marked").count() == 1
    return cards


def type_and_search(page, root):
    "Typing compares with the selected image; Enter searches"
    box = root.locator(".dl-query input")
    picture = root.locator("img.dl-large").get_attribute("alt")
    before = page.evaluate(SCORES)
    box.fill("deux chiens dans une prairie")
    root.locator(".dl-hint", has_text="French").wait_for()
    wait_for_scores(page, before)
    assert root.locator("img.dl-large").get_attribute("alt") == picture
    assert root.locator(".dl-hit.dl-marked").count() == 1
    before = page.evaluate(SCORES)
    box.press("Enter")
    page.wait_for_function("alt => document.querySelector('.dl-slots img.dl-large').alt !== alt", arg=picture)
    wait_for_scores(page, before)


def enlarge_another_slot(page, root, cards):
    "By keyboard to another slot, and back by the button"
    marked = root.locator(".dl-hit.dl-marked")
    best = marked.get_attribute("data-id")
    other = "1" if best != "1" else "0"
    cards.nth(0).focus()
    if other == "1":
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    root.locator(".dl-map-text", has_text=f"Slot {int(other) + 1}:").wait_for()
    assert root.locator(f'.dl-hit[data-id="{other}"]').get_attribute("aria-pressed") == "true"
    assert marked.get_attribute("data-id") == best
    root.locator("button.dl-back").click()
    root.locator(".dl-map-text", has_text=f"Slot {int(best) + 1}:").wait_for()


def select_another_image(page, root):
    description = root.locator(".dl-picture bdi[lang=en]").first.inner_text()
    root.locator(".dl-hit").nth(2).click()
    page.wait_for_function(
        "text => document.querySelector('.dl-slots .dl-picture bdi[lang=en]').innerText !== text", arg=description
    )


def count_and_find(root):
    root.locator("button.dl-count-wins").click()
    root.locator(".dl-wins .bars .point >> visible=true").first.wait_for(timeout=TIMEOUT)
    root.locator(".dl-wins-text", has_text="leads the second").wait_for()
    unfold_details(root)
    root.locator("button.dl-find-nearest").click()
    root.locator(".dl-nearest td bdi").first.wait_for(timeout=TIMEOUT)


def test_slots(workbench):
    root = open_tab(workbench, "Slots")
    root.locator(".dl-map .heatmaplayer image").first.wait_for(timeout=TIMEOUT)
    cards = check_cards(root)
    type_and_search(workbench, root)
    enlarge_another_slot(workbench, root, cards)
    select_another_image(workbench, root)
    count_and_find(root)
    root.locator(".dl-picture").scroll_into_view_if_needed()
    shoot(workbench, "slots")
    workbench.set_viewport_size(dict(width=1024, height=800))
    settle(workbench, 500)
    assert fits(workbench, ".dl-slots")
