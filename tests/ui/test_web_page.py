"The workbench as a web page: its token, a reload, and what is shown"

import urllib.error
import urllib.request
from urllib.parse import quote

from conftest import colour, fits, is_dark, settle, shoot

BOX = ".dl-ask .dl-query input"


def final_address(url: str) -> str:
    "Where a request without a token ends"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.url


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code


def test_the_page_and_the_sockets_of_its_kernels_need_the_token_and_the_name_of_this_machine(web):
    for path in ("", "?token=wrong", "api/kernels/0/channels", "voila/query/0"):
        assert "/login" in final_address(web.home + path), path
        for host in ("evil.example", "localhost:80@evil.example", "127.0.0.1.evil.example"):
            assert status(web.home + path, host=host) in (400, 403), (path, host)


def test_another_browser_needs_the_link(web, browser):
    page = browser.new_context().new_page()
    page.goto(web.home)
    assert "/login" in page.url
    page.context.close()


QUERIES = dict(de="drei Katzen vor Hochhäusern", zh="三只猫在城市里", ar="بطريق على القمر")
SIZES = (1600, 900), (1024, 768), (390, 844)
SHOWN = """query => document.querySelector('.dl-ask .dl-query input')?.value === query
  && [...document.querySelectorAll('.dl-ask .dl-hit img')].filter(image => image.complete).length >= 12"""
IN_ADDRESS = "([name, value]) => new URLSearchParams(location.search).get(name) === value"
BOTTOM = "() => document.querySelector('.dl-ask .dl-hit').getBoundingClientRect().bottom"


def ask(page, query: str):
    "Type a query, and wait for its images"
    page.locator(BOX).fill(query)
    page.locator(BOX).press("Enter")
    page.wait_for_function(IN_ADDRESS, arg=["q", query])
    page.wait_for_function(SHOWN, arg=query)
    settle(page)


def each_look(page):
    "Three widths, each in dark and light colours; yields height, colour scheme and width"
    for width, height in SIZES:
        page.set_viewport_size(dict(width=width, height=height))
        settle(page, 150)
        for scheme in ("dark", "light"):
            colour(page, scheme)
            assert is_dark(page) == (scheme == "dark"), scheme
            yield height, scheme, width


def test_the_walk(web, page):
    "Results are above the fold at three widths; the selected image is beside them, and on a phone at the top"
    page.emulate_media(color_scheme="dark")
    page.goto(web.url)
    page.locator(".dl-ask .dl-hit").nth(11).wait_for()  # an example is answered without a click
    assert is_dark(page)
    for language, query in QUERIES.items():
        ask(page, query)
        for height, scheme, width in each_look(page):
            assert page.evaluate(BOTTOM) < height, (language, scheme, width)
            assert fits(page), (language, scheme, width)
            shoot(page, f"walk_{scheme}_{language}_{width}")
    page.locator(".dl-ask .dl-hit").nth(1).click()
    page.locator(".dl-about img.dl-large").wait_for()
    for height, scheme, width in each_look(page):
        image = page.locator(".dl-about img.dl-large").bounding_box()
        assert image["y"] + image["height"] < height, (scheme, width)
        shoot(page, f"walk_{scheme}_{width}_image")
    assert "JupyterLab" not in page.locator("body").inner_text()


def test_what_is_shown_is_in_the_address(web, page):
    page.goto(f"{web.url}&q={quote('eine rote Katze')}")
    page.wait_for_function(SHOWN, arg="eine rote Katze")
    ask(page, "三只猫在城市里")
    id = page.locator(".dl-ask .dl-hit").nth(2).get_attribute("data-id")
    page.locator(".dl-ask .dl-hit").nth(2).click()
    page.wait_for_function(IN_ADDRESS, arg=["image", id])
    page.get_by_role("tab", name="Styles").click()
    page.wait_for_function(IN_ADDRESS, arg=["tab", "Styles"])
    page.reload()
    page.locator(BOX).wait_for(state="attached")
    page.locator(".dl-styles .dl-maps .js-plotly-plot .main-svg").first.wait_for()
    page.go_back()
    page.wait_for_function(IN_ADDRESS, arg=["image", id])
    page.locator(f".dl-ask .dl-hit[aria-pressed=true][data-id='{id}']").wait_for()
    assert page.locator(BOX).input_value() == "三只猫在城市里"


def test_four_models_side_by_side_and_why_no_fifth(web, page):
    page.goto(web.url)
    page.locator(".dl-ask .dl-hit").first.wait_for()
    page.locator(".dl-ask").get_by_role("button", name="Models").click()
    names = page.locator(".dl-ask .dl-asking .widget-toggle-button:not(.dl-fold)")
    for i in range(1, 4):
        names.nth(i).click()
        settle(page)
    page.get_by_text("Side by side, up to four").wait_for()
    page.locator(".dl-ask .dl-asking .widget-toggle-button:disabled").first.wait_for()
    page.locator(".dl-ask .dl-answer").nth(3).wait_for()
    for width, columns in ((1600, 4), (1024, 4), (390, 1)):
        page.set_viewport_size(dict(width=width, height=900))
        lefts = page.locator(".dl-ask .dl-answer").evaluate_all("cards => cards.map(card => card.offsetLeft)")
        assert len(set(lefts)) == columns, (width, lefts)
        shoot(page, f"four_models_{width}")
