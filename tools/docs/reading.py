"""Reads the package without importing it: definitions, docstrings, comments of parameters

So the site builds in seconds, and a module that cannot be imported has a page too."""

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
        self.exported = self.names_in_all()

    def names_in_all(self) -> set[str] | None:
        "Names in `__all__`, or None without it"
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return set(ast.literal_eval(node.value))
        return None

    def text(self, node) -> str:
        "Source of a node on one line (faster than `ast.get_source_segment`, which splits the file every time)"
        if node is None:
            return ""
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())

    def public(self, name: str) -> bool:
        return not name.startswith("_") and (self.exported is None or name in self.exported)

    def comment(self, first: int, last: int) -> str:
        "The comment of a definition: at the end of its last line, or on the lines above its first"
        if last in self.comments:
            return self.comments[last]
        above = []
        line = first - 1
        while self.lines[line - 1].lstrip().startswith(b"#"):
            above.insert(0, self.comments[line])
            line -= 1
        return " ".join(above)

    def arguments(self, f) -> list[tuple[str, ast.arg, ast.expr | None]]:
        "Name with its stars, argument and default of each parameter but self"
        a = f.args
        positional = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
        found = [(arg.arg, arg, default) for arg, default in zip(positional, defaults)]
        if a.vararg:
            found.append((f"*{a.vararg.arg}", a.vararg, None))
        found += [(arg.arg, arg, default) for arg, default in zip(a.kwonlyargs, a.kw_defaults)]
        if a.kwarg:
            found.append((f"**{a.kwarg.arg}", a.kwarg, None))
        return [x for x in found if x[0] not in ("self", "cls")]

    def parameters(self, f) -> tuple[list[Parameter], Parameter | None]:
        "Parameters and return value; a comment on a line of several parameters belongs to none of them"
        arguments = self.arguments(f)
        last_lines = [(default or arg).end_lineno for _, arg, default in arguments]
        shared = {line for line in last_lines if last_lines.count(line) > 1} | {f.body[0].lineno}
        if f.returns is not None:
            shared.add(f.returns.end_lineno)  # a comment behind the return type is about the return value
        found = []
        for (name, arg, default), last in zip(arguments, last_lines):
            if last in shared:
                comment = ""
            elif arg.lineno == f.lineno:  # what stands above is about the function
                comment = self.comments.get(last, "")
            else:
                comment = self.comment(arg.lineno, last)
            value = None if default is None else self.text(default)
            found.append(Parameter(name, self.text(arg.annotation), value, comment))
        if f.returns is None:
            return found, None
        comment = self.comments.get(f.returns.end_lineno, "")
        return found, Parameter("returns", self.text(f.returns), None, comment)

    def function(self, f, kind: str = "function", owner: str = "") -> Entry:
        parameters, returns = self.parameters(f)
        name = f"{owner}.{f.name}" if owner else f.name
        doc = ast.get_docstring(f) or ""
        return Entry(name, kind, f.lineno, doc, self.call(name, parameters, returns), parameters, returns)

    def call(self, name: str, parameters: list[Parameter], returns: Parameter | None = None) -> str:
        "A signature without types"
        written = [p.name if p.default is None else f"{p.name}={p.default}" for p in parameters]
        result = f" → {returns.type}" if returns and returns.type != "None" else ""
        return f"{name}({', '.join(written)}){result}"

    def fields(self, c: ast.ClassDef) -> list[Parameter]:
        "Annotated attributes of a class"
        found = []
        for node in c.body:
            if isinstance(node, ast.AnnAssign):
                value = self.text(node.value) if node.value else None
                comment = self.comment(node.lineno, node.end_lineno)
                found.append(Parameter(self.text(node.target), self.text(node.annotation), value, comment))
        return found

    def class_entries(self, c: ast.ClassDef) -> list[Entry]:
        "A class and its public methods"
        functions = [node for node in c.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        init = next((f for f in functions if f.name == "__init__"), None)
        parameters = self.parameters(init)[0] if init else self.fields(c)
        callable_ = init is not None or any("dataclass" in ast.unparse(d) for d in c.decorator_list)
        signature = self.call(c.name, parameters) if callable_ else c.name
        bases = ", ".join(map(self.text, c.bases))
        doc = ast.get_docstring(c) or ""
        entry = Entry(c.name, "class", c.lineno, doc, signature, parameters, None, bases)
        methods = [f for f in functions if not f.name.startswith("_") or f.name == "__call__"]
        return [entry, *(self.function(f, "method", c.name) for f in methods)]

    def constants(self, node: ast.Assign | ast.AnnAssign) -> list[Entry]:
        "Public names of an assignment"
        names = []
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            elements = target.elts if isinstance(target, ast.Tuple) else [target]
            names += [e.id for e in elements if isinstance(e, ast.Name)]
        value = self.text(node.value) if node.value else ""
        if len(value) > 160:
            value = value[:159] + "…"
        comment = self.comments.get(node.end_lineno, "")
        return [Entry(n, "constant", node.lineno, comment, f"{n} = {value}") for n in names if self.public(n)]

    def is_patch(self, f) -> bool:
        return any(ast.unparse(d).startswith("patch") for d in f.decorator_list)

    def patched_classes(self, f) -> list[str]:
        "Classes that a function with `@patch` is a method of"
        if not self.is_patch(f) or not f.args.args or not f.args.args[0].annotation:
            return []
        return [self.text(n) for n in ast.walk(f.args.args[0].annotation) if isinstance(n, ast.Name)]

    def entries(self) -> list[Entry]:
        "All public definitions in order, patched methods beside their class"
        found = []
        patched = []
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                owners = self.patched_classes(node)
                if owners and not node.name.startswith("_"):
                    patched += [self.function(node, "method", owner) for owner in owners]
                elif not self.is_patch(node) and self.public(node.name):
                    found.append(self.function(node))
            elif isinstance(node, ast.ClassDef) and self.public(node.name):
                found += self.class_entries(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                found += self.constants(node)
        for method in patched:
            owner = method.name.split(".")[0]
            places = [i for i, entry in enumerate(found) if entry.name.split(".")[0] == owner]
            found.insert(places[-1] + 1 if places else len(found), method)
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


def is_exported(path: Path) -> bool:
    "Whether a file of the package is exported from a notebook"
    return not path.name.startswith("_") and "AUTOGENERATED" in path.read_text(encoding="utf-8")[:2000]


def read_package(
    package: Path,  # folder of the package
) -> dict[str, Module]:  # by name
    "Every module that a notebook exports"
    modules = [read_module(path, package) for path in sorted(package.rglob("*.py")) if is_exported(path)]
    return {module.name: module for module in modules}
