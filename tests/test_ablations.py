"Every ablation of the paper is a setting: it trains, and it has the intended effect"

import pytest
import torch
from squares import SOURCE, TINY, Squares

from dasd_lab.base.presets import vary
from dasd_lab.runs.saved import own_state
from dasd_lab.training.recipes import new_method, train, training_data
from dasd_lab.training.source_model import train_source

LOSSES = TINY["stages"][0]["terms"]


def terms(*names):
    "Settings of a stage with these losses"
    changes = {"stages.0.terms": [t for t in LOSSES if t["loss"] in names]}
    if "adversarial" not in names:
        changes["stages.0.critic"] = None
    return changes


def trains(*parts):
    "Settings of a stage that trains these parts"
    return {"stages.0.trains": [*parts]}


# name: (settings, a check of the method)
ABLATIONS = {
    "no W^z (Table 4)": ({"config.adapter.generated": False}, lambda m: m.generator is None),
    "f_sr only (Table 5)": (
        {"config.adapter.characteristics": ["related"]},
        lambda m: m.config.adapter.characteristics == ("related",),
    ),
    "f_sa only (Table 5)": (
        {"config.adapter.characteristics": ["agnostic"]},
        lambda m: m.config.adapter.characteristics == ("agnostic",),
    ),
    "no L_adv (Table 6)": (terms("alignment", "consistency"), lambda m: True),
    "no L_sc (Table 6)": (terms("alignment", "adversarial"), lambda m: True),
    "neither (Table 6)": (terms("alignment"), lambda m: True),
    "L_sc by L2": (
        {"stages.0.terms": [dict(loss="alignment"), dict(loss="consistency", options=dict(kind="l2")), LOSSES[2]]},
        lambda m: True,
    ),
    "L_sc by smooth L1": (
        {
            "stages.0.terms": [
                dict(loss="alignment"),
                dict(loss="consistency", options=dict(kind="smooth_l1")),
                LOSSES[2],
            ]
        },
        lambda m: True,
    ),
    "one text block (Table 9)": ({"config.text_blocks": 1}, lambda m: len(m.adapters["de"]) == 1),
    "no adapter in block 0 (Table 10)": ({"config.adapted_blocks": [1]}, lambda m: m.adapted == (1,)),
    "d_u = 8 (Table 11)": ({"config.adapter.bottleneck": 8}, lambda m: m.adapters["de"][0].down.out_features == 8),
    "disentangler on token vectors (Figure 4)": ({"config.disentangler.blocks": 0}, lambda m: True),
    "two blocks deep (Figure 4)": ({"config.disentangler.blocks": 2}, lambda m: True),
    "no A^sr and A^sa": ({"config.disentangler.adapters": False}, lambda m: True),
    "residual twice": ({"config.adapter.residuals": 2}, lambda m: m.adapters["de"][0].residuals == 2),
    "token vectors frozen": (
        trains("token_vectors.target", "token_vectors.disentangling", "disentangler", "generator", "adapters"),
        lambda m: True,
    ),
    "static adapter": (
        {
            "method": "static_adapter",
            "config": dict(token_width=16, adapter=dict(bottleneck=4)),
            **terms("alignment"),
            **trains("token_vectors", "adapters"),
        },
        lambda m: m.name == "static_adapter",
    ),
}


@pytest.fixture(scope="module")
def backbone():
    return train_source(SOURCE, Squares(), progress=False)


@pytest.fixture(scope="module")
def data(backbone):
    return training_data(Squares(), ("de",), backbone)


@pytest.fixture(scope="module")
def trained(backbone, data):
    "For each setting, the untrained method and a short run of the first stage"
    kept = {}

    def of(name):
        if name not in kept:
            changes = {"stages.0.steps": 6} | (ABLATIONS[name][0] if name else {})
            preset = vary(TINY | dict(stages=TINY["stages"][:1]), changes)
            kept[name] = (
                new_method(preset, data, backbone, 0),
                train(preset, Squares(), ("de",), seed=0, backbone=backbone, data=data, progress=False),
            )
        return kept[name]

    return of


@pytest.mark.parametrize("name", ABLATIONS)
def test_it_trains_and_has_its_effect(trained, name):
    before, run = trained(name)
    assert ABLATIONS[name][1](run.method)
    moved = {k for k, v in own_state(run.method).items() if not torch.equal(v, own_state(before)[k])}
    assert any(k.startswith("adapters") for k in moved)
    assert all(torch.isfinite(v).all() for v in own_state(run.method).values())
    assert ("token_vectors.embedding.weight" in moved) == (name != "token vectors frozen")
    assert any(k.startswith("critic") for k in moved) == (
        name not in ("no L_adv (Table 6)", "neither (Table 6)", "static adapter")
    )
    if name == "no W^z (Table 4)":
        assert not any(k.startswith("generator") for k in moved)


@pytest.mark.parametrize("name", ABLATIONS)
def test_it_gives_other_vectors_than_the_full_method(trained, name):
    captions = ["ein rotes Quadrat auf der Wiese."]
    ours = trained(name)[1].method
    full = trained(None)[1].method
    assert (ours.encode_captions(captions, "de") - full.encode_captions(captions, "de")).abs().max() > 1e-6
