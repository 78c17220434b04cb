"""DASD's tables on photographs: the learning rate of every row chosen on validation captions, then several seeds

    python tools/studies/claims.py [--preset dasd.photographs_paper] [--languages zh de] [--seeds 0 1 2] [--rows 4 5]

The rows of Tables 4 to 7 and 9 to 11 and Figure 4, and controls that the paper lacks, each setting once; with `--rows`
those of these tables alone. Chinese is learnt from Google's translations and German from those of Multi30K.

Every row is trained with seed 0 and the preset's learning rates times 0.5, 1, 2 and 4, and with half the lowest or
twice the highest as long as that is the best; then with the best and the other seeds. Every run is evaluated on
validation captions, by which the rate is chosen, and on the test. Rows that read one trained method in several ways
share its rate. `--longer` trains the full method with the rate chosen for it and 1/4, 1/2, 2 and 4 times the steps, to
see where recall on validation captions stops rising.

Every run is a line of a file in data/results/rates, and is not repeated: the same command goes on. Needs Flickr8k
(DASD_LAB_FLICKR8K) and features of its pictures (`dasd-lab features`, in runs/flickr8k/features)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from common import RESULTS, ROOT, options

from dasd_lab.backbone.opening import open_backbone
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.commands.arguments import named_folder, open_corpus
from dasd_lab.evaluation.claims import best_rates
from dasd_lab.evaluation.studies import StudyData, run_study
from dasd_lab.evaluation.tables import TABLES, TableRow, TableRuns
from dasd_lab.runs.shipped import run_for

RATES = RESULTS / "rates"
CORPORA = dict(zh="flickr8k:train=zh_mt_google,test=zh_translated", de="flickr8k:train=m30k_de,test=m30k_de")
FACTORS = (0.5, 1.0, 2.0, 4.0)  # of the preset's learning rates
LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the preset's steps


@cache
def data_for(corpus: str) -> StudyData:
    "Photographs, their frozen tower and its features; evaluated on validation captions"
    photographs = open_corpus(corpus)
    backbone = open_backbone(named_folder(run_for(photographs.name)))
    return StudyData(photographs, backbone, "validation", ROOT / "runs/flickr8k/features", backbone.precision)


class Rates:
    "The rows of a language, and the learning rate of each"

    def __init__(self, name: str, language: str, rows: Sequence[str] = ()):
        self.language = language
        self.preset = load_preset(name)
        self.data = data_for(CORPORA[language])
        self.out = RATES / f"{name.removeprefix('dasd.')}_{language}.jsonl"
        every = TABLES["dasd"]["all"].rows(self.preset, self.data.backbone)
        self.trained: dict[str, list[TableRow]] = {}  # row that a method is trained for → rows that read it
        for row in every:
            first = next((t for t in self.trained.values() if row.reading and t[0].changes == row.changes), None)
            (self.trained.setdefault(row.name, []) if first is None else first).append(row)
        if rows:
            self.trained = {name: r for name, r in self.trained.items() if name.partition(":")[0] in rows}
        self.runs: tuple = ()  # of the last preset: its text, on validation captions, on the test

    def measure(self, variant: str, preset: str, seed: int, **job) -> dict:
        "Train a row, or take what was trained last, and evaluate it on both splits"
        if self.runs[:1] != (preset,):
            rows = [row for of_one in self.trained.values() for row in of_one]
            runs = TableRuns(self.data, json.loads(preset), [self.language], rows)
            self.runs = preset, runs
        runs = self.runs[1]
        found = {}
        for split in ("validation", "test"):
            runs.data = replace(self.data, split=split)
            runs.data.training = self.data.training
            found[split] = runs.measure(variant, seed)
        return found["test"] | dict(validation=found["validation"]["mean_recall"])

    def run(self, jobs: Sequence[tuple[str, int, float, float]]) -> list[dict]:
        "Train and evaluate rows that the file lacks: trained row, seed, factor of the rates, factor of the steps"
        lines = []
        for trained, seed, factor, longer in jobs:
            changes = {}
            for i, stage in enumerate(self.preset["stages"]):
                changes[f"stages.{i}.learning_rate"] = stage["learning_rate"] * factor
                changes[f"stages.{i}.steps"] = round(stage["steps"] * longer)
            about = dict(trained=trained, seed=seed, factor=factor, longer=longer)
            about["preset"] = json.dumps(vary(self.preset, changes), sort_keys=True)
            rows = self.trained[trained] if longer == 1 else self.trained[trained][:1]
            lines += [dict(variant=row.name) | about for row in rows]
        shared = dict(self.data.settings(), languages=[self.language])
        del shared["split"]
        said = "{variant}, seed {seed}, rates times {factor}, steps times {longer}: {validation:.4f}, {mean_recall:.4f}"
        return run_study(lines, self.measure, self.out, shared, describe=said.format_map)

    def best(self, row: str) -> float:
        "The factor with the highest recall on validation captions, which is not at the edge of those that were tried"
        trains = vary(self.preset, dict(self.trained[row][0].changes))["stages"]
        factors = set(FACTORS) if trains else {1.0}
        while True:
            lines = self.run([(row, 0, factor, 1.0) for factor in sorted(factors)])
            best = best_rates(lines)[row]
            if not trains or min(factors) < best < max(factors):
                return best
            factors |= {best, best / 2 if best <= min(factors) else best * 2}


def main(preset: str, languages: Sequence[str], seeds: Sequence[int], rows: Sequence[str], longer: bool) -> None:
    "All runs that are missing"
    for language in languages:
        rates = Rates(preset, language, rows)
        for row in rates.trained:
            best = rates.best(row)
            rates.run([(row, seed, best, 1.0) for seed in seeds])
            if longer and row == next(iter(rates.trained)):
                rates.run([(row, 0, best, times) for times in LENGTHS])


if __name__ == "__main__":
    defaults = dict(preset="dasd.photographs_paper", languages=["zh", "de"], seeds=[0, 1, 2], rows=[], longer=False)
    main(**vars(options(__doc__, **defaults)))
