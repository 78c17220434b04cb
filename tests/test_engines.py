"Both engines keep the contract of `search.on_disk.engine`: hostile texts, invalid rows, writers, damage, galleries"

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
import numpy as np
import pytest
from colours import Named
from filelock import FileLock
from moto.server import ThreadedMotoServer
from PIL import Image

from dasd_lab.base.contracts import LabError
from dasd_lab.commands import cli
from dasd_lab.runs import loading
from dasd_lab.search.on_disk.filters import Column, read_filter
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.milvus import MilvusEngine
from dasd_lab.search.on_disk.stored import StoredGallery

ENGINES = dict(
    lance=lambda folder: LanceEngine(folder / "lance", exact_below=20),
    milvus=lambda folder: MilvusEngine(folder / "milvus.db", "pictures"),
    s3=lambda folder: LanceEngine(folder, exact_below=20, uri=f"s3://galleries/{folder.name}"),
)
YEAR, SCORE, NAME, SHARP = (
    Column(n, k) for n, k in dict(year="integer", score="number", name="text", sharp="flag").items()
)
V, MORE, W = Column("v", "vector", 4), Column("more", "numbers", 5), Column("w", "vector", 3)
IN = Column("in", "integer")  # a word of query languages
COLUMNS = {c.name: c for c in (YEAR, SCORE, NAME, SHARP, IN, V, MORE, W)}
HOSTILE = [
    "it's", 'a"b', "back\\slash", '\\"', "100%", "a_b", "new\nline", "\t\r", "nul\0nul", "ü€😀é", "e\u0301", "Ü",
    "a\U0010ffff", "\ud7ff", " ", "/a/b.png", 'a"] or pk != "', "') OR (1=1", '$meta["x"]', "{x}", "%s", "null",
    "x" * 2000, "true",
]  # fmt: skip


@pytest.fixture(scope="module")
def object_store():
    "A server of S3's protocol on this machine, with one bucket"
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = dict(ENDPOINT=f"http://{host}:{port}", ALLOW_HTTP="true", ACCESS_KEY_ID="a", SECRET_ACCESS_KEY="b")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (settings | dict(REGION="us-east-1")).items():
            patch.setenv(f"AWS_{name}", value)
        boto3.client("s3", "us-east-1", endpoint_url=settings["ENDPOINT"]).create_bucket(Bucket="galleries")
        yield
    server.stop()


@pytest.fixture(params=ENGINES)
def engine(request, tmp_path, object_store):
    opened = ENGINES[request.param](tmp_path)
    yield opened
    opened.close()


def test_hostile_ids_and_texts_are_only_texts(engine):
    engine.put(HOSTILE, {NAME: HOSTILE, V: np.eye(4)[[i % 4 for i in range(len(HOSTILE))]]})
    for text in HOSTILE:
        conditions = read_filter(dict(name=text), COLUMNS)
        assert engine.read([text], [NAME]) == dict(id=[text], name=[text])
        assert [*engine.nearest(V, np.ones((1, 4)), 99, conditions)[0]] == [text]
        starting = sum(other.startswith(text) for other in HOSTILE)
        assert engine.count(read_filter(dict(name=dict(starts=text)), COLUMNS)) == starting
    assert engine.remove(HOSTILE[::2]) == len(HOSTILE[::2]) and engine.count() == len(HOSTILE[1::2])


@pytest.mark.parametrize(
    "ids, values, message",
    [
        (["a", "a"], {}, "twice"),
        (["\udcff"], {}, "the id"),
        (["a"], {YEAR: ["x"]}, "year='x'"),
        (["a"], {NAME: ["\ud800"]}, "UTF-8"),
        (["a"], {V: np.ones((1, 3))}, r"\[1, 4\]"),
        (["a"], {V: np.full((1, 4), np.nan)}, "NaN"),
    ],
)
def test_invalid_rows_are_refused_and_change_nothing(engine, ids, values, message):
    with pytest.raises(LabError, match=message):
        engine.put(ids, values)
    assert engine.count() == 0


def test_a_second_writer_waits_and_is_told(tmp_path):
    engine = LanceEngine(tmp_path / "lance", patience_s=0.2)
    with FileLock(tmp_path / "lance/.writing"), pytest.raises(LabError, match="no other process"):
        engine.put(["a"], {YEAR: [1]})
    engine.patience_s = 60
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: engine.put([f"{i}"], {YEAR: [i]}), range(8)))
    assert engine.count() == 8


def test_a_damaged_table_is_an_error_with_a_next_step(tmp_path):
    LanceEngine(tmp_path / "lance").put(["a"], {YEAR: [1]})
    for file in (tmp_path / "lance/pictures.lance").rglob("*.manifest"):
        file.write_bytes(b"x")
    with pytest.raises(LabError, match="Restore the folder"):
        LanceEngine(tmp_path / "lance").count()


# galleries


def test_a_gallery_finds_the_same_on_both(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [Image.new("RGB", (8, 8), tuple(int(x) for x in rng.integers(0, 255, 3))) for _ in range(40)]
    ids = [f"bild {i}'ü" for i in range(40)]
    found = []
    for name, engine in (("lance", None), ("milvus", MilvusEngine(tmp_path / "milvus/m.db", "pictures"))):
        gallery = StoredGallery(tmp_path / name, Named(), dict(shade="integer", colour="text"), engine=engine)
        gallery.add(pictures, ids, dict(shade=list(range(40)), colour=["a", "b"] * 20))
        gallery.change(ids[:3], dict(colour="it's"))
        gallery.delete(ids[3:5])
        gallery.add([Image.new("RGB", (8, 8), "lime")], [ids[5]], dict(shade=[-1], colour=[None]), replace=True)
        gallery.close()
        again = StoredGallery(tmp_path / name, Named())
        searches = [
            again.search("rot", "de", k=40),
            again.search("grün blau", "de", k=5, skip=7),
            again.search("gelb", "de", k=5, where=dict(colour=["it's", "a"], shade={"to": 20})),
            again.similar(ids[9], k=6),
            again.search("rot", "de", k=5, picture=ids[8], share=0.3),
        ]
        found.append([[(hit.id, hit.rank) for hit in hits] for hits in searches])
        assert again.facts(ids[:3])["colour"].tolist() == ["it's"] * 3
    assert found[0] == found[1] and [len(hits) for hits in found[0]] == [38, 5, 5, 6, 5]


@pytest.fixture
def lab(monkeypatch, capsys):
    "Runs `dasd-lab` in this process with a method that knows colours; returns its JSON, or its message if it fails"
    monkeypatch.setattr(loading, "load_run", lambda run, images=True: Named())

    def run(*words):
        code = cli.main([*map(str, words)])
        out, err = capsys.readouterr()
        return err if code else json.loads(out)

    return run


def test_a_gallery_on_milvus_from_the_command_line(lab, tmp_path, monkeypatch):
    "The address is given once more, as that of the user; the token is in no file"
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    (tmp_path / "colours").mkdir()
    for colour in ("red", "lime", "blue"):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"colours/{colour}.png")
    gallery = ["--gallery", tmp_path / "g", "--json"]
    imported = ["gallery", "import", tmp_path / "colours", *gallery]
    assert lab(*imported, "--at", tmp_path / "m.db")["added"] == 3
    assert "records" in lab(*imported) and lab(*imported, "--at", tmp_path / "m.db")["unchanged"] == 3
    monkeypatch.setenv("DASD_LAB_GALLERY_URI", str(tmp_path / "m.db"))
    assert lab(*imported)["unchanged"] == 3
    assert "its own URI" in lab(*imported, "--at", tmp_path / "other.db")
    found = lab("search", "grün", "--language", "de", "-k", "1", *gallery)
    assert found["rows"][0]["picture"] == "lime.png"
    filtered = lab("search", "grün", "--language", "de", *gallery, "--where", '{"width": {"from": 9}}')
    assert filtered["rows"] == []
    assert lab("gallery", "embed", *gallery)["rows"] == [dict(embedded=0, unreadable=0)]
    assert lab("gallery", "duplicates", *gallery)["rows"] == []
    assert lab("gallery", "remove", "lime.png", *gallery)["rows"] == [dict(removed=1)]
    assert lab("gallery", "info", tmp_path / "g", "--json")["pictures"] == 2
    texts = [f.read_bytes() for f in (tmp_path / "g").rglob("*") if f.is_file()]
    assert not any(b"secret" in text for text in texts) and not (tmp_path / "g/index").exists()


def test_milvus_that_is_not_installed_or_not_there(lab, tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    new = ["gallery", "import", tmp_path / "p", "--gallery", tmp_path / "new", "--at"]
    assert "MILVUS_TOKEN" in lab(*new, "http://me:secret@localhost:19530")
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    assert "[milvus]" in lab(*new, tmp_path / "m.db")
    assert not (tmp_path / "new").exists() and not (tmp_path / "m.db").exists()
