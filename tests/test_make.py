"The Makefile in a folder with spaces in its name, without the environment of the tests"

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


def fake(folder: Path, name: str, body: str) -> None:
    "Write an executable that replaces another one"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


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


FAKE_UV = """
[ "$1" = --version ] && exit 0
case " $* " in *" --dry-run "*) exit 1;; esac  # no torch for CPUs in the index
echo "$*" >> "LOG"
[ -e "BROKEN" ] && [ "$1" = pip ] && exit 1
if [ "$1" = venv ]; then
  for last; do :; done
  mkdir -p "$last/bin"
  ln -sf "TRUE" "$last/bin/python"
  printf '#!/bin/sh\\necho "called: $*"\\n' > "$last/bin/dasd-lab"
  chmod +x "$last/bin/dasd-lab"
fi
"""


@pytest.fixture
def pretended(tmp_path):
    "A `uv` that makes an environment without installing anything, and logs its calls"
    log = tmp_path / "calls"
    broken = tmp_path / "broken"
    script = FAKE_UV.replace("LOG", str(log)).replace("BROKEN", str(broken)).replace("TRUE", shutil.which("true"))
    fake(tmp_path / "bin", "uv", script)

    def calls():
        if not log.exists():
            return []
        return [line.split()[0] for line in log.read_text().splitlines()]

    return f"{tmp_path / 'bin'}:{os.environ['PATH']}", calls, broken


def test_the_environment_is_created_once(copy, pretended):
    path, calls, _ = pretended
    for _ in range(2):
        assert make(copy, "venv", PATH=path).returncode == 0
    assert calls() == ["venv", "pip"]
    with (copy / "constraints.txt").open("a") as f:
        f.write("# changed\n")
    make(copy, "venv", PATH=path)
    assert calls() == ["venv", "pip", "pip"]  # new pins are installed into the existing environment
    moved = copy.rename(copy.with_name("moved"))
    make(moved, "venv", PATH=path)
    assert calls() == ["venv", "pip", "pip", "venv", "pip"]  # an environment cannot be moved


FAKE_PYTHON = """
echo "$*" >> "LOG"
case "$*" in
  -c*) echo "SELF";;
  "-m venv"*) for last; do :; done; mkdir -p "$last/bin"; cp "SELF" "$last/bin/python";;
  "-m pip --version" | "-m pip --python"*) exit 1;;  # without a pip of its own, and uv cannot be fetched
esac
"""


def test_without_uv_the_environment_is_installed_by_pip(copy, tmp_path):
    log = tmp_path / "calls"
    bin = tmp_path / "bin"
    fake(bin, "python3", FAKE_PYTHON.replace("LOG", str(log)).replace("SELF", str(bin / "python3")))
    result = make(copy, "user-venv", PATH=f"{bin}:/usr/bin:/bin")
    assert result.returncode == 0 and "✓ .venv: installed" in result.stdout, result.stderr
    calls = [line for line in log.read_text().splitlines() if not line.startswith("-c")]
    assert [line for line in calls if line.startswith("-m venv")] == [
        "-m venv --clear --without-pip .venv",
        "-m venv --clear .venv",
    ]
    assert calls[-1].startswith("-m pip install") and calls[-1].endswith("-c constraints.txt -e .[lab,curves]")


def test_constraints_are_plain_releases():
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"https?:|file:|(?m:^-)|@", text)
    assert re.search(r"(?m)^torch==(?!2\.13\.0)[\d.]+$", text), "a plain release of torch"


def test_line_ends_are_those_that_a_shell_reads():
    "Also in a clone with core.autocrlf=true, as Git for Windows sets it"
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    for name in ("Makefile", "tools/venv.sh", "nbs/index.ipynb", "pyproject.toml"):
        said = subprocess.check_output(["git", "check-attr", "text", "eol", "--", name], cwd=ROOT, text=True)
        assert "text: auto" in said and "eol: lf" in said
