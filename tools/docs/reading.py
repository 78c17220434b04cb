"""Read the package without importing it: what each module defines, and what the comments beside parameters say

So the site builds in seconds, and a module that cannot be imported yet has a page all the same."""

import ast
import io
import tokenize
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Parameter:
    "One parameter, field or return value"

    name: str
    type: str = ""
    default: str | None = None
    comment: str = ""


@dataclass
class Entry:
    "A class, a function, a method or a constant"

    name: str  # inside the module: `Gallery.add`
    kind: str  # 'class', 'function', 'method' or 'constant'
    line: int  # of its definition
    doc: str = ""
    signature: str = ""
    parameters: list[Parameter] = field(default_factory=list)
    returns: Parameter | None = None
    bases: str = ""


@dataclass
class Module:
    "A module of the package"

    name: str  # without the package: `dasd.adapters`
    path: Path
    source: str
    doc: str
    entries: list[Entry]


class Reader:
    "Entries of one file"

    def __init__(self, source: str):
        self.tree = ast.parse(source)
        self.lines = source.encode().split(b"\n")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        self.comments = {t.start[0]: t.string.lstrip("# ").strip() for t in tokens if t.type == tokenize.COMMENT}
        exported = next(
            (n.value for n in self.tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"),
            None,
        )
        self.exported = set(ast.literal_eval(exported)) if exported else None

    def text(self, node) -> str:
        "Source of a node on one line (ast's own function splits the file anew each time)"
        if node is None:
            return ""
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())

    def public(self, name: str) -> bool:
        return not name.startswith("_") and (self.exported is None or name in self.exported)

    def parameters(self, f) -> tuple[list[Parameter], Parameter | None]:
        "Parameters with their comments; a line that holds several says nothing of each"
        a = f.args
        positional = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
        every = [
            *zip(positional, defaults, [""] * len(positional)),
            *([(a.vararg, None, "*")] if a.vararg else []),
            *zip(a.kwonlyargs, a.kw_defaults, [""] * len(a.kwonlyargs)),
            *([(a.kwarg, None, "**")] if a.kwarg else []),
        ]
        every = [e for e in every if e[0].arg not in ("self", "cls")]

        def end(arg, default):
            return (default or arg).end_lineno

        lines = [end(p, d) for p, d, _ in every]

        def said(line):
            return self.comments.get(line, "") if lines.count(line) == 1 and line != f.body[0].lineno else ""

        found = [
            Parameter(star + p.arg, self.text(p.annotation), None if d is None else self.text(d), said(end(p, d)))
            for p, d, star in every
        ]
        if f.returns is None:
            return found, None
        own = f.returns.end_lineno
        if not found or own not in lines:
            comment = self.comments.get(own, "")
        else:  # all on one line: its comment is about what comes out
            comment = self.comments.get(own, "")
            for p, line in zip(found, lines):
                p.comment = "" if line == own else p.comment
        return found, Parameter("returns", self.text(f.returns), None, comment)

    def function(self, f, kind: str = "function", owner: str = "") -> Entry:
        parameters, returns = self.parameters(f)
        name = f"{owner}.{f.name}" if owner else f.name
        return Entry(
            name, kind, f.lineno, ast.get_docstring(f) or "", self.call(name, parameters, returns), parameters, returns
        )

    def call(self, name: str, parameters: list[Parameter], returns: Parameter | None = None) -> str:
        inside = ", ".join(p.name + (f"={p.default}" if p.default is not None else "") for p in parameters)
        return f"{name}({inside})" + (f" → {returns.type}" if returns and returns.type != "None" else "")

    def klass(self, c) -> list[Entry]:
        "A class and its public methods"
        init = next((n for n in c.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        fields = [
            Parameter(
                self.text(n.target),
                self.text(n.annotation),
                self.text(n.value) if n.value else None,
                self.comments.get(n.end_lineno, ""),
            )
            for n in c.body
            if isinstance(n, ast.AnnAssign)
        ]
        parameters = self.parameters(init)[0] if init else fields
        made = init is not None or any("dataclass" in ast.unparse(d) for d in c.decorator_list)
        entry = Entry(
            c.name,
            "class",
            c.lineno,
            ast.get_docstring(c) or "",
            self.call(c.name, parameters) if made else c.name,
            parameters,
            None,
            ", ".join(map(self.text, c.bases)),
        )
        methods = [
            n
            for n in c.body
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
            and (not n.name.startswith("_") or n.name == "__call__")
        ]
        return [entry, *(self.function(n, "method", c.name) for n in methods)]

    def constants(self, node) -> list[Entry]:
        "Names in capitals, or lent out by `__all__`"
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [
            e.id for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t]) if isinstance(e, ast.Name)
        ]
        value = self.text(node.value) if node.value else ""
        return [
            Entry(
                n,
                "constant",
                node.lineno,
                self.comments.get(node.end_lineno, ""),
                f"{n} = {value if len(value) <= 160 else value[:159] + '…'}",
            )
            for n in names
            if self.public(n)
        ]

    def entries(self) -> list[Entry]:
        found = []
        patched = []
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                patch = any(ast.unparse(d).startswith("patch") for d in node.decorator_list)
                owners = (
                    [self.text(n) for n in ast.walk(node.args.args[0].annotation) if isinstance(n, ast.Name)]
                    if patch and node.args.args and node.args.args[0].annotation
                    else []
                )
                if owners and not node.name.startswith("_"):
                    patched += [self.function(node, "method", o) for o in owners]
                elif not patch and self.public(node.name):
                    found.append(self.function(node))
            elif isinstance(node, ast.ClassDef) and self.public(node.name):
                found += self.klass(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                found += self.constants(node)
        for e in patched:  # beside their class, where it is in this module
            owner = e.name.split(".")[0]
            places = [i for i, x in enumerate(found) if x.name.split(".")[0] == owner]
            found.insert(places[-1] + 1 if places else len(found), e)
        return found


def read_module(
    path: Path,  # of the file
    package: Path,  # of the package
) -> Module:
    source = path.read_text(encoding="utf-8")
    reader = Reader(source)
    return Module(
        ".".join(path.relative_to(package).with_suffix("").parts),
        path,
        source,
        ast.get_docstring(reader.tree) or "",
        reader.entries(),
    )


def read_package(
    package: Path,  # folder of the package
) -> dict[str, Module]:  # by name
    "Every module that a notebook exports"
    paths = sorted(
        p
        for p in package.rglob("*.py")
        if not p.name.startswith("_") and "AUTOGENERATED" in p.read_text(encoding="utf-8")[:2000]
    )
    return {m.name: m for m in (read_module(p, package) for p in paths)}
