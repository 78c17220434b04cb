"Folders and files of photographs as phones, cameras, servers and people leave them"

import os
import unicodedata

import numpy as np
import pytest
from colours import Named
from PIL import Image

from dasd_lab.base.contracts import LabError
from dasd_lab.commands import galleries
from dasd_lab.corpora.locations import files_in
from dasd_lab.corpora.visuals import read_picture
from dasd_lab.search.gallery.inputs import folder_content
from dasd_lab.search.gallery.reading import read_visual
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.stored import StoredGallery


def paint(path, colour="red", size=(8, 6), **options):
    "Write an image of one colour"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    "Two folders of images"
    for i, name in enumerate(("2020/a.png", "2020/b.png", "2021/c.png")):
        paint(tmp_path / "in" / name, (0, 90 * i, 9))
    return tmp_path / "in"


@pytest.fixture
def gallery(tmp_path, folder):
    "A gallery of them"
    opened = StoredGallery(tmp_path / "g", Named())
    import_folder(opened, folder)
    return opened


# folders


def test_links_are_followed_once(tmp_path, folder):
    paint(tmp_path / "else/d.png")
    (folder / "linked").symlink_to(tmp_path / "else")
    (folder / "2020/up").symlink_to(folder)
    assert [*folder_content(folder).files] == ["2020/a.png", "2020/b.png", "2021/c.png", "linked/d.png"]


@pytest.mark.parametrize(
    "name",
    [
        "@eaDir/a.jpg/SYNOPHOTO_THUMB_XL.jpg",
        "#recycle/a.jpg",
        "$RECYCLE.BIN/a.jpg",
        "lost+found/a.jpg",
        ".Trash-1000/a.jpg",
    ]
    + [
        ".thumbnails/a.jpg",
        "@Recycle/a.jpg",
        "__MACOSX/._a.jpg",
        "System Volume Information/a.jpg",
        "x/#snapshot/a.jpg",
    ],
)
def test_what_systems_keep_for_themselves_is_left_out(folder, name):
    paint(folder / name)
    assert len(folder_content(folder).files) == len(files_in(folder)) == 3


def test_patterns_leave_out(folder):
    assert [*folder_content(folder, ["2020"]).files] == ["2021/c.png"]
    assert [*folder_content(folder, ["*.png"]).files] == []
    assert [*folder_content(folder, ["2020/a*", "c.*"]).files] == ["2020/b.png"]


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="root can become another user")
def test_folders_that_cannot_be_opened_are_named(tmp_path, folder, gallery):
    for place in (*tmp_path.parents, tmp_path):
        place.chmod(place.stat().st_mode | 0o755)
    (folder / "2020").chmod(0o700)
    os.seteuid(65534)
    try:
        content = folder_content(folder)
    finally:
        os.seteuid(0)
    assert [*content.unreadable] == ["2020"] and [*content.files] == ["2021/c.png"]


def test_what_was_renamed_is_neither_gone_nor_encoded_again(folder, gallery):
    (folder / "2020").rename(folder / "summer")
    (folder / "2021/c.png").rename(folder / "2021/sea.png")
    before = gallery.visuals(["2020/b.png"])["features"]
    report = import_folder(gallery, folder, remove_gone=True)
    assert (report.moved, report.added, report.gone) == (3, 0, ())
    assert sorted(gallery.ids) == ["2021/sea.png", "summer/a.png", "summer/b.png"]
    assert (gallery.visuals(["summer/b.png"])["features"] == before).all()
    assert gallery.thumbnails["summer/b.png"] and "2020/b.png" not in gallery.thumbnails
    assert gallery.facts(["summer/b.png"]).source.item() == str((folder / "summer/b.png").resolve())


def test_an_empty_folder_may_be_a_disk_that_is_not_connected(tmp_path, folder, gallery):
    (folder / "2020").rename(tmp_path / "away")
    with pytest.raises(LabError, match="--forget 2020"):
        import_folder(gallery, folder, remove_gone=True)
    report = import_folder(gallery, folder)
    assert "2 gone" in repr(report) and "removed" not in repr(report) and len(gallery) == 3
    report = import_folder(gallery, folder, remove_gone=["2020"])
    assert "2 removed" in repr(report) and "gone" not in repr(report) and len(gallery) == 1


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_are_compared_normalised(folder, gallery, form):
    names = [unicodedata.normalize(form, "Café.png"), "two\nlines.png"]
    for i, name in enumerate(names):
        paint(folder / name, (9, 9, 100 + i))
    import_folder(gallery, folder)
    for given in ("Café.png", "Cafe\u0301.png", r"two\nlines.png", "two lines.png"):
        assert galleries._checked_ids(gallery, [given]) == [names["two" in given]]


# models and dates


def test_each_model_has_its_own_count(folder, gallery):
    other = StoredGallery(gallery.folder, Named())
    other.embedding = "0123456789ab"
    assert (gallery.n_embedded(), other.n_embedded()) == (3, 0)
    other.embed()
    paint(folder / "new.png", "blue")
    import_folder(gallery, folder)
    assert (gallery.n_embedded(), other.n_embedded(), other.n_embedded(gallery.embedding)) == (4, 3, 4)


def test_photographs_are_found_by_their_date(folder, gallery):
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9003] = "2021:05:31 23:59:58"
    paint(folder / "dated.jpg", "blue", exif=exif)
    import_folder(gallery, folder)
    for where in ({"year": {"from": 2020}}, {"year": 2021}, {"taken": "2021-05"}, {"taken": {"to": "2021-05-31"}}):
        assert gallery.search("blau", "de", where=where).ids == ["dated.jpg"]
    assert not gallery.search("blau", "de", where={"taken": {"from": "2021-06"}}).ids
    assert len(gallery.search("blau", "de", where={"modified": {"from": "2024-01-01"}})) == 4


# files


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.jfif", "JPEG"), ("a.jpe", "JPEG"), ("a", "PNG"), ("a.png", "JPEG"), ("a.avif", "AVIF"), ("a.jp2", "JPEG2000")],
)
def test_what_a_decoder_reads_is_read_whatever_its_name(tmp_path, name, form):
    paint(tmp_path / name, format=form)
    paint(tmp_path / "vector.eps")
    (tmp_path / "notes.txt").write_text("x")
    content = folder_content(tmp_path)
    assert [*content.files] == [name]
    assert content.others == {".txt": 1, ".eps": 1}
    assert read_picture(tmp_path / name).getpixel((3, 3))[0] > 240


def test_another_format_names_its_package(tmp_path, monkeypatch):
    pytest.importorskip("pillow_heif")
    read = paint(tmp_path / "a.heic")
    assert read_picture(read).getpixel((3, 3))[0] > 240
    monkeypatch.setattr("dasd_lab.corpora.visuals.DECODERS", ("JPEG", "PNG"))
    monkeypatch.setattr("dasd_lab.base.foundation.find_spec", lambda name: None)
    assert [*folder_content(tmp_path).files] == [read.name]
    with pytest.raises(LabError, match="decoders"):
        read_picture(read)


def test_limits_are_of_what_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("dasd_lab.corpora.visuals.MAX_PIXELS", 10_000_000)
    found = read_visual(paint(tmp_path / "a.jpg", size=(4000, 3000)))
    assert max(found.visual.size) == 1024 and found.facts["width"] == 4000
    paint(tmp_path / "b.jpg", size=(4000, 3000), progressive=True)
    for slow in (tmp_path / "b.jpg", paint(tmp_path / "c.png", size=(4000, 3000))):
        with pytest.raises(LabError, match="million"):
            read_visual(slow)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "AVIF"])
def test_animations_are_clips(tmp_path, form):
    frames = [Image.new("RGB", (8, 6), (40 * i, 0, 0)) for i in range(6)]
    frames[0].save(tmp_path / "a", form, save_all=True, append_images=frames[1:], lossless=True)
    found = read_visual(tmp_path / "a")
    assert found.facts["kind"] == "clip" and found.visual.frames.shape == (6, 6, 8, 3)
    assert np.allclose(found.visual.frames[:, 2, 2, 0], [40 * i for i in range(6)], atol=9)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["u2", "f4"])
def test_values_of_any_width_are_stretched(tmp_path, order, kind):
    values = np.array([[500, 1000], [2000, 4500]], order + kind)
    mode = {"u2": "I;16" + "B" * (order == ">"), "f4": "F"}[kind]
    native = values if kind == "u2" else values.astype("f4")
    Image.frombytes(mode, (2, 2), native.tobytes()).save(tmp_path / "a.tif")
    assert np.asarray(read_picture(tmp_path / "a.tif"))[..., 0].tolist() == [[0, 31], [95, 255]]


def test_pixels_without_a_value_do_not_count(tmp_path):
    values = np.array([[-9999, 1000, np.nan], [2000, 4500, np.inf]], "f4")
    Image.fromarray(values).save(tmp_path / "a.tif", tiffinfo={42113: "-9999"})
    assert np.asarray(read_picture(tmp_path / "a.tif"))[..., 0].tolist() == [[0, 0, 0], [72, 255, 0]]


@pytest.mark.parametrize("given", ["path", "bytes", "file"])
def test_a_jpeg_of_any_size_is_opened_to_be_decoded_at_a_fraction_of_it(tmp_path, monkeypatch, given):
    Image.new("RGB", (640, 480), "teal").save(tmp_path / "phone.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 640 * 480 // 3)  # beyond twice of it, Pillow refuses
    with open(tmp_path / "phone.jpg", "rb") as file:
        source = dict(path=tmp_path / "phone.jpg", bytes=(tmp_path / "phone.jpg").read_bytes(), file=file)[given]
        assert read_picture(source, 80).size == (80, 60)
