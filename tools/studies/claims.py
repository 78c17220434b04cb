"""DASD's tables on photographs: the learning rate of every row chosen on validation captions, then several seeds

    python tools/studies/claims.py [--preset dasd.photographs_paper] [--languages zh de] [--seeds 0 1 2 3 4]
        [--tables all] [--further]

In the paper's regime (`dasd.photographs_paper`, frozen token vectors of multilingual E5): Tables 4 to 7 and 9 to 11,
Figure 4 and controls that the paper lacks, each setting once (`--tables all`), in Chinese learnt from Google's
translations and in German from those of Multi30K. With token vectors that are learnt along (`dasd.photographs`,
`--tables 4 5 6` and so on): Chinese from the translations of Google and Baidu, and German.
(`photographs_zh_table_forms.jsonl` has other forms of DASD; each line has its settings.)

Every row is trained with the preset's steps with its learning rates times 0.5, 1, 2 and 4 (learnt along: without 4) and
seed 0, evaluated on validation captions, and then with the best of them and every seed, evaluated on the test. With
`--further` a row whose best rate is the lowest or highest of these is also trained with half or twice that rate. Rows
with the same settings have one rate. The full method is also trained with the rate chosen for it and twice the steps,
to see whether recall on validation captions still rises.

Every run is a line of a file in data/results/rates, and is not repeated: the same command goes on. Needs Flickr8k
(DASD_LAB_FLICKR8K) and features of its pictures (`dasd-lab features`, in runs/flickr8k/features)."""

import json
from collections.abc import Sequence
from functools import cache, partial
from itertools import product
from types import SimpleNamespace

import pandas as pd
from common import RESULTS, ROOT, options

from dasd_lab.backbone.opening import open_backbone
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.commands.arguments import named_folder, open_corpus
from dasd_lab.evaluation.studies import StudyData, run_study
from dasd_lab.evaluation.tables import TABLES, TableRuns
from dasd_lab.runs.shipped import run_for

RATES = RESULTS / "rates"
FROZEN = "dasd.photographs_paper"
GERMAN = "flickr8k:train=m30k_de,test=m30k_de"
# language → corpus, by preset
CORPORA = {
    FROZEN: dict(zh="flickr8k:train=zh_mt_google,test=zh_translated", de=GERMAN),
    "dasd.photographs": dict(zh="flickr8k:train=zh_mt_google+zh_mt_baidu,test=zh_translated", de=GERMAN),
}
FACTORS = {FROZEN: (0.5, 1.0, 2.0, 4.0), "dasd.photographs": (0.5, 1.0, 2.0)}  # of the preset's learning rates
LONGER = 2  # times the steps


@cache
def data_for(corpus: str, split: str) -> StudyData:
    "Photographs, their frozen tower and its features"
    photographs = open_corpus(corpus)
    backbone = open_backbone(named_folder(run_for(photographs.name)))
    return StudyData(photographs, backbone, split, ROOT / "runs/flickr8k/features", backbone.precision)


class Rates:
    "The rows of a language's tables, and the learning rate of each"

    def __init__(self, name: str, language: str, tables: Sequence[str] = ("all",)):
        self.name = name
        self.language = language
        self.preset = load_preset(name)
        self.data = partial(data_for, CORPORA[name][language])
        blocks = SimpleNamespace(n_blocks=self.data("test").backbone.n_blocks)
        self.rows = {key: {row.name: row for row in TABLES["dasd"][key].rows(self.preset, blocks)} for key in tables}
        self.runs: tuple = ()  # of the last table, preset and split
        self.tried: dict[str, tuple[str, str]] = {}  # settings → table and row that are trained to choose their rate
        for key, name in ((key, name) for key, rows in self.rows.items() for name in rows):
            self.tried.setdefault(self.settings(key, name), (key, name))

    def job(self, table: str, variant: str, seed: int, split: str, factor: float, longer: int = 1) -> dict:
        "A run as the lines of the files name it: the preset has other learning rates, and more steps"
        changes = {}
        for i, stage in enumerate(self.preset["stages"]):
            changes[f"stages.{i}.learning_rate"] = stage["learning_rate"] * factor
            changes[f"stages.{i}.steps"] = stage["steps"] * longer
        preset = json.dumps(vary(self.preset, changes), sort_keys=True)
        return dict(table=table, variant=variant, seed=seed, split=split, preset=preset)

    def settings(self, table: str, name: str) -> str:
        "What is trained to choose the rate of a row"
        row = self.rows[table][name]
        return json.dumps([vary(self.preset, row.changes), row.as_large], sort_keys=True)

    def measure(self, table: str, variant: str, seed: int, split: str, preset: str) -> dict:
        "Train and evaluate a row"
        data = self.data(split)
        if self.runs[:3] != (table, preset, split):  # Table 10 evaluates one trained method without one adapter each
            runs = TableRuns(data, json.loads(preset), [self.language], [*self.rows[table].values()])
            self.runs = table, preset, split, runs
        return self.runs[3].measure(variant, seed) | dict(corpus=data.settings()["corpus"])

    def run(self, name: str, jobs: Sequence[dict]) -> list[dict]:
        "Add the runs that a file lacks"
        shared = dict(backbone=self.data("test").settings()["backbone"], languages=[self.language])
        said = "Table {table}, {variant}, {split}, seed {seed}: {mean_recall:.4f}".format_map
        out = RATES / f"{self.name.removeprefix('dasd.')}_{self.language}_{name}.jsonl"
        return self.of_these_tables(run_study(jobs, self.measure, out, shared, describe=said))

    def of_these_tables(self, lines: Sequence[dict]) -> list[dict]:
        return [line for line in lines if line["table"] in self.rows]

    def best(self, further: bool) -> dict[str, float]:
        "Settings → factor with the highest recall on validation captions; rows with one rate share its runs"
        factors = FACTORS[self.name]
        jobs = [self.job(*row, 0, "validation", factor) for factor in factors for row in self.tried.values()]
        best = self._highest(self.run("validation", jobs))
        if further:
            beyond = {min(factors): min(factors) / 2, max(factors): max(factors) * 2}
            edge = {key: beyond[factor] for key, factor in best.items() if factor in beyond}
            jobs = [self.job(*self.tried[key], 0, "validation", factor) for key, factor in edge.items()]
            best = self._highest(self.run("validation", jobs))
        return best

    def _highest(self, lines: Sequence[dict]) -> dict[str, float]:
        runs = pd.DataFrame(lines)
        usual = self.preset["stages"][0]["learning_rate"]
        runs["factor"] = [json.loads(preset)["stages"][0]["learning_rate"] / usual for preset in runs["preset"]]
        runs["settings"] = [self.settings(*row) for row in zip(runs["table"], runs["variant"])]
        highest = runs.sort_values("mean_recall", kind="stable").drop_duplicates("settings", keep="last")
        return dict(zip(highest["settings"], highest["factor"]))


def main(preset: str, languages: Sequence[str], seeds: Sequence[int], tables: Sequence[str], further: bool) -> None:
    "All runs that are missing"
    for language in languages:
        rates = Rates(preset, language, tables)
        best = rates.best(further)
        for table, rows in rates.rows.items():
            each = product(seeds, rows)
            at_best = [rates.job(table, name, s, "test", best[rates.settings(table, name)]) for s, name in each]
            rates.run(f"table_{table}", at_best)
        first = next((table, name) for table, rows in rates.rows.items() for name in rows)  # the full method
        longer = product((1, LONGER), seeds[:3])
        full = best[rates.settings(*first)]
        rates.run("longer", [rates.job(*first, s, "validation", full, times) for times, s in longer])


if __name__ == "__main__":
    main(
        **vars(
            options(
                __doc__, preset=FROZEN, languages=["zh", "de"], seeds=[0, 1, 2, 3, 4], tables=["all"], further=False
            )
        )
    )
