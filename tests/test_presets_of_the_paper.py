"""Presets that repeat the paper's runs: each resolves, says where every setting is from, and plans with the paper's numbers; what is counted is what is built"""

import json

import pytest
import torch

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.cli import main
from dasd_lab.contracts import LabError, method_class
from dasd_lab.dasd.encoder import DASDConfig
from dasd_lab.dasd.official import official_config, official_stages
from dasd_lab.presets import KEYS, PRESET_FOLDER, list_presets, load_preset, plain, provenance, settings, vary
from dasd_lab.training.parameters import (
    TowerSizes,
    idle_parameters,
    method_shapes,
    parameters_by_part,
    part_of,
    tower_config,
    tower_sizes,
)
from dasd_lab.training.plan import plan
from dasd_lab.training.recipes import finetuning_of, train
from dasd_lab.training.stages import Stage, set_trainable

RUNS = (
    "cc300k_zero_shot",
    "mscoco_zero_shot",
    "multi30k_finetune",
    "multi30k_finetune_cc300k",
    "mscoco_finetune",
    "mscoco_finetune_cc300k",
    "msrvtt_zero_shot",
    "msrvtt_finetune",
)
FORMS = ("paper", "official")
NAMES = [f"dasd.{run}_{form}" for run in RUNS for form in FORMS]
FIVE = ("de", "fr", "cs", "zh", "ja")


def test_there_is_a_preset_for_every_run_in_both_forms():
    assert set(NAMES) <= set(list_presets()) and {
        n for n in list_presets() if n.startswith("dasd.") and load_preset(n).get("token_vectors")
    } == set(NAMES)


def test_runs_are_differences_and_no_copies():
    for n in NAMES:
        own = json.loads((PRESET_FOLDER / f"{n}.json").read_text(encoding="utf-8"))
        assert own["base"] in list_presets() and not {"config", "stages", "method"} & set(own), n
        assert {k.split(".")[0] for k in own} <= set(KEYS)


@pytest.mark.parametrize("name", [*NAMES, "dasd.paper", "dasd.official"])
def test_every_setting_has_its_source(name):
    found = provenance(load_preset(name))
    assert found and not (silent := [k for k, v in found.items() if not v]), silent
    for k, v in found.items():
        assert v.startswith(("paper", "released configuration")) or v.startswith("ours: ") and len(v) > 10, (k, v)
    assert not any(k in ("config", "stages", "config.adapter.*", "stages.*") for k in load_preset(name)["sources"]), (
        "a source for everything says nothing"
    )


@pytest.mark.parametrize("name", [*NAMES, "dasd.paper", "dasd.official"])
def test_no_source_is_for_nothing(name):
    preset = load_preset(name)
    names = [k.split(".") for k in provenance(preset)]

    def used(pattern):
        return any(len(pattern) <= len(n) and all(a in ("*", b) for a, b in zip(pattern, n)) for n in names)

    assert not [k for k in preset["sources"] if not used(k.split("."))]


@pytest.mark.parametrize("name", NAMES)
def test_it_plans_without_data_and_weights(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    p = plan(name, measure=False)
    form = name.rsplit("_", 1)[1]
    assert (
        not p.ready
        and all(n.next_step for n in p.needs if not n.found)
        and p.seconds is None
        and not any(tmp_path.iterdir())
    )
    assert [(s.steps, s.batch_size, s.learning_rate) for s in p.stages] == [
        (45_000, 128, 2e-4),
        (6_000 if form == "paper" else 7_000, 128, 6e-6),
    ]
    assert [s.captions for s in p.stages] == [s.steps * 128 for s in p.stages] and [s.pictures for s in p.stages] == [
        False,
        True,
    ]
    # the two norms that never learn
    assert sum(p.parameters.values()) - p.trained == (2 * 2 * 512 if form == "official" else 0)
    text = str(p)
    for word in (
        "[missing] corpus",
        "open_clip ViT-B-",
        "119,547",
        "45,000 steps of 128",
        "adapters of all languages",
        "Memory: ",
        "Time: not known",
        "134 M in the paper",
    ):
        assert word in text, word
    assert ("English finetuning" in text) == ("finetune" in name) and ("12 frames" in text) == ("msrvtt" in name)
    assert json.dumps(plain(p))


def test_the_papers_numbers():
    p, o = (load_preset(f"dasd.multi30k_finetune_{f}") for f in FORMS)
    assert [t["weight"] for t in p["stages"][0]["terms"][1:]] == [0.1, 1.0] and p["stages"][1]["terms"][0]["options"][
        "temperature"
    ] == 0.01
    assert [s["critic"]["learning_rate"] for s in p["stages"]] == [2e-4, 6e-6] and [
        s["critic"]["learning_rate"] for s in o["stages"]
    ] == [1e-4] * 2
    assert [s["optimizer"] for s in p["stages"] + o["stages"]] == ["adam"] * 2 + ["bert_adam"] * 2 and all(
        s["warmup"] == 0.1 for s in p["stages"] + o["stages"]
    )
    for q in (p, o):
        (phase,) = finetuning_of(q).phases
        assert (phase.epochs, phase.learning_rate, phase.trains, finetuning_of(q).corpus) == (
            5,
            3e-6,
            ("visual", "text"),
            "multi30k",
        )
    assert load_preset("dasd.cc300k_zero_shot_official")["languages"] == ["ja"] and load_preset(
        "dasd.cc300k_zero_shot_official"
    )["stage_corpora"] == {"cross_modal_alignment": "mscoco"}
    assert (
        load_preset("dasd.cc300k_zero_shot_paper")["languages"] == list(FIVE)
        and p["languages"] == ["de", "fr", "cs"]
        and load_preset("dasd.msrvtt_finetune_paper")["frames"] == 12
    )


def test_the_official_form_is_that_of_the_checkpoints():
    preset = load_preset("dasd.cc300k_zero_shot_official")
    assert settings(DASDConfig, preset["config"] | dict(languages=["ja"])) == official_config(["ja"])
    assert [settings(Stage, s) for s in preset["stages"]] == [settings(Stage, s) for s in official_stages()]


def test_counted_beside_the_papers_134_million():
    sizes = tower_sizes(tower_config(load_preset("dasd.cc300k_zero_shot_paper")))
    assert sizes == TowerSizes(512, 512, 12, 77)
    ours = {
        f: {
            k: v
            for k, v in parameters_by_part(
                method_shapes(load_preset(f"dasd.cc300k_zero_shot_{f}"), FIVE, sizes)
            ).items()
            if k != "disentangler: norms"
        }
        for f in FORMS
    }
    assert (
        round(sum(ours["official"].values()) / 1e6, 1) == 101.6
        and round((sum(ours["official"].values()) + idle_parameters(sizes, 5)) / 1e6, 1) == 133.7
    )
    # another projection, A^sr and A^sa once a language, one output of the critic less
    assert sum(ours["paper"].values()) - sum(ours["official"].values()) == (768 + 1) * 512 + 5 * 2 * (
        513 * 256 + 257 * 512
    ) - (128 + 1)


@pytest.mark.parametrize("name", ["dasd.paper", "dasd.official", "dasd.pictograms", "static_adapter.pictograms"])
def test_counted_is_built(name):
    "A model of a few thousand parameters, built for real, has what the same count says without memory"
    preset = vary(load_preset(name), {"vocab_size": 60, "config.token_width": 24, "config.adapter.bottleneck": 4})
    cfg = dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, patch_size=8, width=64, head_width=64, layers=1),
        text_cfg=dict(context_length=20, vocab_size=70, width=64, heads=1, layers=3),
    )
    backbone = Backbone(build_clip(cfg), train_tokenizer(["a b c"] * 3, 40), cfg)
    cls = method_class(preset["method"])
    built = cls(settings(cls.config_class, preset["config"] | dict(languages=["de", "fr"])), backbone, 60)
    shapes = method_shapes(preset, ["de", "fr"], tower_sizes(cfg))
    assert {n: p.shape for n, p in shapes.named_parameters()} == {
        n: p.shape for n, p in built.named_parameters() if not n.startswith("backbone.")
    }
    assert parameters_by_part(shapes) == parameters_by_part(built)
    for d in preset["stages"]:
        s = settings(Stage, d)
        parts = (*s.trains, *(["critic"] if s.critic else []))
        opened = set_trainable(built, parts)
        assert parameters_by_part(shapes, set_trainable(shapes, parts)) == parameters_by_part(built, opened) and sum(
            p.numel() for p in built.parameters() if p.requires_grad
        ) == sum(parameters_by_part(built, opened).values())
    assert {part_of(n) for n in opened} <= set(parameters_by_part(built))


def test_a_training_of_such_a_preset_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(LabError):
        train("dasd.cc300k_zero_shot_paper", progress=False)
    with pytest.raises(LabError, match="MSRVTT_data.json"):
        train(
            vary(load_preset("dasd.msrvtt_finetune_paper"), dict(backbone=None, source_model="two_tower.pictograms")),
            progress=False,
        )
    with pytest.raises(LabError, match="no cc300k.json in"):
        train(
            vary(load_preset("dasd.cc300k_zero_shot_paper"), dict(backbone=None, source_model="two_tower.pictograms")),
            progress=False,
        )


def test_such_a_preset_trains_where_everything_is_there(tmp_path, monkeypatch):
    "In small: weights imported under the name that the preset asks for, a corpus as a folder of that name, a published tower as a folder"
    from PIL import Image

    from dasd_lab.backbone.towers import save_backbone
    from dasd_lab.backbone.weights import import_weights
    from dasd_lab.corpora.catalog import corpus_named
    from dasd_lab.storage import write_tensors
    from dasd_lab.training.recipes import new_method, training_data

    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    words = train_tokenizer(["ein rotes Feld", "un champ rouge", "a red field"] * 9, 90)
    download = tmp_path / "download"
    download.mkdir()
    words.save(download / "tokenizer.json")
    (download / "config.json").write_text("{}")
    rows = torch.randn(len(words), 12)
    write_tensors({"bert.embeddings.word_embeddings.weight": rows}, download / "model.safetensors")
    import_weights("mbert", download)
    captions = []
    for corpus in ("cc300k", "mscoco"):
        (tmp_path / corpus / "train").mkdir(parents=True)
        captions = []
        for i in range(12):
            Image.new("RGB", (16, 16), (20 * i, 90, 40)).save(tmp_path / corpus / f"train/{i:02}.png")
            captions += [
                dict(
                    text=f"{word} {i}",
                    language=language,
                    visual_id=f"{i:02}",
                    origin="human" if language == "en" else "mt",
                )
                for language, word in dict(en="field", de="Feld", fr="champ", ja="畑").items()
            ]
        (tmp_path / corpus / "train.jsonl").write_text("".join(json.dumps(c) + "\n" for c in captions))
    cfg = dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, patch_size=8, width=64, head_width=64, layers=1),
        text_cfg=dict(context_length=20, vocab_size=len(words), width=64, heads=1, layers=3),
    )
    save_backbone(Backbone(build_clip(cfg), words, cfg), tmp_path / "tower")
    for name in (
        "dasd.cc300k_zero_shot_paper",
        "dasd.cc300k_zero_shot_official",
        "dasd.mscoco_finetune_cc300k_official",
    ):
        languages = ["ja"] if "zero_shot_official" in name else ["de", "fr"]
        small = vary(
            load_preset(name),
            {
                "token_vectors.n_tokens": len(words),
                "config.token_width": 12,
                "backbone": dict(folder=str(tmp_path / "tower")),
                "languages": languages,
                **{f"stages.{i}.{k}": v for i in (0, 1) for k, v in dict(steps=2, batch_size=6).items()},
            },
        )
        if "finetune" in name:
            small = vary(small, {"finetuning.phases.0.batch_size": 6})
        assert plan(small, measure=False).ready, str(plan(small, measure=False))
        run = train(small, out=tmp_path / name, progress=False)
        assert run.method.encode_captions(["Feld 3"], languages[0]).isfinite().all() and run.card["corpus"] == "cc300k"
    made = new_method(
        small, training_data(corpus_named("cc300k"), ["de", "fr"], run.method.backbone), run.method.backbone
    )
    assert torch.equal(made.token_vectors.embedding.weight, rows)
    with pytest.raises(LabError, match=f"{len(words)} pieces"):
        train(vary(small, {"token_vectors.n_tokens": 5}), progress=False)


def test_dry_run_of_a_preset(capsys, tmp_path):
    small = tmp_path / "small.json"
    small.write_text(
        json.dumps({"base": "dasd.pictograms", "vocab_size": 200, "stages.0.steps": 7, "languages": ["de"]})
    )
    assert main(["train", str(small), "--dry-run", "--set", "stages.1.steps=3"]) == 0
    out = capsys.readouterr().out
    for word in ("7 steps of 64: 448 captions", "3 steps of 64", "s a step", "Memory: ", "on this processor"):
        assert word in out, word
    assert main(["train", str(small), "--dry-run", "--captions", "x.tsv"]) == 1
    assert main(["train", "dasd.none", "--dry-run"]) == 1


def test_time_is_not_promised_where_memory_is_short(monkeypatch):
    from dasd_lab.training import plan as module

    monkeypatch.setattr(module, "free_bytes", lambda: 10**6)
    p = plan("dasd.pictograms")
    assert p.seconds is None and "are free" in p.time_not_known and "Time: not known" in str(p)
