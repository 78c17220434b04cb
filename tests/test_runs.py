"Run folders: a run resumes from its folder alone, the same seed gives the same bits, and runs are listed"

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import RLock

import pytest
import torch
from squares import SOURCE, TINY, Squares
from test_processes import PROCESSES
from tqdm import tqdm

from dasd_lab.commands.cli import main
from dasd_lab.runs.loading import load_run
from dasd_lab.training.checkpoints import Selection, checkpoints
from dasd_lab.training.logging import read_progress
from dasd_lab.training.recipes import resume, train
from dasd_lab.training.runs import Keeping, Stopped
from dasd_lab.training.runtime import Runtime
from dasd_lab.training.source_model import train_source

SMALL = ["--languages", "it", "--set", "stages.0.steps=40", "--set", "stages.1.steps=10", "--set", "vocab_size=300"]


@pytest.fixture
def captions(tmp_path):
    "Two hundred English sentences of the corpus with Italian ones"
    nouns = [("dog", "cane"), ("cat", "gatto"), ("tree", "albero"), ("boat", "barca"), ("house", "casa")]
    places = [("beach", "spiaggia"), ("river", "fiume"), ("road", "strada"), ("hill", "collina")]
    rows = [
        f"a {e} and {n} {f} on the {p}.\til {i} e {n} {g} su {q}."
        for n in range(10)
        for e, i in nouns
        for (f, g), (p, q) in zip(nouns, places)
    ]
    path = tmp_path / "it.tsv"
    path.write_text("en\tit\n" + "\n".join(rows) + "\n")
    return path


def bits(run: Path):
    return (run / "method/model.safetensors").read_bytes(), list((run / "log.jsonl").read_text().splitlines())


def run_command(words, log: Path, threads: int):
    "The command `dasd-lab`, as the rest of a forked process"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.setsid()
    torch.set_num_threads(threads)
    tqdm.set_lock(RLock())  # its own is a semaphore, which stays where a process is killed
    sys.exit(main(words))


def stopped_in_the_middle(arguments, out: Path) -> int | None:
    "Exit code of a training by the command, asked to stop after some steps"
    words = ["train", *arguments, "--out", str(out)]
    p = PROCESSES.Process(target=run_command, args=(words, os.devnull, torch.get_num_threads()))
    p.start()
    until = time.monotonic() + 120
    while p.is_alive() and time.monotonic() < until:
        progress = read_progress(out)
        if progress and progress["step"] >= 12:
            break
        time.sleep(0.01)
    p.terminate()
    p.join(60)
    return p.exitcode


def test_a_stopped_run_goes_on_from_its_name_alone(captions, tmp_path, capsys):
    words = [
        "dasd.new_language",
        "--captions",
        str(captions),
        *SMALL,
        "--seed",
        "5",
        "--checkpoint-every",
        "20",
        "--select",
        "text_to_image_R@5",
        "--select-every",
        "10",
    ]
    assert stopped_in_the_middle(words, tmp_path / "stopped") == 130
    assert (
        checkpoints(tmp_path / "stopped")
        and "To resume: `dasd-lab train --resume" in (tmp_path / "stopped/README.md").read_text()
    )
    captions.rename(tmp_path / "moved.tsv")  # the run folder has its own copy
    assert main(["train", "--resume", str(tmp_path / "stopped")]) == 0
    (tmp_path / "moved.tsv").rename(captions)
    assert main(["train", *words, "--out", str(tmp_path / "straight")]) == 0
    assert bits(tmp_path / "stopped") == bits(tmp_path / "straight")
    card, record = (json.loads((tmp_path / "stopped" / n).read_text()) for n in ("card.json", "run.json"))
    assert (
        len(record["attempts"]) == 2
        and card["preset"] == "dasd.new_language"
        and record["settings"]["stages"][0]["steps"] == 40
    )
    assert list(card["stages"]) == ["cross_lingual_alignment"]  # the other stage needs images
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "stopped")]) == 1 and "finished run" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert listed.count("finished") == 2 and "100 %" in listed
    assert main(["runs", str(tmp_path / "stopped"), str(tmp_path / "straight"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(r["stopped"] == r["straight"] for r in rows) and any(r["setting"] == "last loss" for r in rows)
    assert main(["publish", str(tmp_path / "straight"), str(tmp_path / "shared")]) == 0
    assert "names no corpus" in capsys.readouterr().err
    assert (tmp_path / "shared/README.md").is_file()
    assert main(["doubt", "calibrate", str(tmp_path / "straight")]) == 1 and "--corpus" in capsys.readouterr().err


def test_a_run_on_a_corpus_goes_on_without_its_preset(backbone, tmp_path):
    from dasd_lab.corpora.catalog import CORPORA, register_corpus

    recalls = [dict(recall=value) for value in (0.1, 0.9, 0.2, *[0.0] * 9)]
    register_corpus("squares")(Squares)
    try:
        ends = iter(recalls)
        given = dict(backbone=backbone, seed=3, progress=False, selection=Selection("recall", every=10))
        train(TINY, "squares", out=tmp_path / "straight", validate=lambda m: next(ends), **given)
        again = iter(recalls)

        def figures(m):
            if not checkpoints(tmp_path / "run"):
                signal.raise_signal(signal.SIGTERM)
            return next(again)

        with pytest.raises(Stopped):
            train(TINY, "squares", out=tmp_path / "run", validate=figures, **given)
        resume(tmp_path / "run", validate=figures, progress=False)
    finally:
        del CORPORA["squares"]
    assert bits(tmp_path / "run") == bits(tmp_path / "straight")


def train_deterministically(out: Path, backbone: Path, threads: int):
    torch.set_num_threads(threads)
    runtime = Runtime(deterministic=True)
    train(TINY, Squares(), out=out, backbone=backbone, seed=3, progress=False, runtime=runtime)


@pytest.mark.parametrize(
    "threads",
    [
        1,
        pytest.param(
            2,
            marks=pytest.mark.skipif(
                "SOAK" not in os.environ, reason="only in make soak: two threads wait for each other on a busy machine"
            ),
        ),
    ],
)
def test_the_same_seed_gives_the_same_bits_on_any_day(backbone, tmp_path, threads):
    "Deterministic mode, here and in another process with as many threads"
    from dasd_lab.backbone.towers import save_backbone

    save_backbone(backbone, tmp_path / "backbone")
    p = PROCESSES.Process(target=train_deterministically, args=(tmp_path / "a", tmp_path / "backbone", threads))
    p.start()
    before = torch.get_num_threads()
    try:
        train_deterministically(tmp_path / "b", tmp_path / "backbone", threads)
    finally:
        torch.set_num_threads(before)
    p.join()
    assert p.exitcode == 0
    assert bits(tmp_path / "a") == bits(tmp_path / "b")


@pytest.mark.parametrize(
    "runtime",
    [Runtime(precision="bf16"), Runtime(length_step=8), Runtime(workers=1)],
    ids=["bf16", "padded", "batches made ahead"],
)
def test_runtimes_learn_the_same(backbone, runtime):
    "bfloat16 is close; padded rows and batches made ahead give the same up to rounding"
    usual, other = (
        train(TINY, Squares(), backbone=backbone, seed=3, progress=False, runtime=m) for m in (Runtime(), runtime)
    )
    first, last = ([r["alignment"] for r in run.log if "alignment" in r] for run in (usual, other))
    near = 0.15 if runtime.precision == "bf16" else 1e-3
    assert all(b == pytest.approx(a, rel=near) for a, b in zip(first, last)) and last[-1] < 0.7 * last[0]
    assert {p.dtype for p in other.method.parameters()} == {p.dtype for p in usual.method.parameters()}
    if runtime.workers:
        assert all(a.equal(b) for a, b in zip(usual.method.parameters(), other.method.parameters()))


def test_an_existing_folder_is_refused_for_other_settings(backbone, tmp_path):
    "Also if it was stopped before its first checkpoint: its backbone has been saved"
    from dasd_lab.base.contracts import LabError

    class Enough(Exception):
        pass

    def stop(m):
        raise Enough

    given = dict(
        out=tmp_path / "run", progress=False, validate=stop, selection=Selection("recall", every=2), keeping=Keeping(0)
    )
    with pytest.raises(Enough):
        train(TINY, Squares(), backbone=backbone, seed=3, **given)
    assert not checkpoints(tmp_path / "run") and "ended early" in (tmp_path / "run/README.md").read_text()
    other = train_source(SOURCE, Squares(), seed=9, progress=False)
    for wrong, why in (
        (dict(backbone=other, seed=3), "another backbone"),
        (dict(backbone=backbone, seed=4), "other seed"),
        (dict(backbone=backbone, seed=3, changes={"stages.0.batch_size": 8}), "other stages"),
        (dict(backbone=backbone, seed=3, languages=["de", "fr"]), "other"),
    ):
        with pytest.raises(LabError, match=why):
            train(TINY, Squares(), **given | wrong)
    ends = iter(range(99))
    run = train(TINY, Squares(), seed=3, **given | dict(validate=lambda m: dict(recall=float(next(ends)))))
    assert (
        load_run(tmp_path / "run").languages == ("de",)
        and len(json.loads((tmp_path / "run/run.json").read_text())["attempts"]) == 2
        and run.log
    )
