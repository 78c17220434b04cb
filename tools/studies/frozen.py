"""The frozen English tower as it is on the test scenes of the pictograms: every language, and English itself

    python tools/studies/frozen.py [--backbone FOLDER]

The tower reads captions of other languages as if they were English, without any training; English is what the studies
of adapters start from. A tower is a line of data/results/frozen.jsonl and is not repeated. Default: the shipped tower;
the one before version 0.11 is in the history of data/weights/pictograms/backbone. The same figures on photographs are
lines of data/results/photographs.jsonl (`dasd-lab table methods --corpus flickr8k --methods frozen`)."""

from common import RESULTS, start

from dasd_lab.backbone.towers import fingerprint, load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig
from dasd_lab.runs.shipped import shipped_run

LANGUAGES = ("de", "fr", "cs", "zh", "ja", "es", "ar")


def main(backbone: str = str(shipped_run() / "backbone")) -> None:
    corpus = load_corpus("pictograms")
    tower = load_backbone(backbone)
    job = dict(corpus=corpus.checksum, backbone=fingerprint(tower), split="test", origin="human")

    def measure(split: str, origin: str, **about) -> dict:
        method = Frozen(FrozenConfig(LANGUAGES), tower)
        return dict(figures=evaluate(method, corpus, split, ["en", *LANGUAGES], origin).rows)

    run_study([job], measure, RESULTS / "frozen.jsonl")


if __name__ == "__main__":
    start(main, __doc__)
