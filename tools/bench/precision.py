"""float32 compared with bfloat16 on one core: training steps, captions and pictures a second

    python tools/bench/precision.py [--rounds 7] [--json FILE] [--tiny]

The shipped model `photographs` (MiniLM and EfficientNet-lite2), which `precision='auto'` computes in bfloat16
where the processor has instructions for it. Everything is measured in alternation in processor time, so that other
work on the machine affects both alike; a ratio is the median of the ratios of all rounds, with quartiles. Each round
also measures the core's limit, products of square matrices in the same precision. The share of a training step is the
floating-point operations of its matrix products, which torch counts, by its time and the limit. What takes the rest is
read from the profiler: products that reach less than the limit, conversions between the types, and everything else.

The recall in either precision was measured once, and is kept in the results file."""

import os
import statistics
import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from measuring import arguments, in_turn, keep, ratio, seconds, shown, spread
from PIL import Image
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from dasd_lab.backbone.text_towers import native_bf16
from dasd_lab.base.presets import load_preset
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.visuals import read_picture
from dasd_lab.evaluation.retrieval import evaluating
from dasd_lab.runs.loading import load_run
from dasd_lab.training.advice import random_batch
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.runtime import Runtime, Worker
from dasd_lab.training.steps import open_stage, train_step

PRECISIONS = dict(float32=torch.float32, bf16=torch.bfloat16)
PRESET = "dasd.photographs_expression"  # of the shipped model
LANGUAGE = "de"
BATCH, TOKENS = 64, 18
# operations of the profile → the group in which their time is counted
KINDS = dict.fromkeys(("aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm"), "products")
KINDS |= dict.fromkeys(("aten::copy_", "aten::_to_copy", "aten::to"), "conversions")


def limit(side: int, precision: str) -> float:  # operations a second
    "The core's limit: a product of square matrices"
    a, b = torch.randn(2, side, side).to(PRECISIONS[precision])
    return 2 * side**3 / min(seconds(lambda: a @ b) for _ in range(3))


def drawn(folder: Path, n: int) -> list[Path]:
    "JPEG files of the size of a photograph"
    files = [folder / f"{i}.jpg" for i in range(n)]
    for i, file in enumerate(files):
        Image.effect_noise((40, 30), 64 + i).convert("RGB").resize((500, 375)).save(file, quality=90)
    return files


class Work:
    "What is timed, in either precision"

    def __init__(self, folder: Path, tiny: bool):
        self.method = load_run("photographs").train()
        self.method.concepts = None  # which no training reads
        self.stage = scaled_stages(load_preset(PRESET), len(self.method.languages))[0]
        self.batch = random_batch(self.method, 8 if tiny else BATCH, TOKENS) | dict(language=LANGUAGE)
        self.captions = [c.text for c in load_corpus("pictograms").captions("test", LANGUAGE)[: 16 if tiny else 256]]
        self.files = drawn(folder, 2 if tiny else 16)
        self.optimizers, self.turn = open_stage(self.method, self.stage)
        self.workers = {p: Worker(Runtime(precision=p)) for p in PRECISIONS}
        # row → call, how many it counts as
        self.calls = {
            f"training steps, {len(self.batch['ids'])} captions of {TOKENS} tokens": (self.step, 1),
            "captions of a trained language": (self.encode_captions, len(self.captions)),
            "pictures, read from files": (self.encode_pictures, len(self.files)),
        }

    def step(self, precision: str) -> None:
        train_step(self.method, self.stage, self.optimizers, self.batch, 0, self.turn, self.workers[precision])

    def encode_captions(self, precision: str) -> None:
        self.method.backbone.precision = precision
        with evaluating(self.method):
            self.method.encode_captions(self.captions, LANGUAGE)

    def encode_pictures(self, precision: str) -> None:
        self.method.backbone.precision = precision
        self.method.backbone.encode_pictures([read_picture(file) for file in self.files])


def parts_of_a_step(work: Work, precision: str) -> dict[str, float]:  # share of the time
    "Where the time of a step goes"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no messages about missing GPUs
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work.step(precision)
    spent = pd.Series({row.key: row.self_cpu_time_total for row in profiler.key_averages()})
    kinds = spent.groupby(lambda key: KINDS.get(key, "everything else")).sum()
    return (kinds / kinds.sum()).to_dict()


def times(rounds: int, tiny: bool) -> dict:
    "Rows of times, and the share of the limit"
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), tiny)
        calls = {(name, p): partial(call, p) for name, (call, _) in work.calls.items() for p in PRECISIONS}
        took = in_turn(calls, rounds)
    with FlopCounterMode(display=False) as counter:  # products of a step, forwards and backwards
        work.step("float32")
    rows = [
        dict(
            row=name,
            per_s={p: n / took[name, p].median() for p in PRECISIONS},
            times=ratio(took[name, "float32"], took[name, "bf16"], "median"),
        )
        for name, (_, n) in work.calls.items()
    ]
    share = {}
    for p in PRECISIONS:
        most = statistics.median(limit(128 if tiny else 1024, p) for _ in range(rounds))
        reached = spread(counter.get_total_flops() / most / took[next(iter(work.calls)), p])
        share[p] = dict(limit_gflops=most / 1e9, of_limit=reached, parts=parts_of_a_step(work, p))
    return dict(operations_of_a_step=counter.get_total_flops(), rows=rows, step=share)


def main() -> None:
    a = arguments(__doc__, 7)
    report = times(a.rounds, a.tiny)
    rows = [dict(row=row["row"], times=shown(row["times"])) | row["per_s"] for row in report["rows"]]
    keep(a, dict(native_bf16=native_bf16("cpu")) | report, rows, "times")


if __name__ == "__main__":
    main()
