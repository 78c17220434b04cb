"""The paper's five-language zero-shot schedule on a GPU: how long by measured steps a second, and beside the plain step

    python tools/bench/gpu.py [--steps 500] [--rounds 5] [--workers 4] [--json data/results/train_gpu.json] [--modes float32,bf16,…]

45,000 steps of cross-lingual alignment and 6,000 of cross-modal alignment, batches of 128 captions of real length, ViT-B's text tower (12 blocks, width
512), features from a store, weights random as time does not depend on them. The plain step (`plain_step.py`) runs on the same GPU in the same run, in float32
and, as the authors' released settings have half precision, under bfloat16 too; its pictures lie on the GPU already, decoded.

Each mode of the lab's step is warmed up until every length and language has been seen, then timed in rounds, a few plain steps before each; batches come
from `CaptionBatches` through pinned memory and helping processes, and every tenth step's figures are read as `fit` reads them. A pass under
`torch.cuda.set_sync_debug_mode('error')` shows that no step waits for the device. Peak memory is of each side alone: weights, gradients, averages,
activations. Wanted: the schedule in 5 minutes, 10 times the plain step, half its memory.

Without a GPU it says so and leaves with code 2. `--device cpu --tiny` runs every line but those of CUDA itself on small sizes; its times mean nothing."""

import argparse
import gc
import statistics
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from plain_step import CONTEXT, PlainStep
from train_step import LANGUAGES, PRESET, TINY, caption_lengths, methods

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import attention, build_clip
from dasd_lab.presets import load_preset
from dasd_lab.storage import write_json
from dasd_lab.training.optimizers import make_optimizers
from dasd_lab.training.parameters import tower_config
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.runtime import Runtime, Worker, batches_ahead, compiled
from dasd_lab.training.stages import CaptionBatches, set_trainable
from dasd_lab.training.steps import CriticTurn, train_step

MODES = {
    "float32": {},
    "bf16": dict(precision="bf16"),
    "bf16, few shapes": dict(precision="bf16", length_step=8),
    "bf16, compiled": dict(precision="bf16", compiled="default"),
    "bf16, CUDA graphs": dict(precision="bf16", compiled="reduce-overhead", length_step=8),
}
WANTED = dict(minutes=5.0, times=10.0, memory=0.5)


@dataclass(frozen=True)
class Sizes:
    "What is measured"

    batch: int = 128
    captions: int = 40_000  # of each language
    used: int = 20_000  # pieces
    pixels: int = 224  # a side
    steps: int = 500  # in all rounds of a mode
    rounds: int = 5
    plain_steps: int = 10  # in a round
    warm_steps: int = 3  # of a language and length: CUDA graphs are recorded by the third
    peak_steps: int = 20  # while memory is watched


class PlainOnDevice(PlainStep):
    "The plain step with a picture tower of its own, in float32 or under autocast"

    def __init__(self, method, rate: float, tower, short: bool):
        super().__init__(method, rate, adam={})
        self.tower = tower
        self.short = short

    def pictures(self, batch):
        with torch.no_grad():
            return self.tower(batch["pixels"])

    def __call__(self, batch, step):
        with attention(batch["ids"].device):
            return super().__call__(batch, step)

    def encoded(self, *given):
        with self.autocast(given[0]):
            return tuple(x.float() for x in super().encoded(*given))

    def source(self, batch):
        with self.autocast(batch["ids"]):
            return super().source(batch).float()

    def autocast(self, x):
        return torch.autocast(x.device.type, torch.bfloat16) if self.short else nullcontext()


class Clock:
    "Seconds and peak memory of a device"

    def __init__(self, device):
        self.device = device
        self.cuda = device.type == "cuda"

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def seconds(self, call) -> float:
        self.wait()
        began = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - began

    def peak(self, call) -> int | None:  # bytes; None: not a GPU
        if not self.cuda:
            call()
            return None
        torch.cuda.reset_peak_memory_stats(self.device)
        call()
        self.wait()
        return torch.cuda.max_memory_allocated(self.device)


def data_for(preset, embed: int, s: Sizes, stage, rng) -> CaptionBatches:
    "Captions of real length in every language, with features of their English ones and their pictures"
    rows = {
        language: [[2, *rng.integers(4, s.used, n - 2).tolist(), 3] for n in caption_lengths(rng, s.captions)]
        for language in LANGUAGES
    }
    own = {language: range(s.captions) for language in LANGUAGES}
    pad = train_tokenizer(["a b c"] * 3, 40).pad
    features = torch.from_numpy(rng.standard_normal((s.captions, embed), np.float32))
    return CaptionBatches(
        rows, pad, own, features, own, torch.roll(features, 1, 0), s.batch, bucket=stage.length_bucket
    )


class Ours:
    "The lab's step in one mode and stage"

    def __init__(self, method, stage, data, runtime: Runtime):
        self.method = method.to(Worker(runtime).device)
        self.stage = stage
        self.data = data
        self.worker = Worker(runtime)
        set_trainable(method, (*stage.trains, "critic"))
        method.train()
        self.optimizers, self.turn, self.ahead, self.step = (
            make_optimizers(method, stage),
            CriticTurn(method.critic, stage.critic),
            batches_ahead(data, 0, 10**9, self.worker),
            0,
        )

    def one(self, batch):
        row = train_step(self.method, self.stage, self.optimizers, batch, self.step, self.turn, self.worker)
        self.step += 1
        return row

    def run(self, n: int) -> None:
        rows = []
        for _ in range(n):
            rows.append(self.one(next(self.ahead)))
            if len(rows) == 10:
                [bool(r["fault"]) for r in rows]
                rows.clear()  # as `fit` does

    def warm(self, each: int) -> int:  # steps
        "One batch of every language and length, so that nothing is compiled while it is timed"
        step = self.worker.runtime.length_step
        done = set()
        most = max(len(r) for rows in self.data.rows.values() for r in rows)
        for language, length in product(LANGUAGES, range(max(step, 6), most + step, max(step, 8))):
            length = min(-(-length // step) * step, CONTEXT)
            ids = torch.randint(4, 50, (self.data.batch_size, length))
            E = self.method.backbone.embed_dim
            for _ in range(each):
                self.one(
                    dict(
                        language=language,
                        ids=ids,
                        end_index=torch.full((len(ids),), length - 1),
                        longest=length,
                        source_features=torch.randn(len(ids), E),
                        image_features=torch.randn(len(ids), E),
                    )
                )
            done.add((language, length))
        self.run(10)
        return each * len(done) + 10

    def never_waits(self, n: int = 5) -> str:
        "Steps on batches that lie in pinned memory, with every wait for the device an error"
        if self.worker.device.type != "cuda":
            return "not asked: no GPU"
        batches = [next(self.ahead) for _ in range(n)]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            [self.one(b) for b in batches]
            return "no step waits"
        except RuntimeError as e:
            return f"a step waits: {str(e).splitlines()[0]}"
        finally:
            torch.cuda.set_sync_debug_mode("default")


def plain_batches(data, backbone, cross_modal: bool, s: Sizes, device, rng, n: int = 4) -> list[dict]:
    "The same batches with English ids, and with pictures where the stage wants them"
    V = len(backbone.text.embedding.weight)
    found = []
    for i in range(n):
        b = data(i)
        b = dict(
            language=b["language"],
            ids=b["ids"],
            end_index=b["end_index"],
            source_ids=torch.from_numpy(rng.integers(4, V, (s.batch, CONTEXT))),
            source_end=torch.from_numpy(rng.integers(6, 40, s.batch)),
        )
        if cross_modal:
            b["pixels"] = torch.randn(s.batch, 3, s.pixels, s.pixels)
        found.append({k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in b.items()})
    return found


def one_mode(name: str, make, plains: dict, batches, s: Sizes, clock: Clock, resting: int | None) -> dict:
    "A mode against the plain steps, in rounds"
    with ExitStack() as held:
        ours = make(held)
        began = time.perf_counter()
        warm = ours.warm(s.warm_steps)
        clock.wait()
        warm_s = time.perf_counter() - began
        waits = ours.never_waits()
        each = max(1, -(-s.steps // s.rounds))
        took = []
        peak = clock.peak(lambda: ours.run(s.peak_steps))
        for _ in range(s.rounds):
            took.append(
                [
                    *(
                        clock.seconds(lambda: [plain(batches[i % len(batches)], i) for i in range(s.plain_steps)])
                        / s.plain_steps
                        for plain in plains.values()
                    ),
                    clock.seconds(lambda: ours.run(each)) / each,
                ]
            )
    beside = {}
    for i, p in enumerate(plains):
        low, middle, high = statistics.quantiles([t[i] / t[-1] for t in took], n=4)
        beside[p] = dict(plain_s=statistics.median(t[i] for t in took), times=middle, quartiles=[low, high])
    return dict(
        mode=name,
        step_s=statistics.median(t[-1] for t in took),
        steps=each * s.rounds,
        beside=beside,
        peak_bytes=None if peak is None else peak - resting,
        warm_steps=warm,
        warm_s=warm_s,
        waits=waits,
    )


def one_stage(preset, cfg, stage, s: Sizes, device, modes, workers: int) -> dict:
    "Every mode of one stage against the plain step in both precisions"
    rng = np.random.default_rng(0)
    clock = Clock(device)
    cross = stage.name == "cross_modal_alignment"
    tower = build_clip(cfg).visual.to(device).requires_grad_(False).eval() if cross else None
    plains = {}
    peaks = {}
    rows = []
    data = data_for(preset, cfg["embed_dim"], s, stage, rng)

    def held():
        return torch.cuda.memory_allocated(device) if clock.cuda else 0

    before = held()
    for precision in ("float32", "bf16"):
        own = held() - before
        whole = methods(preset, cfg, s.used)[0].to(device)
        plains[precision] = plain = PlainOnDevice(whole, stage.learning_rate, tower, precision == "bf16")
        batches = plain_batches(data, whole.backbone, cross, s, device, np.random.default_rng(0))
        for i in range(3):
            plain(batches[i], i)
        peak = clock.peak(lambda: [plain(b, i) for i, b in enumerate(batches)])
        peaks[precision] = None if peak is None else peak - own  # the other one rests beside it
    resting = held()
    for name in modes:
        runtime = Runtime(device=str(device), workers=workers, **MODES[name])
        small = methods(preset, cfg, s.used)[1]

        def make(held):
            ours = Ours(small, stage, data, runtime)
            held.enter_context(compiled(small, runtime.compiled))
            return ours

        try:
            rows.append(one_mode(name, make, plains, batches, s, clock, resting))
        except Exception as e:
            rows.append(dict(mode=name, failed=f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"))
        del small, make
        gc.collect()
        torch._dynamo.reset()
        if clock.cuda:
            torch.cuda.empty_cache()
    return dict(stage=stage.name, schedule_steps=stage.steps, plain_peak_bytes=peaks, modes=rows)


def summary(stages: list[dict]) -> list[dict]:
    "The whole schedule in each mode, beside the plain step in each precision"
    found = []
    for precision in ("float32", "bf16"):
        for rows in zip(*(s["modes"] for s in stages)):
            if any("failed" in r for r in rows):
                found.append(
                    dict(mode=rows[0]["mode"], plain=precision, failed=next(r["failed"] for r in rows if "failed" in r))
                )
                continue
            ours, plain = (
                sum(s["schedule_steps"] * seconds(r) for s, r in zip(stages, rows))
                for seconds in (lambda r: r["step_s"], lambda r: r["beside"][precision]["plain_s"])
            )
            share = (
                None
                if rows[0]["peak_bytes"] is None
                else max(r["peak_bytes"] / s["plain_peak_bytes"][precision] for s, r in zip(stages, rows))
            )
            found.append(
                dict(
                    mode=rows[0]["mode"],
                    plain=precision,
                    minutes=ours / 60,
                    plain_minutes=plain / 60,
                    times=plain / ours,
                    memory=share,
                    waits="; ".join(dict.fromkeys(r["waits"] for r in rows)),
                    warm_s=sum(r["warm_s"] for r in rows),
                )
            )
    return found


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--modes", default=";".join(MODES), help="separated by ; (default: %(default)s)")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="small sizes: does it run?")
    a = p.parse_args()
    if a.device.startswith("cuda") and not torch.cuda.is_available():
        print(
            "No GPU that torch sees. On a machine with one type: python tools/bench/gpu.py --json data/results/train_gpu.json",
            file=sys.stderr,
        )
        return 2
    device = torch.device(a.device)
    preset = load_preset(PRESET)
    modes = [m.strip() for m in a.modes.split(";")]
    s, cfg = (
        (Sizes(4, 60, 150, 16, 4, 2, 1, 1, 2), TINY)
        if a.tiny
        else (Sizes(steps=a.steps, rounds=a.rounds), tower_config(preset))
    )
    if a.tiny:
        preset = preset | dict(token_vectors=dict(weights="none", n_tokens=400))
    scaled = [replace(x, batch_size=s.batch) for x in scaled_stages(preset, len(LANGUAGES))]
    stages = [one_stage(preset, cfg, stage, s, device, modes, a.workers) for stage in scaled]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    rows = summary(stages)
    print(f"{name}, torch {torch.__version__}, batches of {s.batch}, {sum(x.steps for x in scaled):,} steps\n")
    print(
        "| mode | plain step in | schedule | plain ÷ it | peak memory | warming up | |\n|---|---|---:|---:|---:|---:|---|"
    )
    for r in rows:
        if "failed" in r:
            print(f"| {r['mode']} | {r['plain']} | failed: {r['failed']} | | | | |")
            continue
        good = (
            r["minutes"] <= WANTED["minutes"]
            and r["times"] >= WANTED["times"]
            and (r["memory"] is None or r["memory"] <= WANTED["memory"])
        )
        print(
            f"| {r['mode']} | {r['plain']} | {r['minutes']:.1f} min (plain {r['plain_minutes']:.0f}) | × {r['times']:.1f} | {'–' if r['memory'] is None else format(r['memory'], '.0%')} | {r['warm_s']:.0f} s | {r['waits']}{', as wanted' if good else ''} |"
        )
    if a.json:
        write_json(
            dict(device=name, torch=torch.__version__, batch=s.batch, wanted=WANTED, stages=stages, summary=rows),
            a.json,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
