"""What strangers hand in is refused, or costs no more than it may

Each test is of a kind; its members are generated, and more of them with SOAK."""

import io
import os
import random
import re
import struct
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from PIL import Image, TiffImagePlugin

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.visuals import DECODERS, read_picture
from dasd_lab.search.gallery.reading import try_read_visual
from dasd_lab.serve.uploads import uploaded_picture

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
    assert peak_mb() - before < 250, "twelve bytes for each of the most pixels, and some"


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
