"A gallery on disk keeps its promises: real methods, recall, kills, imports that go on, several ways of comparing"

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from colours import Named, Reading, Slotted
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.search.explain.consistent_queries import Consistent, GlossTranslator
from dasd_lab.search.gallery.in_memory import Gallery, caption_features
from dasd_lab.search.on_disk import importing, reading
from dasd_lab.search.on_disk.importing import failures, import_folder
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.stored import StoredGallery, embedding_name
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

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
    yield gallery
    gallery.close()


# the same answers as in memory


def test_all_languages_find_what_a_gallery_in_memory_finds(filled, corpus, dasd, queries):
    memory = Gallery(dasd)
    memory.extend(corpus.visuals("test").ids, split_columns(dasd, corpus, "test"), {}, [])
    for c in queries[::5]:
        a = memory.search(c.text, c.language, k=10)
        b = filled.search(c.text, c.language, k=10)
        # what is a tie in 16 bits may change places
        assert np.allclose([h.score for h in a], [h.score for h in b], atol=2e-3) and len({*a.ids} & {*b.ids}) >= 9


def test_a_filter_finds_what_is_left_when_the_others_are_taken_away(filled, queries):
    for c in queries[::20]:
        every = [i for i in filled.search(c.text, c.language, k=1000).ids if int(i.split("-")[-1]) % 2]
        found = filled.search(c.text, c.language, k=20, where=dict(half=1)).ids
        assert len({*found} & {*every[:20]}) >= 19


def test_slots_are_compared_where_the_cosine_has_chosen(tmp_path, corpus, queries):
    "LECCR's own score on a head that is all pictures is its score in memory; a short head loses little"
    method = load_method(shipped_run() / "leccr", load_backbone(shipped_run() / "backbone")).eval()
    seen = method.encode_visuals(split_columns(method, corpus, "test"))
    ids = corpus.visuals("test").ids
    gallery = StoredGallery(tmp_path / "g", method, head=1000)
    gallery.put(ids, seen)
    kept = []
    for c in queries[::9]:
        scores = method.score(method.encode_captions([c.text], c.language), seen)[0]
        best = [ids[i] for i in scores.argsort(descending=True)[:10]]
        gallery.head = 1000
        full = gallery.search(c.text, c.language, k=10)
        assert len({*full.ids} & {*best}) >= 9 and np.allclose(
            [h.score for h in full], scores.sort(descending=True).values[:10], atol=3e-3
        )
        gallery.head = 100
        kept.append(len({*gallery.search(c.text, c.language, k=10).ids} & {*full.ids}) / 10)
    assert np.mean(kept) > 0.97


def test_several_languages_at_once_are_compared_where_the_cosine_has_chosen(tmp_path, corpus, dasd, queries):
    "SMALR's consistency: a head that is all pictures gives its own score, and the gallery's vectors are those of SMALR alone"
    smalr = load_method(shipped_run() / "smalr", dasd.backbone).eval()
    both = Consistent(smalr, GlossTranslator()).eval()
    ids = corpus.visuals("test").ids
    seen = smalr.encode_visuals(split_columns(smalr, corpus, "test"))
    assert embedding_name(both) == embedding_name(smalr)
    gallery = StoredGallery(tmp_path / "g", both, head=1000)
    gallery.put(ids, seen)
    alone = gallery.with_method(smalr)
    moved = 0
    for c in queries[::9]:
        scores = both.score(both.encode_captions([c.text], c.language), seen)[0]
        full = gallery.search(c.text, c.language, k=10)
        assert (
            np.allclose([h.score for h in full], scores.sort(descending=True).values[:10], atol=3e-3)
            and len({*full.ids} & {ids[i] for i in scores.argsort(descending=True)[:10]}) >= 9
        )
        moved += full.ids != alone.search(c.text, c.language, k=10).ids
    assert moved > 3


def test_an_index_finds_what_all_cosines_find(tmp_path, dasd, visuals, queries):
    "Captions and pictures, among 24,000 pictures of which many are alike"
    rng = np.random.default_rng(0)
    base = torch.nn.functional.normalize(visuals["features"], dim=-1).numpy()

    def noisy(x):
        return (x + 0.5 / np.sqrt(x.shape[1]) * rng.standard_normal(x.shape)).astype(np.float32)

    rows = noisy(base[rng.integers(0, len(base), 24_000)])
    gallery = StoredGallery(
        tmp_path / "g", dasd, dict(twelfth="integer"), engine=LanceEngine(tmp_path / "i", exact_below=5000)
    )
    names = [str(i) for i in range(len(rows))]
    for a in range(0, len(rows), 8000):
        gallery.put(
            names[a : a + 8000],
            dict(features=torch.from_numpy(rows[a : a + 8000])),
            dict(twelfth=[i % 12 for i in range(a, a + 8000)]),
        )
    gallery.tidy()
    assert gallery.engine.indexed(f"vector_{gallery.embedding}") == len(rows)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    asked = np.concatenate([caption_features(dasd, queries[:60]).numpy(), noisy(base[:60])])
    recall = []
    for q in asked:
        best = {str(i) for i in np.argsort(-(unit @ q))[:10]}
        recall.append(len(best & {*gallery.best(torch.from_numpy(q[None]), 10)[0]}) / 10)
    assert np.mean(recall[:60]) >= 0.99 and np.mean(recall[60:]) >= 0.99, (np.mean(recall[:60]), np.mean(recall[60:]))
    cosines = asked[::3] @ unit.T
    there = np.arange(len(rows)) % 12 == 5  # later pages and what a filter leaves are found as well
    for k, skip, where, may in (
        (100, 0, None, there | True),
        (20, 400, None, there | True),
        (10, 0, dict(twelfth=5), there),
        (50, 0, dict(twelfth=5), there),
    ):
        shares = [
            len(
                {*gallery.best(torch.from_numpy(q[None]), k, skip, where)[0]}
                & {str(i) for i in np.flatnonzero(may)[np.argsort(-c[may])[skip : skip + k]]}
            )
            / k
            for q, c in zip(asked[::3], cosines)
        ]
        assert np.mean(shares) >= (0.98 if not skip else 0.93), (k, skip, where, np.mean(shares))
    # nothing that fits is left out
    assert [
        len(gallery.best(torch.from_numpy(asked[:1]), 100, skip, dict(twelfth=5))[0]) for skip in (1900, 1950, 2000)
    ] == [100, 50, 0]


# several ways of comparing


def test_runs_on_one_frozen_tower_share_the_vectors(filled, dasd, queries):
    static = load_method(shipped_run() / "static_adapter", dasd.backbone).eval()
    smalr = load_method(shipped_run() / "smalr", dasd.backbone).eval()
    assert embedding_name(static) == embedding_name(dasd) != embedding_name(smalr)
    other = filled.with_method(static)
    c = queries[0]
    assert c.visual_id in other.search(c.text, c.language, k=20).ids and len(filled.embeddings) == 1
    with pytest.raises(LabError, match="embed"):
        filled.with_method(smalr).search("Hund", "de")


def test_another_method_looks_at_the_files_again_and_goes_on_where_it_was(tmp_path, corpus, dasd):
    folder = tmp_path / "p"
    folder.mkdir()
    visuals = corpus.visuals("test")
    [Image.fromarray(visuals[i].frames[0]).save(folder / f"{i:02d}.png") for i in range(40)]
    gallery = StoredGallery(tmp_path / "g", dasd)
    import_folder(gallery, folder)
    smalr = gallery.with_method(load_method(shipped_run() / "smalr", dasd.backbone))

    class Stop(Exception):
        pass

    def twice(batches):
        for n, b in enumerate(batches):
            if n == 2:
                raise Stop
            yield b

    with pytest.raises(Stop):
        smalr.embed(batch_size=10, progress=twice)
    assert (
        len(smalr.visuals([f"{i:02d}.png" for i in range(40)])["id"]) == 20
        and smalr.embed() == 20
        and smalr.embed() == 0
    )
    told = smalr.method.encode_visuals(smalr.method.visual_columns([visuals[i] for i in range(40)]))["features"]
    kept = smalr.visuals([f"{i:02d}.png" for i in range(40)])["features"]
    torch.testing.assert_close(kept, told, atol=2e-3, rtol=2e-3)


# kills


class Killable:
    "A process that has all imported, and does what it is told in children of its own"

    def __init__(self):
        self.parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("colours.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
        )

    def start(self, name, *given):
        self.parent.stdin.write(json.dumps([name, *map(str, given[:1]), *given[1:]]) + "\n")
        self.parent.stdin.flush()
        self.child = int(self.parent.stdout.readline())

    def hear(self, n):
        return [self.parent.stdout.readline().strip() for _ in range(n)]

    def kill(self):
        os.kill(self.child, signal.SIGKILL)
        return list(iter(lambda: self.parent.stdout.readline().strip(), "ended"))  # what was said before


@pytest.fixture(scope="module")
def killable():
    made = Killable()
    yield made
    made.parent.kill()
    made.parent.wait()
    made.parent.stdin.close()
    made.parent.stdout.close()


def test_what_was_acknowledged_before_a_kill_is_there_and_every_batch_is_whole(tmp_path, killable):
    # another moment each time
    rng = np.random.default_rng()
    last = []
    for first in (0, None):
        killable.start("steps", tmp_path / "g", last[0] + 2 if first is None else 0)
        said = killable.hear(int(rng.integers(4, 12)))
        time.sleep(rng.uniform(0, 0.1))
        last.append(int((said + killable.kill())[-1]))
    gallery = StoredGallery(tmp_path / "g", Named())
    there = {}
    vector = f"vector_{gallery.embedding}"
    for rows in gallery.engine.walk(["width", vector]):
        for i, w, v in zip(rows["id"], rows["width"], rows[vector]):
            step = int(i.split("-")[0])
            there.setdefault(step, set()).add(i)
            assert w == step and (v == step + 1).all() and gallery.thumbnails[i] == str(step).encode()
    # the steps that the kills fell into, and which nobody was told of
    assert set(range(last[1] + 1)) - set(there) <= {last[0] + 1} and set(there) <= set(range(last[1] + 2)), (
        last,
        sorted(there),
    )
    assert all(v == {f"{s}-{i}" for i in range(1 + 7 * (s % 5))} for s, v in there.items())
    gallery.put(["new"], dict(features=torch.randn(1, 3)))
    assert "new" in gallery


def test_an_import_that_was_killed_goes_on_and_reads_nothing_twice(tmp_path, killable, monkeypatch):
    folder = tmp_path / "p"
    for i in range(100):
        (folder / f"{i % 4}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (2 * i, 0, 90)).save(folder / f"{i % 4}/{i:03d}.jpg")
    for i in (5, 45, 89):
        (folder / f"{i % 4}/{i:03d}.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    killable.start("bring", tmp_path / "g", str(folder))
    assert killable.hear(3) == ["."] * 3
    killable.kill()
    gallery = StoredGallery(tmp_path / "g", Named())
    before = {i for rows in gallery.engine.walk([]) for i in rows["id"]}
    assert len(before) >= 3 * 16 - 3
    read = []
    opened = importing.ReadAhead
    monkeypatch.setattr(importing, "ReadAhead", lambda sources, n: read.extend(map(str, sources)) or opened(sources, n))
    report = import_folder(gallery, folder)
    assert (
        len(gallery) == 97 == report.added + report.unchanged
        and report.unchanged == len(before)
        and {*report.failed} == {"1/005.jpg", "1/045.jpg", "1/089.jpg"}
        and not {str((folder / i).resolve()) for i in before} & {*read}
    )
    read.clear()
    assert import_folder(gallery, folder).unchanged == 97 and not read and len(failures(gallery)) == 3
    import_folder(gallery, folder, retry=True)
    assert len(read) == 3


class Stop(BaseException):
    "As a kill"


def test_an_index_that_an_import_was_stopped_at_is_made_by_the_next(tmp_path, painted, monkeypatch):
    gallery = StoredGallery(tmp_path / "g", Named())
    made = []
    tidy = gallery.engine.tidy

    def stopped():
        raise Stop

    monkeypatch.setattr(gallery.engine, "tidy", stopped)
    with pytest.raises(Stop):
        import_folder(gallery, painted)
    monkeypatch.setattr(gallery.engine, "tidy", lambda: made.append(tidy()))
    assert import_folder(gallery, painted).unchanged == 12 and made
    slotted = gallery.with_method(Slotted())
    monkeypatch.setattr(gallery.engine, "tidy", stopped)
    with pytest.raises(Stop):
        slotted.embed()
    monkeypatch.setattr(gallery.engine, "tidy", lambda: made.append(tidy()))
    assert slotted.embed() == 0 and len(made) == 2


def test_a_gallery_whose_making_was_stopped_can_be_opened(tmp_path, monkeypatch):
    add = LanceEngine.add_column
    for n in (0, 3, 9):  # columns that were there when it was stopped
        left = [n]

        def stopped(self, column):
            if not left[0]:
                raise Stop
            left[0] -= 1
            add(self, column)

        monkeypatch.setattr(LanceEngine, "add_column", stopped)
        with pytest.raises(Stop):
            StoredGallery(tmp_path / f"{n}", Named(), dict(shade="integer"))
        monkeypatch.setattr(LanceEngine, "add_column", add)
        StoredGallery(tmp_path / f"{n}", Named(), dict(shade="integer")).add(
            [Image.new("RGB", (4, 4), "red")], ["a"], dict(shade=[1])
        ).close()


def test_a_second_writer_waits_and_is_told(tmp_path):
    a = LanceEngine(tmp_path / "i")
    b = LanceEngine(tmp_path / "i", patience_s=0.2)
    with a._writing(), pytest.raises(LabError, match="another process"):
        b.remove(["x"])
    b.remove(["x"])


# real folders


@pytest.fixture
def painted(tmp_path):
    "Twelve pictures, from black to red"
    folder = tmp_path / "pictures"
    folder.mkdir()
    [Image.new("RGB", (8, 8), (20 * i, 0, 0)).save(folder / f"{i:02d}.png") for i in range(12)]
    return folder


@pytest.fixture
def gallery(tmp_path, painted):
    made = StoredGallery(tmp_path / "g", Named(), dict(album="text"))
    import_folder(made, painted)
    yield made
    made.close()


def repaint(file, colour="blue", size=(9, 9)):
    Image.new("RGB", size, colour).save(file)


def in_order(gallery, text="rot"):
    return gallery.search(text, "de", k=40).ids


def test_whatever_a_decoder_raises_is_listed_and_the_rest_is_taken(tmp_path, painted, gallery, monkeypatch):
    exif = Image.Exif()
    exif[0x112] = 6
    exif[0x11A] = 72.0
    Image.new("RGB", (6, 4)).save(painted / "odd.jpg", exif=exif)
    raw = bytearray((painted / "odd.jpg").read_bytes())
    raw[raw.index(b"Exif") + 29] = 1
    (painted / "odd.jpg").write_bytes(raw)
    wordy = PngInfo()
    wordy.add_text("prompt", "x" * 2_000_000, zip=True)
    Image.new("RGB", (4, 4)).save(painted / "wordy.png", pnginfo=wordy)
    repaint(painted / "angry.png")
    read = reading.read_picture

    def angry(source, *more):
        if str(getattr(source, "name", "")).endswith("angry.png"):
            raise RecursionError("too deep")
        return read(source, *more)

    monkeypatch.setattr(reading, "read_picture", angry)
    report = import_folder(gallery, painted)
    assert (
        report.added == 1
        and {*report.failed} == {"wordy.png", "angry.png"}
        and "wordy.png cannot be opened" in report.failed["wordy.png"]
        and "RecursionError: too deep" in report.failed["angry.png"]
    )
    assert gallery.facts(["odd.jpg"])[["width", "height"]].values.tolist() == [[4, 6]]  # turned all the same
    with pytest.warns(UserWarning, match="2 of 15"):
        assert [i for i, _ in StoredGallery(tmp_path / "other", Named()).add(painted, skip_bad=True).skipped] == [
            "angry.png",
            "wordy.png",
        ]


def test_a_name_that_is_not_in_utf8_is_listed_and_the_rest_is_taken(tmp_path, painted, gallery):
    name = os.fsdecode(os.fsencode(painted) + b"/caf\xe9.png")
    try:
        Path(name).write_bytes((painted / "01.png").read_bytes())
    except OSError:
        pytest.skip("a file system that has no such names")
    repaint(painted / "new.png")
    for n in (1, 0):
        report = import_folder(gallery, painted)
        assert (
            report.added == n
            and [*report.failed] == [r"caf\udce9.png"]
            and "not in UTF-8" in report.failed[r"caf\udce9.png"]
            and str(report).encode()
        )
    assert [*failures(gallery)] == [r"caf\udce9.png"] and (gallery.folder / "failed.jsonl").read_bytes().decode()
    with pytest.warns(UserWarning):
        assert [i for i, _ in StoredGallery(tmp_path / "other", Named()).add(painted, skip_bad=True).skipped] == [
            r"caf\udce9.png"
        ]
    with pytest.raises(LabError, match="not in UTF-8"):
        StoredGallery(tmp_path / "third", Named()).add(painted)
    long = import_folder(gallery, painted, prefix="x" * 2000)
    # nor does a name that is too long
    assert len(long.failed) == 14 and "longer than 2,000" in [*long.failed.values()][0]
    os.rename(painted, odd := os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with pytest.raises(LabError, match="Rename the folder"):
        import_folder(gallery, odd)


def test_what_another_method_made_of_a_picture_that_was_replaced_is_forgotten(painted, gallery):
    slotted = gallery.with_method(Slotted())
    assert slotted.embed() == 12
    repaint(painted / "11.png")
    os.utime(painted / "10.png", (1, 1))
    assert import_folder(gallery, painted).changed == 2
    # one was only touched
    assert len(slotted.visuals(["11.png"])["id"]) == 0 and len(slotted.visuals(["10.png"])["id"]) == 1
    assert slotted.embed() == 1 and np.allclose(
        slotted.visuals(["11.png"])["features"], [[1.01, 1.01, 0.01]], atol=2e-3
    )
    gallery.add([painted / "00.png"], ["11.png"], replace=True)
    assert slotted.embed() == 1


def test_what_people_wrote_of_a_picture_outlives_a_change_of_its_file(painted, gallery):
    gallery.update("03.png", description="a dark red")
    gallery.update("03.png", album="reds")
    repaint(painted / "03.png")
    import_folder(gallery, painted)

    def told():
        return gallery.facts(["03.png"])[["description", "album"]].values.tolist()

    assert told() == [["a dark red", "reds"]]
    gallery.add([painted / "04.png"], ["03.png"], replace=True)
    assert told() == [["a dark red", "reds"]]
    gallery.add([painted / "04.png", painted / "05.png"], ["03.png", "04.png"], descriptions=["", "new"], replace=True)
    assert told() == [["a dark red", "reds"]] and gallery.facts(["04.png"])["description"].item() == "new"


def test_a_method_that_reads_descriptions_compares_by_those_of_now(painted, gallery):
    reads = gallery.with_method(Reading())
    gallery.update("03.png", description="abc")
    reads.embed()

    def slots(i):
        return reads.visuals([i])["slots"][:, 0].tolist()

    assert slots("03.png") == [3.0] and slots("04.png") == [0.0]
    reads.update("03.png", description="abcde")
    assert slots("03.png") == [5.0]  # at once
    gallery.update(["03.png", "04.png"], description="x")
    assert slots("03.png") == slots("04.png") == [] and reads.embed() == 2 and slots("04.png") == [1.0]
    repaint(painted / "03.png")
    import_folder(reads, painted)
    assert slots("03.png") == [1.0]  # and keeps what was told
    reads.add([Image.new("RGB", (4, 4))], ["drawn"])
    reads.update("drawn", description="abc")
    assert slots("drawn") == [0.0]  # no file to look at: as it was seen


def test_linked_and_moved_pictures_are_the_same_pictures(tmp_path, painted, gallery, monkeypatch):
    linked = tmp_path / "snapshot"
    linked.mkdir()
    [(linked / f"link-{f.name}").symlink_to(f) for f in sorted(painted.iterdir())[:3]]
    assert import_folder(gallery, linked).added == 3
    again = import_folder(gallery, linked)
    assert (again.unchanged, again.failed, again.gone) == (3, {}, ())
    gallery.engine.put(["link-00.png"], dict(source=[str(painted / "00.png")]))
    # as galleries kept it before
    assert import_folder(gallery, linked).unchanged == 3 and gallery.facts(["link-00.png"])["source"].item() == str(
        linked / "link-00.png"
    )
    repaint(painted / "00.png")
    assert import_folder(gallery, linked).changed == 1 and in_order(gallery, "blau")[0] == "link-00.png"
    (linked / "link-01.png").unlink()
    assert import_folder(gallery, linked).gone == ("link-01.png",)
    import_folder(gallery, painted)
    moved = tmp_path / "moved"
    os.rename(painted, moved)
    monkeypatch.setattr(importing, "ReadAhead", lambda sources, n: [] if not len(sources) else 1 / 0)
    report = import_folder(gallery, moved)
    assert (report.unchanged, report.failed, report.gone) == (12, {}, ()) and {
        *gallery.facts([f"{i:02d}.png" for i in range(12)])["source"]
    } == {str(moved / f"{i:02d}.png") for i in range(12)}
    other = tmp_path / "other"
    other.mkdir()
    repaint(other / "05.png")
    assert "its id is that of" in import_folder(gallery, other).failed["05.png"]  # another picture
    os.rename(moved / "05.png", tmp_path / "away.png")
    # of another size: not the one that was moved
    assert "its id is that of" in import_folder(gallery, other).failed["05.png"]


def test_a_disk_that_is_not_there_empties_no_gallery(tmp_path, painted, gallery):
    os.rename(painted, tmp_path / "away")
    painted.mkdir()
    with pytest.raises(LabError, match="disk"):
        import_folder(gallery, painted, remove_gone=True)
    assert len(gallery) == 12 == len(import_folder(gallery, painted).gone)
    repaint(painted / "00.png")
    import_folder(gallery, painted, remove_gone=True)
    assert len(gallery) == 1


def test_a_lack_of_memory_is_no_fault_of_a_file(painted, gallery, monkeypatch):
    repaint(painted / "03.png")

    def short(*given):
        raise MemoryError

    monkeypatch.setattr("dasd_lab.search.on_disk.reading.read_picture", short)
    with pytest.raises(MemoryError):
        import_folder(gallery, painted)
    assert not failures(gallery)


def test_what_cannot_be_indexed_now_is_kept_and_reported(painted, gallery):
    def busy():
        raise LabError("a folder that another process writes", "one that writes", "Wait.")

    gallery.engine.tidy = busy
    repaint(painted / "03.png")
    with pytest.warns(UserWarning, match="not yet indexed"):
        assert import_folder(gallery, painted).changed == 1


def test_what_failed_is_forgotten_when_it_is_gone_or_well(tmp_path, painted, gallery):
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.png").write_bytes(b"x")
    import_folder(gallery, other)
    whole = (painted / "01.png").read_bytes()
    stat = (painted / "01.png").stat()
    for name in ("a.png", "b.png", "01.png"):
        (painted / name).write_bytes(b"no picture")
    assert {*import_folder(gallery, painted).failed} == {"a.png", "b.png", "01.png"}
    (painted / "a.png").unlink()
    (painted / "01.png").write_bytes(whole)
    os.utime(painted / "01.png", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert import_folder(gallery, painted).unchanged == 12 and {*failures(gallery)} == {"b.png", "x.png"}


OPENED: list[str] | None = None
sys.addaudithook(lambda event, given: OPENED.append(str(given[0])) if event == "open" and OPENED is not None else None)


def test_a_file_is_opened_once(tmp_path, painted):
    global OPENED
    OPENED = []
    try:
        import_folder(StoredGallery(tmp_path / "g", Named()), painted)
        read = [f for f in OPENED if f.startswith(str(painted)) and f != str(painted)]
        OPENED.clear()
        import_folder(StoredGallery(tmp_path / "g", Named()), painted)
        again = [f for f in OPENED if f.startswith(str(painted)) and f != str(painted)]
    finally:
        OPENED = None
    assert sorted(read) == sorted(map(str, painted.iterdir())) and not again


def test_few_pictures_are_in_memory_at_once(tmp_path, monkeypatch):
    class Many(list):  # of the same picture
        def __init__(self):
            super().__init__([b"x"] * 100)

    alive = 0
    most = 0
    lock = threading.Lock()
    visual = reading.open_visual

    def count(n):
        nonlocal alive, most
        with lock:
            alive += n
            most = max(most, alive)

    def opened(source):
        made = Image.new("RGB", (4, 4), "red")
        count(1)
        weakref.finalize(made, count, -1)
        return made

    monkeypatch.setattr(reading, "open_visual", opened)
    StoredGallery(tmp_path / "g", Named()).add(Many(), batch_size=64)
    assert 16 <= most <= 2 * reading.AT_ONCE + 2 and alive <= 1


def test_a_file_that_changes_while_it_is_read_is_read_again(painted, gallery, monkeypatch):
    read = reading.read_picture
    repaint(painted / "05.png", "lime")

    def late(source, *more):
        found = read(source, *more)
        repaint(painted / "05.png", "blue", (10, 10))
        os.utime(painted / "05.png", (9, 9))
        return found

    monkeypatch.setattr(reading, "read_picture", late)
    assert import_folder(gallery, painted).changed == 1
    monkeypatch.setattr(reading, "read_picture", read)
    assert import_folder(gallery, painted).changed == 1 and in_order(gallery, "blau")[0] == "05.png"


# what others do meanwhile


def test_what_another_process_adds_is_found(tmp_path, painted):
    a = StoredGallery(tmp_path / "g", Named())
    b = StoredGallery(tmp_path / "g", Named())
    assert not any(c.kind == "vector" for c in a.engine.columns.values())
    with pytest.raises(LabError, match="an empty gallery"):
        a.search("rot", "de")
    import_folder(b, painted)
    until = time.monotonic() + 60
    while len(a) < 12 and time.monotonic() < until:
        time.sleep(0.05)  # a second, as the engine promises
    assert in_order(a) == in_order(b) and len(a.similar("11.png")) == 12


def test_two_ways_that_are_made_at_once_are_both_kept(tmp_path, painted):
    a = StoredGallery(tmp_path / "g", Named())
    import_folder(a, painted)
    b = StoredGallery(tmp_path / "g", Slotted())
    c = StoredGallery(tmp_path / "g", Reading())
    assert len(b.embeddings) == len(c.embeddings) == 1
    b.embed()
    c.embed()
    d = StoredGallery(tmp_path / "g", Named(), dict(album="text"))
    assert len(d.embeddings) == 3 == len(b.embeddings) and "album" in b.record.columns and in_order(b) and in_order(c)


def test_a_picture_that_is_removed_while_another_method_looks_stays_removed(gallery):
    slotted = gallery.with_method(Slotted())

    def removing(batches):
        for b in batches:
            gallery.delete("05.png")
            yield b

    slotted.embed(progress=removing)
    assert "05.png" not in gallery and len(gallery) == 11 and "05.png" not in in_order(slotted)


def test_a_picture_that_is_replaced_while_another_method_looks_is_encode_again(painted, gallery):
    slotted = gallery.with_method(Slotted())
    encode = slotted.encode

    def replacing(*given):
        found = encode(*given)
        repaint(painted / "05.png")
        import_folder(gallery, painted)
        return found

    slotted.encode = replacing
    with pytest.warns(UserWarning, match="its file has changed"):
        assert slotted.embed() == 11
    del slotted.encode
    assert (
        not len(slotted.visuals(["05.png"])["id"])
        and slotted.embed() == 1
        and len(slotted.visuals(["05.png"])["id"]) == 1
    )


# as it says


def test_numbers_of_pictures_are_free_ones(tmp_path):
    gallery = StoredGallery(tmp_path / "g", Named()).add([Image.new("RGB", (4, 4), (i, 0, 0)) for i in range(3)])
    gallery.delete("picture-00001")
    gallery.add([Image.new("RGB", (4, 4))] * 2)
    assert {i for r in gallery.engine.walk([]) for i in r["id"]} == {f"picture-0000{i}" for i in (2, 3, 4, 5)}


def test_a_refused_picture_changes_no_thumbnail(gallery):
    before = gallery.thumbnails["00.png"]
    for id in ("00.png", "new"):
        with pytest.raises(LabError, match="album"):
            gallery.add([Image.new("RGB", (4, 4), "blue")], [id], dict(album=[3]), replace=True)
    assert gallery.thumbnails["00.png"] == before and "new" not in gallery.thumbnails

    def stopped(ids):
        raise Stop

    gallery.engine.remove = stopped
    with pytest.raises(Stop):
        gallery.delete("00.png")
    # to be removed again, and nothing that nobody can remove
    assert "00.png" not in gallery.thumbnails and "00.png" in gallery

    def refused(ids):
        raise LabError("a folder that another process writes", "one that writes", "Wait.")

    gallery.engine.remove = refused
    before = gallery.thumbnails["01.png"]
    with pytest.raises(LabError):
        gallery.delete("01.png")
    assert gallery.thumbnails["01.png"] == before


def test_pages_behind_the_head_are_read_alone(tmp_path, painted, monkeypatch):
    method = Slotted().train()
    gallery = StoredGallery(tmp_path / "g", method, head=4).add(painted)
    read = []
    visuals = StoredGallery.visuals
    score = method.score
    assert method.training and method.backbone.training  # as it was given
    monkeypatch.setattr(StoredGallery, "visuals", lambda self, ids: read.append(len(ids)) or visuals(self, ids))

    def scored(text, seen):
        assert not torch.is_grad_enabled() and not method.training
        return score(text, seen)

    method.score = scored
    whole = gallery.search("blau", "de", k=12)
    pages = [gallery.search("blau", "de", k=3, skip=s) for s in range(0, 12, 3)]
    assert [h for p in pages for h in p] == list(whole) and read == [12, 4, 6, 3, 3] and method.training
    assert len(gallery.search("blau", "de", k=3, skip=11)) == 1 and not len(gallery.search("blau", "de", k=3, skip=12))


def test_an_id_is_no_path(painted, gallery, monkeypatch):
    monkeypatch.chdir(painted)
    slotted = gallery.with_method(Slotted())  # where '05.png' is a file too
    for ask in (lambda: slotted.similar("05.png"), lambda: slotted.search("rot", "de", picture="05.png")):
        with pytest.raises(LabError, match=r"'05.png', which has no embedding for 'slotted'"):
            ask()
    slotted.embed()
    gallery.add([Image.new("RGB", (4, 4))], ["late"])
    with pytest.raises(LabError, match="embed"):
        slotted.similar("late")


# what is not a gallery


def test_folders_that_are_something_else_are_left_alone(tmp_path, dasd, filled):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    with pytest.raises(LabError, match="other files"):
        StoredGallery(tmp_path / "mine", dasd)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    for text in (
        "{",
        "[]",
        '{"kind":"other","version":1,"ways":{},"columns":{}}',
        '{"kind":"stored gallery","version":2,"ways":{},"columns":{}}',
    ):
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b/gallery.json").write_text(text)
        with pytest.raises(LabError, match="gallery"):
            StoredGallery(tmp_path / "b", dasd)
    with pytest.raises(LabError, match="the engine of the gallery"):
        StoredGallery(filled.folder, dasd, engine=type("Other", (LanceEngine,), {})(tmp_path / "o"))
