"""Exact optimisations of a training step give the same numbers as the step without them; others are close; the
benchmarks run"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "bench"))
import train_step as bench_train
from plain_step import PlainStep

from dasd_lab.backbone.text_towers import at_end
from dasd_lab.commands.cli import main
from dasd_lab.training.advice import kept_bytes
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.stages import set_trainable
from dasd_lab.training.steps import open_stage, train_step

USED = 150


def close(a, b):
    return torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)


@pytest.fixture
def preset():
    return bench_train.compared_preset() | dict(token_vectors=dict(weights="none", n_tokens=400, trains=True))


@pytest.fixture
def pair(preset):
    return bench_train.methods(preset, bench_train.TINY, USED)


@pytest.fixture
def stage(preset):
    s = scaled_stages(preset, 5)[0]
    # the plain step has one rate
    return replace(s, warmup=0.0, learning_rate=1e-3, critic=replace(s.critic, learning_rate=1e-3))


def batch(method, lengths=(6, 11, 9, 20), language="de", seed=0):
    return bench_train.batch_of(np.array(lengths), method.backbone, USED, language, np.random.default_rng(seed))


def gradients(method):
    return {n: p.grad.clone() for n, p in method.named_parameters() if p.grad is not None}


def features_and_gradients(method, b, **more):
    method.zero_grad()
    found = method.training_features(b | more)
    sum(found[k].square().sum() for k in ("target_features", "semantic_related", "semantic_agnostic")).backward()
    return found, gradients(method)


def test_rows_cut_at_the_longest_caption(pair):
    method = pair[1].train()
    b = batch(method)
    set_trainable(method, ("token_vectors", "disentangler", "generator", "adapters"))
    whole, g = features_and_gradients(
        method, b | dict(ids=torch.nn.functional.pad(b["ids"], (0, 77 - b["ids"].shape[1]))), longest=77
    )
    cut, h = features_and_gradients(method, b)
    for k in cut:
        close(cut[k], whole[k])
    assert set(g) == set(h)
    for name in g:
        close(h[name], g[name])


def test_the_first_block_of_both_readings_is_run_once(pair, monkeypatch):
    method = pair[1].train()
    b = batch(method)
    calls = []
    block = type(method.backbone).block
    monkeypatch.setattr(type(method.backbone), "block", lambda self, i, *a: calls.append(i) or block(self, i, *a))
    apart = method.token_vectors(b["ids"])[0]
    plain = PlainStep(method, 1e-3).split(apart, b["end_index"], "de")
    assert calls == [0, 0]
    calls.clear()
    once = method.disentangler(method.backbone, method.backbone.start(apart, b["end_index"]), b["end_index"], "de")
    assert calls == [0]
    for x, y in zip(once, plain):
        close(x, y)
    calls.clear()
    method.training_features(b)
    assert calls == [0, 0, 1]  # once for both readings, then the target branch; the last block is run at one place


def test_the_last_block_where_it_is_read(pair):
    backbone = pair[1].backbone
    b = batch(pair[1])
    x = torch.randn(4, 20, backbone.width, requires_grad=True)
    last = backbone.n_blocks - 1
    found = []
    for call in (
        lambda: at_end(backbone.block(last, x, b["end_index"]), b["end_index"]),
        lambda: backbone.last_block(last, x, b["end_index"])[0][:, 0],
    ):
        x.grad = None
        y = call()
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    close(*(f[0] for f in found))
    close(*(f[1] for f in found))


def test_nothing_frozen_is_run_or_kept(pair, stage, monkeypatch):
    method = pair[1]
    b = batch(method)
    method.train()
    optimizers, turn = open_stage(method, stage)

    def never(*a, **k):
        raise AssertionError("a frozen encoder ran in a step")

    monkeypatch.setattr(type(method.backbone), "source_from_ids", never)
    monkeypatch.setattr(method.backbone.clip, "encode_image", never)
    train_step(method, stage, optimizers, b, 0, turn)
    assert not [n for n, p in method.named_parameters() if n.startswith("backbone.") and p.grad is not None]

    def forward():
        return method.training_features(b)["target_features"].sum()

    kept = kept_bytes(forward, method)
    method.requires_grad_(True)
    assert kept < 0.9 * kept_bytes(forward, method)


def test_every_row_of_the_benchmark_learns_what_the_plain_step_learns(pair, stage):
    found = bench_train.learnt(bench_train.ladder(), pair, stage, [batch(pair[0], seed=i) for i in range(3)], USED)
    assert [*found] == ["plain", "store", "frozen", "vocabulary", "cut", "shared", "lab", "length"]
    for name, row in found.items():
        assert row["loss_apart"] < 1e-5 and row["learnt_apart"] < 1e-2, (name, row)


@pytest.mark.parametrize("preset", ["dasd.pictograms", "leccr.pictograms"])
def test_the_advice_as_json(preset, capsys):
    assert main(["speed", preset, "--sizes", "4,8", "--seconds", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["own"] == 64 and found["chosen"]["batch_size"] in (4, 8)
    assert main(["speed", preset, "--sizes", "1"]) == 1 and "at least two captions" in capsys.readouterr().err
