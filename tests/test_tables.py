"""Tables of the papers: ablations run, interrupted, continued, and refused for other settings; finished runs beside the
printed numbers"""

import json

import pytest
import torch
from squares import BERT, FEW_WORDS, TINY, Squares, Tested
from test_consistency import ByColour

from dasd_lab.backbone.towers import save_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.commands.cli import main
from dasd_lab.evaluation import studies, tables
from dasd_lab.evaluation.main_tables import MAIN_TABLES
from dasd_lab.evaluation.papers import PAPERS, paper_tables
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import read_runs
from dasd_lab.evaluation.tables import TABLES, Table, reading, run_table
from dasd_lab.runs.loading import load_run
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.training.recipes import train

SHORT = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})


ONE_SEED = dict(seeds=(0,), report=str)  # a report that prints nothing


def on_squares(backbone):
    return studies.StudyData(Squares(), backbone, "train")


def test_the_numbers_of_the_papers_are_found_for_the_rows_of_the_tables():
    for paper in PAPERS:
        for number, table in TABLES[paper].items():
            printed = paper_tables(paper).get(number)
            if printed and printed.rows:
                labels = {label for row in printed.rows for label in (row.name, row.label)}
                assert {row.paper for row in table.sources if isinstance(row, tables.TableRow)} - {""} <= labels
        for number, table in MAIN_TABLES[paper].items():
            printed = paper_tables(paper)[number]
            for row in table.rows:
                body_is_missing = (paper, number) == ("smalr", "11")
                assert body_is_missing or set(printed.row(row.paper).values.values()) != {None}


def test_all_tables_of_the_papers_are_commands():
    no_numbers = {("smalr", "3"), ("smalr", "4")}  # they say which data there is
    for paper in PAPERS:
        assert set(paper_tables(paper)) <= set(TABLES[paper]) | set(MAIN_TABLES[paper]), paper
    for paper, number in dict(dasd=11, leccr=8, smalr=17).items():
        expected = {str(i) for i in range(1, number + 1) if (paper, str(i)) not in no_numbers}
        assert expected == {key for key in paper_tables(paper) if key.isdigit()}


def names(table, preset, backbone):
    return [row.name for row in table.rows(preset, backbone)]


@pytest.mark.parametrize("key", ["4", "all"])
def test_every_variant_runs_and_differs(backbone, tmp_path, key):
    found = run_table(key, SHORT, on_squares(backbone), tmp_path / "t.jsonl", **ONE_SEED)
    rows = read_runs(tmp_path / "t.jsonl")
    assert list(found.index) == names(TABLES["dasd"][key], SHORT, backbone) == [r["variant"] for r in rows]
    if key == "4":
        full, small, large, _ = (r["parameters"] for r in rows)
        one_unit = 2 * (2 * backbone.width + 1)  # of the bottleneck, in each of two blocks
        assert small < full and abs(full - large) <= one_unit


@pytest.fixture
def trainings(monkeypatch):
    "The runs that a table trains"
    made = []

    def kept(*args, **options):
        made.append(train(*args, **options))
        return made[-1]

    monkeypatch.setattr(studies, "train", kept)
    return made


def test_one_adapter_less_is_the_trained_method_without_it(backbone, tmp_path, trainings):
    "Table 10 trains once per seed, and evaluates the same method without one adapter at a time"
    run_table("10", SHORT, on_squares(backbone), tmp_path / "t.jsonl", **ONE_SEED)
    (run,) = trainings
    found = {r["variant"]: r["sum_recall"]["de"] for r in read_runs(tmp_path / "t.jsonl")}
    texts = ["ein rotes Quadrat auf der Wiese."]
    whole = run.method.encode_captions(texts, "de")
    for block in range(backbone.n_blocks):
        with reading(run.method, dict(skip=(block,))):
            less = run.method.encode_captions(texts, "de")
            expected = evaluate(run.method, Squares(), "train", ["de"], None).rows["de"]["sum_recall"]
        assert not torch.equal(less, whole)
        assert found[f"without that of block {block}"] == pytest.approx(expected)
    assert torch.equal(run.method.encode_captions(texts, "de"), whole), "nothing is left out afterwards"


SMALR = FEW_WORDS | {
    "languages": ["de"],
    "config.latent.margin": 9.0,  # that any warm-up meets
    "config.embed_dim": 8,
    "config.image_hidden": 8,
    "config.gru_width": 8,
}
for i in range(3):
    SMALR |= {f"stages.{i}.steps": 3, f"stages.{i}.batch_size": 8, f"stages.{i}.until": 0.0}
LECCR = {
    "languages": ["de"],
    "vocab_size": 120,
    "config.text": dict(encoder=BERT, max_tokens=32),
    "config.embed_dim": 16,
    "config.block.heads": 2,
    "stages.0.steps": 3,
    "stages.0.batch_size": 8,
}
# of the same number of parameters; each group has fewer than the next
SIZES = dict(
    leccr=[
        ["baseline"],
        ["slots read vision (V2C)", "vision reads slots (C2V)", "co-attention"],
        ["LECCR", "guided by S_g alone"],
        ["8 slots"],
    ],
    smalr=[["shared entries alone (LA)"], ["without masked words (HEM)"], ["SMALR"]],
)
SIZES["smalr, own words"] = [["MULE, PCA to 1"], ["MULE, PCA to 2"], ["every word its own vector (MULE)"]]


@pytest.mark.parametrize("method,changes", [("leccr", LECCR), ("smalr", SMALR)])
def test_every_variant_of_another_method_runs_and_differs(backbone, tmp_path, monkeypatch, method, changes):
    "One file for all of its tables; the number of parameters shows what each variant lacks"
    preset = vary(load_preset(f"{method}.pictograms"), changes)
    rows = TABLES[method]["all"].rows(preset, backbone)
    some = tuple(row for row in rows if "seen 50 times" not in row.name)  # no word of this corpus is
    monkeypatch.setitem(TABLES[method], "all", Table("all of these", some))
    found = run_table("all", preset, on_squares(backbone), tmp_path / "t.jsonl", **ONE_SEED)
    size = {r["variant"]: r["parameters"] for r in read_runs(tmp_path / "t.jsonl")}
    assert list(found.index) == list(size) == names(TABLES[method]["all"], preset, backbone)
    for groups in (groups for name, groups in SIZES.items() if name.startswith(method)):
        counts = [{size[variant] for variant in group} for group in groups]
        assert all(len(count) == 1 for count in counts) and counts == sorted(counts, key=min)


def test_rows_with_translated_queries_and_with_branches_of_each_language(backbone, tmp_path):
    "SMALR's Table 1: CLC is the trained method with other queries; S-LIWE is not run"
    options = ONE_SEED | dict(fuse=lambda method, _: Consistent(method, ByColour()))
    run_table("1", vary(load_preset("smalr.pictograms"), SMALR), on_squares(backbone), tmp_path / "t.jsonl", **options)
    full, mean, learned, _, _, parallel, alone = read_runs(tmp_path / "t.jsonl")
    assert full["parameters"] == mean["parameters"] and full["cpu_s"] == mean["cpu_s"] == learned["cpu_s"]
    assert parallel["parameters"] < alone["parameters"] and mean["translator"] == "by colour"


def test_the_methods_run_on_one_file(backbone, tmp_path, monkeypatch):
    "Small presets of the other methods, each trained by its own stages"
    small = {"leccr.pictograms": {n: v for n, v in LECCR.items() if "config" in n}, "smalr.pictograms": SMALR}
    monkeypatch.setattr(tables, "load_preset", lambda n: vary(load_preset(n), small.get(n, {})))
    found = run_table("methods", SHORT, on_squares(backbone), tmp_path / "t.jsonl", **ONE_SEED)
    assert list(found.index)[:3] == ["DASD", "static adapter", "LECCR"]
    assert sum("SMALR" in n for n in found.index) == 2
    assert found.loc["DASD", "seeds"] == 1
    frozen = found.loc["the frozen tower, without training"]
    assert frozen["parameters"] == 0 and frozen["mean_recall"] >= 0, "the baseline of the table"


@pytest.mark.parametrize(
    "content", [b"[1]\n", b"{\n", b'{"variant": "both"}\n', b'{"a": "\xff"}\n', b"[" * 10**5 + b"\n"]
)
def test_a_results_file_that_is_something_else_is_refused_and_kept(backbone, tmp_path, content):
    out = tmp_path / "t.jsonl"
    out.write_bytes(content)
    with pytest.raises(LabError, match="t.jsonl") as e:
        run_table("5", SHORT, on_squares(backbone), out, **ONE_SEED)
    assert e.value.next_step and len(str(e.value)) < 500 and out.read_bytes() == content


def test_the_command(backbone, tmp_path, capsys, monkeypatch):
    "dasd-lab table, whose rerun trains nothing"
    monkeypatch.setattr("dasd_lab.corpora.catalog.load_corpus", lambda name, **_: Tested())
    (tmp_path / "tiny.json").write_text(json.dumps(SHORT))
    save_backbone(backbone, tmp_path / "backbone")
    command = ["table", "3", "--preset", str(tmp_path / "tiny.json"), "--seeds", "0"]
    command += ["--out", str(tmp_path / "t.jsonl"), "--backbone", str(tmp_path / "backbone")]
    assert main(command) == 0
    one = capsys.readouterr().out
    assert "static adapter" in one and len(read_runs(tmp_path / "t.jsonl")) == 2
    assert "DASD, Table 3" in one and "88.5" in one, "the paper's German figure"
    rows = printed_json(capsys, *command)["rows"]
    assert next(row for row in rows if row["column"] == "DE")["paper"] == 88.5


@pytest.fixture(scope="module")
def finished(backbone, tmp_path_factory):
    "A run folder"
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(SHORT, Squares(), ["de"], folder, backbone=backbone, progress=False)
    return folder


def printed_json(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_beside_a_main_table(finished, tmp_path, capsys, monkeypatch):
    "One row for each dataset, language and setting; what is missing has a note"
    monkeypatch.setattr("dasd_lab.corpora.catalog.load_corpus", lambda name, **_: Tested())
    command = ["table", "1", "--run", str(finished), "--corpus", "pictograms"]
    rows = {(row["row"], row["column"]): row for row in printed_json(capsys, *command)["rows"]}
    expected = evaluate(load_run(finished), Tested(), languages=["de"]).rows["de"]["mean_recall"]
    german = rows["tiny", "DE"]
    assert german["ours"] == pytest.approx(100 * expected, abs=0.01)
    assert (german["corpus"], german["language"], german["paper"]) == ("pictograms", "de", 87.4)
    assert rows["tiny", "FR"]["note"] == "the run does not read fr" and rows["tiny", "FR"]["ours"] is None
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "the run does not read fr" in shown.out and "DASD, Table 1" in shown.err
    official = printed_json(capsys, *command, "--reading", "official")
    assert official["reading"] == "official"


@pytest.mark.parametrize("paper,number,corpus", [("leccr", "2", "vatex"), ("dasd", "1", "multi30k_both")])
def test_a_main_table_without_its_corpora(capsys, monkeypatch, tmp_path, paper, number, corpus):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    rows = printed_json(capsys, "table", number, "--paper", paper)["rows"]
    assert all(row["ours"] is None for row in rows)
    assert any(row["paper"] is not None for row in rows)
    assert f"corpus not here: dasd-lab corpus info {corpus} says how to get it" in {row["note"] for row in rows}


def test_the_list_of_tables(capsys):
    rows = printed_json(capsys, "table", "list")["rows"]
    commands = {row["command"] for row in rows}
    assert {"dasd-lab table 10", "dasd-lab table 2 --paper leccr", "dasd-lab figure 5"} <= commands
    assert all(row["shows"] and row["needs"] for row in rows)
    assert len({(row["paper"], row["number"]) for row in rows}) == len(rows)
