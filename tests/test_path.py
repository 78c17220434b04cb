"The layout is the data's path: names, numbers, and imports that only look back"

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
sys.path.insert(0, str(ROOT / "tools/notebooks"))
from order import COMPANIONS, exporting, place, sources

MODULES = {module: path.relative_to(NBS) for module, path in exporting(NBS).items()}
EXPORTING = list(MODULES.items())
OTHERS = sorted(p for folder in COMPANIONS for p in (NBS / folder).rglob("*.ipynb"))
TYPES_ONLY = re.compile(r"(?m)^if TYPE_CHECKING:.*\n(?:[ \t]+.*\n?)+")
OWN = re.compile(
    r"^\s*(?:from\s+dasd_lab((?:\.\w+)*)\s+import\s+(\([\w\s,]+\)|[\w ,]+)|import\s+dasd_lab((?:\.\w+)+))", re.M
)


def name(p):
    return str(p.relative_to(NBS)) if isinstance(p, Path) and p.is_absolute() else str(p)


def imported(source: str) -> set[str]:
    """Modules of the package that a cell imports, without the package's name; `from dasd_lab.a import b` may mean a.b.
    Imports under `if TYPE_CHECKING` serve annotations only and do not count."""
    modules = set()
    for package, names, module in OWN.findall(TYPES_ONLY.sub("", source)):
        if module:
            modules.add(module[1:])
        else:
            modules.add(package[1:])
            modules |= {f"{package[1:]}.{n}".strip(".") for n in re.findall(r"\w+", names)}
    return modules


@pytest.mark.parametrize("module,path", EXPORTING, ids=name)
def test_a_notebook_is_named_by_its_module(module, path):
    assert re.fullmatch(r"\d{2}_[a-z][a-z0-9_]*", path.stem), "two digits, then the last part of the module's name"
    assert path.stem[3:] == module.split(".")[-1]
    assert all(re.fullmatch(r"\d_[a-z_]+", part) for part in path.parts[:-1]), "one digit, then the folder's name"
    exports = re.findall(r"(?m)^#\|\s*default_exp\s+(\S+)", "\n".join(sources(NBS / path)))
    assert exports == [module]


def test_every_notebook_has_its_place():
    there = {p.relative_to(NBS) for p in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts}
    others = {p.relative_to(NBS) for p in OTHERS} | {Path("index.ipynb")}
    assert there - others == set(MODULES.values())


def test_no_number_is_used_twice():
    places = [place(p) for p in MODULES.values()]
    assert len(set(places)) == len(places)
    for folder in {p.parent for p in MODULES.values()}:
        inside = [int(re.match(r"\d+", p.name)[0]) for p in (NBS / folder).iterdir() if p.name[0].isdigit()]
        assert len(set(inside)) == len(inside), folder


@pytest.mark.parametrize("module,path", EXPORTING, ids=name)
def test_imports_only_look_back(module, path):
    for source in sources(NBS / path):
        for other in imported(source) & set(MODULES):
            assert place(MODULES[other]) < place(path), f"{path} imports {other}, which comes later on the path"


def test_the_reading_of_imports():
    assert imported("from dasd_lab.a.b import c, d") >= {"a.b", "a.b.c", "a.b.d"}
    assert imported("def f():\n    import dasd_lab.late\n") == {"late"}
    assert imported("from dasd_lab import late") >= {"late"}
    assert not imported('from dasd_labs.a import b\nprint("from dasd_lab")') - {""}


@pytest.mark.parametrize("path", OTHERS, ids=name)
def test_companions_export_nothing(path):
    for source in sources(path):
        assert not re.search(r"(?m)^#\|\s*(default_exp|export)", source)


@pytest.mark.parametrize("module", MODULES)
def test_names_say_something(module):
    empty = {"utils", "util", "helpers", "helper", "common", "misc", "core", "tools"}
    assert not set(re.split(r"[._]", module)) & empty


EXPLORERS = sorted(p.parent for p in (ROOT / "dasd_lab/explore").glob("*/state.py"))
WIDGETS = {"ipywidgets", "anywidget", "dasd_lab.explore.controls"}
FIGURES = {"plotly"}


def packages(path: Path) -> set[str]:
    "Packages a module imports at its top or inside, own modules by their whole name"
    import ast

    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            own = (
                ".".join(("dasd_lab", *path.relative_to(ROOT / "dasd_lab").parts[: -node.level])) if node.level else ""
            )
            found.add(f"{own}.{node.module}" if node.level else node.module.split(".")[0])
    return found


@pytest.mark.parametrize("folder", EXPLORERS, ids=lambda p: p.name)
def test_an_explorer_is_a_state_figures_and_a_panel(folder):
    "A state can be tested without widgets and without figures, figures, if there are any, without widgets"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {"state", "panel"} <= modules <= {"state", "figures", "panel"}
    assert not packages(folder / "state.py") & (WIDGETS | FIGURES)
    assert "figures" not in modules or not packages(folder / "figures.py") & WIDGETS


def test_every_explorer_has_a_tab():
    from dasd_lab.explore.app import EXPLORERS as tabs

    assert sorted(tabs.values()) == [p.name for p in EXPLORERS]
