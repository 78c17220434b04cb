"Galleries on disk: real methods, recall, kills, imports that resume, several embeddings"

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import lance
import numpy as np
import pytest
import torch
from colours import Named, Reading, Slotted
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dasd_lab.backbone.preprocessing import Preprocessing
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.pictograms.gloss import GlossTranslator
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.gallery.in_memory import Gallery, caption_features
from dasd_lab.search.on_disk import importing, reading
from dasd_lab.search.on_disk.duplicates import _Candidates
from dasd_lab.search.on_disk.importing import failures, import_folder
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.stored import StoredGallery, embedding_name
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

KILLS = int(os.environ.get("SOAK", "2"))
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


# the same results as in memory


def test_all_languages_find_what_a_gallery_in_memory_finds(filled, corpus, dasd, queries):
    memory = Gallery(dasd)
    memory.extend(corpus.visuals("test").ids, split_columns(dasd, corpus, "test"), {}, [])
    for c in queries[::5]:
        a = memory.search(c.text, c.language, k=10)
        b = filled.search(c.text, c.language, k=10)
        # what is a tie in 16 bits may change places
        assert np.allclose([h.score for h in a], [h.score for h in b], atol=2e-3) and len({*a.ids} & {*b.ids}) >= 9


@pytest.mark.parametrize("method", ["add", "search", "similar"])
def test_galleries_in_memory_and_on_disk_are_called_alike(method):
    in_memory, on_disk = (inspect.signature(getattr(kind, method)).parameters for kind in (Gallery, StoredGallery))
    common = [name for name in in_memory if name in on_disk]
    assert common == [name for name in on_disk if name in in_memory]
    for name in common:
        a, b = in_memory[name], on_disk[name]
        assert (a.kind, a.default) == (b.kind, b.default), name
    own = {*in_memory} - {*on_disk}
    assert own == ({"captions"} if method == "add" else set())


def test_a_filter_finds_what_is_left_when_the_others_are_taken_away(filled, queries):
    for c in queries[::20]:
        every = [i for i in filled.search(c.text, c.language, k=1000).ids if int(i.split("-")[-1]) % 2]
        found = filled.search(c.text, c.language, k=20, where=dict(half=1)).ids
        assert len({*found} & {*every[:20]}) >= 19


def test_rankings_in_several_languages_are_those_of_the_method(tmp_path, corpus, dasd, queries):
    "SMALR with translations: with a head of all images its own score; the embeddings are those of SMALR alone"
    smalr = load_method(shipped_run() / "smalr", dasd.backbone).eval()
    both = Consistent(smalr, GlossTranslator()).eval()
    ids = corpus.visuals("test").ids
    visuals = smalr.encode_visuals(split_columns(smalr, corpus, "test"))
    assert embedding_name(both) == embedding_name(smalr)
    gallery = StoredGallery(tmp_path / "g", both, head=1000)
    gallery.put(ids, visuals)
    alone = gallery.with_method(smalr)
    n_changed = 0
    for c in queries[::9]:
        scores = both.score(both.encode_captions([c.text], c.language), visuals)[0]
        hits = gallery.search(c.text, c.language, k=10)
        best = scores.sort(descending=True)
        assert np.allclose([h.score for h in hits], best.values[:10], atol=3e-3)
        assert len(set(hits.ids) & {ids[i] for i in best.indices[:10]}) >= 9
        n_changed += hits.ids != alone.search(c.text, c.language, k=10).ids
    assert n_changed > 3


def test_the_slots_rerank_what_the_cosine_selects(tmp_path, corpus, queries):
    "LECCR: with a head of all images its score in memory; a short head loses little"
    method = load_method(shipped_run() / "leccr", load_backbone(shipped_run() / "backbone")).eval()
    visuals = method.encode_visuals(split_columns(method, corpus, "test"))
    ids = corpus.visuals("test").ids
    gallery = StoredGallery(tmp_path / "g", method, head=1000)
    gallery.put(ids, visuals)
    kept = []
    for c in queries[::9]:
        scores = method.score(method.encode_captions([c.text], c.language), visuals)[0]
        best = scores.sort(descending=True)
        gallery.head = 1000
        full = gallery.search(c.text, c.language, k=10)
        assert len(set(full.ids) & {ids[i] for i in best.indices[:10]}) >= 9
        assert np.allclose([h.score for h in full], best.values[:10], atol=3e-3)
        gallery.head = 100
        kept.append(len(set(gallery.search(c.text, c.language, k=10).ids) & set(full.ids)) / 10)
    assert np.mean(kept) > 0.97


class LargeGallery:
    "24,000 noisy images of the corpus with an index, and queries by captions and images"

    def __init__(self, folder, dasd, visuals, queries):
        rng = np.random.default_rng(0)
        base = torch.nn.functional.normalize(visuals["features"], dim=-1).numpy()

        def noisy(x):
            return (x + 0.5 / np.sqrt(x.shape[1]) * rng.standard_normal(x.shape)).astype(np.float32)

        rows = noisy(base[rng.integers(0, len(base), 24_000)])
        engine = LanceEngine(folder / "i", exact_below=5000, probes=36)
        self.gallery = StoredGallery(folder / "g", dasd, dict(twelfth="integer"), engine=engine)
        for start in range(0, len(rows), 8000):
            numbers = range(start, start + 8000)
            features = torch.from_numpy(rows[start : start + 8000])
            self.gallery.put(
                [str(i) for i in numbers], dict(features=features), dict(twelfth=[i % 12 for i in numbers])
            )
        self.gallery.tidy()
        self.n = len(rows)
        self.queries = np.concatenate([caption_features(dasd, queries[:60]).numpy(), noisy(base[:60])])
        self.cosines = self.queries @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T

    def recall(self, i: int, k: int, skip: int = 0, where=None, matches=None) -> float:
        matching = np.flatnonzero(matches) if matches is not None else np.arange(self.n)
        order = matching[np.argsort(-self.cosines[i][matching])]
        expected = {str(j) for j in order[skip : skip + k]}
        ids = self.gallery.best(torch.from_numpy(self.queries[i][None]), k, skip, where)[0]
        return len(set(ids) & expected) / k


def test_an_index_finds_what_all_cosines_find(tmp_path, dasd, visuals, queries):
    large = LargeGallery(tmp_path, dasd, visuals, queries)
    gallery = large.gallery
    assert gallery.engine.indexed(gallery.vector_column) == large.n
    recalls = [large.recall(i, 10) for i in range(len(large.queries))]
    # the copies of an image share a list: a query whose list is not among the searched ones misses all ten
    assert np.mean(recalls[60:]) >= 0.99 and np.mean(recalls) >= 0.98, recalls
    fifth = np.arange(large.n) % 12 == 5
    for k, skip, where, matches, expected in (
        (100, 0, None, None, 0.98),
        (20, 400, None, None, 0.93),
        (10, 0, dict(twelfth=5), fifth, 0.98),
        (50, 0, dict(twelfth=5), fifth, 0.98),
    ):
        recalls = [large.recall(i, k, skip, where, matches) for i in range(0, len(large.queries), 3)]
        assert np.mean(recalls) >= expected, (k, skip, where, np.mean(recalls))
    # a filtered search ends with the last match
    query = torch.from_numpy(large.queries[:1])
    lengths = [len(gallery.best(query, 100, skip, dict(twelfth=5))[0]) for skip in (1900, 1950, 2000)]
    assert lengths == [100, 50, 0]


# several embeddings


def seen_with(quick_gelu=False, **preprocessing):
    "Names of colours, by a tower with the same weights and some settings"
    method = Named()
    method.backbone.config = dict(quick_gelu=quick_gelu)
    method.backbone.preprocessing = Preprocessing(8, **preprocessing)
    return method


def test_a_tower_with_other_settings_has_an_embedding_of_its_own(tmp_path):
    red = Image.new("RGB", (4, 4), "red")
    usual = StoredGallery(tmp_path / "g", seen_with()).add([red], ["red"])
    for other in (seen_with(quick_gelu=True), seen_with(resize_mode="squash")):
        assert embedding_name(other) == embedding_name(usual.method)
        with pytest.raises(LabError, match="embed"):
            usual.with_method(other).search("rot", "de")
    squashed = StoredGallery(tmp_path / "g", seen_with(resize_mode="squash")).add([red], ["again"])
    assert squashed.search("rot", "de").ids == ["again"] and len(squashed.embeddings) == 2
    assert usual.with_method(seen_with()).search("rot", "de").ids == ["red"]
    with usual.record.changing() as content:  # as versions before 0.26 wrote it
        for about in content["ways"].values():
            del about["settings"]
    assert StoredGallery(tmp_path / "g", seen_with(quick_gelu=True)).search("rot", "de").ids == ["red"]


def test_runs_on_one_frozen_tower_share_the_vectors(filled, dasd, queries):
    static = load_method(shipped_run() / "static_adapter", dasd.backbone).eval()
    smalr = load_method(shipped_run() / "smalr", dasd.backbone).eval()
    assert embedding_name(static) == embedding_name(dasd) != embedding_name(smalr)
    other = filled.with_method(static)
    c = queries[0]
    assert c.visual_id in other.search(c.text, c.language, k=20).ids and len(filled.embeddings) == 1
    with pytest.raises(LabError, match="embed"):
        filled.with_method(smalr).search("Hund", "de")


# kills


class Killable:
    "A process with all imports done, which runs functions of `colours` in children that can be killed"

    def __init__(self):
        self.parent = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("colours.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
        )

    def line(self) -> str:
        return self.parent.stdout.readline().strip()

    def start(self, name, folder, *args):
        self.parent.stdin.write(json.dumps([name, str(folder), *args]) + "\n")
        self.parent.stdin.flush()
        self.child = int(self.line())

    def lines(self, n) -> list[str]:
        return [self.line() for _ in range(n)]

    def kill(self) -> list[str]:
        "Kill the child; the lines that it printed before"
        with suppress(ProcessLookupError):  # it may have ended
            os.kill(self.child, signal.SIGKILL)
        return list(iter(self.line, "ended"))

    def close(self):
        self.parent.kill()
        self.parent.wait()
        self.parent.stdin.close()
        self.parent.stdout.close()


@pytest.fixture(scope="module")
def killable():
    process = Killable()
    yield process
    process.close()


def killed_steps(killable, folder, first: int, rng) -> int:
    "Put batches until a kill at a random moment; the last batch that was acknowledged"
    killable.start("steps", folder, first)
    lines = killable.lines(int(rng.integers(4, 12)))
    time.sleep(rng.uniform(0, 0.1))
    return int((lines + killable.kill())[-1])


def test_a_kill_loses_nothing_that_was_acknowledged_and_leaves_complete_batches(tmp_path, killable):
    rng = np.random.default_rng()
    first = killed_steps(killable, tmp_path / "g", 0, rng)
    last = killed_steps(killable, tmp_path / "g", first + 2, rng)
    gallery = StoredGallery(tmp_path / "g", Named())
    batches = {}
    for rows in gallery.engine.walk(["width", gallery.vector_column]):
        for id, width, vector in zip(rows["id"], rows["width"], rows[gallery.vector_column]):
            step = int(id.split("-")[0])
            batches.setdefault(step, set()).add(id)
            assert width == step and (vector == step + 1).all() and gallery.thumbnails[id] == str(step).encode()
    # only the batch after the first kill may be missing, and the one after the second may be stored
    assert set(range(last + 1)) - set(batches) <= {first + 1}, (first, last, sorted(batches))
    assert set(batches) <= set(range(last + 2)), (first, last, sorted(batches))
    for step, ids in batches.items():
        assert ids == {f"{step}-{i}" for i in range(1 + 7 * (step % 5))}
    gallery.put(["new"], dict(features=torch.randn(1, 3)))
    assert "new" in gallery


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


def test_a_killed_import_resumes_and_reads_nothing_twice(tmp_path, killable, read_files):
    folder = tmp_path / "p"
    broken = ["1/005.jpg", "1/045.jpg", "1/089.jpg"]
    for i in range(100):
        (folder / f"{i % 4}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (2 * i, 0, 90)).save(folder / f"{i % 4}/{i:03d}.jpg")
    for name in broken:
        (folder / name).write_bytes(b"\xff\xd8\xff\xe0 cut")
    killable.start("run_import", tmp_path / "g", str(folder))
    assert killable.lines(3) == ["."] * 3
    killable.kill()
    gallery = StoredGallery(tmp_path / "g", Named())
    before = {id for rows in gallery.engine.walk([]) for id in rows["id"]}
    assert len(before) >= 3 * 16 - 3
    report = import_folder(gallery, folder)
    assert len(gallery) == 97 == report.added + report.unchanged and report.unchanged == len(before)
    assert set(report.failed) == set(broken)
    assert not {str((folder / id).resolve()) for id in before} & set(read_files)
    read_files.clear()
    assert import_folder(gallery, folder).unchanged == 97 and not read_files and len(failures(gallery)) == 3
    import_folder(gallery, folder, retry=True)
    assert len(read_files) == 3


def files_of(gallery: Path) -> Counter:
    "How many files of each kind a gallery has in each of its folders"
    files = [p for p in gallery.rglob("*") if p.is_file()]
    return Counter((str(p.parent.relative_to(gallery)), p.suffix or p.name) for p in files)


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    pictures = tmp_path / "p"
    pictures.mkdir()
    Image.new("RGB", (8, 8)).save(pictures / "a.png")
    gallery = StoredGallery(tmp_path / "g", Named())
    import_folder(gallery, pictures)
    data = tmp_path / "g/index/pictures.lance/data"
    partial = data / ".tmpni9sEf"
    partial.write_bytes(b"half a file")
    uncommitted = data / f"{'01' * 20}.lance"
    uncommitted.write_bytes(next(data.glob("*.lance")).read_bytes())
    transactions = data.parent / "_transactions"
    committed = set(transactions.iterdir())
    transaction = transactions / f"1-{uuid4()}.txn"
    transaction.write_bytes(next(iter(committed)).read_bytes())
    gallery.engine.tidy()
    assert not partial.exists() and not uncommitted.exists() and len(gallery) == 1
    assert not transaction.exists() and committed <= set(transactions.iterdir())
    gallery.close()


def test_an_import_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path, killable):
    "Half of the kills come at any moment, half after a batch is stored"
    pictures = tmp_path / "p"
    pictures.mkdir()
    for i in range(96 * KILLS):
        Image.new("RGB", (8, 8), (i % 256, i // 256, 0)).save(pictures / f"{i}.png")
    rng = np.random.default_rng()
    stored = []
    for kill in range(KILLS):
        killable.start("run_import", tmp_path / "killed", str(pictures))
        ended = "ended" in killable.lines(kill % 2)
        time.sleep(rng.uniform(0, 0.1 if kill % 2 else 1))
        if not ended:
            killable.kill()
        gallery = StoredGallery(tmp_path / "killed", Named())
        stored.append(len(gallery))
        columns = [gallery.vector_column] if stored[-1] else []  # the first batch brings it
        vectors = [v for rows in gallery.engine.walk(columns) for c in columns for v in rows[c]]
        assert len(vectors) == stored[-1] and np.isfinite(vectors).all()
        gallery.close()
    assert stored == sorted(stored), "an image was lost"
    for name in ("killed", "straight"):
        gallery = StoredGallery(tmp_path / name, Named())
        assert not import_folder(gallery, pictures).failed and len(gallery) == 96 * KILLS
        gallery.engine.tidy()
        gallery.close()
        # versions before the last are kept for minutes
        lance.dataset(str(tmp_path / name / "index/pictures.lance")).cleanup_old_versions(timedelta(0))
    print(f"{KILLS} kills, after them {stored} of {96 * KILLS} images")
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")


def test_an_interrupted_indexing_is_completed_by_the_next_call(tmp_path, painted, monkeypatch):
    gallery = StoredGallery(tmp_path / "g", Named())
    tidy = gallery.engine.tidy
    completed = []

    def recorded():
        tidy()
        completed.append(True)

    monkeypatch.setattr(gallery.engine, "tidy", stopped)
    with pytest.raises(Stop):
        import_folder(gallery, painted)
    monkeypatch.setattr(gallery.engine, "tidy", recorded)
    assert import_folder(gallery, painted).unchanged == 12 and len(completed) == 1
    slotted = gallery.with_method(Slotted())
    monkeypatch.setattr(gallery.engine, "tidy", stopped)
    with pytest.raises(Stop):
        slotted.embed()
    monkeypatch.setattr(gallery.engine, "tidy", recorded)
    assert slotted.embed() == 0 and len(completed) == 2


OPENED: list[list[str]] = []  # files that this process has opened, while a test records them


@pytest.fixture
def opened_files():
    "Paths of all files that this process opens"
    OPENED.append([])
    yield OPENED[-1]
    OPENED.pop()


def note_opened(event, args):
    if event == "open" and OPENED:
        OPENED[-1].append(str(args[0]))


sys.addaudithook(note_opened)


class Stop(BaseException):
    "Like a kill"


def stopped(*args):
    raise Stop


def test_another_method_encodes_the_files_and_resumes(tmp_path, corpus, dasd):
    folder = tmp_path / "p"
    folder.mkdir()
    visuals = corpus.visuals("test")
    ids = [f"{i:02d}.png" for i in range(40)]
    for i, id in enumerate(ids):
        Image.fromarray(visuals[i].frames[0]).save(folder / id)
    gallery = StoredGallery(tmp_path / "g", dasd)
    import_folder(gallery, folder)
    smalr = gallery.with_method(load_method(shipped_run() / "smalr", dasd.backbone))

    def two_batches(batches):
        for n, batch in enumerate(batches):
            if n == 2:
                raise Stop
            yield batch

    with pytest.raises(Stop):
        smalr.embed(batch_size=10, progress=two_batches)
    assert len(smalr.visuals(ids)["id"]) == 20
    assert (smalr.embed(), smalr.embed()) == (20, 0)
    expected = smalr.method.encode_visuals(smalr.method.visual_columns([visuals[i] for i in range(40)]))["features"]
    torch.testing.assert_close(smalr.visuals(ids)["features"], expected, atol=2e-3, rtol=2e-3)


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


# imports


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
    assert len(long.refused) == 14 and "longer than 2,000" in [*long.refused.values()][0]
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
    assert "its id is that of" in import_folder(gallery, other).refused["05.png"]  # another picture
    os.rename(moved / "05.png", tmp_path / "away.png")
    # of another size: not the one that was moved
    assert "its id is that of" in import_folder(gallery, other).refused["05.png"]


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


def test_a_file_is_opened_once(tmp_path, painted, opened_files):
    def opened_images():
        return [f for f in opened_files if f.startswith(str(painted)) and f != str(painted)]

    import_folder(StoredGallery(tmp_path / "g", Named()), painted)
    assert sorted(opened_images()) == sorted(map(str, painted.iterdir()))
    opened_files.clear()
    import_folder(StoredGallery(tmp_path / "g", Named()), painted)
    assert not opened_images()


def test_few_images_are_in_memory(tmp_path, monkeypatch):
    class Hundred(list):
        "A hundred times the same source"

        def __init__(self):
            super().__init__([b"x"] * 100)

    alive = 0
    most = 0
    lock = threading.Lock()

    def count(n):
        nonlocal alive, most
        with lock:
            alive += n
            most = max(most, alive)

    def counted(source):
        image = Image.new("RGB", (4, 4), "red")
        count(1)
        weakref.finalize(image, count, -1)
        return image

    monkeypatch.setattr(reading, "open_visual", counted)
    StoredGallery(tmp_path / "g", Named()).add(Hundred(), batch_size=64)
    assert 16 <= most <= 2 * reading.AT_ONCE + 2 and alive <= 1


def test_an_image_that_is_replaced_during_embed_is_encoded_by_the_next(painted, gallery):
    slotted = gallery.with_method(Slotted())
    encode = slotted.encode

    def replacing(*args):
        encoded = encode(*args)
        repaint(painted / "05.png")
        import_folder(gallery, painted)
        return encoded

    slotted.encode = replacing
    with pytest.warns(UserWarning, match="its file has changed"):
        assert slotted.embed() == 11
    del slotted.encode
    assert not slotted.visuals(["05.png"])["id"]
    assert slotted.embed() == 1 and len(slotted.visuals(["05.png"])["id"]) == 1


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


# other processes and methods at the same time


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


# rules


def test_numbers_of_pictures_are_free_ones(tmp_path):
    gallery = StoredGallery(tmp_path / "g", Named()).add([Image.new("RGB", (4, 4), (i, 0, 0)) for i in range(3)])
    gallery.delete("picture-00001")
    gallery.add([Image.new("RGB", (4, 4))] * 2)
    assert {i for r in gallery.engine.walk([]) for i in r["id"]} == {f"picture-0000{i}" for i in (2, 3, 4, 5)}


def test_pages_behind_the_head_are_read_alone(tmp_path, painted, monkeypatch):
    method = Slotted().train()
    gallery = StoredGallery(tmp_path / "g", method, head=4).add(painted)
    assert method.training and method.backbone.training  # unchanged by encoding
    visuals = StoredGallery.visuals
    score = method.score
    lengths = []

    def recorded(self, ids):
        lengths.append(len(ids))
        return visuals(self, ids)

    def checked(text_features, visuals):
        assert not torch.is_grad_enabled() and not method.training
        return score(text_features, visuals)

    monkeypatch.setattr(StoredGallery, "visuals", recorded)
    method.score = checked
    whole = gallery.search("blau", "de", k=12)
    pages = [gallery.search("blau", "de", k=3, skip=s) for s in range(0, 12, 3)]
    assert [hit for page in pages for hit in page] == list(whole)
    assert lengths == [12, 4, 6, 3, 3] and method.training
    assert len(gallery.search("blau", "de", k=3, skip=11)) == 1
    assert len(gallery.search("blau", "de", k=3, skip=12)) == 0


def test_a_refused_image_changes_no_thumbnail(gallery):
    before = gallery.thumbnails["00.png"]
    for id in ("00.png", "new"):
        with pytest.raises(LabError, match="album"):
            gallery.add([Image.new("RGB", (4, 4), "blue")], [id], dict(album=[3]), replace=True)
    assert gallery.thumbnails["00.png"] == before and "new" not in gallery.thumbnails


def test_a_failed_removal(gallery):
    gallery.engine.remove = stopped
    with pytest.raises(Stop):
        gallery.delete("00.png")
    # the row is still there, so it can be removed again; a thumbnail alone could not
    assert "00.png" not in gallery.thumbnails and "00.png" in gallery

    def refused(ids):
        raise LabError("a folder that another process writes", "one writer", "Wait.")

    gallery.engine.remove = refused
    before = gallery.thumbnails["01.png"]
    with pytest.raises(LabError):
        gallery.delete("01.png")
    assert gallery.thumbnails["01.png"] == before


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


# other folders


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


def test_duplicates_without_an_embedding_have_that_of_the_same_file():
    nan = [float("nan")] * 2
    vectors = dict(a=nan, b=[1.0, 0.0], c=[0.6, 0.8], d=nan, e=nan)
    digests = dict(a="x", b="x", c="y", d="z", e="z")
    rows = dict(id=[*vectors], digest=[*digests.values()], width=[9, 5, 5, 5, 5], height=[9, 5, 5, 5, 5])
    engine = SimpleNamespace(
        walk=lambda columns, conditions: [rows],
        read=lambda ids, columns: {columns[0]: np.array([vectors[id] for id in ids], np.float32)},
    )
    gallery = SimpleNamespace(engine=engine, vector_column="vector", thumbnails={})
    found = _Candidates(gallery, ())
    assert [(hit.id, round(hit.score, 4)) for hit in found.hits([0, 1, 2])] == [("a", 1), ("b", 1), ("c", 0.6)]
    assert [(hit.id, hit.score) for hit in found.hits([3, 4])] == [("d", 1), ("e", 1)]
