"""Cross-lingual consistency of a shipped run: mean recall on human-origin captions of the test split, by query language

    python tools/studies/consistency.py                # → data/results/consistency.json (15 min on one core)
    python tools/studies/consistency.py --method smalr # another shipped method → data/results/consistency_smalr.json

For DASD, consistency is an extension of the lab; for SMALR it is part of the paper. CLC-C is fitted on captions of the
validation split with the same kind of translations. There are three kinds: the word-by-word gloss into English; an
oracle, captions of the same image in all languages; and for English queries the machine translation of the corpus.
`English alone` encodes the gloss with the frozen English tower, without the query itself."""

import time
from functools import partial

import pandas as pd
from common import RESULTS, start

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.base.storage import write_json
from dasd_lab.commands.studies import compare_translations
from dasd_lab.corpora.by_machine.builtin_translators import ReferenceTranslator, SceneTranslator
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.methods.baselines.translated import TranslatedQueries
from dasd_lab.pictograms.gloss import GlossTranslator, to_english
from dasd_lab.runs.loading import load_run

FIGURES = "mean_recall", "text_to_image_R@1", "image_to_text_R@1"


def measure(method, corpus, languages: list[str], translator, gloss: bool) -> dict:
    "One kind of translations"
    start = time.thread_time()
    compared, consistent, curve = compare_translations(method, corpus, languages, translator)
    if gloss:
        alone = TranslatedQueries(method.backbone, languages, lambda text, code: to_english(text, code).english)
        compared["English alone"] = evaluate(alone, corpus, "test", languages)
    rows = {name: pd.DataFrame(results.rows).loc[[*FIGURES]].to_dict() for name, results in compared.items()}
    fitted = dict(start=curve.iloc[0].astype(float).to_dict(), end=curve.iloc[-1].astype(float).to_dict())
    print(consistent.translator.name, {name: results.mean_recall for name, results in compared.items()}, fitted)
    seconds = round(time.thread_time() - start, 1)
    return dict(translator=consistent.translator.name, rows=rows, fitted=fitted, seconds=seconds)


def main(method: str = "dasd", out: str = "") -> None:
    corpus = load_corpus("pictograms")
    own, option = ("", "") if method == "dasd" else (f"_{method}", f" --method {method}")
    model = load_run("pictograms" if method == "dasd" else f"pictograms/{method}").eval()
    targets = list(model.languages)
    kinds = dict(
        gloss=measure(model, corpus, targets, lambda split: GlossTranslator(), True),
        oracle=measure(model, corpus, targets, partial(ReferenceTranslator, corpus), False),
        english_mt=measure(model, corpus, ["en"], partial(SceneTranslator, corpus), False),
    )
    about = dict(
        method=model.name,
        fingerprint=fingerprint(model),
        corpus=corpus.name,
        origin="human",
        pictures=len(corpus.visuals("test")),
    )
    command = f"python tools/studies/consistency.py{option}"
    write_json(dict(about=about, command=command, kinds=kinds), out or RESULTS / f"consistency{own}.json")


if __name__ == "__main__":
    start(main, __doc__)
