"""The frozen English tower on word-by-word English: mean recall on human-origin captions, by language

python tools/studies/gloss.py                       # test split → data/results/gloss.json
python tools/studies/gloss.py --split validation    # printed only; the word lists were improved on this split"""

from common import RESULTS as FOLDER
from common import ROOT, start

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import Results, evaluate
from dasd_lab.methods.baselines.translated import TranslatedQueries
from dasd_lab.pictograms.gloss import to_english
from dasd_lab.pictograms.grammar import languages as grammar_languages

RESULTS = FOLDER / "gloss.json"


def gloss_results(split: str, languages: list[str] | None = None) -> Results:
    "Evaluate glossed captions with the English tower of the shipped weights"
    corpus = load_corpus("pictograms")
    codes = [language for language in grammar_languages(all=True) if language in corpus.languages and language != "en"]
    backbone = load_backbone(ROOT / "data/weights/pictograms/backbone")
    method = TranslatedQueries(backbone, codes, lambda text, language: to_english(text, language).english)
    return evaluate(method, corpus, split, languages or codes)


def main(split: str = "test") -> None:
    results = gloss_results(split)
    print(results.to_markdown())
    if split == "test":
        facts = dict(about=results.about, command="python tools/studies/gloss.py")
        write_json(facts | dict(rows=results.rows, mean_recall=results.mean_recall), RESULTS)


if __name__ == "__main__":
    start(main, __doc__)
