"The Ask explorer: queries in several scripts, explanations, history"

import re

from conftest import open_tab, shoot, unfold

HITS = ".dl-ask .dl-answer .dl-hit"
IDS = "hits => hits.map(hit => hit.dataset.id).join()"

# a new list of hits is shown
NEW_HITS = f"""before => {{
  const ids = [...document.querySelectorAll('{HITS}')].map(hit => hit.dataset.id).join();
  return ids && ids !== before;
}}"""
LOADED = f"""() => [...document.querySelectorAll('{HITS} img')].every(
  image => image.complete && image.naturalWidth > 0)"""
HINT = "pattern => new RegExp(pattern).test(document.querySelector('.dl-ask .dl-query .dl-hint').textContent)"
FIRST_HIT = f"id => document.querySelector('{HITS}').dataset.id === id"
QUERY = "text => document.querySelector('.dl-ask .dl-query input').value === text"
WORDS = """word => [...document.querySelectorAll('.dl-ask .dl-words .xtick text')].some(
  label => label.textContent.includes(word))"""
DIRECTION = "node => getComputedStyle(node).direction"


def search(root, text: str, language: str | re.Pattern):
    "Type a query, wait for the detected language, press Enter, and wait for the images of the hits"
    box = root.locator(".dl-ask .dl-query input").first
    box.fill(text)
    root.page.wait_for_function(HINT, arg=language)
    before = root.locator(HITS).evaluate_all(IDS)
    box.press("Enter")
    root.page.wait_for_function(NEW_HITS, arg=before)
    root.page.wait_for_function(LOADED)
    return root.locator(f"{HITS} img")


def search_in_three_scripts(page, root, name: str):
    "Search in Chinese, Arabic and German"
    images = search(root, "三只猫在城市里", "中文")
    assert images.count() == 12
    first = images.evaluate_all("images => images.slice(0, 3).map(image => image.alt)")
    assert "Three cats in front of tall buildings." in first
    search(root, "ثلاث قطط في المدينة", "العربية")
    assert root.locator(".dl-ask .dl-query input").evaluate(DIRECTION) == "rtl"
    assert root.locator(".dl-ask .dl-grid").first.evaluate(DIRECTION) == "rtl"
    shoot(page, f"{name}_arabic")
    search(root, "eine rote Katze", "Deutsch")
    assert not any(root.locator(".dl-ask .dl-message").all_inner_texts())


def explain_the_second_hit(page, root, name: str):
    "Select the second hit with the keyboard, explain it, search for similar images, and undo"
    root.locator(HITS).first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    selected = root.locator(".dl-ask .dl-hit[aria-pressed=true]").first
    selected.wait_for()
    id = selected.get_attribute("data-id")
    assert id == root.locator(HITS).nth(1).get_attribute("data-id")
    about = root.locator(".dl-ask .dl-about")
    about.locator("img.dl-large").wait_for()
    assert about.locator("bdi[lang=ar][dir=rtl]").count() >= 1
    about.get_by_role("button", name="Why this image?").click()
    about.locator(".dl-spots img").nth(1).wait_for(timeout=300_000)
    page.wait_for_function(WORDS, arg="Katze")
    shoot(page, f"{name}_why")
    about.get_by_role("button", name="Find similar images").click()
    page.wait_for_function(FIRST_HIT, arg=id)
    unfold(root.locator(".dl-ask").get_by_role("button", name="History"))
    root.locator(".dl-ask").get_by_role("button", name="Undo").click()
    page.wait_for_function(QUERY, arg="eine rote Katze")


def test_ask(workbench):
    open_tab(workbench, "Ask")
    root = workbench.locator("body")
    assert search(root, "猫", "中文|日本語").count() == 12
    search(root, "ein roter Hund und " * 105, "Deutsch")  # 2,000 characters
    assert "only the first 1,000" in root.locator(".dl-ask .dl-message").first.inner_text()
    search_in_three_scripts(workbench, root, "ask")
    explain_the_second_hit(workbench, root, "ask")
    search(root, "Quantencomputer Aktienkurs", "Deutsch")
    assert "quantencomputer" in root.locator(".dl-ask .dl-answer .dl-message").first.inner_text().lower()
    shoot(workbench, "ask_doubt")
