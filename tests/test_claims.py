"""The papers' claims: every one names rows of the paper that are printed in its order, and variants that exist"""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dasd_lab.evaluation.claims import CLAIMS, FOUND, NOT_RUN, NOT_TOLD_APART, REVERSED, Runs, claims_table, verdict
from dasd_lab.evaluation.tables import TABLES
from dasd_lab.presets import load_preset

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "data/results"
DEPTHS = (3, 6, 12)  # blocks of the towers here and in the papers


def named(claim):
    return f"{claim.paper}-{claim.table}-{claim.better}-{claim.worse}"


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
def test_a_claim_names_rows_of_the_paper_that_stand_in_this_order(claim):
    rows = claim.printed.rows
    better, worse = claim.rows
    assert better in rows and worse in rows and better is not worse
    if claim.printed.columns:
        figures = claim.figures()
        assert figures[0] > figures[1]


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.variants], ids=named)
def test_its_variants_are_rows_of_our_tables(claim):
    names = set()
    preset = load_preset(f"{claim.paper}.pictograms")
    for table in TABLES[claim.paper].values():
        for n_blocks in DEPTHS:
            names |= {row.name for row in table.rows(preset, SimpleNamespace(n_blocks=n_blocks))}
    for pair in claim.variants:
        assert set(pair) <= names


def test_only_translated_queries_of_smalr_have_no_variant():
    without = {claim.better for claim in CLAIMS if not claim.variants}
    assert without == {"SMALR-CLC-A", "SMALR-CLC-C"}


@pytest.mark.parametrize("n_blocks,last", [(3, 2), (6, 5), (12, 11)])
def test_the_last_block_is_that_of_the_tower(n_blocks, last):
    claim = next(claim for claim in CLAIMS if claim.table == "10" and claim.better == "none removed")
    preset = load_preset("dasd.pictograms")
    rows = TABLES["dasd"]["10"].rows(preset, SimpleNamespace(n_blocks=n_blocks))
    # block k alone loses k + 1 points
    recall = {row.name: 0.9 - 0.01 * sum(block + 1 for block in row.skip) for row in rows}
    runs = [dict(variant=name, seed=0, mean_recall=value) for name, value in recall.items()]
    found = claims_table([Runs("dasd", ("10",), "", (), 1, runs)], [claim])
    assert found["difference"].item() == pytest.approx(last + 1)


@pytest.mark.parametrize(
    "differences,said",
    [
        ([], NOT_RUN),
        ([3.0], NOT_TOLD_APART),
        ([0.5, 0.6, 0.4], FOUND),
        ([-0.5, -0.6, -0.4], REVERSED),
        ([0.5, 0.6, -0.4], NOT_TOLD_APART),
        ([1.0, 4.0], NOT_TOLD_APART),  # two seeds: the interval is 12.7 standard errors to each side
    ],
)
def test_the_interval_decides(differences, said):
    assert verdict(differences) == said


def test_the_shipped_results_agree_with_the_study():
    runs = [json.loads(line) for line in (RESULTS / "ablations.jsonl").read_text().splitlines()]
    names = {"both": "DASD", "all": "DASD"}
    found = claims_table([Runs("dasd", ("4", "5", "6"), "pictograms", ("de", "zh"), 430, runs, names)])
    by_claim = found.set_index("claim")
    own = {seed: 100 * r["mean_recall"] for r in runs if r["variant"] == "DASD" for seed in [r["seed"]]}
    other = {seed: 100 * r["mean_recall"] for r in runs if r["variant"] == "no L_sc" for seed in [r["seed"]]}
    expected = sum(own[seed] - other[seed] for seed in own) / 3
    assert by_claim.loc["L_sc helps: both losses > without L_sc", "difference"] == pytest.approx(expected)
    tested = found[found["table"].isin(["Table 4", "Table 5", "Table 6"]) & (found["paper"] == "DASD")]
    assert (tested["seeds"] == 3).all() and (tested["verdict"] != NOT_RUN).all()
    assert (found.drop(tested.index)["verdict"] == NOT_RUN).all()


@pytest.fixture
def study(monkeypatch):
    "tools/studies/claims.py, without a corpus, on a tower of six blocks"
    spec = importlib.util.spec_from_file_location("tools_claims", ROOT / "tools/studies/claims.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tools_claims", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "opened", lambda language: (None, SimpleNamespace(n_blocks=6)))
    return module


def pretend(study, tasks, work, recall):
    "Write the lines that runs would write"
    for task in tasks:
        common = dict(table=task.table, seed=task.seed, split=task.split)
        common |= dict(preset=json.dumps(task.preset()), mean_recall=recall(task))
        lines = [common | dict(variant=row.name) for row in study.rows_to_run(task, 6)]
        study.write_lines(lines[:-1], task.out(work))
        assert not study.done(task, work), "a row is missing"
        study.write_lines(lines, task.out(work))
        assert study.done(task, work)


@pytest.mark.parametrize("language", ["zh", "de"])
def test_the_study_of_learning_rates_fills_every_row_with_the_rate_chosen_for_it(
    study, language, tmp_path, monkeypatch
):
    assert not list(study.test_tasks(language, [0, 1], tmp_path)), "no test before the rates are chosen"
    static = {"static adapter", "static adapter, as many parameters"}
    wanted = {True: 0.5, False: 2.0}
    tasks = list(study.validation_tasks(language))
    assert len({task.out(tmp_path) for task in tasks}) == len(tasks)
    pretend(study, tasks, tmp_path, lambda task: float(task.factor == wanted[task.variant in static]))
    pretend(study, study.test_tasks(language, [0, 1], tmp_path), tmp_path, lambda task: 0.5)
    found = study.lines_of(language, tmp_path)
    for table, lines in found.items():
        rows = study.WHOLE[table].rows(load_preset("dasd.photographs"), SimpleNamespace(n_blocks=6))
        assert [(line["variant"], line["seed"]) for line in lines] == [(row.name, s) for row in rows for s in (0, 1)]
        assert all(study.rate_of(line) == wanted[line["variant"] in static] for line in lines)
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    study.merge([language], [0, 1], tmp_path)
    study.restore(language, tmp_path / "another folder")
    assert study.lines_of(language, tmp_path / "another folder") == found
    assert all(study.done(task, tmp_path / "another folder") for task in tasks)
    assert all(study.done(task, tmp_path / "another folder") for task in study.test_tasks(language, [0, 1], tmp_path))


def test_a_rate_at_the_edge_is_followed_by_the_next_one(study, tmp_path):
    tasks = study.validation_tasks("de")
    pretend(study, tasks, tmp_path, lambda task: float(task.factor == 0.5))
    further = study.further_tasks("de", tmp_path)
    assert {task.factor for task in further} == {0.25} and len(further) == len(tasks) / len(study.FACTORS)
    pretend(study, further, tmp_path, lambda task: 2.0)
    assert not study.further_tasks("de", tmp_path)
    assert {task.factor for task in study.test_tasks("de", [0], tmp_path)} == {0.25}
