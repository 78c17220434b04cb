"""Execute notebooks in a kernel and store their cleaned outputs

    python tools/notebooks/run.py nbs/guides/*.ipynb [--flags slow]

Cells that `nbdev_test` skips (`eval: false`, flagged cells) keep their outputs. A failing cell leaves the file
unchanged."""

import argparse
import os
import re
import time
from pathlib import Path

import nbformat
from clean import cleaned
from nbclient import NotebookClient
from nbdev.config import get_config


def skipped(
    source: str,  # of a code cell
    flags: set[str],  # directives of cells that are skipped
) -> bool:
    "Whether a cell is not executed"
    directives = re.findall(r"^\s*#\s*\|\s*(\S.*?)\s*$", source, re.M)
    flagged = any(re.fullmatch(r"eval:\s*false", d, re.I) or d.split()[0] in flags for d in directives)
    return flagged or "nbdev_export(" in source


def run(path: Path, flags: set[str]):
    "Execute and clean a notebook, then replace the file"
    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code" and skipped(cell.source, flags):
            cell.metadata.tags = ["skip-execution"]  # which nbclient knows, and cleaning removes
    resources = dict(metadata=dict(path=str(path.parent)))
    NotebookClient(nb, timeout=3600, kernel_name="python3", record_timing=False, resources=resources).execute()
    new = path.with_name(f".{path.name}.new")
    new.write_text(cleaned(nbformat.writes(nb)), encoding="utf-8")
    os.replace(new, path)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("notebooks", nargs="+", type=Path)
    p.add_argument("--flags", default="", help="also run cells with these flags, for example: slow")
    args = p.parse_args()
    skipped_flags = set(get_config().tst_flags.split()) - set(args.flags.split())
    for path in args.notebooks:
        start = time.monotonic()
        run(path, skipped_flags)
        print(f"{path}: {time.monotonic() - start:.1f} s, {path.stat().st_size / 1e3:.0f} kB")
