"""Order of the notebooks: numbered folders and files, each building on those before"""

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
) -> tuple[int, ...]:  # the numbers along its path: `04_methods/1_dasd/20_adapters.ipynb` → (3, 1, 20)
    "Place of a notebook in the order"
    return tuple(int(NUMBERED.match(part)[1]) for part in notebook.parts)


def exporting(
    nbs: Path,  # the notebooks
) -> dict[str, Path]:  # module → its notebook, in the order of the path
    "The numbered notebooks, each the source of one module"
    found = (path for path in nbs.rglob("[0-9]*.ipynb") if path.relative_to(nbs).parts[0] not in COMPANIONS)
    numbered = sorted(found, key=lambda path: place(path.relative_to(nbs)))
    return {DEFAULT_EXP.search("\n".join(sources(path)))[1]: path for path in numbered}
