"Tables of ablations: run, interrupted, continued, and refused for other settings"

import json
from dataclasses import replace

import pytest
from squares import FEW_WORDS, SOURCE, TINY, Squares

from dasd_lab.backbone.towers import save_backbone
from dasd_lab.cli import main
from dasd_lab.contracts import LabError
from dasd_lab.evaluation import tables
from dasd_lab.evaluation.tables import TABLES, read_runs, run_backbones, run_table
from dasd_lab.presets import load_preset, vary
from dasd_lab.training.source_model import train_source

BERT = dict(
    model_type="bert",
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
)
SHORT = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})


@pytest.fixture(scope="module")
def backbone():
    return train_source(SOURCE, Squares(), progress=False)


def ignore(message):
    "A report that prints nothing"


ONE_SEED = dict(seeds=(0,), split="train", report=ignore)


@pytest.mark.parametrize("key", [k for k in TABLES["dasd"] if k != "methods"])
def test_every_variant_runs_and_differs(backbone, tmp_path, key):
    found = run_table(key, SHORT, Squares(), backbone, tmp_path / "t.jsonl", **ONE_SEED)
    rows = read_runs(tmp_path / "t.jsonl")
    assert list(found.index) == list(TABLES["dasd"][key].variants(SHORT, backbone)) == [r["variant"] for r in rows]
    assert all(0 <= r["mean_recall"] <= 1 for r in rows)
    if key == "4":
        full, small, large, _ = (r["parameters"] for r in rows)
        one_unit = 2 * (2 * backbone.width + 1)  # of the bottleneck, in each of two blocks
        assert small < full and abs(full - large) <= one_unit


def test_every_variant_of_leccr_runs_and_differs(backbone, tmp_path):
    "One file for all of its tables"
    preset = vary(
        load_preset("leccr.pictograms"),
        {
            "languages": ["de"],
            "vocab_size": 120,
            "config.text": dict(encoder=BERT, max_tokens=32),
            "config.embed_dim": 16,
            "config.block.heads": 2,
            "stages.0.steps": 3,
            "stages.0.batch_size": 8,
        },
    )
    found = run_table("all", preset, Squares(), backbone, tmp_path / "t.jsonl", **ONE_SEED)
    rows = {r["variant"]: r for r in read_runs(tmp_path / "t.jsonl")}
    tables = TABLES["leccr"]
    every = {variant for table in tables.values() for variant in table.variants(preset, backbone)}
    assert list(found.index) == list(rows) == list(tables["all"].variants(preset, backbone))
    assert set(rows) == every - {"no guidance"}
    size = {v: r["parameters"] for v, r in rows.items()}
    assert (
        size["baseline"]
        < size["slots read vision (V2C)"]
        == size["vision reads slots (C2V)"]
        == size["co-attention"]
        < size["LECCR"]
        == size["guided by S_g alone"]
        < size["8 slots"]
    )


SMALR = FEW_WORDS | {
    "languages": ["de"],
    "config.latent.margin": 9.0,  # that any warm-up meets
    "config.embed_dim": 8,
    "config.image_hidden": 8,
    "config.gru_width": 8,
}
for i in range(3):
    SMALR |= {f"stages.{i}.steps": 3, f"stages.{i}.batch_size": 8, f"stages.{i}.until": 0.0}


def test_every_variant_of_smalr_runs_and_differs(backbone, tmp_path):
    "One file for all of its tables; the number of parameters shows what each variant lacks"
    preset = vary(load_preset("smalr.pictograms"), SMALR)
    found = run_table("all", preset, Squares(), backbone, tmp_path / "t.jsonl", **ONE_SEED)
    size = {r["variant"]: r["parameters"] for r in read_runs(tmp_path / "t.jsonl")}
    assert list(found.index) == list(size) == list(TABLES["smalr"]["all"].variants(preset, backbone))
    assert (
        size["shared entries alone (LA)"] < size["without masked words (HEM)"] < size["SMALR"]
        and size["LA without exploration"] <= size["without masked words (HEM)"]
    )
    assert (
        size["MULE, PCA to 1"] < size["MULE, PCA to 2"] < size["every word its own vector (MULE)"]
        and size["MULE, dictionary below 20"] < size["every word its own vector (MULE)"]
    )


def test_the_methods_run_on_one_file(backbone, tmp_path, monkeypatch):
    "Small presets of the other methods, each trained by its own stages"
    small = {
        "leccr.pictograms": {
            "languages": ["de"],
            "config.text": dict(encoder=BERT, max_tokens=32),
            "config.embed_dim": 16,
            "config.block.heads": 2,
        },
        "smalr.pictograms": SMALR,
    }
    monkeypatch.setattr(tables, "load_preset", lambda n: vary(load_preset(n), small.get(n, {})))
    found = run_table("methods", SHORT, Squares(), backbone, tmp_path / "t.jsonl", **ONE_SEED)
    assert list(found.index)[:3] == ["DASD", "static adapter", "LECCR"]
    assert sum("SMALR" in n for n in found.index) == 2
    assert found.loc["DASD", "seeds"] == 1
    frozen = found.loc["the frozen tower, without training"]
    assert frozen["parameters"] == 0 and frozen["mean_recall"] >= 0, "the baseline of the table"


def test_it_continues_where_it_stopped(backbone, tmp_path, monkeypatch):
    out = tmp_path / "t.jsonl"
    seeds = []
    real_train = tables.train

    def counted(*args, **options):
        seeds.append(options["seed"])
        if len(seeds) == 4:
            raise KeyboardInterrupt
        return real_train(*args, **options)

    monkeypatch.setattr(tables, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        run_table("5", SHORT, Squares(), backbone, out, seeds=(0, 1), split="train", report=ignore)
    assert len(read_runs(out)) == 3
    out.write_text(out.read_text() + '{"table": "5", "var')  # a line that was cut off
    found = run_table("5", SHORT, Squares(), backbone, out, seeds=(0, 1), split="train", report=ignore)
    assert len(seeds) == 7 and len(read_runs(out)) == 6
    assert (found["seeds"] == 2).all()
    assert all(json.loads(line) for line in out.read_text().splitlines())
    before = out.read_bytes()
    run_table("5", SHORT, Squares(), backbone, out, seeds=(0, 1), split="train")
    assert out.read_bytes() == before and len(seeds) == 7
    with pytest.raises(LabError, match="another preset"):
        run_table("5", SHORT, Squares(), backbone, out, seeds=(0,), split="train", changes={"stages.0.steps": 4})
    with pytest.raises(LabError, match="another table"):
        run_table("6", SHORT, Squares(), backbone, out, seeds=(0,), split="train")


def test_on_two_backbones(backbone, tmp_path):
    "One from memory, one from its folder; each has a file of its own"
    other = train_source(SOURCE, Squares(), seed=1, progress=False)
    save_backbone(other, tmp_path / "kept")
    backbones = dict(one=backbone, two=tmp_path / "kept")
    found = run_backbones("3", SHORT, Squares(), backbones, tmp_path / "t.jsonl", **ONE_SEED)
    assert list(found.index) == [(b, v) for b in ("one", "two") for v in ("DASD", "static adapter")]
    assert found.index.names == ["backbone", "variant"]
    assert len({r["backbone"] for n in ("one", "two") for r in read_runs(tmp_path / f"t_{n}.jsonl")}) == 2
    with pytest.raises(LabError, match="another backbone"):
        run_table("3", SHORT, Squares(), backbone, tmp_path / "t_two.jsonl", **ONE_SEED)


class Tested(Squares):
    "The same squares with a test split"

    splits = "train", "test"

    def _captions(self, split, language):
        return [replace(c, origin="human") if split == "test" else c for c in super()._captions(split, language)]


def test_the_command(backbone, tmp_path, capsys, monkeypatch):
    "dasd-lab table, on one backbone and on two"
    monkeypatch.setattr("dasd_lab.corpora.catalog.load_corpus", lambda name, **_: Tested())
    (tmp_path / "tiny.json").write_text(json.dumps(SHORT))
    for name in ("one", "two"):
        save_backbone(backbone, tmp_path / name / "backbone")

    def table(*arguments):
        command = ["table", "3", "--preset", str(tmp_path / "tiny.json"), "--seeds", "0"]
        assert main([*command, "--out", str(tmp_path / "t.jsonl"), *arguments]) == 0
        return capsys.readouterr().out

    one = table("--backbone", str(tmp_path / "one/backbone"))
    assert "static adapter" in one and len(read_runs(tmp_path / "t.jsonl")) == 2
    both = table("--backbone", f"{tmp_path}/one/backbone,{tmp_path}/two/backbone")
    assert "one" in both and "two" in both and (tmp_path / "t_one.jsonl").exists()
    save_backbone(backbone, tmp_path / "again/one/backbone")
    assert main(["table", "3", "--backbone", f"{tmp_path}/one/backbone,{tmp_path}/again/one/backbone"]) == 1
    assert "one name" in capsys.readouterr().err
