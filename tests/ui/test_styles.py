"The Styles explorer: recolour, select with the lasso, hover, highlight with the keyboard"

import json
import re

import pytest
from conftest import open_guide, open_tab, settle, shoot, unfold, unfold_details

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

expect.set_options(timeout=300_000)
WEBP = re.compile("^data:image/webp")
POINTS = ".scatterlayer .point"
AGNOSTIC = ".dl-map-semantic_agnostic"
RELATED = ".dl-map-semantic_related"
FILLS = "points => points.map(point => getComputedStyle(point).fill)"
FAINT = "points => points.filter(point => +getComputedStyle(point).opacity < .5).length"
NEW_FILLS = """([selector, before]) => {
  const fills = [...document.querySelectorAll(selector)].map(point => getComputedStyle(point).fill);
  return JSON.stringify(fills) !== before;
}"""
HAS_FAINT = """selectors => selectors.every(selector =>
  [...document.querySelectorAll(selector)].some(point => +getComputedStyle(point).opacity < .5))"""
BOXES = """(panel, selectors) => selectors.map(selector => {
  const box = panel.querySelector(selector).getBoundingClientRect();
  return [box.width, box.y];
})"""
MIDDLE = ((0.15, 0.15), (0.85, 0.15), (0.85, 0.85), (0.15, 0.85), (0.15, 0.15))
EVERYTHING = ((0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.02))


def lasso(page, area, corners=MIDDLE):
    "Draw a lasso on a map with the mouse; corners are shares of its width and height"
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    positions = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    page.mouse.move(*positions[0])
    page.mouse.down()
    for x, y in positions[1:]:
        page.mouse.move(x, y, steps=6)
    page.mouse.up()


def recolour(page, panel):
    "Colour by place"
    points = panel.locator(f"{AGNOSTIC} .point")
    before = json.dumps(points.evaluate_all(FILLS), separators=(",", ":"))
    panel.locator(".dl-colour select").select_option("place")
    expect(panel.locator(".dl-legend")).to_contain_text("beach")
    page.wait_for_function(NEW_FILLS, arg=[f"{AGNOSTIC} .point", before])
    assert len(set(points.evaluate_all(FILLS))) > 4


def select_with_the_lasso(page, panel):
    "A lasso on one map lists its captions and marks them on both maps"
    lasso(page, panel.locator(f"{AGNOSTIC} .nsewdrag").first)
    lines = panel.locator(".dl-captions li")
    expect(lines.first).to_be_visible()
    expect(panel.locator(".dl-count")).to_contain_text("of 200 captions")
    n = int(panel.locator(".dl-count b").first.inner_text().replace(",", ""))
    assert 10 < n < 200
    expect(lines).to_have_count(n)
    page.wait_for_function(HAS_FAINT, arg=[f"{AGNOSTIC} .point", f"{RELATED} .point"])
    for selector in (AGNOSTIC, RELATED):
        captions = panel.locator(selector).locator(".scatterlayer .trace").first
        assert captions.locator(".point").evaluate_all(FAINT) == 200 - n
    lines.first.scroll_into_view_if_needed()
    expect(lines.first.locator("img")).to_have_attribute("src", WEBP)  # loaded when it scrolls into view
    assert lines.first.locator("bdi").get_attribute("lang") == "de"
    assert lines.first.locator("img").get_attribute("alt")


def hover_over_a_point(page, panel):
    "Hovering shows the caption on the map and its image in the card"
    related = panel.locator(RELATED)
    point = related.locator(".point").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    x = box["x"] + box["width"] / 2
    y = box["y"] + box["height"] / 2
    page.mouse.move(x + 40, y + 40)
    page.mouse.move(x, y, steps=5)
    image = panel.locator(".dl-card img")
    expect(image).to_be_visible()
    page.wait_for_function("() => document.querySelector('.dl-card img').naturalWidth > 0")
    assert image.get_attribute("alt")
    expect(related.locator(".hoverlayer .hovertext")).to_be_visible()


def highlight_with_the_keyboard(page, panel):
    "Enter on a line of the list shows its card and draws a ring on both maps"
    lines = panel.locator(".dl-captions li")
    lines.first.locator("button").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    caption = lines.nth(1).locator("bdi").inner_text()
    expect(panel.locator(".dl-card")).to_contain_text(caption)
    for selector in (AGNOSTIC, RELATED):
        expect(panel.locator(selector).locator(POINTS)).to_have_count(201)


def add_arabic(page, panel):
    "A second language, whose captions are listed from right to left"
    panel.locator(".dl-language-ar").click()
    expect(panel.locator(".dl-kept")).to_contain_text("200 captions")
    panel.locator(".dl-colour select").select_option("language")
    expect(panel.locator(".dl-legend")).to_contain_text("Arabic")
    expect(panel.locator(".dl-progress:visible")).to_have_count(0)
    settle(page, 500)  # until the new maps are drawn
    lasso(page, panel.locator(f"{RELATED} .nsewdrag").first, EVERYTHING)
    arabic = panel.locator(".dl-captions bdi[lang=ar]").first
    expect(arabic).to_be_attached()
    assert arabic.get_attribute("dir") == "rtl"


def check_layout(panel):
    "Both maps have the same width, side by side, and nothing is wider than the panel"
    (left_width, left_y), (right_width, right_y) = panel.evaluate(BOXES, [AGNOSTIC, RELATED])
    assert abs(left_width - right_width) < 3
    assert abs(left_y - right_y) < 3
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth + 1")


@pytest.mark.slow
def test_styles_in_the_dark_theme(lab, page):
    panel = open_guide(page, "clusters_of_expression", dark=True).locator(".dl-styles")
    expect(panel).to_be_visible()
    for selector in (AGNOSTIC, RELATED):
        expect(panel.locator(selector).locator(POINTS)).to_have_count(200)
    unfold_details(panel)
    expect(panel.locator(".dl-bars .bars .point").first).to_be_attached()
    recolour(page, panel)
    select_with_the_lasso(page, panel)
    hover_over_a_point(page, panel)
    shoot(page, "styles_lab")
    highlight_with_the_keyboard(page, panel)
    panel.get_by_role("button", name="Clear selection").click()
    expect(panel.locator(".dl-captions li")).to_have_count(0)
    page.set_viewport_size(dict(width=1024, height=1400))
    settle(page, 500)
    check_layout(panel)
    add_arabic(page, panel)
    shoot(page, "styles_dark_1024")


# written for this test: a group and a sentence, in Arabic
ARABIC = """حيوانات: كلب يركض في الحديقة
حيوانات: قطة تنام على السرير
حيوانات: عصفور يقف على الشجرة
حيوانات: حصانان يأكلان العشب
حيوانات: سمكة تسبح في الماء
أماكن: على الشاطئ قارب صغير
أماكن: في المدينة سيارة حمراء
أماكن: أمام البيت ثلاث أشجار
أماكن: فوق الجبل قمر كبير
أماكن: تحت الجسر نهر طويل
ولد يلعب بالكرة"""


def test_figures_of_a_hidden_tab_are_drawn_when_it_is_shown(workbench):
    "Figures, and later ones in their place, are computed while another tab is open"
    panel = open_tab(workbench, "Styles")
    panel.locator(".dl-shown select").select_option(label="captions of images")
    unfold_details(panel)
    bars = panel.locator(".dl-bars .bartext")
    shown = []
    for n in (500, 200):
        open_tab(workbench, "Styles")
        panel.locator(".dl-n select").select_option(str(n))
        open_tab(workbench, "Ask")
        expect(panel).to_be_hidden()
        expect(panel.locator(".dl-kept")).to_contain_text(f"{n} captions")
        open_tab(workbench, "Styles")
        for selector in (AGNOSTIC, RELATED):
            expect(panel.locator(selector).locator(POINTS)).to_have_count(n)
        expect(bars.first).to_be_attached(timeout=10_000)
        settle(workbench, 500)
        shown.append(bars.all_text_contents())
    assert shown[0] != shown[1]


def show_sentences(page, panel, text: str | None):
    "Paste a text, or take the Chinese example, and show it on the maps"
    box = panel.locator(".dl-given textarea")
    if text is None:
        panel.locator("button.dl-example-zh").click()
        expect(box).to_have_value(re.compile("沙发旁边卧着一条狗。"))
    else:
        box.fill(text)
    panel.locator("button.dl-use").click()
    expect(panel.locator(".dl-progress:visible")).to_have_count(0)


def test_sentences_of_ones_own(workbench):
    "Chinese example sentences, Arabic ones with a group before a colon, a faulty line, and back"
    workbench.set_viewport_size(dict(width=1600, height=1500))
    panel = open_tab(workbench, "Styles")
    panel.locator(".dl-shown select").select_option(index=0)  # another test may have shown captions of images
    expect(panel.locator(".dl-finding h3")).to_contain_text("the same group")
    expect(panel.locator(".dl-legend-host")).to_contain_text("playgrounds")
    unfold(panel.locator(".dl-sentences .dl-fold"))
    show_sentences(workbench, panel, None)
    expect(panel.locator(".dl-kept")).to_contain_text("16 sentences")
    expect(panel.locator(".dl-legend")).to_contain_text("location + object 4")
    expect(panel.locator(AGNOSTIC).locator(POINTS)).to_have_count(16)
    expect(panel.locator(".dl-finding h3")).to_contain_text("the same group")
    expect(panel.locator(".dl-n")).to_be_hidden()
    point = panel.locator(AGNOSTIC).locator(POINTS).nth(3)
    box = point.bounding_box()
    workbench.mouse.move(box["x"] + 30, box["y"] + 30)
    workbench.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    expect(panel.locator(".dl-card > div").first).to_contain_text("三辆自行车停在车站门口。")
    expect(panel.locator(".dl-card .dl-near li")).to_have_count(6)
    shoot(workbench, "styles_sentences_zh")
    show_sentences(workbench, panel, ARABIC)
    expect(panel.locator(".dl-kept")).to_contain_text("11 sentences")
    expect(panel.locator(".dl-legend")).to_contain_text("no group 1")
    lasso(workbench, panel.locator(f"{RELATED} .nsewdrag").first, EVERYTHING)
    lines = panel.locator(".dl-captions li")
    expect(lines).to_have_count(11)
    assert lines.first.locator("bdi").get_attribute("dir") == "rtl"
    expect(lines.locator("img")).to_have_count(0)
    shoot(workbench, "styles_sentences_ar")
    show_sentences(workbench, panel, ARABIC + "\nأماكن:")
    expect(panel.locator(".dl-message").first).to_contain_text("line 12")
    panel.locator(".dl-shown select").select_option(label="captions of images")
    expect(panel.locator(".dl-kept")).to_contain_text("200 captions")
    expect(panel.locator(".dl-legend")).to_contain_text("style")
    assert workbench.evaluate("document.documentElement.scrollWidth <= innerWidth")
