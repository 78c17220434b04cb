"""Galleries: search in slices, saving, loading, contact sheets."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dasd_lab.contracts import Caption, LabError, RetrievalMethod
from dasd_lab.search.gallery import contact_sheet as sheets
from dasd_lab.search.gallery.contact_sheet import contact_sheet, sheet_row
from dasd_lab.search.gallery.in_memory import Gallery, Hits, best_of_slices
from dasd_lab.search.queries import read_query
from dasd_lab.storage import sha256


class Tower(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))

    @torch.no_grad()
    def encode_pictures(self, pictures):
        colours = [torch.from_numpy(np.asarray(p).astype("float32") / 255).mean((0, 1)) for p in pictures]
        return torch.stack(colours) @ self.weight


class Colours(RetrievalMethod):
    "A caption is a list of three numbers; records the width of slices and the training mode"

    name = "colours"
    languages = ("de", "ar")

    def __init__(self):
        super().__init__()
        self.backbone = Tower()
        self.widest = 0
        self.modes = set()

    def encode_captions(self, captions, language):
        self.modes.add(self.training)
        return torch.tensor([[float(x) for x in c.split()] for c in captions])

    def score(self, text, visuals):
        self.widest = max(self.widest, len(visuals["features"]))
        return super().score(text, visuals)


@pytest.fixture
def method():
    return Colours()


def plain(colour):
    return Image.new("RGB", (8, 8), tuple(int(c) for c in colour))


@pytest.fixture
def gallery(method):
    rng = np.random.default_rng(0)
    return Gallery(method, slice_size=7).add(
        [plain(c) for c in rng.integers(0, 256, (50, 3))],
        captions=[Caption("1 0 0", "de", "picture-00003"), Caption("0 0 1", "ar", "picture-00004")],
    )


def test_search_over_slices_equals_one_sort_over_everything(gallery):
    query = torch.tensor([[0.2, 0.9, 0.1]])
    scores = RetrievalMethod.score(gallery.method, query, gallery.visuals)[0]
    order = scores.argsort(descending=True)[:12]
    hits = gallery.search(".2 .9 .1", "de", k=12)
    assert hits.ids == [gallery.ids[i] for i in order]
    assert [h.rank for h in hits] == list(range(1, 13))
    assert [h.score for h in hits] == pytest.approx(scores[order].tolist(), abs=1e-6)
    assert gallery.method.widest <= 7


@pytest.mark.parametrize("n,k,size", [(1, 1, 1), (10, 3, 1), (10, 3, 4), (10, 10, 3), (10, 99, 3), (1000, 12, 64)])
def test_merged_slices_equal_a_stable_sort(n, k, size):
    x = torch.randint(0, 5, (n,), generator=torch.Generator().manual_seed(n)).float()
    indices, scores = best_of_slices(lambda part: x[part], n, k, size)
    expected = sorted(range(n), key=lambda i: (-x[i].item(), i))[:k]
    assert indices == expected
    assert scores == [x[i].item() for i in expected]


def test_adding_in_batches_changes_nothing(method):
    pictures = [plain(c) for c in np.random.default_rng(1).integers(0, 256, (11, 3))]
    one = Gallery(method).add(pictures, batch_size=100)
    many = Gallery(method).add(pictures[:4], batch_size=3).add(pictures[4:], batch_size=2)
    assert one.ids == many.ids
    assert torch.equal(one.image_features, many.image_features)
    assert one.thumbnails == many.thumbnails


def test_search_uses_evaluation_mode_and_restores_training_mode(gallery):
    gallery.method.train()
    gallery.method.modes.clear()
    gallery.search("1 0 0", "de")
    assert gallery.method.modes == {False}
    assert gallery.method.training


def test_saved_and_loaded_is_the_same(gallery, tmp_path):
    folder = gallery.save(tmp_path / "colours with spaces")
    again = Gallery.load(folder, gallery.method)
    assert again.ids == gallery.ids
    assert again.captions == gallery.captions
    assert again.thumbnails == gallery.thumbnails
    assert again.search("1 0 0", "de").to_frame().equals(gallery.search("1 0 0", "de").to_frame())
    assert again.nearest_captions("picture-00004").ids == gallery.nearest_captions("picture-00004").ids
    assert sorted(p.name for p in tmp_path.iterdir()) == ["colours with spaces"]
    with zipfile.ZipFile(folder / "thumbnails.zip") as z:
        assert len(z.namelist()) == 50
        assert z.testzip() is None


def test_a_saved_gallery_is_replaced(gallery, tmp_path):
    folder = gallery.save(tmp_path / "colours")
    gallery.add([plain((1, 2, 3))], ids=["new"])
    gallery.save(folder)
    assert len(Gallery.load(folder, gallery.method)) == 51
    assert [p.name for p in tmp_path.iterdir()] == ["colours"]


@pytest.mark.parametrize("name", ["features.safetensors", "pictures.json", "thumbnails.zip"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_the_error_names_a_damaged_file(gallery, tmp_path, name, damage):
    folder = gallery.save(tmp_path / "g")
    file = folder / name
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        file.unlink()
    with pytest.raises(LabError, match=name.replace(".", r"\.")):
        Gallery.load(folder, gallery.method)


def test_a_gallery_of_other_weights_is_not_loaded(gallery, tmp_path):
    folder = gallery.save(tmp_path / "g")
    other = Colours()
    with torch.no_grad():
        other.backbone.weight[0, 0] += 0.001
    with pytest.raises(LabError, match="a gallery made with colours"):
        Gallery.load(folder, other)

    class Renamed(Colours):
        name = "renamed"

    with pytest.raises(LabError, match="renamed"):
        Gallery.load(folder, Renamed())


def test_a_pickle_is_never_opened(gallery, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    folder = gallery.save(tmp_path / "g")
    torch.save(Bomb(), folder / "features.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["features.safetensors"] = sha256(folder / "features.safetensors")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LabError, match="pickle"):
        Gallery.load(folder, gallery.method)
    assert not (tmp_path / "exploded").exists()
    torch.save([1], tmp_path / "gallery.pt")
    with pytest.raises(LabError):
        Gallery.load(tmp_path / "gallery.pt", gallery.method)


def test_a_full_disk_leaves_the_old_gallery(method, tmp_path):
    "With a file size limit of the operating system"
    gallery = Gallery(method).add([plain((i, 0, 0)) for i in range(5)])
    gallery.save(tmp_path / "g")
    gallery.add([plain((i, 9, 0)) for i in range(400)])
    resource = pytest.importorskip("resource", reason="no file size limits on this system")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (100, 6000, 30_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(LabError, match="Nothing that was there is lost"):
                gallery.save(tmp_path / "g")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(Gallery.load(tmp_path / "g", method)) == 5
        assert [p.name for p in tmp_path.iterdir()] == ["g"]
    gallery.save(tmp_path / "g")
    assert len(Gallery.load(tmp_path / "g", method)) == 405


def test_saving_never_replaces_something_else(gallery, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.txt").write_text("x")
    (tmp_path / "file").write_text("y")
    for name in ("thesis", "file"):
        with pytest.raises(LabError, match="something else"):
            gallery.save(tmp_path / name)
    assert (tmp_path / "thesis/chapter.txt").read_text() == "x"
    assert (tmp_path / "file").read_text() == "y"
    (tmp_path / "empty").mkdir()
    gallery.save(tmp_path / "empty")
    with pytest.raises(LabError, match="empty gallery"):
        Gallery(gallery.method).save(tmp_path / "n")


def test_hits_as_html_and_as_a_table(gallery):
    page = gallery.search("1 0 0", "ar", k=3)._repr_html_()
    assert page.count("<img") == 3
    assert page.count('src="data:image/webp') == 3
    assert 'lang="ar"' in page
    assert 'dir="rtl"' in page
    assert 'dir="auto"' in page
    assert "http" not in page
    hits = gallery.search("1 0 0", "de", k=3)
    assert list(hits.to_frame().columns) == ["rank", "id", "score"]
    with_markup = Hits(hits.hits, read_query("<b>", gallery.method, "de"))
    assert "&lt;b&gt;" in with_markup._repr_html_()


def test_sheet_shows_a_missed_target_with_its_rank(gallery, tmp_path):
    worst = gallery.search("1 0 0", "de", k=50).ids[-1]
    row = sheet_row(gallery, "1 0 0", "de", target=worst)
    assert len(row.hits) == 6
    assert row.shown[-1].id == worst
    assert row.target.rank == 50
    assert not row.found
    rows = [row, sheet_row(gallery, "0 1 0", "ar")]
    made = contact_sheet(rows, tmp_path / "s.png", tmp_path / "s.html", note="a note")
    page = made.html.read_text(encoding="utf-8")
    assert "target image at rank 50" in page
    assert page.count("<img") == 13
    assert '<section dir="rtl">' in page
    assert "a note" in page
    assert Image.open(made.png).width > 900
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.html", "s.png"]


def test_a_message_replaces_a_query_without_a_font(gallery, tmp_path, monkeypatch):
    monkeypatch.setattr(sheets, "asked_fonts", lambda *a: ())
    monkeypatch.setattr(sheets, "usual_fonts", lambda: ())
    sheets.font_for.cache_clear()
    monkeypatch.setattr(gallery.method, "encode_captions", lambda captions, language: torch.ones(len(captions), 3))
    try:
        row = sheet_row(gallery, "كلب على الشاطئ", "ar")
        query = sheets.query_lines(row, 900)
        assert not query.drawn
        assert query.language == "en"
        assert "no font on this machine" in " ".join(query.lines)
        made = contact_sheet([row, sheet_row(gallery, "Ein Hund", "de")], tmp_path / "s.png", tmp_path / "s.html")
        assert made.undrawn == ("ar",)
        assert "كلب على الشاطئ" in made.html.read_text(encoding="utf-8")
    finally:
        sheets.font_for.cache_clear()
