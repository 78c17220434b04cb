"""Git filter that cleans a notebook from standard input to standard output

`nbdev_clean --stdin` of nbdev 2.4 prints nothing."""

import json
import sys

from execnb.nbio import dict2nb, nb2str
from nbdev.clean import clean_nb

WIDGET = "application/vnd.jupyter.widget-view+json"


def cleaned(
    text: str,  # a notebook as JSON
) -> str:  # JSON
    "Remove counts, timings, live widgets and metadata of other tools"
    plain = json.loads(text)
    plain["metadata"].pop("widgets", None)
    for cell in plain["cells"]:
        for output in [*cell.get("outputs", ())]:
            data = output.get("data", {})
            # live widgets are replaced by their snapshot or dropped, because their state is not stored
            if data.pop(WIDGET, None) and not data.get("text/html"):
                cell["outputs"].remove(output)
    nb = dict2nb(plain)
    clean_nb(nb)
    return nb2str(nb)


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")
    sys.stdout.write(cleaned(sys.stdin.read()))
