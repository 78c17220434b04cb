"""The frozen English tower on word-by-word English: mean recall on human-origin captions, by language

python tools/studies/gloss.py                       # test split → data/results/gloss.json
python tools/studies/gloss.py --split validation    # printed only; the word lists were improved on this split"""

import argparse
from pathlib import Path

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import Results, evaluate
from dasd_lab.pictograms.gloss import gloss_languages, to_english
from dasd_lab.storage import write_json
from dasd_lab.translated import TranslatedQueries

ROOT = Path(__file__).resolve().parents[2]
BACKBONE = ROOT / "data/weights/pictograms/backbone"
RESULTS = ROOT / "data/results/gloss.json"


def gloss_results(split: str, languages: list[str] | None = None) -> Results:
    "Evaluate glossed captions with the English tower of the shipped weights"
    corpus = load_corpus("pictograms")
    codes = [language for language in gloss_languages() if language in corpus.languages and language != "en"]
    method = TranslatedQueries(
        load_backbone(BACKBONE), codes, lambda text, language: to_english(text, language).english
    )
    return evaluate(method, corpus, split, languages or codes)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--split", choices=("validation", "test"), default="test")
    split = p.parse_args().split
    results = gloss_results(split)
    print(results.to_markdown())
    if split == "test":
        command = "python tools/studies/gloss.py"
        facts = dict(about=results.about, command=command, rows=results.rows, mean_recall=results.mean_recall)
        write_json(facts, RESULTS)
