"The page Adding a method, walked as it is written, in a copy of the repository"

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "nbs/pages/adding_a_method.ipynb"
LOSS = """#| export
import torch.nn.functional as F

from dasd_lab.training.losses import loss, named


@loss(reads=("target_features", "source_features"))
def turned_away(features):
    "How far captions point away from their originals: 1 − cosine"
    return 1 - F.cosine_similarity(*named(features, "target_features", "source_features")).mean()
"""
STAGE = dict(
    name="cross_lingual_alignment",
    terms=[dict(loss="alignment"), dict(loss="turned_away", weight=2.0)],
    trains=["vectors", "project"],
    steps=4,
    batch_size=16,
)
PRESET = dict(
    corpus="pictograms",
    languages=["de"],
    backbone=dict(run="pictograms"),
    vocab_size=300,
    method="bag",
    config=dict(token_width=8),
    stages=[STAGE],
)
COMMANDS = """
import sys
from dasd_lab.commands.cli import main
captions, out = sys.argv[1:]
print("exit", main(["train", "bag.pictograms", "--dry-run"]))
print("exit", main(["train", "bag.pictograms", "--dry-run", "--set", "stages.0.terms.1.loss=turned_awry"]))
print("exit", main(["train", "bag.pictograms", "--captions", captions, "--languages", "de", "--out", out]))
"""


def notebook(path: Path, *cells: str) -> None:
    "Write a notebook of code cells"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[*map(new_code_cell, cells)]), path)


def replace_in(path: Path, old: str, new: str) -> None:
    "Change one line of a notebook"
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def copy(tmp_path):
    "The repository with the method of the page, a loss, and a preset, exported"
    copy = tmp_path / "copy"
    for folder in ("nbs", "dasd_lab"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns(".*"))
    for file in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / file, copy)
    (copy / "data").symlink_to(ROOT / "data")
    code = ["".join(c["source"]) for c in json.loads(PAGE.read_text())["cells"] if c["cell_type"] == "code"]
    imports, config, method = (next(c for c in code if c.startswith(start)) for start in ("from", "@data", "@register"))
    exported = [f"#| export\n{cell}" for cell in (imports, config, method)]
    notebook(copy / "nbs/04_methods/4_bag/10_encoder.ipynb", "#| default_exp bag.encoder", *exported)
    notebook(copy / "nbs/06_training/1_loop/16_turned_away.ipynb", "#| default_exp training.turned_away", LOSS)
    modules = copy / "nbs/00_base/05_contracts.ipynb"
    replace_in(modules, "METHOD_MODULES = dict(", "METHOD_MODULES = dict(bag='dasd_lab.bag.encoder', ")
    losses = copy / "nbs/06_training/1_loop/10_losses.ipynb"
    replace_in(losses, "LOSS_MODULES = ", "LOSS_MODULES = 'dasd_lab.training.turned_away', ")
    (copy / "dasd_lab/base/presets/bag.pictograms.json").write_text(json.dumps(PRESET))
    subprocess.run([Path(sys.executable).parent / "nbdev_export"], cwd=copy, check=True)
    return copy


def test_a_method_with_a_loss_of_its_own_is_planned_and_trained(copy, tmp_path):
    "Found by their names; a loss that does not exist is refused before anything is trained"
    things = dict(dog="Hund", cat="Katze", tree="Baum", boat="Boot", house="Haus")
    rows = [f"{n} {en} here.\t{n} {de} hier." for n in range(24) for en, de in things.items()]
    (tmp_path / "de.tsv").write_text("en\tde\n" + "\n".join(rows) + "\n")
    arguments = [sys.executable, "-c", COMMANDS, tmp_path / "de.tsv", tmp_path / "run"]
    environment = os.environ | dict(PYTHONPATH=str(copy))
    done = subprocess.run(arguments, check=False, cwd=copy, env=environment, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("exit")] == ["exit 0", "exit 1", "exit 0"], (
        done
    )
    assert "1 × alignment, 2 × turned_away" in done.stdout
    assert "'turned_awry'" in done.stderr and "Did you mean turned_away?" in done.stderr
    card = json.loads((tmp_path / "run/card.json").read_text())
    assert (card["method"], card["stages"]) == ("bag", {"cross_lingual_alignment": 4})
