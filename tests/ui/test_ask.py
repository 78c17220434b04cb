"A person asks in several languages, in JupyterLab and on the web page"

import re

from conftest import open_guide, shoot


def asked(root, text: str, expected: str | re.Pattern):
    "Type a query, send it with Enter, and wait for what was understood and for the pictures"
    box = root.locator(".dl-ask .dl-query input").first
    box.fill(text)
    root.page.wait_for_function(
        "([hint, text]) => new RegExp(text).test(document.querySelector(hint).textContent)",
        arg=[".dl-ask .dl-query .dl-hint", expected],
    )
    before = root.locator(".dl-ask .dl-answer .dl-hit").evaluate_all("hits => hits.map(h => h.dataset.id).join()")
    box.press("Enter")
    root.page.wait_for_function(
        "before => { const now = [...document.querySelectorAll('.dl-ask .dl-answer .dl-hit')].map(h => h.dataset.id).join(); return now && now !== before }",
        arg=before,
    )
    images = root.locator(".dl-ask .dl-answer .dl-hit img")
    root.page.wait_for_function(
        "() => [...document.querySelectorAll('.dl-ask .dl-answer .dl-hit img')].every(i => i.complete && i.naturalWidth > 0)"
    )
    return images


def in_three_scripts(page, root, name: str):
    "What a newcomer does: ask in Chinese, in Arabic, in German"
    images = asked(root, "三只猫在城市里", "中文")
    assert images.count() == 12 and "Three cats in front of tall buildings." in images.evaluate_all(
        "i => i.slice(0, 3).map(x => x.alt)"
    )
    asked(root, "قطة صغيرة", "العربية")
    assert root.locator(".dl-ask .dl-query input").evaluate("i => getComputedStyle(i).direction") == "rtl"
    assert root.locator(".dl-ask .dl-grid").first.evaluate("g => getComputedStyle(g).direction") == "rtl"
    shoot(page, f"{name}_arabic")
    asked(root, "eine rote Katze", "Deutsch")
    assert (
        root.locator(".dl-ask .dl-message").count() == 0 or not root.locator(".dl-ask .dl-message").first.inner_text()
    )


def why_the_second(page, root, name: str):
    "By keyboard alone to the second picture; why it was found; more like it, and back"
    first = root.locator(".dl-ask .dl-answer .dl-hit").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    chosen = root.locator(".dl-ask .dl-hit[aria-pressed=true]")
    chosen.first.wait_for()
    assert chosen.first.get_attribute("data-id") == root.locator(".dl-ask .dl-answer .dl-hit").nth(1).get_attribute(
        "data-id"
    )
    about = root.locator(".dl-ask .dl-about")
    about.locator("img.dl-large").wait_for()
    assert about.locator("bdi[lang=ar][dir=rtl]").count() >= 1
    about.locator("button.dl-why").click()
    about.locator(".dl-spots img").nth(1).wait_for(timeout=300_000)
    page.wait_for_function(
        "() => /Katze/.test([...document.querySelectorAll('.dl-ask .dl-words .xtick text')].map(t => t.textContent).join())"
    )
    shoot(page, f"{name}_why")
    about.locator("button.dl-like").click()
    page.wait_for_function(
        "id => document.querySelector('.dl-ask .dl-answer .dl-hit').dataset.id === id",
        arg=chosen.first.get_attribute("data-id"),
    )
    root.locator(".dl-ask button.dl-undo").click()
    page.wait_for_function("() => document.querySelector('.dl-ask .dl-query input').value === 'eine rote Katze'")


def test_ask_in_jupyterlab(lab, page):
    root = open_guide(page, "ask_in_any_language")
    assert asked(root, "猫", "中文|日本語").count() == 12
    asked(root, "ein roter Hund und " * 105, "Deutsch")  # 2,000 characters pasted
    assert "only the first 1,000" in root.locator(".dl-ask .dl-message").first.inner_text()
    in_three_scripts(page, root, "ask_lab")
    why_the_second(page, root, "ask_lab")
    assert not page.outside and not page.problems, (page.outside, page.problems)


def test_ask_on_the_web_page(web, page):
    page.goto(web.url, timeout=300_000)
    page.locator(".dl-ask .dl-query input").wait_for(timeout=300_000)
    in_three_scripts(page, page.locator("body"), "ask_web")
    for tab, sign in dict(
        Adapters=".dl-adapters .dl-maps .heatmaplayer image",
        Styles=".dl-styles .dl-maps .js-plotly-plot .main-svg",
        Slots=".dl-slots :is(.dl-map .main-svg, .dl-message)",
        Train=".dl-training button.dl-example",
        Compare=".dl-compare .dl-run input:checked",
    ).items():
        page.get_by_role("tab", name=tab, exact=True).click()
        page.locator(sign).first.wait_for(timeout=300_000)
        page.wait_for_timeout(1000)
        shoot(page, f"web_{tab.lower()}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{tab} is wider than the page"
    assert not page.outside and not page.problems, (page.outside, page.problems)
