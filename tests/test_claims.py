"""The papers' claims: every one names rows of the paper that are printed in its order, and variants that exist"""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dasd_lab.base.presets import load_preset
from dasd_lab.evaluation.claims import CLAIMS, NOT_RUN, Runs, at_best_rates, claims_table
from dasd_lab.evaluation.studies import StudyData, read_runs
from dasd_lab.evaluation.tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "data/results"
FORM = "dasd.photographs_paper"
DEPTHS = (3, 6, 12)  # blocks of the towers here and in the papers


def named(claim):
    return f"{claim.paper}-{claim.table}-{claim.better}-{claim.worse}"


@pytest.mark.parametrize("claim", CLAIMS, ids=named)
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


@pytest.mark.parametrize("n_blocks,last", [(3, 2), (6, 5), (12, 11)])
def test_the_last_block_is_that_of_the_tower(n_blocks, last):
    claim = next(claim for claim in CLAIMS if claim.table == "10" and claim.better == "none removed")
    preset = load_preset("dasd.pictograms")
    rows = TABLES["dasd"]["10"].rows(preset, SimpleNamespace(n_blocks=n_blocks))
    # block k alone loses k + 1 points
    recall = {row.name: 0.9 - 0.01 * sum(block + 1 for block in row.reading.get("skip", ())) for row in rows}
    runs = [dict(variant=name, seed=0, mean_recall=value) for name, value in recall.items()]
    found = claims_table([Runs("dasd", ("10",), "", (), 1, runs)], [claim])
    assert found["difference"].item() == pytest.approx(last + 1)


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
    "tools/studies/claims.py, without a corpus, on a tower of six blocks; runs whose recall depends on row and rate"
    monkeypatch.syspath_prepend(str(ROOT / "tools/studies"))
    import claims

    backbone = SimpleNamespace(n_blocks=6)
    data = StudyData(SimpleNamespace(name="c"), backbone, "validation")
    monkeypatch.setattr(StudyData, "settings", lambda self: dict(backbone="b", corpus="c", split=self.split))
    monkeypatch.setattr(claims, "data_for", lambda corpus: data)
    monkeypatch.setattr(claims, "RATES", tmp_path)
    made = []

    def measure(self, variant, seed):
        factor = self.preset["stages"][0]["learning_rate"] / load_preset(FORM)["stages"][0]["learning_rate"]
        made.append((variant, seed, factor, self.data.split))
        best = 0.25 if "static" in variant else 2.0
        figures = dict(parameters=1, cpu_s=0, precision="float32", sum_recall={})
        return figures | dict(mean_recall=1 / (1 + abs(factor - best)))

    monkeypatch.setattr(claims.TableRuns, "__init__", lambda self, data, preset, *_: setattr(self, "preset", preset))
    monkeypatch.setattr(claims.TableRuns, "measure", measure)
    return claims, made


def test_the_study_of_learning_rates_fills_every_row_with_the_rate_chosen_for_it(study):
    claims, made = study
    claims.main(FORM, ["de"], [0, 1], ["controls", "4"], longer=False)
    lines = read_runs(claims.RATES / "photographs_paper_de.jsonl")
    counted = at_best_rates(lines)
    rows = claims.Rates(FORM, "de", ["controls", "4"]).trained
    assert {(line["variant"], line["seed"]) for line in counted} == {
        (row.name, seed) for of_one in rows.values() for row in of_one for seed in (0, 1)
    }
    expected = {"controls: word alignment alone": 1.0}  # nothing is trained, so that no rate is tried
    for line in counted:
        best = expected.get(line["variant"], 0.25 if "static" in line["variant"] else 2.0)
        assert line["factor"] == best, line["variant"]
    tried = {line["factor"] for line in lines if line["variant"] == "controls: static adapter"}
    assert tried == {0.125, 0.25, 0.5, 1.0, 2.0, 4.0}, "the best is not at the edge"
    n = len(made)
    claims.main(FORM, ["de"], [0, 1], ["controls", "4"], longer=True)
    assert len(made) == n + 2 * (len(claims.LENGTHS) - 1), "nothing is repeated"
