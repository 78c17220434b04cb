"""A run that is killed repeatedly at random points ends with the same bits as an uninterrupted one

Also a real disk that fills up, where mounting one is allowed. The usual tests kill a run three times; `make soak`
(SOAK=20) twenty times, some of them during a save, and one of two processes."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from squares import SOURCE, TINY, Squares
from test_processes import PROCESSES

from dasd_lab.base.contracts import LabError
from dasd_lab.training.checkpoints import checkpoints
from dasd_lab.training.logging import read_progress

KILLS = int(os.environ.get("SOAK", "3"))
STEPS = (240, 160) if KILLS >= 20 else (100, 60)
LONG = TINY | dict(stages=[dict(s, steps=n) for s, n in zip(TINY["stages"], STEPS)])


def whole_run(out: Path, backbone: Path, every: int, threads: int = 1) -> None:
    "A training with checkpoints so often that many kills happen during a save"
    import torch

    from dasd_lab.training.recipes import train
    from dasd_lab.training.runs import Keeping

    torch.set_num_threads(threads)
    try:
        train(LONG, Squares(), out=out, backbone=backbone, seed=3, progress=False, keeping=Keeping(every))
    except LabError as e:
        (out.parents[1] / "error.txt").write_text(str(e))
        os._exit(1)


def started(out: Path, backbone: Path, every: int = 1, threads: int = 1):
    p = PROCESSES.Process(target=whole_run, args=(out, backbone, every, threads))
    p.start()
    return p


def same_bits(a: Path, b: Path) -> None:
    for name in ("method/model.safetensors", "method/tokenizer.json", "log.jsonl", "preset.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    "An uninterrupted run, its backbone, and how long its steps took"
    from dasd_lab.backbone.towers import save_backbone
    from dasd_lab.training.source_model import train_source

    root = tmp_path_factory.mktemp("soak")
    save_backbone(train_source(SOURCE, Squares(), progress=False), root / "backbone")
    p = started(root / "run", root / "backbone")
    while read_progress(root / "run") is None:
        time.sleep(0.005)
    began = time.monotonic()
    p.join()
    assert p.exitcode == 0
    return root / "run", root / "backbone", time.monotonic() - began


def check_finished(run, out, backbone):
    "A finished run is refused; it has the bits of an uninterrupted one and no checkpoints"
    p = started(out, backbone)
    p.join()
    assert p.exitcode == 1 and "holds a finished run" in (out.parents[1] / "error.txt").read_text()
    same_bits(run, out)
    assert not list(out.glob("checkpoints"))


@pytest.mark.slow
def test_killed_at_random_points(straight, tmp_path):
    run, backbone, took = straight
    out = tmp_path / "runs/killed"
    rng = random.Random(time.time_ns())
    inside = 0
    places = []
    while len(places) < KILLS:
        before = read_progress(out)
        p = started(out, backbone, threads=rng.choice([1, 2, 3]))  # of this size, sums are the same with any number
        while p.is_alive() and read_progress(out) == before:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 1.2 * took / KILLS))  # so that the run lasts about as long as the kills
        if not p.is_alive():  # it ended first: start again
            shutil.rmtree(out)
            places.append("–")
            continue
        os.kill(p.pid, signal.SIGKILL)
        p.join()
        assert p.exitcode in (-signal.SIGKILL, 0)  # 0: it had just ended
        if (out / "card.json").exists():  # killed while it removed its checkpoints
            check_finished(run, out, backbone)
            shutil.rmtree(out)
            places.append("–")
            continue
        inside += any((out / "checkpoints").glob(".*"))
        places.append(checkpoints(out)[-1].name if checkpoints(out) else "–")
        if (out / "log.jsonl").exists():
            for line in (out / "log.jsonl").read_text().split("\n")[:-1]:
                json.loads(line)
    p = started(out, backbone)
    p.join()
    assert (out / "card.json").exists() and p.exitcode == 0
    print(f"{len(places)} kills, {inside} of them during a save; resumed from {places}")
    assert KILLS < 20 or inside >= 1
    same_bits(run, out)
    assert not list(out.glob("checkpoints")) and json.loads((out / "run.json").read_text())["attempts"]
