"The layout is the data's path: names, numbers, and imports that only look back"

import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
EXPORTING = sorted(p for p in NBS.glob("*.ipynb") if p.name != "index.ipynb")
COMPANIONS = sorted(p for folder in ("guides", "studies", "pages") for p in (NBS / folder).rglob("*.ipynb"))
OWN = re.compile(r"^\s*(?:from\s+dasd_lab((?:\.\w+)*)\s+import\s+([\w ,()]+)|import\s+dasd_lab((?:\.\w+)+))", re.M)
name = lambda p: str(p.relative_to(NBS))


def sources(path: Path) -> list[str]:
    "Code cells of a notebook"
    return [
        "".join(c["source"]) for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"
    ]


def imported(source: str) -> set[str]:
    "Own modules that a cell imports, without the package's name; `from dasd_lab.a import b` may mean a.b"
    found = set()
    for package, names, module in OWN.findall(source):
        if module:
            found.add(module[1:])
        else:
            found.add(package[1:])
            found |= {f"{package[1:]}.{n}".strip(".") for n in re.findall(r"\w+", names)}
    return found


def number(path: Path) -> str:
    "A place is two digits; one that was opened into ten has a third, and a fourth where that was opened again: 71 comes before 710, 710 before 7105, and all before 72"
    return re.match(r"\d+", path.name)[0]  # compared as text


def module(path: Path) -> str:
    return path.stem.split("_", 1)[1]


MODULES = {module(p): number(p) for p in EXPORTING}


@pytest.mark.parametrize("path", EXPORTING, ids=name)
def test_stem_is_number_and_module(path):
    assert re.fullmatch(r"\d{2,4}_[a-z_]+(\.[a-z_]+)*", path.stem), "two digits, three or four, then the module"
    exps = re.findall(r"(?m)^#\|\s*default_exp\s+(\S+)", "\n".join(sources(path)))
    assert exps == [module(path)]


def test_no_number_is_used_twice():
    numbers = [number(p) for p in EXPORTING]
    assert len(set(numbers)) == len(numbers), numbers


@pytest.mark.parametrize("path", EXPORTING, ids=name)
def test_imports_only_look_back(path):
    for source in sources(path):
        for module in imported(source) & set(MODULES):
            assert MODULES[module] < number(path), f"{path.name} imports {module}, which comes later on the path"


def test_the_reading_of_imports():
    assert imported("from dasd_lab.a.b import c, d") >= {"a.b", "a.b.c", "a.b.d"}
    assert imported("def f():\n    import dasd_lab.late\n") == {"late"}
    assert imported("from dasd_lab import late") >= {"late"}
    assert not imported('from dasd_labs.a import b\nprint("from dasd_lab")') - {""}


@pytest.mark.parametrize("path", COMPANIONS, ids=name)
def test_companions_export_nothing(path):
    for source in sources(path):
        assert not re.search(r"(?m)^#\|\s*(default_exp|export)", source)


@pytest.mark.parametrize("path", EXPORTING, ids=name)
def test_names_say_something(path):
    assert not set(re.split(r"[._]", module(path))) & {
        "utils",
        "util",
        "helpers",
        "helper",
        "common",
        "misc",
        "core",
        "tools",
    }


def module_path(module: str) -> Path:
    return ROOT / "dasd_lab" / f"{module.replace('.', '/')}.py"


def test_modules_stay_small():
    lines = {m: len(module_path(m).read_text(encoding="utf-8").splitlines()) for m in MODULES}
    assert not {m: n for m, n in lines.items() if n > 400}
    assert statistics.median(lines.values()) <= 200


EXPLORERS = sorted(p.parent for p in (ROOT / "dasd_lab/explore").glob("*/state.py"))
WIDGETS, FIGURES = {"ipywidgets", "anywidget", "dasd_lab.explore.controls"}, {"plotly"}


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
def test_an_explorer_is_state_figures_and_panel(folder):
    "A state can be tested without widgets and without figures, figures without widgets"
    assert {p.stem for p in folder.glob("*.py")} == {"__init__", "state", "figures", "panel"}
    assert not packages(folder / "state.py") & (WIDGETS | FIGURES)
    assert not packages(folder / "figures.py") & WIDGETS
    assert "ipywidgets" in packages(folder / "panel.py") or "dasd_lab.explore.controls" in packages(folder / "panel.py")


def test_every_explorer_has_a_tab():
    from dasd_lab.explore.app import EXPLORERS as tabs

    assert sorted(tabs.values()) == [p.name for p in EXPLORERS]
