"A killed process leaves no helping processes; the next one removes its files, and no one else's"

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from squares import SOURCE, TINY, Squares
from test_processes import PROCESSES

from dasd_lab.base.presets import vary
from dasd_lab.base.storage import whole_file, whole_folder
from dasd_lab.pictograms.building import build_pictograms
from dasd_lab.pictograms.scenes import ScenesSpec
from dasd_lab.training.logging import claim

KILLS = int(os.environ.get("SOAK", "1"))
BUILD = """
import sys
from dasd_lab.pictograms.building import build_pictograms

build_pictograms(sys.argv[1], codes=["en"])
"""
SMALL = ScenesSpec(train=4, validation=2, test=2)


def litter(folder: Path) -> list[Path]:
    return [p for p in folder.glob(".*") if p.is_dir()]


def until(condition, seconds: float = 60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_build_after_a_killed_one_removes_its_folder(tmp_path, how):
    corpus = tmp_path / "corpus"
    p = subprocess.Popen([sys.executable, "-c", BUILD, str(corpus)], stderr=subprocess.DEVNULL)
    until(lambda: litter(corpus))
    os.kill(p.pid, how)
    p.wait()
    assert litter(corpus)
    build_pictograms(corpus, spec=SMALL, codes=["en"], progress=False)
    assert (corpus / "scenes/manifest.json").exists() and not litter(corpus)


def publish(run: Path, folder: Path, began: Path) -> None:
    from dasd_lab.runs.pretrained import Pretrained

    model = Pretrained.from_run(run)
    began.touch()
    model.save_pretrained(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_publishing_that_is_killed_leaves_a_whole_folder_or_none(tmp_path):
    "Half of the kills come at any moment, half while the folder is written"
    from dasd_lab.training.recipes import train
    from dasd_lab.training.source_model import train_source

    quick = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})
    backbone = train_source(vary(SOURCE, {"phases.0.steps": 2, "phases.1.steps": 2}), Squares(), progress=False)
    run = train(quick, Squares(), out=tmp_path / "run", backbone=backbone, progress=False).folder
    start = time.monotonic()
    publish(run, tmp_path / "straight/model", tmp_path / "began")
    took = time.monotonic() - start
    expected = contents(tmp_path / "straight/model")
    place = tmp_path / "published"
    rng = random.Random(time.time_ns())
    whole = inside = 0
    for kill in range(2 * KILLS):
        began = tmp_path / f"began {kill}"
        before = set(litter(place))
        p = PROCESSES.Process(target=publish, args=(run, place / "model", began))
        p.start()
        if kill % 2:
            until(began.exists)
        time.sleep(rng.uniform(0, took))
        p.kill()
        p.join()
        assert p.exitcode in (0, -signal.SIGKILL)
        inside += bool(set(litter(place)) - before)
        if (place / "model").exists():
            assert contents(place / "model") == expected
            (place / "model").rename(tmp_path / f"whole {kill}")
            whole += 1
    publish(run, place / "model", tmp_path / "last")
    assert contents(place / "model") == expected and [p.name for p in place.iterdir()] == ["model"]
    print(f"{2 * KILLS} kills, {inside} of them while it wrote, {whole} after it")
    assert KILLS < 20 or inside


def test_a_run_removes_what_it_was_writing_and_nothing_else(tmp_path):
    "Somebody may train into a folder with hidden files of his own"
    others = [
        tmp_path / name for name in (".pre-commit-config.yaml", ".a-settings/x", ".b-in-writing-notes.txt", ".c-old")
    ]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_text("kept")
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "order.json") as file:
        file.write_text("half")
        (tmp_path / f".order.json-in-writing-{'0' * 8}").write_text("half")  # of a process that was killed
        raise KeyboardInterrupt
    abandoned = tmp_path / f".checkpoint-in-writing-{'a' * 8}"
    abandoned.mkdir()
    with claim(tmp_path):
        pass
    assert not abandoned.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted({o.relative_to(tmp_path).parts[0] for o in others})
    assert all(other.read_text() == "kept" for other in others)


def test_an_interrupt_between_the_two_renames_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    with whole_folder(folder) as fresh:
        (fresh / "x").write_text("first")
    renames = []

    def interrupted(source, target, real=os.replace):
        renames.append(Path(target).name)
        if len(renames) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_folder(folder) as fresh:
        (fresh / "x").write_text("second")
    assert renames == [".a-old", "a", "a"], "set aside, interrupted, put back"
    assert (folder / "x").read_text() == "first" and [p.name for p in tmp_path.iterdir()] == ["a"]
