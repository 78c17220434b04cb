"An explorer that is added as CONTRIBUTING says, in a copy of the repository, has a tab"

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
STATE = """from traitlets import Int

from dasd_lab.explore.workbench import State


class LengthsState(State):
    "Captions of a length"

    least = Int(20)  # characters

    def count(self):
        "Number of captions that are at least as long"
        return sum(len(c.text) >= self.least for id in self.workbench.ids for c in self.workbench.captions(id))"""
PANEL = """from dasd_lab.explore.controls import number, section
from dasd_lab.explore.lengths.state import LengthsState
from dasd_lab.explore.panel import Panel


class Lengths(Panel):
    "Captions by length"

    title = "Lengths"
    css_class = "dl-lengths-tab"
    state_class = LengthsState

    def sections(self):
        least = self.control(number("Characters", 0, 100), "least")
        self.found = self.text("dl-found dl-static", lambda s: f"{s.count()} captions", "least")
        return [section("Captions", least, self.found)]"""
EXPORT = "import sys; from nbdev.export import nb_export; [nb_export(path) for path in sys.argv[1:]]"
OPENED = """
from dasd_lab.base.contracts import Caption
from dasd_lab.explore.app import App
from dasd_lab.explore.workbench import Workbench
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.runs.loading import load_run
from PIL import Image

method = load_run("pictograms")
captions = [Caption(text, "de", "a") for text in ("kurz", "ein langer Satz mit vielen Wörtern")]
gallery = Gallery(method).add([Image.new("RGB", (32, 32))], ids=["a"], captions=captions)
app = App(Workbench(method, gallery=gallery), explorers=["Ask", "Lengths"])
app.tabs.selected_index = 1
panel = app.opened["Lengths"]
assert panel.found.value == "1 captions"
panel.state.least = 2
assert panel.found.value == "2 captions"
assert "Lengths" in app.snapshot()
print("opened", panel.__module__)
"""


def notebook(path: Path, module: str, title: str, code: str) -> None:
    "Write a notebook that exports a module"
    cells = [new_markdown_cell(f"# {title}\n\n> {title}"), new_code_cell(f"#| default_exp {module}")]
    nbformat.write(new_notebook(cells=[*cells, new_code_cell(f"#| export\n{code}")]), path)


def run(copy: Path, *command) -> str:
    "Output of a command that succeeds with the package of the copy"
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=os.environ | dict(PYTHONPATH=str(copy)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_explorer_that_is_added_as_contributing_says_has_a_tab(tmp_path):
    for name in ("settings.ini", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("dasd_lab", "nbs", "tests", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("shots"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    explorers = tmp_path / "nbs/09_explore"
    folder = explorers / "8_lengths"
    folder.mkdir()
    notebook(folder / "10_state.ipynb", "explore.lengths.state", "Lengths: state", STATE)
    notebook(folder / "30_panel.ipynb", "explore.lengths.panel", "Lengths: panel", PANEL)
    app = explorers / "80_app.ipynb"
    line = '    Compare=\\"comparison\\",\\n'
    text = app.read_text(encoding="utf-8")
    assert text.count(line) == 1
    app.write_text(text.replace(line, line + '",\n    "    Lengths=\\"lengths\\",\\n'), encoding="utf-8")
    run(tmp_path, "-c", EXPORT, *map(str, (*sorted(folder.glob("*.ipynb")), app)))
    assert "opened dasd_lab.explore.lengths.panel" in run(tmp_path, "-c", OPENED)
    run(
        tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_path.py", "-k", "explorer or tab or place"
    )
