"The Styles explorer: figures of a hidden tab, own sentences, the lasso and a point under the mouse"

import re

import pytest
from conftest import open_tab, settle, shoot, unfold, unfold_details

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

expect.set_options(timeout=300_000)
POINTS = ".scatterlayer .point"
AGNOSTIC = ".dl-map-semantic_agnostic"
RELATED = ".dl-map-semantic_related"
EVERYTHING = ((0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.02))


def lasso(page, area):
    "Draw a lasso around a map with the mouse"
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    positions = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in EVERYTHING]
    page.mouse.move(*positions[0])
    page.mouse.down()
    for x, y in positions[1:]:
        page.mouse.move(x, y, steps=6)
    page.mouse.up()


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
    box = panel.locator(AGNOSTIC).locator(POINTS).nth(3).bounding_box()
    workbench.mouse.move(box["x"] + 30, box["y"] + 30)
    workbench.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    expect(panel.locator(".dl-card > div").first).to_contain_text("三辆自行车停在车站门口。")
    expect(panel.locator(".dl-card .dl-near li")).to_have_count(6)
    shoot(workbench, "styles_sentences_zh")
    show_sentences(workbench, panel, ARABIC)
    expect(panel.locator(".dl-kept")).to_contain_text("11 sentences")
    expect(panel.locator(".dl-legend")).to_contain_text("no group 1")
    lasso(workbench, panel.locator(f"{RELATED} .nsewdrag").first)
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
