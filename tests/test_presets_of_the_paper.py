"""Presets of the paper's runs: each resolves, states the source of every setting, and plans with the paper's numbers

The counted parameters are those of the built method."""

import json
import re

import pytest
from tokenizers import Tokenizer, models

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.base.contracts import method_class
from dasd_lab.base.presets import list_presets, load_preset, plain, provenance, settings, vary
from dasd_lab.commands.cli import main
from dasd_lab.methods.dasd.encoder import DASDConfig
from dasd_lab.methods.dasd.official import official_config
from dasd_lab.training.parameters import (
    TowerConfig,
    method_shapes,
    parameters_by_part,
    part_of,
    tower_sizes,
)
from dasd_lab.training.plan import plan
from dasd_lab.training.recipes import (
    corpora_of,
    finetuning_of,
)
from dasd_lab.training.stages import Stage, needs_pictures, set_trainable

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


def test_video_runs_have_the_languages_of_table_2():
    video = [load_preset(name) for name in NAMES if "msrvtt" in name]
    assert {tuple(preset["languages"]) for preset in video} == {("de", "fr", "cs", "zh", "ru", "vi", "sw", "es")}
    assert all(provenance(preset)["languages"].startswith("paper, Table 2") for preset in video)


def test_presets_on_coco_hold_the_other_test_pictures_out():
    "Wherever a preset reads them: as its corpus, in a stage, in finetuning; SMALR's corpus has its own tests"
    read = {name: corpora_of(load_preset(name)) for name in list_presets() if load_preset(name).get("stages")}
    on_coco = {name: [c for c in corpora if c.startswith(("mscoco", "coco_cn"))] for name, corpora in read.items()}
    assert sum(map(bool, on_coco.values())) == 14
    assert {c for corpora in on_coco.values() for c in corpora} == {"mscoco:held_out=coco_cn", "mscoco_yj_cn"}


@pytest.mark.parametrize("name", [*NAMES, "dasd.paper", "dasd.official", "dasd.clip_from_text"])
def test_every_setting_has_its_source_and_every_source_a_setting(name):
    preset = load_preset(name)
    found = provenance(preset)
    for setting, source in found.items():
        explained = source.startswith("ours: ") and len(source) > 10
        assert explained or source.startswith(("paper", "released configuration")), (setting, source)
    assert not {"config", "stages", "config.adapter.*", "stages.*"} & set(preset["sources"])  # too general
    patterns = {k: re.compile(re.escape(k).replace(r"\*", "[^.]+") + r"(\.|$)") for k in preset["sources"]}
    assert found and not [k for k, pattern in patterns.items() if not any(map(pattern.match, found))]


@pytest.mark.parametrize("name", NAMES[:2])
def test_it_plans_without_data_and_weights(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    p = plan(name)
    form = name.rsplit("_", 1)[1]
    assert not p.ready and all(n.next_step for n in p.needs if not n.found)
    assert not any(tmp_path.iterdir())
    stages = [s.stage for s in p.stages]
    assert [(s.steps, s.batch_size, s.learning_rate) for s in stages] == [
        (45_000, 128, 2e-4),
        (6_000 if form == "paper" else 7_000, 128, 6e-6),
    ]
    assert [s.captions for s in p.stages] == [s.steps * 128 for s in stages]
    assert [needs_pictures(s) for s in stages] == [False, True]
    # the two norms that are never trained
    assert sum(p.parameters.values()) - sum(p.stages[0].trained.values()) == (2 * 2 * 512 if form == "official" else 0)
    text = str(p)
    for word in (
        "[missing] corpus",
        "open_clip ViT-B-",
        "119,547",
        "45,000 steps of 128",
        "adapters of all languages",
        "Memory: ",
    ):
        assert word in text, word
    assert ("English finetuning" in text) == ("finetune" in name) == ("rate 3e-06, cosine" in text)
    assert ("12 evenly spaced frames" in text) == ("msrvtt" in name)
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
            "multi30k_both",
        )
        assert phase.schedule == "cosine" and "cosine" in provenance(q)["finetuning.phases.0.schedule"]
    assert load_preset("dasd.cc300k_zero_shot_official")["languages"] == ["ja"] and load_preset(
        "dasd.cc300k_zero_shot_official"
    )["stage_corpora"] == {"cross_modal_alignment": "mscoco:held_out=coco_cn"}
    assert (
        load_preset("dasd.cc300k_zero_shot_paper")["languages"] == list(FIVE)
        and p["languages"] == ["de", "fr", "cs"]
        and load_preset("dasd.msrvtt_finetune_paper")["frames"] == 12
    )


def test_the_official_form_is_that_of_the_checkpoints():
    preset = load_preset("dasd.cc300k_zero_shot_official")
    assert settings(DASDConfig, preset["config"] | dict(languages=["ja"])) == official_config(["ja"])


@pytest.mark.parametrize("name", ["dasd.paper", "dasd.official", "dasd.pictograms", "static_adapter.pictograms"])
def test_counted_is_built(name):
    "A small built model has the parameters that are counted without memory"
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
    shapes = method_shapes(preset, ["de", "fr"], tower_sizes(TowerConfig("open_clip", cfg)))
    assert {n: p.shape for n, p in shapes.named_parameters()} == {
        n: p.shape for n, p in built.named_parameters() if not n.startswith("backbone.")
    }
    assert parameters_by_part(shapes) == parameters_by_part(built)
    for d in preset["stages"]:
        s = settings(Stage, d)
        opened = set_trainable(built, s.trained_parts)
        counted = parameters_by_part(built, opened)
        assert parameters_by_part(shapes, set_trainable(shapes, s.trained_parts)) == counted
        assert sum(p.numel() for p in built.parameters() if p.requires_grad) == sum(counted.values())
    assert {part_of(n) for n in opened} <= set(parameters_by_part(built))


def test_a_plan_on_what_training_opens(capsys, tmp_path, monkeypatch):
    "A folder of transformers; of models that are not here, the sizes if they are known, or how to get them"
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    vision = dict(sizes, image_size=32, patch_size=16)
    config = ChineseCLIPConfig(text_config=dict(sizes, vocab_size=100), vision_config=vision, projection_dim=24)
    ChineseCLIPModel(config).save_pretrained(tmp_path / "model")
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "model/tokenizer.json"))
    command = ["train", "dasd.pictograms", "--dry-run", "--set", "stages.0.batch_size=8", "--backbone"]
    assert main([*command, str(tmp_path / "model"), "--set", "stages.1.batch_size=8"]) == 0
    out = capsys.readouterr().out
    assert "[found] backbone model: loaded and verified" in out and "Memory: " in out
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "none"))
    assert main([*command, "chinese-clip-vit-b-16"]) == 1
    assert "dasd-lab weights get chinese-clip-vit-b-16" in capsys.readouterr().err
