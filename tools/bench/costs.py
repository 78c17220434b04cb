"""Time and memory of a training step and a query, by languages, caption length, batch, bottleneck, vocabulary and tower

    python tools/bench/costs.py [--rounds 5] [--threads 1] [--json FILE] [--tiny]

Each axis varies one setting around a reference point: cross-lingual alignment in the paper's form, five languages,
16 captions of 18 tokens, bottleneck d_u 32, the text tower of CLIP ViT-B (12 blocks, width 512; the same for
ViT-B/32 and ViT-B/16), 20,000 token vectors. Every round times all points of an axis and the reference in
alternation, in CPU time; a figure is the median of the ratios of all rounds to the reference, with quartiles, so
other work on the machine changes little. Encoding turns captions into vectors without gradients, and is compared
with the plain tower at the same length. Memory is counted, not measured: weights, gradients and Adam's averages
from their shapes, and what autograd keeps of a batch between the two passes from the storages that it holds, each
once."""

import gc
from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from measuring import arguments, in_turn, keep, ratio, shown

from dasd_lab.backbone.towers import attention, build_clip
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.training.advice import kept_bytes, random_batch, random_method
from dasd_lab.training.parameters import memory_bytes, tower_config
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.steps import open_stage, train_step

PRESET = "dasd.cc300k_zero_shot_paper"
CODES = ("de", "fr", "cs", "zh", "ja", "es", "it", "ru", "pl", "nl", "pt", "tr")
TOWERS: dict[str, tuple[str, dict]] = {  # → preset, changes
    "built-in (4 blocks, width 128)": ("dasd.pictograms", {}),
    "ViT-B/32 and ViT-B/16 (12 blocks, width 512)": (PRESET, {"backbone.open_clip": "ViT-B-32-quickgelu"}),
    "ViT-L/14 (12 blocks, width 768)": (PRESET, {"backbone.open_clip": "ViT-L-14-quickgelu"}),
}


REFERENCE = dict(
    languages=5,
    length=18,
    batch=16,
    bottleneck=32,
    vocabulary=20_000,
    tower="ViT-B/32 and ViT-B/16 (12 blocks, width 512)",
)
AXES = dict(
    languages=(1, 2, 4, 8, 12),
    length=(8, 18, 32, 48, 77),
    batch=(4, 8, 16, 32, 64),
    bottleneck=(8, 16, 32, 64, 128),
    vocabulary=(5_000, 20_000, 60_000, 119_547),
    tower=tuple(TOWERS),
)


class Made:
    "A method in training; settings as in `REFERENCE`"

    def __init__(self, p: dict):
        name, of_tower = TOWERS[p["tower"]]
        vocabulary = "token_vectors.n_tokens" if name == PRESET else "vocab_size"
        changes = {"config.adapter.bottleneck": p["bottleneck"], vocabulary: p["vocabulary"]} | of_tower
        preset = vary(load_preset(name), changes)
        torch.manual_seed(0)
        self.method = random_method(preset, CODES[: p["languages"]], tower_config(preset))
        self.stage = replace(scaled_stages(load_preset(PRESET), 5)[0], batch_size=p["batch"])
        self.method.train()
        self.optimizers, self.turn = open_stage(self.method, self.stage)
        self.point = p
        self.steps = -1

    def batch(self) -> dict:
        return random_batch(self.method, self.point["batch"], self.point["length"])

    def step(self) -> None:
        self.steps += 1
        batch = self.batch() | dict(language=CODES[self.steps % self.point["languages"]])
        train_step(self.method, self.stage, self.optimizers, batch, self.steps % 60, self.turn)

    @torch.inference_mode()
    def encode(self, plain: bool) -> None:
        m, batch = self.method, self.batch()
        if plain:
            m.backbone.source_from_ids(batch["ids"] % len(m.backbone.text.embedding.weight), batch["end_index"])
        else:
            m.features(batch["ids"], batch["end_index"], batch["language"], longest=self.point["length"])

    def calls(self, label: str) -> dict:  # label and kind → call
        "A step, the plain tower and the method"
        return {(label, "step"): self.step} | {
            (label, k): partial(self.encode, k == "plain") for k in ("encode", "plain")
        }

    def memory(self) -> dict:  # bytes
        m, batch = self.method, self.batch()
        kept = kept_bytes(lambda: m.training_features(batch)["target_features"].sum(), m)  # noqa: PLW0108
        frozen, trained = (sum(x.numel() for x in m.parameters() if x.requires_grad is kind) for kind in (False, True))
        return memory_bytes(trained, trained, frozen) | dict(batch=kept, trained=trained)


@torch.inference_mode()
def pictures_per_s(repeats: int = 5, n: int = 16) -> float:
    "Decoded images that ViT-B/32 encodes in a second"
    tower = build_clip(tower_config(load_preset(PRESET)).model_cfg).visual.eval()
    x = torch.randn(n, 3, 224, 224)
    tower(x)
    with attention(x.device):
        return n / in_turn(dict(tower=partial(tower, x)), repeats)["tower"].median()


def axis(name: str, values, reference: Made, rounds: int) -> list[dict]:
    "All points of an axis and the reference, round by round"
    made = [reference if value == REFERENCE[name] else Made(REFERENCE | {name: value}) for value in values]
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
        row |= {f"{kind}_s": s.median() for kind, s in seconds.items()}
    return rows


def main() -> None:
    a = arguments(__doc__, 5)
    reference = Made(REFERENCE)
    measured = {}
    for name, values in AXES.items():
        measured[name] = axis(name, values[:2] if a.tiny else values, reference, a.rounds)
        gc.collect()
    rows = pd.DataFrame([dict(axis=name) | row for name, of_axis in measured.items() for row in of_axis])
    at_reference = rows[rows["value"] == rows["axis"].map(REFERENCE)]
    times = at_reference[["step_s", "encode_s", "plain_s"]].median().to_dict()
    facts = dict(
        preset=PRESET,
        reference=REFERENCE | times,
        axes=measured,
        pictures_per_s=None if a.tiny else pictures_per_s(),
    )
    ratios = ["step", "encode", "of_plain"]
    keep(a, facts, rows[["axis", "value"]].join(rows[ratios].map(shown)).to_dict("records"))


if __name__ == "__main__":
    main()
