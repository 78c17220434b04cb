"The switch between pictograms and photographs on the web page"

import pytest
from conftest import shoot

from dasd_lab.runs.shipped import shipped_runs

pytestmark = pytest.mark.skipif("photographs" not in shipped_runs(), reason="no model for photographs")
FIRST_IDS = """suffix => {
  const hits = [...document.querySelectorAll('.dl-ask .dl-answer .dl-hit')];
  return hits.length > 0 && hits.every(hit => hit.dataset.id.includes(suffix));
}"""


def switch_to(page, label: str, about: str):
    "Press a button of the switch and wait until the explorer shows the other images"
    page.locator(".dl-world-names button:visible", has_text=label).first.click()
    page.locator(".dl-world-about:visible", has_text=about).first.wait_for()


def ask(page, text: str, suffix: str):
    "Search, and wait until every hit has an id with the suffix"
    box = page.locator(".dl-ask .dl-query input:visible").first
    box.fill(text)
    box.press("Enter")
    page.wait_for_function(FIRST_IDS, arg=suffix)


@pytest.mark.slow  # without a browser: test_world_switch, test_shipped_photographs
def test_slots_on_photographs_and_a_folder_that_is_not_there(web, page):
    "The shipped LECCR describes the images by words; then a folder that is not there changes nothing"
    page.goto(web.url, timeout=300_000)
    page.locator(".dl-ask .dl-query input").first.wait_for()
    switch_to(page, "Photographs", "8 images")
    page.locator(".dl-app .lm-TabBar-tab", has_text="Slots").first.click()
    slots = page.locator(".dl-slots:visible").first
    slots.locator(".dl-marked").first.wait_for(timeout=120_000)
    slots.get_by_text("Description by words that name what an image shows").wait_for()
    box = slots.locator(".dl-query input:visible").first
    box.fill("rot")
    box.press("Enter")
    page.wait_for_function("() => document.querySelector('.dl-slots img.dl-large').alt.includes('.png')")
    shoot(page, "slots_photographs")
    page.locator(".dl-app .lm-TabBar-tab", has_text="Ask").first.click()
    page.locator(".dl-worlds:visible").get_by_role("button", name="Other photographs").first.click()
    page.locator(".dl-world-folder input:visible").first.fill("/no/such/folder")
    page.locator("button.dl-world-open:visible").first.click()
    page.locator(".dl-ask .dl-message", has_text="no folder /no/such/folder").wait_for()
    ask(page, "rot", ".png")
