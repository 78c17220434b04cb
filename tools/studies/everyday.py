"""How well everyday photographs, which no model was trained on, are found by a word: with concepts and without them

    python tools/studies/everyday.py

Mean average precision over labels, one word a query, with bootstrap intervals over labels, on the photographs of
data/everyday: the shipped model for photographs in the languages that it was taught, and its multilingual companion
in those and in Japanese. Then the labels that CLDR names, by those names in fourteen languages. Last, how often an
answer says that nothing looks like what was asked for: labels, of which it should not, and things that no photograph
shows. Writes data/results/everyday.json. Nothing is trained, so there are no seeds. The weights of concepts were
chosen on these labels in English, German, French and Chinese, and on short queries in eight languages about Flickr8k's
validation photographs; that English names count twice and are likened to classes, on all labels here; and the limit of
support so that it is wrong for one label of twenty here."""

import numpy as np
import torch
from common import RESULTS
from torch.nn.functional import normalize

from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.emoji_names import emoji_names
from dasd_lab.corpora.published.everyday import everyday_labels, everyday_words
from dasd_lab.evaluation.labels import label_precision, label_words
from dasd_lab.evaluation.probes import bootstrap_interval
from dasd_lab.runs.loading import load_run

ABSENT = (  # from all photographs
    "🎸🍕🚂🚲🍌🥦🦁🐯🐘🦒🦓🐻🐧🐌🦋🐝🌹🌻🍄💻📞📺🛏🪑🎻🥁🎺🚀🚁🚌🚑🚜☂"
    "🎒👑🍔🍓🍍🦞🦂🐋🐬🦈🐊🐢🐍🐪🥪🥐🥨🌮🎷🪗🔬🔭🚽🛁🥯🍋🥝🦊🐺🐨🐼🦔"
)
RUNS = "photographs", "photographs/multilingual"
FOURTEEN = "en", "de", "fr", "zh", "pt", "es", "it", "ru", "id", "ja", "fa", "ar", "tr", "ko"


def measured(methods: dict, corpus, labels: list[str]) -> list[dict]:
    "Rows of both models, of written and of CLDR's words"
    rows = []
    for run, method in methods.items():
        columns = method.visual_columns(corpus.visuals("test"))
        concepts = method.concepts
        by_cldr = {language: label_words(labels, language) for language in FOURTEEN}
        for words, given in dict(written=everyday_words(), cldr=by_cldr).items():
            named = set(by_cldr["ru"])  # the labels that CLDR names
            for method.concepts in (concepts, None):
                visuals = method.encode_visuals(columns)
                for language, own in given.items():
                    if language not in method.readable:
                        continue
                    asked = own if words == "written" else {label: own[label] for label in named}
                    table = label_precision(method, visuals, labels, asked, language)
                    values = table["average_precision"].to_numpy()
                    low, high = bootstrap_interval(values, table["label"])
                    facts = dict(run=run, words=words, concepts=method.concepts is not None, language=language)
                    rows.append(facts | dict(labels=len(table), mean=float(values.mean()), low=low, high=high))
                    print("{run} {language}, {words}, concepts {concepts}: {mean:.3f}".format_map(rows[-1]))
        method.concepts = concepts
    return rows


@torch.no_grad()
def doubted(methods: dict, corpus, labels: list[str]) -> list[dict]:
    "For each language, how often 'Nothing here looks like this' is said: of labels, and of things that none shows"
    columns = next(iter(methods.values())).visual_columns(corpus.visuals("test"))
    rows = []

    def highest(query: np.ndarray) -> float:
        return float((normalize(torch.as_tensor(query), dim=-1) @ pictures.T).max())

    for language, words in everyday_words().items():
        method = next(method for method in methods.values() if language in method.readable)
        pictures = normalize(method.encode_visuals(columns)["features"], dim=-1)
        names = emoji_names(language)
        asked = dict(there=[words[x] for x in words if x in labels], gone=[names[x] for x in ABSENT if x in names])
        row = dict(language=language)
        for kind, texts in asked.items():
            signs = []
            for text in texts:
                vector = method.encode_captions([text], language)
                signs.append(method.concepts.is_unsupported(text, language, vector, highest))
            row |= {kind: sum(signs), f"{kind}_of": len(signs)}
        rows.append(row)
        print(row)
    return rows


def main() -> None:
    "Evaluate both models"
    corpus = load_corpus("everyday")
    labels = [everyday_labels().get(id, "") for id in corpus.visuals("test").ids]
    methods = {run: load_run(run) for run in RUNS}
    rows = measured(methods, corpus, labels)
    doubt = doubted(methods, corpus, labels)
    facts = dict(command="python tools/studies/everyday.py", pictures=len(labels), rows=rows, doubt=doubt)
    write_json(facts, RESULTS / "everyday.json")


if __name__ == "__main__":
    main()
