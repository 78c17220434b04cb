"""Two processes that train together give the results of one

A slow test starts them with `accelerate launch`; the others fork a process that has imported everything, with the
variables that launchers set."""

import json
import os
import socket
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from dasd_lab.base.storage import read_tensors

HERE = Path(__file__).parent
SCRIPT = """
import json,sys
sys.path.insert(0, {here!r})
from test_processes import trained_run
trained_run(sys.argv[1], json.loads(sys.argv[2]))
"""
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["dasd_lab.training.recipes", "squares"])


def trained_run(out: str, options: dict) -> None:
    "The training of each process"
    from squares import TINY, Squares

    from dasd_lab.base.presets import load_preset, vary
    from dasd_lab.training.recipes import train
    from dasd_lab.training.runs import Keeping
    from dasd_lab.training.runtime import Runtime

    preset = load_preset(options["preset"]) if "preset" in options else TINY
    preset = vary(preset, options.get("changes", {}))
    train(
        preset,
        Squares(),
        out=out,
        backbone=options["backbone"],
        seed=3,
        progress=False,
        runtime=Runtime(**options.get("runtime", {})),
        keeping=Keeping(8, log_every=5),
    )


def member(variables: dict[str, str], out: str, options: dict) -> None:
    "One of the processes that train together"
    os.environ.update(variables)
    torch.set_num_threads(1)
    trained_run(out, options)


def forked(out: Path, processes: int, timeout: float = 240, **options) -> None:
    "A training in several processes of `PROCESSES`"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])

    together = dict(WORLD_SIZE=str(processes), LOCAL_WORLD_SIZE=str(processes))
    together |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    members = []
    for i in range(processes):
        variables = dict(CUDA_VISIBLE_DEVICES="")
        variables |= together | dict(RANK=str(i), LOCAL_RANK=str(i)) if processes > 1 else {}
        members.append(PROCESSES.Process(target=member, args=(variables, str(out), options)))
    for p in members:
        p.start()
    for p in members:
        p.join(timeout)
    assert [p.exitcode for p in members] == [0] * processes


def launch(out: Path, processes: int, timeout: float = 240, **options) -> subprocess.CompletedProcess:
    "A training by `accelerate launch` in several processes on the CPU"
    script = out.parent / "launched.py"
    script.write_text(SCRIPT.format(here=str(HERE)))
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    return subprocess.run(
        [sys.executable, *launcher, str(script), str(out), json.dumps(options)],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | dict(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""),
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    "The same run by one process and by two"
    from dasd_lab.backbone.towers import save_backbone
    from dasd_lab.training.source_model import train_source

    sys.path.insert(0, str(HERE))
    from squares import SOURCE, Squares

    root = tmp_path_factory.mktemp("processes")
    save_backbone(train_source(SOURCE, Squares(), progress=False), root / "backbone")
    forked(root / "one", 1, backbone=str(root / "backbone"))
    forked(root / "two", 2, backbone=str(root / "backbone"))
    return root


# the critic is in both optimizers, as in the authors' code
OFFICIAL = {
    "stages.0.optimizer": "bert_adam",
    "stages.0.trains": ["token_vectors", "disentangler", "generator", "adapters", "critic"],
    "stages.0.max_gradient_norm": 1.0,
    "stages.0.steps": 12,
    "stages.1.steps": 4,
}


def rows(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("form", ["", pytest.param("official ", marks=pytest.mark.slow)], ids=["paper", "official"])
def test_two_processes_have_the_losses_of_one(trained, form):
    if form:
        for name, n in (("official one", 1), ("official two", 2)):
            forked(trained / name, n, backbone=str(trained / "backbone"), changes=OFFICIAL)
    one = rows(trained / f"{form}one")
    two = rows(trained / f"{form}two")
    assert [(r["stage"], r["step"], r["language"]) for r in one] == [
        (r["stage"], r["step"], r["language"]) for r in two
    ] and len(one) > 4
    for a, b in zip(one, two):
        assert a.keys() == b.keys()
        for k in a:
            if isinstance(a[k], float) and k != "learning_rate":
                assert b[k] == pytest.approx(a[k], rel=2e-3, abs=1e-4), (a["stage"], a["step"], k)
    assert one[0]["loss"] == pytest.approx(two[0]["loss"], rel=1e-6)


def test_two_processes_learn_the_same_as_one(trained):
    a, b = (read_tensors(trained / n / "method/model.safetensors") for n in ("one", "two"))
    for k in a:
        torch.testing.assert_close(a[k], b[k], rtol=5e-3, atol=2e-4, msg=lambda m: f"{k}: {m}")


@pytest.mark.slow
def test_accelerate_launches_them(trained):
    done = launch(trained / "launched", 2, backbone=str(trained / "backbone"))
    assert done.returncode == 0, done.stderr[-2000:]
    losses = [[row["loss"] for row in rows(trained / name)] for name in ("launched", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_one_of_them_writes(trained):
    assert {p.name for p in (trained / "two").iterdir()} == {p.name for p in (trained / "one").iterdir()} and len(
        list((trained / "two/tensorboard").iterdir())
    ) == 1


@pytest.mark.slow
def test_a_method_with_captions_of_all_languages(trained):
    "SMALR: the stages of words give the same; later, images are normalised over each process's own batch"
    from squares import FEW_WORDS

    small = {"config.embed_dim": 8, "config.image_hidden": 8, "config.gru_width": 8, "languages": ["de", "fr"]}
    short = {f"stages.{i}.{k}": v for i in range(3) for k, v in dict(steps=6, batch_size=8, until=0.0).items()}
    changes = FEW_WORDS | small | short | {"config.latent.margin": 9.0, "config.latent.explore": 0.0}
    for name, n in (("words one", 1), ("words two", 2)):
        forked(trained / name, n, backbone=str(trained / "backbone"), preset="smalr.pictograms", changes=changes)
    one = rows(trained / "words one")
    two = rows(trained / "words two")
    assert [(r["stage"], r["step"]) for r in one] == [(r["stage"], r["step"]) for r in two]
    for a, b in zip(one, two):
        assert b.get("entries_used") == a.get("entries_used")
        for k in ("loss", "neighbourhood", "gradient_norm", "embed_reg"):
            if k in a and (a["stage"] != "scaling" or a["step"] == 0 and k in ("neighbourhood", "embed_reg")):
                assert b[k] == pytest.approx(a[k], rel=2e-3, abs=1e-5), (a["stage"], a["step"], k)
    assert {r["stage"] for r in one if r.get("loss")} == {"words_warm_up", "latent_words", "scaling"}
