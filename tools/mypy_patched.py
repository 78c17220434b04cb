"""mypy on a copy of the package in which methods added by fastcore's `patch` stand in their classes

mypy does not know `patch`; here it checks those methods as it checks any other."""

import ast
import re
import sys
import tempfile
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dasd_lab"
Line = tuple[str, int]  # text, line number in the exported module
OWNER = r"^((?:async )?def \w+\(\s*|\s+)(self|cls): \w+"  # the first parameter of a patched function


def first_line(node: ast.FunctionDef) -> int:
    "Of a function with its decorators, from 1"
    return min(d.lineno for d in (node, *node.decorator_list))


def as_method(lines: list[str], node: ast.FunctionDef) -> list[Line]:
    "The lines of a patched function inside its class"
    (head, at), *rest = [(lines[i - 1], i) for i in range(first_line(node), node.end_lineno + 1)]
    kind = "@property" if "as_prop" in head else "@classmethod" if "cls_method" in head else ""
    own = [(kind, at), *((re.sub(OWNER, r"\1\2", text), n) for text, n in rest)]
    return [("    " + text, n) for text, n in own]


def merged(source: str) -> list[Line]:
    "A module whose patched functions are methods again"
    lines = source.splitlines()
    body = ast.parse(source).body
    patched = [
        n for n in body if isinstance(n, ast.FunctionDef) and any("patch" in ast.unparse(d) for d in n.decorator_list)
    ]
    taken = {i for n in patched for i in range(first_line(n), n.end_lineno + 1)}
    ends = {n.end_lineno: n.name for n in body if isinstance(n, ast.ClassDef)}
    out = []
    for i, text in enumerate(lines, 1):
        if i not in taken:
            out.append((text, i))
        if i in ends:
            own = [n for n in patched if ast.unparse(n.args.args[0].annotation) == ends[i]]
            out += [line for n in own for line in as_method(lines, n)]
    return out


def main() -> int:
    "Check the package; 1 if mypy finds anything"
    numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in PACKAGE.rglob("*.py"):
            copy = Path(folder) / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            lines = merged(text) if "patch" in text else [(t, i) for i, t in enumerate(text.splitlines(), 1)]
            copy.write_text("\n".join(text for text, _ in lines) + "\n", encoding="utf-8")
            numbers[str(copy)] = [n for _, n in lines]
        settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace('"dasd_lab/', f'"{folder}/dasd_lab/')
        (Path(folder) / "pyproject.toml").write_text(settings, encoding="utf-8")
        config = ["--config-file", f"{folder}/pyproject.toml", "--cache-dir", str(ROOT / ".mypy_cache")]
        found, problem, status = api.run([*config, "--no-error-summary", "--show-absolute-path"])
    for path, number, rest in re.findall(r"(?m)^(.*?):(\d+): (.*)$", found):
        place = f"{Path(path).relative_to(folder)}:{numbers[path][int(number) - 1]}" if path in numbers else path
        print(f"{place}: {rest}")
    sys.stderr.write(problem)
    return status


if __name__ == "__main__":
    sys.exit(main())
