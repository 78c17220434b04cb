"""Every preset opens, loads weights of its layout, and takes a step of each of its stages on a corpus of its layout

Weights are random, in the files, names and shapes of the published ones. Towers, vocabularies, adapters and encoders
have their real sizes; smaller are: the batches, of eight, the layers of XLM-R-large, of which two are built, since
optimizer and gradients of all 24 would need 9 GB, and the shared entries of SMALR, as many as the corpus has words."""

import json
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from string import ascii_lowercase, digits

import numpy as np
import pytest
import timm
from PIL import Image
from safetensors.torch import save_file
from test_published_video import write_clip
from tokenizers import Tokenizer, models, pre_tokenizers

from dasd_lab.backbone.open_clip import registry_config
from dasd_lab.backbone.text_encoders import build_encoder
from dasd_lab.backbone.towers import build_clip
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.foundation import data_root
from dasd_lab.base.presets import list_presets, load_preset, vary
from dasd_lab.corpora.catalog import corpus_named
from dasd_lab.training.recipes import corpora_of, train, trained_source

PRESETS = {name: load_preset(name) for name in list_presets()}
LANGUAGES = ["en", *sorted({code for preset in PRESETS.values() for code in preset.get("languages") or ()})]
FRAMES = {"[PAD]": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "<pad>": ["<s>", "<pad>", "</s>", "<unk>"]}


def write_corpus(folder, languages=LANGUAGES, clips=False):
    "Twelve images, or clips of 20 frames, with captions by people and by machine, and descriptions"
    (folder / "train").mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = []
    for i in range(12):
        file = folder / f"train/{i:02}.{'mp4' if clips else 'png'}"
        write_clip(file, 20) if clips else Image.fromarray(rng.integers(0, 256, (48, 64, 3), np.uint8)).save(file)
        for language in languages:
            for origin in ("human", "mllm" if language == "en" else "mt"):
                text = " ".join(f"{language}{word}" for word in rng.integers(0, 30, 8))
                lines.append(dict(text=f"{text} {i}", language=language, visual_id=f"{i:02}", origin=origin))
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_tokenizer(file, pad, n):
    "A tokenizer of n pieces that spells letter by letter, with the special tokens of a family"
    letters = ascii_lowercase + digits
    pieces = [*FRAMES[pad], *letters, *(f"##{letter}" for letter in letters)]
    pieces += [f"unused{i}" for i in range(n - len(pieces))]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=next(p for p in FRAMES[pad] if "unk" in p.lower())))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(file))


@lru_cache
def write_weights(name, timm_name, encoder, n_tokens, download):
    "Random weights in the files of a model of the catalogue"
    download.mkdir(parents=True)
    if CATALOGUE[name].opens:
        network = build_clip(registry_config(CATALOGUE[name].opens))
    elif timm_name:
        network = timm.create_model(timm_name)
    else:
        config = json.loads(encoder)
        network = build_encoder(config | dict(vocab_size=n_tokens))
        write_tokenizer(download / "tokenizer.json", "<pad>" if config["pad_token_id"] else "[PAD]", n_tokens)
        (download / "config.json").write_text(encoder)
    for file in CATALOGUE[name].files:
        if file.endswith(".safetensors"):
            save_file(network.state_dict(), download / file)
    import_weights(name, download)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "A lab whose weights need no checksums and whose folders are filled preset by preset"
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASD_LAB_DATA", str(folder / "data"))
        patch.setenv("DASD_LAB_WEIGHTS", str(folder / "weights"))
        for name, weights in CATALOGUE.items():
            patch.setitem(CATALOGUE, name, replace(weights, files=dict.fromkeys(weights.files, "")))
        yield folder


def shortened(preset):
    "A preset of one step a stage, on what `lab` has"
    parts = {"stages": preset.get("stages") or [], "phases": preset.get("phases") or []}
    tuning = preset.get("finetuning") or []
    parts["finetuning.phases" if "phases" in tuning else "finetuning"] = tuning["phases"] if tuning else []
    parts = {f"{name}.{i}": of for name, several in parts.items() for i, of in enumerate(several)}
    parts |= {name: preset[name] for name in ("upper_layers",) if name in preset}
    changes = {f"{part}.{key}": n for part in parts for key, n in dict(steps=1, batch_size=8).items()}
    changes |= {f"{part}.until": 0 for part, stage in parts.items() if stage.get("until")}  # too long a warm-up
    if preset.get("word_vectors") and preset["word_vectors"]["kind"] == "vec":
        changes["word_vectors.files"] = dict.fromkeys(LANGUAGES, str(data_root() / "words.vec"))
    if (preset.get("token_vectors") or {}).get("weights") == "xlm-roberta-large":
        changes["config.text.encoder.num_hidden_layers"] = 2
    return vary(preset, changes)


@lru_cache
def source_model(name):
    "The towers of a source preset after a step of each phase"
    return trained_source(shortened(PRESETS[name]), lambda: corpus_named("pictograms"), progress=False)


def reads_weights(preset):
    return bool(preset.get("token_vectors") or (preset.get("backbone") or {}).get("pretrained"))


def prepare(preset, lab):
    "What a preset reads: corpora, features, and weights"
    choice, published = preset.get("backbone") or {}, preset.get("token_vectors") or {}
    for name in {*corpora_of(preset), preset.get("source_model") and "flickr8k", "pictograms"} - {None}:
        if not (lab / "data" / name).is_dir():
            write_corpus(lab / "data" / name, clips=name.startswith(("msrvtt", "vatex")))
    if choice.get("features"):
        (lab / "data" / choice["features"]).mkdir()
        for i in range(12):
            np.save(lab / "data" / choice["features"] / f"{i:02}.npy", np.random.rand(9 + i, choice["width"]))
    if choice.get("pretrained"):
        write_weights(choice["pretrained"], choice.get("timm"), "", 0, lab / choice["pretrained"])
    if published:
        encoder = preset["config"].get("text", {}).get("encoder") or PRESETS["leccr.paper"]["config"]["text"]["encoder"]
        given = json.dumps(encoder), published["n_tokens"]
        write_weights(published["weights"], None, *given, lab / published["weights"])
    words = [f"{language}{i}" for language in LANGUAGES for i in range(30)]
    rows = [" ".join([word, *np.random.rand(300).round(3).astype(str)]) for word in words]
    (lab / "data/words.vec").write_text("\n".join([f"{len(rows)} 300", *rows]) + "\n")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * reads_weights(p)) for n, p in PRESETS.items()]
)
def test_every_preset_takes_a_step(name, lab):
    preset = PRESETS[name]
    small = shortened(preset)
    prepare(small, lab)
    if not preset.get("stages"):
        assert source_model(name).encode_source(["en1 en2"]).isfinite().all()
        return
    towers = source_model(preset["source_model"]) if preset.get("source_model") else None
    run = train(small, backbone=towers, progress=False)
    assert [row["stage"] for row in run.log if "loss" in row] == [stage["name"] for stage in preset["stages"]]
    assert all(isfinite(row["loss"]) for row in run.log if "loss" in row)
    assert run.method.encode_captions(["de1 de2"], preset["languages"][0]).isfinite().all()
