"Every engine fulfils the contract of `search.on_disk.engine`, compared with a dictionary of rows and numpy"

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import lance
import numpy as np
import pytest
from colours import Named
from filelock import FileLock
from lance.dataset import DatasetOptimizer
from PIL import Image
from pymilvus import MilvusClient

from dasd_lab import cli
from dasd_lab.contracts import LabError
from dasd_lab.search.on_disk.engine import Nearest
from dasd_lab.search.on_disk.filters import FACTS, Column, Condition, read_filter
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.milvus import MilvusEngine, MilvusIndex
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.training import loading

ENGINES = dict(
    lance=lambda folder, **options: LanceEngine(folder / "lance", **options),
    milvus=lambda folder, **options: MilvusEngine(folder / "milvus.db", "pictures", **options),
)
# options for a search in all lists of an index
EVERY_LIST = dict(lance=dict(probes=50, refine=50), milvus=dict(index=MilvusIndex(search=dict(nprobe=128), refine=50)))
# options for a search in some lists; Milvus Lite makes 128
SOME_LISTS = dict(lance={}, milvus=dict(index=MilvusIndex(search=dict(nprobe=40))))
COLUMNS = [
    Column("year", "integer"),
    Column("score", "number"),
    Column("name", "text"),
    Column("sharp", "flag"),
    Column("v", "vector", 4),
    Column("more", "numbers", 5),
]
HOSTILE = [
    "it's",
    'a"b',
    "back\\slash",
    "\\",
    '\\"',
    "100%",
    "a_b",
    "axb",
    "%",
    "_",
    "new\nline",
    "\t\r",
    "nul\0nul",
    "ü€😀é",
    "e\u0301",
    "a\U0010ffff",
    "\U0010ffff",
    "\ud7ff",
    " ",
    "  two",
    "/a/b.png",
    'a"] or pk != "',
    "') OR (1=1",
    '$meta["x"]',
    "{x}",
    "%s",
    "None",
    "null",
    "x" * 2000,
    "Ü",
    "ü",
    "true",
]


def as_list(value):
    return value if isinstance(value, list) else [value]


def sort_key(value):
    "Engines compare texts byte by byte"
    return value.encode() if isinstance(value, str) else value


class Reference:
    "Rows in a dictionary: the expected answers of an engine"

    def __init__(self):
        self.columns = {}
        self.rows = {}

    def add_column(self, column):
        self.columns[column.name] = column

    def put(self, ids, values, insert=True):
        for i, id in enumerate(ids):
            if not insert and id not in self.rows:
                continue
            row = self.rows.setdefault(id, {})
            for name, column in values.items():
                row[name] = None if column is None else self.stored(name, column[i])

    def stored(self, name, value):
        return value if self.columns[name].kind in FACTS else np.asarray(value, np.float16)

    def change(self, ids, values):
        existing = set(ids) & set(self.rows)
        for id in existing:
            self.rows[id].update(values)
        return len(existing)

    def remove(self, ids):
        existing = set(ids) & set(self.rows)
        for id in existing:
            del self.rows[id]
        return len(existing)

    @staticmethod
    def holds(value, condition) -> bool:
        "Whether a condition of a filter, as a user writes it, holds"
        if value is None:
            return False
        if not isinstance(condition, dict):
            return value in as_list(condition)
        if "not" in condition:
            return value not in as_list(condition["not"])
        if "starts" in condition:
            return value.startswith(condition["starts"])
        low = condition.get("from")
        high = condition.get("to")
        above = low is None or sort_key(value) >= sort_key(low)
        below = high is None or sort_key(value) <= sort_key(high)
        return above and below

    def matching(self, where=None) -> list[str]:
        where = where or {}
        return [
            id
            for id, row in self.rows.items()
            if all(self.holds(row.get(name), condition) for name, condition in where.items())
        ]

    def cosines(self, column, query, where=None) -> dict[str, float]:
        "Id → cosine of all rows that a search can find"
        query = np.asarray(query, np.float64)
        cosines = {}
        if not query.any():
            return cosines
        for id in self.matching(where):
            vector = self.rows[id].get(column)
            if vector is not None and vector.any():
                vector = vector.astype(np.float64)
                cosines[id] = float(vector @ query / np.linalg.norm(vector) / np.linalg.norm(query))
        return cosines


def check_nearest(nearest: Nearest, cosines: dict[str, float], k: int, skip: int = 0):
    "The highest cosines in order; ids whose cosines agree in 16 bits may change places"
    best = sorted(cosines.values(), reverse=True)[skip : skip + k]
    assert len(nearest.ids) == len(nearest.cosines) == len(best)
    assert len(set(nearest.ids)) == len(nearest.ids)
    assert np.allclose(nearest.cosines, best, atol=2e-3)
    assert np.allclose(nearest.cosines, [cosines[id] for id in nearest.ids], atol=2e-3)


def check_rows(reference, rows: dict, names: list[str]):
    for name in names:
        column = reference.columns[name]
        expected = [reference.rows[id].get(name) for id in rows["id"]]
        if column.kind in FACTS:
            assert rows[name] == expected, name
            assert [type(x) for x in rows[name]] == [type(x) for x in expected], name
            continue
        assert rows[name].dtype == np.float16 and rows[name].shape == (len(expected), column.size)
        for numbers, want in zip(rows[name], expected):
            unknown = np.full(column.size, np.nan, np.float16)
            np.testing.assert_array_equal(numbers, unknown if want is None else want)


def check_same(engine, reference, rng: random.Random, where):
    "Count, search, read and walk give the expected answers"
    conditions = read_filter(where, engine.columns)
    names = rng.sample(list(reference.columns), rng.randint(0, len(reference.columns)))
    assert dict(engine.columns.items()) == reference.columns
    assert engine.count() == len(reference.rows)
    assert engine.count(conditions) == len(reference.matching(where))
    for column in reference.columns.values():
        if column.kind == "vector":
            check_search(engine, reference, rng, column, where)
    ids = rng.choices([*reference.rows, "gone", *HOSTILE], k=9)
    rows = engine.read(ids, names)
    assert list(rows) == ["id", *names] and rows["id"] == [id for id in ids if id in reference.rows]
    check_rows(reference, rows, names)
    size = rng.choice([1, 7, 1000]) if len(reference.rows) < 40 else 1000
    parts = list(engine.walk(names, conditions, size))
    assert sorted(id for part in parts for id in part["id"]) == sorted(reference.matching(where))
    for part in parts:
        assert 0 < len(part["id"]) <= size
        check_rows(reference, part, names)


def check_search(engine, reference, rng: random.Random, column: Column, where):
    k = rng.choice([1, 3, 10, 50])
    skip = rng.choice([0, 0, 2, 7, 100])
    numbers = np.random.default_rng(rng.randrange(2**32))
    queries = numbers.standard_normal((2, column.size)).astype("float32")
    conditions = read_filter(where, engine.columns)
    results = engine.nearest(column.name, queries, k, conditions, skip, exact=rng.random() < 0.3)
    for query, nearest in zip(queries, results):
        check_nearest(nearest, reference.cosines(column.name, query, where), k, skip)


def ids_of(parts) -> list[str]:
    return [id for part in parts for id in part["id"]]


@pytest.fixture(params=ENGINES)
def make(request, tmp_path):
    "Opens the engine of one folder; closed at the end"
    opened = []

    def make(**options):
        engine = ENGINES[request.param](tmp_path, **options)
        opened.append(engine)
        return engine

    make.kind = request.param
    make.folder = tmp_path
    yield make
    for engine in opened:
        engine.close()


def add_columns(columns, *engines):
    for engine in engines:
        for column in columns:
            engine.add_column(column)


def filled(make, n=40, columns=COLUMNS, **options):
    "An engine and the reference with the same rows, and their ids"
    engine = make(**options)
    reference = Reference()
    add_columns(columns, engine, reference)
    rng = np.random.default_rng(1)
    values = dict(
        year=[i % 7 for i in range(n)],
        score=[i / 3 for i in range(n)],
        name=[HOSTILE[i % len(HOSTILE)] for i in range(n)],
        sharp=[i % 3 == 0 for i in range(n)],
        v=rng.standard_normal((n, 4)),
        more=rng.standard_normal((n, 5)),
    )
    ids = [f"{HOSTILE[i % len(HOSTILE)][:9]} {i}" for i in range(n)]
    for e in (engine, reference):
        e.put(ids, values)
    return engine, reference, ids


# a random walk


def random_value(rng, column: Column):
    if rng.random() < 0.15:
        return None
    if column.kind == "integer":
        return rng.choice([0, 1, -1, 5, 2**63 - 1, -(2**63) + 1, 2**53 + 1, rng.randrange(10)])
    if column.kind == "number":
        return rng.choice([0.0, -1.5, 1e300, -5e-324, 1 / 3, float(rng.randrange(5))])
    if column.kind == "text":
        return rng.choice([*HOSTILE, ""])
    return rng.random() < 0.5


def known_value(rng, column: Column):
    while (value := random_value(rng, column)) is None:
        pass
    return value


def random_condition(rng, column: Column):
    form = rng.choice(["value", "any", "not", "not any", "range", "open", "starts"])
    if form == "any":
        return [known_value(rng, column) for _ in range(rng.randint(1, 4))]
    if form == "not":
        return {"not": known_value(rng, column)}
    if form == "not any":
        return {"not": [known_value(rng, column), known_value(rng, column)]}
    if form in ("range", "open") and column.kind != "flag":
        low, high = sorted([known_value(rng, column), known_value(rng, column)], key=sort_key)
        if form == "range":
            return {"from": low, "to": high}
        return rng.choice([{"from": low}, {"to": high}, {"from": None}])
    if form == "starts" and column.kind == "text":
        text = known_value(rng, column)
        return {"starts": text[: rng.randint(0, len(text))]}
    return known_value(rng, column)


def random_filter(rng, columns) -> dict:
    facts = [c for c in columns.values() if c.kind in FACTS]
    chosen = rng.sample(facts, min(rng.randint(0, 2), len(facts)))
    return {c.name: random_condition(rng, c) for c in chosen}


def random_column(rng, column: Column, n: int):
    if column.kind in FACTS:
        return [random_value(rng, column) for _ in range(n)]
    rows = np.random.default_rng(rng.randrange(2**32)).standard_normal((n, column.size))
    if rng.random() < 0.2:
        rows[rng.randrange(n)] = 0
    return rows


class Walk:
    "Random calls, each on an engine and on the reference"

    CALLS = dict(put=8, put_again=6, change=4, remove=3, add=1.5, tidy=0.7, reopen=1)

    def __init__(self, open_engine, rng: random.Random):
        self.open_engine = open_engine
        self.engine = open_engine()
        self.reference = Reference()
        self.rng = rng
        first = COLUMNS[: rng.randint(1, len(COLUMNS))]
        self.spare = [*COLUMNS[len(first) :], Column("w", "vector", 3), Column("place", "text")]
        for column in first:
            self.both("add_column", column)

    def both(self, call, *args):
        results = [getattr(e, call)(*args) for e in (self.engine, self.reference)]
        assert results[0] == results[1], (call, *args)

    def step(self):
        (call,) = self.rng.choices(list(self.CALLS), self.CALLS.values())
        getattr(self, call)()
        check_same(self.engine, self.reference, self.rng, random_filter(self.rng, self.reference.columns))

    def some_ids(self, k):
        return self.rng.choices([*self.reference.rows, "gone"], k=k)

    def put(self):
        rng = self.rng
        n = rng.randint(1, 12)
        self.put_rows([(rng.choice(HOSTILE) + str(rng.randrange(200)))[-2000:] for _ in range(n)])

    def put_again(self):
        self.put_rows(self.some_ids(4))

    def put_rows(self, ids):
        rng = self.rng
        ids = list(dict.fromkeys(ids))
        columns = self.reference.columns
        values = {}
        for name in rng.sample(list(columns), rng.randint(0, len(columns))):
            values[name] = None if rng.random() < 0.1 else random_column(rng, columns[name], len(ids))
        self.both("put", ids, values, rng.random() < 0.8)

    def change(self):
        facts = [c for c in self.reference.columns.values() if c.kind in FACTS]
        if facts:
            chosen = self.rng.sample(facts, self.rng.randint(1, len(facts)))
            self.both("change", self.some_ids(3), {c.name: random_value(self.rng, c) for c in chosen})

    def remove(self):
        self.both("remove", self.some_ids(2))

    def add(self):
        if self.spare:
            self.both("add_column", self.spare.pop(self.rng.randrange(len(self.spare))))

    def tidy(self):
        self.engine.tidy()

    def reopen(self):
        self.engine.close()
        self.engine = self.open_engine()


@pytest.mark.parametrize("seed", range(2))
def test_a_random_walk_agrees_with_a_dictionary(make, seed):
    walk = Walk(lambda: make(exact_below=20, **EVERY_LIST[make.kind]), random.Random(seed))
    for _ in range(45):
        walk.step()
    assert len(walk.reference.rows) > 10, "too few rows for a meaningful test"


# rule by rule


def test_columns_survive_and_new_ones_are_unknown(make):
    engine, reference, ids = filled(make)
    engine.close()
    engine = make()
    assert engine.columns == {c.name: c for c in COLUMNS} and list(engine.columns) == [c.name for c in COLUMNS]
    for wrong in (COLUMNS[0], Column("year", "text"), Column("id", "text")):
        pytest.raises(LabError, engine.add_column, wrong)
    for column in (Column("w", "vector", 2), Column("place", "text"), Column("others", "numbers", 5)):
        engine.add_column(column)
    rows = engine.read(ids[:3], ["w", "place", "others", "year"])
    assert rows["place"] == [None] * 3 and rows["year"] == [0, 1, 2]
    assert rows["w"].shape == (3, 2) and np.isnan(rows["w"]).all() and np.isnan(rows["others"]).all()
    assert engine.nearest("w", np.ones((1, 2)), 5) == [Nearest((), ())]
    engine.put(ids[:1], dict(w=[[1, 1]]))
    assert engine.nearest("w", np.ones((1, 2)), 5)[0].ids == (ids[0],)
    assert engine.read(ids[:1], ["year"])["year"] == [0]


def test_columns_that_are_not_given_keep_their_values(make):
    engine, reference, ids = filled(make)
    for n, values in enumerate(
        (dict(year=[100, 101]), dict(v=np.eye(2, 4)), dict(more=np.ones((2, 5)), name=["x", None]), {})
    ):
        for e in (engine, reference):
            e.put([ids[3], f"new {n}"], values)
        check_same(engine, reference, random.Random(0), {})


def test_without_insert_only_existing_rows_are_updated(make):
    engine, reference, ids = filled(make)
    for e in (engine, reference):
        e.remove(ids[:2])
        e.put(ids[:4], dict(v=np.eye(4), name=["x"] * 4), insert=False)
        e.put(ids[:2], dict(year=[1, 2]), insert=False)
        e.put([], dict(v=np.zeros((0, 4))), insert=False)
    assert engine.count() == 38 and engine.read(ids[:3], ["name"]) == dict(id=[ids[2]], name=["x"])
    check_same(engine, reference, random.Random(0), {})
    engine.add_column(Column("w", "vector", 2))
    engine.put(ids[:1], dict(w=[[1, 2]]), insert=False)
    assert engine.count() == 38


def test_none_makes_a_column_unknown(make):
    engine, reference, ids = filled(make)
    unknown = dict.fromkeys(["v", "more", "year", "name", "sharp", "score"])
    add_columns((Column("w", "vector", 2), Column("vector_w", "vector", 64)), engine, reference)
    for e in (engine, reference):
        e.put(ids[:3], dict(vector_w=np.ones((3, 64))))
        e.put(ids[:2] + ["fresh"], dict(vector_w=None))
        e.put([ids[0], "new"], unknown | dict(score=[0.5, None], w=None))
        e.put(ids[1:3], dict(v=None, year=[5, 6]), insert=False)
        e.put(["other"], dict(w=None))
    check_same(engine, reference, random.Random(0), {})
    assert len(engine.nearest("v", np.ones((1, 4)), 50)[0].ids) == 37
    assert engine.count(read_filter(dict(name={"from": None}), engine.columns)) == 39
    assert engine.nearest("vector_w", np.ones((1, 64)), 9)[0].ids == (ids[2],)


def test_columns_may_have_names_of_a_query_language(make):
    engine = make(exact_below=30)
    reference = Reference()
    names = ["select", "true", "null", "order", "from", "in", "and", "not", "text", "value", "timestamp", "rowid"]
    columns = [Column(n, "integer") for n in names]
    columns += [Column("false", "flag"), Column("where", "text")]
    columns += [Column("vector", "vector", 3), Column("table", "numbers", 2)]
    add_columns(columns, engine, reference)
    values = {n: [i] * 40 for i, n in enumerate(names)}
    values |= {
        "where": ["or"] * 40,
        "false": [True, None, False, True] * 10,
        "vector": np.random.default_rng(0).standard_normal((40, 3)),
        "table": np.ones((40, 2)),
    }
    for e in (engine, reference):
        e.put([str(i) for i in range(40)], values)
        assert e.change(["1", "2"], {"select": 5, "true": None, "where": "x", "false": False}) == 2
    filters = [{n: i} for i, n in enumerate(names)]
    filters += [
        {"select": {"not": 0}},
        {"true": {"from": 0, "to": 9}},
        {"where": {"starts": "o"}, "null": 2},
        {"false": True},
        {"false": {"not": True}},
        {"false": {"not": [True, False]}},
        {"false": [True, False]},
    ]
    for where in filters:
        check_same(engine, reference, random.Random(0), where)
    engine.tidy()
    for where in filters:
        check_same(engine, reference, random.Random(0), where)


def test_columns_that_another_engine_added_are_noticed(make):
    a = make()
    b = make()
    assert a.columns == b.columns == {}
    a.add_column(Column("year", "integer"))
    pytest.raises(LabError, b.add_column, Column("year", "integer"))
    b.put(["x"], dict(year=[3]))
    a.add_column(Column("v", "vector", 2))
    assert b.change(["x"], dict(year=4)) == 1
    b.put(["x"], dict(v=[[1, 2]]))
    assert b.nearest("v", [[1, 2]], 3)[0].ids == ("x",)
    a.add_column(Column("w", "vector", 2))
    assert b.nearest("w", [[1, 2]], 3) == [Nearest((), ())]
    a.add_column(Column("name", "text"))
    assert b.read(["x"], ["name"])["name"] == [None]
    a.add_column(Column("place", "text"))
    assert [part["place"] for part in b.walk(["place"])] == [[None]]
    a.add_column(Column("score", "number"))
    assert b.change(["x"], dict(score=1)) == 1
    time.sleep(1.1)
    assert list(b.columns) == list(a.columns)
    nearest = a.nearest("v", [[1, 2]], 3)
    assert nearest == b.nearest("v", [[1, 2]], 3) and nearest[0].ids == ("x",)
    assert a.count(read_filter(dict(score=1), a.columns)) == 1


@pytest.fixture(scope="module", params=ENGINES)
def hostile(request, tmp_path_factory):
    "One row per hostile text, as its id and its name, and one row without a name"
    engine = ENGINES[request.param](tmp_path_factory.mktemp("hostile"))
    add_columns(COLUMNS, engine)
    engine.put(HOSTILE, dict(name=HOSTILE, v=np.tile([1, 2, 3, 4], (len(HOSTILE), 1))))
    engine.put(["unknown"], {})
    yield engine
    engine.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_ids_and_texts_are_only_texts(text, hostile):
    engine = hostile

    def conditions(condition):
        return read_filter(dict(name=condition), engine.columns)

    assert engine.read([text], ["name"]) == dict(id=[text], name=[text])
    for condition in (text, [text], [text, "elsewhere"], {"from": text, "to": text}):
        assert ids_of(engine.walk([], conditions(condition))) == [text], condition
    assert engine.count(conditions({"not": text})) == len(HOSTILE) - 1
    for prefix in (text, text[:1], text[:2]):
        expected = [id for id in HOSTILE if id.startswith(prefix)]
        assert sorted(ids_of(engine.walk([], conditions({"starts": prefix})))) == sorted(expected)
    assert engine.nearest("v", [[1, 2, 3, 4]], 5, conditions(text))[0].ids == (text,)
    assert engine.change([text], dict(year=7)) == 1
    assert engine.read([text], ["year"])["year"] == [7]
    assert engine.count(read_filter(dict(year=7), engine.columns)) == 1
    assert engine.change([text], dict(year=None, name=text)) == 1


def test_hostile_ids_are_removed_one_by_one(make):
    engine = make()
    engine.add_column(COLUMNS[0])
    left = [*HOSTILE]
    engine.put(left, dict(year=list(range(len(left)))))
    while left:
        assert engine.remove([left.pop(0), "gone"]) == 1
        assert engine.count() == len(left) and sorted(engine.read(left, [])["id"]) == sorted(left)


def test_many_ids_in_one_call(make):
    engine = make()
    engine.add_column(COLUMNS[0])
    ids = [f"it's {i}" for i in range(2500)]
    years = [i % 10 for i in range(2500)]
    engine.put(ids, dict(year=years))
    assert engine.count() == 2500
    rows = engine.read(ids[::-1], ["year"])
    assert rows["id"] == ids[::-1] and rows["year"] == years[::-1]
    assert engine.count(read_filter(dict(year={"not": [1, 2]}), engine.columns)) == 2000
    assert engine.count([Condition(COLUMNS[0], "any", tuple(range(5, 1005)))]) == 1250
    assert engine.change(ids[:2400] + ids[:2400], dict(year=77)) == 2400
    assert engine.count(read_filter(dict(year=77), engine.columns)) == 2400
    assert engine.remove(ids[:2300] + ["gone"]) == 2300
    assert engine.count() == 200


def test_pages_of_a_search_agree(make):
    engine, reference, ids = filled(make, 130)
    queries = np.random.default_rng(5).standard_normal((3, 4)).astype("float32")
    for where in ({}, dict(year={"from": 2, "to": 5}), dict(sharp=True, score={"to": 30})):
        conditions = read_filter(where, engine.columns)
        for query, nearest in zip(queries, engine.nearest("v", queries, 200, conditions)):
            check_nearest(nearest, reference.cosines("v", query, where), 200)
            paged = []
            for skip in range(0, 140, 9):
                paged += engine.nearest("v", query[None], 9, conditions, skip)[0].ids
            assert paged == list(nearest.ids)


def test_zero_and_unknown_vectors(make):
    engine, reference, ids = filled(make, 10)
    for e in (engine, reference):
        e.put(["zero", "none"], dict(year=[1, None]))
        e.put(["zero"], dict(v=np.zeros((1, 4)), more=np.zeros((1, 5))))
    check_same(engine, reference, random.Random(3), {})
    rows = engine.read(["zero", "none"], ["v", "more", "year", "name", "sharp", "score"])
    assert not rows["v"][0].any() and np.isnan(rows["v"][1]).all() and rows["year"] == [1, None]
    assert rows["sharp"] == rows["score"] == rows["name"] == [None, None]
    assert set(engine.nearest("v", np.ones((1, 4)), 50)[0].ids) == set(ids)
    no_queries = np.stack([np.zeros(4), np.full(4, np.nan), np.full(4, np.inf)])
    assert engine.nearest("v", no_queries, 5) == [Nearest((), ())] * 3
    assert engine.nearest("v", np.zeros((0, 4)), 5) == []
    for condition in ({"not": 1}, {"not": [99]}, {"from": None}, {"to": 2**62}):
        assert "none" not in ids_of(engine.walk([], read_filter(dict(year=condition), engine.columns)))


def test_an_empty_engine_answers(make):
    engine = make()
    assert (engine.count(), engine.columns, engine.remove(["a"])) == (0, {}, 0)
    assert (engine.read(["a"], []), list(engine.walk([]))) == (dict(id=[]), [])
    engine.tidy()
    add_columns(COLUMNS, engine)
    assert engine.nearest("v", np.ones((2, 4)), 3) == [Nearest((), ())] * 2
    assert engine.change(["a"], dict(year=1)) == 0
    assert engine.count(read_filter(dict(year=1), engine.columns)) == 0
    assert list(engine.walk(["v"])) == [] and engine.read(["a"], ["v", "year"])["v"].shape == (0, 4)
    engine.put([], {})
    engine.put([], dict(v=np.zeros((0, 4))))
    engine.tidy()
    assert engine.count() == 0
    engine.put(["a"], {})
    assert engine.count() == 1 and np.isnan(engine.read(["a"], ["v"])["v"]).all()


ONES = np.ones((1, 4))
INVALID_ROWS = [
    (["a"], dict(year=["x"])),
    (["a"], dict(year=[1.5])),
    (["a"], dict(year=[True])),
    (["a"], dict(year=[2**63])),
    (["a"], dict(score=[float("nan")])),
    (["a"], dict(name=[3])),
    (["a"], dict(name=["bad\udcff"])),
    (["a"], dict(sharp=[1])),
    (["a"], dict(v=np.ones((1, 5)))),
    (["a"], dict(v=np.ones(4))),
    (["a"], dict(v=ONES * np.nan)),
    (["a"], dict(v=ONES * 1e6)),
    (["a"], dict(more=ONES)),
    (["a", "b"], dict(v=ONES)),
    (["a"], dict(year=[1, 2])),
    (["a"], dict(colour=[1])),
    (["a"], dict(id=["b"])),
    (["a", "a"], dict(year=[1, 2])),
    ([""], {}),
    (["x" * 2001], {}),
    (["bad\udcff"], {}),
    ([3], {}),
    # the first row alone would be valid
    (["it's 0", "a"], dict(year=[999, "x"])),
    (["it's 0", "a"], dict(year=[999, 1], v=np.ones((2, 3)))),
]
INVALID_CALLS = [
    ("nearest", ("year", ONES, 3)),
    ("nearest", ("gone", ONES, 3)),
    ("nearest", ("more", ONES, 3)),
    ("nearest", ("v", np.ones((1, 3)), 3)),
    ("nearest", ("v", np.ones(4), 3)),
    ("read", (["it's 0"], ["gone"])),
    ("read", ([], ["gone"])),
    ("change", (["it's 0"], dict(v=1))),
    ("change", (["it's 0"], dict(gone=1))),
    ("change", (["it's 0"], dict(year="x"))),
    ("change", (["it's 0"], dict(more=None))),
    ("change", (["it's 0"], dict(id="x"))),
]


def test_invalid_calls_are_refused_and_change_nothing(make):
    engine, reference, ids = filled(make, 10)
    assert ids[0] == "it's 0"
    for rows in INVALID_ROWS:
        pytest.raises(LabError, engine.put, *rows)
    for name, args in INVALID_CALLS:
        pytest.raises(LabError, getattr(engine, name), *args)
    with pytest.raises(LabError):
        list(engine.walk(["gone"]))
    check_same(engine, reference, random.Random(0), {})
    assert engine.read(["bad\udcff", "", "x" * 3000, 3], [])["id"] == []
    assert engine.remove(["bad\udcff", ""]) == 0
    assert engine.change(["bad\udcff"], dict(year=1)) == 0


# indexes


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


class Indexed:
    "An engine with an index of random vectors whose ids are their numbers"

    N = 2600

    def __init__(self, make):
        self.engine = make(exact_below=1000, **SOME_LISTS[make.kind])
        add_columns((Column("v", "vector", 16), Column("year", "integer")), self.engine)
        rng = np.random.default_rng(0)
        vectors = rng.standard_normal((self.N, 16)).astype("float16").astype("float32")
        ids = [f"{i:05d}" for i in range(self.N)]
        self.engine.put(ids, dict(v=vectors, year=[i % 10 for i in range(self.N)]))
        self.engine.tidy()
        self.queries = rng.standard_normal((30, 16)).astype("float32")
        self.cosines = unit(self.queries) @ unit(vectors).T  # [Q, N]


def of(cosines, nearest: Nearest):
    "The cosines of some results"
    return cosines[[int(id) for id in nearest.ids]]


def test_an_index_finds_nearly_all_and_exact_finds_all(make):
    indexed = Indexed(make)
    engine = indexed.engine
    approximate = engine.nearest("v", indexed.queries, 10)
    exact = engine.nearest("v", indexed.queries, 10, exact=True)
    recalls = []
    for near, all_compared, cosines in zip(approximate, exact, indexed.cosines):
        best = np.argsort(-cosines)[:10]
        assert len(set(all_compared.ids)) == 10
        assert np.allclose(of(cosines, all_compared), cosines[best], atol=5e-4)
        assert np.allclose(all_compared.cosines, cosines[best], atol=2e-3)
        assert np.allclose(near.cosines, of(cosines, near), atol=2e-3)
        assert list(near.cosines) == sorted(near.cosines, reverse=True)
        recalls.append(len(set(map(int, near.ids)) & set(best)) / 10)
    assert np.mean(recalls) > 0.9
    if make.kind == "lance":
        assert engine.indexed("v") == indexed.N
    else:
        assert np.mean(recalls) < 1, "the index was not used"
    where = read_filter(dict(year=3), engine.columns)
    for nearest, cosines in zip(engine.nearest("v", indexed.queries, 10, where, exact=True), indexed.cosines):
        assert all(int(id) % 10 == 3 for id in nearest.ids)
        assert np.allclose(of(cosines, nearest), np.sort(cosines[3::10])[::-1][:10], atol=5e-4)
    filtered = engine.nearest("v", indexed.queries, 10, where)
    assert len(filtered[0].ids) == 10
    assert all(int(id) % 10 == 3 for nearest in filtered for id in nearest.ids)


def test_an_index_follows_changes_and_is_there_after_reopening(make):
    indexed = Indexed(make)
    engine = indexed.engine
    query = indexed.queries[:1]
    before = engine.nearest("v", indexed.queries, 10)
    engine.put(["new"], dict(v=query))
    assert engine.nearest("v", query, 1)[0].ids == ("new",)
    engine.put(["new"], dict(v=-query))
    assert "new" not in engine.nearest("v", query, 100)[0].ids
    assert engine.nearest("v", -query, 1)[0].ids == ("new",)
    engine.remove(["new"])
    assert "new" not in engine.nearest("v", -query, 100)[0].ids
    engine.close()
    engine = make(exact_below=1000, **SOME_LISTS[make.kind])
    assert engine.nearest("v", indexed.queries, 10) == before and engine.count() == indexed.N
    paged = []
    for skip in range(0, 40, 10):
        paged += engine.nearest("v", query, 10, skip=skip)[0].ids
    assert paged[:10] == list(before[0].ids)


def test_a_column_with_few_vectors_is_compared_and_an_index_forgets_unknown_ones(make):
    engine = make(exact_below=200)
    reference = Reference()
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(600)]
    queries = rng.standard_normal((2, 4))
    add_columns([Column(c, "vector", 4) for c in "vw"], engine, reference)

    def put(ids, **values):
        for e in (engine, reference):
            e.put(ids, values)

    def check():
        for column in "vw":
            for k in (5, 700):
                results = engine.nearest(column, queries, k, exact=k == 5)
                for query, nearest in zip(queries, results):
                    check_nearest(nearest, reference.cosines(column, query), k)
            for query, nearest in zip(queries, engine.nearest(column, queries, 5)):
                assert len(nearest.ids) == 5 and set(nearest.ids) <= set(reference.cosines(column, query))

    put(ids, v=rng.standard_normal((600, 4)))
    put(ids[:10], w=rng.standard_normal((10, 4)))  # as after an interrupted embed
    engine.tidy()
    check()
    put(ids[:250], w=rng.standard_normal((250, 4)))
    check()
    engine.tidy()
    check()
    put(ids[20:60], w=None, v=None)
    put(["late"], w=np.ones((1, 4)))
    check()
    engine.tidy()
    check()
    put(ids[20:40] + ["zero"], w=np.zeros((21, 4)))
    put(ids[40:50], w=-np.ones((10, 4)))
    engine.tidy()
    check()
    put(ids[:220], w=None)
    engine.tidy()
    check()


def test_an_index_loses_nothing_of_a_narrow_filter_and_of_late_pages(make):
    n = 3000
    engine = make(exact_below=1000)
    reference = Reference()
    add_columns((Column("v", "vector", 8), Column("rare", "flag"), Column("year", "integer")), engine, reference)
    rng = np.random.default_rng(0)
    values = dict(v=rng.standard_normal((n, 8)), rare=[i % 300 == 0 for i in range(n)], year=[i % 2 for i in range(n)])
    queries = rng.standard_normal((2, 8))
    for e in (engine, reference):
        e.put([str(i) for i in range(n)], values)
    engine.tidy()
    rare = read_filter(dict(rare=True), engine.columns)
    for query, nearest in zip(queries, engine.nearest("v", queries, 10, rare)):
        check_nearest(nearest, reference.cosines("v", query, dict(rare=True)), 10)
    for where, k, skip, expected in (
        (dict(rare=True), 100, 0, 10),
        (dict(rare=True), 4, 8, 2),
        ({}, 2000, 0, 2000),
        ({}, 2000, 2000, 1000),
        (dict(year=1), 1200, 0, 1200),
        (dict(year=1), 1000, 1000, 500),
        (dict(year=1, rare=True), 10, 0, 0),
    ):
        results = engine.nearest("v", queries, k, read_filter(where, engine.columns), skip)
        for query, nearest in zip(queries, results):
            cosines = reference.cosines("v", query, where)
            best = sorted(cosines, key=cosines.get, reverse=True)[skip : skip + k]
            found = set(nearest.ids)
            assert len(found) == expected and found <= set(cosines), (where, k, skip)
            assert np.allclose(nearest.cosines, [cosines[id] for id in nearest.ids], atol=2e-3)
            assert len(found & set(best)) >= 0.95 * expected, (where, k, skip)


# Lance


@pytest.fixture
def lance_engine(tmp_path):
    "Opens Lance engines of one folder; closed at the end"
    opened = []

    def make(**options):
        engine = LanceEngine(tmp_path / "lance", **options)
        opened.append(engine)
        return engine

    make.folder = tmp_path / "lance"
    make.dataset = lambda: lance.dataset(str(make.folder / "pictures.lance"))
    yield make
    for engine in opened:
        engine.close()


def test_lists_of_an_index_follow_the_number_of_vectors(lance_engine):
    engine = lance_engine(exact_below=200)
    add_columns([Column(c, "vector", 4) for c in "vw"], engine)
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(900)]

    def list_lengths():
        indexes = lance_engine.dataset().describe_indices()
        return {i.field_names[0]: i.details.get("target_partition_size") for i in indexes}

    engine.put(ids, dict(v=rng.standard_normal((900, 4))))
    engine.put(ids[:199], dict(w=rng.standard_normal((199, 4))))
    engine.tidy()
    assert list_lengths() == dict(id=None, v=30)
    for n, length in ((225, 15), (400, 15), (484, 22)):
        engine.put(ids[:n], dict(w=rng.standard_normal((n, 4))))
        engine.tidy()
        assert list_lengths() == dict(id=None, v=30, w=length) and engine.indexed("w") == 900


def test_rows_written_while_an_index_is_made_are_found(lance_engine, monkeypatch):
    engine, other = [lance_engine(exact_below=100, patience_s=0.05) for _ in range(2)]
    other.TIDY_AFTER = 1
    reference = Reference()
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(300)]
    add_columns((Column("v", "vector", 4), Column("year", "integer")), engine, reference)
    vectors = rng.standard_normal((300, 4))
    for e in (engine, reference):
        e.put(ids, dict(v=vectors))
    finished = []

    def write():
        "By another process, and by another thread of this one"
        for e in (other, reference):
            e.put(["new"], dict(v=np.ones((1, 4))))
            e.put(ids[:50], dict(v=-np.ones((50, 4))))
            e.put(ids[50:60], dict(v=None))
            e.remove(ids[60:70])
            e.put(ids[250:], dict(year=[1] * 50, v=np.eye(50, 4) - 0.5))
            e.change(ids[80:90], dict(year=3))
        engine.put(["thread"], dict(v=np.ones((1, 4))))
        engine.nearest("v", np.ones((1, 4)), 3)
        finished.append(True)

    create_index = lance.LanceDataset.create_index

    def slow(table, *args, **options):
        "Makes the index of the version before the writes"
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(60)
        return create_index(table, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "create_index", slow)
    engine.tidy()
    reference.put(["thread"], dict(v=np.ones((1, 4))))
    assert finished and engine.indexed("v") == engine.count() == 292
    time.sleep(1.1)
    for e in (engine, other):
        for query in rng.standard_normal((3, 4)):
            for k in (3, 400):
                check_nearest(e.nearest("v", [query], k)[0], reference.cosines("v", query), k)


class Indexes:
    "Parts and rows of the indexes of a Lance engine"

    def __init__(self, lance_engine):
        self.dataset = lance_engine.dataset

    def parts(self):
        return {i.field_names[0]: [s.uuid for s in i.segments] for i in self.dataset().describe_indices()}

    def rows(self):
        return {i.field_names[0]: i.num_rows_indexed for i in self.dataset().describe_indices()}


def test_tidy_updates_only_what_is_behind(lance_engine, monkeypatch):
    engine = lance_engine(exact_below=100)
    add_columns((Column("v", "vector", 4), Column("w", "vector", 4), Column("year", "integer")), engine)
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(300)]
    indexes = Indexes(lance_engine)
    created = {}

    def record(name):
        create = getattr(lance.LanceDataset, name)

        def recorded(table, column, *args, **options):
            create(table, column, *args, **options)
            created[column] = indexes.parts()[column]

        monkeypatch.setattr(lance.LanceDataset, name, recorded)

    record("create_index")
    record("create_scalar_index")
    for start in range(0, 300, 100):
        vectors = dict(v=rng.standard_normal((100, 4)), w=rng.standard_normal((100, 4)))
        engine.put(ids[start : start + 100], vectors | dict(year=[1] * 100))
    engine.tidy()
    # the compaction at the end keeps the new indexes
    assert created == indexes.parts() and set(created) == {"id", "v", "w", "year"}
    complete = dict.fromkeys(created, 300)
    assert indexes.rows() == complete
    count_rows = lance.LanceDataset.count_rows
    filters = []

    def recorded_count(dataset, filter=None, **options):
        if filter:
            filters.append(filter)
        return count_rows(dataset, filter, **options)

    monkeypatch.setattr(lance.LanceDataset, "count_rows", recorded_count)
    before = indexes.parts()
    engine.tidy()
    assert indexes.parts() == before and filters == []  # no column was read
    monkeypatch.setattr("dasd_lab.search.on_disk.lance.WHOLE", 0)
    engine.put(ids[:10], dict(w=rng.standard_normal((10, 4))))
    assert indexes.rows()["w"] < 300 <= indexes.rows()["v"]
    engine.tidy()
    after = indexes.parts()
    assert indexes.rows() == complete and after["w"] != before["w"]
    assert all(len(parts) == 1 for parts in after.values())
    engine.tidy()
    assert indexes.parts() == after


def test_tidy_without_vectors(lance_engine):
    engine = lance_engine(exact_below=100)
    engine.add_column(Column("year", "integer"))
    engine.put([str(i) for i in range(300)], dict(year=[1] * 300))
    engine.tidy()
    engine.put(["late"], dict(year=[2]))
    engine.tidy()
    assert Indexes(lance_engine).rows() == dict(id=301, year=301)


def test_a_write_succeeds_when_compaction_fails(lance_engine, monkeypatch):
    engine = lance_engine()
    engine.add_column(Column("year", "integer"))
    engine.TIDY_AFTER = 1

    def full(*args, **options):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched, pytest.warns(UserWarning, match="No space left"):
        patched.setattr(DatasetOptimizer, "compact_files", full)
        engine.put(["a"], dict(year=[1]))
    assert engine.count() == 1
    engine.put(["b"], dict(year=[2]))
    assert engine.count() == 2


def test_updating_one_column_of_a_few_rows_writes_little(lance_engine):
    "And the index of another column still covers all other rows"
    engine = lance_engine(exact_below=2000)

    def size():
        return sum(f.stat().st_size for f in lance_engine.folder.rglob("*") if f.is_file())

    vectors = np.random.default_rng(0).standard_normal((4000, 64)).astype(np.float32)
    add_columns((Column("v", "vector", 64), Column("w", "vector", 64), Column("year", "integer")), engine)
    engine.put([str(i) for i in range(4000)], dict(v=vectors, w=vectors, year=[1] * 4000))
    engine.tidy()
    before = size()
    engine.put(["7", "gone"], dict(w=-vectors[:2]), insert=False)
    assert size() - before < 100_000  # the whole column has 512,000 bytes
    assert engine.indexed("v") >= 3999 and engine.count() == 4000
    rows = engine.read(["7", "8"], ["v", "w", "year"])
    assert rows["year"] == [1, 1]
    np.testing.assert_array_equal(rows["v"], vectors[7:9].astype(np.float16))
    np.testing.assert_array_equal(rows["w"], np.stack([-vectors[0], vectors[8]]).astype(np.float16))


def test_columns_are_not_read_at_every_search(lance_engine, monkeypatch):
    engine = lance_engine()
    engine.add_column(Column("v", "vector", 2))
    engine.put(["a"], dict(v=[[1, 2]]))
    refresh = LanceEngine._refresh
    calls = []

    def recorded(self):
        calls.append(self)
        return refresh(self)

    monkeypatch.setattr(LanceEngine, "_refresh", recorded)
    engine._refreshed_at = time.monotonic() + 600
    for _ in range(3):
        assert engine.nearest("v", np.ones((1, 2)), 1)[0].ids == ("a",) and [*engine.columns] == ["v"]
    assert not calls
    engine._refreshed_at = time.monotonic() - 2
    engine.nearest("v", np.ones((1, 2)), 1)
    assert len(calls) == 1


def test_tidy_waits_for_a_writer(lance_engine):
    engine = lance_engine(exact_below=20, patience_s=0.05)
    engine.add_column(Column("v", "vector", 4))
    engine.put([str(i) for i in range(30)], dict(v=np.random.default_rng(0).standard_normal((30, 4))))
    engine.tidy()
    engine.put(["late"], dict(v=np.ones((1, 4))))
    with FileLock(lance_engine.folder / ".writing"):
        pytest.raises(LabError, engine.tidy)
        pytest.raises(LabError, engine.put, ["x"], {})
        pytest.raises(LabError, engine.add_column, Column("w", "vector", 2))
    engine.patience_s = 60
    lock = FileLock(lance_engine.folder / ".writing", thread_local=False)
    lock.acquire()
    thread = threading.Thread(target=engine.tidy)
    thread.start()
    lock.release()
    thread.join()
    assert engine.indexed("v") == 31 == engine.count()


# several processes, and kills

OPEN = dict(
    lance="from dasd_lab.search.on_disk.lance import LanceEngine\nengine = LanceEngine({folder!r} + '/lance')\n",
    milvus="from dasd_lab.search.on_disk.milvus import MilvusEngine\n"
    "engine = MilvusEngine({folder!r} + '/milvus.db', 'pictures')\n",
    server="from dasd_lab.search.on_disk.milvus import MilvusEngine\nengine = MilvusEngine({uri!r}, 'pictures')\n",
)
BATCH = 20
WRITER = """
import itertools
import numpy as np
for k in itertools.count():
    ids = [f"{k}-{i}" for i in range(20)]
    vectors = np.full((20, 4), k % 50 + 1)
    engine.put(ids, dict(year=[k] * 20, v=vectors, name=["first"] * 20))
    print("put", k, flush=True)
    more = ids[::2] + [f"{k}+{i}" for i in range(10)]
    engine.put(more, dict(year=[k] * 20, v=vectors, name=["second"] * 20))
    print("again", k, flush=True)
    engine.change(ids, dict(score=float(k)))
    print("change", k, flush=True)
    if k % 3 == 2:
        engine.remove([f"{k - 1}-{i}" for i in range(20)])
        print("remove", k - 1, flush=True)
"""


@contextmanager
def child(code: str):
    "Another process that prints lines; killed at the end"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process) -> str:
    "The next line of a child, or its error"
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.stderr.read()[-2000:])
    return line.strip()


def killed_writer(code: str, lines: int) -> set[tuple[str, str]]:  # (call, k) that were acknowledged
    "Run `WRITER`, and kill it shortly after some lines"
    acknowledged = set()
    with child(code + WRITER) as process:
        for _ in range(lines):
            acknowledged.add(tuple(next_line(process).split()))
        time.sleep(random.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        acknowledged |= {tuple(line.split()) for line in process.stdout if line.endswith("\n")}
    return acknowledged


def check_step(k: int, rows: dict, acknowledged: set):
    "Rows of one step of `WRITER`: each call is complete or absent, and complete if it was acknowledged"
    groups = [[rows.get(f"{k}-{i}") for i in range(start, BATCH, 2)] for start in (1, 0)]
    groups.append([rows.get(f"{k}+{i}") for i in range(10)])
    for group in groups:
        assert len(set(group)) == 1, (k, group)
    first, second, extra = (group[0] for group in groups)  # (year, score, name), or None
    if ("remove", str(k)) in acknowledged:
        assert first is None and second is None and extra == (k, None, "second")
        return
    # its removal may have been in progress
    removed = k % 3 == 1 and first is None and second is None and extra is not None
    if removed:
        assert extra == (k, None, "second")
        return
    if ("put", str(k)) in acknowledged:
        assert first and second and first[0] == k and first[2] == "first"
    if ("again", str(k)) in acknowledged:
        assert extra == (k, None, "second") and second[2] == "second"
    if ("change", str(k)) in acknowledged:
        assert first[1] == second[1] == k
    # each call was complete or absent
    assert (extra is None) == (second is None or second[2] == "first")
    assert (first is None) == (second is None)
    assert first is None or first[1] == second[1]


@pytest.mark.parametrize("lines", [11])
def test_a_kill_loses_nothing_that_was_acknowledged_and_leaves_complete_calls(make, lines):
    engine = make()
    add_columns(COLUMNS, engine)
    engine.close()
    acknowledged = killed_writer(OPEN[make.kind].format(folder=str(make.folder)), lines)
    engine = make()
    rows = {}
    for part in engine.walk(["year", "score", "name", "v"]):
        for id, year, score, name, v in zip(*(part[n] for n in ("id", "year", "score", "name", "v"))):
            assert (v == year % 50 + 1).all()
            rows[id] = year, score, name
    assert len(rows) == engine.count()
    last = max(int(k) for _, k in acknowledged)
    for k in range(last + 2):
        check_step(k, rows, acknowledged)
    engine.put(["after"], dict(year=[1]))
    assert engine.count() == len(rows) + 1


READER = """
from collections import Counter
import numpy as np
seen = 0
print("ready", flush=True)
while seen < {all}:
    ids = [id for part in engine.walk(["year"]) for id in part["id"]]
    n = engine.count()
    nearest = engine.nearest("v", np.ones((1, 4)), 5)[0].ids
    incomplete = sum(size != 20 for size in Counter(id.split("-")[0] for id in ids).values())
    assert len(set(ids)) == len(ids) and seen <= len(ids) <= n, (seen, len(ids), n)
    assert incomplete <= {incomplete}, incomplete
    assert min(5, n) <= len(nearest) <= 5
    assert all(len(engine.read([id], ["v"])["id"]) == 1 for id in nearest)
    seen = len(ids)
print("all", flush=True)
"""


@contextmanager
def milvus_lite(folder: Path):
    "A server of Milvus Lite for several processes on this machine"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    code = "from milvus_lite.adapter.grpc.server import run_server\n"
    code += f'run_server({str(folder)!r}, "127.0.0.1", {port})'
    with child(code) as server:
        assert "listening" in next_line(server)
        yield server, f"http://127.0.0.1:{port}"


def put_batch(engine, k: int):
    vectors = np.random.default_rng(k).standard_normal((BATCH, 4))
    engine.put([f"{k}-{i}" for i in range(BATCH)], dict(year=[k] * BATCH, v=vectors))


def check_reader_beside_writer(engine, code: str, incomplete: int = 0):
    "`incomplete`: batches that a walk may see in part; Milvus Lite has no snapshots"
    for k in range(3):
        put_batch(engine, k)
    reader = READER.replace("{all}", str(15 * BATCH)).replace("{incomplete}", str(incomplete))
    with child(code + reader) as process:
        assert next_line(process) == "ready"
        for k in range(3, 15):
            put_batch(engine, k)
            engine.change([f"{k}-0"], dict(score=1.0))
            if k == 8:
                engine.tidy()
        assert next_line(process) == "all"


def test_other_processes_read_while_one_writes_lance(lance_engine, tmp_path):
    engine = lance_engine()
    add_columns(COLUMNS, engine)
    check_reader_beside_writer(engine, OPEN["lance"].format(folder=str(tmp_path)))


def test_other_processes_read_while_one_writes_milvus_and_the_server_may_be_killed(tmp_path):
    "Over the network as with a cluster, also while a new column replaces the collection"
    with milvus_lite(tmp_path / "data") as (server, uri):
        engine = MilvusEngine(uri, "pictures")
        add_columns(COLUMNS, engine)
        check_reader_beside_writer(engine, OPEN["server"].format(uri=uri), incomplete=1)
        other = MilvusEngine(uri, "pictures")
        assert other.count() == 15 * BATCH
        engine.add_column(Column("w", "vector", 2))
        engine.put(["0-0"], dict(w=[[1, 2]]))  # replaces the collection
        assert other.count() == 15 * BATCH
        assert len(other.nearest("v", np.ones((1, 4)), 400)[0].ids) == 15 * BATCH
        walk = other.walk(["year"], size=100)
        ids = next(walk)["id"]
        engine.add_column(Column("place", "text"))
        engine.put(["0-1"], dict(place=["here"]))
        time.sleep(1.1)
        ids += ids_of(walk)  # continues in the new collection
        assert sorted(ids) == sorted(f"{k}-{i}" for k in range(15) for i in range(BATCH))
        time.sleep(1.1)
        assert other.columns == engine.columns and other.nearest("w", [[1, 2]], 3)[0].ids == ("0-0",)
        server.kill()
        server.wait()
    with milvus_lite(tmp_path / "data") as (_, uri):
        again = MilvusEngine(uri, "pictures")
        assert again.count() == 15 * BATCH and again.read(["0-1", "0-0"], ["place"])["place"] == ["here", None]
        again.close()
    with pytest.raises(LabError, match="Fail connecting"):
        MilvusEngine(uri, "pictures", timeout_s=1)


# Milvus


@contextmanager
def killed_at(monkeypatch, request: str, after: int = 0):
    "A kill at a request of the client, after some of that name"
    real = getattr(MilvusClient, request)
    left = after

    def stopped(*args, **options):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return real(*args, **options)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MilvusClient, request, stopped)
        yield


@pytest.fixture
def milvus_file(tmp_path):
    "Opens galleries in one file of Milvus Lite; closed at the end"
    opened = []

    def make(name="a", **options):
        engine = MilvusEngine(tmp_path / "m.db", name, **options)
        opened.append(engine)
        return engine

    make.other = make("other")  # keeps the file open
    yield make
    for engine in opened:
        engine.close()


def collections_of(engine) -> list[str]:
    return [c for c in engine._client.list_collections() if c.startswith(f"{engine.name}__")]


@pytest.mark.parametrize("request_name", ["create_index", "load_collection", "upsert"])
def test_a_gallery_on_milvus_whose_creation_was_killed_can_be_opened(milvus_file, monkeypatch, request_name):
    with killed_at(monkeypatch, request_name):
        milvus_file()
    assert milvus_file().columns == {}


def test_a_kill_while_a_collection_is_replaced_loses_nothing(milvus_file, monkeypatch):
    engine = milvus_file()
    engine.add_column(Column("v", "vector", 2))
    engine.put(["x", "y"], dict(v=[[1, 2], [2, 1]]))
    for k, request in enumerate(("insert", "drop_collection")):
        engine.add_column(Column(f"c{k}", "integer"))
        with killed_at(monkeypatch, request, after=k):
            engine.put(["x"], {f"c{k}": [k]})
        engine.close()
        engine = milvus_file()
        assert engine.count() == 2 and engine.nearest("v", [[1, 2]], 5)[0].ids == ("x", "y")
        engine.put(["x"], {f"c{k}": [k]})
        assert engine.read(["x", "y"], [f"c{k}"])[f"c{k}"] == [k, None]
    assert len(collections_of(engine)) == 2
    engine.add_column(Column("more", "text"))
    engine.put(["x"], dict(more=["m"]))
    assert collections_of(engine) == [engine._collection(engine._layout(fresh=True))]


def test_galleries_on_milvus_with_similar_names_do_not_mix(milvus_file):
    for wrong in ("a__1", "a__01", "_" + "__7"):
        pytest.raises(LabError, milvus_file, wrong)
    engine = milvus_file()
    similar = milvus_file("a__b")
    similar.add_column(Column("v", "vector", 2))
    similar.put(["z"], dict(v=[[1, 2]]))
    engine.add_column(Column("w", "integer"))
    engine.put(["x"], dict(w=[1]))
    assert similar.count() == 1


def test_a_gallery_on_milvus_without_its_record_is_not_replaced_by_a_new_one(milvus_file, monkeypatch):
    engine = milvus_file(consistency="Eventually")
    engine.add_column(Column("v", "vector", 2))
    engine.put(["x"], dict(v=[[1, 2]]))
    collection = engine._collection(engine._layout())
    query = MilvusClient.query
    queries = set()

    def recorded(client, name, *args, **options):
        queries.add((name, options["consistency_level"]))
        return query(client, name, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(MilvusClient, "query", recorded)
        milvus_file(consistency="Eventually").count()
    assert queries == {("a", "Strong"), (collection, "Eventually")}  # the record is always the latest one
    engine._client.delete("a", ids=["about"])
    with pytest.raises(LabError, match=collection):
        milvus_file()
    assert engine._client.has_collection(collection)


def test_a_change_on_milvus_does_not_restore_a_removed_image(milvus_file, monkeypatch):
    engine = milvus_file()
    engine.add_column(Column("year", "integer"))
    engine.put(["x", "y"], dict(year=[1, 2]))
    put = MilvusEngine.put

    def late(self, *args, **options):
        self.remove(["x"])
        return put(self, *args, **options)

    monkeypatch.setattr(MilvusEngine, "put", late)
    engine.change(["x", "y"], dict(year=3))
    assert engine.count() == 1 and engine.read(["x", "y"], ["year"]) == dict(id=["y"], year=[3])


# galleries


def hits_of(gallery, ids) -> list[list[tuple[str, int]]]:
    searches = [
        gallery.search("rot", "de", k=40),
        gallery.search("grün blau", "de", k=5, skip=7),
        gallery.search("gelb", "de", k=5, where=dict(colour=["it's", "a"], shade={"to": 20})),
        gallery.similar(ids[9], k=6),
        gallery.search("rot", "de", k=5, picture=ids[8], share=0.3),
    ]
    return [[(hit.id, hit.rank) for hit in hits] for hits in searches]


def test_a_stored_gallery_finds_the_same_on_both(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [Image.new("RGB", (8, 8), tuple(int(x) for x in rng.integers(0, 255, 3))) for _ in range(40)]
    ids = [f"bild {i}'ü" for i in range(40)]
    columns = dict(shade="integer", colour="text")
    on_lance = StoredGallery(tmp_path / "lance", Named(), columns)
    on_milvus = StoredGallery(
        tmp_path / "milvus", Named(), columns, engine=MilvusEngine(tmp_path / "milvus.db", "pictures")
    )
    for gallery in (on_lance, on_milvus):
        gallery.add(pictures, ids, dict(shade=list(range(40)), colour=["a", "b"] * 20), batch_size=7)
        gallery.update(ids[:3], colour="it's")
        gallery.delete(ids[3:5])
        gallery.add([Image.new("RGB", (8, 8), "lime")], [ids[5]], dict(shade=[-1], colour=[None]), replace=True)
        gallery.tidy()
        assert gallery.facts(ids[:6])["colour"].fillna("none").tolist() == ["it's"] * 3 + ["none"]
    hits = hits_of(on_lance, ids)
    assert hits == hits_of(on_milvus, ids) and [len(h) for h in hits] == [38, 5, 5, 6, 5]
    on_milvus.close()
    engine = MilvusEngine(tmp_path / "milvus.db", "pictures")
    pytest.raises(LabError, StoredGallery, tmp_path / "lance", Named(), engine=engine)
    again = StoredGallery(tmp_path / "milvus", Named(), engine=engine)
    assert hits_of(again, ids) == hits and not (tmp_path / "milvus/index").exists()
    assert json.loads((tmp_path / "milvus/gallery.json").read_text())["engine"] == "MilvusEngine"
    again.close()
    on_lance.close()


class CommandLine:
    "`dasd-lab` in this process, with a method that knows colours"

    def __init__(self, monkeypatch, capsys):
        monkeypatch.setattr(loading, "load_run", lambda run, images=True: Named())
        self.capsys = capsys

    def json(self, *words) -> dict:
        "Output of a command that succeeds"
        code = cli.main([*map(str, words), "--json"])
        out, err = self.capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    def error(self, *words) -> str:
        "Message of a command that fails"
        assert cli.main([*map(str, words)]) == 1
        return self.capsys.readouterr().err


@pytest.fixture
def lab(monkeypatch, capsys):
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def colours(tmp_path):
    "A folder of three images"
    folder = tmp_path / "colours"
    folder.mkdir()
    for colour in ("red", "lime", "blue"):
        Image.new("RGB", (8, 8), colour).save(folder / f"{colour}.png")
    return folder


def test_a_gallery_on_milvus_from_the_command_line(lab, colours, tmp_path, monkeypatch):
    "Engine and address are given once; the token is in no file"
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    tokens = []
    connect = MilvusEngine._connect

    def recorded(self, token):
        tokens.append(token)
        connect(self, token)

    monkeypatch.setattr(MilvusEngine, "_connect", recorded)
    gallery = ["--gallery", tmp_path / "g"]
    uri = tmp_path / "m.db"
    imported = lab.json("gallery", "import", colours, *gallery, "--engine", "milvus", "--uri", uri)
    assert (imported["added"], imported["rows"]) == (3, [])
    record = json.loads((tmp_path / "g/gallery.json").read_text())
    assert (record["engine"], record["uri"]) == ("MilvusEngine", str(uri))
    assert lab.json("gallery", "import", colours, *gallery)["unchanged"] == 3
    info = lab.json("gallery", "info", gallery[-1], "--engine", "milvus", "--uri", uri)
    assert info["pictures"] == 3 and info["rows"][0]["indexed"] == "unknown"
    found = lab.json("search", "grün", "--language", "de", "-k", "1", *gallery)
    assert found["rows"][0]["picture"] == "lime.png"
    filtered = lab.json("search", "grün", "--language", "de", *gallery, "--where", '{"width": {"from": 9}}')
    assert filtered["rows"] == []
    assert lab.json("gallery", "embed", *gallery)["rows"] == [dict(embedded=0, unreadable=0)]
    assert lab.json("gallery", "duplicates", *gallery)["rows"] == []
    assert lab.json("gallery", "remove", "lime.png", *gallery)["rows"] == [dict(removed=1)]
    assert lab.json("gallery", "info", gallery[-1])["pictures"] == 2
    assert set(tokens) == {"root:secret"} and not (tmp_path / "g/index").exists()
    texts = [f.read_bytes() for f in (tmp_path / "g").rglob("*") if f.is_file()]
    assert not any(b"secret" in text for text in texts)


def test_serve_opens_a_gallery_on_milvus(lab, colours, tmp_path, monkeypatch):
    from dasd_lab.commands import galleries

    uri = tmp_path / "m.db"
    lab.json("gallery", "import", colours, "--gallery", tmp_path / "g", "--engine", "milvus", "--uri", uri)
    served = []
    monkeypatch.setattr(galleries, "_serve", lambda gallery, *args: served.append((gallery.engine, len(gallery))))
    assert cli.main(["serve", str(tmp_path / "g")]) == 0
    assert cli.main(["serve", str(tmp_path / "g"), "--engine", "milvus", "--uri", str(uri)]) == 0
    assert [(type(engine), n) for engine, n in served] == [(MilvusEngine, 3)] * 2


def test_wrong_engines_on_the_command_line(lab, colours, tmp_path, monkeypatch):
    on_lance = ["--gallery", tmp_path / "lance"]
    lab.json("gallery", "import", colours, *on_lance)
    new = ["gallery", "import", colours, "--gallery", tmp_path / "new"]
    assert "its own engine" in lab.error("gallery", "info", on_lance[-1], "--engine", "milvus")
    assert "its own URI" in lab.error("search", "rot", *on_lance, "--uri", "http://localhost:19530")
    assert "Add --uri" in lab.error(*new, "--engine", "milvus")
    assert "Add --engine milvus" in lab.error(*new, "--uri", tmp_path / "m.db")
    assert "MILVUS_TOKEN" in lab.error(*new, "--engine", "milvus", "--uri", "http://me:secret@localhost:19530")
    assert "without a gallery on disk" in lab.error("search", "rot", "--engine", "milvus")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("x")
    used = ["gallery", "import", colours, "--gallery", tmp_path / "other"]
    assert "other files" in lab.error(*used, "--engine", "milvus", "--uri", tmp_path / "m.db")
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    assert "pip install 'dasd_lab[milvus]'" in lab.error(*new, "--engine", "milvus", "--uri", tmp_path / "m.db")
    assert not (tmp_path / "new").exists() and not (tmp_path / "m.db").exists()
