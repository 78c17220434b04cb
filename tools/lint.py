"""Rules of this repository that ruff does not have, and ruff's own on the exported package

python tools/lint.py [FILE …]    # of dasd_lab/, tests/ or tools/; without names, all of them"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 50  # lines of a function
# a notebook's tests hide what its module lacks; SLF001: private names of other objects
IN_PACKAGE = ("D101", "D103", "F401", "F821", "F841", "B023", "SLF001")


def nodes_of(source: str) -> list[ast.AST]:
    "The syntax tree of a file, its module first"
    return list(ast.walk(ast.parse(source)))


def too_long(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    "Functions of more than `LONGEST` lines"
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGEST:
                yield node.lineno, f"{node.name} has {lines} lines; at most {LONGEST}. Give its parts names."


def private_imports(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    "Private names of other modules, which ruff accepts within a package"
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for name in [a.name for a in node.names if re.match("_[^_]", a.name)]:
                yield node.lineno, f"{name} belongs to another module. Make it public there, or do without it."


def unpinned_actions(workflow: str) -> Iterator[tuple[int, str]]:
    "Actions of others that are not named by a whole commit and, in a comment, its version; a tag can be moved"
    for number, line in enumerate(workflow.splitlines(), 1):
        used = re.match(r"\s*(?:-\s*)?uses:\s*(.+)", line)
        if used and not used[1].startswith("./") and not re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+(\.\d+)+", used[1]):
            yield number, f"{used[1]} is not pinned. Write owner/action@<40 hex digits of the commit> # v1.2.3."


def files(names: list[str]) -> list[Path]:
    "The files to look at"
    if names:
        return [Path(n) for n in names]
    found = (p for folder in ("dasd_lab", "tests", "tools") for p in sorted((ROOT / folder).rglob("*.py")))
    return [p.relative_to(ROOT) for p in found if p.name != "_modidx.py"]


def main(names: list[str]) -> int:
    "Print what is found; 1 where there is anything"
    parsed = {p: nodes_of((ROOT / p).read_text(encoding="utf-8")) for p in files(names)}
    package = [p for p in parsed if p.parts[0] == "dasd_lab"]
    found = [(path, *f) for path, nodes in parsed.items() for f in too_long(nodes)]
    found += [(path, *f) for path in package for f in private_imports(parsed[path])]
    workflows = [] if names else sorted((ROOT / ".github/workflows").glob("*.y*ml"))
    found += [(path, *f) for path in workflows for f in unpinned_actions(path.read_text(encoding="utf-8"))]
    for path, line, what in sorted(found):
        print(f"{path}:{line}: {what}")
    ruff = [Path(sys.executable).parent / "ruff", "check", "-q", "--output-format", "concise", "--no-force-exclude"]
    options = ["--select", ",".join(IN_PACKAGE), "--config", 'extend-exclude = ["_modidx.py"]']
    status = subprocess.run([*ruff, *options, *package], cwd=ROOT, check=False).returncode if package else 0
    return 1 if found or status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
