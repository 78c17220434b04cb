"""Every method in every language on Flickr8k's photographs, translated and written captions

    python tools/studies/photographs.py [--backbone FOLDER] [--languages zh de] [--methods dasd] [--seeds 0 1] [--each]
    python tools/studies/photographs.py --captions     # only what the captions themselves say, without any model

The same as `dasd-lab table methods` on the corpus of the presets, flickr8k with both translations into Chinese. A run
is a line and is not repeated. `--steps` limits the steps of each stage, for a trial with another `--out`. Features of
the pictures are kept in runs/flickr8k. Needs Flickr8k (DASD_LAB_FLICKR8K); the row of translated queries needs
Apertium with its Spanish-English pair and is left out without it.

`--captions` writes data/results/photographs_captions.json: length, words, and how often a caption finds its picture by
words alone among the other captions of the 1,000 test pictures (TF-IDF; Chinese by characters and pairs of them)."""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from dasd_lab.cli import main as dasd_lab
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.published.flickr8k import Flickr8k
from dasd_lab.presets import load_preset
from dasd_lab.storage import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/photographs.jsonl"
CAPTIONS = ROOT / "data/results/photographs_captions.json"
BACKBONE = ROOT / "data/weights/photographs/backbone"
SAMPLE = 9_000  # words among which distinct ones are counted
# field → training field of its language, whose words it may share
DESCRIBED = dict(en="en", zh_translated="zh_mt_google", zh="zh_mt_google", m30k_de="m30k_de", de="m30k_de", ar="ar")
# captions → captions of the same pictures by which they are found; of the same field the others
SEARCHES = (
    ("en", "en"),
    ("zh_translated", "zh_translated"),
    ("zh", "zh"),
    ("zh", "zh_translated"),
    ("de", "de"),
    ("de", "m30k_de"),
    ("m30k_de", "de"),
)


def units(text: str, language: str) -> list[str]:
    "Words of a caption; of Chinese its characters"
    found = re.findall(r"\w+", text.lower())
    return [character for word in found for character in word] if language == "zh" else found


def about_field(corpus: Flickr8k, name: str, trained: str) -> dict:
    "Length and words of the test captions of a field"
    language = corpus.fields[name].language
    captions = [units(c.text, language) for c in corpus.field_captions("test", name)]
    words = Counter(word for caption in captions for word in caption)
    first = [word for caption in captions for word in caption][:SAMPLE]
    known = {word for c in corpus.field_captions("train", trained) for word in units(c.text, language)}
    total = words.total()
    return dict(
        captions=len(captions),
        made=corpus.fields[name].made,
        mean_length=total / len(captions),
        distinct=len(set(first)),  # among the first SAMPLE words
        trained_on=trained,
        unknown=sum(n for word, n in words.items() if word not in known) / total,
    )


def found_by_words(corpus: Flickr8k, queries: str, documents: str) -> dict:
    "How many captions of a field find their picture among the ten best by the words of another field"
    language = corpus.fields[queries].language
    options = dict(analyzer="char", ngram_range=(1, 2)) if language == "zh" else dict(token_pattern=r"\w+")
    asked = corpus.field_captions("test", queries)
    described = corpus.field_captions("test", documents)
    pictures = [c.visual_id for c in described]
    known = set(pictures)
    asked = [c for c in asked if c.visual_id in known]
    vectors = TfidfVectorizer(sublinear_tf=True, **options)
    documents_by_word = vectors.fit_transform([c.text for c in described])
    scores = (vectors.transform([c.text for c in asked]) @ documents_by_word.T).toarray()
    if queries == documents:
        np.fill_diagonal(scores, 0)  # a caption does not find its picture by itself
    order, index = np.unique(pictures, return_inverse=True)
    best = np.full((len(asked), len(order)), -1.0)
    for column, picture in enumerate(index):
        np.maximum(best[:, picture], scores[:, column], out=best[:, picture])
    own = np.searchsorted(order, [c.visual_id for c in asked])
    right = best[np.arange(len(asked)), own]
    rank = (best >= right[:, None]).sum(1)
    return dict(queries=queries, documents=documents, pictures=len(order), R10=float((rank <= 10).mean()))


def caption_figures() -> None:
    "Write what the captions say by themselves"
    corpus = load_corpus("flickr8k")
    fields = {name: about_field(corpus, name, trained) for name, trained in DESCRIBED.items()}
    searches = [found_by_words(corpus, queries, documents) for queries, documents in SEARCHES]
    write_json(
        dict(command="python tools/studies/photographs.py --captions", sample=SAMPLE, fields=fields, searches=searches),
        CAPTIONS,
    )
    for search in searches:
        print(search)


def run_all(options: Sequence[str]) -> int:
    "The table, by the command of the lab"
    return dasd_lab(["table", "methods", "--corpus", load_preset("dasd.photographs")["corpus"], *options])


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backbone", default=str(BACKBONE))
    p.add_argument("--languages", nargs="+")
    p.add_argument("--methods", nargs="+")
    p.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    p.add_argument("--steps")
    p.add_argument("--engine", default="apertium")
    p.add_argument("--each", action="store_true")
    p.add_argument("--out", default=str(RESULTS))
    p.add_argument("--captions", action="store_true", help="only the figures of the captions")
    a = vars(p.parse_args())
    if a.pop("captions"):
        caption_figures()
        sys.exit()
    words = ["--each"] if a.pop("each") else []
    for option, value in a.items():
        if value:
            words += [f"--{option}", ",".join(value) if isinstance(value, list) else value]
    sys.exit(run_all(words))
