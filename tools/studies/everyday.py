"""How well everyday photographs, which no model was trained on, are found by a word: with concepts and without them

    python tools/studies/everyday.py

Mean average precision over labels, one word a query, with bootstrap intervals over labels, on the photographs of
data/everyday: the shipped model for photographs in the languages that it was taught, and its multilingual companion
in those and in Japanese. Writes data/results/everyday.json. Nothing is trained, so there are no seeds. The three
weights of concepts were chosen on these labels in English, German, French and Chinese, and on short queries in eight
languages about Flickr8k's validation photographs; labels in other languages took no part."""

from common import RESULTS

from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.published.everyday import everyday_labels, everyday_words
from dasd_lab.evaluation.labels import label_precision
from dasd_lab.evaluation.probes import bootstrap_interval
from dasd_lab.runs.loading import load_run


def main() -> None:
    "Evaluate both models"
    corpus = load_corpus("everyday")
    ids = corpus.visuals("test").ids
    labels = [everyday_labels().get(id, "") for id in ids]
    rows = []
    for run in ("photographs", "photographs/multilingual"):
        method = load_run(run)
        columns = method.visual_columns(corpus.visuals("test"))
        whole = method.concepts
        for concepts in (whole, None):
            method.concepts = concepts
            visuals = method.encode_visuals(columns)
            for language, words in everyday_words().items():
                if language not in method.readable:
                    continue
                table = label_precision(method, visuals, labels, words, language)
                values = table["average_precision"].to_numpy()
                low, high = bootstrap_interval(values, table["label"])
                row = dict(run=run, concepts=concepts is not None, language=language, labels=len(table))
                rows.append(row | dict(mean=float(values.mean()), low=low, high=high))
                print(
                    "{run} {language}, concepts {concepts}: {mean:.3f} ({low:.3f} to {high:.3f})".format_map(rows[-1])
                )
    write_json(
        dict(command="python tools/studies/everyday.py", pictures=len(ids), rows=rows), RESULTS / "everyday.json"
    )


if __name__ == "__main__":
    main()
