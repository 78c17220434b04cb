"Write README.md from the index notebook (nbdev's own command needs Quarto)"

import os
import re
import sys

import nbformat
from nbconvert import MarkdownExporter
from nbdev.config import get_config

SHOWN = ("text/markdown", "text/plain")  # outputs that a README can show; images are linked as files
HIDDEN = re.compile(r"\|\s*(hide\b|default_exp|export)")


def output_text(
    cell: nbformat.NotebookNode,
) -> str:
    "Text and Markdown that a cell shows"
    texts = []
    for output in cell.outputs:
        texts.append(output.get("text", "") or output.get("data", {}).get("text/markdown", ""))
    return "\n".join(texts)


def shown_cell(
    cell: nbformat.NotebookNode,
) -> nbformat.NotebookNode | None:
    "A cell of the index as the README shows it, or None if it is hidden or the contents of the site"
    if cell.cell_type != "code":
        return None if cell.source.startswith("```{toctree}") else cell
    lines = cell.source.splitlines()
    directives = [line for line in lines if re.match(r"\s*#\s*\|", line)]
    if any(HIDDEN.search(directive) for directive in directives):
        return None
    cell.source = "\n".join(line for line in lines if line not in directives)
    for output in cell.outputs:
        if "data" in output:
            output.data = {kind: data for kind, data in output.data.items() if kind in SHOWN}
    if any("echo: false" in directive for directive in directives):
        return nbformat.v4.new_markdown_cell(output_text(cell))
    return cell


def readme(
    nb: nbformat.NotebookNode,  # the index notebook
) -> str:  # Markdown
    "The index as Markdown"
    cells = [shown_cell(cell) for cell in nb.cells]
    nb.cells = [cell for cell in cells if cell is not None]
    nb.metadata["language_info"] = dict(name="python")
    text, _ = MarkdownExporter().from_notebook_node(nb)
    text = re.sub(r"(?m)^# ([^\n]+)\n\n> ([^\n]+)\n", r"# \1\n\n\2\n", text, count=1)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def from_the_root(
    text: str,  # Markdown with links relative to the notebooks' folder
    folder: str,  # that folder, from the repository's root
) -> str:  # with links relative to the root
    "Move relative links of the index to where README.md stands"

    def link(m):
        path = m[2] if re.match(r"\w+:|#", m[2]) else os.path.normpath(f"{folder}/{m[2]}")
        return f"{m[1]}{path})"

    return re.sub(r"(\]\()([^)\s]+)\)", link, text)


def main(check: bool = False) -> bool:  # whether README.md was up to date
    "Write README.md, or only compare it"
    cfg = get_config()
    text = readme(nbformat.read(cfg.nbs_path / cfg.readme_nb, as_version=4))
    text = from_the_root(text, cfg.nbs_path.name)
    path = cfg.config_path / "README.md"
    same = path.exists() and path.read_text(encoding="utf-8") == text
    if not same and not check:
        new = path.with_name(".README.md.new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    return same


if __name__ == "__main__":
    check = "--check" in sys.argv
    up_to_date = main(check)
    if check and not up_to_date:
        sys.exit("README.md differs from nbs/index.ipynb. Expected the two to agree. Run: make export")
