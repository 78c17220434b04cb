"A person looks words up in several scripts and follows a picture through the rankings of a query and its translations, in JupyterLab, in the dark, by keyboard, and on a narrow page"

import pytest
from conftest import open_guide, shoot

from dasd_lab.explore.workbench import SHIPPED
from dasd_lab.training.recipes import shipped_run

pytestmark = pytest.mark.skipif(
    not (shipped_run() / SHIPPED["SMALR"]).is_dir(), reason=f"no SMALR run in {shipped_run()}"
)
TOLD = "() => document.querySelector('.dl-shared-words .dl-told-entry')?.innerText"


def test_words_in_jupyterlab(lab, page):
    root = open_guide(page, "shared_words", dark=True).locator(".dl-shared-words").first
    root.locator(".dl-near .bars .point").first.wait_for(timeout=300_000)
    root.locator(".dl-ways .bars .point").first.wait_for()
    # words in their own scripts: their language, their direction, who shares the entry
    word = root.locator(".dl-query input").nth(0)
    query = root.locator(".dl-query input").nth(1)
    for text, language in (
        ("pingouin", "French"),
        ("tučňák", "Czech"),
        ("企鹅", "Chinese"),
        ("ペンギン", "Japanese"),
        ("بطريق", "Arabic"),
    ):
        before = page.evaluate(TOLD)
        word.fill(text)
        root.locator(".dl-looking .dl-hint", has_text=language).wait_for()
        page.wait_for_function(f"before => ({TOLD})() !== before", arg=before)
        assert (
            root.locator(".dl-entry tbody tr").count()
            or "dropped" in page.evaluate(TOLD)
            or "No known word" in page.evaluate(TOLD)
        )
    assert (
        root.locator(".dl-entry td[dir=rtl]").count() == 1
        and root.locator(".dl-entry [aria-current=true]").count() == 1
    )
    assert (
        word.evaluate("e => getComputedStyle(e).direction") == "rtl"
        and root.locator(".dl-entry [aria-current=true] bdi").get_attribute("lang") == "ar"
    )
    word.fill("qqqq")
    root.locator(".dl-told-entry", has_text="No known word").wait_for()
    assert not root.locator(".dl-entry").count()
    word.fill("Hund")
    root.locator(".dl-entry").wait_for()
    root.locator("button.dl-take-check").click()
    root.locator(".dl-check .bars .point").first.wait_for(timeout=300_000)
    root.locator(".dl-told-check", has_text="shuffled pairs").wait_for()
    # a query by Enter, its gloss beside it, right to left
    query.fill("بطريق على القمر")
    query.press("Enter")
    root.locator(".dl-versions bdi[lang=en]", has_text="penguin").wait_for()
    ways = root.locator(".dl-way")
    assert (
        ways.count() == 3
        and ways.nth(0).locator("ul.dl-grid").get_attribute("dir") == "rtl"
        and all(ways.nth(i).locator(".dl-hit").count() == 6 for i in range(3))
    )
    # by keyboard to another picture, which is followed through every ranking
    ways.nth(2).locator(".dl-hit").nth(0).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    ways.nth(2).locator("text=rank 2 of").wait_for()
    assert ways.nth(2).locator(".dl-hit").nth(1).get_attribute(
        "aria-pressed"
    ) == "true" and "by its own words" in ways.nth(2).locator(".dl-hit img").nth(1).get_attribute("alt")
    # a caption whose picture is known, and an oracle that says it is one
    root.locator(".dl-translator select").select_option(label="oracle: captions of the same picture")
    root.locator("button.dl-draw").click()
    root.locator(".dl-told-versions", has_text="nobody has").wait_for()
    page.wait_for_function("() => document.querySelectorAll('.dl-shared-words .dl-way').length === 9", timeout=300_000)
    root.locator(".dl-way", has_text="the sought picture").nth(8).wait_for()
    # a combination that is learnt beside the page
    root.locator(".dl-translator select").select_option(index=0)
    root.locator("button.dl-learn").click()
    root.locator(".dl-way", has_text="CLC-C").wait_for(timeout=300_000)
    root.locator(".dl-told-versions", has_text="200 validation pictures").wait_for()
    root.locator(".dl-looking").scroll_into_view_if_needed()
    shoot(page, "words_lab")
    root.locator(".dl-versions").scroll_into_view_if_needed()
    shoot(page, "words_rankings")
    page.set_viewport_size(dict(width=1024, height=800))
    page.wait_for_timeout(2000)
    assert page.evaluate(
        "() => { const p = document.querySelector('.dl-shared-words'); return p.scrollWidth <= p.clientWidth + 1 }"
    )
    assert not page.outside and not page.problems, (page.outside, page.problems)
