"""Our `official` form gives what the authors' code gave, tensor by tensor, on the cases in `--golden DIR`.

Not read here: the `eval.*` arrays, which tests/test_official_evaluation.py compares."""

import json
import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from open_clip.tokenizer import SimpleTokenizer
from parity import close
from torch import nn

from dasd_lab.backbone.text_towers import at_end, attention
from dasd_lab.dasd.encoder import DASDConfig
from dasd_lab.dasd.official import (
    clip_tokenizer,
    from_official,
    is_rounded,
    official_config,
    official_sizes,
    official_stages,
)
from dasd_lab.presets import plain, settings
from dasd_lab.training.losses import LOSSES, critic_loss, verdict
from dasd_lab.training.optimizers import make_optimizers
from dasd_lab.training.stages import Stage, learning_rate, set_trainable, stage_loss
from dasd_lab.training.steps import CriticTurn

# whose cases, and the modules that are compared with them
METHOD = "dasd"
COMPUTES = (
    "dasd.disentangling",
    "dasd.adapters",
    "dasd.encoder",
    "dasd.official",
    "training.losses",
    "training.optimizers",
)
FEATURES = dict(atol=5e-5, rtol=1e-5, each=True)
STAGES = dict(zip(("cla", "cma"), (settings(Stage, s) for s in official_stages())))
OURS = dict(r_T="target_features", f_sr="semantic_related", f_sa="semantic_agnostic", z="z")


def rebuilt(entries):
    "Weights from the recipe of section 1; only the rows of the tables that a case reads"
    state = {}
    for e in entries:
        shape = tuple(e["shape"])
        scale = np.float32(e["scale"])
        offset = np.float32(e["offset"])

        def draw(seed, shape):
            return (
                np.random.RandomState(seed).standard_normal(int(np.prod(shape))).reshape(shape).astype(np.float32)
                * scale
                + offset
            )

        if "row_seed_base" in e:
            value = np.zeros(shape, np.float32)
            used = e["rows_used"]
            value[used] = np.stack([draw(e["row_seed_base"] + r, shape[1:]) for r in used])
            checked = value[used]
        else:
            value = checked = np.asarray(draw(zlib.crc32(e["name"].encode()), shape), np.float32)
        assert zlib.crc32(np.ascontiguousarray(checked, "<f4").tobytes()) == e["crc32"], e["name"]
        state[e["name"]] = torch.from_numpy(value)
    return state


@pytest.fixture(scope="module")
def golden(case_path):
    "The case, its arrays and the checkpoint loaded into our modules"
    case = json.loads(case_path.read_text(encoding="utf-8"))
    with np.load(case_path.with_suffix(".npz")) as z:
        arrays = {k: torch.from_numpy(z[k]) for k in z.files}
    state = rebuilt(case["state_dict"])
    method, report = from_official(state)
    inputs = arrays["target_ids"].long(), arrays["target_eos"].long(), case["config"]["language"]
    return SimpleNamespace(case=case, arrays=arrays, state=state, method=method, report=report, inputs=inputs)


def frozen_features(g, method):
    "r_S, its hidden states and r_V"
    trace = []
    end_index = g.arrays["source_eos"].long()
    with torch.no_grad(), attention(torch.device("cpu")):
        r_s = method.backbone.source_from_ids(g.arrays["source_ids"].long(), end_index, trace)
        return (
            r_s,
            torch.stack([at_end(t, end_index) for t in trace]),
            method.backbone.clip.encode_image(g.arrays["pixels"]),
        )


@pytest.fixture(scope="module")
def forward(golden):
    "One forward pass, named as the stored arrays are; what the frozen blocks gave is recorded on the way"
    method, (ids, end_index, language) = golden.method, golden.inputs
    trace = []
    seen = []
    first = []
    blocks = method.backbone.clip.transformer.resblocks
    hooks = [
        b.register_forward_hook(lambda _, args, out: (first.append(args[0]), seen.append(out)) and None) for b in blocks
    ]
    with torch.no_grad(), attention(torch.device("cpu")):
        named = method.features(ids, end_index, language, trace)
    for h in hooks:
        h.remove()
    r_s, hidden_s, r_v = frozen_features(golden, method)
    depth = golden.case["config"]["sdm_layers_run"]
    assert len(seen) == depth + len(blocks) - 1, (
        "the disentangler runs as many blocks as the authors' code; the first block is run once for both readings"
    )

    def ends(tensors):
        return torch.stack([at_end(t, end_index) for t in tensors])

    return {k: named[v] for k, v in OURS.items()} | dict(
        W_z=named["generated"].transpose(0, 1),
        x0_eos=ends(first[:1])[0],
        sdm_H_eos=ends(seen[:depth]),
        H_T_eos=ends(b for b, _ in trace),
        X_T_eos=ends(a for _, a in trace),
        r_S=r_s,
        r_V=r_v,
        hidden_S_eos=hidden_s,
        sim_image_text_x100=100 * method.score(named["target_features"], method.encode_visuals(r_v)).T,
    )


@pytest.mark.parametrize(
    "name",
    [
        "x0_eos",
        "sdm_H_eos",
        "f_sr",
        "f_sa",
        "z",
        "W_z",
        "H_T_eos",
        "X_T_eos",
        "r_T",
        "hidden_S_eos",
        "r_S",
        "r_V",
        "sim_image_text_x100",
    ],
)
def test_forward(golden, forward, name):
    assert forward[name].shape == golden.arrays[name].shape
    close(forward[name], golden.arrays[name], **(dict(atol=1e-5, rtol=0) if name == "W_z" else FEATURES))


def test_agnostic_feature_averages_the_padding_too(golden, forward, monkeypatch):
    stored = golden.arrays["f_sa_real_tokens_only"]
    assert (forward["f_sa"] - stored).abs().max() > 0.1
    vary(golden.method, monkeypatch, "disentangler", pooling="tokens")
    close(again(golden)["semantic_agnostic"], stored, "f_sa of real tokens alone", **FEATURES)


def vary(method, monkeypatch, part, **changes):
    "Another setting on the same weights"
    monkeypatch.setattr(getattr(method, part), "config", replace(getattr(method, part).config, **changes))


def again(golden):
    with torch.no_grad(), attention(torch.device("cpu")):
        return golden.method.features(*golden.inputs)


@pytest.mark.parametrize(
    "deviation,stated",
    [
        ("one block", 2.9),
        ("pooled over the tokens", 1.9),
        ("transposed", 3.7),
        ("residual twice", 1.9),
        ("without norms", 2.1),
    ],
)
def test_each_setting_matters_as_much_as_stated(golden, monkeypatch, deviation, stated):
    "Section 3: what single deviations do to r_T of case a"
    if golden.case["case"] != "a":
        pytest.skip("stated for case a only")
    method = golden.method
    if deviation == "one block":
        vary(method, monkeypatch, "disentangler", blocks=1)
    if deviation == "pooled over the tokens":
        vary(method, monkeypatch, "disentangler", pooling="tokens")
    for a in method.adapters[golden.inputs[2]]:
        if deviation == "transposed":
            monkeypatch.setattr(a, "product", "blh,bgh->blg")
        if deviation == "residual twice":
            monkeypatch.setattr(a, "residuals", 2)
    if deviation == "without norms":
        for n in ("related_norm", "agnostic_norm"):
            monkeypatch.setitem(method.disentangler._modules, n, nn.Identity())
    assert (again(golden)["target_features"] - golden.arrays["r_T"]).abs().max().item() == pytest.approx(
        stated, abs=0.051
    )


@pytest.mark.parametrize("whose", ["open_clip", "ours"])
def test_source_ids(golden, whose):
    stored = golden.arrays["source_ids"].long()
    ends = golden.arrays["source_eos"].long()
    english = golden.case["english"]
    if whose == "ours":
        ids, end_index = clip_tokenizer()(english, stored.shape[1], stored.shape[1])
    else:
        ids = SimpleTokenizer()(english, stored.shape[1])
        end_index = ids.argmax(-1)
    assert torch.equal(ids, stored) and torch.equal(end_index, ends)


@pytest.fixture(scope="module", params=["cla", "cma"])
def step(golden, forward, request):
    "One training step of a stage up to its gradients, everything open; the critic is put back afterwards"
    method = golden.method
    stage = STAGES[request.param]
    kept = {k: v.clone() for k, v in method.critic.state_dict().items()}
    method.requires_grad_(True)
    method.zero_grad(set_to_none=True)
    turn = CriticTurn(method.critic, stage.critic)
    ids, end_index, language = golden.inputs
    with attention(torch.device("cpu")):
        features = method.training_features(
            dict(
                ids=ids,
                end_index=end_index,
                language=language,
                source_features=forward["r_S"],
                image_features=forward["r_V"],
            )
        )
        agnostic = features["semantic_agnostic"].detach()
        reference = features[stage.critic.reference]
        with torch.no_grad():
            before = turn.logits(agnostic, reference, 0)
        features = features | turn(features, 0)
        total, values = stage_loss(stage, features)
        method.zero_grad(set_to_none=True)
        total.backward()
    gradients = {n: p.grad.clone() for n, p in method.named_parameters() if p.grad is not None}
    after = {k: v.clone() for k, v in method.critic.state_dict().items()}
    method.zero_grad(set_to_none=True)
    method.requires_grad_(False)
    method.critic.load_state_dict(kept)
    return SimpleNamespace(
        prefix=request.param,
        stage=stage,
        before=before,
        features={k: v.detach() for k, v in features.items()},
        total=total.detach(),
        values=values,
        gradients=gradients,
        critic=after,
    )


def test_critic_logits(golden, step):
    for kind in ("matched", "mismatched"):
        close(step.before[f"{kind}_logits"], golden.arrays[f"{step.prefix}_disc_logits_{kind}"], kind, **FEATURES)
    close(
        step.features["mismatched_logits"],
        golden.arrays[f"{step.prefix}_disc_logits_mismatched_after_update"],
        "mismatched, after its step",
        **FEATURES,
    )


def test_critic_weights_after_its_step(golden, step):
    start = f"{step.prefix}_disc_after_update."
    stored = {k.removeprefix(start): v for k, v in golden.arrays.items() if k.startswith(start)}
    assert stored
    for k, v in stored.items():
        close(step.critic[f"layers.{k}"], v, k, atol=1e-6, rtol=0)


def test_losses(golden, step):
    "Every scalar of the stage, the weighted ones as the stage weighs them"
    weight = {t.loss: t.weight for t in step.stage.terms}
    before = step.before
    after = step.features
    ours = dict(
        L_d_mismatched=verdict(before["mismatched_logits"], False),
        L_d_matched=verdict(before["matched_logits"], True),
        L_d=critic_loss(before, step.stage.critic.share),
        L_adv_before_update=weight["adversarial"] * verdict(before["mismatched_logits"], True),
        L_adv=weight["adversarial"] * step.values["adversarial"],
        L_CL=weight["alignment"] * step.values["alignment"],
        L_sc_weighted=weight["consistency"] * step.values["consistency"],
        total=step.total,
    )
    if step.prefix == "cma":
        ours["L_CM"] = weight["contrastive"] * step.values["contrastive"]
    stored = {
        k.removeprefix(f"{step.prefix}_"): v
        for k, v in golden.case["scalars"].items()
        if k.startswith(f"{step.prefix}_")
    }
    assert set(ours) == set(stored)
    for k, v in stored.items():
        close(ours[k], v, k, atol=0, rtol=1e-5)
    assert after["critic_loss"].item() == pytest.approx(stored["L_d"], rel=1e-5)


def test_unweighted_losses(golden, forward):
    "The scalars without a stage's prefix, from our features"
    similarity = forward["sim_image_text_x100"]
    truth = torch.arange(len(forward["r_T"]))
    features = dict(
        target_features=forward["r_T"],
        semantic_related=forward["f_sr"],
        source_features=forward["r_S"],
        image_features=forward["r_V"],
    )

    def value(prefix, loss):
        return LOSSES[loss](features, **next(t.options for t in STAGES[prefix].terms if t.loss == loss))

    ours = dict(
        L_CL=value("cla", "alignment"),
        L_sc_cla_mean_l1=value("cla", "consistency"),
        L_sc_cma_mean_smooth_l1=value("cma", "consistency"),
        L_CM=value("cma", "contrastive"),
        L_CM_image_to_text=F.cross_entropy(similarity, truth),
        L_CM_text_to_image=F.cross_entropy(similarity.T, truth),
    )
    stored = {k: v for k, v in golden.case["scalars"].items() if not k.startswith(("cla_", "cma_"))}
    assert set(ours) == set(stored)
    for k, v in stored.items():
        close(ours[k], v, k, atol=0, rtol=1e-5)


def test_gradient_norms(golden, step):
    placed = golden.report.placed
    stored = golden.case["gradient_l2"][step.prefix.upper()]
    assert not set(stored) & set(golden.report.unused)
    for k, v in stored.items():
        close(step.gradients[placed[k]].double().norm(), v, k, atol=0, rtol=1e-4)


def test_who_gets_no_gradient(golden, step):
    none = {k for k, ours in golden.report.placed.items() if ours not in step.gradients} | set(golden.report.unused)
    assert none == set(golden.case["no_gradient"][step.prefix.upper()])


def test_gradients(golden, step):
    start = f"{step.prefix}_grad."
    stored = {k.removeprefix(start): v for k, v in golden.arrays.items() if k.startswith(start)}
    assert len(stored) >= 5
    for k, v in stored.items():
        close(step.gradients[golden.report.placed[k]], v, k, atol=0, rtol=1e-4)


@pytest.mark.parametrize("prefix", STAGES)
def test_what_learns(golden, prefix):
    "The open parameters are those of the authors' optimizer, without the ones no forward pass reads"
    opened = set(set_trainable(golden.method, STAGES[prefix].trains))
    golden.method.requires_grad_(False)
    here = {k for k, ours in golden.report.placed.items() if ours in opened}
    assert here == set(golden.case["in_official_optimiser"]) - set(golden.report.unused)


def test_half_precision_loading(golden):
    assert {k for k in golden.state if is_rounded(k)} == set(golden.case["rounded_to_half_by_official_loader"])
    half, report = from_official(golden.state, half_rounded=True)
    assert set(report.rounded) == set(golden.case["rounded_to_half_by_official_loader"])
    with torch.no_grad(), attention(torch.device("cpu")):
        named = half.features(*golden.inputs)
    r_s, _, r_v = frozen_features(golden, half)
    ours = {k: named[OURS[k]] for k in ("r_T", "f_sr", "f_sa")} | dict(r_S=r_s, r_V=r_v)
    stored = {k.removeprefix("half_loaded."): v for k, v in golden.arrays.items() if k.startswith("half_loaded.")}
    assert set(stored) == set(ours)
    for k, v in stored.items():
        close(ours[k], v, k, **FEATURES)
        if not torch.equal(v, golden.arrays[k]):
            assert (v - golden.arrays[k]).abs().max() > 2e-4, f"{k}: the rounding is seen"


def test_optimizer_trace(golden):
    "Our learning rates and `bert_adam` retrace the authors' optimizer, with and without decay"
    o = golden.case["optimiser"]
    arrays = golden.arrays
    assert (STAGES["cla"].weight_decay, STAGES["cla"].warmup) == (o["weight_decay"][0], o["warmup"])
    stage = Stage(
        "trace",
        (),
        ("",),
        o["t_total"],
        learning_rate=o["lr"],
        warmup=o["warmup"],
        schedule="cosine",
        optimizer="bert_adam",
        weight_decay=o["weight_decay"][0],
    )
    method = nn.Module()
    method.weight, method.bias = (nn.Parameter(arrays[f"optim.trace_{k}"][0].clone()) for k in ("decayed", "plain"))
    (optimizer,) = make_optimizers(method, stage)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"], group["max_norm"]) == ((o["b1"], o["b2"]), o["eps"], o["max_grad_norm"])
    for i in range(o["steps"]):
        rate = learning_rate(stage, i)
        assert rate == pytest.approx(arrays["optim.lr"][i].item(), rel=1e-9, abs=1e-15)
        for group in optimizer.param_groups:
            group["lr"] = rate
        method.weight.grad, method.bias.grad = (arrays[f"optim.grads_{k}"][i].clone() for k in ("decayed", "plain"))
        optimizer.step()
        for p, k in ((method.weight, "decayed"), (method.bias, "plain")):
            close(p, arrays[f"optim.trace_{k}"][i + 1], f"{k}, step {i + 1}", atol=2e-6, rtol=0)


def test_settings_from_the_shapes(golden):
    "The checkpoint asks for the `official` form at the stated sizes, and a preset can hold that form"
    c, (clip, config) = golden.case["config"], official_sizes(golden.state)
    vision = clip["vision_cfg"]
    text = clip["text_cfg"]
    assert (
        clip["embed_dim"],
        text["context_length"],
        text["vocab_size"],
        text["layers"],
        text["width"],
        text["heads"],
    ) == tuple(c[k] for k in ("embed_dim", "context_length", "vocab_size", "text_layers", "text_width", "text_heads"))
    assert (
        vision["layers"],
        vision["width"],
        vision["width"] // vision["head_width"],
        vision["patch_size"],
        vision["image_size"],
    ) == tuple(c[k] for k in ("vision_layers", "vision_width", "vision_heads", "patch_size", "image_size"))
    assert config == official_config(c["languages"], bottleneck=c["d_u"], characteristics_width=c["d_z"])
    assert config.disentangler.blocks == c["sdm_layers_run"]
    assert settings(DASDConfig, json.loads(json.dumps(plain(config)))) == config
    for s in official_stages():
        stage = settings(Stage, json.loads(json.dumps(s)))
        assert settings(Stage, plain(stage)) == stage
