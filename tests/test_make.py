"The Makefile in a folder with spaces in its name"

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("lab", "demo", "test", "export", "docs", "bench", "clean", "help")
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


@pytest.fixture
def copy(tmp_path):
    "The files that the Makefile needs, in a path with spaces, outside any git checkout"
    folder = tmp_path / "my lab (copy) ü"
    folder.mkdir()
    for f in ("Makefile", "pyproject.toml", "constraints.txt", "settings.ini"):
        shutil.copy(ROOT / f, folder)
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def make(folder: Path, *words: str, **env) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return run(["make", *words], folder, clean | env)


def run(command: list[str], folder: Path, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_help_is_the_default_and_names_every_target(copy):
    by_name = make(copy, "help")
    default = make(copy)
    listed = set(re.findall(r"(?m)^  make (\w+)", by_name.stdout))
    assert by_name.returncode == 0 and by_name.stdout == default.stdout
    assert set(TARGETS) <= listed


@pytest.mark.parametrize("target", TARGETS)
def test_recipes_expand(copy, target):
    shown = make(copy, "-n", target)
    assert shown.returncode == 0, shown.stderr
    assert str(copy) not in shown.stdout  # paths are relative, so spaces cannot break them


def test_every_test_file_is_run_once(copy, request):
    shown = make(copy, "-n", "test").stdout
    shares = [tuple(map(int, found)) for found in re.findall(r"TESTS=(\d)/(\d) ", shown)]
    conftest = request.config.pluginmanager.getplugin(str(ROOT / "tests/conftest.py"))
    names = [p.name for p in (ROOT / "tests").glob("test_*.py")]
    run = [name for share in shares for name in conftest.shared_out(names, *share)]
    apart = [name for name in conftest.ELSEWHERE if f"tests/{name}" in shown]
    assert len(shares) > 1 and sorted(run + apart) == sorted(names)


def test_constraints_are_plain_releases():
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"https?:|file:|(?m:^-)|@", text)
    assert re.search(r"(?m)^torch==(?!2\.13\.0)[\d.]+$", text), "a plain release of torch"
