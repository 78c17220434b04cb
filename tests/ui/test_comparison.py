"The Compare explorer: tables and figures of two runs, queries on which they agree, and a folder that is not there"

import re

import pytest
from conftest import colour, fits, open_tab, settle, shoot

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

FIGURES = ("dl-recall", "dl-differences", "dl-gaps")
# what both runs found is drawn again after the text of the query: until then a second target may be on the page
FOUND = """() => [0, 1].every(i => {
  const images = [...document.querySelectorAll(`.dl-compare .dl-found-${i} img`)];
  return document.querySelectorAll(`.dl-compare .dl-found-${i} .dl-marked`).length === 1
    && images.length > 0 && images.every(image => image.alt && image.complete && image.naturalWidth > 0);
})"""
QUERY_CHANGED = """before => {
    const text = document.querySelector(".dl-compare .dl-query-text")?.innerText;
    return text !== undefined && text !== before;
}"""


def wait_for_figures(panel, names):
    for name in names:
        panel.locator(f".{name} .main-svg").first.wait_for()


def evaluate_arabic(panel):
    "Evaluate 100 images in Arabic and wait for tables and figures"
    panel.locator(".dl-n-images select").select_option("100 images")
    panel.locator(".dl-languages select").select_option(label="Arabic · العربية")
    panel.locator(".dl-evaluate").click()
    panel.locator(".dl-table td", has_text="Arabic").wait_for(timeout=300_000)
    panel.locator(".dl-differences-table td", has_text="Arabic").wait_for(timeout=300_000)
    wait_for_figures(panel, FIGURES)


def select_query(page, panel):
    "List queries that both runs get right, and select one with the keyboard"
    panel.locator(".dl-kinds button", has_text=re.compile("^both")).click()
    panel.locator(".dl-queries .dl-hit").nth(11).wait_for()
    expect(panel.locator(".dl-queries .dl-told li[lang=ar][dir=rtl]")).to_have_count(12)
    assert panel.locator(".dl-queries .dl-grid").get_attribute("dir") == "rtl"
    before = panel.locator(".dl-query-text").inner_text()
    panel.locator(".dl-queries .dl-hit").nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_function(QUERY_CHANGED, arg=before)
    expect(panel.locator(".dl-query-text bdi")).to_have_attribute("dir", "rtl")
    for i in (0, 1):
        panel.locator(f".dl-found-{i} .dl-marked", has_text="1 target").first.wait_for()
    page.wait_for_function(FOUND)


def add_missing_folder(panel):
    panel.locator(".dl-folder input").fill("/nowhere/at/all")
    panel.locator(".dl-folder input").press("Tab")
    panel.locator(".dl-add").click()
    panel.locator(".dl-message", has_text="no folder").wait_for()


def check_width(page, scheme: str, width: int):
    "Nothing is wider than the panel"
    colour(page, scheme)
    page.set_viewport_size(dict(width=width, height=1400))
    settle(page, 500)
    assert fits(page, ".dl-compare")
    page.evaluate("() => document.querySelector('.dl-compare .dl-table').scrollIntoView()")
    shoot(page, f"comparison_{scheme}_{width}")


def test_compare(workbench):
    "Evaluate, list queries, select one, and add a folder that does not exist"
    panel = open_tab(workbench, "Compare")
    panel.locator(".dl-runs button[aria-pressed=true]").nth(1).wait_for()
    expect(panel.locator(".dl-settings td", has_text=re.compile("^method$"))).to_have_count(1)
    evaluate_arabic(panel)
    select_query(workbench, panel)
    if panel.locator(".dl-next:enabled").count():
        panel.locator(".dl-next").click()
        panel.locator('.dl-queries [data-id="12"]').wait_for()
    add_missing_folder(panel)
    check_width(workbench, "light", 1600)
    check_width(workbench, "dark", 1024)
