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

import gc
import statistics
from dataclasses import dataclass, replace
from functools import partial

import torch
from measuring import arguments, in_turn, keep, ratio, shown

from dasd_lab.backbone.towers import attention, build_clip
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.training.advice import kept_bytes, random_batch, random_method, state_bytes
from dasd_lab.training.parameters import tower_config
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.steps import open_stage, train_step

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
        self.method.train()
        self.optimizers, self.turn = open_stage(self.method, self.stage)
        self.point = p
        self.steps = -1

    def batch(self) -> dict:
        return random_batch(self.method, self.point.batch, self.point.length)

    def step(self) -> None:
        self.steps += 1
        batch = self.batch() | dict(language=CODES[self.steps % self.point.languages])
        train_step(self.method, self.stage, self.optimizers, batch, self.steps % 60, self.turn)

    @torch.inference_mode()
    def encode(self, plain: bool) -> None:
        m, batch = self.method, self.batch()
        if plain:
            m.backbone.source_from_ids(batch["ids"] % len(m.backbone.text.embedding.weight), batch["end_index"])
        else:
            m.features(batch["ids"], batch["end_index"], batch["language"], longest=self.point.length)

    def calls(self, label: str) -> dict:  # label and kind → call
        "A step, the plain tower and the method"
        encode, plain = partial(self.encode, False), partial(self.encode, True)
        return {(label, "step"): self.step, (label, "encode"): encode, (label, "plain"): plain}

    def memory(self) -> dict:  # bytes
        m, batch = self.method, self.batch()

        def loss():
            return m.training_features(batch)["target_features"].sum()

        kept = kept_bytes(loss, m)
        return state_bytes(m) | dict(batch=kept, trained=sum(x.numel() for x in m.parameters() if x.requires_grad))


@torch.inference_mode()
def pictures_per_s(repeats: int = 5, n: int = 16) -> float:
    "Decoded images that ViT-B/32 encodes in a second"
    tower = build_clip(tower_config(load_preset(PRESET)).model_cfg).visual.eval()
    x = torch.randn(n, 3, 224, 224)
    tower(x)
    with attention(x.device):
        return n / statistics.median(in_turn(dict(tower=partial(tower, x)), repeats)["tower"])


def axis(name: str, values, reference: Made, rounds: int) -> list[dict]:
    "All points of an axis and the reference, round by round"
    points = [replace(Point(), **{name: value}) for value in values]
    made = [reference if point == Point() else Made(point) for point in points]
    calls = reference.calls("reference")
    for value, m in zip(values, made):
        calls |= m.calls(value)
    with attention(torch.device("cpu")):
        took = in_turn(calls, rounds)
        rows = [dict(value=value, memory=m.memory()) for value, m in zip(values, made)]
    for row in rows:
        seconds = {kind: took[row["value"], kind] for kind in ("step", "encode", "plain")}
        row |= {kind: ratio(seconds[kind], took["reference", kind]) for kind in ("step", "encode")}
        row |= dict(of_plain=ratio(seconds["encode"], seconds["plain"]))
        row |= {f"{kind}_s": statistics.median(s) for kind, s in seconds.items()}
    return rows


def main() -> None:
    a = arguments(__doc__, 5, axis=dict(nargs="*", choices=list(AXES)))
    axes = SMALL if a.tiny else AXES
    reference = Made(Point())
    measured = {}
    for name in a.axis or axes:
        measured[name] = axis(name, axes[name], reference, a.rounds)
        gc.collect()
    at_reference = [row for name, rows in measured.items() for row in rows if row["value"] == getattr(Point(), name)]
    at_reference = at_reference or [row for rows in measured.values() for row in rows]
    times = {n: statistics.median(row[n] for row in at_reference) for n in ("step_s", "encode_s", "plain_s")}
    facts = dict(preset=PRESET, reference=vars(Point()) | times, axes=measured)
    facts |= dict(pictures_per_s=None if a.tiny else pictures_per_s())
    ratios = ("step", "encode", "of_plain")
    rows = [dict(axis=n, value=r["value"]) | {k: shown(r[k]) for k in ratios} for n in measured for r in measured[n]]
    keep(a, facts, rows)


if __name__ == "__main__":
    main()
