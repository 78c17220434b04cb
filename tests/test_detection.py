"The describer of pictograms: what it looks at, what it may not know, how right it is"

import hashlib
import json
import shutil
from itertools import combinations, islice

import numpy as np
import pytest
import torch

from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.pictograms.corpus import Pictograms, ScenesSpec, build_pictograms, compositions, fresh_scenes
from dasd_lab.corpora.pictograms.corpus import corpus as pictograms
from dasd_lab.corpora.pictograms.detector import (
    Detector,
    PictogramCaptioner,
    agreement,
    load_detector,
    save_detector,
    shipped_detector,
    where,
)
from dasd_lab.corpora.pictograms.grammar import Scene, Thing
from dasd_lab.corpora.pictograms.painting import layout, render

FOLDER = shipped_detector()
SUMS = [
    "317614b4d66d5905",
    "19b1ec18bfb84219",
    "9165bd9895d91e8c",
    "64030306a753814a",
    "61b03adf4a5c45d0",
    "1b49fb34777cfe30",
]
FLOORS = dict(
    noun_recall=0.8, noun_precision=0.8, count=0.85, colour=0.8, size=0.85, position=0.85, place=0.97, whole_scene=0.4
)
pytestmark = pytest.mark.skipif(not (FOLDER / "manifest.json").is_file(), reason=f"no detector in {FOLDER}")


@pytest.fixture(scope="module")
def captioner():
    return PictogramCaptioner()


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


def test_pictures_are_the_same_bytes_as_before():
    "Sums of pictures that were rendered before the layout was a function of its own"
    some = [
        Scene((Thing("fox", 1, "red"), Thing("umbrella", 3), Thing("sun", 1, "big")), "meadow", "left_of"),
        Scene((Thing("dog", 4, "small"), Thing("cat", 2, "gray")), "moon", "below"),
        Scene((Thing("owl", 3, "big"),), "night_sky"),
    ]
    sums = [hashlib.sha256(np.asarray(render(s, 64, k)).tobytes()).hexdigest()[:16] for s in some for k in (0, 7)]
    assert sums == SUMS


def test_stored_pictures_are_still_what_render_paints(corpus):
    "A picture is stored once, and its scene says where everything in it stands"
    visuals = corpus.visuals("validation")
    for i in range(0, 1000, 97):
        assert np.array_equal(visuals.pixels[i], np.asarray(render(corpus.scene(visuals.ids[i]), 64, corpus.seed)))


def test_the_layout_is_where_the_pictograms_are():
    "On one ground the picture differs from the empty place at the centres that the layout names"
    from dasd_lab.corpora.pictograms.painting import ground

    scene = Scene((Thing("apple", 3, "red"), Thing("dog", 1)), "sea", "above")
    view, groups = layout(scene, 3)
    empty = np.asarray(ground("sea", view, 64), int)
    full = np.asarray(render(scene, 64, 3), int)
    assert sum(len(c) for _, c, _ in groups) == 4
    for _, centres, _ in groups:
        for x, y in centres:
            assert np.abs(full - empty)[int(y * 64) - 1 : int(y * 64) + 2, int(x * 64) - 1 : int(x * 64) + 2].max() > 25


def test_it_never_learned_from_a_combination_that_is_held_out():
    "What the tool draws its pictures from; the combinations are counted here by hand"
    pairs, places = compositions(ScenesSpec())
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    for scene in islice(fresh_scenes(ScenesSpec(), manifest["seed"]), 3000):
        nouns = [t.noun for t in scene.things]
        assert (
            (nouns[0], scene.place) not in places
            if len(nouns) == 1
            else not any(frozenset(o) in pairs for o in combinations(nouns, 2))
        )


def test_held_out_combinations_are_what_it_is_measured_on(corpus):
    pairs, places = compositions(ScenesSpec())
    scenes = [corpus.scene(i) for i in corpus.visuals("test").ids]
    assert all(
        (s.things[0].noun, s.place) in places
        if len(s.things) == 1
        else any(frozenset((a.noun, b.noun)) in pairs for a, b in combinations(s.things, 2))
        for s in scenes
    )


def test_it_sees_what_is_there(captioner, corpus):
    "Floors well below the figures of the manifest, and the manifest's own figures on all of the test pictures"
    visuals = corpus.visuals("test")
    seen = captioner.look([visuals[i].frames for i in range(200)])
    found = agreement(seen, [corpus.scene(i) for i in visuals.ids[:200]], corpus.seed)
    assert all(found[k] >= v for k, v in FLOORS.items()), found
    wrong = agreement(seen, [corpus.scene(i) for i in [*visuals.ids[1:200], visuals.ids[0]]], corpus.seed)
    assert wrong["noun_recall"] < 0.1 and wrong["place"] < 0.3  # the measure notices when the pictures are others
    told = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["figures"]["test"]
    assert all(abs(found[k] - told[k]) < 0.06 for k in told), (found, told)


def test_the_same_picture_gives_the_same_words_in_any_company(captioner, corpus):
    visuals = corpus.visuals("test")
    frames = [visuals[i].frames for i in range(41)]
    words = captioner.describe(frames)
    assert (
        [captioner.describe([f])[0] for f in frames] == words
        and captioner.describe(frames[::-1])[::-1] == words
        and captioner.describe(frames[5:30]) == words[5:30]
    )
    was = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if was == 1 else 1)
        assert captioner.describe(frames) == words
    finally:
        torch.set_num_threads(was)
    assert captioner.describe([]) == []


def test_it_reads_pixels_and_nothing_else(tmp_path, captioner, monkeypatch):
    "Without scenes and captions the words are the same, and they follow the pixels when these change"
    corpus = Pictograms(
        build_pictograms(
            tmp_path, spec=ScenesSpec(train=40, validation=10, test=20), codes=["en", "de"], progress=False
        )
    )
    words = corpus.descriptions("test")
    blind = Pictograms(corpus.root)
    for p in (*corpus.root.glob("captions.*"), corpus.root / "scenes.jsonl"):
        p.write_text("nothing", encoding="utf-8")
    shutil.rmtree(corpus.root / "descriptions")
    assert blind.descriptions("test") == words
    pixels = np.load(corpus.root / "pixels.test.npy")
    assert captioner.describe(list(pixels[::-1][:, None])) == words[::-1]


def test_another_wording_is_kept_under_another_name(tmp_path, monkeypatch):
    from dasd_lab.corpora.pictograms.corpus import detector as detection

    root = build_pictograms(tmp_path, spec=ScenesSpec(train=20, validation=5, test=5), codes=["en"], progress=False)
    words = Pictograms(root).descriptions("test")
    monkeypatch.setattr(detection, "FORM", detection.FORM + 1)
    monkeypatch.setattr(detection, "told", lambda seen: "Something else.")
    monkeypatch.setattr(pictograms, "_captioner", PictogramCaptioner)
    assert Pictograms(root).descriptions("test") == ["Something else."] * 5 != words


def test_descriptions_are_made_once(tmp_path, monkeypatch):
    root = build_pictograms(tmp_path, spec=ScenesSpec(train=20, validation=5, test=5), codes=["en"], progress=False)
    words = Pictograms(root).descriptions("test")
    monkeypatch.setattr(PictogramCaptioner, "describe", None)
    assert Pictograms(root).descriptions("test") == words
    assert Pictograms(root).verify()  # what lies beside the corpus is no part of it


def test_without_weights_only_those_who_ask_are_stopped(tmp_path, monkeypatch):
    from dasd_lab.contracts import RetrievalMethod
    from dasd_lab.evaluation.retrieval import split_columns

    with pytest.raises(LabError, match="train_detector"):
        PictogramCaptioner(tmp_path / "none")
    root = build_pictograms(tmp_path, spec=ScenesSpec(train=20, validation=5, test=5), codes=["en"], progress=False)
    monkeypatch.setattr("dasd_lab.corpora.pictograms.detector.shipped_detector", lambda: tmp_path / "none")
    monkeypatch.setattr(pictograms, "_captioner", PictogramCaptioner)
    with pytest.raises(LabError, match="part of the installed package"):
        Pictograms(root).descriptions("test")

    class Blind(RetrievalMethod):
        def visual_columns(self, pictures, descriptions=None, known=None):
            return dict(n=len(pictures), told=descriptions)

    assert split_columns(Blind(), Pictograms(root), "test") == dict(n=5, told=None)


def test_clips_and_other_sizes(captioner):
    scene = Scene((Thing("apple", 2, "red"),), "sea")
    clip = np.stack([np.zeros((64, 64, 3), np.uint8), np.asarray(render(scene, 64)), np.zeros((64, 64, 3), np.uint8)])
    assert (
        captioner.describe([clip]) == captioner.describe([clip[1:2]])
        and "two red apples" in captioner.describe([clip])[0]
    )
    assert (
        "two red apples" in captioner.describe([np.asarray(render(scene, 256))[None]])[0]
        and "on the sea" in captioner.describe([np.asarray(render(scene, 50))[None]])[0]
    )
    assert captioner.describe([np.full((1, 64, 64, 3), 128, np.uint8)])[0].endswith(".")  # never nothing


@pytest.mark.parametrize(
    "centre, words",
    [
        ((0.1, 0.1), "at the top left"),
        ((0.5, 0.5), "in the middle"),
        ((0.99, 0.5), "on the right"),
        ((0.5, 1.02), "at the bottom"),
        ((-0.1, 0.9), "at the bottom left"),
    ],
)
def test_where(centre, words):
    assert where(centre) == words


def test_weights_are_small_and_only_weights(tmp_path):
    assert sum(f.stat().st_size for f in FOLDER.iterdir()) <= 1_500_000 and {f.name for f in FOLDER.iterdir()} == {
        "manifest.json",
        "model.safetensors",
    }
    (copy := tmp_path / "d").mkdir()
    [shutil.copy(f, copy) for f in FOLDER.iterdir()]
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    with pytest.raises(LabError, match="was changed"):
        load_detector(copy)
    save_detector(Detector(["dog", "cat"], (8, 8, 8), 8), tmp_path / "own", seed=1)
    again = load_detector(tmp_path / "own")
    assert (
        again.nouns == ("dog", "cat")
        and not again.training
        and json.loads((tmp_path / "own/manifest.json").read_text(encoding="utf-8"))["seed"] == 1
    )
