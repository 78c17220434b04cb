"Steps that a GPU replays learn what computed steps learn"

import pytest
import torch
from squares import FEW_WORDS, SOURCE, Squares

from dasd_lab.base.presets import load_preset, vary
from dasd_lab.training.recipes import train
from dasd_lab.training.runtime import Runtime
from dasd_lab.training.source_model import train_source

PRESETS = ("dasd.pictograms", "dasd.pictograms_expression", "dasd.pictograms_official", "static_adapter.pictograms")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are recorded on a CUDA GPU")


def small(name: str) -> dict:
    preset = load_preset(name)
    changes = dict(FEW_WORDS if preset.get("word_vectors") is not None else dict(vocab_size=120))
    for i in range(len(preset["stages"])):
        changes |= {f"stages.{i}.steps": 80, f"stages.{i}.batch_size": 8}
    return vary(preset, changes)


def trained(preset: dict, graphs: bool):
    runtime = Runtime(device="cuda", graphs=graphs, length_step=8)
    backbone = train_source(SOURCE, Squares(), progress=False)
    return train(preset, Squares(), ("de", "fr"), backbone=backbone, seed=3, progress=False, runtime=runtime)


@needs_gpu
@pytest.mark.parametrize("name", PRESETS)
def test_recorded_steps_learn_the_same(name):
    usual, recorded = (trained(small(name), graphs) for graphs in (False, True))
    losses = [[row["loss"] for row in run.log if "loss" in row] for run in (usual, recorded)]
    assert losses[1] == pytest.approx(losses[0], rel=2e-3) and losses[0][-1] != losses[0][0]
    after = dict(recorded.method.named_parameters())
    for name, weight in usual.method.named_parameters():
        assert (after[name] - weight).norm() <= 1e-2 * weight.norm() + 1e-4, name
