"""Backbones of 2026 with random weights of the real shape, in the files that are published, under `dasd.clip_from_text`

    python tools/bench/backbones.py [--only NAME] [--json FILE]

Each is written as its repository has it (configuration, weights, tokenizer.json with the special tokens and invented
words), opened by its folder, which compares the tower block by block with the model itself, and trained for two steps
by the command `dasd-lab train dasd.clip_from_text --backbone FOLDER`."""

import copy
import json
import sys
import tempfile
from pathlib import Path

import open_clip
import torch
from measuring import arguments, keep
from tokenizers import Tokenizer, models, pre_tokenizers

from dasd_lab.backbone.open_clip import ENCODERS, frame_of, registry_config
from dasd_lab.backbone.opening import open_backbone
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.towers import build
from dasd_lab.base.presets import read_json
from dasd_lab.base.storage import write_json, write_tensors
from dasd_lab.commands.cli import main

REGISTERED = ("ViT-B-16-SigLIP2", "MobileCLIP2-S0", "PE-Core-B-16", "nllb-clip-base-siglip")
CHINESE = "chinese-clip-vit-b-16"
BERT = dict(vocab_size=21128, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
VIT = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, patch_size=16)
COLOURS = dict(red="rosso", green="verde", blue="blu", black="nero", white="bianco", yellow="giallo")
THINGS = dict(dog="cane", house="casa", tree="albero", car="auto", beach="spiaggia", child="bambino")


def leave_tokenizer(folder: Path, family: str) -> None:
    "tokenizer.json with the special tokens of a family, and the words of the captions"
    start, end, pad = frame_of(family)
    first = ["<s>", pad, end] if "nllb" in family else [pad, end]  # the place of the padding is known to the encoder
    names = [*first, start, "a", *COLOURS, *THINGS, "<unk>"]
    words = Tokenizer(models.WordLevel({name: i for i, name in enumerate(dict.fromkeys(filter(None, names)))}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))


def leave_registered(name: str, folder: Path) -> None:
    "A model of open_clip's registry as its repository has it"
    config = registry_config(name)
    tags = open_clip.list_pretrained_tags_by_model(name)
    preprocessing = open_clip.get_pretrained_cfg(name, tags[0])
    shown = {key: preprocessing[key] for key in ("mean", "std", "interpolation", "resize_mode") if key in preprocessing}
    write_json(dict(model_cfg=config, preprocess_cfg=shown), folder / "open_clip_config.json")
    encoder = ENCODERS.get(config["text_cfg"].get("hf_model_name"))
    if encoder:
        with_encoder = copy.deepcopy(config)
        with_encoder["text_cfg"]["encoder"] = encoder
        clip = build("open_clip_encoder", with_encoder)[0]
    else:
        clip = build_clip(config)
    write_tensors({n: t.contiguous() for n, t in clip.state_dict().items()}, folder / "open_clip_model.safetensors")
    if family := config["text_cfg"].get("hf_tokenizer_name"):
        leave_tokenizer(folder, family)


def leave_chinese(folder: Path) -> None:
    "Chinese-CLIP ViT-B/16 as transformers saves it"
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    vision = dict(VIT, image_size=224)
    ChineseCLIPModel(ChineseCLIPConfig(text_config=BERT, vision_config=vision)).save_pretrained(folder)
    leave_tokenizer(folder, "chinese")
    write_json(dict(size=224, do_center_crop=False), folder / "preprocessor_config.json")


def measure(name: str, place: Path) -> dict:
    "Open a model, and train a language on it for two steps"
    folder = place / name
    folder.mkdir()
    torch.manual_seed(0)
    leave_chinese(folder) if name == CHINESE else leave_registered(name, folder)
    backbone = open_backbone(folder)
    source = backbone.source_language
    pairs = [f"a {c} {t}\tun {t2} {c2}" for c, c2 in COLOURS.items() for t, t2 in THINGS.items()]
    (place / "captions.tsv").write_text(f"{source}\tit\n" + "\n".join(pairs) + "\n")
    text, tokens = backbone.text, backbone.tokenizer
    frame = tokens.start_id, tokens.end_id, tokens.pad_id
    found = dict(
        backbone=name,
        kind=backbone.kind,
        blocks=text.n_blocks,
        block=type(text.blocks[0]).__name__,
        width=text.width,
        embedding=text.embed_dim,
        context=text.context_length,
        reading=text.reading,
        whole_context=text.whole_context,
        own_tokens=len(text.embedding.weight),
        frame=[tokens.name(i) if i is not None else None for i in frame],
        source=source,
        languages=len(backbone.languages),
    )
    del backbone
    words = ["train", "dasd.clip_from_text", "--backbone", str(folder), "--captions", str(place / "captions.tsv")]
    words += ["--languages", "it", "--out", str(place / f"run of {name}"), "--checkpoint-every", "0"]
    for setting in ("token_vectors=null", "vocab_size=60", "stages.0.steps=2", "stages.0.batch_size=8"):
        words += ["--set", setting]
    if main(words):
        sys.exit(1)
    card = read_json(place / f"run of {name}" / "card.json")
    return found | dict(trained=card["parameters"])


if __name__ == "__main__":
    a = arguments(__doc__, only=dict(default=""))
    names = [a.only] if a.only else [*REGISTERED, CHINESE]
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as d:
            rows.append(measure(name, Path(d)))
        print(json.dumps(rows[-1]), file=sys.stderr)
    keep(a, dict(rows=rows), rows)
