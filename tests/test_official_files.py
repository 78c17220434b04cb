"""Checkpoints of the authors' code as files: both generations of names in and out again, and what is refused"""

import json
import os
import pickle
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_official_parity import rebuilt

from dasd_lab.cli import main
from dasd_lab.contracts import LabError
from dasd_lab.dasd import official
from dasd_lab.dasd.official import clip_tokenizer
from dasd_lab.storage import read_tensors, read_weights
from dasd_lab.training.exchange import export_official, import_official
from dasd_lab.training.recipes import load_run

ENGLISH = clip_tokenizer()
D = 64
E = 32
V = 64
Z = 16
H = 4
K = 2
LANGUAGES = ("de", "ja")


def released(seed=0, generation="current", n=49408):
    "A state dict with the authors' names at small widths, in the order of theirs (golden README, section 2); 49,408 and 77 are CLIP's"
    g = torch.Generator().manual_seed(seed)
    state = {}

    def add(name, *shape):
        state[name] = torch.randn(shape, generator=g) * 0.1

    def linear(name, o, i):
        add(f"{name}.weight", o, i)
        add(f"{name}.bias", o)

    def norm(name, width):
        state[f"{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=g)
        add(f"{name}.bias", width)

    def block(b, width):
        add(f"{b}.attn.in_proj_weight", 3 * width, width)
        add(f"{b}.attn.in_proj_bias", 3 * width)
        linear(f"{b}.attn.out_proj", width, width)
        norm(f"{b}.ln_1", width)
        linear(f"{b}.mlp.c_fc", 4 * width, width)
        linear(f"{b}.mlp.c_proj", width, 4 * width)
        norm(f"{b}.ln_2", width)

    add("positional_embedding", 77, D)
    for p in ("text", "target"):
        add(f"{p}_projection", D, E)
    add("logit_scale")
    for p in ("sr", "sigma"):
        add(f"{p}_projection", D, E)
    add("visual.class_embedding", V)
    add("visual.positional_embedding", 17, V)
    add("visual.proj", V, E)
    add("visual.conv1.weight", V, 3, 4, 4)
    norm("visual.ln_pre", V)
    for i in range(2):
        block(f"visual.transformer.resblocks.{i}", V)
    linear("visual.transformer.zi_adapter_student.c_fc1", Z, E + D)
    norm("visual.ln_post", V)
    for i in range(K):
        b = f"transformer.resblocks.{i}"
        block(b, D)
        linear(f"{b}.mlp_zi.c_fc1", H * H, Z)
        for l in LANGUAGES:
            a = f"{b}.acquirer.{l}"
            linear(f"{a}.mlp_beforez.c_fc", H, D)
            linear(f"{a}.mlp_afterz.c_proj2", D, H)
            for s in ("sr", "sa"):
                linear(f"{a}.mlp_{s}.c_fc", 8, D)
                linear(f"{a}.mlp_{s}.c_proj", D, 8)
            norm(f"{a}.ln", D)
    linear("transformer.zi_adapter_student.c_fc1", Z, E + D)
    add("token_embedding.weight", n, D)
    for n in ("final", "mu", "sigma"):
        norm(f"ln_{n}", D)
    for j, (o, i) in zip((0, 2, 4), ((12, D + E), (6, 12), (2, 6))):
        linear(f"AdvAgent.discriminator.model.{j}", o, i)
    add("multilingual_embedding.weight", 40, 24)
    linear("multilingual_embedding_linear", D, 24)
    if generation == "current":
        return state
    return {
        k.replace("sr_projection", "mu_projection").replace("mlp_sr", "mlp_mu").replace("mlp_sa", "mlp_sigma"): v
        for k, v in state.items()
    }


def same(a, b):
    "Keys in their order, shapes, types and bytes"
    assert list(a) == list(b)
    for k in a:
        assert (a[k].shape, a[k].dtype) == (b[k].shape, b[k].dtype), k
        assert a[k].contiguous().flatten().view(torch.uint8).equal(b[k].contiguous().flatten().view(torch.uint8)), k


@pytest.fixture
def file(tmp_path):
    def write(state, name="pytorch_model.bin"):
        torch.save(state, tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize("generation", ["current", "older"])
def test_there_and_back(file, tmp_path, generation):
    state = released(generation=generation)
    report = import_official(file(state), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.languages == LANGUAGES and torch.equal(
        run.disentangler.related_projection.weight.T,
        state["sr_projection" if generation == "current" else "mu_projection"],
    )
    assert set(report.placed) | set(report.unused) == set(state) and len(report.remarks) == (
        0 if generation == "current" else 2
    )
    assert set(read_tensors(tmp_path / "run/official/unused.safetensors")) == set(report.unused)
    assert not any(
        "mlp_s" in k or "sigma_projection" in k for k in read_tensors(tmp_path / "run/method/model.safetensors")
    )
    export_official(tmp_path / "run", tmp_path / "back.bin")
    same(read_weights(tmp_path / "back.bin"), state)


def test_both_generations_are_the_same_method(file, tmp_path):
    for g in ("current", "older"):
        import_official(file(released(generation=g), f"{g}.bin"), tmp_path / g)
    a, b = (load_run(tmp_path / g).state_dict() for g in ("current", "older"))
    assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda s: dict(model=s, epoch=3),
        lambda s: dict(state_dict=s),
        lambda s: {f"module.{k}": v for k, v in s.items()},
        lambda s: dict(model={f"module.{k}": v for k, v in s.items()}),
    ],
    ids=["model", "state_dict", "module.", "both"],
)
def test_wrapped_files(file, tmp_path, wrapped):
    same(read_weights(file(wrapped(released()))), released())


def test_types_come_back(file, tmp_path):
    state = {k: v.half() if "mlp" in k else v.bfloat16() if "ln_" in k else v for k, v in released().items()}
    import_official(file(state), tmp_path / "run")
    export_official(tmp_path / "run", tmp_path / "back.bin")
    same(read_weights(tmp_path / "back.bin"), state)


def test_a_checkpoint_in_safetensors(tmp_path):
    save_file(released(), tmp_path / "model.safetensors")
    import_official(tmp_path / "model.safetensors", tmp_path / "run")
    assert load_run(tmp_path / "run").languages == LANGUAGES


def test_half_a_file(file, tmp_path):
    path = file(released())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabError, match="cannot be read"):
        import_official(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "part",
    [
        "multilingual_embedding.weight",
        "AdvAgent",
        "ln_sigma",
        "visual.conv1",
        "transformer.resblocks.1.acquirer.ja",
        "acquirer",
        "transformer.resblocks.0.attn",
        "visual.",
        "token_embedding",
    ],
)
def test_half_a_checkpoint(file, tmp_path, part):
    with pytest.raises(LabError, match="without"):
        import_official(file({k: v for k, v in released().items() if part not in k}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["ln_final.bias", "sigma_projection"])
def test_values_that_are_no_numbers(file, tmp_path, name, value):
    state = released()
    state[name].view(-1)[3] = value
    with pytest.raises(LabError, match=f"{name} with 1 values"):
        import_official(file(state), tmp_path / "run")


@pytest.mark.parametrize(
    "name",
    [
        k
        for k in released(n=50)
        if not re.search(
            r"resblocks\.1|logit_scale|target_projection|sigma_projection|mlp_s[ra]|\.ln\.|visual\.transformer\.zi", k
        )
    ],
)
@pytest.mark.parametrize("how", ["one row more", "one axis more"])
def test_wrong_shapes(name, how, monkeypatch):
    "Every tensor that is computed with, one after the other; no shape gets through or ends in another error"
    monkeypatch.setattr(official, "clip_tokenizer", lambda: ENGLISH)
    state = released(n=50)
    v = state[name]
    state[name] = v[None] if how == "one axis more" else torch.cat([v, v[:1]])
    if how == "one row more" and name in (
        "token_embedding.weight",
        "multilingual_embedding.weight",
        "positional_embedding",
    ):
        pytest.skip("another vocabulary or context is another size, not a fault")
    with pytest.raises(LabError):
        official.from_official(state)


def test_a_pickle_with_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run by a checkpoint"),)

    torch.save(released() | dict(extra=Trap()), tmp_path / "trap.bin")
    (tmp_path / "plain.bin").write_bytes(pickle.dumps(Trap()))
    for name in ("trap.bin", "plain.bin"):
        with pytest.raises(LabError, match="cannot be read as plain tensors"):
            import_official(tmp_path / name, tmp_path / "run")
    assert not (tmp_path / "run by a checkpoint").exists() and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong,told",
    [
        (lambda s: s | dict(stranger=torch.ones(1)), "stranger"),
        (lambda s: s | dict(epoch=3), "other things than tensors"),
        (lambda s: [s], "list"),
        (lambda s: {k: v.double() for k, v in s.items()}, "float64"),
        (lambda s: {}, "other things"),
    ],
    ids=["stranger", "number", "list", "double", "empty"],
)
def test_what_is_refused(file, tmp_path, wrong, told):
    with pytest.raises(LabError, match=told):
        import_official(file(wrong(released())), tmp_path / "run")


def test_only_the_official_form_is_exported(tmp_path):
    from dasd_lab.training.recipes import shipped_run

    with pytest.raises(LabError, match="adapter.product = paper"):
        export_official(shipped_run(), tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()


def test_the_commands(file, tmp_path, capsys):
    state = released()
    path = str(file(state))
    assert main(["import-official", path, "--out", str(tmp_path / "run"), "--languages", "ja"]) == 0
    out, err = capsys.readouterr()
    assert (
        out.strip() == str(tmp_path / "run")
        and "used: " in err
        and "never applies" in err
        and "not asked for" in err
        and "--tokenizer" in err
    )
    assert (
        main(["import-official", path, "--out", str(tmp_path / "run")]) == 1
        and "is there already" in capsys.readouterr().err
    )
    assert (
        main(["import-official", path, "--out", str(tmp_path / "other"), "--languages", "cs"]) == 1
        and "['de', 'ja']" in capsys.readouterr().err
    )
    assert main(["export-official", str(tmp_path / "run"), str(tmp_path / "back.bin")]) == 0
    same(read_weights(tmp_path / "back.bin"), state)
    assert main(["export-official", str(tmp_path / "none"), str(tmp_path / "x.bin")]) == 1


def test_the_tokenizer(file, tmp_path):
    from dasd_lab.backbone.tokens import train_tokenizer

    words = train_tokenizer(["ein Hund am Strand", "zwei Hunde", "犬と猫"] * 3, 40)
    words.save(tmp_path / "tokenizer.json")
    state = released()
    n = len(words)
    rows = torch.randn(n, 24)
    import_official(
        file(state | {"multilingual_embedding.weight": rows}), tmp_path / "run", tmp_path / "tokenizer.json"
    )
    assert load_run(tmp_path / "run").encode_captions(["ein Hund"], "de").shape == (1, E)
    with pytest.raises(LabError, match=f"a tokenizer of {n} pieces"):
        import_official(
            file(state | {"multilingual_embedding.weight": rows[:-1]}), tmp_path / "other", tmp_path / "tokenizer.json"
        )


def test_golden_case_there_and_back(case_path, tmp_path):
    "The reference checkpoint through files and commands; what comes back gives the stored features"
    case = json.loads(case_path.read_text(encoding="utf-8"))
    state = rebuilt(case["state_dict"])
    torch.save(state, tmp_path / "pytorch_model.bin")
    report = import_official(tmp_path / "pytorch_model.bin", tmp_path / "run")
    assert list(state) == [e["name"] for e in case["state_dict"]] and len(report.placed) + len(report.unused) == len(
        case["state_dict"]
    )
    run = load_run(tmp_path / "run")
    with np.load(case_path.with_suffix(".npz")) as z:
        arrays = {k: torch.from_numpy(z[k]) for k in ("target_ids", "target_eos", "r_T")}
    with torch.no_grad():
        found = run.features(arrays["target_ids"].long(), arrays["target_eos"].long(), case["config"]["language"])[
            "target_features"
        ]
    torch.testing.assert_close(found, arrays["r_T"], atol=5e-5, rtol=1e-5)
    export_official(tmp_path / "run", tmp_path / "back.bin")
    same(read_weights(tmp_path / "back.bin"), state)
