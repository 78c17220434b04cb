"Broken files of every kind open, or are refused in one line; none is executed"

import json
import os
import pickle
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from colours import Named
from served import draw, make
from squares import TINY, Squares
from test_bad_input import Bomb
from test_gallery import plain

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import vary
from dasd_lab.base.storage import read_tensors, seal, write_tensors
from dasd_lab.commands.training import run_row
from dasd_lab.corpora.catalog import corpus_named
from dasd_lab.corpora.own.corpus import import_corpus, understand
from dasd_lab.pictograms.building import build_pictograms
from dasd_lab.pictograms.corpus import Pictograms
from dasd_lab.pictograms.detector import Detector, PictogramCaptioner, save_detector
from dasd_lab.pictograms.scenes import ScenesSpec
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import run_languages
from dasd_lab.search.doubt import Calibration, calibration_of, save_calibration
from dasd_lab.search.on_disk.places import gallery_run
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.training import runs
from dasd_lab.training.recipes import train
from dasd_lab.training.runs import Keeping

# of each kind; ten times as many with SOAK
FILES = dict(run=60, stored=30, resume=15, corpus=20, scenes=20, detector=10, doubt=20)
TIMES = 10 if os.environ.get("SOAK") else 1
QUICK = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})
OTHER_VALUES = None, True, -1, 0, 1.5, 10**12, float("nan"), "", "x", "../x", [], {}, [1], {"x": 1}


class Stop(Exception):
    "Ends a training after its first checkpoint"


@pytest.fixture(scope="module")
def made(tmp_path_factory, backbone):
    "One good example of each kind"
    root = tmp_path_factory.mktemp("made")
    train(QUICK, Squares(), out=root / "run", backbone=backbone, progress=False)
    make(root / "stored", draw(root / "drawn", 1)).close()
    interrupted(root / "resume", backbone)
    rows = [dict(text=f"eine Farbe {p.stem}", visual_id=p.name, language="de") for p in (root / "drawn").iterdir()]
    (root / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_corpus(understand(root / "captions.jsonl", root / "drawn"), root / "corpus")
    build_pictograms(root, spec=ScenesSpec(train=8, validation=4, test=4), codes=["en", "de"], progress=False)
    save_detector(Detector(["dog", "cat"], (8, 8, 8), 8), root / "detector")
    shutil.copytree(root / "run/method", root / "doubt/method")
    limits = dict.fromkeys(("short", "long"), dict(fewest_score=0.0, most_unknown=0.1))
    numbers = np.ones((4, 16), np.float32), np.ones(24, np.float32), np.eye(24, dtype=np.float32), 1.0
    save_calibration(Calibration(*numbers, dict(de=["hund"]), dict(de=limits)), root / "doubt")
    return root, backbone


def interrupted(folder: Path, backbone):
    "A training that ended after a checkpoint"
    save = runs.save_checkpoint

    def stopping(*args):
        save(*args)
        raise Stop

    with pytest.MonkeyPatch.context() as m, pytest.raises(Stop):
        m.setattr(runs, "save_checkpoint", stopping)
        train(QUICK, Squares(), out=folder, backbone=backbone, progress=False, keeping=Keeping(1))


def open_run(folder, made):
    run_row(folder)
    run_languages(folder)
    load_run(folder).encode_captions(["ein rotes Quadrat"], "de")


def open_stored(folder, made):
    gallery_run(folder)
    gallery = StoredGallery(folder, Named())
    try:
        hits = gallery.search("rot", "de")
        [gallery.thumbnails[id] for id in hits.ids if id in gallery.thumbnails]
        gallery.change(hits.ids[:1], dict(shade=1))
    finally:
        gallery.close()


def open_resumed(folder, made):
    run_row(folder)
    train(QUICK, Squares(), out=folder, backbone=made[1], progress=False)


def open_corpus(folder, made):
    corpus = corpus_named(str(folder))
    assert corpus.captions("train", "de")
    corpus.visuals("train")[0]
    corpus.pictures_stamp("train")


def open_scenes(folder, made):
    corpus = Pictograms(folder).with_phrases(1)
    assert corpus.captions("train", "de")
    corpus.facts(corpus.visuals("train")[0].id)


def open_doubt(folder, made):
    calibration = calibration_of(SimpleNamespace(run_folder=folder, embed_dim=16))
    if calibration:
        calibration.signs("ein Hund am Strand", "de", torch.ones(1, 16), 0.1)
        calibration.unlike_images([plain((0, 0, 0))])


OPENED: dict[str, Callable] = dict(
    run=open_run,
    stored=open_stored,
    resume=open_resumed,
    corpus=open_corpus,
    scenes=open_scenes,
    detector=lambda folder, made: PictogramCaptioner(folder).describe([np.zeros((1, 64, 64, 3), np.uint8)]),
    doubt=open_doubt,
)


# what happens to a file


def truncated(path, rng, bomb):
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def flipped(path, rng, bomb):
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.choice([1, 1, 8])):
        data[rng.randrange(min(len(data), 4096))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def of_another_kind(path, rng, bomb):
    path.unlink()
    made = rng.choice([None, b"", b"null", b"[1]", b'"x"', b"\xff\xfe\0", b"[" * 10**5, b"9" * 5000, "folder"])
    if made == "folder":
        path.mkdir()
    elif made is not None:
        path.write_bytes(made)


def other_values(path, rng, bomb):
    "Another value or no value somewhere in a JSON file; another shape, type or name of a tensor"
    if path.suffix == ".safetensors":
        return other_tensors(path, rng)
    if path.suffix != ".json":
        return flipped(path, rng, bomb)
    content = json.loads(path.read_text(encoding="utf-8"))
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(content)
    node, key = rng.choice(places)
    if rng.random() < 0.3:
        del node[key]
    else:
        node[key] = rng.choice(OTHER_VALUES)
    path.write_text(json.dumps(content), encoding="utf-8")
    return None


def other_tensors(path, rng):
    tensors = read_tensors(path)
    name = rng.choice(sorted(tensors) or ["x"])
    tensor = tensors.get(name, torch.ones(1))
    changed = [tensor[:0] if tensor.dim() else tensor[None], tensor.reshape(-1), tensor[None]]
    changed += [tensor.to(torch.int32), torch.full_like(tensor, 3)]
    if rng.random() < 0.2:
        tensors.pop(name, None)
    else:
        tensors[name if rng.random() < 0.8 else "x"] = rng.choice(changed).clone()
    write_tensors(tensors, path)


def with_a_pickle(path, rng, bomb):
    with open(path, "wb") as f:
        rng.choice([pickle.dump, torch.save])(Bomb(bomb), f)


DAMAGES = [truncated, flipped, of_another_kind, with_a_pickle, *[other_values] * 3]


def reseal(folder):
    "Write the checksums of changed files, so that the damage is not found by them"
    for path in folder.rglob("manifest.json"):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            manifest.pop("files")
            seal(path.parent, **manifest)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
            pass  # the manifest itself is broken


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in ("run", "resume") else kind for kind in OPENED]
)
def test_broken_files_are_refused_in_one_line(made, kind, tmp_path):
    tracebacks = []
    frozen = fingerprint(made[1])
    bomb = tmp_path / "opened"
    for seed in range(TIMES * FILES[kind]):
        rng = random.Random(f"{kind} {seed}")
        folder = Path(shutil.copytree(made[0] / kind, tmp_path / f"{kind}{seed}"))
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.endswith(".lock")]
        path = rng.choice([p for p in files if p.suffix in (".json", ".safetensors")] if rng.random() < 0.7 else files)
        damage = rng.choice(DAMAGES)
        damage(path, rng, bomb)
        if path.name != "manifest.json" and rng.random() < 0.8:
            reseal(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                OPENED[kind](folder, made)
        except LabError as e:
            assert e.expected and e.next_step
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            tracebacks.append(f"seed {seed}: {damage.__name__} {path.relative_to(folder)}: {e!r:.200}")
        assert not bomb.exists(), f"seed {seed}: {path.name} was executed"
        assert fingerprint(made[1]) == frozen, f"seed {seed}: {path.name} trained the frozen backbone"
        shutil.rmtree(folder)
    assert not tracebacks, "\n".join([f"{len(tracebacks)} of {TIMES * FILES[kind]}", *tracebacks])


@pytest.mark.parametrize("kind", OPENED)
def test_good_files_open(made, kind, tmp_path):
    OPENED[kind](shutil.copytree(made[0] / kind, tmp_path / kind), made)
