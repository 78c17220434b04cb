"""What the captions of Flickr8k say by themselves, without any model

    python tools/studies/photographs.py

Writes data/results/photographs_captions.json: length, words, and how often a caption finds its picture by words alone
among the other captions of the 1,000 test pictures (TF-IDF; Chinese by characters and pairs of them). The methods on
these photographs are lines of data/results/photographs.jsonl:

    dasd-lab table methods --corpus flickr8k:train=zh_mt_google+zh_mt_baidu --languages zh --each \\
        --backbone data/weights/photographs/backbone --out data/results/photographs.jsonl"""

import re
from collections import Counter

import numpy as np
from common import RESULTS
from sklearn.feature_extraction.text import TfidfVectorizer

from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.published.flickr8k import Flickr8k

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


def words_of(corpus: Flickr8k, split: str, field: str) -> list[list[str]]:
    "Words of each caption of a field; of Chinese its characters"
    pattern = r"\w" if corpus.fields[field].language == "zh" else r"\w+"
    return [re.findall(pattern, caption.text.lower()) for caption in corpus.field_captions(split, field)]


def about_field(corpus: Flickr8k, name: str, trained: str) -> dict:
    "Length and words of the test captions of a field"
    captions = words_of(corpus, "test", name)
    every = [word for caption in captions for word in caption]
    known = {word for caption in words_of(corpus, "train", trained) for word in caption}
    return dict(
        captions=len(captions),
        made=corpus.fields[name].made,
        mean_length=len(every) / len(captions),
        distinct=len(set(every[:SAMPLE])),  # among the first SAMPLE words
        trained_on=trained,
        unknown=sum(n for word, n in Counter(every).items() if word not in known) / len(every),
    )


def found_by_words(corpus: Flickr8k, queries: str, documents: str) -> dict:
    "How many captions of a field find their picture among the ten best by the words of another field"
    language = corpus.fields[queries].language
    options = dict(analyzer="char", ngram_range=(1, 2)) if language == "zh" else dict(token_pattern=r"\w+")
    described = corpus.field_captions("test", documents)
    order, index = np.unique([c.visual_id for c in described], return_inverse=True)
    asked = [c for c in corpus.field_captions("test", queries) if c.visual_id in order]
    vectors = TfidfVectorizer(sublinear_tf=True, **options)
    by_word = vectors.fit_transform([c.text for c in described])
    scores = (vectors.transform([c.text for c in asked]) @ by_word.T).toarray()
    if queries == documents:
        np.fill_diagonal(scores, 0)  # a caption does not find its picture by itself
    best = np.stack([scores[:, index == picture].max(1) for picture in range(len(order))], 1)
    own = np.searchsorted(order, [c.visual_id for c in asked])
    rank = (best >= best[np.arange(len(asked)), own][:, None]).sum(1)
    return dict(queries=queries, documents=documents, pictures=len(order), R10=float((rank <= 10).mean()))


def main() -> None:
    flickr8k = load_corpus("flickr8k")
    fields = {name: about_field(flickr8k, name, trained) for name, trained in DESCRIBED.items()}
    searches = [found_by_words(flickr8k, *pair) for pair in SEARCHES]
    found = dict(command="python tools/studies/photographs.py", sample=SAMPLE, fields=fields, searches=searches)
    write_json(found, RESULTS / "photographs_captions.json")


if __name__ == "__main__":
    main()
