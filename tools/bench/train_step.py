"""The cost of a training step compared with a plain step like the authors' loop, saving by saving

    python tools/bench/train_step.py [--rounds 5] [--threads 1] [--batch 16] [--json FILE] [--tiny]

Cross-lingual alignment at the paper's size on a CPU: a text tower of 12 blocks and width 512, mBERT's 119,547 token
vectors, batches of 16 captions of real length. `plain_step.py` describes the plain step. The lab's savings are
enabled one after the other; all but the last are exact, that is, the same numbers up to the order of sums:

    store       the English features come from a feature store
    frozen      no gradients of frozen parameters
    vocabulary  only the token vectors that the corpora use (20,000 of them)
    cut         rows end with the longest caption of the batch
    shared      the first block of the two branches once
    lab's step  `train_step`: one fused Adam, the last block only where the tower is read
    length      batches of captions of similar length

First every row trains from the same weights on the same batches as the plain step, and what it has learnt is
compared. Then all rows are timed in alternation, so other work on the machine affects all of them; a ratio is the
median of the ratios of all rounds to the plain step, with quartiles.
Batches of similar length are drawn evenly from short to long."""

import copy
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from measuring import arguments, in_turn, keep, ratio
from plain_step import CONTEXT, PlainStep

from dasd_lab.backbone.towers import attention
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.training.advice import random_method
from dasd_lab.training.parameters import TowerConfig, tower_config
from dasd_lab.training.profiling import step_profile
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.stages import length_batches, set_trainable
from dasd_lab.training.steps import open_stage, train_step

PRESET = "dasd.cc300k_zero_shot_paper"
LANGUAGES = ("de", "fr", "cs", "zh", "ja")
BUCKET = 32
TINY = TowerConfig(
    "open_clip",
    dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
        text_cfg=dict(context_length=77, vocab_size=200, width=32, heads=2, layers=3),
    ),
)


SAVINGS = "plain", "store", "frozen", "vocabulary", "cut", "shared", "lab", "length"
Row = tuple[str, ...]  # savings of a row of the table; the last one is its name


def ladder() -> list[Row]:
    "One saving after the other"
    return [SAVINGS[: i + 1] for i in range(len(SAVINGS))]


class Saved(PlainStep):
    "The plain step with some of the savings; with `lab` the step of the lab"

    def __init__(self, method, row: Row, stage):
        self.row = row
        self.stage = stage
        self.kept = {}
        super().__init__(method, stage.learning_rate)
        if "lab" in row:
            self.optimizers, self.turn = open_stage(method, stage)

    def open(self) -> None:
        super().open()
        if "frozen" in self.row:
            set_trainable(self.method, (*self.stage.trains, "critic"))
        for n, p in self.method.named_parameters():
            p.grad = self.kept.get(n)

    def leave(self) -> None:
        "Keep the gradients that the step leaves, for the next one"
        self.kept = {
            n: p.grad for n, p in self.method.named_parameters() if n.startswith("backbone.") and p.grad is not None
        }

    def ids(self, batch):
        return batch["ids"] if "cut" in self.row else super().ids(batch)

    def source(self, batch):
        return batch["source_features"] if "store" in self.row else super().source(batch)

    def split(self, apart, end, language):
        b = self.method.backbone
        if "shared" in self.row:
            return self.method.disentangler(b, b.start(apart, end), end, language)
        return super().split(apart, end, language)

    def __call__(self, batch, step):
        if "lab" not in self.row:
            return super().__call__(batch, step)
        batch = {k: v for k, v in batch.items() if k not in ("source_ids", "source_end")}
        loss = train_step(self.method, self.stage, self.optimizers, batch, step, self.turn)["loss"]
        for o in self.optimizers:
            o.zero_grad()
        return loss


def batch_of(lengths, backbone, used: int, language: str, rng) -> dict:
    "A batch of random tokens, with the English captions both as ids and as features"
    n = len(lengths)
    V = len(backbone.text.embedding.weight)
    ids = torch.zeros(n, int(lengths.max()), dtype=torch.long)
    for row, length in zip(ids, lengths):
        row[:length] = torch.from_numpy(rng.integers(4, used, length))
    source_ids = torch.from_numpy(rng.integers(4, V, (n, CONTEXT)))
    source_end = torch.from_numpy(np.clip(lengths - 2, 4, CONTEXT - 1))
    with torch.no_grad(), attention(backbone.device):
        features = backbone.source_from_ids(source_ids, source_end)
    return dict(
        language=language,
        ids=ids,
        end_index=torch.from_numpy(lengths - 1),
        source_ids=source_ids,
        source_end=source_end,
        source_features=features,
        longest=int(lengths.max()),
    )


def both_batches(
    backbone, n: int, size: int, used: int, rng
) -> list[tuple[dict, dict]]:  # (as they come, of similar length)
    "Batches of one bucket, evenly from short to long in random order, and random ones"
    # tokens with special ones; slightly longer than those of Multi30K in German, French and Czech
    lengths = np.clip(np.round(rng.gamma(10, 1.8, size * BUCKET)), 6, 57).astype(int)
    sorted_ = length_batches(lengths, size, rng, BUCKET)
    even = np.argsort([lengths[b].max() for b in sorted_])
    chosen = rng.permutation(even[((np.arange(n) + 0.5) * BUCKET / n).astype(int)])

    def make(rows, i):
        return batch_of(lengths[rows], backbone, used, LANGUAGES[i % len(LANGUAGES)], rng)

    return [(make(rng.permutation(len(lengths))[:size], i), make(sorted_[c], i)) for i, c in enumerate(chosen)]


def compared_preset() -> dict:
    "The paper's preset with the gradients of the authors' loop: the adversarial loss reaches everything"
    return vary(load_preset(PRESET), {"config.disentangler.adversarial_reaches": "everything"})


def methods(preset: dict, cfg: TowerConfig, used: int) -> tuple:  # whole vocabulary, cut
    "The same method twice"
    torch.manual_seed(0)
    whole = random_method(preset, LANGUAGES, cfg)
    for language in LANGUAGES:
        for a in whole.adapters[language]:
            torch.nn.init.normal_(a.up.weight, std=0.02)  # adapters with an effect
    small = random_method(preset | dict(token_vectors=preset["token_vectors"] | dict(n_tokens=used)), LANGUAGES, cfg)
    small.load_state_dict(
        whole.state_dict()
        | {"token_vectors.embedding.weight": whole.token_vectors.embedding.weight[:used].detach().clone()}
    )
    return whole, small


def own(method, used: int) -> torch.Tensor:
    "The trained parameters as one vector; of the token vectors those that are used"
    parts = {n: p.detach() for n, p in method.named_parameters() if not n.startswith("backbone.")}
    return torch.cat([p[: used if n == "token_vectors.embedding.weight" else None].flatten() for n, p in parts.items()])


def learnt(rows, pair, stage, batches, used: int) -> dict:
    "Losses and parameters of every row after some steps from the same weights, compared with the plain step"
    before = [copy.deepcopy(m.state_dict()) for m in pair]
    start = own(pair[0], used)
    found: dict[str, dict] = {}
    for row in rows:
        method = pair["vocabulary" in row]
        method.load_state_dict(before["vocabulary" in row])
        step = Saved(method, row, stage)
        losses = np.array([float(step(b, i)) for i, b in enumerate(batches)])
        after = own(method, used)
        method.zero_grad()
        if not found:
            plain_losses, plain_after = losses, after
        found[row[-1]] = dict(
            losses=losses.tolist(),
            loss_apart=float(np.abs(losses / plain_losses - 1).max()),
            learnt_apart=float((after - plain_after).norm() / (start - plain_after).norm()),
        )
    return found


def timed_step(step: Saved, batches: Iterator[dict]) -> None:
    "A row's step on the next batch"
    step.open()  # the plain step fills every row up, so both cost it the same
    step(next(batches), 0)
    step.leave()


def clocks() -> np.ndarray:
    return np.array((time.perf_counter(), time.process_time()))  # seconds by the clock, and of the processor


def table_of(equal: dict, took: pd.DataFrame) -> list[dict]:  # seconds by both clocks
    "What every row learnt, and its time compared with the plain step's"
    wall, cpu = (took.map(lambda seconds, clock=clock: seconds[clock]) for clock in (0, 1))
    table = []
    for name, row in equal.items():
        of_cpu = {f"cpu_{key}": value for key, value in ratio(cpu["plain"], cpu[name]).items()}
        apart = {key: row[key] for key in ("loss_apart", "learnt_apart")}
        table.append(dict(row=name, seconds=wall[name].median()) | apart | ratio(wall["plain"], wall[name]) | of_cpu)
    return table


def profile_of(row: Row, pair, stage, batch: dict) -> dict:
    "Time of the parts of a step"
    method = pair["vocabulary" in row]
    step = Saved(method, row, stage)
    step.open()
    profile = step_profile(partial(step, batch, 0), 2)
    step.leave()
    method.zero_grad()
    return profile


def measure(preset: dict, cfg: TowerConfig, used: int, rounds: int, batch: int, steps: int = 3) -> dict:
    "Equality first, then time"
    stage = replace(scaled_stages(preset, len(LANGUAGES))[0], warmup=0.0)
    pair = methods(preset, cfg, used)
    rows = ladder()
    made = both_batches(pair[0].backbone, rounds + 1, batch, used, np.random.default_rng(0))
    similar = [batches[1] for batches in made]
    with attention(torch.device("cpu")):
        equal = learnt(rows, pair, stage, similar[:steps], used)
        assert all(row["loss_apart"] <= 1e-4 and row["learnt_apart"] <= 1e-2 for row in equal.values()), equal
        calls = {}
        for row in rows:
            chosen = similar if row[-1] in ("plain", "length") else [random for random, _ in made]
            calls[row[-1]] = partial(timed_step, Saved(pair["vocabulary" in row], row, stage), itertools.cycle(chosen))
        took = in_turn(calls, rounds, clocks)
        middle = sorted(similar, key=lambda b: b["longest"])[len(similar) // 2]
        # the plain step, and the lab's with all savings
        profiles = {row[-1]: profile_of(row, pair, stage, middle) for row in (rows[0], rows[-1])}
    facts = dict(batch=batch, steps_compared=steps, vocabulary=[len(p.token_vectors.embedding.weight) for p in pair])
    return facts | dict(rows=table_of(equal, took), profiles=profiles)


def main() -> None:
    a = arguments(__doc__, 5, batch=dict(type=int, default=16))
    preset = compared_preset()
    cfg, used = tower_config(preset), 20_000
    if a.tiny:
        preset |= dict(token_vectors=dict(weights="none", n_tokens=400, trains=True))
        cfg, used = TINY, 150
    report = dict(preset=preset.get("name", PRESET)) | measure(preset, cfg, used, a.rounds, a.batch)
    keep(a, report, pd.DataFrame(report["rows"]).drop(columns=["quartiles", "cpu_quartiles"]).to_dict("records"))


if __name__ == "__main__":
    main()
