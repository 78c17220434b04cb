"Galleries on disk: real methods, recall, kills, imports that resume, several embeddings"

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from colours import Named, Reading, Slotted
from PIL import Image

from dasd_lab.backbone.preprocessing import Preprocessing
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.pictograms.gloss import GlossTranslator
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import load_method
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.gallery import reading
from dasd_lab.search.gallery.in_memory import Gallery, caption_features
from dasd_lab.search.on_disk import importing
from dasd_lab.search.on_disk.duplicates import near_duplicates
from dasd_lab.search.on_disk.importing import failures, import_folder
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.stored import StoredGallery, embedding_name

LANGUAGES = "de", "fr", "cs", "zh", "ja", "ar"


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


@pytest.fixture(scope="module")
def dasd():
    return load_run(shipped_run()).eval()


@pytest.fixture(scope="module")
def visuals(corpus, dasd):
    return dasd.encode_visuals(split_columns(dasd, corpus, "test"))


@pytest.fixture(scope="module")
def queries(corpus):
    return [c for language in LANGUAGES for c in corpus.captions("test", language, "human")[:30]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory, corpus, dasd, visuals):
    gallery = StoredGallery(tmp_path_factory.mktemp("g") / "g", dasd, dict(half="integer"))
    gallery.put(corpus.visuals("test").ids, visuals, dict(half=[i % 2 for i in range(1000)]))
    return gallery


# the same results as in memory


def test_all_languages_find_what_a_gallery_in_memory_finds(filled, corpus, dasd, queries):
    memory = Gallery(dasd).extend(list(corpus.visuals("test").ids), split_columns(dasd, corpus, "test"))
    for c in queries[::5]:
        a = memory.search(c.text, c.language, k=10)
        b = filled.search(c.text, c.language, k=10)
        # what is a tie in 16 bits may change places
        assert np.allclose([h.score for h in a], [h.score for h in b], atol=2e-3) and len({*a.ids} & {*b.ids}) >= 9


def test_a_filter_finds_what_is_left_when_the_others_are_taken_away(filled, queries):
    for c in queries[::40]:
        every = [i for i in filled.search(c.text, c.language, k=1000).ids if int(i.split("-")[-1]) % 2]
        found = filled.search(c.text, c.language, k=20, where=dict(half=1)).ids
        assert len({*found} & {*every[:20]}) >= 19


def leccr(dasd):
    return load_method(shipped_run() / "leccr", load_backbone(shipped_run() / "backbone")).eval()


def translated(dasd):
    return Consistent(load_method(shipped_run() / "smalr", dasd.backbone).eval(), GlossTranslator()).eval()


@pytest.mark.parametrize("make", [leccr, translated])
def test_a_score_of_its_own_reranks_what_the_cosine_selects(tmp_path, corpus, dasd, queries, make):
    "With a head of all images the ranking is that of the method; a short head loses little"
    method = make(dasd)
    ids = list(corpus.visuals("test").ids)
    visuals = method.encode_visuals(split_columns(method, corpus, "test"))
    gallery = StoredGallery(tmp_path / "g", method)
    gallery.put(ids, visuals)
    kept = []
    for c in queries[::30]:
        best = method.score(method.encode_captions([c.text], c.language), visuals)[0].sort(descending=True)
        gallery.head = 1000
        hits = gallery.search(c.text, c.language, k=10)
        assert np.allclose([h.score for h in hits], best.values[:10], atol=3e-3)
        assert len(set(hits.ids) & {ids[i] for i in best.indices[:10]}) >= 9
        gallery.head = 200
        kept.append(len(set(gallery.search(c.text, c.language, k=10).ids) & set(hits.ids)) / 10)
    assert np.mean(kept) > 0.9


@pytest.mark.slow
def test_an_index_finds_what_all_cosines_find(tmp_path, dasd, visuals, queries):
    "24,000 noisy images with an index; queries by captions and images, deep pages and filters"
    rng = np.random.default_rng(0)
    base = torch.nn.functional.normalize(visuals["features"], dim=-1).numpy()

    def noisy(x):
        return (x + 0.5 / np.sqrt(x.shape[1]) * rng.standard_normal(x.shape)).astype(np.float32)

    rows = noisy(base[rng.integers(0, len(base), 24_000)])
    engine = LanceEngine(tmp_path / "i", exact_below=5000)
    gallery = StoredGallery(tmp_path / "g", dasd, dict(twelfth="integer"), engine=engine)
    for start in range(0, len(rows), 8000):
        ids = [str(i) for i in range(start, start + 8000)]
        twelfth = dict(twelfth=[int(i) % 12 for i in ids])
        gallery.put(ids, dict(features=torch.from_numpy(rows[start : start + 8000])), twelfth)
    gallery.tidy()
    asked = np.concatenate([caption_features(dasd, queries[:60]).numpy(), noisy(base[:60])])
    cosines = asked @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T
    everything, fifth = np.arange(24_000), np.arange(24_000)[np.arange(24_000) % 12 == 5]
    for k, skip, where, matching, expected in (
        (10, 0, None, everything, 0.97),
        (100, 0, None, everything, 0.97),
        (20, 400, None, everything, 0.9),
        (10, 0, dict(twelfth=5), fifth, 0.97),
    ):
        recalls = []
        for query, of_query in zip(asked[::3], cosines[::3]):
            best = {str(i) for i in matching[np.argsort(-of_query[matching])][skip : skip + k]}
            found = gallery.best(torch.from_numpy(query[None]), k, skip, where)
            recalls.append(len(best & set(found)) / k)
        assert np.mean(recalls) >= expected, (k, skip, where, np.mean(recalls))
    last = gallery.best(torch.from_numpy(asked[:1]), 100, 1950, dict(twelfth=5))
    assert len(last) == 50  # a filtered search ends with the last match


# several embeddings


def seen_with(quick_gelu=False, **preprocessing):
    "Names of colours, by a tower with the same weights and some settings"
    method = Named()
    method.backbone.config = dict(quick_gelu=quick_gelu)
    method.backbone.preprocessing = Preprocessing(8, **preprocessing)
    return method


def test_a_tower_with_other_settings_has_an_embedding_of_its_own(tmp_path, filled, dasd):
    usual = StoredGallery(tmp_path / "g", seen_with()).add([Image.new("RGB", (4, 4), "red")], ["red"])
    assert usual.similar("red").ids == ["red"]
    for other in (seen_with(quick_gelu=True), seen_with(resize_mode="squash")):
        with pytest.raises(LabError, match="embed"):
            StoredGallery(tmp_path / "g", other).search("rot", "de")
    static, smalr = (load_method(shipped_run() / name, dasd.backbone) for name in ("static_adapter", "smalr"))
    assert embedding_name(static) == embedding_name(dasd) != embedding_name(smalr)
    assert len(StoredGallery(filled.folder, static).search("Hund", "de")) == 12


def test_another_method_encodes_the_files_and_resumes(painted, gallery):
    slotted = StoredGallery(gallery.folder, Slotted())
    with pytest.raises(Stop):
        slotted.embed(batch_size=3, progress=two_batches)
    ids = [f"{i:02d}.png" for i in range(12)]
    assert len(slotted.visuals(ids)["id"]) == 6
    assert (slotted.embed(), slotted.embed()) == (6, 0)
    assert np.allclose(slotted.visuals(["00.png"])["features"], [[1.01, 1.01, 1.01]], atol=2e-3)
    assert {*slotted.embeddings} == {slotted.embedding, gallery.embedding} and in_order(gallery) and in_order(slotted)


def test_what_another_method_made_of_a_picture_that_was_replaced_is_forgotten(painted, gallery):
    slotted = StoredGallery(gallery.folder, Slotted())
    assert slotted.embed() == 12
    repaint(painted / "11.png")
    os.utime(painted / "10.png", (1, 1))
    assert import_folder(gallery, painted).changed == 2
    # one was only touched
    assert len(slotted.visuals(["11.png"])["id"]) == 0 and len(slotted.visuals(["10.png"])["id"]) == 1
    gallery.add([painted / "00.png"], ["11.png"], replace=True)
    assert slotted.embed() == 1


def test_a_method_that_reads_descriptions_compares_by_those_of_now(painted, gallery):
    reads = StoredGallery(gallery.folder, Reading())
    gallery.change("03.png", dict(description="abc"))
    reads.embed()

    def slots(i):
        return reads.visuals([i])["slots"][:, 0].tolist()

    assert slots("03.png") == [3.0] and slots("04.png") == [0.0]
    reads.change("03.png", dict(description="abcde"))
    assert slots("03.png") == [5.0]  # at once
    gallery.change(["03.png", "04.png"], dict(description="x"))
    assert slots("03.png") == slots("04.png") == [] and reads.embed() == 2 and slots("04.png") == [1.0]
    repaint(painted / "03.png")
    import_folder(reads, painted)
    assert slots("03.png") == [1.0]  # and keeps what was told
    reads.add([Image.new("RGB", (4, 4))], ["drawn"])
    reads.change("drawn", dict(description="abc"))
    assert slots("drawn") == [0.0]  # no file to look at: as it was seen


# interrupted imports


def two_batches(batches):
    "Progress of a call that is stopped after two batches"
    for n, batch in enumerate(batches):
        if n == 2:
            raise Stop
        yield batch


@pytest.fixture
def read_files(monkeypatch):
    "Files that imports read"
    paths = []
    read_ahead = importing.ReadAhead

    def recorded(sources, batch_size):
        paths.extend(map(str, sources))
        return read_ahead(sources, batch_size)

    monkeypatch.setattr(importing, "ReadAhead", recorded)
    return paths


def test_a_stopped_import_resumes_and_reads_nothing_twice(tmp_path, painted, read_files):
    (painted / "05.png").write_bytes(b"\xff\xd8\xff\xe0 cut")
    gallery = StoredGallery(tmp_path / "g", Named())
    with pytest.raises(Stop):
        import_folder(gallery, painted, batch_size=3, progress=two_batches)
    assert len(gallery) == 5 and set(gallery.ids) == {f"{i:02d}.png" for i in range(5)}
    read_files.clear()
    report = import_folder(gallery, painted)
    assert (report.added, report.unchanged, [*report.failed]) == (6, 5, ["05.png"]) and len(read_files) == 6
    read_files.clear()
    assert import_folder(gallery, painted).unchanged == 11 and not read_files and len(failures(gallery)) == 1
    import_folder(gallery, painted, retry=True)
    assert len(read_files) == 1


class Stop(BaseException):
    "Like a kill"


def stopped(*args):
    raise Stop


def test_thumbnails_are_removed_first(gallery, monkeypatch):
    monkeypatch.setattr(gallery.engine, "remove", stopped)
    with pytest.raises(Stop):
        gallery.delete("00.png")
    # the row is still there, so it can be removed again; a thumbnail alone could not
    assert "00.png" not in gallery.thumbnails and "00.png" in gallery


# imports


@pytest.fixture
def painted(tmp_path):
    "Twelve pictures, from black to red"
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(12):
        Image.new("RGB", (8, 8), (20 * i, 0, 0)).save(folder / f"{i:02d}.png")
    return folder


@pytest.fixture
def gallery(tmp_path, painted):
    made = StoredGallery(tmp_path / "g", Named(), dict(album="text"))
    import_folder(made, painted)
    return made


def repaint(file, colour="blue", size=(9, 9)):
    Image.new("RGB", size, colour).save(file)


def in_order(gallery, text="rot"):
    return gallery.search(text, "de", k=40).ids


def test_whatever_a_decoder_raises_is_listed_and_the_rest_is_taken(tmp_path, painted, monkeypatch):
    exif = Image.Exif()
    exif[0x112] = 6
    Image.new("RGB", (6, 4)).save(painted / "turned.jpg", exif=exif)
    read = reading.read_picture

    def angry(source, *more):
        if str(source.fp.name).endswith("03.png"):
            raise RecursionError("too deep")
        return read(source, *more)

    monkeypatch.setattr(reading, "read_picture", angry)
    with pytest.warns(UserWarning, match="1 of 13"):
        gallery = StoredGallery(tmp_path / "other", Named()).add(painted)
    assert gallery.skipped[0][0] == "03.png" and "RecursionError: too deep" in gallery.skipped[0][1]
    assert gallery.facts(["turned.jpg"])[["width", "height"]].values.tolist() == [[4, 6]]


def test_a_name_that_is_not_in_utf8_is_listed_and_the_rest_is_taken(painted, gallery):
    name = os.fsdecode(os.fsencode(painted) + b"/caf\xe9.png")
    try:
        Path(name).write_bytes((painted / "01.png").read_bytes())
    except OSError:
        pytest.skip("a file system that has no such names")
    repaint(painted / "new.png")
    for n in (1, 0):
        report = import_folder(gallery, painted)
        assert report.added == n and [*report.failed] == [*failures(gallery)] == [r"caf\udce9.png"]
        assert "not in UTF-8" in report.failed[r"caf\udce9.png"] and str(report).encode()
    assert len(import_folder(gallery, painted, prefix="x" * 2000).refused) == 14


def test_linked_and_moved_pictures_are_the_same_pictures(tmp_path, painted, gallery, monkeypatch):
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for file in sorted(painted.iterdir())[:3]:
        (linked / f"link-{file.name}").symlink_to(file)
    assert import_folder(gallery, linked).added == 3
    again = import_folder(gallery, linked)
    assert (again.unchanged, again.failed, again.gone) == (3, {}, ())
    repaint(painted / "00.png")
    assert import_folder(gallery, linked).changed == 1 and in_order(gallery, "blau")[0] == "link-00.png"
    (linked / "link-01.png").unlink()
    assert import_folder(gallery, linked).gone == ("link-01.png",)
    import_folder(gallery, painted)
    moved = tmp_path / "moved"
    os.rename(painted, moved)
    monkeypatch.setattr(importing, "ReadAhead", lambda sources, n: [] if not len(sources) else 1 / 0)
    report = import_folder(gallery, moved)
    assert (report.unchanged, report.failed, report.gone) == (12, {}, ())
    ids = [f"{i:02d}.png" for i in range(12)]
    assert gallery.facts(ids)["source"].tolist() == [str(moved / id) for id in ids]
    other = tmp_path / "other"
    other.mkdir()
    repaint(other / "05.png")
    assert "its id is that of" in import_folder(gallery, other).refused["05.png"]  # another picture


# rules


def test_an_id_is_no_path(painted, gallery, monkeypatch):
    monkeypatch.chdir(painted)  # where '05.png' is a file too
    slotted = StoredGallery(gallery.folder, Slotted())
    for ask in (lambda: slotted.similar("05.png"), lambda: slotted.search("rot", "de", picture="05.png")):
        with pytest.raises(LabError, match=r"'05.png', which has no embedding for 'slotted'"):
            ask()


def test_folders_that_are_something_else_are_left_alone(tmp_path, gallery):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    with pytest.raises(LabError, match="other files"):
        StoredGallery(tmp_path / "mine", Named())
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    for text in ("{", "[]", '{"kind":"other","version":1,"ways":{},"columns":{}}'):
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b/gallery.json").write_text(text)
        with pytest.raises(LabError, match="gallery"):
            StoredGallery(tmp_path / "b", Named())


def test_duplicates_without_an_embedding_are_those_of_the_same_file(painted, gallery):
    (painted / "copy.png").write_bytes((painted / "11.png").read_bytes())
    import_folder(gallery, painted)
    gallery._forget(["11.png"], gallery.embeddings)
    found = near_duplicates(gallery, 0.9999999, where=dict(source=dict(starts=str(painted))))
    assert sorted(found.id) == ["11.png", "copy.png"] and found.cosine.tolist() == pytest.approx([1, 1])
