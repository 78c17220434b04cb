"Runs by name, the run of a gallery, and the two worlds of the workbench, on a tiny model in the layout of the weights"

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from squares import COLOURS, TINY, Squares, Tested

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build, save_backbone
from dasd_lab.base.contracts import Caption, LabError
from dasd_lab.commands import cli
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.explore import controls, pictures, workbench
from dasd_lab.explore.app import EXPLORERS, App
from dasd_lab.explore.controls import WorldSwitch
from dasd_lab.explore.workbench import WORLDS, first_world, open_worlds, world_workbench
from dasd_lab.runs import shipped
from dasd_lab.runs.saved import save_method
from dasd_lab.search.on_disk.places import gallery_run, own_galleries
from dasd_lab.training import recipes

SHIPPED = shipped.shipped_run()
pytestmark = pytest.mark.skipif(not (SHIPPED / "card.json").is_file(), reason=f"no trained run in {SHIPPED}")
TEXT = dict(
    model_type="bert",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    vocab_size=80,
    max_position_embeddings=34,
)
CONFIG = dict(text=TEXT, image=dict(timm="test_vit"), embed_dim=24, pooling="mean", context_length=30)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    "A folder of weights: those for pictograms, and a tiny dual stream with DASD alone for photographs"
    folder = tmp_path_factory.mktemp("weights")
    (folder / "pictograms").symlink_to(SHIPPED)
    corpus = Squares()
    torch.manual_seed(0)
    model, text = build("dual_stream", CONFIG)
    tokenizer = train_tokenizer([c.text for c in corpus.captions("train", "en")], 80)
    backbone = Backbone(model, tokenizer, CONFIG, "tiny", text=text, kind="dual_stream", size=160)
    preset = TINY | dict(languages=["de", "fr"])
    run = recipes.train(preset, corpus, seed=0, backbone=backbone, progress=False)
    save_backbone(backbone, folder / "photographs/backbone")
    save_method(run.method, folder / "photographs/method")
    (folder / "photographs/card.json").write_text(json.dumps(dict(licence="none")))
    return folder


@pytest.fixture
def lab(weights, tmp_path, monkeypatch):
    "A working folder and a data folder without galleries, and the two models"
    monkeypatch.setattr(shipped, "weights_folder", lambda: weights)
    monkeypatch.setattr(pictures, "load_corpus", _only_included)
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("DASD_LAB_WORLD", raising=False)
    monkeypatch.delenv("DASD_LAB_PICTURES", raising=False)
    monkeypatch.chdir(tmp_path)
    caches = workbench.world_workbench, workbench.world_models, pictures.installed_corpus
    for cached in caches:
        cached.cache_clear()
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


def _only_included(name):
    if name == "everyday":
        return load_corpus(name)
    raise LabError(f"no corpus {name}", "its files", "Install it.")


def _with_stamps(name):
    "Squares stand for them"
    return Tested() if name == "stamps" else _only_included(name)


@pytest.fixture
def photographs(lab):
    "A folder of photographs"
    folder = lab / "my photographs"
    folder.mkdir()
    for name, (*_, colour) in COLOURS.items():
        Image.new("RGB", (64, 48), colour).save(folder / f"{name}.png")
    return folder


def shell(capsys, *words) -> dict:
    "Output of a command that succeeds, and its messages"
    code = cli.main([*map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out) | dict(messages=err)


def test_a_world_without_its_model(lab, tmp_path, monkeypatch):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "pictograms").symlink_to(SHIPPED)
    monkeypatch.setattr(shipped, "weights_folder", lambda: weights)
    assert shipped.run_for() == "pictograms" and open_worlds() == ["pictograms"]
    assert first_world() == "pictograms"
    with pytest.raises(LabError, match="a world 'photographs'"):
        world_workbench("photographs")


def test_a_gallery_remembers_its_run(lab, photographs, capsys):
    shell(capsys, "gallery", "import", photographs, "--gallery", "galleries/mine")
    shell(capsys, "gallery", "import", photographs, "--gallery", "galleries/drawn", "--run", "pictograms")
    assert gallery_run("galleries/mine") == "photographs" and gallery_run("galleries/drawn") == "pictograms"
    assert own_galleries()[0] == lab / "galleries/drawn"
    found = shell(capsys, "search", "ein rotes Quadrat", "--language", "de", "--gallery", "galleries/mine", "-k", "4")
    assert {row["picture"] for row in found["rows"]} == {f"{name}.png" for name in COLOURS}
    newest = shell(capsys, "search", "ein rotes Quadrat", "--language", "de", "-k", "1")
    assert "galleries/drawn, the most recent gallery" in newest["messages"]
    assert len(newest["rows"]) == 1
    info = shell(capsys, "gallery", "info", "galleries/mine")
    assert [row["this_run"] for row in info["rows"]] == ["yes"]


def test_the_first_world(lab, photographs, capsys, monkeypatch):
    assert first_world() == "photographs"
    shell(capsys, "gallery", "import", photographs, "--gallery", "galleries/mine")
    bench = world_workbench("photographs")
    assert bench.title == str(lab / "galleries/mine") and len(bench.ids) == 4
    monkeypatch.setenv("DASD_LAB_WORLD", "pictograms")
    assert first_world() == "pictograms"


def test_every_explorer_on_photographs_without_captions(lab, photographs):
    "Also where some methods are missing: this world has DASD alone"
    app = App(pictures=photographs, explorers=list(EXPLORERS))
    assert list(app.workbench.models) == ["DASD"] and app.workbench.world is WORLDS["photographs"]
    panels = {name: app.show_tab(name) for name in EXPLORERS}
    assert all(isinstance(panel.children[1], WorldSwitch) for panel in panels.values())
    panels["Ask"].ask("un carré rouge")
    assert len(panels["Ask"].state.answers["DASD"].hits) == 4
    assert [query.why for query in panels["Adapters"].state.parsed] == ["best with all adapters"] * 2
    styles = panels["Styles"].state
    assert styles.languages == ("de",) and styles.workbench is app.workbench.captioned
    styles.update()
    assert len(styles.analysis.captions) == 60  # the sentences that it opens on
    compare = panels["Compare"].state
    compare.evaluate()
    assert not compare.message and len(compare.workbench.ids) == 115
    words = panels["Words"].state
    assert not words.model and words.rankings is not None
    assert not panels["Slots"].state.model and "LECCR" in panels["Slots"].state.message
    assert panels["Train"].state.preset == WORLDS["photographs"].preset
    panels["Compare"]["dl-own-captions"].keep([Caption("ein rotes Bild", "de", "red.png")])
    world_workbench.cache_clear()
    again = world_workbench("photographs", photographs)
    assert again is not app.workbench and again.captioned is again and again.alt("red.png") == "ein rotes Bild"


def test_the_switch(lab, photographs):
    other = world_workbench("photographs", photographs)
    shown = []
    failures = []
    switch = WorldSwitch(other, shown.append, failures.append)
    assert [name for _, name in switch.worlds.options] == ["photographs", "pictograms"]
    switch.folder.value = str(photographs)
    switch.open_folder(wait=True)
    assert len(shown) == 1 and len(shown[0].ids) == 4
    switch.folder.value = "none"
    switch.open_folder(wait=True)
    assert "no folder none" in failures[0] and switch.worlds.value == "photographs"
    switch.folder.value = f"{lab}/"
    assert str(photographs) in switch.folder.options
    assert pictures.own_pictures() == photographs.resolve(), (
        "it is kept when worlds are switched, and for the next time"
    )
    assert str(photographs.resolve()) in WorldSwitch(other, shown.append, failures.append).folder.options


def test_stamps_are_downloaded(lab, photographs, monkeypatch):
    def fetch(report):
        report(0.5)
        for module in (pictures, workbench):
            monkeypatch.setattr(module, "load_corpus", _with_stamps)

    monkeypatch.setattr(controls, "stamps_can_be_fetched", lambda: True)
    monkeypatch.setattr(controls, "fetch_stamps", fetch)
    shown = []
    switch = WorldSwitch(world_workbench("photographs", photographs), shown.append, pytest.fail)
    assert "stamps" not in switch.folder.options and "included" in switch.folder.options
    switch.fetching.run(wait=True)
    assert shown[0].title == "stamps, test" and shown[0].has_captions
    assert pictures.own_pictures() == Path("stamps"), "the next time as well"
    assert world_workbench("photographs", "included").title == "included", "what comes with the lab can be opened again"


def test_a_panel_shows_another_workbench(lab, photographs):
    from dasd_lab.explore.ask.panel import Ask

    panel = Ask(world_workbench("photographs", photographs))
    shutil.copy(photographs / "red.png", photographs / "again.png")
    other = lab / "others"
    shutil.copytree(photographs, other)
    panel.show_workbench(world_workbench("photographs", other))
    (inner,) = panel.children
    assert len(inner.state.workbench.ids) == 5
    inner.show_workbench(world_workbench("photographs", photographs))
    assert panel.children[0] is not inner
    assert len(panel.children[0].state.workbench.ids) == 4


def test_a_new_model_is_on_both_workbenches(lab, photographs):
    from dasd_lab.explore.workbench import Workbench

    bench = world_workbench("photographs", photographs)
    captioned = Workbench(bench.main.method, Squares(), ("train",))
    both = Workbench(bench.main.method, gallery=bench.main.gallery, captioned=captioned)
    both.add("again", bench.main.method)
    assert "again" in captioned.models and both.captioned is captioned
