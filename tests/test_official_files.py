"""Checkpoint files of the authors' code: import and export with both generations of names, and rejected files"""

import json
import re

import numpy as np
import pytest
import torch
from test_official_parity import rebuilt

from dasd_lab.backbone.open_clip import clip_tokenizer
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import read_tensors, read_weights
from dasd_lab.commands.cli import main
from dasd_lab.runs.exchange import export_official, import_official
from dasd_lab.runs.loading import load_run

ENGLISH = clip_tokenizer()
D = 64
E = 32
V = 64
Z = 16
H = 4
K = 2
LANGUAGES = ("de", "ja")


class Checkpoint(dict):
    "Random tensors with the authors' names"

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, name, *shape):
        self[name] = torch.randn(shape, generator=self.generator) * 0.1

    def linear(self, name, width_out, width_in):
        self.add(f"{name}.weight", width_out, width_in)
        self.add(f"{name}.bias", width_out)

    def norm(self, name, width):
        self[f"{name}.weight"] = 1 + 0.1 * torch.randn(width, generator=self.generator)
        self.add(f"{name}.bias", width)

    def block(self, name, width):
        self.add(f"{name}.attn.in_proj_weight", 3 * width, width)
        self.add(f"{name}.attn.in_proj_bias", 3 * width)
        self.linear(f"{name}.attn.out_proj", width, width)
        self.norm(f"{name}.ln_1", width)
        self.linear(f"{name}.mlp.c_fc", 4 * width, width)
        self.linear(f"{name}.mlp.c_proj", width, 4 * width)
        self.norm(f"{name}.ln_2", width)

    def adapter(self, name):
        self.linear(f"{name}.mlp_beforez.c_fc", H, D)
        self.linear(f"{name}.mlp_afterz.c_proj2", D, H)
        for branch in ("sr", "sa"):
            self.linear(f"{name}.mlp_{branch}.c_fc", 8, D)
            self.linear(f"{name}.mlp_{branch}.c_proj", D, 8)
        self.norm(f"{name}.ln", D)

    def image_tower(self):
        self.add("visual.class_embedding", V)
        self.add("visual.positional_embedding", 17, V)
        self.add("visual.proj", V, E)
        self.add("visual.conv1.weight", V, 3, 4, 4)
        self.norm("visual.ln_pre", V)
        for i in range(2):
            self.block(f"visual.transformer.resblocks.{i}", V)
        self.linear("visual.transformer.zi_adapter_student.c_fc1", Z, E + D)
        self.norm("visual.ln_post", V)

    def text_tower(self):
        for i in range(K):
            block = f"transformer.resblocks.{i}"
            self.block(block, D)
            self.linear(f"{block}.mlp_zi.c_fc1", H * H, Z)
            for language in LANGUAGES:
                self.adapter(f"{block}.acquirer.{language}")
        self.linear("transformer.zi_adapter_student.c_fc1", Z, E + D)


def older_name(name):
    "The name of a tensor before August 2024"
    name = name.replace("sr_projection", "mu_projection")
    return name.replace("mlp_sr", "mlp_mu").replace("mlp_sa", "mlp_sigma")


def released(seed=0, generation="current", n=49408):
    "A small state dict in the authors' order (golden README, section 2); 49,408 and 77 are CLIP's sizes"
    state = Checkpoint(seed)
    state.add("positional_embedding", 77, D)
    for name in ("text", "target"):
        state.add(f"{name}_projection", D, E)
    state.add("logit_scale")
    for name in ("sr", "sigma"):
        state.add(f"{name}_projection", D, E)
    state.image_tower()
    state.text_tower()
    state.add("token_embedding.weight", n, D)
    for name in ("final", "mu", "sigma"):
        state.norm(f"ln_{name}", D)
    for j, (width_out, width_in) in zip((0, 2, 4), ((12, D + E), (6, 12), (2, 6))):
        state.linear(f"AdvAgent.discriminator.model.{j}", width_out, width_in)
    state.add("multilingual_embedding.weight", 40, 24)
    state.linear("multilingual_embedding_linear", D, 24)
    if generation == "current":
        return dict(state)
    return {older_name(name): tensor for name, tensor in state.items()}


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
    assert run.languages == LANGUAGES
    if generation == "current":
        projection = state["sr_projection"]
        remarks = 0
    else:
        projection = state["mu_projection"]
        remarks = 2
    assert torch.equal(run.disentangler.related_projection.weight.T, projection)
    assert set(report.placed) | set(report.unused) == set(state)
    assert len(report.remarks) == remarks
    assert set(read_tensors(tmp_path / "run/official/unused.safetensors")) == set(report.unused)
    weights = read_tensors(tmp_path / "run/method/model.safetensors")
    assert not any("mlp_s" in name or "sigma_projection" in name for name in weights)
    export_official(tmp_path / "run", tmp_path / "back.bin")
    same(read_weights(tmp_path / "back.bin"), state)


UNCHECKED = re.compile(
    r"resblocks\.1|logit_scale|target_projection|sigma_projection|mlp_s[ra]|\.ln\.|visual\.transformer\.zi"
)
FREE_LENGTH = ("token_embedding.weight", "multilingual_embedding.weight", "positional_embedding")


@pytest.mark.parametrize(
    "wrong,message",
    [
        (lambda s: s | dict(stranger=torch.ones(1)), "stranger"),
        (lambda s: s | dict(epoch=3), "other things than tensors"),
        (lambda s: [s], "list"),
        (lambda s: {k: v.double() for k, v in s.items()}, "float64"),
        (lambda s: {}, "other things"),
    ],
    ids=["stranger", "number", "list", "double", "empty"],
)
def test_what_is_refused(file, tmp_path, wrong, message):
    with pytest.raises(LabError, match=message):
        import_official(file(wrong(released())), tmp_path / "run")


def test_the_commands(file, tmp_path, capsys):
    state = released()
    path = str(file(state))
    assert main(["import-official", path, "--out", str(tmp_path / "run"), "--languages", "ja"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(tmp_path / "run")
    for part in ("used: ", "never applies", "not requested", "--tokenizer"):
        assert part in err
    assert main(["import-official", path, "--out", str(tmp_path / "run")]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["import-official", path, "--out", str(tmp_path / "other"), "--languages", "cs"]) == 1
    assert "['de', 'ja']" in capsys.readouterr().err
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
    state["multilingual_embedding.weight"] = rows
    import_official(file(state), tmp_path / "run", tmp_path / "tokenizer.json")
    assert load_run(tmp_path / "run").encode_captions(["ein Hund"], "de").shape == (1, E)
    state["multilingual_embedding.weight"] = rows[:-1]
    with pytest.raises(LabError, match=f"a tokenizer with {n} tokens"):
        import_official(file(state), tmp_path / "other", tmp_path / "tokenizer.json")


@pytest.fixture
def nothing_drawn(monkeypatch):
    "New modules begin with NaN, which costs less than random values; all that is used is then read from files"
    monkeypatch.setattr(torch.Tensor, "normal_", lambda tensor, *_, **__: tensor.fill_(torch.nan))


@pytest.mark.usefixtures("nothing_drawn")
def test_golden_case_there_and_back(case_path, tmp_path):
    "The reference checkpoint, imported and exported again, gives the stored features"
    case = json.loads(case_path.read_text(encoding="utf-8"))
    state = rebuilt(case["state_dict"])
    torch.save(state, tmp_path / "pytorch_model.bin")
    report = import_official(tmp_path / "pytorch_model.bin", tmp_path / "run")
    assert list(state) == [entry["name"] for entry in case["state_dict"]]
    assert len(report.placed) + len(report.unused) == len(state)
    run = load_run(tmp_path / "run")
    with np.load(case_path.with_suffix(".npz")) as z:
        arrays = {k: torch.from_numpy(z[k]) for k in ("target_ids", "target_eos", "r_T")}
    ids = arrays["target_ids"].long()
    end_index = arrays["target_eos"].long()
    with torch.no_grad():
        features = run.features(ids, end_index, case["config"]["language"])
    torch.testing.assert_close(features["target_features"], arrays["r_T"], atol=5e-5, rtol=1e-5)
    export_official(tmp_path / "run", tmp_path / "back.bin")
    same(read_weights(tmp_path / "back.bin"), state)
