"""The paper's five-language zero-shot schedule on a GPU: duration and memory, compared with the plain step

    python tools/bench/gpu.py [--steps 100] [--rounds 5] [--workers 4] [--json FILE] [--modes float32;bf16;…]

45,000 steps of cross-lingual alignment and 6,000 of cross-modal alignment, batches of 128 captions of real length,
ViT-B's text tower (12 blocks, width 512), features from a store, random weights, since times do not depend on them.
The plain step (`plain_step.py`) runs on the same GPU in the same run, in float32 and, as the authors' settings have
half precision, in bfloat16; its images are already decoded on the GPU.

Each mode of the lab's step is warmed up with every length and language, then timed in turn with the plain steps.
Batches come from `CaptionBatches` through pinned memory and worker processes, and the figures of every tenth step are
read as `fit` reads them. A pass under `torch.cuda.set_sync_debug_mode('error')` shows that no step waits for the
device. Peak memory is that of each side alone: weights, gradients, averages, activations; of recorded steps it is read
while they are recorded, since replaying allocates nothing.
Targets: the schedule in 5 minutes, 10 times the speed of the plain step, half its memory. `--modes "bf16, recorded"`
measures one mode alone.

Without a GPU it stops. `--device cpu --tiny` runs everything except CUDA on small sizes, without
meaningful times. Results of a GPU are stored with --json data/results/train_gpu.json."""

import gc
import sys
import time
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import torch
from measuring import arguments, in_turn, keep, ratio
from plain_step import CONTEXT, PlainStep
from train_step import LANGUAGES, TINY, caption_lengths, compared_preset, methods

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import build_clip
from dasd_lab.training.graphs import Recorder
from dasd_lab.training.parameters import tower_config
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.runtime import Runtime, Worker, batches_ahead, compiled
from dasd_lab.training.stages import CaptionBatches
from dasd_lab.training.steps import open_stage, train_step

MODES = {
    "float32": {},
    "bf16": dict(precision="bf16"),
    "bf16, few shapes": dict(precision="bf16", length_step=8),
    "bf16, compiled": dict(precision="bf16", compiled="default"),
    "bf16, recorded": dict(precision="bf16", graphs=True, length_step=8),
    "float32, recorded": dict(graphs=True, length_step=8),
}
PRECISIONS = "float32", "bf16"  # of the plain step


SIZES = dict(
    batch=128,
    captions=10_000,  # of each language
    used=20_000,  # pieces
    pixels=224,  # a side
    plain_steps=10,  # in a round
    warm_steps=3,  # of a language and length; a recorder records the second
)
SMALL = dict(batch=4, captions=60, used=150, pixels=16, plain_steps=1, warm_steps=1)


class Ours:
    "The lab's step in one mode and stage"

    def __init__(self, method, stage, data, runtime: Runtime):
        self.worker = Worker(runtime)
        self.resting = held(self.worker.device)  # memory that others hold
        self.cuda = self.worker.device.type == "cuda"
        self.method = method.to(self.worker.device).train()
        self.stage = stage
        self.data = data
        self.optimizers, self.turn = open_stage(self.method, stage)
        updates = *self.optimizers, self.turn.optimizer
        self.recorder = Recorder([*updates], self.worker.device) if runtime.graphs and self.cuda else None
        self.ahead = batches_ahead(data, 0, 10**9, self.worker)
        self.steps = 0

    def one(self, batch) -> dict:
        given = self.method, self.stage, self.optimizers, batch, self.steps, self.turn, self.worker
        self.steps += 1
        return train_step(*given, recorder=self.recorder)

    def run(self, n: int) -> None:
        "Steps whose figures are read from the device every ten, as `fit` does"
        for done in range(0, n, 10):
            rows = [self.one(next(self.ahead)) for _ in range(min(10, n - done))]
            any(bool(row["fault"]) for row in rows)

    def warm(self, each: int) -> None:
        "Steps of every language and length, so nothing is compiled while it is timed"
        step = self.worker.runtime.length_step
        longest = max(len(r) for rows in self.data.rows.values() for r in rows)
        n, E = self.data.batch_size, self.method.backbone.embed_dim
        for language, n_tokens in product(LANGUAGES, range(max(step, 6), longest + step, max(step, 8))):
            length = min(-(-n_tokens // step) * step, CONTEXT)
            for _ in range(each):
                ids, end = torch.randint(4, 50, (n, length)), torch.full((n,), length - 1)
                features = dict(source_features=torch.randn(n, E), image_features=torch.randn(n, E))
                self.one(dict(language=language, ids=ids, end_index=end, longest=length, **features))
        self.run(10)

    def never_waits(self, n: int = 5) -> str:
        "Steps on batches in pinned memory, in which waiting for the device is an error that ends the benchmark"
        if not self.cuda:
            return "not measured: no GPU"
        batches = [next(self.ahead) for _ in range(n)]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        for batch in batches:
            self.one(batch)
        torch.cuda.set_sync_debug_mode("default")
        return "no step waits"


def clock() -> float:
    "Seconds, once the device has finished"
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def held(device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0  # bytes


def peak_above(resting: int, device, call) -> int | None:  # bytes; None: not a GPU
    "Memory that a call needs above what others hold"
    if device.type != "cuda":
        return call()
    torch.cuda.reset_peak_memory_stats(device)
    call()
    return torch.cuda.max_memory_allocated(device) - resting


def data_for(embed: int, s: SimpleNamespace, stage) -> CaptionBatches:
    "Captions of real length in every language, with features of their English captions and images"
    rng = np.random.default_rng(0)
    rows = {
        language: [[2, *rng.integers(4, s.used, n - 2).tolist(), 3] for n in caption_lengths(rng, s.captions)]
        for language in LANGUAGES
    }
    own = {language: range(s.captions) for language in LANGUAGES}
    pad = train_tokenizer(["a b c"] * 3, 40).pad
    features = torch.from_numpy(rng.standard_normal((s.captions, embed), np.float32))
    images = torch.roll(features, 1, 0)
    return CaptionBatches(rows, pad, own, features, own, images, s.batch, bucket=stage.length_bucket)


def plain_batches(data, backbone, cross_modal: bool, s: SimpleNamespace, device) -> list[dict]:
    "The same batches with English ids, and with images in the cross-modal stage"
    rng = np.random.default_rng(0)
    images = torch.randn(s.batch, 3, s.pixels, s.pixels, device=device)  # of all batches
    found = []
    for i in range(s.plain_steps):
        b = {name: data(i)[name] for name in ("ids", "end_index")}
        b["source_ids"] = torch.from_numpy(rng.integers(4, len(backbone.text.embedding.weight), (s.batch, CONTEXT)))
        b["source_end"] = torch.from_numpy(rng.integers(6, 40, s.batch))
        b = {name: rows.to(device) for name, rows in b.items()} | (dict(pixels=images) if cross_modal else {})
        found.append(b | dict(language=data(i)["language"]))
    return found


def steps_on(plain: PlainStep, batches: list[dict]) -> None:
    for i, batch in enumerate(batches):
        plain(batch, i)


def one_mode(name: str, ours: Ours, plains: dict, s: SimpleNamespace, rounds: int) -> dict:
    "A mode and the plain steps, in turn"
    device = ours.worker.device
    began = clock()
    peak = peak_above(ours.resting, device, partial(ours.warm, s.warm_steps))
    row = dict(mode=name, peak_bytes=peak, warm_steps=ours.steps, warm_s=clock() - began, waits=ours.never_waits())
    took = in_turn(plains | dict(ours=partial(ours.run, s.steps)), rounds, clock)
    own, plain = took["ours"] / s.steps, took[list(plains)] / s.plain_steps
    beside = {p: dict(plain_s=plain[p].median()) | ratio(plain[p], own) for p in plains}
    return row | dict(step_s=own.median(), steps=s.steps * rounds, beside=beside)


def measure_stage(preset: dict, cfg, stage, s: SimpleNamespace, a) -> dict:
    "The modes of one stage and the plain step in both precisions"
    device = torch.device(a.device)
    data = data_for(cfg.model_cfg["embed_dim"], s, stage)
    cross = stage.name == "cross_modal_alignment"
    plains, peaks, rows = {}, {}, []
    for precision in PRECISIONS:
        others = held(device)
        method = methods(preset, cfg, s.used)[0]
        if cross:
            method.backbone.clip.visual = build_clip(cfg.model_cfg).visual.eval()  # of its real size
        plain = PlainStep(method.to(device), stage.learning_rate, precision)
        batches = plain_batches(data, method.backbone, cross, s, device)
        plains[precision] = partial(steps_on, plain, batches)
        plains[precision]()
        peaks[precision] = peak_above(others, device, plains[precision])
    for name in a.modes.split(";"):
        method = methods(preset, cfg, s.used)[1]
        ours = Ours(method, stage, data, Runtime(device=a.device, workers=a.workers, **MODES[name]))
        with compiled(method, ours.worker.runtime.compiled):
            rows.append(one_mode(name, ours, plains, s, a.rounds))
        print(f"{stage.name}: {rows[-1]}", file=sys.stderr, flush=True)
        del ours, method
        gc.collect()
        torch._dynamo.reset()
    return dict(stage=stage.name, schedule_steps=stage.steps, plain_peak_bytes=peaks, modes=rows)


def schedule_row(stages: list[dict], rows: tuple[dict, ...], precision: str) -> dict:
    "The whole schedule in one mode, compared with the plain step in one precision"
    ours = sum(s["schedule_steps"] * r["step_s"] for s, r in zip(stages, rows)) / 60
    plain = sum(s["schedule_steps"] * r["beside"][precision]["plain_s"] for s, r in zip(stages, rows)) / 60
    peaks = [(r["peak_bytes"], s["plain_peak_bytes"][precision]) for s, r in zip(stages, rows)]
    memory = max(own / other for own, other in peaks) if peaks[0][0] else None  # without a GPU
    row = dict(mode=rows[0]["mode"], plain=precision, minutes=ours, plain_minutes=plain, times=plain / ours)
    waits = "; ".join(dict.fromkeys(r["waits"] for r in rows))
    return row | dict(memory=memory, waits=waits, warm_s=sum(r["warm_s"] for r in rows))


def main() -> None:
    a = arguments(
        __doc__,
        5,
        steps=dict(type=int, default=100),
        workers=dict(type=int, default=4),
        modes=dict(default=";".join(MODES), help="separated by ;"),
        device=dict(default="cuda"),
    )
    if a.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("no GPU; on a machine with one: python tools/bench/gpu.py --json data/results/train_gpu.json")
    preset = compared_preset()
    s, cfg = SimpleNamespace(**SIZES, steps=a.steps), tower_config(preset)
    if a.tiny:
        preset |= dict(token_vectors=dict(weights="none", n_tokens=400, trains=True))
        s, cfg = SimpleNamespace(**SMALL, steps=2), TINY
    schedule = [replace(stage, batch_size=s.batch) for stage in scaled_stages(preset, len(LANGUAGES))]
    stages = [measure_stage(preset, cfg, stage, s, a) for stage in schedule]
    modes = list(zip(*(stage["modes"] for stage in stages)))
    rows = [schedule_row(stages, of_mode, precision) for precision in PRECISIONS for of_mode in modes]
    name = torch.cuda.get_device_name(a.device) if a.device.startswith("cuda") else a.device
    keep(a, dict(device=name, batch=s.batch, stages=stages, summary=rows), rows)


if __name__ == "__main__":
    main()
