"The Styles explorer in JupyterLab: recolour, lasso, hover, as a person does it"

import re

import pytest
from conftest import open_guide, shoot

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

expect.set_options(timeout=300_000)
r_webp = re.compile("^data:image/webp")
COLOURS = "ps => ps.map(p => getComputedStyle(p).fill)"


def lasso(page, area, inside=((0.15, 0.15), (0.85, 0.15), (0.85, 0.85), (0.15, 0.85), (0.15, 0.15))):
    "Draw round a part of a map with the mouse"
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    at = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in inside]
    page.mouse.move(*at[0])
    page.mouse.down()
    for x, y in at[1:]:
        page.mouse.move(x, y, steps=6)
    page.mouse.up()


def test_styles(lab, page):
    notebook = open_guide(page, "clusters_of_expression")
    panel = notebook.locator(".dl-styles")
    expect(panel).to_be_visible(timeout=300_000)
    agnostic, related = (panel.locator(f".dl-map-semantic_{k}") for k in ("agnostic", "related"))
    for m in (agnostic, related):
        expect(m.locator(".scatterlayer .point")).to_have_count(200, timeout=300_000)
    expect(panel.locator(".dl-bars .bars .point").first).to_be_attached(timeout=300_000)

    # another colour
    before = agnostic.locator(".point").evaluate_all(COLOURS)
    panel.locator(".dl-colour select").select_option("place")
    expect(panel.locator(".dl-legend")).to_contain_text("beach")
    page.wait_for_function(
        "([sel, was]) => JSON.stringify([...document.querySelectorAll(sel)].map(p => getComputedStyle(p).fill)) !== was",
        arg=[".dl-map-semantic_agnostic .point", str(before).replace("'", '"').replace('", "', '","')],
    )
    assert len(set(agnostic.locator(".point").evaluate_all(COLOURS))) > 4

    # a lasso lists captions, and marks the same ones on the other map
    lasso(page, agnostic.locator(".nsewdrag").first)
    lines = panel.locator(".dl-captions li")
    expect(lines.first).to_be_visible()
    expect(panel.locator(".dl-count")).to_contain_text("of 200 captions")
    n = int(panel.locator(".dl-count b").first.inner_text().replace(",", ""))
    assert 10 < n < 200
    expect(lines).to_have_count(n)
    faint = "ps => ps.filter(p => +getComputedStyle(p).opacity < .5).length"
    page.wait_for_function(
        "([a, b]) => [a, b].every(s => [...document.querySelectorAll(s)].filter(p => +getComputedStyle(p).opacity < .5).length > 0)",
        arg=[".dl-map-semantic_agnostic .point", ".dl-map-semantic_related .point"],
    )
    assert (
        related.locator(".scatterlayer .trace").first.locator(".point").evaluate_all(faint)
        == agnostic.locator(".scatterlayer .trace").first.locator(".point").evaluate_all(faint)
        == 200 - n
    )
    lines.first.scroll_into_view_if_needed()
    expect(lines.first.locator("img")).to_have_attribute("src", r_webp)  # painted when it came into view
    assert lines.first.locator("bdi").get_attribute("lang") == "de" and lines.first.locator("img").get_attribute("alt")

    # hover shows caption and picture
    point = related.locator(".point").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    x = box["x"] + box["width"] / 2
    y = box["y"] + box["height"] / 2
    page.mouse.move(x + 40, y + 40)
    page.mouse.move(x, y, steps=5)
    picture = panel.locator(".dl-card img")
    expect(picture).to_be_visible()
    page.wait_for_function("() => document.querySelector('.dl-card img').naturalWidth > 0")
    assert picture.get_attribute("alt")
    expect(related.locator(".hoverlayer .hovertext")).to_be_visible()
    shoot(page, "styles_lab")

    # a caption in the list, by keyboard: a ring on both maps
    lines.first.locator("button").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    chosen = lines.nth(1).locator("bdi").inner_text()
    expect(panel.locator(".dl-card")).to_contain_text(chosen)
    for m in (agnostic, related):
        expect(m.locator(".scatterlayer .point")).to_have_count(201)

    # clear
    panel.locator(".dl-clear").click()
    expect(lines).to_have_count(0)
    assert not page.outside and not page.problems, (page.outside, page.problems)


def test_styles_from_nothing_in_the_dark_at_1024(lab, page):
    "One line in a notebook: drawn beside the page, which answers meanwhile"
    import json

    cell = dict(
        cell_type="code",
        id="a",
        metadata={},
        source="from dasd_lab.explore.styles.panel import Styles\nStyles()",
        execution_count=None,
        outputs=[],
    )
    (lab.notebooks / "guides/styles_alone.ipynb").write_text(
        json.dumps(
            dict(
                cells=[cell],
                metadata=dict(kernelspec=dict(display_name="python3", language="python", name="python3")),
                nbformat=4,
                nbformat_minor=5,
            )
        )
    )
    page.set_viewport_size(dict(width=1024, height=1400))
    try:
        notebook = open_guide(page, "styles_alone", dark=True)
    finally:
        (lab.notebooks / "guides/styles_alone.ipynb").unlink()
    panel = notebook.locator(".dl-styles")
    for k in ("agnostic", "related"):
        expect(panel.locator(f".dl-map-semantic_{k} .scatterlayer .point")).to_have_count(200, timeout=300_000)
    # at one moment: what is above them may still go
    (w, y), (v, z) = panel.evaluate(
        "e => ['agnostic','related'].map(k => { const r = e.querySelector(`.dl-map-semantic_${k}`).getBoundingClientRect(); return [r.width, r.y] })"
    )
    assert abs(w - v) < 3 and abs(y - z) < 3  # equal, side by side
    assert panel.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    panel.locator(".dl-language-ar").click()  # two languages now
    expect(panel.locator(".dl-kept")).to_contain_text("200 captions")
    panel.locator(".dl-colour select").select_option("language")
    expect(panel.locator(".dl-legend")).to_contain_text("Arabic", timeout=300_000)
    expect(panel.locator(".dl-progress")).to_be_hidden(timeout=300_000)
    page.wait_for_timeout(1500)  # maps of two languages have taken their places
    lasso(
        page,
        panel.locator(".dl-map-semantic_related .nsewdrag").first,
        ((0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.02)),
    )
    for k in ("agnostic", "related"):  # and still as wide as their places
        m = panel.locator(f".dl-map-semantic_{k}")
        assert m.locator("svg.main-svg").first.bounding_box()["width"] <= m.bounding_box()["width"] + 1
    arabic = panel.locator(".dl-captions bdi[lang=ar]").first
    expect(arabic).to_be_attached(timeout=300_000)
    assert arabic.get_attribute("dir") == "rtl"
    shoot(page, "styles_dark_1024")
    assert not page.outside and not page.problems, (page.outside, page.problems)
