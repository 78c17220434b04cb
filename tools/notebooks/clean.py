"Clean one notebook from standard input to standard output: a git clean filter (nbdev 2.4's own `--stdin` prints nothing)"

import json
import sys

from execnb.nbio import dict2nb, nb2str
from nbdev.clean import clean_nb

WIDGET = "application/vnd.jupyter.widget-view+json"


def without_widgets(
    outputs: list,  # of a code cell
) -> list:  # live widgets replaced by their static picture, or left out: their state is not stored, so a reader would see an error
    live = [o for o in outputs if WIDGET in o.get("data", {})]
    for o in live:
        del o["data"][WIDGET]
    return [o for o in outputs if o not in live or "text/html" in o["data"]]


def cleaned(
    text: str,  # a notebook as JSON
) -> str:  # the same without counts, timings, live widgets and foreign metadata
    plain = json.loads(text)
    plain["metadata"].pop("widgets", None)
    for c in plain["cells"]:
        if c["cell_type"] == "code":
            c["outputs"] = without_widgets(c["outputs"])
    nb = dict2nb(plain)
    clean_nb(nb)
    return nb2str(nb)


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")
    sys.stdout.write(cleaned(sys.stdin.read()))
