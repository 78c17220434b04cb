"""Cross-lingual consistency of a shipped run: mean recall on human-origin captions of the test split, by query language

    python tools/studies/consistency.py                # all images → data/results/consistency.json (15 min on one core)
    python tools/studies/consistency.py --method smalr # another shipped method → data/results/consistency_smalr.json
    python tools/studies/consistency.py --pictures 200 # first images only, printed and not saved

For DASD, consistency is an extension of the lab; for SMALR it is part of the paper. CLC-C is fitted on captions of the
validation split with the same kind of translations. There are three kinds: the word-by-word gloss into English; an
oracle, captions of the same image in all languages; and for English queries the machine translation of the corpus.
`English alone` encodes the gloss with the frozen English tower, without the query itself."""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.by_machine.builtin_translators import ReferenceTranslator, SceneTranslator
from dasd_lab.corpora.catalog import Corpus, load_corpus
from dasd_lab.corpora.visuals import visuals_from_array
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.pictograms.gloss import GlossTranslator, to_english
from dasd_lab.search.explain.consistent_queries import Consistent, fit_to
from dasd_lab.storage import write_json
from dasd_lab.training.loading import load_run
from dasd_lab.translated import TranslatedQueries

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/consistency.json"
FIGURES = "mean_recall", "text_to_image_R@1", "image_to_text_R@1"


class First(Corpus):
    "The first images of every split"

    root = None

    def __init__(self, corpus: Corpus, n: int):
        self.corpus = corpus
        self.n = n
        self.name = corpus.name
        self.languages = corpus.languages
        self.splits = corpus.splits

    def visuals(self, split):
        visuals = self.corpus.visuals(split)
        return visuals_from_array(visuals.ids[: self.n], visuals.pixels[: self.n])

    def _captions(self, split, language):
        ids = set(self.visuals(split).ids)
        return [c for c in self.corpus.all_captions(split, language) if c.visual_id in ids]


@dataclass
class Measurement:
    "Figures of one method on one corpus, whose images are encoded once"

    method: RetrievalMethod
    corpus: Corpus

    def __post_init__(self):
        self.columns = {s: self.method.visual_columns(self.corpus.visuals(s)) for s in ("validation", "test")}

    def figures(self, method, languages: Sequence[str]) -> dict[str, dict[str, float]]:
        "Figures of a method by language"
        results = evaluate(method, self.corpus, "test", languages, image_features=self.columns["test"])
        return {language: {f: row[f] for f in FIGURES} for language, row in results.rows.items()}

    def gloss_alone(self, languages: Sequence[str]) -> dict[str, dict[str, float]]:
        "Figures of the gloss with the English tower"
        method = TranslatedQueries(
            self.method.backbone, languages, lambda text, language: to_english(text, language).english
        )
        return self.figures(method, languages)

    def compare(
        self,
        languages: Sequence[str],
        translator: Callable,  # split → translator
        gloss: bool,  # whether it is the gloss
    ) -> dict:
        "The query alone, with its translations (CLC-A), and with learned weights (CLC-C)"
        start = time.thread_time()
        test = Consistent(self.method, translator("test"))
        validation = Consistent(self.method, translator("validation"))
        rows = {"alone": self.figures(self.method, languages), "CLC-A": self.figures(test, languages)}
        if gloss:
            rows["English alone"] = self.gloss_alone(languages)
        curve = fit_to(validation, self.corpus, "validation", languages, columns=self.columns["validation"])
        test.fuser = validation.fuser
        rows["CLC-C"] = self.figures(test, languages)
        seconds = round(time.thread_time() - start, 1)
        return dict(translator=test.translator.name, rows=rows, fitted=ends(curve), seconds=seconds)


def ends(curve: pd.DataFrame) -> dict[str, dict[str, float]]:
    "First and last row of a curve"
    rows = dict(start=curve.iloc[0], end=curve.iloc[-1])
    return {name: {column: float(value) for column, value in row.items()} for name, row in rows.items()}


def print_comparison(kind: str, comparison: dict) -> None:
    "Print mean recall in percent and the fitted weights"
    recall = {}
    for name, rows in comparison["rows"].items():
        recall[name] = {language: round(100 * row["mean_recall"], 1) for language, row in rows.items()}
    fitted = {}
    for name, row in comparison["fitted"].items():
        fitted[name] = {column: round(value, 4) for column, value in row.items()}
    print(kind, recall, fitted, flush=True)


def measure(n: int | None = None, name: str = "dasd") -> dict:
    "All kinds of translations, on the first n images of validation and test"
    whole = load_corpus("pictograms")
    method = load_run("pictograms" if name == "dasd" else f"pictograms/{name}").eval()
    corpus = First(whole, n) if n else whole
    measurement = Measurement(method, corpus)
    targets = list(method.languages)
    kinds = dict(
        gloss=(targets, lambda split: GlossTranslator()),
        oracle=(targets, lambda split: ReferenceTranslator(whole, split)),
        english_mt=(["en"], lambda split: SceneTranslator(whole, split)),
    )
    comparisons = {}
    for kind, (languages, translator) in kinds.items():
        comparisons[kind] = measurement.compare(languages, translator, kind == "gloss")
        print_comparison(kind, comparisons[kind])
    about = dict(
        method=method.name,
        fingerprint=fingerprint(method),
        corpus=corpus.name,
        pictures=len(corpus.visuals("test")),
        origin="human",
    )
    command = "python tools/studies/consistency.py"
    if name != "dasd":
        command += f" --method {name}"
    return dict(about=about, command=command, kinds=comparisons)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pictures", type=int, help="number of images per split (default: all)")
    p.add_argument("--method", choices=("dasd", "smalr"), default="dasd")
    args = p.parse_args()
    results = measure(args.pictures, args.method)
    if args.pictures is None:
        write_json(results, RESULTS if args.method == "dasd" else RESULTS.with_stem("consistency_smalr"))
