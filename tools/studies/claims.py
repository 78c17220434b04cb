"""DASD's tables on photographs: the learning rate of every row chosen on validation captions, then several seeds

    python tools/studies/claims.py [--languages zh de] [--seeds 0 1 2 3 4] [--jobs 8] [--minutes 60] [--work FOLDER]

Tables 4 to 7 and 9 to 11 and Figure 4 in Chinese, learnt from the translations of Google and Baidu, with other forms of
DASD as more rows, and Tables 4 to 6 in German, learnt from the translations of Multi30K. Every row is trained with the
preset's steps (660 for one language: 600 and 60) with its learning rates times 0.5, 1 and 2 and seed 0, evaluated on
validation captions, and then with the best of them and every seed, evaluated on the test. With `--further` a row whose
best rate is the lowest or highest of these is also trained with half or twice that rate. Rows with the same settings
are trained once; two rows with another routing of L_adv have the rates of their counterparts. The full method is also
trained with the rate chosen for it and twice the steps, to see whether recall on validation captions still rises.

Every run is a line of a file in the folder of `--work`, and is not repeated; when the minutes are over no run is
started, and the same command goes on. At the end, and with `--merge` alone, what is there is written to
data/results/rates/, from where a new folder takes it. `--variants` trains only rows of these names. Several
processes share a GPU where there is one (with NVIDIA's Multi-Process Service their kernels run side by side).
Needs Flickr8k (DASD_LAB_FLICKR8K) and features of its pictures (`dasd-lab features`, in runs/flickr8k/features)."""

import argparse
import json
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import torch

from dasd_lab.backbone.opening import open_backbone
from dasd_lab.commands.arguments import named_folder, open_corpus
from dasd_lab.evaluation.tables import AS_LARGE, TABLES, Table, Variant, read_runs, run_table, without
from dasd_lab.presets import load_preset, vary
from dasd_lab.training.shipped import run_for

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/rates"
FEATURES = ROOT / "runs/flickr8k/features"
CORPORA = dict(
    zh="flickr8k:train=zh_mt_google+zh_mt_baidu,test=zh_translated",
    de="flickr8k:train=m30k_de,test=m30k_de",
)
# Table 10 first: its rows without an adapter are those of one trained method, the full one
KEYS = dict(zh=("10", "4", "5", "6", "7", "9", "11", "figure4", "forms"), de=("4", "5", "6"))
FACTORS = (0.5, 1.0, 2.0)  # of the preset's learning rates
FURTHER = {0.5: 0.25, 2.0: 4.0}  # tried where the first is the best
# row → the row whose rate it has: the same method but for the routing of L_adv
SAME_RATE = {
    ("forms", "L_adv to Φ^sa"): ("4", "DASD"),
    ("forms", "L_adv to Φ^sa, no L_sc"): ("6", "no L_sc"),
}
SEED_OF_CHOICE = 0
LONGER = 2  # times the steps


def expression(preset: dict) -> dict:
    "The form of expression: its settings, without critic and adversarial loss"
    return {"config": load_preset("dasd.photographs_expression")["config"]} | without(preset, "adversarial")


def to_branch(preset: dict, losses: Sequence[str] = ()) -> dict:
    "The adversarial loss reaches A^sa and the layer norm after it alone, as in the paper; without some losses"
    return {"config.disentangler.adversarial_reaches": "adapters"} | without(preset, *losses)


FORMS = (
    Variant("DASD of expression", expression),
    Variant("L_adv to Φ^sa", to_branch),
    Variant("L_adv to Φ^sa, no L_sc", partial(to_branch, losses=("consistency",))),
)
WHOLE = TABLES["dasd"] | dict(forms=Table("other forms of DASD", FORMS))


@dataclass(frozen=True)
class Task:
    "A row of a table, trained once"

    language: str
    table: str
    variant: str
    split: str
    seed: int
    factor: float
    longer: int = 1

    def out(self, work: Path) -> Path:
        name = self.variant.replace(" ", "_").replace(",", "")
        setup = f"x{self.factor:g}_steps{self.longer}_{self.split}_{self.seed}"
        return work / self.language / f"{self.table}_{name}_{setup}.jsonl"

    def preset(self) -> dict:
        preset = load_preset("dasd.photographs")
        changes = {}
        for i, stage in enumerate(preset["stages"]):
            changes[f"stages.{i}.learning_rate"] = stage["learning_rate"] * self.factor
            changes[f"stages.{i}.steps"] = stage["steps"] * self.longer
        return vary(preset, changes)


@cache
def opened(language: str):
    corpus = open_corpus(CORPORA[language])
    return corpus, open_backbone(named_folder(run_for(corpus.name)))


def rows_to_run(task: Task, n_blocks: int) -> list[Variant]:
    "The row of a task; of Table 10 all rows, which share the training"
    rows = WHOLE[task.table].rows(task.preset(), SimpleNamespace(n_blocks=n_blocks))
    return [row for row in rows if task.table == "10" or row.name == task.variant]


def done(task: Task, work: Path) -> bool:
    wanted = {row.name for row in rows_to_run(task, opened(task.language)[1].n_blocks)}
    return wanted <= {line["variant"] for line in read_runs(task.out(work))}


def run(task: Task, work: Path, until: float) -> str:
    "Train and evaluate a row"
    if time.time() > until or done(task, work):
        return ""
    torch.set_num_threads(1)
    began = time.time()
    corpus, backbone = opened(task.language)
    rows = tuple(rows_to_run(task, backbone.n_blocks))
    TABLES["dasd"][task.table] = replace(WHOLE[task.table], sources=rows)  # in this process
    options = dict(seeds=[task.seed], split=task.split, features=FEATURES, report=lambda message: None)
    run_table(task.table, task.preset(), corpus, backbone, task.out(work), [task.language], **options)
    recall = 100 * read_runs(task.out(work))[0]["mean_recall"]
    return f"{task} {recall:.2f} in {time.time() - began:.0f} s"


def rows_of(language: str) -> Iterator[tuple[str, str, str]]:
    "Table, variant and settings of every row, without those whose settings an earlier row has"
    preset = load_preset("dasd.photographs")
    backbone = opened(language)[1]
    seen = set()
    for table in KEYS[language]:
        for row in WHOLE[table].rows(preset, backbone):
            key = settings_of(row, preset)
            if key not in seen and not row.skip:
                seen.add(key)
                yield table, row.name, key


def settings_of(row: Variant, preset: dict) -> str:
    "What is trained for a row"
    plain = {name: value for name, value in row.changes.items() if value != AS_LARGE}
    return json.dumps([vary(preset, plain), plain != dict(row.changes)], sort_keys=True)


def choice(language: str, table: str, variant: str, factor: float) -> Task:
    "The run on validation captions that tells how good a rate is for a row; one row of Table 10 is enough"
    row = ("4", "DASD") if table == "10" else SAME_RATE.get((table, variant), (table, variant))
    return Task(language, *row, "validation", SEED_OF_CHOICE, factor)


def validation_tasks(language: str, factors: Sequence[float] = FACTORS) -> list[Task]:
    "The runs that choose the rates of all rows; rows with one rate share them"
    rows = [(table, variant) for table, variant, _ in rows_of(language)]
    return list(dict.fromkeys(choice(language, *row, factor) for factor in factors for row in rows))


def further_tasks(language: str, work: Path) -> list[Task]:
    "Rows whose best rate is at the edge, with the next one"
    rows = [(table, variant) for table, variant, _ in rows_of(language)]
    best = {row: best_factor(language, *row, work) for row in rows}
    return list(dict.fromkeys(choice(language, *row, FURTHER[best[row]]) for row in rows if best[row] in FURTHER))


def best_factor(language: str, table: str, variant: str, work: Path) -> float | None:
    "The factor with the highest recall on validation captions; None: not all of `FACTORS` were run"
    recall = {}
    for factor in (*FACTORS, *FURTHER.values()):
        for line in read_runs(choice(language, table, variant, factor).out(work)):
            recall[factor] = line["mean_recall"]
    return max(recall, key=recall.get) if recall.keys() >= set(FACTORS) else None


def test_tasks(language: str, seeds: list[int], work: Path) -> Iterator[Task]:
    "Every row with the rate chosen for it"
    for seed in seeds:
        for table, variant, _ in rows_of(language):
            factor = best_factor(language, table, variant, work)
            if factor is not None:
                yield Task(language, table, variant, "test", seed, factor)


def longer_tasks(language: str, seeds: list[int], work: Path) -> Iterator[Task]:
    "The full method on validation captions, with the chosen rate: the usual steps, and more"
    factor = best_factor(language, "4", "DASD", work)
    if factor is not None:
        for longer in (1, LONGER):
            for seed in seeds[:3]:
                yield Task(language, "4", "DASD", "validation", seed, factor, longer)


def run_all(
    languages: list[str], seeds: list[int], variants: list[str], further: bool, jobs: int, work: Path, until: float
) -> None:
    "All runs that are missing, phase by phase"
    start = multiprocessing.get_context("spawn")
    phases = [validation_tasks]
    if further:
        phases.append(partial(further_tasks, work=work))
    phases += [partial(test_tasks, seeds=seeds, work=work), partial(longer_tasks, seeds=seeds, work=work)]
    with start.Pool(jobs) as pool:
        for phase in phases:
            tasks = [task for language in languages for task in phase(language) if not done(task, work)]
            if variants:
                tasks = [task for task in tasks if task.variant in variants]
            for message in pool.imap_unordered(partial(run, work=work, until=until), tasks):
                if message:
                    print(message, flush=True)


def lines_of(language: str, work: Path) -> dict[str, list[dict]]:
    "Lines of each table, in the order of its rows, from whichever table's row was trained"
    preset = load_preset("dasd.photographs")
    backbone = opened(language)[1]
    trained = {key: (table, variant) for table, variant, key in rows_of(language)}
    found = {}
    for table in KEYS[language]:
        found[table] = []
        for row in WHOLE[table].rows(preset, backbone):
            own_table, own_variant = trained[settings_of(row, preset)]
            factor = best_factor(language, own_table, own_variant, work)
            if factor is None:
                continue
            for file in sorted((work / language).glob("*_test_*.jsonl")):
                for line in read_runs(file):
                    wanted = row.name if row.skip else own_variant
                    if (line["table"], line["variant"]) == (own_table, wanted) and rate_of(line) == factor:
                        found[table].append(line | dict(table=table, variant=row.name))
    return found


def rate_of(line: dict) -> float:
    "The factor of a line's learning rates"
    usual = load_preset("dasd.photographs")["stages"][0]["learning_rate"]
    return json.loads(line["preset"])["stages"][0]["learning_rate"] / usual


def longer_of(line: dict) -> int:
    "How many times the usual steps a line was trained with"
    usual = load_preset("dasd.photographs")["stages"][0]["steps"]
    return json.loads(line["preset"])["stages"][0]["steps"] // usual


def restore(language: str, work: Path) -> None:
    "Write the runs of the results files to the folder of the runs, where they are missing"
    preset = load_preset("dasd.photographs")
    backbone = opened(language)[1]
    trained = {key: (table, variant) for table, variant, key in rows_of(language)}
    rows = {table: {row.name: row for row in WHOLE[table].rows(preset, backbone)} for table in KEYS[language]}
    found: dict[Path, dict[str, dict]] = defaultdict(dict)
    for file in RESULTS.glob(f"photographs_{language}_*.jsonl"):
        for line in read_runs(file):
            table, variant = line["table"], line["variant"]
            row = rows[table][variant]
            if line["split"] == "test":
                table, variant = trained[settings_of(row, preset)]
            task = Task(language, table, variant, line["split"], line["seed"], rate_of(line), longer_of(line))
            name = row.name if row.skip else variant
            found[task.out(work)][name] = line | dict(table=table, variant=name)
    for path, lines in found.items():
        if not path.exists():
            write_lines([*lines.values()], path)


def write_lines(lines: list[dict], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def merge(languages: list[str], seeds: list[int], work: Path) -> None:
    "Write the results files of the study"
    for language in languages:
        for table, lines in lines_of(language, work).items():
            if lines:
                write_lines(lines, RESULTS / f"photographs_{language}_table_{table}.jsonl")
        for name, tasks in (
            ("validation", validation_tasks(language, (*FACTORS, *FURTHER.values()))),  # most have no further ones
            ("longer", longer_tasks(language, seeds, work)),
        ):
            lines = [line for task in tasks for line in read_runs(task.out(work))]
            if len(lines) > 1:  # one run compares nothing
                write_lines(lines, RESULTS / f"photographs_{language}_{name}.jsonl")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--languages", nargs="+", default=list(CORPORA), choices=CORPORA)
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    p.add_argument("--variants", nargs="+", default=[], help="rows to train (default: all)")
    p.add_argument("--further", action="store_true", help="also try rates beyond those where the best is at the edge")
    p.add_argument("--jobs", type=int, default=1, help="runs at once")
    p.add_argument("--minutes", type=float, default=600)
    p.add_argument("--work", type=Path, default=ROOT / "runs/flickr8k/claims")
    p.add_argument("--merge", action="store_true", help="only write the results files")
    a = p.parse_args()
    for language in a.languages:
        restore(language, a.work)
    if not a.merge:
        run_all(a.languages, a.seeds, a.variants, a.further, a.jobs, a.work, time.time() + 60 * a.minutes)
    merge(a.languages, a.seeds, a.work)
