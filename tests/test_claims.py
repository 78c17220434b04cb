"""The papers' claims: every one names rows of the paper that are printed in its order, and variants that exist"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dasd_lab.base.presets import load_preset
from dasd_lab.evaluation.claims import CLAIMS, NOT_RUN, Runs, claims_table
from dasd_lab.evaluation.studies import StudyData, at_best_rates, read_runs
from dasd_lab.evaluation.study_files import StudyRuns, finished, read_study, results_file
from dasd_lab.evaluation.tables import TABLES, TableRuns

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "data/results"
FORM = "dasd.photographs_paper"
DEPTHS = (3, 6, 12)  # blocks of the towers here and in the papers


def ignore(message):
    "A report that prints nothing"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: f"{c.paper}-{c.table}-{c.better}-{c.worse}")
def test_a_claim_names_rows_of_the_paper_in_this_order_and_variants_of_our_tables(claim):
    better, worse = claim.rows
    assert {better.name, worse.name} <= {row.name for row in claim.printed.rows} and better is not worse
    if claim.printed.columns:
        assert claim.figures()[0] > claim.figures()[1]
    preset = load_preset(f"{claim.paper}.pictograms")
    towers = [SimpleNamespace(n_blocks=n) for n in DEPTHS]
    tables = TABLES[claim.paper].values()
    names = {row.name for table in tables for tower in towers for row in table.rows(preset, tower)}
    assert claim.variants and {name for pair in claim.variants for name in pair} <= names


def test_the_shipped_results_agree_with_the_study():
    runs = [json.loads(line) for line in (RESULTS / "ablations.jsonl").read_text().splitlines()]
    names = {"both": "DASD", "all": "DASD"}
    found = claims_table([Runs("dasd", ("4", "5", "6"), "pictograms", ("de", "zh"), 430, runs, names)])
    recall = pd.DataFrame(runs).pivot(index="seed", columns="variant", values="mean_recall").mean()
    by_claim = found.set_index("claim")["difference"]
    expected = 100 * (recall["DASD"] - recall["no L_sc"])
    assert by_claim["L_sc helps: both losses > without L_sc"] == pytest.approx(expected)
    tested = found[found["table"].isin(["Table 4", "Table 5", "Table 6"]) & (found["paper"] == "DASD")]
    assert (tested["seeds"] == 3).all() and (tested["verdict"] != NOT_RUN).all()
    assert (found.drop(tested.index)["verdict"] == NOT_RUN).all()


@pytest.fixture
def study(monkeypatch, tmp_path):
    "photographs_paper.yaml, without its corpora, on a tower of six blocks; runs whose recall depends on row and rate"
    opened = read_study(ROOT / "tools/studies/photographs_paper.yaml")
    opened = replace(opened, results=str(tmp_path / "{languages}.jsonl"))
    data = StudyData(SimpleNamespace(name="c"), SimpleNamespace(n_blocks=6))
    monkeypatch.setattr(StudyData, "settings", lambda self: dict(backbone="b", corpus="c", split=self.split))
    monkeypatch.setattr(StudyRuns, "_keep_ranks", lambda *_: "")
    made = []

    def measure(self, variant, seed):
        factor = self.preset["stages"][0]["learning_rate"] / load_preset(FORM)["stages"][0]["learning_rate"]
        made.append((variant, seed, factor, self.data.split))
        best = 0.25 if "static" in variant else 2.0
        figures = dict(parameters=1, cpu_s=0, precision="float32", sum_recall={})
        return figures | dict(mean_recall=1 / (1 + abs(factor - best)))

    monkeypatch.setattr(TableRuns, "__init__", lambda self, data, preset, *_: setattr(self, "preset", preset))
    monkeypatch.setattr(TableRuns, "measure", measure)
    return partial(StudyRuns, opened, opened.corpora[1], data), made


def test_the_study_of_learning_rates_fills_every_row_with_the_rate_chosen_for_it(study):
    runs, made = study
    few = runs(["controls", "4"])
    few.study.lengths.clear()
    few.run_all([0, 1], ignore)
    lines = read_runs(few.out)
    counted = at_best_rates(lines)
    assert {(line["variant"], line["seed"]) for line in counted} == {
        (row.name, seed) for of_one in few.rows.values() for row in of_one for seed in (0, 1)
    }
    expected = {"controls: word alignment alone": 1.0}  # nothing is trained, so that no rate is tried
    for line in counted:
        best = expected.get(line["variant"], 0.25 if "static" in line["variant"] else 2.0)
        assert line["factor"] == best, line["variant"]
    tried = {line["factor"] for line in lines if line["variant"] == "controls: static adapter"}
    assert tried == {0.125, 0.25, 0.5, 1.0, 2.0, 4.0}, "the best is not at the edge"
    assert not sum(line["missing"] for line in few.planned([0, 1])) and few.planned([2])[0]["missing"] == 1
    n = len(made)
    few.study.lengths.extend([0.5, 2.0])
    few.run_all([0, 1], ignore)
    assert len(made) == n + 2 * 2, "nothing is repeated"


@pytest.mark.parametrize("corpus", [0, 1])
def test_the_results_of_the_study_are_those_of_its_file(corpus):
    "Every line counts as a run of the study, so that it goes on from there"
    study = read_study(ROOT / "tools/studies/photographs_paper.yaml")
    part = study.corpora[corpus]
    assert finished(study, part) == read_runs(results_file(study, part)) != []
