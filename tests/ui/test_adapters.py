"A person looks inside the adapters in JupyterLab: types, sees the matrices change, switches a block off, compares many captions"

from conftest import open_guide, shoot

# what plotly has drawn, not what Python has sent: the first heat map's numbers
FIRST_MAP = "() => { const g = [...document.querySelectorAll('.dl-adapters .js-plotly-plot')].find(e => e.closest('.dl-maps')); const z = g?.calcdata?.[0]?.[0]?.z; return z ? JSON.stringify([...z].slice(0, 2).map(r => [...r].slice(0, 4))) : '' }"


def typed(page, root, i: int, text: str):
    "Type into a caption's box and wait until the ranks tell of it"
    box = root.locator(f".dl-adapters .dl-caption-{i} input[type=search]")
    box.scroll_into_view_if_needed()
    box.fill(text)
    root.locator(".dl-adapters .dl-ranks", has_text=text).wait_for()
    return box


def drive(page, root, name: str):
    "What a newcomer does"
    root.locator(".dl-adapters .dl-maps .heatmaplayer image").first.wait_for(timeout=300_000)
    before = page.evaluate(FIRST_MAP)
    assert before
    typed(page, root, 0, "猫")
    page.wait_for_function(f"before => {{ const now = ({FIRST_MAP})(); return now && now !== before }}", arg=before)
    typed(page, root, 1, "eine rote Katze")
    assert root.locator(".dl-adapters .dl-caption-1 .dl-hint").inner_text().startswith("German")
    told = root.locator(".dl-adapters .dl-told-ranks")
    assert told.inner_text().startswith("all adapters on")
    # by keyboard: a switch is a button
    switch = root.locator(".dl-adapters button.dl-block-1")
    switch.focus()
    page.keyboard.press("Space")
    root.locator(".dl-adapters .dl-told-ranks", has_text="adapters off in block 1").wait_for()
    root.locator(".dl-adapters button.dl-all-off").click()
    root.locator(".dl-adapters .dl-told-ranks", has_text="adapters off in block 0, 1, 2").wait_for()
    shoot(page, f"{name}_off")
    # seek another picture: its rank is told, and moves with the switches or says that it does not
    root.locator(".dl-adapters .dl-hit").nth(2).click()
    root.locator(".dl-adapters .dl-ranks", has_text="(chosen)").wait_for()
    assert all(root.locator(".dl-adapters .dl-hit img").evaluate_all("i => i.map(x => x.alt.length > 3)"))
    root.locator(".dl-adapters button.dl-take-many").click()
    root.locator(".dl-adapters .dl-likeness .main-svg").first.wait_for(timeout=300_000)
    root.locator(".dl-adapters button.dl-take-recall").click()
    root.locator(".dl-adapters .dl-recall .main-svg").first.wait_for(timeout=300_000)
    root.locator(".dl-adapters button.dl-moved").click()
    root.locator(".dl-adapters .dl-ranks", has_text="its own picture").wait_for()
    assert "→" in told.inner_text(), told.inner_text()
    root.locator(".dl-adapters .dl-likeness").scroll_into_view_if_needed()
    shoot(page, f"{name}_many")


def test_adapters_in_jupyterlab(lab, page):
    drive(page, open_guide(page, "inside_the_adapters"), "adapters_lab")
    assert not page.outside and not page.problems, (page.outside, page.problems)
    wide = page.evaluate(
        "() => { const p = document.querySelector('.dl-adapters'); return [p.scrollWidth, p.clientWidth] }"
    )
    page.set_viewport_size(dict(width=1024, height=800))
    page.wait_for_timeout(4000)
    narrow = page.evaluate(
        "() => { const p = document.querySelector('.dl-adapters'); return [p.scrollWidth, p.clientWidth] }"
    )
    assert wide[0] <= wide[1] + 1 and narrow[0] <= narrow[1] + 1, (wide, narrow)  # nothing sticks out
