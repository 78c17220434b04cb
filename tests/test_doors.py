"""What strangers hand in is refused, or costs no more than it may

Each test is of a kind; its members are generated, and more of them with SOAK."""

import csv
import io
import json
import os
import random
import re
import shutil
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from colours import Named
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin
from served import draw, make
from squares import TINY, Squares

from dasd_lab.base.contracts import Caption, LabError, evaluating
from dasd_lab.base.presets import leaves, vary
from dasd_lab.base.storage import table_cell, table_text, whole_folder
from dasd_lab.commands.cli import main
from dasd_lab.corpora.captions import read_captions, write_captions
from dasd_lab.corpora.visuals import DECODERS, read_picture
from dasd_lab.evaluation.retrieval import rank
from dasd_lab.runs.loading import load_run
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.search.gallery.inputs import MOST_TEXT
from dasd_lab.search.gallery.reading import try_read_visual
from dasd_lab.search.on_disk.places import own_galleries
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve.uploads import uploaded_picture
from dasd_lab.training import runs
from dasd_lab.training.recipes import train
from dasd_lab.training.steps import train_step

ROOT = Path(__file__).resolve().parents[1]
SOAK = int(os.environ.get("SOAK", "1"))
CODED, HEADER = (3000, 2500), (60, 50)  # size of an image, and what its header may say, in pixels


def encoded(kind, size=(8, 6)):
    "A file of an image"
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, kind, **dict(speed=10) if kind == "AVIF" else {})
    return file.getvalue()


def lying(kind):
    "Files whose header gives another size than is coded, and damaged headers"
    whole = encoded(kind, CODED)
    for form, (coded, said) in product((">H", "<H", ">I", "<I"), zip(CODED, HEADER)):
        yield whole.replace(struct.pack(form, coded), struct.pack(form, said), 1)
    rng = random.Random(kind)
    for _ in range(2 * SOAK):
        damaged = bytearray(whole)
        damaged[rng.randrange(min(len(whole), 200))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def peak_mb():
    "The most memory of this process since the last call"
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
    Path("/proc/self/clear_refs").write_text("5")
    return peak


@pytest.mark.parametrize("kind", DECODERS)
def test_what_a_file_costs_is_bounded_by_its_size_in_pixels(kind):
    read_picture(encoded(kind))
    peak_mb()
    before = peak_mb()
    for sent in lying(kind):
        with suppress(LabError):
            uploaded_picture(sent, 20_000_000)
    assert peak_mb() - before < 300, "twelve bytes for each of the most pixels, and some"


def test_tiles_are_limited_as_images_are():
    tags = {256: 100, 257: 100, 258: 8, 259: 8, 262: 1, 277: 1, 322: 40_000, 323: 40_000, 324: 8, 325: 1}
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    directory.update(tags)
    sent = b"II*\0" + struct.pack("<I", 8) + directory.tobytes(8)
    for read in (read_picture, uploaded_picture):
        with pytest.raises(LabError, match="1,600,000,000 to decode"):
            read(sent)


def test_only_decoders_of_photographs_are_used(tmp_path, monkeypatch):
    "None of Pillow's others, one of which starts Ghostscript"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    Image.init()
    others = {"EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"}
    for kind in sorted(Image.SAVE.keys() - {*DECODERS, *others}):
        with suppress(OSError, ValueError, KeyError):  # of a mode that the format lacks
            others[kind] = encoded(kind)
    for kind, sent in others.items():
        photograph = tmp_path / f"{kind}.jpg"
        photograph.write_bytes(sent)
        if kind not in ("MPO", "DIB"):  # a JPEG
            with pytest.raises(LabError, match="not an image"):
                read_picture(photograph)
            with pytest.raises(LabError, match="not an image"):
                uploaded_picture(sent)
            assert isinstance(try_read_visual(photograph), LabError)
    assert len(others) > 10 and not (tmp_path / "started").exists()
    opening = [p for p in ROOT.glob("dasd_lab/**/*.py") if "Image.open(" in p.read_text()]
    assert opening == [ROOT / "dasd_lab/corpora/visuals.py"]


@pytest.fixture
def gallery(tmp_path, monkeypatch):
    "The folder of a gallery, in `galleries` of the working folder"
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "galleries/theirs", draw(tmp_path / "drawn", 3)).close()
    return tmp_path / "galleries/theirs"


def rewritten(folder, **changes):
    "The record of a gallery with other values"
    record = folder / "gallery.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))


@pytest.mark.parametrize("engine", ["MilvusEngine", "LanceEngine"])
@pytest.mark.parametrize(
    "uri", ["http://{}", "tcp://{}", "s3://{}/x", "http://me:x@{}/y.db", "{tmp}/out/x.db", "../x.db", "out/x.db"]
)
def test_a_record_alone_sends_no_token_and_creates_nothing(gallery, tmp_path, monkeypatch, engine, uri):
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = uri.format(f"127.0.0.1:{server.getsockname()[1]}", tmp=tmp_path)
        rewritten(gallery, engine=engine, uri=address, name="pictures")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(LabError, match="DASD_LAB_GALLERY_URI=") as refused:
            StoredGallery(gallery, Named())
        assert address in str(refused.value) and own_galleries() == []
        with pytest.raises(TimeoutError):
            server.accept()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_gallery_without_its_index_is_not_opened_as_an_empty_one(gallery, tmp_path):
    (gallery / "index").rename(tmp_path / "away")
    with pytest.raises(LabError, match="Restore the folder"):
        StoredGallery(gallery, Named())
    assert not (gallery / "index").exists()
    (tmp_path / "away").rename(gallery / "index")
    rewritten(gallery, engine="MilvusEngine", uri=str(gallery / "lost.db"), name="pictures")
    with pytest.raises(LabError, match="lost.db"):
        StoredGallery(gallery, Named())
    assert not list(gallery.glob("*.db*"))


RED = Image.new("RGB", (8, 8), "red")
LONG = "x" * (MOST_TEXT + 1)


# a text or a value that is none, by the way in which it would enter a gallery
DOORS = dict(
    add=lambda g, v: g.add([RED], ["new"], dict(colour=[v])),
    description=lambda g, v: g.add([RED], ["new"], descriptions=[v]),
    change=lambda g, v: g.change("red-00.png", dict(description=v)),
    facts=lambda g, v: g.set_facts(["red-00.png"], dict(source=v)),
    put=lambda g, v: g.put(["new"], dict(features=torch.ones(1, 3)), dict(colour=[v])),
    where=lambda g, v: g.count(dict(colour={"from": v})),
    memory=lambda g, v: Gallery(Named()).add([RED], ["new"], descriptions=[v]),
    captions=lambda g, v: Gallery(Named()).add([RED], ["new"], [Caption(v, "de", "new")]),
    ids=lambda g, v: g.add([RED], [v]),
    ids_in_memory=lambda g, v: Gallery(Named()).add([RED], [v]),
)


@pytest.mark.parametrize("door", DOORS)
def test_texts_are_limited_wherever_they_enter_a_gallery(gallery, door):
    with closing(StoredGallery(gallery, Named())) as g:
        before = g.facts(sorted(g.ids)).to_json()
        for value in (LONG, "\ud800", 5, b"x", *((None, "") if door.startswith("ids") else ())):
            with pytest.raises(LabError):
                DOORS[door](g, value)
        assert g.facts(sorted(g.ids)).to_json() == before


def test_only_whole_numbers_count():
    gallery = Gallery(Named()).add([RED, RED], ["a", "b"])
    assert len(gallery.search("rot", "de", k=np.int64(2)).ids) == 2
    for wrong in ([0.7], [True]):
        with pytest.raises(LabError, match="integers"):
            rank(gallery.method.score, torch.ones(1, 3), gallery.visuals, wrong)
    with pytest.raises(LabError):
        gallery.add(None)


@pytest.mark.parametrize("ids, rows, width, given", [
    ("abc", 2, 3, True), ("ab", 5, 3, True), ("ab", 2, 4, True), ("aa", 2, 3, True), ("k", 1, 3, True),
])  # fmt: skip
def test_rows_that_do_not_fit_leave_a_gallery_in_memory_as_it_was(ids, rows, width, given):
    gallery = Gallery(Named()).add([RED], ["k"])
    features = torch.ones(rows, width)
    with pytest.raises(LabError):
        gallery.extend([*ids], dict(image_features=features), visuals=dict(features=features) if given else None)
    assert gallery.ids == ["k"] and len(gallery.visuals["features"]) == len(gallery.image_features) == 1
    gallery.extend(["d"], {}, visuals=dict(features=torch.ones(1, 3, dtype=torch.float64)))
    assert sorted(gallery.search("rot", "de").ids) == ["d", "k"]


@given(st.text(st.sampled_from("=+-@＝\t\r\n'\",a1 "), max_size=6))
def test_no_cell_of_a_table_is_a_formula(text):
    for delimiter in (",", "\t"):
        table = table_text([dict(a=text, b=-1.5)], ["a", "b"], delimiter)
        row = next(csv.DictReader(io.StringIO(table, newline=""), delimiter=delimiter))
        assert not row["a"].startswith((*"=+-@＝\t\r\n",)) and row["b"] == "-1.5"
        assert table_cell(row["a"]) == text.replace("\r", "\n")


def test_every_table_for_spreadsheets_has_the_same_writer(tmp_path):
    caption = Caption("=HYPERLINK(1)", "de", "@a.png")
    write_captions([caption], tmp_path / "c.csv")
    assert "'=HYPER" in (tmp_path / "c.csv").read_text() and read_captions(tmp_path / "c.csv") == [caption]
    writers = [
        p.name for p in ROOT.glob("dasd_lab/**/*.py") if re.search(r"\.to_csv\(\w|csv\.\w*[wW]riter", p.read_text())
    ]
    assert writers == ["storage.py"]


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x7fb", "\x1b[31m", "a\x85"])
def test_names_with_control_characters_are_refused_before_anything_is_made(tmp_path, name):
    draw(tmp_path / "drawn", 1)
    with pytest.raises(LabError, match="control characters"):
        StoredGallery(tmp_path / name / "gallery", Named())
    with pytest.raises(LabError, match="control characters"), whole_folder(tmp_path / name):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["drawn"]


def test_searches_beside_a_training_see_evaluation_and_change_none_of_its_bits(backbone, monkeypatch):
    "Eight threads search with the method that is trained; a step sees training alone"
    modules, searched, stepped = [], [], []
    preset = vary(TINY, {"stages.0.steps": 20 * SOAK, "stages.1.steps": 10})

    def search(method):
        while not stepped or stepped[-1] is not None:
            with evaluating(method):
                before = [m.training for m in modules]
                method.encode_captions(["ein rotes Quadrat"], "de")
                searched.append(any(before) or any(m.training for m in modules))

    def step(method, *args, **options):
        if not modules:
            modules.extend(method.modules())
            for _ in range(8):
                pool.submit(search, method)
        stepped.append(len(modules))
        return train_step(method, *args, **options)

    alone = train(preset, Squares(), backbone=backbone, progress=False).method.state_dict()
    with ThreadPoolExecutor(8) as pool, monkeypatch.context() as m:
        m.setattr(runs, "train_step", step)
        try:
            beside = train(preset, Squares(), backbone=backbone, progress=False).method.state_dict()
        finally:
            stepped.append(None)  # ends the searches
    assert len(searched) > 8 and not any(searched)
    assert all(torch.equal(beside[name], values) for name, values in alone.items())


PICTOGRAMS = ROOT / "data/weights/pictograms"


@pytest.fixture
def model(tmp_path):
    "A copy of a model that could be of somebody else"
    return Path(shutil.copytree(PICTOGRAMS, tmp_path / "theirs"))


FILES = [p.relative_to(PICTOGRAMS) for folder in (".", "method", "backbone") for p in (PICTOGRAMS / folder).glob("*.*")]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_file_of_a_model_is_a_device_or_too_large(model, file):
    path = model / file
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(LabError):
        load_run(model)
    if path.suffix == ".json":
        path.unlink()
        with open(path, "w") as f:
            f.truncate(2**28)  # without blocks on the disk
        with pytest.raises(LabError):
            load_run(model)


@pytest.mark.parametrize("part, setting", [("backbone", "model_cfg"), ("method", "config")])
def test_a_model_is_built_no_larger_than_its_weights(model, part, setting):
    manifest = model / part / "manifest.json"
    content = json.loads(manifest.read_text())
    numbers = [name for name, value in leaves(content[setting]).items() if type(value) is int]
    assert "text_cfg.layers" in numbers or part == "method"
    peak_mb()
    before = peak_mb()
    for name in numbers[:: 1 if SOAK > 1 else 2]:
        for value in (100_000, 10**9):
            manifest.write_text(json.dumps(vary(content, {f"{setting}.{name}": value})))
            with suppress(LabError):
                load_run(model)
    assert peak_mb() - before < 1500


@pytest.mark.parametrize(
    "kind, command",
    [("data/*.lance", "gallery info"), ("data/*.lance", "serve"), ("*.manifest", "search rot --gallery")],
)
def test_a_flipped_bit_of_a_gallery_is_noticed(gallery, kind, command, capsys):
    file = flipped(gallery, kind)
    assert main([*command.split(), str(gallery)]) == 1
    assert f"not as they were written: {file.parent.name}/{file.name}" in capsys.readouterr().err


def test_a_flipped_bit_of_a_thumbnail_is_noticed_where_it_is_shown(tmp_path):
    with closing(make(tmp_path / "seen", draw(tmp_path / "drawn", 1))) as opened:
        flipped(tmp_path, "thumbnails/*/*.webp")
        with pytest.raises(LabError, match="thumbnail of .* not as it was written"):
            opened.search("rot", "de")._repr_html_()


def flipped(folder, kind):
    "The largest file of a kind, in which one bit has changed"
    file = max(folder.rglob(kind), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)
    return file
