"Galleries in memory: search in slices, folders, contact sheets"

import numpy as np
import pytest
import torch
from PIL import Image

from dasd_lab.base.contracts import Caption, RetrievalMethod
from dasd_lab.search.gallery.contact_sheet import contact_sheet, sheet_row
from dasd_lab.search.gallery.in_memory import Gallery


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


def test_search_uses_evaluation_mode_and_restores_training_mode(gallery):
    gallery.method.train()
    gallery.method.modes.clear()
    gallery.search("1 0 0", "de")
    assert gallery.method.modes == {False}
    assert gallery.method.training


def test_a_folder_is_added_and_what_cannot_be_read_is_named(method, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Pictures/sea").mkdir(parents=True)
    plain((255, 0, 0)).save(tmp_path / "Pictures/sea/red.png")
    (tmp_path / "Pictures/broken.jpg").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 of 2 images could not be read"):
        gallery = Gallery(method).add("~/Pictures")
    assert gallery.ids == ["sea/red.png"] and [id for id, _ in gallery.skipped] == ["broken.jpg"]
    gallery.add(tmp_path / "Pictures/sea/red.png", ids=["again"]).add(
        [plain((0, 0, 255)), tmp_path / "Pictures/sea/red.png"]
    )
    assert gallery.ids[1:] == ["again", "picture-00003", "red.png"]
    assert "<img" in gallery.search("1 0 0", "de", k=6)._repr_html_()


def test_sheet_shows_a_missed_target_with_its_rank(gallery, tmp_path):
    worst = gallery.search("1 0 0", "de", k=50).ids[-1]
    row = sheet_row(gallery, "1 0 0", "de", target=worst)
    assert len(row.hits) == 6
    assert row.shown[-1].id == worst
    assert row.target.rank == 50
    assert not row.found
    contact_sheet([row, sheet_row(gallery, "0 1 0", "ar")], tmp_path / "s", note="a note")
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "target image at rank 50" in page and page.count("<img") == 13
    assert page.count('<section dir="ltr">') == 2 and "a note" in page, "digits have no direction"
    assert Image.open(tmp_path / "s.png").width > 900
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.html", "s.png"]
