"The workbench as a web page: its door, a reload and a second tab"

import time
import urllib.error
import urllib.request

from conftest import watched

GRID = ".dl-ask .dl-query input"
SOON = 5  # seconds, on an idle machine
PATIENCE = 4  # times as long beside other tests


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code


def test_the_page_and_the_sockets_of_its_kernels_are_behind_the_door(web):
    for path in ("", "?token=wrong", "voila/static/voila.js", "api/kernels/0/channels", "voila/query/0"):
        assert status(web.home + path) == 401, path
        assert status(web.home + path, host="evil.example") == 421, path
        assert status(web.home + path, origin="http://evil.example") == 403, path


def timed(page, act) -> float:
    "Seconds until the search box is there"
    began = time.monotonic()
    act()
    page.locator(GRID).wait_for()
    return time.monotonic() - began


def test_a_reload_and_a_second_tab_open_soon(web, page):
    page.goto(web.url)
    page.locator(GRID).wait_for()
    seconds = [timed(page, page.reload) for _ in range(3)]
    second = watched(page.context.new_page())
    seconds.append(timed(second, lambda: second.goto(web.home)))  # the cookie lets it in
    print("reload, second tab:", [f"{s:.1f} s" for s in seconds])
    assert max(seconds) < SOON * PATIENCE, seconds
    assert not page.problems + second.problems, page.problems + second.problems
    second.close()


def test_another_browser_needs_the_link(web, browser):
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(web.home)
    assert answer.status == 401 and "link" in page.content()
    context.close()
