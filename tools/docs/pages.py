"""Notebooks as pages: what a reader sees of a notebook, with figures that live and links that hold"""

import ast
import html
import json
import os
import re
from pathlib import Path

PLOTLY = "application/vnd.plotly.v1+json"
HIDDEN = {"hide", "default_exp", "exporti"}  # cells that are not shown
OURS = {"export", "exports", "eval:", "slow", "gpu", "exec_doc"}  # directives that mean nothing to a page
MARKED = re.compile(r"(?<![`\[\w])`([\w./()]+)`(?![`\]])")  # a name in backticks that is no link yet


class Pages:
    "Where each notebook's page is: a module's notebook at the site's root under the module's name, others where they stand"

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
        link: str,  # to a notebook, as its own notebook writes it
        where: Path,  # that notebook, below nbs/
    ) -> str:  # of its page, from the page of `where`
        target = self.page(Path(os.path.normpath(where.parent / link)))
        return Path(os.path.relpath(target, self.page(where).parent)).with_suffix(".html").as_posix()


class Links:
    "Where names lead: symbols of the package, its modules, pages"

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

    def markdown(self, text: str, where: Path) -> str:
        "Markdown with names in backticks linked, and links to notebooks turned to their pages; code blocks are left alone"

        def name(m):
            a = self.address(m[1], len(self.pages.page(where).parts) - 1)
            return f"[`{m[1]}`]({a})" if a else m[0]

        def notebook(m):
            return f"]({self.pages.address(m[1], where)}{m[2] or ''})"

        parts = re.split(r"(?ms)(^```.*?^```[ \t]*$)", text)
        return "".join(
            p if i % 2 else re.sub(r"\]\((?!https?:)([^)\s#]+\.ipynb)(#[^)\s]*)?\)", notebook, MARKED.sub(name, p))
            for i, p in enumerate(parts)
        )


def figure_html(
    figure: dict,  # a stored plotly figure
    name: str,  # of its place on the page
) -> str:
    "A place on the page and the figure's data; site.js draws it when it comes into sight"
    body = json.dumps(
        {k: figure[k] for k in ("data", "layout", "config") if figure.get(k)}, ensure_ascii=False
    ).replace("</", "<\\/")
    title = (figure.get("layout", {}).get("title") or {}).get("text") or "figure"
    height = figure.get("layout", {}).get("height") or 450
    return f'<div id="{name}" class="figure-place" role="img" aria-label="{re.sub(chr(34) + "|<[^>]*>", "", title)}" style="min-height:{height}px"></div><script type="application/json" data-plotly="{name}">{body}</script>'


def front_matter(
    cell: dict,  # the first one
) -> tuple[dict, str]:  # title and description; the prose below them
    m = re.match(r"# ([^\n]+)\n*(?:> ([^\n]+)\n*)?(?:- skip_\w+:[^\n]*\n*)*", text := "".join(cell["source"]))
    return (dict(title=m[1], **({"description": m[2]} if m[2] else {})), text[m.end() :]) if m else ({}, text)


def directives(source: str) -> tuple[list[str], str]:
    "The `#|` lines of a cell, and the rest"
    found = re.findall(r"(?m)^[ \t]*#[ \t]*\|[ \t]*(.*\S)[ \t]*$", source)
    return found, re.sub(r"(?m)^[ \t]*#[ \t]*\|.*\n?", "", source)


def only_imports(code: str) -> bool:
    try:
        return all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in ast.parse(code).body)
    except SyntaxError:
        return False


def plain(
    prose: str,  # Markdown
) -> str:  # its first sentences, at most 160 characters, as plain words
    words = re.sub(
        r"\s+", " ", re.sub(r"```.*?```|[#>*`$]|\[([^\]]*)\]\([^)]*\)", lambda m: m[1] or "", prose, flags=re.S)
    ).strip()
    return words if len(words) <= 160 else words[:157].rsplit(" ", 1)[0] + " …"


def outputs(
    cell: dict,  # with stored outputs
    places: list,  # of figures on the page, grows
    words: str,  # what was said before: a picture's alternative text, where it has none of its own
) -> list[dict]:
    "What a static page can show: figures as places, panels as their snapshot, no warnings"
    kept = []
    for o in cell.get("outputs", []):
        if o["output_type"] == "stream" and o["name"] == "stderr":
            continue
        if o["output_type"] == "stream" and kept and kept[-1]["output_type"] == "stream":  # written in several goes
            kept[-1] = kept[-1] | dict(text="".join(kept[-1]["text"]) + "".join(o["text"]))
            continue
        data = o.get("data", {})
        if PLOTLY in data:
            places.append(f"fig-{len(places) + 1}")
            data = {"text/html": figure_html(data[PLOTLY], places[-1])}
        if (
            data.get("text/plain")
            and set(data) == {"text/plain"}
            and re.match(r"\w*(FigureWidget|Panel|VBox|Output)\(", "".join(data["text/plain"]))
        ):
            continue
        picture = next((k for k in ("image/png", "image/jpeg", "image/webp") if k in data), None)
        if "text/html" in data and "<table" in (shown := "".join(data["text/html"])) and "dl-" not in shown:
            data = {"text/html": f'<div class="wide">{shown}</div>'}
        elif picture and "text/html" not in data:
            data = {
                "text/html": f'<img src="data:{picture};base64,{"".join(data[picture]).replace(chr(10), "")}" alt="{html.escape(words)}">'
            }
        kept.append(o | dict(data=data) if "data" in o else o)
    return kept


def convert(
    notebook: dict,  # as stored
    where: Path,  # of the notebook, below nbs/
    links: Links,
    more: dict = {},  # for the front matter
    head: str = "",  # Markdown put above everything
) -> dict:  # a notebook as the site's generator takes it
    "Front matter, prose with links, definitions open, hidden cells gone"
    cells = []
    places = []
    words = ""
    title, prose = front_matter(notebook["cells"][0])
    import yaml

    cells.append(
        dict(
            cell_type="raw",
            metadata={},
            source=f"---\n{yaml.safe_dump(title | more, sort_keys=False, allow_unicode=True)}---\n",
        )
    )
    for text in (head, prose):
        if text.strip():
            cells.append(dict(cell_type="markdown", metadata={}, source=links.markdown(text, where)))
    for c in notebook["cells"][1:]:
        source = "".join(c["source"])
        if c["cell_type"] != "code":
            words = plain(source)
            cells.append(
                dict(
                    cell_type=c["cell_type"],
                    metadata={},
                    source=links.markdown(source, where),
                    **({"attachments": c["attachments"]} if c.get("attachments") else {}),
                )
            )
            continue
        said, code = directives(source)
        asked = {d.split()[0] for d in said if d.split()}
        if asked & HIDDEN or "nbdev_export(" in code or ("export" in asked and only_imports(code)):
            continue
        kept = [d for d in said if d.split()[0] not in OURS | {"fig-alt:"}]
        shown = outputs(c, places, next((d[8:].strip(' "') for d in said if d.startswith("fig-alt:")), words))
        for o in shown:
            if "text/markdown" in o.get("data", {}) and "text/html" not in o["data"]:
                o["data"] = {"text/markdown": links.markdown("".join(o["data"]["text/markdown"]), where)}
        cells.append(
            dict(
                cell_type="code",
                metadata=dict(tags=c["metadata"].get("tags", [])),
                execution_count=None,
                source="\n".join([*(f"#| {d}" for d in kept), code.strip("\n")]),
                outputs=shown,
            )
        )
    return dict(
        nbformat=4,
        nbformat_minor=5,
        metadata=dict(kernelspec=dict(name="python3", language="python", display_name="python3")),
        cells=cells,
    )
