"The detector of pictograms: reproducible images and accuracy"

import hashlib
import json

import numpy as np
import pytest

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.detector import (
    PictogramCaptioner,
    agreement,
    shipped_detector,
)
from dasd_lab.pictograms.grammar import Scene, Thing
from dasd_lab.pictograms.painting import render

FOLDER = shipped_detector()
CHECKSUMS = [
    "317614b4d66d5905",
    "19b1ec18bfb84219",
    "9165bd9895d91e8c",
    "64030306a753814a",
    "61b03adf4a5c45d0",
    "1b49fb34777cfe30",
]
MINIMUM = dict(noun_recall=0.8, thing=0.5, place=0.97, whole_scene=0.4)
pytestmark = pytest.mark.skipif(not (FOLDER / "manifest.json").is_file(), reason=f"no detector in {FOLDER}")


@pytest.fixture(scope="module")
def captioner():
    return PictogramCaptioner()


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


def test_rendering_is_reproducible():
    "Checksums of rendered images"
    scenes = [
        Scene((Thing("fox", 1, "red"), Thing("umbrella", 3), Thing("sun", 1, "big")), "meadow", "left_of"),
        Scene((Thing("dog", 4, "small"), Thing("cat", 2, "gray")), "moon", "below"),
        Scene((Thing("owl", 3, "big"),), "night_sky"),
    ]
    checksums = []
    for scene in scenes:
        for seed in (0, 7):
            pixels = np.asarray(render(scene, 64, seed)).tobytes()
            checksums.append(hashlib.sha256(pixels).hexdigest()[:16])
    assert checksums == CHECKSUMS


def test_stored_images_are_those_of_render(corpus):
    visuals = corpus.visuals("validation")
    for i in range(0, 1000, 97):
        scene = corpus.scene(visuals.ids[i])
        assert np.array_equal(visuals.pixels[i], np.asarray(render(scene, 64, corpus.spec.seed)))


def test_accuracy(captioner, corpus):
    "Minimum accuracy on 200 test images, and agreement with the figures of the manifest on all of them"
    visuals = corpus.visuals("test")
    ids = visuals.ids[:200]
    detected = captioner.detect([visual.frames for visual in visuals[:200]])
    figures = agreement(detected, [corpus.scene(visual_id) for visual_id in ids])
    assert all(figures[name] >= minimum for name, minimum in MINIMUM.items()), figures
    stated = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["figures"]["test"]
    assert all(abs(figures[name] - stated[name]) < 0.06 for name in figures.keys() & stated)
