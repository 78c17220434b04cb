"""Notebooks as pages, with interactive figures and links between pages"""

import ast
import html
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

PLOTLY = "application/vnd.plotly.v1+json"
HIDDEN = {"hide", "default_exp", "exporti"}  # directives of cells that are not shown
OURS = {"export", "exports", "eval:", "slow", "gpu", "exec_doc"}  # directives without a meaning for the generator
MARKED = re.compile(r"(?<![`\[\w])`([\w./()]+)`(?![`\]])")  # a name in backticks that is not a link
NOTEBOOK_LINK = re.compile(r"\]\((?!https?:)([^)\s#]+\.ipynb)(#[^)\s]*)?\)")
OUTSIDE_LINK = re.compile(r"\[([^\]]*)\]\(\.\./([\w.]+)\)")  # from nbs/ to a file of the repository
IMAGES = ("image/png", "image/jpeg", "image/webp")


class Pages:
    "Addresses of notebooks: those of modules are at the site's root under the module's name, others keep their path"

    def __init__(
        self,
        modules: dict[Path, str],  # notebook below nbs/ → the module it exports
    ):
        self.modules = modules

    def page(
        self,
        notebook: Path,  # below nbs/
    ) -> Path:  # `3_methods/1_dasd/20_adapters.ipynb` → `dasd.adapters.ipynb`
        module = self.modules.get(notebook)
        return Path(f"{module}.ipynb") if module else notebook

    def address(
        self,
        link: str,  # to a notebook, as written in another one
        where: Path,  # that other one, below nbs/
    ) -> str:  # of its page, from the page of `where`
        target = self.page(Path(os.path.normpath(where.parent / link)))
        return Path(os.path.relpath(target, self.page(where).parent)).with_suffix(".html").as_posix()


class Links:
    "Links of names: symbols of the package, modules, pages"

    def __init__(
        self,
        targets: dict[str, str],  # name → address from the site's root
        pages: Pages,
    ):
        self.targets = targets
        self.pages = pages

    def address(self, name: str, depth: int) -> str | None:  # depth: folders between the page and the root
        target = self.targets.get(name.removesuffix("()"))
        return None if target is None else "../" * depth + target

    def outside(self, text: str, where: Path) -> str:
        "The index with links to files of the repository turned into links to their pages, or into text"
        if len(where.parts) > 1:
            return text

        def link(m):
            address = self.address(m[2], 0)
            return f"[{m[1]}]({address})" if address else m[1]

        return OUTSIDE_LINK.sub(link, text)

    def markdown(self, text: str, where: Path) -> str:
        "Markdown with links for names in backticks and links to pages instead of notebooks, code blocks unchanged"
        depth = len(self.pages.page(where).parts) - 1

        def name(m):
            address = self.address(m[1], depth)
            return f"[`{m[1]}`]({address})" if address else m[0]

        def notebook(m):
            return f"]({self.pages.address(m[1], where)}{m[2] or ''})"

        parts = re.split(r"(?ms)(^```.*?^```[ \t]*$)", text)
        for i in range(0, len(parts), 2):  # prose between code blocks
            parts[i] = NOTEBOOK_LINK.sub(notebook, MARKED.sub(name, self.outside(parts[i], where)))
        return "".join(parts)


def figure_html(
    figure: dict,  # a stored plotly figure
    name: str,  # of its place on the page
) -> str:
    "A place on the page and the data of its figure, which site.js draws when it comes into view"
    shown = {key: figure[key] for key in ("data", "layout", "config") if figure.get(key)}
    body = json.dumps(shown, ensure_ascii=False).replace("</", "<\\/")
    layout = figure.get("layout", {})
    title = (layout.get("title") or {}).get("text") or "figure"
    label = re.sub('"|<[^>]*>', "", title)
    height = layout.get("height") or 450
    return (
        f'<div id="{name}" class="figure-place" role="img" aria-label="{label}" style="min-height:{height}px"></div>'
        f'<script type="application/json" data-plotly="{name}">{body}</script>'
    )


def front_matter(
    cell: dict,  # the first one
) -> tuple[dict, str]:  # title and description; the prose below them
    text = "".join(cell["source"])
    m = re.match(r"# ([^\n]+)\n*(?:> ([^\n]+)\n*)?(?:- skip_\w+:[^\n]*\n*)*", text)
    if not m:
        return {}, text
    front = dict(title=m[1])
    if m[2]:
        front["description"] = m[2]
    return front, text[m.end() :]


def directives(source: str) -> tuple[list[str], str]:
    "The `#|` lines of a cell, and the rest"
    found = re.findall(r"(?m)^[ \t]*#[ \t]*\|[ \t]*(.*\S)[ \t]*$", source)
    return found, re.sub(r"(?m)^[ \t]*#[ \t]*\|.*\n?", "", source)


def only_imports(code: str) -> bool:
    try:
        return all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(code).body)
    except SyntaxError:
        return False


def plain(
    prose: str,  # Markdown
) -> str:  # the first 160 characters without markup
    text = re.sub(r"```.*?```|[#>*`$]|\[([^\]]*)\]\([^)]*\)", lambda m: m[1] or "", prose, flags=re.S)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= 160 else text[:157].rsplit(" ", 1)[0] + " …"


def is_panel(data: dict) -> bool:
    "Whether an output is only the text of a widget"
    if set(data) != {"text/plain"}:
        return False
    return bool(re.match(r"\w*(FigureWidget|Panel|VBox|Output)\(", "".join(data["text/plain"])))


def static_data(data: dict, alternative: str) -> dict:
    "Tables that can be scrolled, and images with an alternative text"
    if "text/html" in data:
        shown = "".join(data["text/html"])
        if "<table" in shown and "dl-" not in shown:
            return {"text/html": f'<div class="wide">{shown}</div>'}
        return data
    kind = next((k for k in IMAGES if k in data), None)
    if kind is None:
        return data
    content = "".join(data[kind]).replace("\n", "")
    return {"text/html": f'<img src="data:{kind};base64,{content}" alt="{html.escape(alternative)}">'}


def outputs(
    cell: dict,  # with stored outputs
    places: list,  # of figures on the page, grows
    words: str,  # alternative text of images: the prose above
) -> list[dict]:
    "Outputs for a static page: figures as places, panels as snapshots, no warnings"
    kept = []
    for output in cell.get("outputs", []):
        stream = output["output_type"] == "stream"
        if stream and output["name"] == "stderr":
            continue
        if stream and kept and kept[-1]["output_type"] == "stream":  # printed in several steps
            kept[-1] = kept[-1] | dict(text="".join(kept[-1]["text"]) + "".join(output["text"]))
            continue
        if "data" not in output:
            kept.append(output)
            continue
        data = output["data"]
        if PLOTLY in data:
            places.append(f"fig-{len(places) + 1}")
            data = {"text/html": figure_html(data[PLOTLY], places[-1])}
        if not is_panel(data):
            kept.append(output | dict(data=static_data(data, words)))
    return kept


class Converter:
    "Cells of a notebook for the generator"

    def __init__(
        self,
        where: Path,  # notebook below nbs/
        links: Links,
    ):
        self.where = where
        self.links = links
        self.places = []  # of figures
        self.words = ""  # last prose, the alternative text of images below it

    def markdown(self, text: str) -> str:
        return self.links.markdown(text, self.where)

    def prose(self, cell: dict) -> dict:
        "A cell of text"
        source = "".join(cell["source"])
        self.words = plain(source)
        converted = dict(cell_type=cell["cell_type"], metadata={}, source=self.markdown(source))
        if cell.get("attachments"):
            converted["attachments"] = cell["attachments"]
        return converted

    def code(self, cell: dict) -> dict | None:
        "A cell of code, or None if it is hidden"
        found, code = directives("".join(cell["source"]))
        names = {d.split()[0] for d in found if d.split()}
        if names & HIDDEN or "nbdev_export(" in code or ("export" in names and only_imports(code)):
            return None
        alternative = next((d[8:].strip(' "') for d in found if d.startswith("fig-alt:")), self.words)
        shown = outputs(cell, self.places, alternative)
        for output in shown:
            data = output.get("data", {})
            if "text/markdown" in data and "text/html" not in data:
                output["data"] = {"text/markdown": self.markdown("".join(data["text/markdown"]))}
        kept = [f"#| {d}" for d in found if d.split()[0] not in OURS | {"fig-alt:"}]
        return dict(
            cell_type="code",
            metadata=dict(tags=cell["metadata"].get("tags", [])),
            execution_count=None,
            source="\n".join([*kept, code.strip("\n")]),
            outputs=shown,
        )

    def cells(self, cells: Sequence[dict]) -> list[dict]:
        converted = [self.code(c) if c["cell_type"] == "code" else self.prose(c) for c in cells]
        return [c for c in converted if c is not None]


def convert(
    notebook: dict,  # as stored
    where: Path,  # of the notebook, below nbs/
    links: Links,
    more: dict | None = None,  # further front matter
    head: str = "",  # Markdown above everything
) -> dict:  # a notebook for the site's generator
    "Front matter, prose with links, visible cells"
    converter = Converter(where, links)
    title, prose = front_matter(notebook["cells"][0])
    front = yaml.safe_dump(title | (more or {}), sort_keys=False, allow_unicode=True)
    cells = [dict(cell_type="raw", metadata={}, source=f"---\n{front}---\n")]
    for text in (head, prose):
        if text.strip():
            cells.append(dict(cell_type="markdown", metadata={}, source=converter.markdown(text)))
    cells += converter.cells(notebook["cells"][1:])
    kernel = dict(name="python3", language="python", display_name="python3")
    return dict(nbformat=4, nbformat_minor=5, metadata=dict(kernelspec=kernel), cells=cells)
