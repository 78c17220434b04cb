"""The path of the notebooks: numbered folders and notebooks, in the order in which they build on each other"""

import json
import re
from pathlib import Path

COMPANIONS = ("guides", "studies", "pages")
NUMBERED = re.compile(r"(\d+)_")
DEFAULT_EXP = re.compile(r"(?m)^#\|\s*default_exp\s+(\S+)")


def sources(notebook: Path) -> list[str]:
    "Code cells of a notebook"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]


def place(
    notebook: Path,  # below nbs/
) -> tuple[int, ...]:  # the numbers along its path: `3_methods/1_dasd/20_adapters.ipynb` → (3, 1, 20)
    "Where a notebook stands; places are compared number by number"
    return tuple(int(NUMBERED.match(part)[1]) for part in notebook.parts)


def exporting(
    nbs: Path,  # the notebooks
) -> dict[str, Path]:  # module → its notebook, in the order of the path
    "The numbered notebooks, each the source of one module"
    numbered = [p for p in nbs.rglob("[0-9]*.ipynb") if all(NUMBERED.match(x) for x in p.relative_to(nbs).parts)]
    numbered.sort(key=lambda p: place(p.relative_to(nbs)))
    return {DEFAULT_EXP.search("\n".join(sources(p)))[1]: p for p in numbered}
