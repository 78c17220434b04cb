"""DASD's tables on photographs: the learning rate of every row chosen on validation captions, then several seeds

    python tools/studies/claims.py [--languages zh de] [--seeds 0 1 2 3 4] [--further]

Tables 4 to 7 and 9 to 11 and Figure 4 in Chinese, learnt from the translations of Google and Baidu, with other forms of
DASD as more rows, and Tables 4 to 6 in German, learnt from the translations of Multi30K. Every row is trained with the
preset's steps (660 for one language: 600 and 60) with its learning rates times 0.5, 1 and 2 and seed 0, evaluated on
validation captions, and then with the best of them and every seed, evaluated on the test. With `--further` a row whose
best rate is the lowest or highest of these is also trained with half or twice that rate. Rows with the same settings
have one rate; two rows with another routing of L_adv have the rates of their counterparts. The full method is also
trained with the rate chosen for it and twice the steps, to see whether recall on validation captions still rises.

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
from dasd_lab.evaluation.tables import TABLES, Table, TableRow, TableRuns, without
from dasd_lab.runs.shipped import run_for

RATES = RESULTS / "rates"
CORPORA = dict(
    zh="flickr8k:train=zh_mt_google+zh_mt_baidu,test=zh_translated",
    de="flickr8k:train=m30k_de,test=m30k_de",
)
# Table 10 first: its rows without an adapter are those of one trained method, the full one
KEYS = dict(zh=("10", "4", "5", "6", "7", "9", "11", "figure4", "forms"), de=("4", "5", "6"))
FACTORS = (0.5, 1.0, 2.0)  # of the preset's learning rates
FURTHER = {0.5: 0.25, 2.0: 4.0}  # tried where the first is the best
# the same but for the routing of L_adv, by table and name
SAME_RATE = {("forms", "L_adv to Φ^sa"): ("4", "DASD"), ("forms", "L_adv to Φ^sa, no L_sc"): ("6", "no L_sc")}
LONGER = 2  # times the steps
PRESET = load_preset("dasd.photographs")


def expression(preset: dict) -> dict:
    "The form of expression: its settings, without critic and adversarial loss"
    return {"config": load_preset("dasd.photographs_expression")["config"]} | without("adversarial")(preset)


def to_branch(preset: dict, losses: Sequence[str] = ()) -> dict:
    "The adversarial loss reaches A^sa and the layer norm after it alone, as in the paper; without some losses"
    return {"config.disentangler.adversarial_reaches": "adapters"} | without(*losses)(preset)


FORMS = (
    TableRow("DASD of expression", expression),
    TableRow("L_adv to Φ^sa", to_branch),
    TableRow("L_adv to Φ^sa, no L_sc", partial(to_branch, losses=("consistency",))),
)
WHOLE = TABLES["dasd"] | dict(forms=Table("other forms of DASD", FORMS))


def preset_at(factor: float, longer: int = 1) -> dict:
    "The preset with other learning rates and more steps"
    changes = {}
    for i, stage in enumerate(PRESET["stages"]):
        changes[f"stages.{i}.learning_rate"] = stage["learning_rate"] * factor
        changes[f"stages.{i}.steps"] = stage["steps"] * longer
    return vary(PRESET, changes)


@cache
def data_for(language: str, split: str) -> StudyData:
    "Photographs, their frozen tower and its features"
    corpus = open_corpus(CORPORA[language])
    backbone = open_backbone(named_folder(run_for(corpus.name)))
    return StudyData(corpus, backbone, split, ROOT / "runs/flickr8k/features", backbone.precision)


def job(table: str, variant: str, seed: int, split: str, factor: float, longer: int = 1) -> dict:
    "A run as the lines of the files name it"
    preset = json.dumps(preset_at(factor, longer), sort_keys=True)
    return dict(table=table, variant=variant, seed=seed, split=split, preset=preset)


class Rates:
    "The rows of a language's tables, and the learning rate of each"

    def __init__(self, language: str):
        self.language = language
        blocks = SimpleNamespace(n_blocks=data_for(language, "test").backbone.n_blocks)
        self.rows = {key: {row.name: row for row in WHOLE[key].rows(PRESET, blocks)} for key in KEYS[language]}
        self.runs: tuple = ()  # of the last table, preset and split
        self.tried: dict[str, tuple[str, str]] = {}  # settings → table and row that are trained to choose their rate
        for key in sorted(self.rows, key="10".__eq__):  # Table 10 last: its rows are named after those of Table 4
            for name in self.rows[key]:
                self.tried.setdefault(self.settings(key, name), (key, name))

    def settings(self, table: str, name: str) -> str:
        "What is trained to choose the rate of a row"
        table, name = SAME_RATE.get((table, name), (table, name))
        row = self.rows[table][name]
        return json.dumps([vary(PRESET, row.changes), row.as_large], sort_keys=True)

    def measure(self, table: str, variant: str, seed: int, split: str, preset: str) -> dict:
        "Train and evaluate a row"
        data = data_for(self.language, split)
        if self.runs[:3] != (table, preset, split):  # Table 10 evaluates one trained method without one adapter each
            runs = TableRuns(data, json.loads(preset), [self.language], [*self.rows[table].values()])
            self.runs = table, preset, split, runs
        return self.runs[3].measure(variant, seed) | dict(corpus=data.settings()["corpus"])

    def run(self, name: str, jobs: Sequence[dict]) -> list[dict]:
        "Add the runs that a file lacks"
        shared = dict(backbone=data_for(self.language, "test").settings()["backbone"], languages=[self.language])
        said = "Table {table}, {variant}, {split}, seed {seed}: {mean_recall:.4f}".format_map
        out = RATES / f"photographs_{self.language}_{name}.jsonl"
        return run_study(jobs, self.measure, out, shared, describe=said)

    def best(self, further: bool) -> dict[str, float]:
        "Settings → factor with the highest recall on validation captions; rows with one rate share its runs"
        jobs = [job(*row, 0, "validation", factor) for factor in FACTORS for row in self.tried.values()]
        best = self._highest(self.run("validation", jobs))
        if further:
            edge = {key: FURTHER[factor] for key, factor in best.items() if factor in FURTHER}
            jobs = [job(*self.tried[key], 0, "validation", factor) for key, factor in edge.items()]
            best = self._highest(self.run("validation", jobs))
        return best

    def _highest(self, lines: Sequence[dict]) -> dict[str, float]:
        runs = pd.DataFrame(lines)
        usual = PRESET["stages"][0]["learning_rate"]
        runs["factor"] = [json.loads(preset)["stages"][0]["learning_rate"] / usual for preset in runs["preset"]]
        runs["settings"] = [self.settings(*row) for row in zip(runs["table"], runs["variant"])]
        highest = runs.sort_values("mean_recall", kind="stable").drop_duplicates("settings", keep="last")
        return dict(zip(highest["settings"], highest["factor"]))


def main(languages: Sequence[str], seeds: Sequence[int], further: bool = False) -> None:
    "All runs that are missing"
    for rates in map(Rates, languages):
        best = rates.best(further)
        for table, rows in rates.rows.items():
            each = product(seeds, rows)
            rates.run(
                f"table_{table}", [job(table, name, s, "test", best[rates.settings(table, name)]) for s, name in each]
            )
        longer = product((1, LONGER), seeds[:3])
        full = best[rates.settings("4", "DASD")]
        rates.run("longer", [job("4", "DASD", seed, "validation", full, times) for times, seed in longer])


if __name__ == "__main__":
    main(**vars(options(__doc__, languages=list(CORPORA), seeds=[0, 1, 2, 3, 4], further=False)))
