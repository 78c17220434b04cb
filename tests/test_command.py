"The command line for somebody who mistypes: errors at once, suggestions, quoting, completion"

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from test_cli import ROOT, lab

RUN = """import sys
from dasd_lab.commands.cli import main
code = main(sys.argv[1:])
print("torch" in sys.modules)
sys.exit(code)"""


def said(*words) -> subprocess.CompletedProcess:
    "A command in a process of its own, which prints at the end whether torch was loaded"
    command = [sys.executable, "-c", RUN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


MISTYPED = {
    "train dasd.pictogram": "dasd.pictograms",
    "train --resume runs/none": "",
    "evaluate photograph": "photographs",
    "evaluate --corpus multi3k": "multi30k",
    "evaluate --languages germn": "german",
    "search Hund --language xx": "",
    "search Hund --language uk --run pictograms": "",
    "search Hund --run pictogram": "pictograms",
    "search Hund --split tests": "test",
    "search Hund --run photographs --corpus multi30k": "",
    "evaluate --corpus multi30k": "",
    "evaluate --split tests": "test",
    "lab --notebooks nowhere": "",
    "search Hund --backbone clip-vit-b-61": "clip-vit-b-16",
    "gallery info nowhere": "",
    "gallery info --gallery nowhere": "",
    "serve --gallery nowhere": "",
    "gallery import nowhere --gallery x": "",
    "serve nowhere": "",
    "weights get siglip-vit-b-1": "siglip-vit-b-16",
    "runs nowhere": "",
    "table 1 --preset dasd.papr": "dasd.paper",
    "describe pictogram": "pictograms",
    "translate --to germn --engine apertium": "german",
}

EMBEDDING = dict(method="dasd", run="pictograms", width=64, more={}, descriptions=False)
RECORD = dict(  # of a gallery on disk that the model for pictograms embedded
    kind="stored gallery", version=1, engine="LanceEngine", columns={}, ways=dict(first=EMBEDDING)
)


@pytest.mark.parametrize("words", MISTYPED)
def test_a_mistake_is_reported_before_anything_is_loaded(words):
    result = said(*words.split())
    assert result.returncode in (1, 2) and "Traceback" not in result.stderr, result.stderr
    if MISTYPED[words]:
        assert f"Did you mean {MISTYPED[words]}?" in result.stderr
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


@pytest.mark.parametrize("query", ["", " \n\t", "\u200b"])
def test_an_empty_query_is_refused_before_anything_is_loaded(query, tmp_path):
    (tmp_path / "gallery.json").write_text(json.dumps(RECORD))
    for words in (["--gallery", tmp_path], ["--pictures", tmp_path], ["--corpus", "pictograms"]):
        result = said("search", query, *words)
        assert result.returncode == 1 and "an empty query. Expected some words." in result.stderr, result.stderr
        assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_a_language_that_a_gallery_cannot_read_is_refused_before_anything_is_loaded(tmp_path):
    (tmp_path / "gallery.json").write_text(json.dumps(RECORD))
    result = said("search", "pes", "--language", "slovak", "--gallery", tmp_path)
    assert result.returncode == 1 and "a query in 'sk'" in result.stderr, result.stderr
    assert "one of " in result.stderr and "--run photographs" in result.stderr
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_a_corpus_that_is_missing_says_what_to_get(monkeypatch, tmp_path):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    result = lab("translate", "--corpus", "multi30k", "--to", "de", "--engine", "apertium")
    assert result.returncode == 1 and "multi30k" in result.stderr and "Expected" in result.stderr


def test_train_without_a_preset_shows_the_plan_and_starts_nothing(tmp_path):
    result = lab("train", "--out", tmp_path / "run")
    assert result.returncode == 1
    assert result.stdout.startswith("dasd.pictograms: dasd for ")
    assert "dasd-lab train dasd.pictograms" in result.stderr and "--yes" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_plan_says_how_time_was_measured():
    result = lab("train", "dasd.pictograms", "--dry-run")
    assert result.returncode == 0
    assert re.search(r"[\d.]+ s a step of ", result.stdout)
    assert re.search(r"Time: .* on this processor", result.stdout)


@pytest.fixture
def gallery(tmp_path, monkeypatch):
    "A gallery whose name has a space, in a folder `galleries`"
    from PIL import Image

    pictures = tmp_path / "my pictures"
    pictures.mkdir()
    for colour in ("red", "blue"):
        Image.new("RGB", (64, 64), colour).save(pictures / f"{colour}.png")
    folder = tmp_path / "galleries" / "my holidays"
    assert lab("gallery", "import", pictures, "--gallery", folder, "--run", "pictograms").returncode == 0
    monkeypatch.setattr("test_cli.ROOT", tmp_path)  # the working folder of `lab`
    return folder


def test_info_and_search_find_a_gallery_as_serve_does(gallery):
    from dasd_lab.commands.galleries import served_gallery

    for words in (["my holidays"], [gallery], ["--gallery", "my holidays"], []):
        assert json.loads(lab("gallery", "info", *words, "--json").stdout)["pictures"] == 2
    assert "red.png" in lab("search", "rot", "--gallery", "my holidays").stdout
    assert "Did you mean my holidays?" in lab("gallery", "info", "my holiday").stderr
    with mock.patch("pathlib.Path.cwd", return_value=gallery.parents[1]):
        served_gallery("my holidays").close()


def test_information_makes_no_gallery(monkeypatch, tmp_path):
    monkeypatch.setattr("test_cli.ROOT", tmp_path)  # the working folder of `lab`
    monkeypatch.setenv("DASD_LAB_HOME", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path / "data"))
    done = lab("gallery", "info")
    assert done.returncode == 1 and "no gallery yet" in done.stderr and "gallery import" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_clash_of_ids_is_not_called_unreadable(gallery):
    from PIL import Image

    other = gallery.parents[1] / "other"
    other.mkdir()
    Image.new("RGB", (32, 32), "green").save(other / "red.png")
    done = lab("gallery", "import", other, "--gallery", gallery)
    assert done.returncode == 0 and "its id is that of" in done.stdout
    assert "1 left out for their ids" in done.stderr and "could not be read" not in done.stderr


def test_names_of_files_do_not_change_the_terminal(gallery):
    from PIL import Image

    odd = "a\x1b[31m\u202egnp.png"
    pictures = gallery.parents[1] / "odd \x1b[5m"
    pictures.mkdir()
    Image.new("RGB", (64, 64), "lime").save(pictures / odd)
    (pictures / f"bad{odd}").write_bytes(b"no image")
    imported = lab("gallery", "import", pictures, "--gallery", gallery)
    found = lab("search", "grün", "--gallery", gallery)
    missing = lab("gallery", "info", pictures)
    for done in (imported, found, missing):
        assert not {"\x1b", "\u202e"} & {*done.stdout, *done.stderr}
    assert r"bada\x1b[31m\u202egnp.png" in imported.stdout and r"a\x1b[31m\u202egnp.png" in found.stdout
    exact = json.loads(lab("search", "grün", "--gallery", gallery, "--json").stdout)
    assert odd in {row["picture"] for row in exact["rows"]}


def completed(*words) -> list[str]:
    "Names that the script of a shell asks for"
    return lab("__complete", *words).stdout.split()


def test_completion_knows_names():
    assert "dasd.pictograms" in completed("train", "dasd.")
    assert "multi30k_both" in completed("evaluate", "pictograms", "--corpus", "")
    assert "photographs" in completed("search", "Hund", "--run", "")


def test_bash_completes(tmp_path):
    script = lab("completion", "bash").stdout
    ask = "COMP_WORDS=(dasd-lab train dasd.picto); COMP_CWORD=2; _dasd_lab; echo ${COMPREPLY[@]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True, env=os.environ | dict(PATH=path)
    )
    assert "dasd.pictograms" in result.stdout.split()


@pytest.mark.parametrize("changes", [{}, dict(languages=["fr"]), dict(corpus="flickr8k", languages=["de"])])
def test_weights_are_selected_on_what_the_run_is_about(monkeypatch, changes):
    from dasd_lab.commands import training
    from dasd_lab.evaluation import selection
    from dasd_lab.training import recipes

    asked = []
    monkeypatch.setattr(training, "open_corpus", lambda name: name)
    monkeypatch.setattr(selection, "figures_on", lambda corpus, languages: asked.append((corpus, languages)))
    monkeypatch.setattr(recipes, "train", lambda *given, **settings: None)
    training.TrainingCall("dasd.pictograms", Path("run"), changes=changes).train(dict(selection="mean_recall"))
    preset = recipes.load_preset("dasd.pictograms") | changes
    assert asked == [(preset["corpus"], preset["languages"])]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "dasd.pictograms", "--seed", "-1", "--dry-run"],
            'Invalid value "-1" for --seed. Must be >= 0.',
        ),
        (["figure", "3", "--seed", "-1"], 'Invalid value "-1" for --seed. Must be >= 0.'),
        (["table", "4", "--seeds", "0,-2"], "for --seeds. Must be >= 0."),
        (["gallery", "import", ".", "--gallery", "g", "--column", "year"], "'year': name=value is expected"),
    ],
)
def test_what_is_written_wrongly_is_named_and_ends_with_2(words, said):
    done = lab(*words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "dasd.pictograms", "--dry-run", "--machine", "colour=1"], "'colour'"),
        (["train", "dasd.pictograms", "--resume", "nbs"], "--resume with --preset"),
        (["corpus", "check", "nowhere.tsv"], "nowhere.tsv: no such file"),
    ],
)
def test_other_mistakes_are_named(words, said):
    done = lab(*words)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


def test_a_language_that_the_corpus_lacks_is_refused_before_a_model_is_loaded():
    result = said("evaluate", "pictograms", "--languages", "finnish,de")
    assert result.returncode == 1 and "pictograms in ['fi']. Expected languages of" in result.stderr, result.stderr
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_a_language_that_the_run_cannot_read_is_refused_before_it_is_loaded():
    result = said("evaluate", "photographs", "--corpus", "pictograms", "--languages", "ja")
    assert result.returncode == 1 and "photographs for captions in 'ja'. Expected one of" in result.stderr, (
        result.stderr
    )
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


@pytest.mark.parametrize("query", ["கருப்பு நாய்", "כלב שחור"])
def test_a_query_in_letters_of_no_language_of_the_model_is_said_to_be_so(gallery, query):
    said = lab("search", query, "--gallery", gallery).stderr
    assert "no language of this model is written in these letters; name its language: --language CODE" in said
    assert "in these letters" not in lab("search", "ein Hund", "--gallery", gallery).stderr
    named = lab("search", query, "--language", "tamil", "--gallery", gallery)
    assert named.returncode == 1 and "--run photographs, which reads it" in named.stderr


def test_serve_refuses_a_port_in_use_and_a_wrong_proxy_before_it_loads_a_model(tmp_path):
    import socket

    (tmp_path / "gallery.json").write_text(json.dumps(RECORD))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        in_use = said("serve", tmp_path, "--port", taken.getsockname()[1])
    proxy = said("serve", tmp_path, "--port", 0, "--proxy", "nginx")
    for result, message in ((in_use, "Expected a free port"), (proxy, "its IP address")):
        assert result.returncode == 1 and message in result.stderr, result.stderr
        assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_a_search_takes_a_gallery_or_a_corpus(gallery):
    done = lab("search", "a dog", "--gallery", gallery, "--corpus", "pictograms")
    assert done.returncode == 1 and "--gallery with --corpus" in done.stderr


def test_the_command_prints_warnings_without_their_place():
    words = ["search", "zwei Hunde " * 200, "--split", "nowhere"]
    command = [sys.executable, "-m", "dasd_lab.commands.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    first, *others = done.stderr.splitlines()
    assert first == "A query of 2,199 characters: only the first 1,000 are used."
    assert done.returncode == 1 and len(others) == 1 and "nowhere" in others[0]


def test_an_imported_corpus_is_opened_from_the_place_of_its_images(tmp_path, monkeypatch):
    from dasd_lab.corpora import catalog

    kept = tmp_path / "data"
    (kept / "mine/train").mkdir(parents=True)
    (kept / "mine/train.jsonl").write_text('{"image": "a.png", "captions": {"en": ["a dog"]}}\n')
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "data_root", lambda: kept)
    opened = []
    monkeypatch.setattr(catalog, "load_corpus", lambda form, root, name: opened.append((root, name)))
    catalog.corpus_named("mine")
    assert opened == [(kept / "mine", "mine")]


@pytest.mark.parametrize("reads", [True, False])
def test_the_built_in_gallery_has_descriptions_for_methods_that_read_them(monkeypatch, tmp_path, reads):
    from dasd_lab.commands import galleries

    added = []
    gallery = mock.Mock(reads_descriptions=reads, add=lambda visuals, **given: added.append(given["descriptions"]))
    corpus = mock.Mock(descriptions=lambda split: [f"described {split}"])
    monkeypatch.setattr(galleries, "open_corpus", lambda: corpus)
    monkeypatch.setattr(galleries, "open_gallery", lambda *given, **more: gallery)
    galleries.built_in_gallery(tmp_path)
    assert added == [["described test"] if reads else None]


def test_kept_embeddings_belong_to_the_settings_of_the_image_tower():
    from types import SimpleNamespace

    from dasd_lab.search.gallery.views import _kept_in

    images = SimpleNamespace(ids=["a"])
    corpus = SimpleNamespace(name="c", visuals=lambda split: images, pictures_stamp=lambda split: "stamp")

    def file(**settings):
        side = SimpleNamespace(noted_fingerprint="same", name="tower", **settings)
        return _kept_in(SimpleNamespace(read_columns=(), visual_side=side, describer=None), corpus, "test")

    usual = dict(config=dict(quick_gelu=True), preprocessing=dict(size=224))
    others = dict(config=dict(quick_gelu=False)), dict(preprocessing=dict(size=336))
    assert file(**usual) == file(**usual)
    assert len({file(**usual), *(file(**usual | other) for other in others)}) == 3
