"The page *Adding a corpus*, followed as it is written in a copy of the repository"

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
PAGE = nbformat.read(ROOT / "nbs/pages/adding_a_corpus.ipynb", as_version=4)


def copy_of_the_repository(folder: Path) -> Path:
    "What exporting and running need, without outputs and history"
    for name in ("nbs", "dasd_lab"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.nb.txt"))
    for name in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def cell_with(text: str) -> str:
    "The code of the page that contains a text"
    return next(cell.source for cell in PAGE.cells if cell.cell_type == "code" and text in cell.source)


def test_adding_a_corpus_takes_one_notebook(tmp_path):
    "A description in a notebook of its own is exported, listed, and has a card"
    repository = copy_of_the_repository(tmp_path / "lab")
    advice = next(cell.source for cell in PAGE.cells if "Before others use it" in cell.source)
    name = re.search(r"`(\d+_postcards\.ipynb)`", advice)[1]
    module = re.search(r"`(#\| default_exp \S+)`", advice)[1]
    imports, code = cell_with('@published_corpus("postcards")').split("\n\n", 1)
    cells = [nbformat.v4.new_markdown_cell("# Postcards\n\n> Three postcards"), nbformat.v4.new_code_cell(module)]
    cells += [nbformat.v4.new_code_cell(f"#| export\n{source}") for source in (imports, code)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), repository / "nbs/01_corpora/3_published" / name)
    environment = os.environ | dict(PYTHONPATH=str(repository), DASD_LAB_DATA=str(tmp_path / "data"))

    def run(*words: str) -> str:
        done = subprocess.run(words, check=False, cwd=repository, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(str(Path(sys.executable).with_name("nbdev_export")))
    card = run(sys.executable, "-m", "dasd_lab.commands.cli", "corpus", "info", "postcards")
    assert "CC BY 4.0" in card and "[missing] `captions.it.txt`" in card
    rows = json.loads(run(sys.executable, "-m", "dasd_lab.commands.cli", "corpus", "info", "--json"))["rows"]
    assert next(row for row in rows if row["corpus"] == "postcards")["missing"] == "3 of 3 files"
