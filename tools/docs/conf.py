"""The documentation site: Sphinx draws every notebook with myst-nb, and the reference from docstrings and docments

make docs        # sphinx-build -c tools/docs nbs _docs"""

import gc
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import nbformat
import plotly
from docutils import nodes
from fastcore.docments import docments
from sphinx import addnodes

gc.set_threshold(100_000, 50, 1000)  # pages stay in memory: looking through them for garbage took a fifth of the time
ROOT = Path(__file__).resolve().parents[2]
NBS = ROOT / "nbs"
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from demo import demonstration

from dasd_lab._modidx import d as index
from dasd_lab.explore.theme import CSS

project = html_title = "dasd_lab"
author = copyright = "the dasd_lab authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.apidoc", "sphinx.ext.mathjax"]
root_doc = "index"
exclude_patterns = ["_drafts", "**/.ipynb_checkpoints"]
default_role = "py:obj"
# modules are reached from the page Architecture; a name that several modules define is no link
suppress_warnings = ["misc.highlighting_failure", "toc.not_included", "ref.python"]

nb_execution_mode = "off"
nb_custom_formats = {".ipynb": "conf.as_page"}
nb_merge_streams = True
nb_render_markdown_format = "myst"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
apidoc_modules = [
    dict(
        path=str(ROOT / "dasd_lab"),
        destination="api",
        exclude_patterns=["**/_modidx.py"],
        separate_modules=True,
        module_first=True,
        automodule_options={"members"},
    )
]

html_theme = "furo"
html_theme_options = dict(source_edit_link="", footer_icons=[])
html_favicon = "favicon.svg"
html_static_path = [
    str(NBS / "styles.css"),
    "site.js",
    str(Path(plotly.__file__).parent / "package_data/plotly.min.js"),
]
html_css_files = ["panels.css", "styles.css"]
html_js_files = [("site.js", dict(defer="defer"))]
html_show_sourcelink = False
html_show_search_summary = False  # the search would fetch each page it found, which a browser refuses from disk
mathjax_path = "tex-svg-full.js"
DEMO = demonstration()  # the field for queries on the first page; None without its packages from npm
html_static_path += [*map(str, ROOT.glob("node_modules/mathjax/es5/tex-svg-full.js")), *["demo.js"] * bool(DEMO)]

SYMBOLS = [*index["syms"], *(name for module in index["syms"].values() for name in module)]


def tails(name: str) -> list[str]:
    "A dotted name without the package, and without each further part before its last one"
    parts = name.split(".")[1:]
    return [".".join(parts[i:]) for i in range(len(parts))]


KNOWN = Counter(tail for name in SYMBOLS for tail in tails(name))
# what in backticks is a link: a name that one symbol has and that looks like code
LINKS = {tail: name for name in SYMBOLS for tail in tails(name) if KNOWN[tail] == 1 and re.search(r"[A-Z._]", tail)}


def linked(prose: str) -> str:
    "Markdown in which names of the package are links, apart from its code blocks"

    def link(m: re.Match) -> str:
        return f"{{py:obj}}`{m[1]} <{LINKS[m[1]]}>`" if m[1] in LINKS else m[0]

    parts = re.split(r"(?ms)(^```.*?^```)", prose)
    parts[::2] = [re.sub(r"(?<![\[`}])`([\w.]+)`(?![\]`])", link, part) for part in parts[::2]]
    files = r"\(\.\./(CONTRIBUTING|CHANGELOG|NOTICE)(?:\.md)?\)"
    return re.sub(files, lambda m: f"(pages/{m[1].lower()}.md)", "".join(parts))


def figure(output: dict) -> None:
    "Replace a stored figure by its data and a place in which site.js draws it"
    stored = output.get("data", {}).pop("application/vnd.plotly.v1+json", None)
    if stored:
        layout = stored.get("layout", {})
        label = re.sub('"|<[^>]*>', "", (layout.get("title") or {}).get("text") or "figure")
        body = json.dumps({name: stored.get(name) or {} for name in ("data", "layout", "config")}).replace("</", "<\\/")
        output.data["text/html"] = (
            f'<div class="figure-place" role="img" aria-label="{label}" '
            f'style="min-height:{layout.get("height", 450)}px"></div><script type="application/json">{body}</script>'
        )


def as_page(text: str) -> nbformat.NotebookNode:
    "A notebook without hidden cells and directives, with a link to its reference"
    nb = nbformat.reads(text, as_version=4)
    exported = re.search(r"#\| *default_exp +([\w.]+)", text)
    shown = []
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source)
        elif re.search(r"(?m)^#\| *(hide|default_exp)\b", cell.source):
            continue
        else:
            if re.search(r"(?m)^#\| *(echo: *false|hide_input)", cell.source):
                cell.metadata.tags = ["remove-input"]
            elif re.search(r"(?m)^#\| *code-fold", cell.source):
                cell.metadata.tags = ["hide-input"]
            cell.source = re.sub(r"(?m)^#\|.*\n?", "", cell.source)
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                figure(output)
                if "text/markdown" in output.get("data", {}):
                    output.data["text/markdown"] = linked(output.data["text/markdown"])
        shown.append(cell)
    if exported:
        shown[0].source += f"\n\nReference: {{py:mod}}`dasd_lab.{exported[1]}`"
    nb.cells = shown
    return nb


def parameters(app, what: str, name: str, obj: object, options, lines: list[str]) -> None:
    "Add the docments of a function or class to its docstring"
    if what in ("function", "method", "class"):
        for parameter, about in docments(obj, full=True).items():
            if about.docment:
                comment = re.sub(r"([*_|\\])", r"\\\1", " ".join(about.docment.split()))
                lines += ["", ":returns: " + comment if parameter == "return" else f":param {parameter}: {comment}"]


def own_files(app, error) -> None:
    "Copy what pages show apart from Sphinx's own files"
    if not error and app.builder.name == "html":
        (Path(app.outdir) / "_static/panels.css").write_text(CSS, encoding="utf-8")
        shutil.copytree(NBS / "images", Path(app.outdir) / "images", dirs_exist_ok=True)
        if DEMO:
            shutil.copytree(DEMO, Path(app.outdir) / "_static/demo", dirs_exist_ok=True)


def field_for_queries(app, pagename: str, *_) -> None:
    "Its script, on the first page alone"
    if DEMO and pagename == "index":
        app.add_js_file("demo.js", defer="defer")


def terms(app, doctree) -> None:
    "Index what the tables of the glossary explain, so that a search for a term finds it first"
    if app.env.docname == "pages/glossary":
        for number, row in enumerate(list(doctree.findall(nodes.strong))):
            row["ids"] = [f"term-{number}"]
            names = re.sub(r" \(.*?\)", "", row.astext()).split(", ")
            row.parent.insert(0, addnodes.index(entries=[("single", n, f"term-{number}", "main", None) for n in names]))


def setup(app) -> None:
    app.connect("autodoc-process-docstring", parameters)
    app.connect("doctree-read", terms)
    app.connect("html-page-context", field_for_queries)
    app.connect("build-finished", own_files)
