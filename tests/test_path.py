"Notebooks have the names of their modules and a number each; companions export nothing (imports: `lint-imports`)"

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
sys.path.insert(0, str(ROOT / "tools/notebooks"))
from order import COMPANIONS, exporting, place, sources

MODULES = {module: path.relative_to(NBS) for module, path in exporting(NBS).items()}


def test_a_notebook_is_named_by_its_module():
    for module, path in MODULES.items():
        assert re.fullmatch(r"\d{2}_[a-z][a-z0-9_]*", path.stem) and path.stem[3:] == module.split(".")[-1], path
        assert all(re.fullmatch(r"\d{1,2}_[a-z_]+", part) for part in path.parts[:-1]), path
        exports = re.findall(r"(?m)^#\|\s*default_exp\s+(\S+)", "\n".join(sources(NBS / path)))
        assert exports == [module], path


def test_a_room_of_the_package_is_a_folder_of_notebooks():
    rooms = {module.split(".")[0]: path.parts[0] for module, path in MODULES.items()}
    assert all(folder.split("_", 1)[1] == room for room, folder in rooms.items()), rooms


def test_every_notebook_has_a_number_of_its_own_or_is_a_companion():
    there = {p.relative_to(NBS) for p in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts}
    companions = {p for p in there if p.parts[0] in COMPANIONS} | {Path("index.ipynb")}
    assert there - companions == set(MODULES.values())
    places = [place(p) for p in MODULES.values()]
    assert len(set(places)) == len(places)
    for path in companions:
        assert not re.search(r"(?m)^#\|\s*(default_exp|export)\b", "\n".join(sources(NBS / path))), path


def test_every_explorer_has_a_tab():
    from dasd_lab.explore.app import EXPLORERS

    assert sorted(EXPLORERS.values()) == sorted(p.parent.name for p in (ROOT / "dasd_lab/explore").glob("*/state.py"))
