"Package, notebooks and README say the same, and notebooks are stored clean"

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(
    p
    for p in (ROOT / "nbs").rglob("*.ipynb")
    if not any(part.startswith((".", "_")) for part in p.relative_to(ROOT).parts)
)
sys.path.insert(0, str(ROOT / "tools" / "notebooks"))


def ids(p):
    return str(p.relative_to(ROOT / "nbs"))


def modules(root: Path) -> dict[str, str]:  # file → text
    return {str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in sorted((root / "dasd_lab").rglob("*.py"))}


def test_export_leaves_no_difference(tmp_path):
    "Exported anew in a copy: catches an edited module, a forgotten export and a module whose notebook is gone"
    copy = tmp_path / "a copy"
    for folder in ("nbs", "dasd_lab"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for file in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / file, copy)
    for p in (copy / "dasd_lab").rglob("*.py"):
        if p.name != "__init__.py":
            p.unlink()
    subprocess.run([Path(sys.executable).parent / "nbdev_export"], cwd=copy, check=True)
    have = modules(ROOT)
    anew = modules(copy)
    assert sorted(have) == sorted(anew)
    assert not [f for f in have if have[f] != anew[f]], "these differ from their notebooks; run: make export"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_notebooks_are_clean(path):
    from clean import cleaned

    text = path.read_text(encoding="utf-8")
    assert cleaned(text) == text, "run: make export"
    nb = json.loads(text)
    assert nb["cells"] and "widgets" not in nb["metadata"]
    cell_ids = [c["id"] for c in nb["cells"]]
    assert len(set(cell_ids)) == len(cell_ids)
    kinds = [o["output_type"] for c in nb["cells"] for o in c.get("outputs", [])]
    assert "error" not in kinds, "a stored traceback"
    assert path.stat().st_size < 2_500_000, "outputs are kept small"


def test_readme_is_the_index_notebook():
    from readme import from_the_root, readme

    index = nbformat.read(ROOT / "nbs/index.ipynb", as_version=4)
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    assert from_the_root(readme(index), "nbs") == written, "run: make export"
