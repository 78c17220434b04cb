"""Run notebooks in a real kernel and store their outputs, cleaned

    python tools/notebooks/run.py nbs/guides/*.ipynb [--flags slow]

Cells that `nbdev_test` would skip (`eval: false`, flagged cells) keep the outputs they have.
A notebook is replaced only after all of it ran: a failing cell leaves the file as it was."""

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
    flags: set[str],  # directives that mean "not now"
) -> bool:
    directives = re.findall(r"^\s*#\s*\|\s*(\S.*?)\s*$", source, re.M)
    return (
        any(re.fullmatch(r"eval:\s*false", d, re.I) or d.split()[0] in flags for d in directives)
        or "nbdev_export(" in source
    )


class Runner(NotebookClient):
    "A client that leaves some cells alone"

    flags: set[str] = set()

    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if cell.cell_type == "code" and skipped(cell.source, self.flags):
            return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)


def run(path: Path, flags: set[str]):
    "Execute, clean, replace"
    nb = nbformat.read(path, as_version=4)
    runner = Runner(
        nb,
        timeout=3600,
        kernel_name="python3",
        record_timing=False,
        resources=dict(metadata=dict(path=str(path.parent))),
    )
    runner.flags = flags
    runner.execute()
    nb.metadata.pop("widgets", None)
    new = path.with_name(f".{path.name}.new")
    new.write_text(cleaned(nbformat.writes(nb)), encoding="utf-8")
    os.replace(new, path)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("notebooks", nargs="+", type=Path)
    p.add_argument("--flags", default="", help="flagged cells to run as well, for example: slow")
    a = p.parse_args()
    left_out = set(get_config().tst_flags.split()) - set(a.flags.split())
    for path in a.notebooks:
        began = time.monotonic()
        run(path, left_out)
        print(f"{path}: {time.monotonic() - began:.1f} s, {path.stat().st_size / 1e3:.0f} kB")
