"""One module in seconds: its notebook's format, lint and cells, and the tests that are about it

python tools/check.py dasd.adapters"""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
sys.path.insert(0, str(ROOT / "tools/notebooks"))
from order import exporting


def tests_of(module: str) -> list[str]:
    "Tests that use a name imported from the module, as pytest takes them: `tests/test_x.py::test_y`"
    tests = []
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == f"dasd_lab.{module}"]
        names = {a.asname or a.name for n in imports for a in n.names}
        for node in tree.body:
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if is_test and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node)):
                tests.append(f"{path.relative_to(ROOT)}::{node.name}")
    return tests


def run(*command: str | Path) -> int:
    "Run a command of the environment in the repository"
    return subprocess.run([Path(sys.executable).parent / command[0], *command[1:]], cwd=ROOT, check=False).returncode


def run_cells(notebook: Path) -> bool:
    "Execute the notebook as the tests do"
    from nbdev.config import get_config
    from nbdev.test import test_nb

    config = get_config()
    return test_nb(notebook, skip_flags=config.tst_flags.split(), basepath=config.config_path)[0]


def main(module: str) -> int:
    "Check a module; 1 where anything fails"
    began = time.monotonic()
    notebook = exporting(NBS).get(module) or sys.exit(f"No module {module!r}; they are named as below dasd_lab/.")
    os.chdir(ROOT)
    file = f"dasd_lab/{module.replace('.', '/')}.py"
    tests = tests_of(module)
    steps = dict(
        format=lambda: not run("ruff", "format", "--check", "-q", notebook),
        lint=lambda: not run("ruff", "check", "-q", notebook),
        export=lambda: not run("nbdev_export", "--path", str(notebook.relative_to(ROOT))),
        rules=lambda: not run("python", "tools/lint.py", file),
        cells=lambda: run_cells(notebook),
        tests=lambda: not tests or not run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests),
    )
    failed = [name for name, step in steps.items() if not step()]
    result = f"✗ {', '.join(failed)}" if failed else "✓"
    print(f"{result} {notebook.relative_to(ROOT)} ({time.monotonic() - began:.1f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Expected a module, such as: make check M=methods.dasd.adapters")
    sys.exit(main(sys.argv[1]))
