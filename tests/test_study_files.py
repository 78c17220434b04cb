"A study is a file: stopped and continued at the step, its changed rows are new rows, and what its report says"

import json
import signal

import pytest
from squares import TINY, Tested

from dasd_lab.backbone.towers import save_backbone
from dasd_lab.base.presets import vary
from dasd_lab.commands.cli import main
from dasd_lab.evaluation.comparison import read_run, run_folders
from dasd_lab.evaluation.studies import read_runs
from dasd_lab.training.runs import TrainingRun

SHORT = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})
SEEDS = 0, 1


@pytest.fixture(scope="module")
def backbone(backbone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tower") / "backbone"
    save_backbone(backbone, folder)
    return folder


@pytest.fixture
def write(backbone, tmp_path, monkeypatch):
    "Writes the study: two trained rows and a control with two seeds"
    monkeypatch.setenv("DASD_LAB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("dasd_lab.corpora.catalog.load_corpus", lambda name, **_: Tested())
    monkeypatch.setattr("dasd_lab.training.recipes.write_readme", lambda *_: None)  # draws curves
    (tmp_path / "tiny.json").write_text(json.dumps(SHORT))
    rows = [
        dict(name="DASD"),
        dict(name="without its adapters", reading=dict(skip=[0, 1])),
        dict(name="narrow", changes={"config.adapter.bottleneck": 2}),
    ]
    corpora = [dict(corpus="pictograms", languages=["de"], backbone=str(backbone))]
    study = dict(preset=str(tmp_path / "tiny.json"), corpora=corpora, rows=rows, seeds=SEEDS)

    def written(name, **changes):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(study | changes))
        return str(path)

    return written


def figures(path):
    "Lines without their times"
    return [{k: v for k, v in line.items() if k != "cpu_s"} for line in read_runs(path)]


def test_a_study_that_is_stopped_twice_goes_on_at_the_step_and_ends_as_one_that_is_not(write, tmp_path, monkeypatch):
    steps = []
    own = TrainingRun._step

    def counted(self, step, batch):
        steps.append(step)
        if len(steps) in (4, 13):
            signal.raise_signal(signal.SIGTERM)
        own(self, step, batch)

    monkeypatch.setattr(TrainingRun, "_step", counted)
    codes = [main(["study", write("stopped")]) for _ in range(3)]
    each = SHORT["stages"][0]["steps"] + SHORT["stages"][1]["steps"]
    assert codes == [130, 130, 0] and len(steps) == each * 2 * len(SEEDS), "no step is repeated"
    assert main(["study", write("whole")]) == 0
    assert figures(tmp_path / "stopped.jsonl") == figures(tmp_path / "whole.jsonl")
    assert len(figures(tmp_path / "whole.jsonl")) == 3 * len(SEEDS)
    (last,) = (tmp_path / "home/runs/in_progress").iterdir()  # which further rows may read
    assert last.name.startswith("narrow_de_seed_1-")


def test_a_report_prints_writes_and_lists_errors_and_a_changed_row_is_a_new_one(write, tmp_path, capsys):
    study = write("whole")
    assert main(["report", study]) == 1 and "no runs" in capsys.readouterr().err
    assert main(["study", study, "--keep"]) == 0
    kept = [read_run(folder) for folder in run_folders(tmp_path / "home/runs/whole")]  # as Compare reads them
    assert sorted((run.name.partition("_")[0], run.settings["seed"]) for run in kept) == [
        (row, seed) for row in ("DASD", "narrow") for seed in SEEDS
    ]
    assert main(["report", study, "--out", str(tmp_path / "out"), "--captions"]) == 0
    assert "without its adapters" in capsys.readouterr().out
    lines = (tmp_path / "out/means.tex").read_text().splitlines()
    assert {line.count("&") for line in lines if line.endswith(r"\\")} == {2} and r"\toprule" in lines
    assert sum(r"\textbf{" in line for line in lines) >= 1 and r"\scriptsize $\pm$" in "".join(lines)
    errors = (tmp_path / "out/captions.csv").read_text().splitlines()
    assert len(errors) == 1 + 48 and errors[0].endswith("DASD,without its adapters,narrow")
    assert (tmp_path / "out/worst.html").read_text().count("<img") == 20
    before = read_runs(tmp_path / "whole.jsonl")
    write("whole", changes={"stages.0.steps": 1})
    assert main(["study", study, "--dry-run", "--json"]) == 0
    assert [row["missing"] for row in json.loads(capsys.readouterr().out)["rows"]] == [2, 2]
    assert read_runs(tmp_path / "whole.jsonl") == before
