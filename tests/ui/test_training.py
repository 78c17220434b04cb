"Adding a language in JupyterLab: paste captions, see faults, train, stop, resume, search"

import json
import re

import pytest
from conftest import fits, run_cell, settle, shoot

from dasd_lab.corpora.own.parallel import FAULTS

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
LINES = [
    f"A {thing} {place}.\t{italian_thing.capitalize()} {italian_place}."
    for thing, italian_thing in THINGS.items()
    for place, italian_place in PLACES.items()
]
FAULTY = ["12", "33"]  # lines of TEXT, from 1: without a translation, and English on both sides
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
    "The page of a notebook that shows the panel"
    source = f"from dasd_lab.explore.training.panel import Train\nTrain(runs={str(tmp_path / 'runs')!r})"
    run_cell(lab, page, source)
    page.locator(".dl-training").wait_for(timeout=300_000)
    page.set_default_timeout(180_000)
    return page


def wait_for_status(page, pattern: str):
    status = page.locator(".dl-status [role=status]")
    status.filter(has_text=re.compile(pattern)).wait_for(timeout=300_000)


def read_captions(page):
    "Paste captions and check the tables"
    page.locator(".dl-pasted textarea").fill(TEXT)
    page.locator(".dl-read").click()
    page.locator(".dl-message").filter(has_text="without a language").wait_for()
    page.locator(".dl-language input").fill("Italian")
    page.locator(".dl-read").click()
    page.locator(".dl-summary [role=status]").filter(has_text="64 pairs").wait_for()
    page.locator(".dl-faults tbody tr").first.wait_for()
    rows = page.locator(".dl-faults tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows if row.split()[0].isdigit()] == FAULTY
    assert any(FAULTS["copy"] in row for row in rows), rows
    page.locator(".dl-pairs-read [lang=it]").nth(3).wait_for()
    assert page.locator(".dl-pairs-read [lang=it]").count() == 4
    shoot(page, "training_captions")


def train(page):
    "Train 120 steps, with a stop in between"
    page.locator(".dl-steps-0 input").fill("120")
    page.locator(".dl-steps-0 input").press("Tab")
    page.locator(".dl-plan td").filter(has_text=re.compile("^120$")).wait_for()
    page.locator(".dl-start").click()
    wait_for_status(page, "preparing")
    assert "estimating" in page.locator(".dl-status").inner_text()
    page.locator(".dl-ask-new input").fill("un gatto")
    assert page.locator(".dl-ask-new .dl-hint").inner_text()  # the panel responds during training
    wait_for_status(page, "step [1-9]")
    page.locator(".dl-stop").click()
    wait_for_status(page, "can be resumed")
    page.locator(".dl-resume").click()
    wait_for_status(page, "finished")


def search(page):
    "Search with the new model"
    page.locator(".dl-results tbody tr").first.wait_for(timeout=300_000)
    page.locator(".dl-curves .main-svg").first.wait_for()
    page.locator(".dl-ask-new input").fill("un gatto sulla spiaggia")
    images = page.locator(".dl-training .dl-hit img")
    images.nth(11).wait_for()
    assert images.count() == 12
    assert all(image.get_attribute("alt") for image in images.all())


def check_width(page, width: int):
    "Nothing is wider than the panel"
    page.set_viewport_size(dict(width=width, height=1100))
    for name in ("dl-start", "dl-results", "dl-ask-new"):
        page.locator(f".dl-training .{name}").first.scroll_into_view_if_needed()
        settle(page)
        shoot(page, f"training_{width}_{name}")
    assert fits(page, ".dl-training")


def test_a_language_is_added(panel, tmp_path):
    assert panel.locator(".dl-start").is_disabled()
    assert panel.locator(".dl-stop").is_disabled()
    read_captions(panel)
    train(panel)
    search(panel)
    (file,) = (tmp_path / "runs").glob("*/card.json")
    card = json.loads(file.read_text())
    assert card["stages"] == dict(cross_lingual_alignment=120)
    assert card["languages"] == ["it"]
    check_width(panel, 1600)
    panel.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    panel.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    check_width(panel, 1024)
