"""Checkpoint files of the authors' code: import and export with both generations of names, and rejected files"""

import pytest
import torch

from dasd_lab.backbone.open_clip import clip_tokenizer
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import read_tensors, read_weights
from dasd_lab.commands.cli import main
from dasd_lab.methods.dasd.encoder import DASD
from dasd_lab.methods.dasd.official import official_config, to_official
from dasd_lab.runs.exchange import export_official, import_official
from dasd_lab.runs.loading import load_run

D = 64
E = 32
LANGUAGES = ("de", "ja")
OLDER = (("sr_projection", "mu_projection"), ("mlp_sr", "mlp_mu"), ("mlp_sa", "mlp_sigma"))


def released(generation="current"):
    "A small state dict with the authors' names, which `test_official_parity` compares with theirs"
    cfg = dict(
        embed_dim=E,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, layers=2, width=64, patch_size=4, head_width=64),
        text_cfg=dict(context_length=77, vocab_size=49408, width=D, heads=1, layers=2),
    )
    torch.manual_seed(0)
    method = DASD(official_config(LANGUAGES, 24, 4, 16, (12, 6)), Backbone(build_clip(cfg), clip_tokenizer(), cfg), 40)
    shapes = {"target_projection": (D, E), "sigma_projection": (D, E)}
    for language in LANGUAGES:
        name = f"transformer.resblocks.0.acquirer.{language}"
        shapes |= {f"{name}.mlp_sr.c_fc.weight": (8, D), f"{name}.mlp_sa.c_fc.weight": (8, D), f"{name}.ln.bias": (D,)}
    state = {name: torch.randn(shape) for name, shape in shapes.items()} | to_official(method)
    if generation == "older":
        for new, old in OLDER:
            state = {name.replace(new, old): tensor for name, tensor in state.items()}
    return state


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


@pytest.mark.parametrize(
    "wrong,message",
    [
        (lambda s: s | dict(stranger=torch.ones(1)), "stranger"),
        (lambda s: s | dict(epoch=3), "cannot be used"),
        (lambda s: [s], "list"),
        (lambda s: {k: v.double() for k, v in s.items()}, "float64"),
        (lambda s: {}, "without weights"),
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
    for part in ("tensors placed", "never applies", "not requested", "--tokenizer"):
        assert part in err
    assert main(["import-official", path, "--out", str(tmp_path / "run")]) == 1
    assert "already" in capsys.readouterr().err
    assert main(["import-official", path, "--out", str(tmp_path / "other"), "--languages", "cs"]) == 1
    assert "['de', 'ja']" in capsys.readouterr().err
    assert main(["export-official", str(tmp_path / "run"), str(tmp_path / "back.bin")]) == 0
    same(read_weights(tmp_path / "back.bin"), state)
    assert main(["export-official", str(tmp_path / "none"), str(tmp_path / "x.bin")]) == 1


def test_the_tokenizer(file, tmp_path):
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
