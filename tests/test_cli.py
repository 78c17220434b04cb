"The command as a shell sees it: what goes to which stream, exit codes, interruptions"

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from dasd_lab.cli import main

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).parent / "dasd-lab")


def shell(*words) -> subprocess.CompletedProcess:
    "As a process of its own, which takes seconds to load torch"
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL
    )


def lab(*words) -> subprocess.CompletedProcess:
    "The same words in this process"
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([*map(str, words)])
        except SystemExit as e:
            code = e.code or 0
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    "A corpus of two pictures in a folder with spaces"
    folder = tmp_path_factory.mktemp("my pictures")
    (folder / "test").mkdir()
    rows = []
    for name, en, de in (("red", "a red field", "ein rotes Feld"), ("blue", "a blue field", "ein blaues Feld")):
        Image.new("RGB", (64, 64), name).save(folder / f"test/{name}.png")
        rows += [
            dict(text=en, language="en", visual_id=f"{name}.png"),
            dict(text=de, language="de", visual_id=f"{name}.png"),
        ]
    from dasd_lab.corpora.visuals import visuals_from_folder

    ids = {i.split(".")[0]: i for i in visuals_from_folder(folder / "test").ids}
    for r in rows:
        r["visual_id"] = ids[r["visual_id"].split(".")[0]]
    (folder / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


def test_help_does_not_wait_for_torch():
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", 'from dasd_lab.cli import main; main(["--help"])'],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (
        told.returncode == 0
        and "dasd_lab" in told.stderr
        and not any(
            line.split("|")[-1].strip() in ("torch", "transformers", "numpy") for line in told.stderr.splitlines()
        )
    )
    for command in ("corpus", "train", "evaluate", "features", "search", "lab", "demo"):
        assert command in told.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["corpus", "build"],
        ["corpus", "info"],
        ["train"],
        ["evaluate"],
        ["features"],
        ["import-official"],
        ["export-official"],
        ["publish"],
        ["search"],
        ["lab"],
        ["demo"],
    ],
    ids=" ".join,
)
def test_every_command_has_help(words):
    shown = lab(*words, "--help")
    assert shown.returncode == 0 and shown.stdout.startswith(f"usage: dasd-lab {' '.join(words)}")


@pytest.mark.parametrize(
    "words",
    [[], ["fly"], ["corpus"], ["search"], ["search", "-k", "many", "a dog"], ["corpus", "info", "--colour"]],
    ids=" ".join,
)
def test_words_that_cannot_be_read(words, lab=lab):
    told = lab(*words)
    assert (
        told.returncode == 2
        and told.stdout == ""
        and "usage: dasd-lab" in told.stderr
        and "Traceback" not in told.stderr
    )


@pytest.mark.parametrize(
    "words",
    [
        ["corpus", "info", "--corpus", "no such folder"],
        ["evaluate", "no such run", "--corpus"],
        ["train", "no-such-preset", "--corpus"],
        ["search", "a dog", "--run", "no such run", "--pictures"],
    ],
    ids=lambda w: w[0],
)
def test_an_error_is_one_line(words, own, lab=lab):
    told = lab(*words, *([own / "test" if words[-1] == "--pictures" else own] if words[-1].startswith("--") else []))
    assert told.returncode == 1 and told.stdout == "", told.stderr
    assert told.stderr.startswith("dasd-lab: ") and told.stderr.count("\n") == 1 and "Expected" in told.stderr


def test_so_it_is_for_a_shell(own):
    test_an_error_is_one_line(["evaluate", "no such run", "--corpus"], own, shell)
    test_words_that_cannot_be_read(["fly"], shell)
    done = shell("corpus", "info", "--corpus", own)
    assert done.returncode == 0 and done.stderr == "" and done.stdout == lab("corpus", "info", "--corpus", own).stdout


def test_a_table_for_people_and_for_programs(own):
    table = lab("corpus", "info", "--corpus", own)
    data = lab("corpus", "info", "--corpus", own, "--json")
    assert table.returncode == data.returncode == 0, table.stderr + data.stderr
    assert table.stdout.splitlines()[0].split() == ["split", "pictures", "language", "origin", "captions"]
    rows = json.loads(data.stdout)["rows"]
    assert [(r["language"], r["captions"], r["pictures"]) for r in rows] == [("en", 2, 2), ("de", 2, 2)]


def test_a_closed_pipe_is_no_error(own):
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$0" corpus info --corpus "$1" --json | true', COMMAND, own],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_build_leaves_nothing(tmp_path):
    "Progress goes to standard error; Ctrl-C ends with 130 and no half-written folder"
    # a shell's background job would hand down that it is ignored
    child = subprocess.Popen(
        [COMMAND, "corpus", "build", "--folder", tmp_path / "corpus"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    seen = b""
    os.set_blocking(child.stderr.fileno(), False)
    until = time.monotonic() + 600
    while b"train scenes" not in seen and time.monotonic() < until and child.poll() is None:
        seen += child.stderr.read() or b""
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130 and out == b"" and b"Traceback" not in err, err[-2000:]
    assert b"train scenes" in seen and err.rstrip().endswith(b"interrupted")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


COLOURS = dict(
    red=("rotes", (220, 40, 40)),
    blue=("blaues", (40, 60, 220)),
    green=("grünes", (40, 160, 60)),
    yellow=("gelbes", (240, 220, 60)),
)


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    "Plain squares in four colours as a corpus of files, and a preset small enough to train while you wait"
    home = tmp_path_factory.mktemp("squares")
    for split, origin in (("train", "mt"), ("test", "human")):
        folder = home / "corpus" / split
        folder.mkdir(parents=True)
        rows = []
        for i, (en, (de, rgb)) in enumerate([*COLOURS.items()] * (8 if split == "train" else 1)):
            Image.new("RGB", (16, 16), rgb).save(folder / f"{i:02d}.png")
            rows += [
                dict(text=f"a {en} square.", language="en", visual_id=f"{i:02d}.png", origin="human"),
                dict(text=f"ein {de} Quadrat.", language="de", visual_id=f"{i:02d}.png", origin=origin),
            ]
        from dasd_lab.corpora.visuals import visuals_from_folder

        named = {Path(v).stem: v for v in visuals_from_folder(folder).ids}
        for r in rows:
            r["visual_id"] = named[Path(r["visual_id"]).stem]
        (home / f"corpus/{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def phase(reading, trains):
        return dict(name=reading, reading=reading, trains=trains, steps=40, batch_size=16, learning_rate=5e-3)

    source = dict(
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
    (home / "source.json").write_text(json.dumps(source))

    def stage(name, steps, size, term):
        return dict(
            name=name,
            steps=steps,
            batch_size=size,
            learning_rate=5e-3,
            trains=["token_vectors", "adapters"],
            terms=[term],
        )

    preset = dict(
        corpus="pictograms",
        source_model=str(home / "source.json"),
        languages=["de"],
        vocab_size=100,
        method="static_adapter",
        config=dict(token_width=16, adapter=dict(bottleneck=4, generated=False)),
        stages=[
            stage("cross_lingual_alignment", 60, 16, dict(loss="alignment")),
            stage("cross_modal_alignment", 10, 4, dict(loss="contrastive", options=dict(temperature=0.1))),
        ],
    )
    (home / "tiny.json").write_text(json.dumps(preset))
    return home


def test_train_evaluate_search(squares):
    "The whole job on a corpus of one's own: a German query finds the square of its colour"
    run = squares / "my run"
    trained = lab(
        "train",
        squares / "tiny.json",
        "--corpus",
        squares / "corpus",
        "--out",
        run,
        "--set",
        "config.adapter.bottleneck=6",
    )
    assert trained.returncode == 0 and trained.stdout.strip() == str(run), trained.stderr
    assert json.loads((run / "card.json").read_text())["changes"] == {"config.adapter.bottleneck": 6}
    again = lab("train", squares / "tiny.json", "--corpus", squares / "corpus", "--out", run)
    assert again.returncode == 1 and "holds a finished run" in again.stderr

    results = lab("evaluate", run, "--corpus", squares / "corpus", "--json", "--csv", squares / "out.csv")
    assert results.returncode == 0, results.stderr
    rows = {r["language"]: r for r in json.loads(results.stdout)["rows"]}
    assert rows["de"]["text_to_image_R@1"] == rows["mean"]["text_to_image_R@1"] == 1
    assert (squares / "out.csv").read_text().splitlines()[1].startswith("de,")

    found = lab(
        "search",
        "ein grünes",
        "Quadrat.",
        "--language",
        "de",
        "-k",
        "2",
        "--run",
        run,
        "--pictures",
        squares / "corpus/test",
        "--save",
        squares / "gallery",
        "--page",
        squares / "page.html",
        "--json",
    )
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert (said["query"], said["language"], said["recognised"]) == ("ein grünes Quadrat.", "de", False)
    assert len(said["rows"]) == 2 and said["rows"][0]["rank"] == 1 and said["rows"][0]["picture"].startswith("02")
    assert (
        "ein grünes Quadrat." in (squares / "page.html").read_text()
        and "data:image" in (squares / "page.html").read_text()
    )
    kept = lab(
        "search",
        "ein grünes Quadrat.",
        "--language",
        "de",
        "-k",
        "2",
        "--run",
        run,
        "--gallery",
        squares / "gallery",
        "--json",
    )
    assert json.loads(kept.stdout)["rows"] == said["rows"]

    for words, told in (
        (["ein Hund", "--language", "fi"], "'fi'"),
        ([" "], "an empty query"),
        (["ein Hund", "-k", "0"], "k=0"),
    ):
        refused = lab("search", *words, "--run", run, "--gallery", squares / "gallery")
        assert refused.returncode == 1 and told in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
