"""Time and memory of a training step and a query, by languages, caption length, batch, bottleneck, vocabulary and tower

    python tools/bench/costs.py [--rounds 5] [--threads 1] [--json FILE] [--axis NAME …] [--tiny]

Each axis varies one setting around a reference point: cross-lingual alignment in the paper's form, five languages,
16 captions of 18 tokens, bottleneck d_u 32, the text tower of CLIP ViT-B (12 blocks, width 512; the same for
ViT-B/32 and ViT-B/16), 20,000 token vectors. Every round times all points of an axis and the reference in
alternation, in CPU time; a figure is the median of the ratios of all rounds to the reference, with quartiles, so
other work on the machine changes little. Encoding turns captions into vectors without gradients, and is compared
with the plain tower at the same length. Memory is counted, not measured: weights, gradients and Adam's averages
from their shapes, and what autograd keeps of a batch between the two passes from the storages that it holds, each
once."""

import argparse
import gc
import platform
import statistics
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from dasd_lab.backbone.towers import attention, build_clip
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import write_json
from dasd_lab.training.advice import kept_bytes, random_batch, random_method, state_bytes
from dasd_lab.training.optimizers import make_optimizers
from dasd_lab.training.parameters import tower_config
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.stages import set_trainable
from dasd_lab.training.steps import CriticTurn, train_step

PRESET = "dasd.cc300k_zero_shot_paper"
CODES = ("de", "fr", "cs", "zh", "ja", "es", "it", "ru", "pl", "nl", "pt", "tr")
TOWERS = {
    "built-in (4 blocks, width 128)": None,
    "ViT-B/32 and ViT-B/16 (12 blocks, width 512)": "ViT-B-32-quickgelu",
    "ViT-L/14 (12 blocks, width 768)": "ViT-L-14-quickgelu",
}


@dataclass(frozen=True)
class Point:
    "A combination of settings"

    languages: int = 5
    length: int = 18
    batch: int = 16
    bottleneck: int = 32
    vocabulary: int = 20_000
    tower: str = "ViT-B/32 and ViT-B/16 (12 blocks, width 512)"


AXES = dict(
    languages=(1, 2, 4, 8, 12),
    length=(8, 18, 32, 48, 77),
    batch=(4, 8, 16, 32, 64),
    bottleneck=(8, 16, 32, 64, 128),
    vocabulary=(5_000, 20_000, 60_000, 119_547),
    tower=tuple(TOWERS),
)
SMALL = dict(
    languages=(1, 2), length=(8, 18), batch=(4, 8), bottleneck=(8, 16), vocabulary=(100, 200), tower=tuple(TOWERS)[:1]
)


class Made:
    "A method at a point, in training"

    def __init__(self, p: Point):
        preset = load_preset("dasd.pictograms" if TOWERS[p.tower] is None else PRESET)
        changes = {"config.adapter.bottleneck": p.bottleneck}
        if TOWERS[p.tower]:
            changes |= {"backbone.open_clip": TOWERS[p.tower], "token_vectors.n_tokens": p.vocabulary}
        else:
            changes["vocab_size"] = p.vocabulary
        preset = vary(preset, changes)
        torch.manual_seed(0)
        self.method = random_method(preset, CODES[: p.languages], tower_config(preset))
        self.stage = replace(scaled_stages(load_preset(PRESET), 5)[0], batch_size=p.batch)
        set_trainable(self.method, (*self.stage.trains, "critic"))
        self.method.train()
        self.optimizers = make_optimizers(self.method, self.stage)
        self.turn = CriticTurn(self.method.critic, self.stage.critic)
        self.point = p

    def step(self, i: int) -> None:
        p = self.point
        batch = random_batch(self.method, p.batch, p.length)
        train_step(
            self.method, self.stage, self.optimizers, batch | dict(language=CODES[i % p.languages]), i, self.turn
        )

    @torch.inference_mode()
    def encode(self, plain: bool) -> None:
        p = self.point
        m = self.method
        batch = random_batch(m, p.batch, p.length)
        if plain:
            m.backbone.source_from_ids(batch["ids"] % len(m.backbone.text.embedding.weight), batch["end_index"])
        else:
            m.features(batch["ids"], batch["end_index"], batch["language"], longest=p.length)

    def times(self, i: int) -> tuple[float, float, float]:
        "Seconds of a step, of the plain tower and of the method"
        step = timed(partial(self.step, i))
        plain = timed(partial(self.encode, True))
        return step, plain, timed(partial(self.encode, False))

    def memory(self) -> dict:  # bytes
        p = self.point
        m = self.method
        batch = random_batch(m, p.batch, p.length)

        def loss():
            return m.training_features(batch)["target_features"].sum()

        return state_bytes(m) | dict(
            batch=kept_bytes(loss, m),
            trained=sum(x.numel() for x in m.parameters() if x.requires_grad),
        )


def timed(call) -> float:  # seconds of this process's CPU time
    began = time.process_time()
    call()
    return time.process_time() - began


@torch.inference_mode()
def pictures_per_s(repeats: int = 5, n: int = 16) -> float:
    "Decoded images that ViT-B/32 encodes in a second"
    tower = build_clip(tower_config(load_preset(PRESET)).model_cfg).visual.eval()
    x = torch.randn(n, 3, 224, 224)
    tower(x)
    with attention(x.device):
        return n / statistics.median(timed(partial(tower, x)) for _ in range(repeats))


def spread(values) -> dict:
    low, middle, high = statistics.quantiles(values, n=4)
    return dict(times=middle, quartiles=[low, high])


def axis(name: str, values, reference: Made, rounds: int) -> list[dict]:
    "All points of an axis and the reference, round by round"
    points = [replace(Point(), **{name: value}) for value in values]
    made = [reference if point == Point() else Made(point) for point in points]
    rows = []
    with attention(torch.device("cpu")):
        for i in range(-1, rounds):  # the first round is a warm-up
            row = [m.times(i % 60) for m in (reference, *made)]
            if i >= 0:
                rows.append(row)
        memory = [m.memory() for m in made]
    s = np.array(rows)  # [rounds, 1 + points, (step, plain tower, DASD)]
    return [
        dict(
            value=v,
            step=spread(s[:, j, 0] / s[:, 0, 0]),
            encode=spread(s[:, j, 2] / s[:, 0, 2]),
            of_plain=spread(s[:, j, 2] / s[:, j, 1]),
            step_s=float(np.median(s[:, j, 0])),
            encode_s=float(np.median(s[:, j, 2])),
            plain_s=float(np.median(s[:, j, 1])),
            memory=memory[j - 1],
        )
        for j, v in enumerate(values, 1)
    ]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--axis", nargs="*", choices=list(AXES), default=list(AXES))
    p.add_argument("--tiny", action="store_true", help="few small points: does it run?")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    axes = SMALL if a.tiny else AXES
    reference = Made(Point())
    measured = {}
    for name in a.axis:
        measured[name] = axis(name, axes[name], reference, a.rounds)
        gc.collect()
    facts = dict(
        machine=platform.machine(),
        threads=a.threads,
        torch=torch.__version__,
        rounds=a.rounds,
        preset=PRESET,
        pictures_per_s=None if a.tiny else pictures_per_s(),
        reference=vars(Point()) | reference_times(measured),
    )
    print_report(facts, measured)
    if a.json:
        write_json(facts | dict(axes=measured), a.json)


def reference_times(measured: dict[str, list[dict]]) -> dict:
    "Median seconds of the rows at the reference point"
    rows = [row for axis_rows in measured.values() for row in axis_rows]
    at_reference = []
    for name, axis_rows in measured.items():
        at_reference += [row for row in axis_rows if row["value"] == getattr(Point(), name)]
    names = ("step_s", "encode_s", "plain_s")
    return {n: statistics.median(row[n] for row in at_reference or rows) for n in names}


def print_report(facts: dict, measured: dict[str, list[dict]]) -> None:
    print(
        f"{facts['threads']} thread(s), torch {torch.__version__}, {platform.machine()}; medians of {facts['rounds']} "
        f"rounds [quartiles]; the reference takes {1e3 * facts['reference']['step_s']:.0f} ms a step\n"
    )
    print("| | | step | encoding | of the plain tower | kept of a batch | weights, gradients, averages |")
    print("|---|---|---:|---:|---:|---:|---:|")

    def ratio(s):
        return f"× {s['times']:.2f} [{s['quartiles'][0]:.2f}–{s['quartiles'][1]:.2f}]"

    for name, rows in measured.items():
        for row in rows:
            memory = row["memory"]
            state = memory["weights"] + memory["gradients"] + memory["optimizer"]
            print(
                f"| {name} | {row['value']} | {ratio(row['step'])} | {ratio(row['encode'])} | {ratio(row['of_plain'])} "
                f"| {memory['batch'] / 1e6:,.0f} MB | {state / 1e6:,.0f} MB |"
            )


if __name__ == "__main__":
    main()
