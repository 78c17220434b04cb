"""The frozen English tower as it is on the test scenes of the pictograms: every language, and English itself

    python tools/studies/frozen.py [--backbone FOLDER]

The tower reads captions of other languages as if they were English, without any training; English is what the studies
of adapters start from. A tower is a line of nbs/studies/results/frozen.jsonl and is not repeated. Default: the shipped
tower; the one before version 0.11 is in the history of data/weights/pictograms/backbone. The same figures on
photographs are lines of data/results/photographs.jsonl (`python tools/studies/photographs.py --methods frozen`)."""

import argparse
from pathlib import Path

from dasd_lab.backbone.towers import fingerprint, load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.tables import append_run, read_runs
from dasd_lab.frozen import Frozen, FrozenConfig
from dasd_lab.training.shipped import shipped_run

OUT = Path(__file__).resolve().parents[2] / "nbs/studies/results/frozen.jsonl"
LANGUAGES = ("de", "fr", "cs", "zh", "ja", "es", "ar")


def main(folder: Path) -> None:
    corpus = load_corpus("pictograms")
    backbone = load_backbone(folder)
    row = dict(corpus=corpus.checksum, backbone=fingerprint(backbone), split="test", origin="human")
    if any(row.items() <= done.items() for done in read_runs(OUT)):
        print(f"{OUT} has this tower")
        return
    method = Frozen(FrozenConfig(LANGUAGES), backbone)
    rows = evaluate(method, corpus, "test", [backbone.source_language, *LANGUAGES], "human").rows
    append_run(row | dict(figures=rows), OUT)
    print({language: round(100 * figures["mean_recall"], 1) for language, figures in rows.items()})


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backbone", type=Path, default=shipped_run() / "backbone", help="folder of a frozen tower")
    main(p.parse_args().backbone)
