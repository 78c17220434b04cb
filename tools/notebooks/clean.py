"""Git filter that cleans a notebook from standard input to standard output

`nbdev_clean --stdin` of nbdev 2.4 prints nothing."""

import json
import sys

from execnb.nbio import dict2nb, nb2str
from nbdev.clean import clean_nb

WIDGET = "application/vnd.jupyter.widget-view+json"


def without_widgets(
    outputs: list,  # of a code cell
) -> list:
    "Replace live widgets by their snapshot or drop them, because their state is not stored"
    kept = []
    for output in outputs:
        data = output.get("data", {})
        if WIDGET in data:
            del data[WIDGET]
            if "text/html" not in data:
                continue
        kept.append(output)
    return kept


def cleaned(
    text: str,  # a notebook as JSON
) -> str:  # JSON
    "Remove counts, timings, live widgets and metadata of other tools"
    plain = json.loads(text)
    plain["metadata"].pop("widgets", None)
    for cell in plain["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = without_widgets(cell["outputs"])
    nb = dict2nb(plain)
    clean_nb(nb)
    return nb2str(nb)


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")
    sys.stdout.write(cleaned(sys.stdin.read()))
