"""WCAG 2.2 A and AA on the web page: by axe-core, and with the keyboard alone

The window is as tall as an explorer, so that axe-core also checks what would be scrolled out of sight.
Each explorer is opened once and checked in light and dark colours, on a desk and on a phone.
"""

from contextlib import suppress

from conftest import COLOURS, WIDE, colour, fits, open_tab, settle, shoot, unfold, violations
from playwright.sync_api import TimeoutError

from dasd_lab.explore.app import EXPLORERS as TABS
from dasd_lab.explore.app import explorer

TALL = dict(width=1400, height=5000)
PHONE = dict(width=390, height=3600)
# explorer → what is there once it has something to show; others have sections
READY = dict(
    Ask=(".dl-hit img",),
    Adapters=(".dl-grid img", ".dl-carried .main-svg"),
    Slots=(".dl-slot-scores td", ":is(.dl-map .main-svg, .dl-message)"),
    Words=(".dl-entry td", ".dl-near .bars .point", ".dl-ways .bars .point"),
    Images=(".dl-image-map .main-svg",),
    Train=("textarea", "button.dl-example"),
    Compare=(".dl-facts td", ".dl-runs button[aria-pressed=true]"),
    Styles=(".dl-finding h3", ".dl-maps .js-plotly-plot .main-svg"),
)
EXPLORERS = {name: (f".{explorer(name).css_class}", *READY.get(name, (".dl-section",))) for name in TABS}
QUIET = "() => ![...document.querySelectorAll('.dl-progress')].some(bar => bar.checkVisibility())"


def wait_for(page, name: str):
    "The explorer of a tab that was opened, when it has something to show"
    box, *contents = EXPLORERS[name]
    for content in contents:
        page.locator(f"{box} {content}").first.wait_for(timeout=300_000)
    page.wait_for_function(QUIET)
    settle(page)
    return page.locator(box)


def unfold_ask(page, panel):
    "Open each fold of Ask, and select an image with its explanation"
    for label in ("Models", "Filters", "History", "Show", "Scores"):
        unfold(panel.get_by_role("button", name=label, exact=True))
    panel.locator('.dl-hit[aria-pressed="false"]').first.click()
    panel.locator(".dl-about img.dl-large").wait_for()
    panel.get_by_role("button", name="Why this image?").click()
    panel.locator(".dl-words .main-svg").first.wait_for()
    panel.locator(".dl-spots img").nth(1).wait_for()


def unfold_all(page, name: str, panel):
    "Show what is hidden at first"
    if name == "Ask":
        unfold_ask(page, panel)
    for fold in panel.locator(".dl-numbers:visible, .dl-folded .dl-fold:visible, .dl-sentences .dl-fold:visible").all():
        unfold(fold)
    if name == "Train":
        panel.locator(".dl-example:visible").first.click()
        panel.locator(".dl-lengths .main-svg").first.wait_for()
    settle(page)


# boxes that scroll sideways, beside tables and the line of examples; none of them is the page
SCROLLED = """() => [document.scrollingElement, ...document.querySelectorAll('body *')].filter(e =>
  e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && !e.matches('.dl-scroll, .dl-line, input, textarea')
  && (e === document.scrollingElement || /auto|scroll|hidden/.test(getComputedStyle(e).overflowX))
).map(e => e.outerHTML.slice(0, 120))"""


def too_wide(page, name: str) -> list[str]:
    "What a phone cannot show of an open explorer without scrolling sideways; leaves a screenshot"
    page.set_viewport_size(PHONE)
    settle(page)
    content = page.locator(" ".join(EXPLORERS[name][:2])).first.bounding_box()
    assert content["x"] >= 0 and content["x"] + min(content["width"], 60) <= PHONE["width"], (name, content)
    found = page.evaluate(SCROLLED)
    shoot(page, f"phone_{name}")
    page.set_viewport_size(TALL)
    return found


def show_on_a_desk(page, name: str):
    "Nothing is wider than a desk's window; leaves a screenshot"
    page.set_viewport_size(WIDE)
    settle(page)
    assert fits(page), f"{name} is wider than the page"
    shoot(page, f"web_{name.lower()}")
    page.set_viewport_size(TALL)
    settle(page)


# axe-core reads the style of every element, also of those in tabs that are not open
SET_ASIDE = """() => {
  const closed = document.querySelectorAll('.widget-tab-contents > .lm-mod-hidden');
  globalThis.dlAside = [...closed].map(tab => {
    const place = document.createComment('');
    tab.replaceWith(place);
    return [place, tab];
  });
}"""
PUT_BACK = "() => globalThis.dlAside.forEach(([place, tab]) => place.replaceWith(tab))"


def violations_in_both_schemes(page, name: str) -> list[str]:
    "All that axe-core finds in light colours, and what it finds about dark ones; leaves screenshots"
    page.evaluate(SET_ASIDE)
    found = violations(page)
    shoot(page, f"accessible_light_{name}")
    colour(page, "dark")
    found += [f"dark: {line}" for line in violations(page, rules=COLOURS)]
    page.evaluate(PUT_BACK)
    shoot(page, f"accessible_dark_{name}")
    return found


CONTROLS = """box => {
  const selector = 'button, select, input, textarea, summary, a[href], [tabindex="0"], .dl-scroll';
  const shown = e => e.checkVisibility({visibilityProperty: true}) && !e.disabled;
  const outer = e => e.getAttribute('role') !== 'tab';
  globalThis.dlLeft = new Set([...document.querySelectorAll(box)].flatMap(
    panel => [...panel.querySelectorAll(selector)]).filter(e => shown(e) && outer(e)));
  return globalThis.dlLeft.size;
}"""
# the element that has the focus; whether its focus is visible
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  globalThis.dlLeft.delete(e);
  const style = getComputedStyle(e);
  const ring = style.outlineStyle === 'auto' || (style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2);
  return [ring, e.outerHTML.slice(0, 120)];
}"""
LEFT = "() => [...globalThis.dlLeft].map(e => e.outerHTML.slice(0, 160))"


def open_with_keys(page, name: str):
    "Tab to the tabs, move with the arrow keys, open with Enter"
    page.get_by_role("tab", name="Ask").focus()
    for _ in range(8):
        if page.evaluate("document.activeElement.textContent") == name:
            break
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == name
    page.keyboard.press("Enter")
    return wait_for(page, name)


def unreached(page, name: str) -> list[str]:
    "Controls that Tab does not reach, or whose focus cannot be seen"
    n = page.evaluate(CONTROLS, EXPLORERS[name][0])
    assert n > 5, (name, n)
    hidden = []
    for _ in range(n + 40):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused is None:
            break
        ring, element = focused
        if not ring:
            hidden.append(f"focus not visible: {element}")
    return hidden + page.evaluate(LEFT)


def ask_with_keys(page, panel):
    panel.locator(".dl-query input").first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("zwei rote Äpfel")
    page.keyboard.press("Enter")
    panel.locator(".dl-hint", has_text="German").wait_for()
    panel.get_by_role("button", name="Models", exact=True).focus()
    page.keyboard.press("Space")
    panel.locator('button.dl-fold[aria-pressed="true"]').wait_for()
    page.keyboard.press("Space")
    panel.locator(".dl-hit").nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    panel.locator('.dl-hit[aria-pressed="true"]').wait_for()
    panel.locator(".dl-about img.dl-large").wait_for()
    panel.get_by_role("button", name="Scores", exact=True).focus()
    page.keyboard.press("Enter")
    panel.locator(".dl-scores .main-svg").first.wait_for()


def switch_off_with_keys(page, panel):
    panel.locator("button.dl-block-0").focus()
    page.keyboard.press("Space")
    panel.locator(".dl-rank-summary", has_text="off in block 0").wait_for()
    panel.locator("button.dl-block-0").focus()
    page.keyboard.press("Space")
    panel.locator(".dl-rank-summary", has_text="all adapters on").wait_for()
    image = panel.locator(".dl-hit:not(.dl-marked)").first
    id = image.get_attribute("data-id")
    image.focus()
    page.keyboard.press("Enter")
    panel.locator(f".dl-hit.dl-marked[data-id='{id}']").wait_for()


def read_slots_with_keys(page, panel):
    before = panel.locator("img.dl-large").get_attribute("src")
    panel.locator(".dl-grid .dl-hit").nth(2).focus()
    page.keyboard.press("Enter")
    page.wait_for_function("before => document.querySelector('.dl-slots img.dl-large').src !== before", arg=before)


def look_up_with_keys(page, panel):
    before = panel.locator(".dl-entry-text").inner_text()
    panel.locator(".dl-looking .dl-example").nth(0).focus()  # not the word that the page opens on
    page.keyboard.press("Enter")
    changed = "before => document.querySelector('.dl-shared-words .dl-entry-text').innerText !== before"
    page.wait_for_function(changed, arg=before)


def read_pairs_with_keys(page, panel):
    panel.locator(".dl-example").first.focus()
    page.keyboard.press("Enter")
    panel.locator(".dl-lengths .main-svg").first.wait_for()


def compare_with_keys(page, panel):
    run = panel.locator(".dl-runs button").nth(2)
    is_pressed = "state => document.querySelectorAll('.dl-runs button')[2].ariaPressed === state"
    before = run.get_attribute("aria-pressed")
    for state in ("false" if before == "true" else "true", before):
        for _ in range(5):  # a key is lost while an answer is drawn: a reader repeats it
            run.press("Space")
            with suppress(TimeoutError):
                page.wait_for_function(is_pressed, arg=state, timeout=20_000)
                break
        settle(page)  # the answer to an earlier key may still be drawn, and the one to this key after it
        page.wait_for_function(is_pressed, arg=state)
    panel.locator(".dl-evaluate").focus()
    page.keyboard.press("Enter")
    panel.locator(".dl-progress:visible").wait_for()


def select_with_keys(page, panel):
    panel.locator(".dl-select select").focus()
    page.keyboard.press("ArrowDown")
    panel.locator(".dl-count b").wait_for()
    panel.locator(".dl-captions button").first.focus()
    page.keyboard.press("Enter")
    panel.locator(".dl-captions button[aria-pressed=true]").wait_for()
    panel.locator(".dl-near li").first.wait_for()


ACTIONS = dict(
    Ask=ask_with_keys,
    Adapters=switch_off_with_keys,
    Slots=read_slots_with_keys,
    Words=look_up_with_keys,
    Train=read_pairs_with_keys,
    Compare=compare_with_keys,
    Styles=select_with_keys,
)


def test_every_explorer_can_be_used_with_the_keyboard(workbench):
    found = {}
    for name in EXPLORERS:
        panel = open_with_keys(workbench, name)
        found[name] = unreached(workbench, name)
        if name in ACTIONS:
            ACTIONS[name](workbench, panel)
        shoot(workbench, f"keyboard_{name}")
    found = {name: lines for name, lines in found.items() if lines}
    assert not found, found


def test_no_explorer_violates_wcag(workbench):
    "Each explorer with all that can be unfolded, in light and dark colours; in the dark also on a phone"
    workbench.set_viewport_size(TALL)
    found = {}
    for name in EXPLORERS:
        open_tab(workbench, name)
        panel = wait_for(workbench, name)
        show_on_a_desk(workbench, name)
        unfold_all(workbench, name, panel)
        found[name] = violations_in_both_schemes(workbench, name) + too_wide(workbench, name)
        colour(workbench, "light")
    found = {where: lines for where, lines in found.items() if lines}
    assert not found, found
