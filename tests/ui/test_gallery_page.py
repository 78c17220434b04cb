"The page of a gallery's service, as people use it: on a phone and on a desk, in several languages, with a mouse and without"

import io
import re
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from conftest import shoot

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from served import draw, make, picture, serving

TOKEN = "a-token-of-many-letters"
PHONE = dict(width=360, height=740)
DESK = dict(width=1280, height=900)


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
    "The address of a service that only reads"
    from dasd_lab.serve.service import ServiceSettings, gallery_app

    with serving(
        gallery_app(
            kept, ServiceSettings(title="Colours", originals=str(drawn), requests_per_minute=10**5, timeout_s=120.0)
        )
    ) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def served(tmp_path, drawn):
    "How to serve a gallery of its own"
    from contextlib import ExitStack

    from dasd_lab.serve.service import ServiceSettings, gallery_app

    with ExitStack() as stack:

        def serve(**settings):
            gallery = make(tmp_path / "gallery", drawn)
            stack.callback(gallery.close)
            return stack.enter_context(
                serving(
                    gallery_app(
                        gallery,
                        ServiceSettings(**dict(title="Colours", requests_per_minute=10**5, timeout_s=120.0) | settings),
                    )
                )
            ), gallery

        yield serve


@pytest.fixture
def visit(browser, request):
    "Opens pages as people with this language and this device have them; all of them must be silent on the console, stay on this machine and keep to their policy"
    contexts = []
    problems = []
    outside = []

    def open(url, locale="en-US", viewport=DESK, expected=(), **device):
        c = browser.new_context(locale=locale, viewport=viewport, **device)
        c.set_default_timeout(120_000)
        contexts.append(c)
        c.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('policy: '+e.violatedDirective+' '+e.blockedURI))"
        )
        p = c.new_page()
        p.on(
            "console",
            lambda m: (
                problems.append(m.text)
                if m.type in ("error", "warning") and not any(e in m.text for e in expected)
                else None
            ),
        )
        p.on("pageerror", lambda e: problems.append(str(e)))
        p.on(
            "request",
            lambda r: (
                outside.append(r.url)
                if re.match("https?:|wss?:", r.url) and urlsplit(r.url).hostname != "127.0.0.1"
                else None
            ),
        )
        p.goto(url)
        p.locator("#status:not(:empty), #hits > li, #message:not(:empty), #token:not([hidden])").first.wait_for()
        return p

    yield open
    for c in contexts:
        for p in c.pages[: c is contexts[0]]:
            shoot(p, "page_" + re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_"))
        c.close()
    assert not problems and not outside, (problems, outside)


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


def png(*of, **more) -> dict:
    to = io.BytesIO()
    picture(*of, **more).save(to, "PNG")
    return dict(name=f"{of[0]}.png", mimeType="image/png", buffer=to.getvalue())


def box(l) -> dict:
    return l.bounding_box()


TRAITS = """() => [...document.querySelectorAll('input, select, textarea, button, a, summary, img')].filter(e => e.checkVisibility()).map(e => { const r = e.getBoundingClientRect(); return {
  tag: e.localName, id: e.id || e.name || e.className, type: e.type, w: r.width, h: r.height, left: r.left, right: r.right,
  name: e.localName === 'img' ? (e.hasAttribute('alt') ? e.alt || '(decoration)' : '') : (e.getAttribute('aria-label') || [...(e.labels ?? [])].map(l => l.textContent).join(' ') || (e.matches('input, select, textarea') ? '' : e.textContent.trim() || [...e.querySelectorAll('img')].map(i => i.alt).join(' '))).trim() } })"""


def sound(p, touch=False):
    "Everything has a name and is within the window; on a phone it can be hit with a thumb"
    width = p.evaluate("innerWidth")
    assert p.evaluate("document.documentElement.scrollWidth") <= width
    for e in p.evaluate(TRAITS):
        assert e["name"], e
        assert e["left"] >= -1 and e["right"] <= width + 1, e
        if touch and e["tag"] != "img":
            assert e["h"] >= 40 and e["w"] >= 40, e


QUERIES = {
    "de-DE": ("Das Bild ist rot", "red", "ltr", "de", "Erkannte Sprache: Deutsch"),
    "zh-CN": ("绿色", "green", "ltr", "zh", "识别的语言：中文"),
    "ar-EG": ("أزرق", "blue", "rtl", "ar", "العربية"),
}


@pytest.mark.parametrize("locale", QUERIES)
def test_a_search_in_the_readers_language(at, visit, locale):
    text, colour, direction, language, said = QUERIES[locale]
    p = visit(at, locale)
    assert (
        p.locator("html").evaluate("h => [h.lang, h.dir]") == [language, direction]
        and p.locator("#title").inner_text() == "Colours"
    )
    found = ask(p, text, f"{colour}-00.png")
    assert colours(found[:12]) == {colour} and len(found) == 24  # as the colours were drawn
    assert said in p.locator("#status").inner_text() and p.locator("#q").evaluate(
        "q => [q.lang, getComputedStyle(q).direction]"
    ) == [language, direction]
    first, second = (box(p.locator("#hits > li").nth(i))["x"] for i in (0, 1))
    assert (first > second) == (direction == "rtl")
    add = box(p.locator("#q"))["x"]
    go = box(p.locator("#go"))["x"]
    assert (add > go) == (direction == "rtl")  # the whole page is mirrored
    assert where(p) == dict(q=text) and text in p.title()
    sound(p)


def test_an_arabic_question_on_an_english_page(at, visit):
    "The field and the pictures follow the question, the page does not"
    p = visit(at)
    ask(p, "أحمر", "red-00.png")
    assert (
        p.locator("html").get_attribute("dir") == "ltr"
        and p.locator("#hits").get_attribute("dir") == "rtl"
        and p.locator("#q").get_attribute("lang") == "ar"
    )
    assert (
        box(p.locator("#hits > li").nth(0))["x"]
        > box(p.locator("#hits > li").nth(1))["x"]
        > box(p.locator("#hits > li").nth(2))["x"]
    )
    ask(p, "rot", "red-00.png")
    assert p.locator("#hits").get_attribute("dir") == "ltr"
    p.locator("#lang").select_option("en")
    p.locator("#status", has_not_text="Recognised").wait_for()
    assert where(p)["lang"] == "en"


BY = dict(
    en="Search by picture",
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
    "In every language: nothing to scroll sideways, nothing too small for a thumb, nothing hard to read"
    p = visit(at + "?q=rot&like=blue-00.png", locale, PHONE, color_scheme="dark" if dark else "light", has_touch=True)
    shown(p)
    p.locator("#filters summary").click()
    sound(p, touch=True)
    assert p.locator("#by").inner_text() == BY[locale[:2]]
    p.locator(".hit").first.click()
    p.locator("#facts tr").first.wait_for()
    sound(p, touch=True)
    edges = p.locator("#facts td bdi").evaluate_all(
        "(all, side) => all.map(b => Math.round(b.getBoundingClientRect()[side]))",
        "right" if locale[:2] == "ar" else "left",
    )
    assert len(edges) > 5 and max(edges) - min(edges) <= 1
    middle = box(p.locator("#name"))["x"] + box(p.locator("#name"))["width"] / 2
    assert (middle > 180) == (locale[:2] == "ar")
    assert box(p.locator("#one"))["width"] <= 360
    low = p.evaluate("""() => { const light = c => { const [r,g,b] = c.match(/[\\d.]+/g).map(x => (x /= 255) <= .03928 ? x/12.92 : ((x+.055)/1.055)**2.4); return .2126*r+.7152*g+.0722*b }
      const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$|transparent/.test(c)) return c } return getComputedStyle(document.body).backgroundColor }
      return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => { const [a,b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y-x); return [e.localName, e.id || e.className, e.textContent.slice(0, 30), (a+.05)/(b+.05)] }).filter(x => x[3] < 4.5) }""")
    assert not low, low
    r, g, b = map(int, re.findall(r"\d+", p.evaluate("getComputedStyle(document.body).backgroundColor"))[:3])
    assert (r + g + b < 200) == dark


def test_by_a_picture_and_with_words(at, kept, visit):
    p = visit(at)
    p.locator("#picture").set_input_files(png("green", 2))
    found = shown(p, "green-02.png")
    assert colours(found[:12]) == {"green"}
    assert (
        p.locator("#chip").is_visible()
        and not p.locator("#share").is_visible()
        and p.locator("#preview").evaluate("i => i.decode().then(() => i.naturalWidth)") == 24
        and where(p) == {}
    )
    want = kept.search("rot", "en", k=24, picture=picture("green", 2)).ids
    # red and green
    assert ask(p, "rot", want[0]) == want and colours(want[:3]) == {"yellow"} and p.locator("#share").is_visible()
    p.locator("#share").fill("1")
    p.locator("#share").dispatch_event("change")
    assert shown(p, "green-02.png") == found and p.locator("#percent").inner_text() == "100%"
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
    shown(p, "green-02.png")  # what was sent is there again


def test_dropped_and_pasted(at, visit):
    p = visit(at)
    to = io.BytesIO()
    picture("blue", 3).save(to, "PNG")
    give = "([bytes, event, field]) => { const t = new DataTransfer(); t.items.add(new File([new Uint8Array(bytes)], 'x.png', {type: 'image/png'})); document.body.dispatchEvent(event === 'paste' ? new ClipboardEvent('paste', {clipboardData: t, bubbles: true, cancelable: true}) : new DragEvent(event, {dataTransfer: t, bubbles: true, cancelable: true})) }"
    p.evaluate(give, [list(to.getvalue()), "dragover"])
    assert p.locator("body.dropping").count() == 1
    p.evaluate(give, [list(to.getvalue()), "drop"])
    shown(p, "blue-03.png")
    assert p.locator("body.dropping").count() == 0
    to = io.BytesIO()
    picture("red", 4).save(to, "PNG")
    p.evaluate(give, [list(to.getvalue()), "paste"])
    shown(p, "red-04.png")
    p.evaluate(
        '() => { const t = new DataTransfer(); t.items.add(new File([\'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><rect width="20" height="20" fill="lime"/></svg>\'], \'x.svg\', {type: \'image/svg+xml\'})); document.body.dispatchEvent(new DragEvent(\'drop\', {dataTransfer: t, bubbles: true, cancelable: true})) }'
    )
    shown(p, "green-00.png")  # what the service does not read the browser draws


def test_more_like_this_pages_and_back(at, visit):
    p = visit(at + "?q=blau")
    first = shown(p, "blue-00.png")
    assert (
        len(first) == 24
        and p.locator(".hit img").first.get_attribute("alt") == "blue-00.png"
        and p.locator(".hit img").first.get_attribute("loading") == "lazy"
    )
    p.locator("#more").click()
    p.locator("#hits > li").nth(47).wait_for()
    second = shown(p)
    assert second[:24] == first and len(set(second)) == 48
    assert "48" in p.locator("#status").inner_text()
    p.locator("#more").click()
    p.locator("#hits > li").nth(59).wait_for()
    assert len(set(shown(p))) == 60 and not p.locator("#more").is_visible()
    assert p.locator("#hits .below").evaluate_all("all => all.map(s => Number(s.firstChild.textContent))") == [
        *range(1, 61)
    ]
    p.locator('#hits > li[data-id="yellow-03.png"] .hit').click()
    p.locator("#one[open]").wait_for()
    assert p.locator("#name").inner_text() == "yellow-03.png"
    facts = dict(p.locator("#facts tr").evaluate_all("all => all.map(r => [...r.children].map(c => c.textContent))"))
    assert (
        facts["shade"] == "3"
        and facts["colour"] == "yellow"
        and facts["light"] == "yes"
        and facts["weight"] == "0.75"
        and "source" not in facts
        and not any("/" in v and "tmp" in v for v in facts.values())
    )
    p.locator('#large[src*="api/original"]').wait_for()
    assert (
        p.locator("#large").evaluate("i => i.decode().then(() => i.naturalWidth)") == 24
        and p.locator("#original").get_attribute("href").startswith("api/original?id=yellow-03.png")
        and not p.locator("#writing").is_visible()
        and not p.locator("#add").is_visible()
    )
    p.locator("#similar").click()
    like = shown(p, "yellow-03.png")
    assert (
        colours(like[:12]) == {"yellow"}
        and where(p) == dict(like="yellow-03.png")
        and p.locator("#q").input_value() == ""
        and p.locator("#chip").is_visible()
    )
    p.go_back()
    assert (
        shown(p, "blue-00.png") == first
        and p.locator("#q").input_value() == "blau"
        and not p.locator("#chip").is_visible()
    )
    p.go_forward()
    assert shown(p, "yellow-03.png") == like
    other = visit(p.url)
    assert shown(other, "yellow-03.png") == like  # the address can be given to somebody else


def test_filters(at, kept, visit):
    def best(**w):
        return kept.search("gelb", "en", k=1, where=w).ids[0]

    p = visit(at + "?q=gelb")
    shown(p, "yellow-00.png")
    p.locator("#filters summary").click()

    def of(c, n):
        return p.locator(f"[data-column={c}] [name={n}]")

    of("shade", "from").fill("3")
    of("shade", "to").fill("4")
    of("shade", "to").press("Enter")
    found = shown(p, best(shade=[3, 4]))
    assert (
        sorted(found) == sorted(f"{c}-{i:02d}.png" for c in ("red", "green", "blue", "yellow") for i in (3, 4))
        and where(p)["where"] == '{"shade":{"from":3,"to":4}}'
    )
    of("colour", "text").fill("red، blue")
    of("colour", "text").press("Enter")
    assert sorted(shown(p, best(shade=[3, 4], colour=["red", "blue"]))) == [
        "blue-03.png",
        "blue-04.png",
        "red-03.png",
        "red-04.png",
    ]
    of("colour", "how").select_option("starts")
    of("colour", "text").fill("gr")
    of("colour", "text").press("Enter")
    assert sorted(shown(p, best(shade=[3, 4], colour="green"))) == ["green-03.png", "green-04.png"]
    of("light", "pick").select_option("false")
    p.locator("#status", has_text="No picture fits").wait_for()
    assert shown(p) == []
    there = visit(p.url)
    there.locator("#status", has_text="No picture fits").wait_for()
    assert (
        there.locator("#active").inner_text() == "(3 set)"
        and there.locator("[data-column=light] [name=pick]").input_value() == "false"
        and there.locator("[data-column=colour] [name=text]").input_value() == "gr"
    )
    p.locator("#clear").click()
    assert len(shown(p, "yellow-00.png")) == 24 and "where" not in where(p)
    p.go_back()
    p.locator("#status", has_text="No picture fits").wait_for()
    assert of("light", "pick").input_value() == "false"
    sound(p)
    of("shade", "from").fill("1.5")
    of("shade", "from").press("Enter")
    p.locator("#message", has_text="check the numbers").wait_for()
    more = visit(at + '?q=gelb&where={"shade":{"not":[0,1]},"colour":"yellow"}')
    # what the fields cannot say is kept
    assert (
        (first := best(shade={"not": [0, 1]}, colour="yellow")) in shown(more, first)
        and more.locator("#other").inner_text() == '{"shade":{"not":[0,1]}}'
        and more.locator("[data-column=colour] [name=text]").input_value() == "yellow"
    )
    ask(more, "gelb und gelb", first)
    assert where(more)["where"] == '{"shade":{"not":[0,1]},"colour":["yellow"]}'


def test_what_cannot_be_is_said_in_plain_words(at, visit):
    p = visit(at + '?q=rot&where={"nope":1}', "de-DE", expected=["status of 400"])
    told = p.locator("#message").inner_text()
    assert (
        told.startswith("Das ist nicht möglich.")
        and "a filter on 'nope'" in told
        and "Expected: one of" in told
        and p.locator("#message [lang=en]").count() == 1
        and shown(p) == []
    )
    p.locator("#clear").click()
    shown(p, "red-00.png")
    assert p.locator("#message").inner_text() == ""
    p.locator("#q").fill("")
    p.locator("#q").press("Enter")
    p.locator("#message", has_text="Schreiben Sie").wait_for()
    p.locator("#picture").set_input_files(dict(name="x.png", mimeType="image/png", buffer=b"<script>alert(1)</script>"))
    p.locator("#message", has_text="no picture").wait_for()
    p.locator("#picture").set_input_files(dict(name="x.heic", mimeType="image/heic", buffer=b"no picture"))
    p.locator("#message", has_text="nicht als Bild").wait_for()
    b = visit(at, expected=["status of 429", "status of 504", "ERR_FAILED"])
    b.route("**/api/search*", lambda r: r.fulfill(status=429, headers={"retry-after": "7"}, json=dict(error="x")))
    b.locator("#q").fill("rot")
    b.locator("#q").press("Enter")
    b.locator("#message", has_text="try again in 7 s").wait_for()
    b.unroute("**/api/search*")
    b.route("**/api/search*", lambda r: r.fulfill(status=504, json=dict(error="x")))
    b.locator("#go").click()
    b.locator("#message", has_text="took too long").wait_for()
    b.unroute("**/api/search*")
    b.route("**/api/search*", lambda r: r.abort())
    b.locator("#go").click()
    b.locator("#message", has_text="cannot be reached").wait_for()


def test_a_newer_question_ends_the_older(at, visit):
    p = visit(at)
    held = []
    p.route("**/api/search?*text=rot*", lambda r: held.append(r))
    p.locator("#q").fill("rot")
    p.locator("#q").press("Enter")
    with p.expect_event("requestfailed", lambda r: "text=rot" in r.url) as ended:
        p.locator("#q").fill("blau")
        p.locator("#q").press("Enter")
    assert (
        "ABORTED" in ended.value.failure
        and shown(p, "blue-00.png")[0] == "blue-00.png"
        and p.locator("#message").inner_text() == ""
    )


def test_adding_changing_and_removing(served, visit, tmp_path):
    port, gallery = served(may_write=True)
    p = visit(f"http://127.0.0.1:{port}/", expected=["status of 400"])
    assert p.locator("#size").inner_text() == "60 pictures"
    p.locator("#added").set_input_files(
        [
            png("red", 40, size=(30, 20)),
            dict(name="<b>bad</b>.png", mimeType="image/png", buffer=b"no"),
            png("green", 41, size=(30, 20)),
        ]
    )
    p.locator("#progressed", has_text="Added: 2 pictures").wait_for()
    assert (
        p.locator("#failed li").count() == 1
        and p.locator("#failed li").inner_text().startswith("<b>bad</b>.png: That is not possible.")
        and len(gallery) == 62
    )
    p.locator("#size", has_text="62").wait_for()
    ask(p, "rot", "red-00.png")
    p.locator("#more").click()
    p.locator("#more").click()
    new = p.locator("#hits > li[data-id^=uploads] .hit").first
    new.click()
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
    known = gallery.facts([id]).iloc[0]
    assert (known["shade"], known["colour"], known["light"], known["description"]) == (
        77,
        "<i>scarlet</i>",
        True,
        "أحمر",
    ) and pd.isna(known["weight"])
    assert p.locator("#facts td", has_text="<i>scarlet</i>").count() == 1 and p.locator("#facts i").count() == 0
    p.locator("#remove").click()
    p.locator("#no").click()
    assert id in gallery and not p.locator("#sure").is_visible()
    p.locator("#remove").click()
    p.locator("#yes").click()
    p.locator("#one").wait_for(state="hidden")
    p.locator("#status", has_text="Removed: \u2068uploads").wait_for()
    assert id not in gallery and len(gallery) == 61 and p.locator(f'#hits > li[data-id="{id}"]').count() == 0


def test_the_token(served, visit):
    port, _ = served(token=TOKEN)
    p = visit(f"http://127.0.0.1:{port}/?q=rot", expected=["status of 401"])
    assert p.locator("#token").is_visible() and not p.locator("#ask").is_visible()
    sound(p)
    p.locator("#known").fill("wrong")
    p.locator("#known").press("Enter")
    p.locator("#wrong", has_text="not the token").wait_for()
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
    p.locator("#token").wait_for()  # it has run out meanwhile


def test_by_keyboard_alone(at, visit):
    p = visit(at)

    def active():
        return p.evaluate("document.activeElement.id || document.activeElement.className")

    p.evaluate("document.activeElement.blur()")
    p.keyboard.press("/")
    assert active() == "q" and p.locator("#q").input_value() == ""
    p.keyboard.type("rot/blau")
    p.keyboard.press("Enter")
    shown(p)
    assert p.locator("#q").input_value() == "rot/blau"
    for _ in range(12):
        p.keyboard.press("Tab")
        if active() == "hit":
            break
        assert p.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", active()
    assert active() == "hit"
    p.keyboard.press("Tab")
    second = p.evaluate("document.activeElement.parentElement.dataset.id")
    p.keyboard.press("Enter")
    p.locator("#one[open]").wait_for()
    assert p.locator("#name").inner_text() == second
    p.keyboard.press("Escape")
    p.locator("#one").wait_for(state="hidden")
    assert p.evaluate("document.activeElement.parentElement.dataset.id") == second
    assert (
        p.locator("#status").get_attribute("aria-live") == "polite"
        and p.locator("#message").get_attribute("role") == "alert"
        and p.locator("h1").count() == 1
    )


def test_the_keyboard_goes_on_where_it_was(served, visit):
    "After more, less and others; and nobody is left out when pages follow a removal"
    port, gallery = served(may_write=True)
    gallery.update(["red-01.png"], description="a red field")
    p = visit(f"http://127.0.0.1:{port}/?q=rot", "ar-EG")
    first = shown(p, "red-00.png")

    def at():
        return p.evaluate("document.activeElement.closest('li')?.dataset.id ?? document.activeElement.id")

    def press(what):
        return (p.locator(what).focus(), p.keyboard.press("Enter"))

    alts = [p.locator(f'li[data-id="red-{i}.png"] img').get_attribute("alt") for i in ("00", "01")]
    assert alts == ["red-00.png", "a red field"]
    for i in (0, 5):
        press(f'#hits > li[data-id="{first[i]}"] .hit')
        press("#remove")
        press("#yes")
        p.locator("#one").wait_for(state="hidden")
        p.locator("#status", has_text=f"\u2068{first[i]}\u2069").wait_for()
        assert at() == first[i + 1]
    want = gallery.search("rot", "de", k=58).ids
    press("#more")
    p.locator("#hits > li").nth(45).wait_for()
    assert shown(p) == want[:46] and at() == want[22]  # two were removed
    press("#more")
    p.locator("#hits > li").nth(57).wait_for()
    assert shown(p) == want and at() == want[46]
    press(f'#hits > li[data-id="{want[-1]}"] .hit')
    press("#remove")
    press("#yes")
    p.locator("#one").wait_for(state="hidden")
    p.locator("#status", has_text=want[-1]).wait_for()
    assert at() == want[-2]  # there is none after it
    press('#hits > li[data-id="blue-03.png"] .hit')
    p.locator("#one[open]").wait_for()
    press("#similar")
    shown(p, "blue-03.png")
    assert at() == "status"
    p.keyboard.press("Tab")
    assert at() == "blue-03.png"


def test_a_search_that_was_given_up_says_nothing(at, visit):
    p = visit(at + "?q=blau")
    shown(p, "blue-00.png")
    p.route("**/api/search?*text=rot*", lambda r: None)
    p.locator("#q").fill("rot")
    p.locator("#q").press("Enter")
    p.locator("#hits[aria-busy]").wait_for()
    p.locator("#q").fill("")
    p.locator("#q").press("Enter")
    p.locator("#hits:not([aria-busy])").wait_for(state="attached")
    assert p.locator("#message").inner_text().startswith("Write what you are looking for")


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
