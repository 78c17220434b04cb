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
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product
from types import SimpleNamespace

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
SAME_RATE = {"L_adv to Φ^sa": "DASD", "L_adv to Φ^sa, no L_sc": "no L_sc"}  # the same but for the routing of L_adv
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


def settings_of(row: TableRow) -> str:
    "What is trained for a row"
    return json.dumps([vary(PRESET, row.changes), row.as_large], sort_keys=True)


class Rates:
    "The rows of a language's tables, and the learning rate of each"

    def __init__(self, language: str):
        self.language = language
        blocks = SimpleNamespace(n_blocks=data_for(language, "test").backbone.n_blocks)
        self.rows = {key: WHOLE[key].rows(PRESET, blocks) for key in KEYS[language]}
        self.runs: tuple = ()  # of the last table, preset and split
        self.trained: dict[str, tuple[str, TableRow]] = {}  # settings → the first row that has them
        for key in sorted(self.rows, key="10".__eq__):  # Table 10 last: its rows are named after those of Table 4
            for row in self.rows[key]:
                self.trained.setdefault(settings_of(row), (key, row))

    def file(self, name: str):
        return RATES / f"photographs_{self.language}_{name}.jsonl"

    def measure(self, table: str, variant: str, seed: int, split: str, preset: str) -> dict:
        "Train and evaluate a row"
        data = data_for(self.language, split)
        if self.runs[:3] != (table, preset, split):  # Table 10 evaluates one trained method without one adapter each
            runs = TableRuns(data, json.loads(preset), [self.language], self.rows[table])
            self.runs = table, preset, split, runs
        return self.runs[3].measure(variant, seed) | dict(corpus=data.settings()["corpus"])

    def run(self, name: str, jobs: Sequence[dict]) -> list[dict]:
        "Add the runs that a file lacks"
        shared = dict(backbone=data_for(self.language, "test").settings()["backbone"], languages=[self.language])
        said = "Table {table}, {variant}, {split}, seed {seed}: {mean_recall:.4f}".format_map
        return run_study(jobs, self.measure, self.file(name), shared, describe=said)

    def validation(self, settings: Sequence[str], factor: float) -> Iterator[dict]:
        "Runs that tell how good a rate is for rows with these settings"
        for table, row in (self.trained[key] for key in settings):
            yield job(table, row.name, 0, "validation", factor)

    def best(
        self, further: bool
    ) -> dict[str, float]:  # settings → factor with the highest recall on validation captions
        "Choose the rate of every row; rows with one rate share its runs"
        own = [key for key, (_, row) in self.trained.items() if row.name not in SAME_RATE]
        lines = self.run("validation", [j for factor in FACTORS for j in self.validation(own, factor)])
        best = self._highest(lines)
        edge = [key for key in own if further and best[key] in FURTHER]
        jobs = [j for key in edge for j in self.validation([key], FURTHER[best[key]])]
        best = self._highest(self.run("validation", jobs))
        by_name = {row.name: best[key] for key, (_, row) in self.trained.items() if key in best}
        return {
            key: best[key] if key in best else by_name[SAME_RATE[row.name]] for key, (_, row) in self.trained.items()
        }

    def _highest(self, lines: Sequence[dict]) -> dict[str, float]:
        recall = defaultdict(dict)
        for line in lines:
            factor = json.loads(line["preset"])["stages"][0]["learning_rate"] / PRESET["stages"][0]["learning_rate"]
            row = next(row for row in self.rows[line["table"]] if row.name == line["variant"])
            recall[settings_of(row)][factor] = line["mean_recall"]
        return {key: max(of_row, key=of_row.get) for key, of_row in recall.items()}


def job(table: str, variant: str, seed: int, split: str, factor: float, longer: int = 1) -> dict:
    "A run as the lines of the files name it"
    preset = json.dumps(preset_at(factor, longer), sort_keys=True)
    return dict(table=table, variant=variant, seed=seed, split=split, preset=preset)


def main(languages: Sequence[str], seeds: Sequence[int], further: bool = False) -> None:
    "All runs that are missing"
    for rates in map(Rates, languages):
        best = rates.best(further)
        for table, rows in rates.rows.items():
            rows_of_seeds = product(seeds, rows)
            rates.run(f"table_{table}", [job(table, r.name, s, "test", best[settings_of(r)]) for s, r in rows_of_seeds])
        full = best[settings_of(TableRow("DASD"))]
        longer = product((1, LONGER), seeds[:3])
        rates.run("longer", [job("4", "DASD", seed, "validation", full, times) for times, seed in longer])


if __name__ == "__main__":
    main(**vars(options(__doc__, languages=list(CORPORA), seeds=[0, 1, 2, 3, 4], further=False)))
