"""What the benchmarks share: calls timed in turn, ratios with quartiles, facts about the machine, a results file

Calls are timed in alternation, round by round, so other work on the machine affects all of them alike. A ratio is the
median of the ratios of all rounds, with quartiles. The first round is a warm-up."""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from dasd_lab.base.storage import write_json
from dasd_lab.commands.arguments import text_table


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


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    "Time of a call: of all threads of this process, or by another clock"
    began = clock()
    call()
    return clock() - began


def in_turn(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    "Seconds of every call in every round; the order changes from round to round"
    took: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds + 1):
        for name in list(calls)[:: 1 if i % 2 else -1]:
            took[name].append(seconds(calls[name], clock))
    return {name: times[1:] for name, times in took.items()}


def spread(values, name: str = "median") -> dict:
    "Median and quartiles"
    low, middle, high = statistics.quantiles(values, n=4)
    return {name: middle, "quartiles": [low, high]}


def ratio(first: list[float], second: list[float], name: str = "times") -> dict:
    "How many times longer the first takes, round by round"
    return spread([a / b for a, b in zip(first, second)], name)


def shown(found: dict) -> str:
    "A ratio as text"
    middle = next(iter(found.values()))
    low, high = found["quartiles"]
    return f"× {middle:.2f} [{low:.2f}–{high:.2f}]"


def keep(a: argparse.Namespace, facts: dict, rows: list[dict] = ()) -> dict:
    "Print a table and write the results, with the facts of this machine"
    about = dict(machine=platform.machine(), threads=a.threads, torch=torch.__version__, rounds=a.rounds) | facts
    print(f"{about['machine']}, {a.threads} thread(s), torch {torch.__version__}, medians of {a.rounds} rounds\n")
    print(text_table(rows))
    if a.json:
        write_json(about, a.json)
    return about
