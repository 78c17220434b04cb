"Documentation without building it: equations against code, the contents against the pages, links, workflows"

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from cyclopts import CycloptsError, validators

from dasd_lab.base.presets import list_presets
from dasd_lab.commands import arguments
from dasd_lab.commands.cli import command_line

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
sys.path.insert(0, str(ROOT / "tools/notebooks"))
from order import COMPANIONS, sources


@pytest.fixture(scope="module")
def equations():
    "Names of the equation page, without its table and its own checks"
    names = {}
    for source in sources(NBS / "pages/equations.ipynb"):
        if not re.search(r"(?m)^#\|\s*echo: false|^assert", source):
            exec(source, names)
    return names


def test_every_equation_has_its_line(equations):
    said = equations["EQUATIONS"]
    assert {m: [int(n.split()[0]) for n, *_ in said[m] if n] for m in ("dasd", "leccr")} == dict(
        dasd=list(range(1, 17)), leccr=list(range(1, 26))
    )
    for _number, formula, words, *where in sum(said.values(), []):
        assert equations["line_of"](*where) > 0
        assert formula.count("{") == formula.count("}") and words


def test_docstrings_and_table_name_the_same_equations(equations):
    table = set()
    at = []
    for number, _, _, module, *_ in sum(equations["EQUATIONS"].values(), []):
        at = re.findall(r"\d+", number) or at  # a row without a number goes on with the one above
        table |= {(int(n), module) for n in at}
    for name in {module for _, module in table}:
        module = importlib.import_module(f"dasd_lab.{name}")
        for public in module.__all__:
            doc = getattr(getattr(module, public), "__doc__", None) or ""
            for first, last in re.findall(r"Eq\. (\d+)(?:-(\d+))?", doc):
                named = range(int(first), int(last or first) + 1)
                assert any((n, name) in table for n in named), (name, public, doc)


def test_every_companion_is_in_the_contents_of_the_site():
    index = json.loads((NBS / "index.ipynb").read_text(encoding="utf-8"))
    listed = re.findall(r"(?m)^\w+/\w+$", "\n".join("".join(cell["source"]) for cell in index["cells"]))
    written = {f"{folder}/{path.stem}" for folder in COMPANIONS for path in (NBS / folder).glob("*.[im][pd]*")}
    assert sorted(listed) == sorted(written)


def test_links_of_companions_lead_to_notebooks():
    for p in (p for p in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts):
        for c in json.loads(p.read_text(encoding="utf-8"))["cells"]:
            if c["cell_type"] != "markdown":
                continue
            for target in re.findall(r"\]\((?!https?:)([^)\s#]+\.ipynb)", "".join(c["source"])):
                assert (p.parent / target).is_file(), f"{p.name} links to {target}"


def commands_in(path):
    "Complete lines of shell blocks that begin with `dasd-lab`, in prose"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        prose = [c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        text = "\n".join("".join(c["source"]) for c in prose)
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", text)
    return [line for block in blocks for line in re.findall(r"(?m)^dasd-lab (.+)$", block.replace("\\\n", " "))]


def test_commands_in_prose_can_be_typed(monkeypatch):
    "Options that are gone, and presets that are not there; files and names of examples need not exist"
    monkeypatch.setattr(arguments, "resolve_name", lambda place: str)
    monkeypatch.setattr(validators.Path, "__call__", lambda *given: None)
    found = {path: commands_in(path) for path in (*NBS.rglob("*.ipynb"), *ROOT.glob("*.md"))}
    container = re.sub(r'\\(?=")|"\]|\$\{[^}]*\}', "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    found[ROOT / "Dockerfile"] = re.findall(r"dasd-lab ((?:gallery|publish|serve) .+)", container)
    assert len(found[ROOT / "Dockerfile"]) == 3
    assert sum(map(len, found.values())) > 90
    for path, lines in found.items():
        for line in lines:
            words = shlex.split(line.split(" | ")[0], comments=True)
            try:
                preset = command_line(words).parse_args(words)[1].arguments.get("preset")
            except CycloptsError as e:
                pytest.fail(f"{path.relative_to(ROOT)}: dasd-lab {line}: {e}")
            if isinstance(preset, str) and re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", preset):
                assert preset in list_presets(), path
