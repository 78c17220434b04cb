"""The Words explorer in dark colours: scripts, rankings, keyboard, and a narrow page"""

import pytest
from conftest import colour, fits, open_tab, settle, shoot, unfold_details

from dasd_lab.explore.workbench import SHIPPED
from dasd_lab.runs.shipped import shipped_run

pytestmark = pytest.mark.skipif(
    not (shipped_run() / SHIPPED["SMALR"]).is_dir(), reason=f"no SMALR run in {shipped_run()}"
)
ENTRY_TEXT = "() => document.querySelector('.dl-shared-words .dl-entry-text')?.innerText"
TIMEOUT = 300_000  # ms, for work of the kernel
WORDS = (
    ("pingouin", "French"),
    ("tučňák", "Czech"),
    ("企鹅", "Chinese"),
    ("ペンギン", "Japanese"),
    ("بطريق", "Arabic"),
)


def look_up_words(page, root):
    "Words in several scripts: language, direction, and the words of the entry"
    word = root.locator(".dl-query input").nth(0)
    for text, language in WORDS:
        before = page.evaluate(ENTRY_TEXT)
        word.fill(text)
        root.locator(".dl-looking .dl-hint", has_text=language).wait_for()
        page.wait_for_function(f"before => ({ENTRY_TEXT})() !== before", arg=before)
        has_rows = root.locator(".dl-entry tbody tr").count() > 0
        entry_text = page.evaluate(ENTRY_TEXT)
        assert has_rows or "dropped" in entry_text or "No known word" in entry_text
    root.locator(".dl-entry [aria-current=true] bdi[lang=ar]").wait_for()  # drawn after the text
    assert root.locator(".dl-entry div[dir=rtl]").count() == 1
    selected = root.locator(".dl-entry [aria-current=true]")
    assert selected.count() == 1
    assert selected.locator("bdi").get_attribute("lang") == "ar"
    assert word.evaluate("e => getComputedStyle(e).direction") == "rtl"
    word.fill("qqqq")
    root.locator(".dl-entry-text", has_text="No known word").wait_for()
    root.locator(".dl-entry").wait_for(state="detached")
    word.fill("Hund")
    root.locator(".dl-entry").wait_for()


def compare_with_lexicons(root):
    unfold_details(root)
    root.locator("button.dl-check-dictionary").click()
    root.locator(".dl-check .bars .point").first.wait_for(timeout=TIMEOUT)
    root.locator(".dl-check-text", has_text="shuffled pairs").wait_for()


def rank_a_query(root):
    "A query from right to left, with its translation"
    query = root.locator(".dl-query input").nth(1)
    query.fill("بطريق على القمر")
    query.press("Enter")
    root.locator(".dl-versions bdi[lang=en]", has_text="penguin").wait_for()
    rankings = root.locator(".dl-way")
    for i in range(3):  # rankings of the query before were laid out from left to right
        rankings.nth(i).locator("ul.dl-grid[dir=rtl] .dl-hit").nth(5).wait_for()
    assert rankings.count() == 3


def follow_an_image(page, root):
    "By keyboard to another image, which is followed through the rankings"
    settle(page)  # or what is drawn anew takes the focus away
    ranking = root.locator(".dl-way").nth(2)
    ranking.locator(".dl-hit").nth(0).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    ranking.locator("text=rank 2 of").wait_for()
    ranking.locator('li:nth-child(2) .dl-hit[aria-pressed="true"]').wait_for()
    assert "by the original query" in ranking.locator(".dl-hit img").nth(1).get_attribute("alt")


def use_the_oracle(page, root):
    "A caption with a known image, and captions of the same image in place of translations"
    root.locator(".dl-translator select").select_option(label="oracle: captions of the same image")
    root.locator("button.dl-draw").click()
    root.locator(".dl-versions-text", has_text="Not translations").wait_for()
    page.wait_for_function("() => document.querySelectorAll('.dl-shared-words .dl-way').length === 9", timeout=TIMEOUT)
    root.locator(".dl-way", has_text="the target image").nth(8).wait_for()


def learn_a_combination(root):
    root.locator(".dl-translator select").select_option(index=0)
    root.locator("button.dl-learn").click()
    root.locator(".dl-way", has_text="CLC-C").wait_for(timeout=TIMEOUT)
    root.locator(".dl-versions-text", has_text="200 validation images").wait_for()


def test_words(workbench):
    colour(workbench, "dark")
    root = open_tab(workbench, "Words")
    root.locator(".dl-near .bars .point").first.wait_for(timeout=TIMEOUT)
    root.locator(".dl-ways .bars .point").first.wait_for()
    look_up_words(workbench, root)
    compare_with_lexicons(root)
    rank_a_query(root)
    follow_an_image(workbench, root)
    use_the_oracle(workbench, root)
    learn_a_combination(root)
    root.locator(".dl-looking").scroll_into_view_if_needed()
    shoot(workbench, "words_looking")
    root.locator(".dl-versions").scroll_into_view_if_needed()
    shoot(workbench, "words_rankings")
    workbench.set_viewport_size(dict(width=1024, height=800))
    settle(workbench, 500)
    assert fits(workbench, ".dl-shared-words")
