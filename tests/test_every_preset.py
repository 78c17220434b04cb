"""Every preset opens, loads weights of its layout, and takes a step of each of its stages on a corpus of its layout

Weights are random, in the files, names and shapes of the published ones; a tower that several presets name is opened
once. Towers, vocabularies, adapters and encoders have their real sizes. Smaller are: the corpora, with eight images or
clips; the batches, of four, in English finetuning of two; and XLM-R-large, of whose 24 layers two are built, since
weights, gradients and optimizer of all of them would need 9 GB. SMALR's warm-up of a step is not refused, and the
projection of frozen token vectors, which is fitted to English words, is learnt."""

import gc
import json
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from string import ascii_lowercase, digits

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from test_published_video import write_clip
from tokenizers import Tokenizer, models, pre_tokenizers

from dasd_lab.backbone import weights as weights_module
from dasd_lab.backbone.open_clip import registry_config
from dasd_lab.backbone.text_encoders import build_encoder
from dasd_lab.backbone.towers import build_clip
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.presets import list_presets, load_preset, vary
from dasd_lab.corpora.catalog import corpus_named
from dasd_lab.methods.smalr import encoder as smalr
from dasd_lab.training import plan, recipes

PRESETS = {name: load_preset(name) for name in list_presets()}
LANGUAGES = ["en", *sorted({code for preset in PRESETS.values() for code in preset.get("languages") or ()})]
NUMBERS = np.random.default_rng(0)


def write_corpus(folder, clips, n):
    "Eight images, or clips of 20 frames, each with n captions by people and n by machine; in English, descriptions"
    (folder / "train").mkdir(parents=True)
    lines = []
    for name in map(str, range(8)):
        if clips:
            write_clip(folder / f"train/{name}.mp4", 20)
        else:
            Image.fromarray(NUMBERS.integers(0, 256, (48, 64, 3), np.uint8)).save(folder / f"train/{name}.png")
        for language in LANGUAGES:
            for origin in ("human", "mllm" if language == "en" else "mt") * n:
                text = " ".join(f"{language}{word}" for word in NUMBERS.integers(0, 30, 8))
                lines.append(dict(text=f"{text} {name}", language=language, visual_id=name, origin=origin))
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_tokenizer(file, names, n):
    "A tokenizer of n pieces that spells letter by letter; the last of the special tokens is the unknown one"
    letters = ascii_lowercase + digits
    pieces = [*names, *letters, *(f"##{letter}" for letter in letters), *(f"unused{i}" for i in range(n))][:n]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token=names[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(file))


@lru_cache
def write_weights(name, download, network, encoder="", n_tokens=0):
    "Random weights in the files of a model of the catalogue"
    download.mkdir()
    if encoder:
        config = json.loads(encoder)
        names = ["<s>", "<pad>", "</s>", "<unk>"] if config["pad_token_id"] else ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
        write_tokenizer(download / "tokenizer.json", names, n_tokens)
        (download / "config.json").write_text(encoder)
        model = build_encoder(config | dict(vocab_size=n_tokens))
    else:
        model = (
            build_clip(registry_config(CATALOGUE[name].opens)) if CATALOGUE[name].opens else timm.create_model(network)
        )
    for file in CATALOGUE[name].files.keys() - {"tokenizer.json", "config.json"}:
        save_file(model.state_dict(), download / file)
    import_weights(name, download)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A lab whose weights need no checksums and whose folders are filled preset by preset"
    folder = tmp_path_factory.mktemp("lab")
    words = [*LANGUAGES, *(f"{language}{i}" for language in LANGUAGES for i in range(30))]
    rows = [f"{word} {' '.join(NUMBERS.random(300).astype(str))}\n" for word in words]
    (folder / "words.vec").write_text(f"{len(rows)} 300\n{''.join(rows)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASD_LAB_DATA", str(folder))
        patch.setenv("DASD_LAB_WEIGHTS", str(folder / "weights"))
        patch.setattr(weights_module, "unseal", lru_cache(weights_module.unseal))
        opened_once = lru_cache(recipes.published_backbone)
        patch.setattr(recipes, "published_backbone", opened_once)
        patch.setattr(plan, "published_backbone", opened_once)
        patch.setattr(smalr, "check_warm_up", lambda losses, margin: None)
        for name, weights in CATALOGUE.items():
            patch.setitem(CATALOGUE, name, replace(weights, files=dict.fromkeys(weights.files, "")))
        yield folder


def shortened(preset, lab):
    "A preset of one step a stage, with word vectors and without open ends"
    tuning = dict(preset.get("finetuning") or {}).get("phases", ())
    stages = [(f"stages.{i}", 4) for i, _ in enumerate(preset.get("stages", ()))]
    stages += [(f"phases.{i}", 2) for i, _ in enumerate(preset.get("phases", ()))]
    stages += [(f"finetuning.phases.{i}", 2) for i, _ in enumerate(tuning)]
    changes = {f"{part}.{name}": n for part, size in stages for name, n in dict(steps=1, batch_size=size).items()}
    changes |= {"upper_layers.steps": 1} if "upper_layers" in preset else {}
    if (preset.get("word_vectors") or {}).get("kind") == "vec":
        changes["word_vectors.files"] = dict.fromkeys(LANGUAGES, str(lab / "words.vec"))
    if (preset.get("token_vectors") or {}).get("weights") == "xlm-roberta-large":
        changes["config.text.encoder.num_hidden_layers"] = 2
    if (preset.get("token_vectors") or {}).get("projection") == "fitted":
        changes["token_vectors.projection"] = "learnt"
    return vary(preset, changes | {f"{part}.until": 0 for part, _ in stages if part == "stages.0"})


def prepare(preset, lab):
    "Write what a preset reads: corpora, features and weights"
    choice, vectors = preset.get("backbone") or {}, preset.get("token_vectors")
    for name in {*recipes.corpora_of(preset), "pictograms", "flickr8k"}:
        if not (lab / name).is_dir():
            counted = [p.get("captions_per_picture") or 2 for p in PRESETS.values() if p.get("corpus") == name]
            write_corpus(lab / name, name.startswith(("msrvtt", "vatex")), max(counted, default=2) // 2)
    if choice.get("features"):
        clips = {str(i): torch.rand(9 + i, choice["width"]) for i in range(8)}
        save_file(clips, lab / f"{choice['features']}.safetensors")
    if choice.get("pretrained"):
        write_weights(choice["pretrained"], lab / choice["pretrained"], choice.get("timm"))
    if vectors and vectors["weights"] in CATALOGUE:
        encoder = (preset["config"].get("text") or PRESETS["leccr.paper"]["config"]["text"])["encoder"]
        write_weights(vectors["weights"], lab / vectors["weights"], "", json.dumps(encoder), vectors["n_tokens"])


@lru_cache
def source_model(name, lab):
    "Towers that a preset trains, after a step of each phase"
    return recipes.trained_source(shortened(PRESETS[name], lab), lambda: corpus_named("pictograms"), progress=False)


PUBLISHED = {
    name
    for name, preset in PRESETS.items()
    if {(preset.get("token_vectors") or {}).get("weights"), (preset.get("backbone") or {}).get("pretrained")}
    & {*CATALOGUE}
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in PUBLISHED)) for n in PRESETS])
def test_every_preset_takes_a_step(name, lab):
    gc.collect()  # of the preset before
    preset = shortened(PRESETS[name], lab)
    prepare(preset, lab)
    if name.startswith("two_tower"):
        assert source_model(name, lab).encode_source(["en1 en2"]).isfinite().all()
        return
    planned, source = plan.plan(preset), preset.get("source_model")
    assert planned.ready or preset["corpus"] == "pictograms", str(planned)  # which a training would build
    run = recipes.train(preset, backbone=source and source_model(source, lab), progress=False)
    steps = {row["stage"]: row["loss"] for row in run.log if "loss" in row}
    assert list(steps) == [stage["name"] for stage in preset["stages"]] and all(map(isfinite, steps.values()))
    assert run.method.encode_captions(["de1 de2"], preset["languages"][0]).isfinite().all()
