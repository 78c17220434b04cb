"Write README.md from the index notebook (nbdev's own command needs Quarto)"

import os
import re
import sys

import nbformat
from nbconvert import MarkdownExporter
from nbdev.config import get_config

SHOWN = ("text/markdown", "text/plain")  # what a README can show; pictures are linked as files


def readme(
    nb: nbformat.NotebookNode,  # the index notebook
) -> str:  # Markdown
    kept = []
    for c in nb.cells:
        lines = c.source.splitlines()
        directives = [line for line in lines if re.match(r"\s*#\s*\|", line)] if c.cell_type == "code" else []
        if any(re.search(r"\|\s*(hide\b|default_exp|export)", d) for d in directives):
            continue
        if c.cell_type == "code":
            c.source = "\n".join(line for line in lines if line not in directives)
            for o in c.outputs:
                if "data" in o:
                    o.data = {k: v for k, v in o.data.items() if k in SHOWN}
            # a cell that only draws what is told in Markdown shows its output alone
            if any("echo: false" in d for d in directives):
                c = nbformat.v4.new_markdown_cell(
                    "\n".join(o.get("text", "") or o.get("data", {}).get("text/markdown", "") for o in c.outputs)
                )
        kept.append(c)
    nb.cells = kept
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


def main(check: bool = False) -> bool:  # True where README.md said the same before
    "Write README.md, or only compare"
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
    if not main(check="--check" in sys.argv) and "--check" in sys.argv:
        sys.exit("README.md is not what nbs/index.ipynb says. Expected the two to agree. Run: make export")
