"Documentation without building it: equations against code, names against pages, links"

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError, validators

from dasd_lab.cli import command_line
from dasd_lab.commands import arguments
from dasd_lab.presets import list_presets

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
sys.path.insert(0, str(ROOT / "tools"))
from docs import links, pages, reading, site
from docs.path import exporting, place, sources

PACKAGE = ROOT / "dasd_lab"
MODULES = reading.read_package(PACKAGE)
NOTEBOOKS = exporting(NBS)


def load(name):
    return json.loads((NBS / f"{name}.ipynb").read_text(encoding="utf-8"))


def code(nb):
    return ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code"]


@pytest.fixture(scope="module")
def equations():
    "Names of the equation page, without its table and its own checks"
    names = {}
    for source in code(load("pages/equations")):
        if not re.search(r"(?m)^#\|\s*echo: false|^assert", source):
            exec(source, names)
    return names


def test_every_equation_has_its_line(equations):
    said = equations["EQUATIONS"]
    assert {m: [int(n.split()[0]) for n, *_ in said[m] if n] for m in ("dasd", "leccr")} == dict(
        dasd=list(range(1, 17)), leccr=list(range(1, 26))
    )
    for _number, formula, words, module, function, expression in sum(said.values(), []):
        assert 0 < equations["line_of"](module, function, expression) <= len(MODULES[module].source.splitlines())
        assert function in {e.name for e in MODULES[module].entries}, (
            f"{module} has no API entry {function}, which the page links to"
        )
        assert formula.count("{") == formula.count("}") and words


def test_an_equation_that_is_gone_is_an_error(equations):
    for wrong in (
        ("dasd.adapters", "DynamicAdapter.forward", "hidden @ generated"),
        ("dasd.adapters", "StaticAdapter", "x"),
        ("training.losses", "alignment", "F.cross_entropy"),
    ):
        with pytest.raises(LookupError, match="Expected"):
            equations["line_of"](*wrong)


def test_docstrings_and_table_name_the_same_equations(equations):
    table = set()
    at = []
    for number, _, _, module, *_ in sum(equations["EQUATIONS"].values(), []):
        at = re.findall(r"\d+", number) or at  # a row without a number goes on with the one above
        table |= {(n, module) for n in at}
    for module in {m for _, m in table}:
        for e in MODULES[module].entries:
            named = [
                str(n) for a, b in re.findall(r"Eq\. (\d+)(?:-(\d+))?", e.doc) for n in range(int(a), int(b or a) + 1)
            ]
            assert not named or any((n, module) in table for n in named), (module, e.name, named)


def test_the_drawing_is_of_the_modules_there_are():
    "The imports that the page reads from the package are those that the notebooks write"
    from test_path import imported

    names = {}
    for source in code(load("pages/architecture"))[:2]:
        exec(source, names)
    assert set(names["MODULES"]) == set(MODULES)
    for m, found in names["IMPORTS"].items():
        written = set().union(*(imported(c) for c in sources(NOTEBOOKS[m]) if re.search(r"(?m)^#\|\s*exporti?\b", c)))
        assert written & set(MODULES) == set(found), m


def test_reading_says_what_python_says():
    "Read without importing, compared with the imported thing"
    import inspect

    from dasd_lab.search.gallery.in_memory import Gallery
    from dasd_lab.training import losses

    def entry(module, name):
        return next(e for e in MODULES[module].entries if e.name == name)

    for module, name, f in (
        ("training.losses", "contrastive", losses.contrastive),
        ("search.gallery.in_memory", "Gallery.search", Gallery.search),
        ("search.gallery.in_memory", "Gallery", Gallery.__init__),
    ):
        e = entry(module, name)
        found = inspect.signature(f).parameters
        assert [p.name for p in e.parameters] == [n for n in found if n != "self"]
        assert [p.default is None for p in e.parameters] == [
            p.default is inspect.Parameter.empty for n, p in found.items() if n != "self"
        ]
        assert e.line in range(
            *(lambda lines, start: (start, start + len(lines)))(
                *inspect.getsourcelines(Gallery if name == "Gallery" else f)
            )
        )
    assert set(losses.__all__) == {e.name for e in MODULES["training.losses"].entries if "." not in e.name}


def test_comments_beside_parameters(tmp_path):
    (tmp_path / "m.py").write_text(""""Doc"\n__all__ = ['f','C','K']\nK = 3 # a number
def f(
    a:int,        # first
    *rest:str,    # more
    b:list[int]=(1,
                 2), # second
    c=None,
)->dict:          # what comes out
    "Says so"
def g(x): pass
class C:
    "A class"
    def m(self, a:int, b:int)->int: # one line says what comes out
        "Method"
    def _hidden(self): pass
""")
    entries = {e.name: e for e in reading.read_module(tmp_path / "m.py", tmp_path).entries}
    assert list(entries) == ["K", "f", "C", "C.m"]
    assert [(p.name, p.type, p.default, p.comment) for p in entries["f"].parameters] == [
        ("a", "int", None, "first"),
        ("*rest", "str", None, "more"),
        ("b", "list[int]", "(1, 2)", "second"),
        ("c", "", "None", ""),
    ]
    assert (
        entries["f"].returns.comment == "what comes out"
        and entries["f"].signature == "f(a, *rest, b=(1, 2), c=None) → dict"
    )
    assert [p.comment for p in entries["C.m"].parameters] == ["", ""] and entries[
        "C.m"
    ].returns.comment == "one line says what comes out"
    assert entries["K"].doc == "a number"


def test_every_public_name_has_a_docstring_on_its_page():
    missing = [
        f"{m.name}.{e.name}"
        for m in MODULES.values()
        for e in m.entries
        if e.kind in ("class", "function") and not e.doc
    ]
    assert not missing, missing


PAGES = pages.Pages({p.relative_to(NBS): m for m, p in NOTEBOOKS.items()})


@pytest.mark.parametrize(
    "notebook,page,numbers",
    [
        ("3_methods/1_dasd/20_adapters.ipynb", "dasd.adapters.ipynb", (3, 1, 20)),
        ("7_apps/1_explore/1_ask/10_state.ipynb", "explore.ask.state.ipynb", (7, 1, 1, 10)),
        ("7_apps/00_demo.ipynb", "demo.ipynb", (7, 0)),
        ("0_foundation/05_contracts.ipynb", "contracts.ipynb", (0, 5)),
    ],
)
def test_page_names(notebook, page, numbers):
    assert (PAGES.page(Path(notebook)), place(Path(notebook))) == (Path(page), numbers)


def test_companions_stay_where_they_are():
    assert PAGES.page(Path("guides/workbench.ipynb")) == Path("guides/workbench.ipynb")


def test_explorers_are_grouped():
    found = site.grouped(
        ["explore.theme", "explore.ask.state", "explore.ask.panel", "explore.app"], lambda m: f"{m}.html"
    )
    assert found == [
        "explore.theme.html",
        dict(
            section="Ask",
            contents=[
                dict(text="state", href="explore.ask.state.html"),
                dict(text="panel", href="explore.ask.panel.html"),
            ],
        ),
        "explore.app.html",
    ]


def test_names_become_links_and_code_stays():
    known = pages.Links({"Gallery": "api/search.gallery.in_memory.html#Gallery"}, PAGES)
    code = "```python\n`Gallery`\n```"
    outside = "[b](https://example.org/x.ipynb)"
    names = "A `Gallery` and `gallery`, [`Gallery`](x.html)."
    text = f"{names}\n{code}\n[a](../3_methods/1_dasd/20_adapters.ipynb#end) {outside}"
    linked = "A [`Gallery`](../api/search.gallery.in_memory.html#Gallery) and `gallery`, [`Gallery`](x.html)."
    page = f"{linked}\n{code}\n[a](../dasd.adapters.html#end) {outside}"
    assert known.markdown(text, Path("guides/workbench.ipynb")) == page


def test_what_a_page_shows_of_a_cell():
    nb = dict(
        cells=[
            dict(cell_type="markdown", source="# Title\n\n> Below\n\nProse."),
            dict(cell_type="code", metadata={}, source="#| export\nimport os", outputs=[]),
            dict(cell_type="code", metadata={}, source="#| hide\nsecret = 1", outputs=[]),
            dict(cell_type="markdown", source="A sentence before."),
            dict(
                cell_type="code",
                metadata={},
                source="#| export\ndef f(): pass",
                outputs=[
                    dict(output_type="stream", name="stderr", text="warned"),
                    dict(output_type="stream", name="stdout", text="a"),
                    dict(output_type="stream", name="stdout", text="b"),
                    dict(output_type="display_data", metadata={}, data={"image/png": "AAAA", "text/plain": "<Image>"}),
                    dict(
                        output_type="display_data",
                        metadata={},
                        data={pages.PLOTLY: dict(data=[], layout=dict(height=99)), "text/plain": "Figure"},
                    ),
                ],
            ),
        ]
    )
    page = pages.convert(nb, Path("guides/x.ipynb"), pages.Links({}, PAGES))
    text = json.dumps(page)
    assert "secret" not in text and "import os" not in text and "warned" not in text and "#| export" not in text
    assert (
        page["cells"][0]["source"].startswith("---\ntitle: Title\ndescription: Below")
        and page["cells"][1]["source"] == "Prose."
    )
    stream, picture, plot = page["cells"][-1]["outputs"]
    assert (
        stream["text"] == "ab"
        and 'alt="A sentence before."' in picture["data"]["text/html"]
        and "min-height:99px" in plot["data"]["text/html"]
    )


def test_the_check_of_links_finds_what_is_wrong(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>'
        '<a href="#top">x</a><a href="https://example.org">x</a><img src="p.png">'
        '<script src="//cdn.example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="there">B</p><script type="application/json">{"t": "<a href=\\"nowhere.html\\">"}</script>'
    )
    found = links.read_site(tmp_path)
    assert links.broken(tmp_path, found) == ["a.html: b.html#gone", "a.html: c.html", "a.html: p.png"]
    assert links.outside(tmp_path, found) == ["//cdn.example.org/x.js"] and links.without_words(found) == [
        "a.html: p.png"
    ]


def test_every_page_is_in_the_bars():
    written = {p.stem for p in (NBS / "pages").glob("*.ipynb")}
    explained = sum(map(list, site.EXPLAINED.values()), [])
    start = [Path(page).name for page in site.START if page.startswith("pages/")]
    assert written == {*explained, *start} and len(written) == len(explained) + len(start)
    for stem in written:
        assert not re.search(r"(?m)^#\|\s*(default_exp|export)", "\n".join(code(load(f"pages/{stem}")))), (
            "pages export nothing"
        )


def test_links_of_companions_lead_to_notebooks():
    for p in (p for p in NBS.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts):
        for c in json.loads(p.read_text(encoding="utf-8"))["cells"]:
            if c["cell_type"] != "markdown":
                continue
            for target in re.findall(r"\]\((?!https?:)([^)\s#]+\.ipynb)", "".join(c["source"])):
                assert (p.parent / target).is_file(), f"{p.name} links to {target}"


@pytest.mark.parametrize("name", ["docs", "test"])
def test_workflows_ask_for_little(name):
    flow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    jobs = flow["jobs"]
    text = (ROOT / f".github/workflows/{name}.yml").read_text()
    assert flow["permissions"] == dict(contents="read") and "secrets" not in text
    for job in jobs.values():
        assert set(job.get("permissions", {})) <= {"contents", "pages", "id-token"}
        for step in job["steps"]:
            assert "run" in step or re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step
    assert any(f"make {name}" in step.get("run", "") for job in jobs.values() for step in job["steps"])


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
    assert sum(map(len, found.values())) > 90
    for path, lines in found.items():
        for line in lines:
            words = shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", "0").split(" | ")[0], comments=True)
            try:
                preset = command_line(words).parse_args(words)[1].arguments.get("preset")
            except CycloptsError as e:
                pytest.fail(f"{path.relative_to(ROOT)}: dasd-lab {line}: {e}")
            if isinstance(preset, str) and re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", preset):
                assert preset in list_presets(), path
