"The command line: streams and exit codes"

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dasd_lab.commands.cli import COMMANDS, command_line, main

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).parent / "dasd-lab")


def shell(*words) -> subprocess.CompletedProcess:
    "Run the command in a process of its own, which takes seconds to load torch"
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT, stdin=subprocess.DEVNULL
    )


def lab(*words) -> subprocess.CompletedProcess:
    "Run the command in this process"
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([*map(str, words)])
        except SystemExit as e:
            code = e.code or 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["gallery", "import", "--help"]], ids=" ".join)
def test_help_does_not_import_torch(words):
    command = [sys.executable, "-X", "importtime", "-m", "dasd_lab.commands.cli", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    modules = {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
    assert "dasd_lab" in modules and not modules & {"torch", "transformers", "open_clip", "numpy"}
    assert result.stdout.startswith("Usage: dasd-lab")


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_every_option_has_help(words):
    result = lab(*words.split(), "--help")
    assert result.returncode == 0 and result.stdout.startswith(f"Usage: dasd-lab {words}")
    *groups, name = words.split()
    app = command_line()[groups[0]][name] if groups else command_line()[name]
    for argument in app.assemble_argument_collection():
        assert argument.parameter.help, f"{words}: {argument.name}"


@pytest.mark.parametrize(
    "words",
    [
        ["fly"],
        ["search"],
        ["search", "-k", "many", "a dog"],
        ["corpus", "info", "--colour"],
        ["speed", "--sizes", "8,many"],
        ["speed", "--set", "bottleneck"],
        ["search", "Hund", "-k", "0"],
        ["search", "Hund", "--skip", "-3"],
        ["serve", "--port", "99999"],
        ["gallery", "duplicates", "--cosine", "7"],
    ],
    ids=" ".join,
)
def test_invalid_arguments(words):
    result = lab(*words)
    assert result.returncode == 2 and result.stdout == ""
    assert "--help`" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["corpus", "info", "--corpus", "no such folder"],
        ["evaluate", "no such run", "--corpus"],
        ["train", "no-such-preset", "--corpus"],
        ["search", "a dog", "--run", "no such run", "--pictures"],
        ["train", "--resume", "nbs", "--seed", "3"],
        ["search", "a dog", "--skip", "3"],
    ],
    ids=" ".join,
)
def test_an_error_is_one_line(words, squares):
    last = {"--corpus": [squares / "corpus"], "--pictures": [squares / "corpus/test"]}.get(words[-1], [])
    result = lab(*words, *last)
    assert result.returncode == 1 and result.stdout == "", result.stderr
    assert result.stderr.startswith("dasd-lab: ") and result.stderr.count("\n") == 1 and "Expected" in result.stderr


def test_tables_are_text_or_json_also_of_the_installed_command(squares):
    corpus = squares / "corpus"
    table = shell("corpus", "info", "--corpus", corpus)
    data = lab("corpus", "info", "--corpus", corpus, "--json")
    assert table.returncode == data.returncode == 0 and table.stderr == "", table.stderr + data.stderr
    assert table.stdout.splitlines()[0].split() == ["split", "pictures", "language", "origin", "captions"]
    rows = json.loads(data.stdout)["rows"]
    assert ("test", "en", 4, 4) in {(r["split"], r["language"], r["captions"], r["pictures"]) for r in rows}


def test_a_closed_pipe_is_no_error(squares):
    result = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" corpus info --corpus "$1" --json | true', COMMAND, squares / "corpus"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and result.stderr == "", result.stderr


COLOURS = dict(
    red=("rotes", (220, 40, 40)),
    blue=("blaues", (40, 60, 220)),
    green=("grünes", (40, 160, 60)),
    yellow=("gelbes", (240, 220, 60)),
)


def write_squares(folder: Path, repeats: int, origin: str) -> None:
    "Write plain squares in four colours with captions, as a split of a corpus"
    folder.mkdir(parents=True)
    squares = [(colour, *facts) for colour, facts in COLOURS.items()] * repeats
    for i, (_, _, rgb) in enumerate(squares):
        Image.new("RGB", (16, 16), rgb).save(folder / f"{i:02d}.png")
    rows = []
    for i, (en, de, _) in enumerate(squares):
        rows.append(dict(text=f"a {en} square.", language="en", visual_id=f"{i:02d}", origin="human"))
        rows.append(dict(text=f"ein {de} Quadrat.", language="de", visual_id=f"{i:02d}", origin=origin))
    folder.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def tiny_source() -> dict:
    "Preset of a source model"

    def phase(reading, trains):
        return dict(name=reading, reading=reading, trains=trains, steps=40, batch_size=16, learning_rate=5e-3)

    return dict(
        name="tiny",
        vocab_size=80,
        phases=[phase("words", ["visual", "text"]), phase("sentences", ["text"])],
        model_cfg=dict(
            embed_dim=16,
            quick_gelu=True,
            vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
            text_cfg=dict(context_length=12, width=32, heads=2, layers=2),
        ),
    )


def tiny_preset(source: Path) -> dict:
    "Preset of a method that trains in seconds"

    def stage(name, steps, size, term):
        return dict(
            name=name,
            steps=steps,
            batch_size=size,
            learning_rate=5e-3,
            trains=["token_vectors", "adapters"],
            terms=[term],
        )

    return dict(
        corpus="pictograms",
        source_model=str(source),
        languages=["de"],
        vocab_size=100,
        method="static_adapter",
        config=dict(token_width=16, adapter=dict(bottleneck=4, generated=False)),
        stages=[
            stage("cross_lingual_alignment", 60, 16, dict(loss="alignment")),
            stage("cross_modal_alignment", 10, 4, dict(loss="contrastive", options=dict(temperature=0.1))),
        ],
    )


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    "A corpus of files, and a preset that trains in seconds"
    home = tmp_path_factory.mktemp("squares")
    write_squares(home / "corpus/train", 8, "mt")
    write_squares(home / "corpus/test", 1, "human")
    (home / "source.json").write_text(json.dumps(tiny_source()))
    (home / "tiny.json").write_text(json.dumps(tiny_preset(home / "source.json")))
    return home


@pytest.fixture(scope="session")
def run(squares):
    "A run trained by the command"
    run = squares / "my run"
    corpus = squares / "corpus"
    change = "config.adapter.bottleneck=6"
    result = lab("train", squares / "tiny.json", "--corpus", corpus, "--out", run, "--set", change)
    assert result.returncode == 0 and result.stdout.strip() == str(run), result.stderr
    return run


@pytest.mark.parametrize("words", ["--help", "--version", "gallery --help"])
def test_a_full_device_is_an_error(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "No space left" in done.stderr


def test_train_and_evaluate(squares, run):
    assert json.loads((run / "card.json").read_text())["changes"] == {"config.adapter.bottleneck": 6}
    again = lab("train", squares / "tiny.json", "--corpus", squares / "corpus", "--out", run)
    assert again.returncode == 1 and "holds a finished run" in again.stderr
    result = lab("evaluate", run, "--corpus", squares / "corpus", "--json")
    rows = {r["language"]: r for r in json.loads(result.stdout)["rows"]}
    assert rows["de"]["text_to_image_R@1"] == rows["mean"]["text_to_image_R@1"] == 1


def test_search(squares, run):
    "A German query finds the square of its colour, in a folder of images and in a gallery on disk"
    query = ["--language", "de", "-k", "2", "--run", run, "--json"]
    gallery = squares / "gallery"
    page = squares / "page.html"
    images = ["--pictures", squares / "corpus/test", "--page", page]
    result = lab("search", "ein grünes", "Quadrat.", *query, *images)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["query"], found["language"], found["recognised"]) == ("ein grünes Quadrat.", "de", False)
    assert len(found["rows"]) == 2 and found["rows"][0]["rank"] == 1 and found["rows"][0]["picture"].startswith("02")
    assert "ein grünes Quadrat." in page.read_text() and "data:image" in page.read_text()
    assert lab("gallery", "import", squares / "corpus/test", "--gallery", gallery, "--run", run).returncode == 0
    saved = lab("search", "ein grünes Quadrat.", *query, "--gallery", gallery)
    there = json.loads(saved.stdout)["rows"]
    assert [row["picture"] for row in there] == [row["picture"] for row in found["rows"]]


LAB = """
import sys
from dasd_lab.commands.cli import main
from dasd_lab.explore.host import lab
lab.serve_lab = lambda *arguments: print("starts")
assert main(["lab"]) == 0
print("heavy", sorted({"torch", "transformers", "plotly"} & set(sys.modules)))
"""


def test_jupyterlab_starts_without_torch(tmp_path):
    "Where nothing is compiled yet, that would take a quarter of a minute"
    environment = os.environ | dict(DASD_LAB_HOME=str(tmp_path), DASD_LAB_DATA=str(ROOT / "data"))
    done = subprocess.run(
        [sys.executable, "-c", LAB], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.stdout.splitlines() == ["starts", "heavy []"], done.stdout + done.stderr


def test_evaluate_on_labels(tmp_path):
    for label, name in dict(dog="german_shepherd", castle="castle").items():
        (tmp_path / label).mkdir()
        shutil.copy(ROOT / "data" / "everyday" / "test" / f"{name}.webp", tmp_path / label)
    figure = tmp_path / "confusion.html"
    given = "--pictures", tmp_path, "--languages", "de", "--json"
    rows = json.loads(lab("evaluate", "--task", "labels", *given).stdout)["rows"]
    assert {row["query"]: row["average_precision"] for row in rows} == {"Hund": 1.0, "Schloss": 1.0}
    row = json.loads(lab("evaluate", "--task", "zero-shot", "--figure", figure, *given).stdout)["rows"][0]
    assert (row["classes"], row["accuracy"]) == (2, 1.0) and "Every picture is classified right" in figure.read_text()
    refused = {
        "--pictures without a task": ["--pictures", tmp_path],
        "--corpus with --task": ["--task", "labels", "--corpus", "pictograms"],
        "one figure for 2 languages": ["--task", "zero-shot", "--languages", "de,fr", "--figure", figure],
    }
    assert [said for said, words in refused.items() if said not in lab("evaluate", *words).stderr] == []
    message = lab("evaluate", "--task", "labels", "--pictures", tmp_path / "dog").stderr
    assert "without pictures. Expected a folder for each label" in message
