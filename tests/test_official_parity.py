"""The `official` form reproduces the tensors of the authors' code on the cases in `--golden DIR`.

The `eval.*` arrays of the same cases are compared in tests/test_official_evaluation.py."""

import json
import zlib
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from open_clip.tokenizer import SimpleTokenizer
from parity import close
from torch import nn

from dasd_lab.backbone.open_clip import clip_tokenizer
from dasd_lab.backbone.text_towers import at_end, attention
from dasd_lab.base.presets import load_preset, settings
from dasd_lab.methods.dasd.official import from_official
from dasd_lab.training.losses import critic_loss, verdict
from dasd_lab.training.optimizers import make_optimizers
from dasd_lab.training.stages import Stage, learning_rate, set_trainable, stage_loss
from dasd_lab.training.steps import CriticTurn

METHOD = "dasd"  # method of the cases
# modules that compute the compared tensors
COMPUTES = (
    "methods.dasd.disentangling",
    "methods.dasd.adapters",
    "methods.dasd.encoder",
    "methods.dasd.official",
    "training.losses",
    "training.optimizers",
)
FEATURES = dict(atol=5e-5, rtol=1e-5, each=True)
STAGES = dict(zip(("cla", "cma"), (settings(Stage, s) for s in load_preset("dasd.official")["stages"])))
OURS = dict(r_T="target_features", f_sr="semantic_related", f_sa="semantic_agnostic", z="z")


def drawn(entry, seed, shape):
    "Random values of one tensor, as section 1 of the golden README prescribes"
    values = np.random.RandomState(seed).standard_normal(int(np.prod(shape))).reshape(shape).astype(np.float32)
    return values * np.float32(entry["scale"]) + np.float32(entry["offset"])


def rebuilt(entries):
    "Weights of a case; of embedding tables, only the rows that it uses"
    state = {}
    for entry in entries:
        shape = tuple(entry["shape"])
        if "row_seed_base" in entry:
            value = np.zeros(shape, np.float32)
            rows = entry["rows_used"]
            value[rows] = np.stack([drawn(entry, entry["row_seed_base"] + row, shape[1:]) for row in rows])
            checked = value[rows]
        else:
            seed = zlib.crc32(entry["name"].encode())
            value = checked = np.asarray(drawn(entry, seed, shape), np.float32)
        assert zlib.crc32(np.ascontiguousarray(checked, "<f4").tobytes()) == entry["crc32"], entry["name"]
        state[entry["name"]] = torch.from_numpy(value)
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


def frozen_features(golden, method):
    "r_S, its hidden states and r_V"
    trace = []
    end_index = golden.arrays["source_eos"].long()
    with torch.no_grad(), attention(torch.device("cpu")):
        r_s = method.backbone.source_from_ids(golden.arrays["source_ids"].long(), end_index, trace)
        hidden = torch.stack([at_end(t, end_index) for t in trace])
        r_v = method.backbone.clip.encode_image(golden.arrays["pixels"])
    return r_s, hidden, r_v


@contextmanager
def recorded(blocks):
    "Inputs and outputs of frozen blocks, in the order of their calls"
    inputs = []
    outputs = []

    def record(_, args, output):
        inputs.append(args[0])
        outputs.append(output)

    hooks = [block.register_forward_hook(record) for block in blocks]
    yield inputs, outputs
    for hook in hooks:
        hook.remove()


@pytest.fixture(scope="module")
def forward(golden):
    "Tensors of one forward pass, with the names of the stored arrays"
    method = golden.method
    ids, end_index, language = golden.inputs
    trace = []
    blocks = method.backbone.clip.transformer.resblocks
    with torch.no_grad(), attention(torch.device("cpu")), recorded(blocks) as (inputs, outputs):
        named = method.features(ids, end_index, language, trace)
    r_s, hidden_s, r_v = frozen_features(golden, method)
    depth = golden.case["config"]["sdm_layers_run"]
    assert len(outputs) == depth + len(blocks) - 1, (
        "the disentangler runs as many blocks as the authors' code; both branches share the first block"
    )

    def ends(tensors):
        return torch.stack([at_end(t, end_index) for t in tensors])

    return {k: named[v] for k, v in OURS.items()} | dict(
        W_z=named["generated"].transpose(0, 1),
        x0_eos=ends(inputs[:1])[0],
        sdm_H_eos=ends(outputs[:depth]),
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
    tolerance = dict(atol=1e-5, rtol=0) if name == "W_z" else FEATURES
    close(forward[name], golden.arrays[name], **tolerance)


def vary(method, monkeypatch, part, **changes):
    "Change a setting of a trained part"
    module = getattr(method, part)
    monkeypatch.setattr(module, "config", replace(module.config, **changes))


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
    "Section 3: the change of r_T of case a that each single deviation causes"
    if golden.case["case"] != "a":
        pytest.skip("stated for case a only")
    method = golden.method
    if deviation == "one block":
        vary(method, monkeypatch, "disentangler", blocks=1)
    if deviation == "pooled over the tokens":
        vary(method, monkeypatch, "disentangler", pooling="tokens")
    for adapter in method.adapters[golden.inputs[2]]:
        if deviation == "transposed":
            monkeypatch.setattr(adapter, "product", "blh,bgh->blg")
        if deviation == "residual twice":
            monkeypatch.setattr(adapter, "residuals", 2)
    if deviation == "without norms":
        for norm in ("related_norm", "agnostic_norm"):
            monkeypatch.setitem(method.disentangler._modules, norm, nn.Identity())
    with torch.no_grad(), attention(torch.device("cpu")):
        again = golden.method.features(*golden.inputs)
    change = (again["target_features"] - golden.arrays["r_T"]).abs().max().item()
    assert change == pytest.approx(stated, abs=0.051)


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
    "One training step of a stage up to its gradients, all parameters trainable; the critic is restored afterwards"
    method = golden.method
    stage = STAGES[request.param]
    original_critic = {k: v.clone() for k, v in method.critic.state_dict().items()}
    method.requires_grad_(True)
    method.zero_grad(set_to_none=True)
    turn = CriticTurn(method.critic, stage.critic)
    batch = dict(zip(("ids", "end_index", "language"), golden.inputs))
    batch |= dict(source_features=forward["r_S"], image_features=forward["r_V"])
    with attention(torch.device("cpu")):
        features = method.training_features(batch)
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
    method.critic.load_state_dict(original_critic)
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
    "Every scalar of the stage, weighted as in the stage"
    weight = {t.loss: t.weight for t in step.stage.terms}
    before = step.before
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
    assert step.features["critic_loss"].item() == pytest.approx(stored["L_d"], rel=1e-5)


def test_gradient_norms(golden, step):
    placed = golden.report.placed
    stored = golden.case["gradient_l2"][step.prefix.upper()]
    assert not set(stored) & set(golden.report.unused)
    for k, v in stored.items():
        close(step.gradients[placed[k]].double().norm(), v, k, atol=0, rtol=1e-4)


def test_gradients(golden, step):
    start = f"{step.prefix}_grad."
    stored = {k.removeprefix(start): v for k, v in golden.arrays.items() if k.startswith(start)}
    assert stored
    for k, v in stored.items():
        close(step.gradients[golden.report.placed[k]], v, k, atol=0, rtol=1e-4)


@pytest.mark.parametrize("prefix", STAGES)
def test_what_learns(golden, prefix):
    "The trainable parameters are those of the authors' optimizer, except those that no forward pass uses"
    trainable = set(set_trainable(golden.method, STAGES[prefix].trains))
    golden.method.requires_grad_(False)
    official_names = {k for k, ours in golden.report.placed.items() if ours in trainable}
    assert official_names == set(golden.case["in_official_optimiser"]) - set(golden.report.unused)


def test_half_precision_loading(golden):
    rounded = {name: golden.state[name].half().float() for name in golden.case["rounded_to_half_by_official_loader"]}
    half, _ = from_official(golden.state | rounded)
    with torch.no_grad(), attention(torch.device("cpu")):
        named = half.features(*golden.inputs)
    r_s, _, r_v = frozen_features(golden, half)
    ours = {k: named[OURS[k]] for k in ("r_T", "f_sr", "f_sa")} | dict(r_S=r_s, r_V=r_v)
    stored = {k.removeprefix("half_loaded."): v for k, v in golden.arrays.items() if k.startswith("half_loaded.")}
    assert set(stored) == set(ours)
    for k, v in stored.items():
        close(ours[k], v, k, **FEATURES)
        if not torch.equal(v, golden.arrays[k]):
            assert (v - golden.arrays[k]).abs().max() > 2e-4, f"{k}: rounding has a visible effect"


def test_optimizer_settings_of_the_release(golden):
    "Case a was traced with the settings that the stages have"
    if golden.case["case"] != "a":
        pytest.skip("the settings of other traces are their own")
    official = golden.case["optimiser"]
    for stage in STAGES.values():
        assert (stage.weight_decay, stage.warmup) == (official["weight_decay"][0], official["warmup"])


def test_optimizer_trace(golden):
    "Learning rates and `bert_adam` reproduce the authors' optimizer, with and without weight decay"
    official = golden.case["optimiser"]
    arrays = golden.arrays
    stage = Stage(
        "trace",
        (),
        ("",),
        official["t_total"],
        learning_rate=official["lr"],
        warmup=official["warmup"],
        schedule="cosine",
        optimizer="bert_adam",
        weight_decay=official["weight_decay"][0],
    )
    method = nn.Module()
    method.weight = nn.Parameter(arrays["optim.trace_decayed"][0].clone())
    method.bias = nn.Parameter(arrays["optim.trace_plain"][0].clone())
    parameters = dict(decayed=method.weight, plain=method.bias)
    (optimizer,) = make_optimizers(method, stage)
    own = dict(betas=(official["b1"], official["b2"]), eps=official["eps"], max_norm=official["max_grad_norm"])
    for group in optimizer.param_groups:
        if golden.case["case"] == "a":
            assert {k: group[k] for k in own} == own
        group.update(own)
    for i in range(official["steps"]):
        rate = learning_rate(stage, i)
        assert rate == pytest.approx(arrays["optim.lr"][i].item(), rel=1e-9, abs=1e-15)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for name, parameter in parameters.items():
            parameter.grad = arrays[f"optim.grads_{name}"][i].clone()
        optimizer.step()
        for name, parameter in parameters.items():
            close(parameter, arrays[f"optim.trace_{name}"][i + 1], f"{name}, step {i + 1}", atol=2e-6, rtol=0)
