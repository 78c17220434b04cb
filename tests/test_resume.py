"A run that is killed and resumed ends with the same bits as an uninterrupted one, with real processes"

import json
import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
from squares import SOURCE, TINY, Squares

from dasd_lab.base.contracts import LabError
from dasd_lab.training.checkpoints import checkpoints
from dasd_lab.training.recipes import train

# forked from a server that has loaded torch once; each is a real process that a signal can kill
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["dasd_lab.training.recipes", "squares"])


def whole_run(out: Path, stage: str, at: int) -> None:
    "A training that kills itself before a step of a stage, or while it saves a checkpoint at that step"
    from dasd_lab.training import checkpoints, recipes, runs

    def die():
        return os.kill(os.getpid(), signal.SIGKILL)

    fit = runs.fit
    step_of = runs.train_step
    seal = checkpoints.seal

    def fit_with_checkpoints(*args, **options):
        return fit(*args, **options | dict(keeping=runs.Keeping(8)))

    def train_step(method, trained_stage, optimizers, batch, step, *more, **options):
        if trained_stage.name == stage and step == at:
            die()
        return step_of(method, trained_stage, optimizers, batch, step, *more, **options)

    def seal_or_die(folder, **facts):
        if facts.get("position") == [1, at]:
            die()
        return seal(folder, **facts)

    recipes.fit = fit_with_checkpoints
    recipes.load_preset = lambda name: SOURCE
    runs.train_step = train_step
    if stage == "while saving":
        checkpoints.seal = seal_or_die
    recipes.train(TINY | dict(source_model="tiny"), Squares(), out=out, seed=3, progress=False)


def run(out: Path, stage: str = "never", at: int = 0) -> int:
    "Exit code of a training in another process"
    process = PROCESSES.Process(target=whole_run, args=(out, stage, at))
    process.start()
    process.join()
    return process.exitcode


def position(out):
    return json.loads((checkpoints(out)[-1] / "manifest.json").read_text())["position"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    "One run straight through; one killed three times, the last time while it writes a checkpoint"
    root = tmp_path_factory.mktemp("runs")
    places = []
    assert run(root / "straight") == 0
    for stage, at in (("cross_lingual_alignment", 21), ("cross_modal_alignment", 13), ("while saving", 18)):
        assert run(root / "killed", stage, at) == -signal.SIGKILL
        assert not (root / "killed/card.json").exists()
        places.append(position(root / "killed"))
    shutil.copytree(root / "killed", root / "interrupted")
    assert run(root / "killed") == 0
    return root / "straight", root / "killed", places


def test_each_time_it_resumed_from_the_last_complete_checkpoint(ended):
    assert ended[2] == [[0, 16], [1, 10], [1, 10]]


@pytest.mark.parametrize(
    "name",
    [
        "method/model.safetensors",
        "method/tokenizer.json",
        "method/manifest.json",
        "backbone/open_clip_model.safetensors",
        "log.jsonl",
        "preset.json",
    ],
)
def test_the_same_bits(ended, name):
    straight, killed, _ = ended
    assert (straight / name).read_bytes() == (killed / name).read_bytes()


def test_the_same_card(ended):
    cards = [json.loads((f / "card.json").read_text()) for f in ended[:2]]
    for c in cards:
        del c["cpu_s"], c["source_cpu_s"]
    assert cards[0] == cards[1]


def test_a_finished_run_is_not_touched(ended):
    before = {f: f.read_bytes() for f in ended[1].rglob("*") if f.is_file()}
    with pytest.raises(LabError, match="holds a finished run"):
        train(TINY, Squares(), out=ended[1], seed=3, progress=False)
    assert {f: f.read_bytes() for f in ended[1].rglob("*") if f.is_file()} == before
