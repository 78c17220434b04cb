"Write README.md from the index notebook (nbdev's own command needs Quarto)"

import os
import re

import nbformat
from nbdev.config import get_config


def shown(
    cell: nbformat.NotebookNode,  # of the index
) -> str:  # Markdown; nothing of code and of the contents of the site
    "What the README has of a cell: its prose, or what an `echo: false` cell shows as Markdown"
    if cell.cell_type == "markdown":
        return "" if cell.source.startswith("```{toctree}") else cell.source
    outputs = cell.outputs if "echo: false" in cell.source else []
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/markdown", "") for output in outputs)


def readme(
    nb: nbformat.NotebookNode,  # the index notebook
) -> str:  # Markdown
    "The index as Markdown"
    text = "\n\n".join(shown(cell) for cell in nb.cells)
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


if __name__ == "__main__":
    cfg = get_config()
    text = readme(nbformat.read(cfg.nbs_path / cfg.readme_nb, as_version=4))
    text = from_the_root(text, cfg.nbs_path.name)
    (cfg.config_path / "README.md").write_text(text, encoding="utf-8")
