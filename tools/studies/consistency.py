"""What cross-lingual consistency brings to a shipped run, of DASD as the lab's own extension, of SMALR as in its paper: mean recall on human captions of the test split, by query language

    python tools/studies/consistency.py                # all pictures → data/results/consistency.json, which notebook 645 reads (a quarter of an hour on one core)
    python tools/studies/consistency.py --method smalr # another shipped method → data/results/consistency_smalr.json
    python tools/studies/consistency.py --pictures 200 # printed only

CLC-C is fitted on the human captions of the validation split with the same kind of translations. Three kinds: the word-by-word
gloss into English; an oracle, human captions of the same picture in all languages; and for English queries the corpus' own
machine translation. `English alone` reads the gloss by the frozen English tower, without the query's own words."""

import argparse
import time
from pathlib import Path

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.corpora.by_machine.builtin_translators import GlossTranslator, ReferenceTranslator, SceneTranslator
from dasd_lab.corpora.catalog import Corpus, load_corpus
from dasd_lab.corpora.pictograms.gloss import to_english
from dasd_lab.corpora.visuals import visuals_from_array
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.search.explain.consistent_queries import Consistent, fit_to
from dasd_lab.search.gallery.translated import TranslatedQueries
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/consistency.json"
FIGURES = "mean_recall", "text_to_image_R@1", "image_to_text_R@1"


class First(Corpus):
    "The first pictures of every split"

    root = None

    def __init__(self, corpus, n: int):
        self.corpus = corpus
        self.n = n
        self.name = corpus.name
        self.languages = corpus.languages
        self.splits = corpus.splits

    def visuals(self, split):
        v = self.corpus.visuals(split)
        return visuals_from_array(v.ids[: self.n], v.pixels[: self.n])

    def _captions(self, split, language):
        ids = {*self.visuals(split).ids}
        return [c for c in self.corpus._captions(split, language) if c.visual_id in ids]


def measure(n: int | None = None, name: str = "dasd") -> dict:
    "Everything, of the first n pictures of validation and test"
    whole = load_corpus("pictograms")
    method = load_run(shipped_run()).eval()
    if name != "dasd":
        method = load_method(shipped_run() / name, method.backbone)
    corpus = First(whole, n) if n else whole
    seen = {s: method.visual_columns(corpus.visuals(s)) for s in ("validation", "test")}
    targets = list(method.languages)

    def figures(m, languages):
        return {
            language: {f: r[f] for f in FIGURES}
            for language, r in evaluate(m, corpus, "test", languages, image_features=seen["test"]).rows.items()
        }

    kinds = dict(
        gloss=(targets, lambda s: GlossTranslator()),
        oracle=(targets, lambda s: ReferenceTranslator(whole, s)),
        english_mt=(["en"], lambda s: SceneTranslator(whole, s)),
    )
    out = {}
    for kind, (languages, translator) in kinds.items():
        began = time.thread_time()
        test, val = (Consistent(method, translator(s)) for s in ("test", "validation"))
        rows = {"alone": figures(method, languages), "CLC-A": figures(test, languages)}
        if kind == "gloss":
            rows["English alone"] = figures(
                TranslatedQueries(
                    method.backbone, languages, lambda text, language: to_english(text, language).english
                ),
                languages,
            )
        curve = fit_to(val, corpus, "validation", languages, columns=seen["validation"])
        test.fuser = val.fuser
        rows["CLC-C"] = figures(test, languages)
        ends = {k: {c: float(curve[c].iloc[i]) for c in curve} for k, i in (("start", 0), ("end", -1))}
        out[kind] = dict(
            translator=test.translator.name, rows=rows, fitted=ends, seconds=round(time.thread_time() - began, 1)
        )
        print(
            kind,
            {w: {language: round(100 * v["mean_recall"], 1) for language, v in r.items()} for w, r in rows.items()},
            {k: {c: round(v, 4) for c, v in e.items()} for k, e in ends.items()},
            flush=True,
        )
    return dict(
        about=dict(
            method=method.name,
            fingerprint=fingerprint(method),
            corpus=corpus.name,
            pictures=len(corpus.visuals("test")),
            origin="human",
        ),
        command="python tools/studies/consistency.py" + (f" --method {name}" if name != "dasd" else ""),
        kinds=out,
    )


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pictures", type=int)
    p.add_argument("--method", choices=("dasd", "smalr"), default="dasd")
    args = p.parse_args()
    found = measure(args.pictures, args.method)
    if args.pictures is None:
        write_json(found, RESULTS if args.method == "dasd" else RESULTS.with_stem("consistency_smalr"))
