"The detector of pictograms: input, held-out combinations, accuracy"

import hashlib
import json
import shutil

import numpy as np
import pytest

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.building import build_pictograms
from dasd_lab.pictograms.corpus import Pictograms
from dasd_lab.pictograms.detector import (
    Detector,
    PictogramCaptioner,
    agreement,
    load_detector,
    save_detector,
    shipped_detector,
)
from dasd_lab.pictograms.grammar import Scene, Thing
from dasd_lab.pictograms.painting import render
from dasd_lab.pictograms.scenes import ScenesSpec

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


def test_a_description_does_not_depend_on_the_batch(captioner, corpus):
    visuals = corpus.visuals("test")
    frames = [visual.frames for visual in visuals[:41]]
    descriptions = captioner.describe(frames)
    assert [captioner.describe([f])[0] for f in frames] == descriptions
    assert captioner.describe(frames[::-1])[::-1] == descriptions
    assert captioner.describe(frames[5:30]) == descriptions[5:30]
    assert captioner.describe([]) == []


def build_small(folder, codes=("en",), train=20, validation=5, test=5):
    "Folder of a small corpus"
    spec = ScenesSpec(train=train, validation=validation, test=test)
    return build_pictograms(folder, spec=spec, codes=list(codes), progress=False)


def test_it_reads_pixels_only(tmp_path, captioner):
    "Descriptions are the same without scenes and captions, and follow the pixels"
    corpus = Pictograms(build_small(tmp_path, ("en", "de"), train=40, validation=10, test=20))
    descriptions = corpus.descriptions("test")
    pixels_only = Pictograms(corpus.root)
    for path in (*corpus.root.glob("captions.*"), corpus.root / "scenes.jsonl"):
        path.write_text("nothing", encoding="utf-8")
    shutil.rmtree(corpus.root / "descriptions")
    assert pixels_only.descriptions("test") == descriptions
    pixels = np.load(corpus.root / "pixels.test.npy")
    assert captioner.describe(list(pixels[::-1][:, None])) == descriptions[::-1]


def test_descriptions_are_stored(tmp_path, monkeypatch):
    root = build_small(tmp_path)
    descriptions = Pictograms(root).descriptions("test")
    monkeypatch.setattr(PictogramCaptioner, "describe", None)
    assert Pictograms(root).descriptions("test") == descriptions
    assert Pictograms(root).verify()  # descriptions are not part of the checksum


def test_without_weights_only_descriptions_fail(tmp_path, monkeypatch):
    with pytest.raises(LabError, match="train_detector"):
        PictogramCaptioner(tmp_path / "none")
    root = build_small(tmp_path)
    monkeypatch.setattr("dasd_lab.pictograms.detector.shipped_detector", lambda: tmp_path / "none")
    monkeypatch.setattr("dasd_lab.pictograms.corpus._captioner", PictogramCaptioner)
    with pytest.raises(LabError, match="part of the installed package"):
        Pictograms(root).descriptions("test")


def test_clips_and_other_sizes(captioner):
    def describe(frames):
        return captioner.describe([frames])[0]

    scene = Scene((Thing("apple", 2, "red"),), "sea")
    black = np.zeros((64, 64, 3), np.uint8)
    clip = np.stack([black, np.asarray(render(scene, 64)), black])
    assert describe(clip) == describe(clip[1:2])
    assert "two red apples" in describe(clip)
    assert "two red apples" in describe(np.asarray(render(scene, 256))[None])
    assert "on the sea" in describe(np.asarray(render(scene, 50))[None])
    assert describe(np.full((1, 64, 64, 3), 128, np.uint8)).endswith(".")  # never empty


def test_weights_are_small_and_verified(tmp_path):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 1_500_000
    assert {path.name for path in FOLDER.iterdir()} == {"manifest.json", "model.safetensors"}
    save_detector(Detector(["dog", "cat"], (8, 8, 8), 8), tmp_path / "small", seed=1)
    loaded = load_detector(tmp_path / "small")
    assert loaded.nouns == ("dog", "cat")
    assert not loaded.training
