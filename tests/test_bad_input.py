"""Bad input gives a clear error or a documented result, and no data is lost"""

import errno
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from squares import TINY, Squares
from test_gallery import Colours, plain

from dasd_lab.backbone.towers import load_backbone, save_backbone
from dasd_lab.base import storage
from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import vary
from dasd_lab.base.storage import read_tensors, seal, whole_folder
from dasd_lab.corpora.captions import read_captions
from dasd_lab.corpora.catalog import FolderCorpus
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import save_method
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training import recipes
from dasd_lab.training.checkpoints import Progress, load_checkpoint, save_checkpoint
from dasd_lab.training.recipes import train


@pytest.fixture
def gallery():
    "Five plain images"

    def encode_captions(captions, language):
        return torch.tensor([[float(len(c)), 1.0, 2.0] for c in captions])

    method = Colours()
    method.encode_captions = encode_captions
    return Gallery(method).add([plain((i * 40, 100, 50)) for i in range(5)])


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t\r", "\x00\x01\x1b", "\u200b\ufeff", "\u202e\u202c", "\u200d\u200d", "\u3000", "\ud83d"]
)
def test_an_empty_query_is_an_error_with_a_next_step(gallery, text):
    with pytest.raises(LabError, match="an empty query") as e:
        gallery.search(text)
    assert e.value.next_step


def test_an_unsupported_language_lists_the_supported_ones(gallery):
    for language in ("fi", "", "xx", "DE "):
        with pytest.raises(LabError, match="one of de, ar, en"):
            gallery.search("kissa", language)


@pytest.mark.parametrize("text", ["🐕", "🐕🏖️", "👩‍🚒", "🇫🇷", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "1️⃣", "12", "?!"])
def test_queries_without_letters_are_read_as_english(gallery, text):
    hits = gallery.search(text)
    assert (hits.query.language, hits.query.confidence) == ("en", 0.0) and hits.query.encoded.strip() and len(hits) == 5
    assert gallery.search(text, "de").query.language == "de"


def bad_pictures(folder):
    "Write a readable image and four unreadable ones; the names of those"
    Image.new("RGB", (64, 64), "red").save(folder / "good.png")
    whole = (folder / "good.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.jpg").write_text("no picture")
    (folder / "empty.webp").touch()
    torch.save([1], folder / "pickle.png")
    return ["cut.png", "empty.webp", "pickle.png", "text.jpg"]


def test_unreadable_images_are_named_and_nothing_is_added(gallery, tmp_path):
    for name in bad_pictures(tmp_path):
        with pytest.raises(LabError, match=name.replace(".", r"\.")):
            gallery.add([tmp_path / "good.png", tmp_path / name])
    with pytest.raises(LabError, match=r"gone\.png"):
        gallery.add([tmp_path / "gone.png"])
    with pytest.raises(LabError):
        gallery.add([tmp_path])
    for array in (
        np.zeros((4, 4, 7), "uint8"),
        np.zeros(3, "uint8"),
        np.full((4, 4, 3), np.nan),
        np.zeros((0, 4, 3), "uint8"),
    ):
        with pytest.raises(LabError):
            gallery.add([array])
    with pytest.raises(LabError):
        gallery.add([object()])
    assert len(gallery) == 5 and len(gallery.thumbnails) == 5 and len(gallery.image_features) == 5


def contents(folder):
    "Files of a folder"
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def made(tmp_path_factory, backbone):
    "A finished run with a checkpoint"
    root = tmp_path_factory.mktemp("made")
    run = train(TINY, Squares(), out=root / "run", backbone=backbone, progress=False)
    save_checkpoint(root / "run", run.method, (), Progress(0, 10), {})
    return root


@pytest.fixture
def kept(made, tmp_path):
    "A copy that a test can damage"
    return Path(shutil.copytree(made, tmp_path / "kept"))


CHECKPOINT = "run/checkpoints/01-0000010"
OPENED = {
    "run/backbone": lambda f: load_backbone(f / "run/backbone"),
    "run/method": lambda f: load_run(f / "run"),
    CHECKPOINT: lambda f: load_checkpoint(f / "run", load_run(f / "run"), {}),
}
each_folder = pytest.mark.parametrize("name", OPENED)


@each_folder
def test_each_file_missing_cut_short_or_changed(kept, name):
    before = contents(kept / name)
    for file, whole in before.items():
        path = kept / name / file
        if file == "manifest.json":
            changed = whole + b" x"
            message = "manifest"
        else:
            changed = bytes([whole[0] ^ 1]) + whole[1:]
            message = file
        path.unlink()
        with pytest.raises(LabError, match=message):
            OPENED[name](kept)
        for bad in (b"", whole[: len(whole) // 2], changed):
            path.write_bytes(bad)
            with pytest.raises(LabError, match=message):
                OPENED[name](kept)
        path.write_bytes(whole)
    assert OPENED[name](kept) and contents(kept / name) == before


@each_folder
def test_a_folder_of_another_kind(kept, name):
    other = "run/backbone" if name != "run/backbone" else "run/method"
    shutil.rmtree(kept / name)
    shutil.copytree(kept / other, kept / name)
    with pytest.raises(LabError, match=f"is a '{other.split('/')[-1]}'"):
        OPENED[name](kept)


class Bomb:
    "A pickle that creates a file if it is opened"

    def __init__(self, at):
        self.at = at

    def __reduce__(self):
        return (Path.touch, (self.at,))


def resealed(folder):
    "Write the checksums of a changed folder"
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("files")
    seal(folder, **manifest)


@each_folder
@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch.save"])
def test_a_pickle_in_place_of_weights_is_not_opened(kept, name, write, tmp_path):
    file = next((kept / name).glob("weights.safetensors" if name == CHECKPOINT else "*.safetensors"))
    with open(file, "wb") as f:
        write(Bomb(tmp_path / "opened"), f)
    for _ in range(2):
        with pytest.raises(LabError, match=file.name):
            OPENED[name](kept)
        resealed(kept / name)
    assert not (tmp_path / "opened").exists()
    with pytest.raises(LabError, match="a whole safetensors file.*pickles are never opened"):
        read_tensors(file)


def test_a_run_on_the_backbone_of_another_run(kept):
    other = load_backbone(kept / "run/backbone")
    with torch.no_grad():
        other.clip.text_projection += 0.1
    save_backbone(other, kept / "run/backbone")
    with pytest.raises(LabError, match="fingerprint.*Load the backbone that lies beside it"):
        load_run(kept / "run")


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"config.adapter.bottleneck": "4"}, "bottleneck"),
        ({"config.adaptor": {}}, "adaptor"),
        ({"method": "dsad"}, "dsad"),
        ({"stages.0.terms.0.loss": "alignement"}, "alignement"),
        ({"stages.0.trains": ["adapter"]}, "adapter"),
        ({"config.text_blocks": 9}, "text_blocks"),
        ({"stages.1.terms.0.options": dict(temperature=-1)}, "temperature = -1"),
        ({"stages.1.terms.0.weight": -1}, "weight = -1"),
        ({"stages.0.learning_rate": float("inf")}, "learning_rate = inf"),
        ({"stages.0.warmup": 1.5}, "warmup = 1.5"),
        ({"config.adapter.bottleneck": -4}, "bottleneck = -4"),
    ],
    ids=lambda c: next(iter(c)) if isinstance(c, dict) else c,
)
def test_invalid_settings(made, changes, message):
    with pytest.raises(LabError, match=message):
        train(vary(TINY, changes), Squares(), backbone=made / "run/backbone", progress=False)


ROW = dict(text="ein Hund", language="de", visual_id="a")


@pytest.mark.parametrize(
    "rows,message",
    [
        ([dict(caption="ein Hund", language="de", visual_id="a")], "no column .'text'.*Rename"),
        ([dict(ROW, language="elbisch")], "elbisch"),
        ([dict(ROW, text=" ")], "an empty caption"),
        ([ROW, dict(ROW, text=None)], "line 2.*text"),
        ([dict(ROW, origin="robot")], "robot"),
        ([], "without captions"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_invalid_caption_files(tmp_path, rows, message):
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "train").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "train/a.png")
    with pytest.raises(LabError, match=message) as e:
        read_captions(tmp_path / "train.jsonl")
    assert "train.jsonl" in str(e.value) and e.value.next_step
    with pytest.raises(LabError, match=message):
        FolderCorpus(tmp_path)


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


SAVED = {
    "run/backbone": lambda folder, method: save_backbone(method.backbone, folder / "run/backbone", note="new"),
    "run/method": lambda folder, method: save_method(method, folder / "run/method", note="new"),
    CHECKPOINT: lambda folder, method: save_checkpoint(folder / "run", method, (), Progress(0, 10, [dict(step=9)]), {}),
}


def break_step(monkeypatch, step: str, folder: Path) -> None:
    "Let a step of writing a folder fail as on a full disk"
    rename = storage.os.replace

    def rename_or_fail(source, target):
        if Path(target) == folder and not str(source).endswith("-old"):
            full()
        rename(source, target)

    if step == "weights":
        monkeypatch.setattr(safetensors.torch, "save_file", full)
    if step == "first file":
        monkeypatch.setattr(storage.os, "replace", full)  # files are written under another name first
    if step == "manifest":
        monkeypatch.setattr(Path, "write_text", full)
    if step == "rename":
        monkeypatch.setattr(storage.os, "replace", rename_or_fail)


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("step", ["weights", "first file", "manifest", "rename"])
def test_a_full_disk_leaves_the_old_folder_complete(kept, name, step, monkeypatch):
    method = load_run(kept / "run")
    before = contents(kept)
    beside = sorted((kept / name).parent.iterdir())
    break_step(monkeypatch, step, kept / name)
    with pytest.raises(LabError, match="No space left.*Nothing that was there is lost"):
        SAVED[name](kept, method)
    monkeypatch.undo()
    assert contents(kept) == before and OPENED[name](kept)
    assert sorted((kept / name).parent.iterdir()) == beside
    SAVED[name](kept, method)
    assert OPENED[name](kept)
    assert sorted((kept / name).parent.iterdir()) == beside


def test_a_run_resumes_after_a_full_disk(made, tmp_path, monkeypatch):
    def save_method_on_full_disk(method, folder, **facts):
        with whole_folder(folder) as f:
            (f / "half").write_text("half")
            full()

    monkeypatch.setattr(recipes, "save_method", save_method_on_full_disk)

    def again():
        return train(TINY, Squares(), out=tmp_path / "run", backbone=made / "run/backbone", progress=False)

    with pytest.raises(LabError, match="No space left"):
        again()
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "README.md",
        "backbone",
        "checkpoints",
        "curves.svg",
        "log.jsonl",
        "preset.json",
        "progress.json",
        "run.json",
        "tensorboard",
    ]
    with pytest.raises(LabError, match="no finished run"):
        load_run(tmp_path / "run")
    monkeypatch.undo()
    assert again().folder == tmp_path / "run" and load_run(tmp_path / "run").languages == ("de",)
    assert contents(tmp_path / "run/method") == contents(made / "run/method")
