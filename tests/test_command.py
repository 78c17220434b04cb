"The command line for somebody who mistypes: errors at once, suggestions, quoting, completion"

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from test_cli import ROOT, lab

from dasd_lab.base.foundation import progress_bar

RUN = """import sys
from dasd_lab.commands.cli import main
code = main(sys.argv[1:])
print("torch" in sys.modules)
sys.exit(code)"""


def said(*words) -> subprocess.CompletedProcess:
    "A command in a process of its own, which prints at the end whether torch was loaded"
    command = [sys.executable, "-c", RUN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


MISTYPED = {  # words → exit code, and the name that is suggested
    "train dasd.pictogram": (1, "dasd.pictograms"),
    "train --resume runs/none": (2, ""),
    "evaluate photograph": (1, "photographs"),
    "evaluate --corpus multi3k": (1, "multi30k"),
    "evaluate --languages germn": (1, "german"),
    "evaluate --languages finnish,de": (1, ""),
    "evaluate photographs --corpus pictograms --languages ja": (1, ""),
    "search Hund --language xx": (1, ""),
    "search Hund --language uk --run pictograms": (1, ""),
    "search Hund --run pictogram": (1, "pictograms"),
    "search Hund --split tests": (1, "test"),
    "search Hund --run photographs --corpus multi30k": (1, ""),
    "evaluate --corpus multi30k": (1, ""),
    "consistency --corpus multi30k": (1, ""),
    "lab --notebooks nowhere": (1, ""),
    "search Hund --backbone clip-vit-b-61": (1, "clip-vit-b-16"),
    "gallery info nowhere": (1, ""),
    "serve --gallery nowhere": (1, ""),
    "gallery import nowhere --gallery x": (2, ""),
    "weights get siglip-vit-b-1": (1, "siglip-vit-b-16"),
    "runs nowhere": (2, ""),
    "table 1 --preset dasd.papr": (1, "dasd.paper"),
    "describe pictogram": (1, "pictograms"),
    "translate --to germn --engine apertium": (1, "german"),
}

EMBEDDING = dict(method="dasd", run="pictograms", width=64, more={}, descriptions=False)
RECORD = dict(  # of a gallery on disk that the model for pictograms embedded
    kind="stored gallery", version=1, engine="LanceEngine", columns={}, ways=dict(first=EMBEDDING)
)


@pytest.mark.parametrize("words", MISTYPED)
def test_a_mistake_is_reported_before_anything_is_loaded(words):
    result = said(*words.split())
    code, suggested = MISTYPED[words]
    assert result.returncode == code and "Traceback" not in result.stderr, result.stderr
    assert not suggested or f"Did you mean {suggested}?" in result.stderr
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


@pytest.mark.parametrize(
    "words,message",
    [
        (["search", "\u200b", "--gallery"], "an empty query. Expected some words."),
        (["search", " \n\t", "--pictures"], "an empty query. Expected some words."),
        (["search", "pes", "--language", "slovak", "--gallery"], "--run photographs"),
        (["serve", "--port", "0", "--proxy", "nginx", "--gallery"], "its IP address"),
    ],
)
def test_a_mistake_about_a_folder_is_reported_before_anything_is_loaded(words, message, tmp_path):
    (tmp_path / "gallery.json").write_text(json.dumps(RECORD))
    result = said(*words, tmp_path)
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert result.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_train_without_a_preset_shows_the_plan_and_starts_nothing(tmp_path):
    result = lab("train", "--out", tmp_path / "run")
    assert result.returncode == 1
    assert result.stdout.startswith("dasd.pictograms: dasd for ")
    assert "Time: `dasd-lab speed` measures it" in result.stdout
    assert "dasd-lab train dasd.pictograms" in result.stderr and "--yes" in result.stderr
    assert not (tmp_path / "run").exists()


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


def test_completion_knows_names():
    assert "dasd.pictograms" in lab("__complete", "train", "dasd.").stdout.split()
    assert "multi30k_both" in lab("__complete", "evaluate", "pictograms", "--corpus", "").stdout.split()


def test_bash_completes(tmp_path):
    script = lab("completion", "bash").stdout
    ask = "COMP_WORDS=(dasd-lab train dasd.picto); COMP_CWORD=2; _dasd_lab; echo ${COMPREPLY[@]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True, env=os.environ | dict(PATH=path)
    )
    assert "dasd.pictograms" in result.stdout.split()


@pytest.mark.parametrize("changes", [{}, dict(corpus="flickr8k", languages=["de"])])
def test_weights_are_selected_on_what_the_run_is_about(monkeypatch, changes):
    from dasd_lab.commands import training
    from dasd_lab.evaluation import selection
    from dasd_lab.training import recipes

    asked = []
    monkeypatch.setattr(training, "open_corpus", lambda name: name)
    monkeypatch.setattr(selection, "figures_on", lambda corpus, languages: asked.append((corpus, languages)))
    monkeypatch.setattr(recipes, "train", lambda *given, **settings: None)
    training.train_on_corpus(dict(selection="mean_recall"), preset="dasd.pictograms", out=Path("run"), changes=changes)
    preset = recipes.load_preset("dasd.pictograms") | changes
    assert asked == [(preset["corpus"], preset["languages"])]


@pytest.mark.parametrize(
    "words,code,message",
    [
        (["train", "dasd.pictograms", "--seed", "-1", "--dry-run"], 2, 'Invalid value "-1" for --seed. Must be >= 0.'),
        (["table", "4", "--seeds", "0,-2"], 2, "for --seeds. Must be >= 0."),
        (["gallery", "import", ".", "--gallery", "g", "--column", "year"], 2, "'year': name=value is expected"),
        (["train", "dasd.pictograms", "--dry-run", "--machine", "colour=1"], 1, "'colour'"),
        (["train", "dasd.pictograms", "--resume", "nbs"], 1, "--resume with --preset"),
        (["corpus", "check", "nowhere.tsv"], 1, "nowhere.tsv: no such file"),
        (["search", "a dog", "--pictures", "nbs", "--corpus", "pictograms"], 1, "--pictures with --corpus"),
    ],
)
def test_what_is_written_wrongly_is_named(words, code, message):
    done = lab(*words)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_query_in_letters_of_no_language_of_the_model_is_said_to_be_so(gallery):
    said = lab("search", "கருப்பு நாய்", "--gallery", gallery).stderr
    assert "Tamil letters, which no model here reads" in said and "--language CODE" in said
    assert "in these letters" not in lab("search", "ein Hund", "--gallery", gallery).stderr


def test_serve_refuses_a_port_in_use_before_it_loads_a_model(tmp_path):
    import socket

    (tmp_path / "gallery.json").write_text(json.dumps(RECORD))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        in_use = said("serve", tmp_path, "--port", taken.getsockname()[1])
    assert in_use.returncode == 1 and "Expected a free port" in in_use.stderr, in_use.stderr
    assert in_use.stdout.splitlines()[-1] == "False", "torch was loaded"


def test_progress_in_a_log_is_told_by_lines(capsys):
    for _ in progress_bar(range(4), desc="scenes", mininterval=0, delay=1e-9):
        pass
    assert capsys.readouterr().err.splitlines()[:4] == ["scenes …", "scenes: 25%", "scenes: 50%", "scenes: 75%"]


def test_the_command_prints_warnings_without_their_place():
    words = ["search", "zwei Hunde " * 200, "--split", "nowhere"]
    command = [sys.executable, "-m", "dasd_lab.commands.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    first, *others = done.stderr.splitlines()
    assert first == "A query of 2,199 characters: only the first 1,000 are used."
    assert done.returncode == 1 and len(others) == 1 and "nowhere" in others[0]
