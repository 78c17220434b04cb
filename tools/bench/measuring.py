"""What the benchmarks share: calls timed in turn, ratios with quartiles, facts about the machine, a results file

Calls are timed in alternation, round by round, so other work on the machine affects all of them alike. A ratio is the
median of the ratios of all rounds, with quartiles. The first round is a warm-up."""

import argparse
import platform
import shlex
import sys
from pathlib import Path

import pandas as pd
import torch

from dasd_lab.base.presets import read_json
from dasd_lab.base.storage import write_json
from dasd_lab.commands.arguments import text_table
from dasd_lab.commands.timing import in_turn, seconds  # noqa: F401  for the benchmarks


def arguments(doc: str, rounds: int = 7, **options: dict) -> argparse.Namespace:  # option → keywords of argparse
    "The options of a benchmark; sets the number of threads"
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", type=Path, metavar="FILE")
    p.add_argument("--tiny", action="store_true", help="small sizes: does it run?")
    for name, keywords in options.items():
        p.add_argument(f"--{name}", **keywords)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    return a


def spread(values: pd.Series, name: str = "median") -> dict:
    "Median and quartiles"
    low, middle, high = values.quantile([0.25, 0.5, 0.75])
    return {name: middle, "quartiles": [low, high]}


def ratio(first: pd.Series, second: pd.Series, name: str = "times") -> dict:
    "How many times longer the first takes, round by round"
    return spread(first / second, name)


def shown(found: dict) -> str:
    "A ratio as text"
    middle, (low, high) = found.values()
    return f"× {middle:.2f} [{low:.2f}–{high:.2f}]"


def keep(a: argparse.Namespace, facts: dict, rows: list[dict] = (), part: str = "") -> None:
    "Print a table and write the results, with the facts of this machine; of a file that is there other parts stay"
    command = f"python tools/bench/{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}".rstrip()
    about = dict(
        command=command,
        machine=platform.machine(),
        threads=a.threads,
        torch=torch.__version__,
        rounds=a.rounds,
    )
    print(f"{platform.machine()}, {a.threads} thread(s), torch {torch.__version__}, medians of {a.rounds} rounds\n")
    print(text_table(rows))
    if a.json:
        write_json(read_json(a.json, optional=True) | {part: about | facts} if part else about | facts, a.json)
