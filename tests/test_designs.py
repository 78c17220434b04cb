"The designs that the study of disentangling compares: what each takes away, and that each of them can be trained"

import sys
from pathlib import Path

import pytest
import torch
from german import german_data

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.training.recipes import train
from dasd_lab.training.shipped import shipped_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools/studies"))
from designs import BOTTLENECK, Complement  # noqa: E402  a tool, not a package
from disentangling import FORMS  # noqa: E402

DESIGNS = ("linear", "whitened", "kernel", "reconstruction", "codes", "info_nce")


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def correlations(a, b):
    both = torch.corrcoef(torch.cat([a, b], 1).T)
    return both[: a.shape[1], a.shape[1] :].abs()


def test_a_linear_complement_keeps_nothing_linear_of_the_meaning():
    meaning, own, noise = drawn(2000, 12).split([5, 3, 4], 1)
    feature = torch.cat([meaning @ drawn(5, 4) + noise, own], 1)
    for whiten in (False, True):
        complement = Complement(5, 7, whiten=whiten).eval()
        complement.update(meaning, feature, memory=1)
        rest = complement(meaning, feature)
        assert correlations(rest, meaning).max() < 0.02
        assert correlations(rest, own).max(0).values.min() > 0.9


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(shipped_run() / "backbone")


@pytest.fixture(scope="module")
def data(backbone):
    return german_data(backbone)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_design_is_trained(backbone, data, design):
    preset, changes = FORMS[design]
    small = {"stages.0.steps": 3, "stages.1.steps": 2, "vocab_size": 600, "phrases": 0}
    run = train(preset.format("pictograms"), data=data, backbone=backbone, changes=small | changes, progress=False)
    captions = data.pairs["de"].target[:600]
    run.method.refit(captions, "de")
    found = run.method.inspect(captions, "de")
    agnostic, related = found["semantic_agnostic"], found["semantic_related"]
    if design in ("linear", "whitened"):
        assert correlations(agnostic, related).mean() < 0.02
    if design == "codes":
        assert len(agnostic.round(decimals=4).unique(dim=0)) <= BOTTLENECK == agnostic.shape[1]
    assert torch.isfinite(found["target_features"]).all() and found["generated"].std(0).max() > 0
    if design == "info_nce":
        assert {"pair_critic", "uniform_scores"} <= set(run.log[0])


def test_each_side_of_info_nce_is_trained_by_its_own_loss(backbone, data):
    preset, changes = FORMS["info_nce"]
    small = {"stages.0.steps": 1, "stages.1.steps": 1, "vocab_size": 600, "phrases": 0}
    run = train(preset.format("pictograms"), data=data, backbone=backbone, changes=small | changes, progress=False)
    method = run.method.train().requires_grad_(True)
    ids, ends = method.tokens(data.pairs["de"].target[:8])
    meaning = torch.as_tensor(data.features.source_features[:8]).float()
    features = method.training_features(dict(ids=ids, end_index=ends, language="de", source_features=meaning))
    critic = [*method.disentangler.pair_critic.parameters()]
    branch = [*method.disentangler.agnostic_adapters.parameters()]
    for name, moved, left in (("critic_scores", critic, branch), ("judged_scores", branch, critic)):
        total = features[name].square().sum()
        options = dict(retain_graph=True, allow_unused=True)
        assert any(g is not None for g in torch.autograd.grad(total, moved, **options)), name
        assert all(g is None for g in torch.autograd.grad(total, left, **options)), name
