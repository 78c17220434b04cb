"A person adds a language in JupyterLab: pastes captions, sees what is wrong, trains, stops, goes on, asks"

import json
import re

import nbformat
import pytest
from conftest import STATE, run_notebook, shoot

THINGS = dict(
    apple="una mela",
    dog="un cane",
    cat="un gatto",
    tree="un albero",
    horse="un cavallo",
    boat="una barca",
    book="un libro",
    house="una casa",
)
PLACES = {
    "on the beach": "sulla spiaggia",
    "in the sea": "nel mare",
    "in the snow": "nella neve",
    "in the desert": "nel deserto",
    "under the stars": "sotto le stelle",
    "in a room": "in una stanza",
    "in the city": "in città",
    "on the moon": "sulla luna",
}
LINES = [f"A {a} {p}.\t{b.capitalize()} {q}." for a, b in THINGS.items() for p, q in PLACES.items()]
TEXT = "\n".join(
    [
        "English\tItalian",
        *LINES[:10],
        "A bird in a tree.",
        *LINES[10:30],
        "A red cat on the roof.\tA red cat on the roof.",
        *LINES[30:],
    ]
)


@pytest.fixture
def panel(lab, page, tmp_path):
    "The panel alone, in a notebook of its own"
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                f"from dasd_lab.explore.training.panel import Train\nTrain(runs={str(tmp_path / 'runs')!r}, every_s=.3)"
            )
        ]
    )
    nb.metadata["kernelspec"] = dict(name="python3", display_name="Python 3", language="python")
    nbformat.write(nb, lab.notebooks / "short_training.ipynb")
    run_notebook(page, "short_training.ipynb")
    assert not page.evaluate(STATE)["errors"]
    page.locator(".dl-training").wait_for(timeout=300_000)
    page.runs = tmp_path / "runs"
    return page


def told(page, words: str, timeout: int = 300_000):
    page.locator(".dl-told [role=status]").filter(has_text=re.compile(words)).wait_for(timeout=timeout)


def test_a_language_is_added(panel):
    page = panel
    page.set_default_timeout(180_000)
    assert page.locator(".dl-start").is_disabled() and page.locator(".dl-stop").is_disabled()
    page.locator(".dl-read").click()
    page.locator(".dl-message").filter(has_text="which language").wait_for()
    page.locator(".dl-language input").fill("Italian")
    page.locator(".dl-pasted textarea").fill(TEXT)
    page.locator(".dl-read").click()
    page.locator(".dl-summary [role=status]").filter(has_text="64 pairs").wait_for()
    page.locator(".dl-faults tbody tr").first.wait_for()
    rows = page.locator(".dl-faults tbody tr").all_inner_texts()
    assert [r.split()[0] for r in rows if r.split()[0].isdigit()] == ["12", "33"] and any(
        "the English again" in r for r in rows
    ), rows
    page.locator(".dl-pairs-read [lang=it]").nth(3).wait_for()
    assert page.locator(".dl-pairs-read [lang=it]").count() == 4
    shoot(page, "training_captions")
    page.locator(".dl-steps-0 input").fill("250")
    page.locator(".dl-steps-0 input").press("Tab")
    page.locator(".dl-plan td").filter(has_text=re.compile("^250$")).wait_for()
    page.locator(".dl-start").click()
    told(page, "preparing")
    assert "estimating" in page.locator(".dl-told").inner_text()
    page.locator(".dl-ask-new input").fill("un gatto")
    assert page.locator(".dl-ask-new .dl-hint").inner_text()  # the page answers meanwhile
    told(page, "step [1-9]")
    page.locator(".dl-stop").click()
    told(page, "it can go on")
    page.locator(".dl-resume").click()
    told(page, "finished", 240_000)
    page.locator(".dl-results tbody tr").first.wait_for(timeout=300_000)
    page.locator(".dl-curves .main-svg").first.wait_for()
    page.locator(".dl-ask-new input").fill("un gatto sulla spiaggia")
    page.locator(".dl-training .dl-hit img").nth(11).wait_for()
    assert page.locator(".dl-training .dl-hit img").count() == 12 and all(
        i.get_attribute("alt") for i in page.locator(".dl-training .dl-hit img").all()
    )
    (run,) = page.runs.glob("*/card.json")
    card = json.loads(run.read_text())
    assert card["stages"] == dict(cross_lingual_alignment=250) and card["languages"] == ["it"]
    for width, dark in ((1600, False), (1024, True)):
        page.set_viewport_size(dict(width=width, height=1100))
        if dark:
            page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
            page.evaluate(
                "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
            )
        for name in ("dl-start", "dl-results", "dl-ask-new"):
            page.locator(f".dl-training .{name}").first.scroll_into_view_if_needed()
            page.wait_for_timeout(400)
            shoot(page, f"training_{width}_{name}")
        wide = page.evaluate(
            "() => { const p = document.querySelector('.dl-training'); return [p.scrollWidth, p.clientWidth] }"
        )
        assert wide[0] <= wide[1] + 2, wide
    assert not page.outside and not page.problems, (page.outside, page.problems)
