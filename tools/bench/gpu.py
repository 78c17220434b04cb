"""The paper's five-language zero-shot schedule on a GPU: duration and memory, compared with the plain step

    python tools/bench/gpu.py [--steps 500] [--rounds 5] [--workers 4] [--json FILE] [--modes float32;bf16;…]

45,000 steps of cross-lingual alignment and 6,000 of cross-modal alignment, batches of 128 captions of real length,
ViT-B's text tower (12 blocks, width 512), features from a store, random weights, since times do not depend on them.
The plain step (`plain_step.py`) runs on the same GPU in the same run, in float32 and, as the authors' settings have
half precision, in bfloat16; its images are already decoded on the GPU.

Each mode of the lab's step is warmed up with every length and language, then timed in rounds, with a few plain
steps before each. Batches come from `CaptionBatches` through pinned memory and worker processes, and the figures of
every tenth step are read as `fit` reads them. A pass under `torch.cuda.set_sync_debug_mode('error')` shows that no
step waits for the device. Peak memory is that of each side alone: weights, gradients, averages, activations; of
recorded steps it is read while they are recorded, since replaying allocates nothing.
Targets: the schedule in 5 minutes, 10 times the speed of the plain step, half its memory. Modes are measured one after
the other and printed and stored as they come; `--modes "bf16, recorded"` measures one alone.

Without a GPU it exits with code 2. `--device cpu --tiny` runs everything except CUDA on small sizes, without
meaningful times. Results of a GPU are stored with --json data/results/train_gpu.json."""

import argparse
import gc
import statistics
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from measuring import ratio
from plain_step import CONTEXT, PlainStep
from train_step import LANGUAGES, TINY, caption_lengths, compared_preset, methods

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import attention, build_clip
from dasd_lab.base.storage import write_json
from dasd_lab.commands.arguments import text_table
from dasd_lab.training.graphs import Recorder
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
    "bf16, recorded": dict(precision="bf16", graphs=True, length_step=8),
    "float32, recorded": dict(graphs=True, length_step=8),
}
WANTED = dict(minutes=5.0, times=10.0, memory=0.5)


@dataclass(frozen=True)
class Sizes:
    "Sizes of the measurement"

    batch: int = 128
    captions: int = 10_000  # of each language
    used: int = 20_000  # pieces
    pixels: int = 224  # a side
    steps: int = 500  # in all rounds of a mode
    rounds: int = 5
    plain_steps: int = 10  # in a round
    warm_steps: int = 3  # of a language and length; a recorder records the second


class PlainOnDevice(PlainStep):
    "The plain step with its own image tower, in float32 or with autocast"

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
    "Captions of real length in every language, with features of their English captions and images"
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


def wait_for_faults(rows: list[dict]) -> bool:
    "Read figures from the device, as `fit` does every ten steps"
    faults = [bool(row["fault"]) for row in rows]
    return any(faults)


class Ours:
    "The lab's step in one mode and stage"

    def __init__(self, method, stage, data, runtime: Runtime):
        self.method = method.to(Worker(runtime).device)
        self.stage = stage
        self.data = data
        self.worker = Worker(runtime)
        set_trainable(method, (*stage.trains, "critic"))
        method.train()
        self.optimizers = make_optimizers(method, stage)
        self.turn = CriticTurn(method.critic, stage.critic)
        self.recorder = None
        if runtime.graphs and self.worker.device.type == "cuda":
            self.recorder = Recorder([*self.optimizers, self.turn.optimizer], self.worker.device)
        self.ahead = batches_ahead(data, 0, 10**9, self.worker)
        self.step = 0

    def one(self, batch):
        row = train_step(
            self.method,
            self.stage,
            self.optimizers,
            batch,
            self.step,
            self.turn,
            self.worker,
            recorder=self.recorder,
        )
        self.step += 1
        return row

    def run(self, n: int) -> None:
        rows = []
        for _ in range(n):
            rows.append(self.one(next(self.ahead)))
            if len(rows) == 10:
                wait_for_faults(rows)
                rows.clear()

    def warm(self, each: int) -> None:
        "Steps of every language and length, so nothing is compiled while it is timed"
        step = self.worker.runtime.length_step
        longest = max(len(r) for rows in self.data.rows.values() for r in rows)
        for language, n_tokens in product(LANGUAGES, range(max(step, 6), longest + step, max(step, 8))):
            length = min(-(-n_tokens // step) * step, CONTEXT)
            ids = torch.randint(4, 50, (self.data.batch_size, length))
            for _ in range(each):
                self.one(self.batch(language, ids))
        self.run(10)

    def batch(self, language: str, ids: torch.Tensor) -> dict:
        n, length = ids.shape
        E = self.method.backbone.embed_dim
        return dict(
            language=language,
            ids=ids,
            end_index=torch.full((n,), length - 1),
            longest=length,
            source_features=torch.randn(n, E),
            image_features=torch.randn(n, E),
        )

    def never_waits(self, n: int = 5) -> str:
        "Steps on batches in pinned memory, in which waiting for the device is an error"
        if self.worker.device.type != "cuda":
            return "not measured: no GPU"
        batches = [next(self.ahead) for _ in range(n)]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches:
                self.one(batch)
            return "no step waits"
        except RuntimeError as e:
            return f"a step waits: {str(e).splitlines()[0]}"
        finally:
            torch.cuda.set_sync_debug_mode("default")


def plain_batches(data, backbone, cross_modal: bool, s: Sizes, device, rng, n: int = 4) -> list[dict]:
    "The same batches with English ids, and with images in the cross-modal stage"
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


def run_plain(plain, batches: list[dict], n: int) -> None:
    for i in range(n):
        plain(batches[i % len(batches)], i)


def one_mode(name: str, ours: Ours, plains: dict, batches, s: Sizes, clock: Clock, resting: int | None) -> dict:
    "A mode and the plain steps, in rounds"
    began = time.perf_counter()
    peak = clock.peak(partial(ours.warm, s.warm_steps))
    warm = ours.step
    warm_s = time.perf_counter() - began
    waits = ours.never_waits()
    steps = max(1, -(-s.steps // s.rounds))
    rounds = []  # seconds of a step: each plain step, ours
    for _ in range(s.rounds):
        seconds = []
        for plain in plains.values():
            seconds.append(clock.seconds(partial(run_plain, plain, batches, s.plain_steps)) / s.plain_steps)
        seconds.append(clock.seconds(partial(ours.run, steps)) / steps)
        rounds.append(seconds)
    beside = {}
    for i, precision in enumerate(plains):
        found = ratio([r[i] for r in rounds], [r[-1] for r in rounds])
        beside[precision] = dict(plain_s=statistics.median(r[i] for r in rounds)) | found
    return dict(
        mode=name,
        step_s=statistics.median(r[-1] for r in rounds),
        steps=steps * s.rounds,
        beside=beside,
        peak_bytes=None if peak is None else peak - resting,
        warm_steps=warm,
        warm_s=warm_s,
        waits=waits,
    )


def failure(e: Exception) -> str:
    lines = str(e).splitlines() or [""]
    return f"{type(e).__name__}: {lines[0][:200]}"


class StageMeasurement:
    "Every mode of one stage and the plain step in both precisions"

    def __init__(self, preset, cfg, stage, s: Sizes, device, workers: int):
        self.preset = preset
        self.cfg = cfg
        self.stage = stage
        self.s = s
        self.device = device
        self.workers = workers
        self.clock = Clock(device)
        self.data = data_for(preset, cfg.model_cfg["embed_dim"], s, stage, np.random.default_rng(0))
        self.plains = {}
        self.peaks = {}
        self.rows: list[dict] = []  # of modes

    def held(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self.clock.cuda else 0

    def measure_plain(self) -> None:
        cross = self.stage.name == "cross_modal_alignment"
        before = self.held()
        tower = build_clip(self.cfg.model_cfg).visual.to(self.device).requires_grad_(False).eval() if cross else None
        of_tower = self.held() - before
        for precision in ("float32", "bf16"):
            self.batches = None  # those of the other precision
            other = self.held() - of_tower  # memory that is not of this plain step
            whole = methods(self.preset, self.cfg, self.s.used)[0].to(self.device)
            plain = PlainOnDevice(whole, self.stage.learning_rate, tower, precision == "bf16")
            self.plains[precision] = plain
            rng = np.random.default_rng(0)
            self.batches = plain_batches(self.data, whole.backbone, cross, self.s, self.device, rng)
            run_plain(plain, self.batches, 3)
            peak = self.clock.peak(partial(run_plain, plain, self.batches, len(self.batches)))
            self.peaks[precision] = None if peak is None else peak - other

    def measure_mode(self, name: str) -> None:
        "Add the row of a mode, or why it failed"
        runtime = Runtime(device=str(self.device), workers=self.workers, **MODES[name])
        small = methods(self.preset, self.cfg, self.s.used)[1]
        resting = self.held()
        try:
            with ExitStack() as stack:
                ours = Ours(small, self.stage, self.data, runtime)
                stack.enter_context(compiled(small, runtime.compiled))
                row = one_mode(name, ours, self.plains, self.batches, self.s, self.clock, resting)
        except Exception as e:
            row = dict(mode=name, failed=failure(e))
        self.rows.append(row)

    def report(self) -> dict:
        return dict(
            stage=self.stage.name, schedule_steps=self.stage.steps, plain_peak_bytes=self.peaks, modes=self.rows
        )


def schedule_row(stages: list[dict], rows: tuple[dict, ...], precision: str) -> dict:
    "The whole schedule in one mode, compared with the plain step in one precision"
    failures = [r["failed"] for r in rows if "failed" in r]
    if failures:
        return dict(mode=rows[0]["mode"], plain=precision, failed=failures[0])
    ours = sum(s["schedule_steps"] * r["step_s"] for s, r in zip(stages, rows))
    plain = sum(s["schedule_steps"] * r["beside"][precision]["plain_s"] for s, r in zip(stages, rows))
    memory = None
    if rows[0]["peak_bytes"] is not None:
        memory = max(r["peak_bytes"] / s["plain_peak_bytes"][precision] for s, r in zip(stages, rows))
    return dict(
        mode=rows[0]["mode"],
        plain=precision,
        minutes=ours / 60,
        plain_minutes=plain / 60,
        times=plain / ours,
        memory=memory,
        waits="; ".join(dict.fromkeys(r["waits"] for r in rows)),
        warm_s=sum(r["warm_s"] for r in rows),
    )


def summary(stages: list[dict]) -> list[dict]:
    "The whole schedule in each mode, compared with the plain step in each precision"
    rows = []
    for precision in ("float32", "bf16"):
        for modes in zip(*(s["modes"] for s in stages)):
            rows.append(schedule_row(stages, modes, precision))
    return rows


def free_memory(device) -> None:
    "Let go of what the last mode held"
    gc.collect()
    torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


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
            "torch finds no GPU. On a machine with a GPU: python tools/bench/gpu.py --json data/results/train_gpu.json",
            file=sys.stderr,
        )
        return 2
    device = torch.device(a.device)
    preset = compared_preset()
    if a.tiny:
        preset = preset | dict(token_vectors=dict(weights="none", n_tokens=400))
        s, cfg = Sizes(4, 60, 150, 16, 4, 2, 1, 1), TINY
    else:
        s, cfg = Sizes(steps=a.steps, rounds=a.rounds), tower_config(preset)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    about = dict(device=name, torch=torch.__version__, batch=s.batch, wanted=WANTED)
    measurements = []
    for stage in scaled_stages(preset, len(LANGUAGES)):
        measurements.append(StageMeasurement(preset, cfg, replace(stage, batch_size=s.batch), s, device, a.workers))
        measurements[-1].measure_plain()
        say(f"the plain step of {stage.name} is ready")
    for mode in [m.strip() for m in a.modes.split(";")]:
        for measurement in measurements:
            measurement.measure_mode(mode)
            free_memory(device)
            say(f"{mode}, {measurement.stage.name}: {measurement.rows[-1]}")
        stages = [measurement.report() for measurement in measurements]
        rows = summary(stages)
        print(text_table([row for row in rows if row["mode"] == mode]), flush=True)
        if a.json:  # after every mode, so that what was measured is kept if the time is over
            write_json(about | dict(stages=stages, summary=rows), a.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
