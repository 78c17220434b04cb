"The web page of the service: on phones and desktops, in several languages, with and without a mouse"

import io
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from conftest import COLOURS, is_dark, shoot, violations, watched

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from served import draw, make, picture, serving

from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.service import gallery_app

TOKEN = "a-token-of-many-letters"
PHONE = dict(width=360, height=740)
DESK = dict(width=1280, height=900)
RELAXED = dict(title="Colours", requests_per_minute=10**5, timeout_s=120.0)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("page") / "drawn", 15)


@pytest.fixture(scope="module")
def kept(browser, drawn, tmp_path_factory):
    gallery = make(tmp_path_factory.mktemp("page") / "gallery", drawn)
    yield gallery
    gallery.close()


@pytest.fixture(scope="module")
def at(kept, drawn):
    "The address of a read-only service"
    with serving(gallery_app(kept, ServiceSettings(**RELAXED, originals=str(drawn)))) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def served(tmp_path, drawn):
    "Serves a gallery of its own with some settings"
    with ExitStack() as stack:

        def serve(**settings):
            gallery = make(tmp_path / "gallery", drawn)
            stack.callback(gallery.close)
            app = gallery_app(gallery, ServiceSettings(**RELAXED | settings))
            return stack.enter_context(serving(app)), gallery

        yield serve


VIOLATIONS = """addEventListener('securitypolicyviolation', e =>
  console.error('policy: ' + e.violatedDirective + ' ' + e.blockedURI))"""


READY = "#status:not(:empty), #hits > li, #message:not(:empty), #token:not([hidden])"


@pytest.fixture
def visit(browser, request):
    "Opens pages in a language and on a device; none may write to the console or load from elsewhere"
    pages = []

    def opened(url, locale="en-US", viewport=DESK, expected="nothing", **device):
        context = browser.new_context(locale=locale, viewport=viewport, **device)
        context.add_init_script(VIOLATIONS)
        page = watched(context.new_page())
        pages.append((page, expected))
        page.goto(url)
        page.locator(READY).first.wait_for()
        return page

    yield opened
    shoot(pages[0][0], "page_" + re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_"))
    for page, expected in pages:
        page.context.close()
        assert not page.outside, page.outside
        assert all(expected in problem for problem in page.problems), page.problems


def shown(p, first: str | None = None) -> list[str]:
    "Ids of the pictures on the page, once the search is done (and the first is as expected)"
    if first:
        p.locator(f'#hits:not([aria-busy]) > li:first-child[data-id="{first}"]').wait_for()
    p.locator("#hits:not([aria-busy])").wait_for(state="attached")
    return p.locator("#hits > li").evaluate_all("all => all.map(l => l.dataset.id)")


def ask(p, text: str, first: str | None = None) -> list[str]:
    p.locator("#q").fill(text)
    p.locator("#q").press("Enter")
    return shown(p, first)


def where(p) -> dict:
    return {k: v[0] for k, v in parse_qs(urlsplit(p.url).query).items()}


def colours(ids: list[str]) -> set[str]:
    return {i.split("-")[0] for i in ids}


def png(*colour, **options) -> dict:
    file = io.BytesIO()
    picture(*colour, **options).save(file, "PNG")
    return dict(name=f"{colour[0]}.png", mimeType="image/png", buffer=file.getvalue())


def box(locator) -> dict:
    return locator.bounding_box()


# controls that a thumb would miss, or that are partly outside the window
SMALL = """least => [...document.querySelectorAll('input, select, textarea, button, a, summary')].filter(e => {
  const r = e.getBoundingClientRect()
  return e.checkVisibility() && (r.width < least || r.height < least || r.left < -1 || r.right > innerWidth + 1)
}).map(e => e.outerHTML.slice(0, 120))"""


def sound(page, least: int = 0):
    "Nothing is wider than the window, and every control has at least so many pixels"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not page.evaluate(SMALL, least)


QUERIES = {
    "de-DE": ("Das Bild ist rot", "red", "ltr", "de", "Sprache: Deutsch"),
    "zh-CN": ("绿色", "green", "ltr", "zh", "可能是中文"),
    "ar-EG": ("أزرق", "blue", "rtl", "ar", "العربية"),
}


@pytest.mark.parametrize("locale", QUERIES)
def test_a_search_in_the_language_of_the_browser(at, visit, locale):
    text, colour, direction, language, status = QUERIES[locale]
    p = visit(at, locale)
    assert p.locator("html").evaluate("h => [h.lang, h.dir]") == [language, direction]
    assert p.locator("#title").inner_text() == "Colours"
    ids = ask(p, text, f"{colour}-00.png")
    assert colours(ids[:12]) == {colour} and len(ids) == 24
    widths = p.locator(".thumb").evaluate_all("all => all.map(e => e.offsetWidth)")
    assert max(widths) - min(widths) <= 1  # upright images, too, fill their tiles
    assert status in p.locator("#status").inner_text()
    query = p.locator("#q").evaluate("q => [q.lang, getComputedStyle(q).direction]")
    assert query == [language, direction]
    # the whole page is mirrored
    first, second = (box(p.locator("#hits > li").nth(i))["x"] for i in (0, 1))
    assert (first > second) == (direction == "rtl")
    assert (box(p.locator("#q"))["x"] > box(p.locator("#go"))["x"]) == (direction == "rtl")
    assert where(p) == dict(q=text) and text in p.title()
    sound(p)


def test_an_arabic_query_on_an_english_page(at, visit):
    "The field and the results follow the query, the page does not"
    p = visit(at)
    ask(p, "أحمر", "red-00.png")
    assert p.locator("html").get_attribute("dir") == "ltr"
    assert p.locator("#hits").get_attribute("dir") == "rtl" and p.locator("#q").get_attribute("lang") == "ar"
    places = [box(p.locator("#hits > li").nth(i))["x"] for i in range(3)]
    assert places[0] > places[1] > places[2]
    ask(p, "rot", "red-00.png")
    assert p.locator("#hits").get_attribute("dir") == "ltr"
    p.locator("#lang").select_option("en")
    p.locator("#status", has_not_text="Detected").wait_for()
    assert where(p)["lang"] == "en"


BY = dict(
    en="Search by image",
    de="Mit Bild suchen",
    fr="Chercher par image",
    cs="Podle obrázku",
    ja="画像で検索",
    es="Buscar por imagen",
    ar="البحث بصورة",
    zh="以图搜图",
)


@pytest.mark.parametrize(
    "locale,dark",
    [
        ("de-DE", False),
        ("fr-FR", True),
        ("cs-CZ", False),
        ("ja-JP", True),
        ("es-ES", False),
        ("ar-EG", True),
        ("zh-CN", False),
        ("en-GB", True),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_phone(at, visit, locale, dark):
    "In every language: no horizontal scrolling, controls large enough for a thumb, enough contrast"
    scheme = "dark" if dark else "light"
    p = visit(at + "?q=rot&like=blue-00.png", locale, PHONE, color_scheme=scheme, has_touch=True)
    shown(p)
    p.locator("#filters summary").click()
    sound(p, 40)
    assert p.locator("#by").inner_text() == BY[locale[:2]]
    p.locator(".hit").first.click()
    p.locator("#facts tr").first.wait_for()
    sound(p, 40)
    is_rtl = locale[:2] == "ar"
    edges = p.locator("#facts td bdi").evaluate_all(
        "(all, side) => all.map(b => Math.round(b.getBoundingClientRect()[side]))", "right" if is_rtl else "left"
    )
    assert len(edges) > 5 and max(edges) - min(edges) <= 1
    name = box(p.locator("#name"))
    assert (name["x"] + name["width"] / 2 > 180) == is_rtl
    assert box(p.locator("#one"))["width"] <= 360
    low = violations(p, None, COLOURS)
    assert not low, low
    assert is_dark(p) == dark


def test_axe_finds_no_violation(at, visit):
    "The start, results with open filters, no result, an image, and an error; the colours of others are checked above"
    p = visit(at, "ar-EG", color_scheme="dark", expected="status of 400")
    found = dict(start=violations(p))
    ask(p, "rot", "red-00.png")
    p.locator("#filters summary").click()
    found["results"] = violations(p)
    p.locator(".hit").first.click()
    p.locator("#facts tr").first.wait_for()
    found["image"] = violations(p)
    p.locator("#close").click()
    p.goto(at + '?q=rot&like=blue-00.png&where={"shade":99}')
    p.locator("#status:not(:empty)").wait_for()
    found["none"] = violations(p)
    p.goto(at + '?q=rot&where={"nope":1}')
    p.locator("#message:not(:empty)").wait_for()
    found["error"] = violations(p)
    assert not any(found.values()), found


def test_the_keyboard_alone_finds_and_opens_an_image(at, visit):
    "Tab reaches every control in the order of the page, and its focus is visible"
    p = visit(at)
    p.locator("#q").focus()
    p.keyboard.type("rot")
    p.keyboard.press("Enter")
    shown(p, "red-00.png")
    p.locator("#q").focus()
    reached = []
    while not reached or "hit" not in reached[-1]:
        p.keyboard.press("Tab")
        ring = "e => [e.id || e.className || e.localName, parseFloat(getComputedStyle(e).outlineWidth)]"
        name, width = p.locator(":focus").evaluate(ring)
        assert width >= 2, name
        reached.append(name)
        assert len(reached) < 30, reached
    assert {"go", "lang", "by"} <= set(reached), reached
    p.keyboard.press("Enter")
    p.locator("#one[open]").wait_for()
    p.keyboard.press("Escape")
    p.locator("#one:not([open])").wait_for(state="attached")
    assert p.locator(":focus").evaluate("e => e.className") == "hit"  # the focus returns to the image


def test_by_image_and_text(at, kept, visit):
    p = visit(at)
    p.locator("#picture").set_input_files(png("green", 2))
    ids = shown(p, "green-02.png")
    assert colours(ids[:12]) == {"green"}
    assert p.locator("#chip").is_visible() and not p.locator("#share").is_visible() and where(p) == {}
    assert p.locator("#preview").evaluate("i => i.decode().then(() => i.naturalWidth)") == 24
    expected = kept.search("rot", "en", k=24, picture=picture("green", 2)).ids
    assert ask(p, "rot", expected[0]) == expected
    assert colours(expected[:3]) == {"yellow"} and p.locator("#share").is_visible()  # red and green
    p.locator("#share").fill("1")
    p.locator("#share").dispatch_event("change")
    assert shown(p, "green-02.png") == ids and p.locator("#percent").inner_text() == "100%"
    p.locator("#share").fill("0")
    p.locator("#share").dispatch_event("change")
    shown(p, "red-00.png")
    p.locator("#forget").click()
    assert not p.locator("#chip").is_visible()
    shown(p, "red-00.png")
    assert where(p) == dict(q="rot")
    p.go_back()
    p.locator("#chip").wait_for()
    p.go_back()
    shown(p, "green-02.png")  # the upload is still there


def show_more(p, n: int) -> list[str]:
    p.locator("#more").click()
    p.locator("#hits > li").nth(n - 1).wait_for()
    return shown(p)


def test_pages_of_results_similar_images_and_back(at, visit):
    p = visit(at + "?q=blau")
    first = shown(p, "blue-00.png")
    image = p.locator(".hit img").first
    assert len(first) == 24
    assert image.get_attribute("alt") == "blue-00.png" and image.get_attribute("loading") == "lazy"
    second = show_more(p, 48)
    assert second[:24] == first and len(set(second)) == 48
    assert "48" in p.locator("#status").inner_text()
    assert len(set(show_more(p, 60))) == 60 and not p.locator("#more").is_visible()
    ranks = p.locator("#hits .below").evaluate_all("all => all.map(s => Number(s.firstChild.textContent))")
    assert ranks == list(range(1, 61))
    p.locator('#hits > li[data-id="yellow-03.png"] .hit').click()
    p.locator("#similar").click()
    similar = shown(p, "yellow-03.png")
    assert colours(similar[:12]) == {"yellow"} and where(p) == dict(like="yellow-03.png")
    assert p.locator("#q").input_value() == "" and p.locator("#chip").is_visible()
    p.go_back()
    assert shown(p, "blue-00.png") == first
    assert p.locator("#q").input_value() == "blau" and not p.locator("#chip").is_visible()
    p.go_forward()
    assert shown(p, "yellow-03.png") == similar
    other = visit(p.url)
    assert shown(other, "yellow-03.png") == similar  # the address can be shared


def test_details_of_an_image(at, visit):
    p = visit(at + "?q=gelb&where=" + '{"shade":3}')
    shown(p, "yellow-03.png")
    p.locator('#hits > li[data-id="yellow-03.png"] .hit').click()
    p.locator("#one[open]").wait_for()
    assert p.locator("#name").inner_text() == "yellow-03.png"
    rows = p.locator("#facts tr").evaluate_all("all => all.map(r => [...r.children].map(c => c.textContent))")
    facts = dict(rows)
    assert [facts[n] for n in ("shade", "colour", "light", "weight")] == ["3", "yellow", "yes", "0.75"]
    assert "source" not in facts and not any("/" in v and "tmp" in v for v in facts.values())
    p.locator('#large[src*="api/original"]').wait_for()
    assert p.locator("#large").evaluate("i => i.decode().then(() => i.naturalWidth)") == 24
    assert p.locator("#original").get_attribute("href").startswith("api/original?id=yellow-03.png")
    assert not p.locator("#writing").is_visible() and not p.locator("#add").is_visible()


class Filters:
    "The filters of a page, and the expected results"

    def __init__(self, page, gallery):
        self.page = page
        self.gallery = gallery
        page.locator("#filters summary").click()

    def field(self, column, name):
        return self.page.locator(f"[data-column={column}] [name={name}]")

    def enter(self, column, name, text):
        self.field(column, name).fill(text)
        self.field(column, name).press("Enter")

    def shown(self, **where):
        return sorted(shown(self.page, self.best(**where)))

    def best(self, **where):
        return self.gallery.search("gelb", "en", k=1, where=where).ids[0]


def shades(*colours) -> list[str]:
    return sorted(f"{c}-{i:02d}.png" for c in colours for i in (3, 4))


def test_filters(at, kept, visit):
    p = visit(at + "?q=gelb")
    shown(p, "yellow-00.png")
    filters = Filters(p, kept)
    filters.field("shade", "from").fill("3")
    filters.enter("shade", "to", "4")
    assert filters.shown(shade=[3, 4]) == shades("red", "green", "blue", "yellow")
    assert where(p)["where"] == '{"shade":{"from":3,"to":4}}'
    filters.enter("colour", "text", "red، blue")
    assert filters.shown(shade=[3, 4], colour=["red", "blue"]) == shades("red", "blue")
    filters.field("colour", "how").select_option("starts")
    filters.enter("colour", "text", "gr")
    assert filters.shown(shade=[3, 4], colour="green") == shades("green")
    filters.field("light", "pick").select_option("false")
    p.locator("#status", has_text="No image matches").wait_for()
    assert shown(p) == []
    p.locator("#clear").click()
    assert len(shown(p, "yellow-00.png")) == 24 and "where" not in where(p)
    p.go_back()
    p.locator("#status", has_text="No image matches").wait_for()
    assert filters.field("light", "pick").input_value() == "false"
    sound(p)
    filters.enter("shade", "from", "1.5")
    p.locator("#message", has_text="check the numbers").wait_for()


def test_messages_of_errors(at, visit):
    p = visit(at + '?q=rot&where={"nope":1}', "de-DE", expected="status of 400")
    message = p.locator("#message").inner_text()
    assert message.startswith("Das ist nicht möglich.")
    assert "a filter on 'nope'" in message and "Expected: one of" in message
    assert p.locator("#message [lang=en]").count() == 1 and shown(p) == []
    p.locator("#clear").click()
    shown(p, "red-00.png")
    assert p.locator("#message").inner_text() == ""
    p.locator("#q").fill("")
    p.locator("#q").press("Enter")
    p.locator("#status", has_text="Beschreiben Sie").wait_for()  # without a query, the newest images
    assert len(shown(p)) == 24 and p.locator("#hits .below bdi").count() == 0
    p.locator("#hits .hit").first.click()
    first, second = shown(p)[:2]
    p.keyboard.press("ArrowRight")
    p.locator("#name", has_text=second).wait_for()
    p.keyboard.press("ArrowLeft")
    p.locator("#name", has_text=first).wait_for()
    p.locator("#close").click()
    p.locator("#picture").set_input_files(dict(name="x.png", mimeType="image/png", buffer=b"<script>alert(1)</script>"))
    p.locator("#message", has_text="not an image").wait_for()
    p.locator("#picture").set_input_files(dict(name="x.heic", mimeType="image/heic", buffer=b"no picture"))
    p.locator("#message", has_text="nicht als Bild").wait_for()


def test_a_new_search_cancels_the_current_one(at, visit):
    p = visit(at)
    p.route("**/api/search?*text=rot*", lambda route: None)  # it is never answered
    p.locator("#q").fill("rot")
    p.locator("#q").press("Enter")
    with p.expect_event("requestfailed", lambda r: "text=rot" in r.url) as cancelled:
        p.locator("#q").fill("blau")
        p.locator("#q").press("Enter")
    assert "ABORTED" in cancelled.value.failure
    assert shown(p, "blue-00.png")[0] == "blue-00.png" and p.locator("#message").inner_text() == ""


def test_adding_changing_and_removing(served, visit):
    port, gallery = served(may_write=True)
    p = visit(f"http://127.0.0.1:{port}/", expected="status of 400")
    assert p.locator("#size").inner_text() == "60 images"
    broken = dict(name="<b>bad</b>.png", mimeType="image/png", buffer=b"no")
    p.locator("#added").set_input_files([png("red", 40, size=(30, 20)), broken, png("green", 41, size=(30, 20))])
    p.locator("#progressed", has_text="Added: 2 images").wait_for()
    assert p.locator("#failed li").count() == 1 and len(gallery) == 62
    assert p.locator("#failed li").inner_text().startswith("<b>bad</b>.png: The request failed.")
    p.locator("#size", has_text="62").wait_for()
    ask(p, "rot", "red-00.png")
    p.locator("#more").click()
    p.locator("#more").click()
    p.locator("#hits > li[data-id^=uploads] .hit").first.click()
    p.locator("#edit").click()
    assert p.locator("#own-shade").evaluate("e => e === document.activeElement")
    p.locator("#own-shade").fill("77")
    p.locator("#own-colour").fill("<i>scarlet</i>")
    p.locator("#own-light").select_option("true")
    p.locator("#own-description").fill("أحمر")
    sound(p)
    p.locator("#own button").click()
    p.locator("#said", has_text="Saved").wait_for()
    id = p.locator("#name").inner_text()
    facts = gallery.facts([id]).iloc[0]
    assert (facts["shade"], facts["colour"], facts["light"]) == (77, "<i>scarlet</i>", True)
    assert facts["description"] == "أحمر" and pd.isna(facts["weight"])
    assert p.locator("#facts td", has_text="<i>scarlet</i>").count() == 1 and p.locator("#facts i").count() == 0
    p.locator("#remove").click()
    p.locator("#no").click()
    assert id in gallery and not p.locator("#sure").is_visible()
    p.locator("#remove").click()
    p.locator("#yes").click()
    p.locator("#one").wait_for(state="hidden")
    p.locator("#status", has_text="Removed: \u2068uploads").wait_for()
    assert id not in gallery and len(gallery) == 61 and p.locator(f'#hits > li[data-id="{id}"]').count() == 0
    assert p.evaluate("document.activeElement.closest('li')?.dataset.id") in gallery  # the focus is on its neighbour


def test_the_token(served, visit):
    port, _ = served(token=TOKEN)
    p = visit(f"http://127.0.0.1:{port}/?q=rot", expected="status of 401")
    assert p.locator("#token").is_visible() and not p.locator("#ask").is_visible()
    sound(p)
    p.locator("#known").fill("wrong")
    p.locator("#known").press("Enter")
    p.locator("#wrong", has_text="Wrong access token").wait_for()
    assert where(p) == dict(q="rot")
    p.locator("#known").fill(TOKEN)
    p.locator("#known").press("Enter")
    shown(p, "red-00.png")
    assert where(p) == dict(q="rot") and not p.locator("#token").is_visible() and TOKEN not in p.content()
    assert p.context.cookies()[0]["httpOnly"] and p.context.cookies()[0]["sameSite"] == "Strict"
    p.reload()
    shown(p, "red-00.png")
    p.context.clear_cookies()
    p.locator("#q").fill("blau")
    p.locator("#q").press("Enter")
    p.locator("#token").wait_for()  # the cookie has expired


def test_nothing_of_the_data_is_read_as_html(visit, served):
    port, gallery = served(title="<img src=x onerror=alert(1)>", may_write=True)
    evil = '"><img src=x onerror=alert(1)>.png'
    gallery.add(
        [picture("red", 30)], [evil], dict(shade=[1], colour=["<script>alert(1)</script>"], light=[True], weight=[0.5])
    )
    p = visit(f"http://127.0.0.1:{port}/?q=rot&where=" + '{"colour":{"starts":"<"}}')
    assert shown(p) == [evil] and p.locator("#title").inner_text() == "<img src=x onerror=alert(1)>"
    p.locator(".hit").click()
    p.locator("#facts td", has_text="<script>").wait_for()
    assert p.locator("#name").inner_text() == evil and p.locator('img[src="x"], #facts script').count() == 0
    p.locator("#similar").click()
    shown(p)
    assert where(p)["like"] == evil
    p.locator("#hits > li").first.locator(".hit").click()
    p.locator("#remove").click()
    p.locator("#yes").click()
    p.locator("#status", has_text="Removed").wait_for()
    assert evil not in gallery
