"The Adapters explorer: type captions, switch adapters off, compare many captions"

from conftest import fits, open_tab, settle, shoot, unfold_details

# the first entries of the first heat map, as drawn by plotly
FIRST_MAP = """() => {
  const plots = [...document.querySelectorAll('.dl-adapters .js-plotly-plot')];
  const z = plots.find(plot => plot.closest('.dl-maps'))?.calcdata?.[0]?.[0]?.z;
  return z ? JSON.stringify([...z].slice(0, 2).map(row => [...row].slice(0, 4))) : '';
}"""


def type_caption(root, i: int, text: str):
    "Type into the box of a caption and wait until it appears in the table of ranks"
    box = root.locator(f".dl-adapters .dl-caption-{i} input[type=search]")
    box.scroll_into_view_if_needed()
    box.fill(text)
    root.locator(".dl-adapters .dl-ranks", has_text=text).wait_for()


def drive(page, root, name: str):
    "Use every section of the page"
    unfold_details(root.locator(".dl-adapters"))
    root.locator(".dl-adapters .dl-maps .heatmaplayer image").first.wait_for(timeout=300_000)
    before = page.evaluate(FIRST_MAP)
    assert before
    type_caption(root, 0, "猫")
    page.wait_for_function(f"before => {{ const now = ({FIRST_MAP})(); return now && now !== before }}", arg=before)
    type_caption(root, 1, "eine rote Katze")
    assert root.locator(".dl-adapters .dl-caption-1 .dl-hint").inner_text().startswith("German")
    summary = root.locator(".dl-adapters .dl-rank-summary")
    assert summary.inner_text().startswith("all adapters on")
    # switch a block off with the keyboard
    root.locator(".dl-adapters button.dl-block-1").focus()
    page.keyboard.press("Space")
    root.locator(".dl-adapters .dl-rank-summary", has_text="adapters off in block 1").wait_for()
    root.locator(".dl-adapters button.dl-all-off").click()
    root.locator(".dl-adapters .dl-rank-summary", has_text="adapters off in block 0, 1, 2").wait_for()
    shoot(page, f"{name}_off")
    # make another image the target
    root.locator(".dl-adapters .dl-hit").nth(2).click()
    root.locator(".dl-adapters .dl-ranks", has_text="(selected)").wait_for()
    assert all(root.locator(".dl-adapters .dl-hit img").evaluate_all("i => i.map(x => x.alt.length > 3)"))
    root.locator(".dl-adapters button.dl-take-many").click()
    root.locator(".dl-adapters .dl-similarity .main-svg").first.wait_for(timeout=300_000)
    point = root.locator(".dl-adapters .dl-adapter-map .scatterlayer .point").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
    root.locator(".dl-adapters .dl-adapter-card img").wait_for()
    root.locator(".dl-adapters button.dl-take-recall").click()
    root.locator(".dl-adapters .dl-recall .main-svg").first.wait_for(timeout=300_000)
    root.locator(".dl-adapters button.dl-moved").click()
    root.locator(".dl-adapters .dl-ranks", has_text="own image").wait_for()
    assert "→" in summary.inner_text(), summary.inner_text()
    root.locator(".dl-adapters .dl-similarity").scroll_into_view_if_needed()
    shoot(page, f"{name}_many")


def test_adapters(workbench):
    open_tab(workbench, "Adapters")
    drive(workbench, workbench.locator("body"), "adapters")
    assert fits(workbench, ".dl-adapters")
    workbench.set_viewport_size(dict(width=1024, height=800))
    settle(workbench, 500)
    assert fits(workbench, ".dl-adapters")
