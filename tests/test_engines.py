"Every engine keeps the contract of `search.on_disk.engine`: the same calls, compared with rows in a dictionary and cosines by numpy"

import asyncio
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
import lancedb
import numpy as np
import pytest
from colours import Named
from filelock import FileLock
from lance.dataset import DatasetOptimizer
from lancedb.table import AsyncTable
from PIL import Image
from pymilvus import MilvusClient

from dasd_lab.contracts import LabError
from dasd_lab.search.on_disk.engine import Nearest
from dasd_lab.search.on_disk.filters import Column, Condition, read_filter
from dasd_lab.search.on_disk.lance import LanceEngine
from dasd_lab.search.on_disk.milvus import MilvusEngine, MilvusIndex
from dasd_lab.search.on_disk.stored import StoredGallery

ENGINES = dict(
    lance=lambda folder, **more: LanceEngine(folder / "lance", **more),
    milvus=lambda folder, **more: MilvusEngine(folder / "milvus.db", "pictures", **more),
)
# parameters of a search in all lists of an index
EVERY_LIST = dict(
    lance=dict(probes=50, refine=50), milvus=dict(index=MilvusIndex(search=dict(nprobe=128), refine=50))
)
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


class Reference:
    "Rows in a dictionary; what an engine should answer"

    def __init__(self):
        self.columns = {}
        self.rows = {}

    def add_column(self, c):
        self.columns[c.name] = c

    def drop_column(self, name):
        del self.columns[name]
        [r.pop(name, None) for r in self.rows.values()]

    def put(self, ids, values, insert=True):
        for j, i in enumerate(ids):
            if not insert and i not in self.rows:
                continue
            row = self.rows.setdefault(i, {})
            for n, v in values.items():
                row[n] = (
                    None
                    if v is None
                    else np.asarray(v[j], np.float16)
                    if self.columns[n].kind in ("vector", "numbers")
                    else v[j]
                )

    def change(self, ids, values):
        there = {i for i in ids if i in self.rows}
        [self.rows[i].update(values) for i in there]
        return len(there)

    def remove(self, ids):
        there = {i for i in ids if i in self.rows}
        [self.rows.pop(i) for i in there]
        return len(there)

    @staticmethod
    def holds(value, asked) -> bool:  # of what is asked in words, not of a Condition
        if value is None:
            return False
        if not isinstance(asked, dict):
            return value in (asked if isinstance(asked, list) else [asked])
        if "not" in asked:
            return value not in (asked["not"] if isinstance(asked["not"], list) else [asked["not"]])
        if "starts" in asked:
            return value.startswith(asked["starts"])

        def order(x):
            return x.encode() if isinstance(x, str) else x

        return (asked.get("from") is None or order(value) >= order(asked["from"])) and (
            asked.get("to") is None or order(value) <= order(asked["to"])
        )

    def found(self, asked=None) -> list[str]:
        return [i for i, r in self.rows.items() if all(self.holds(r.get(n), a) for n, a in (asked or {}).items())]

    def cosines(self, column, query, asked=None) -> dict[str, float]:
        rows = {
            i: self.rows[i][column].astype(np.float64)
            for i in self.found(asked)
            if self.rows[i].get(column) is not None
        }
        query = np.asarray(query, np.float64)
        return (
            {i: float(v @ query / np.linalg.norm(v) / np.linalg.norm(query)) for i, v in rows.items() if v.any()}
            if query.any()
            else {}
        )


def near(found: Nearest, cosines: dict[str, float], k: int, skip: int = 0):
    "The best of these cosines, best first; those that are as near to 16 bits may change places"
    best = sorted(cosines.values(), reverse=True)[skip : skip + k]
    assert len(found.ids) == len(found.cosines) == len(best) and len(set(found.ids)) == len(found.ids)
    assert np.allclose(found.cosines, best, atol=2e-3) and np.allclose(
        found.cosines, [cosines[i] for i in found.ids], atol=2e-3
    )


def same_rows(engine, reference, found: dict, names: list[str]):
    for n in names:
        c = reference.columns[n]
        wanted = [reference.rows[i].get(n) for i in found["id"]]
        if c.kind in ("vector", "numbers"):
            assert found[n].dtype == np.float16 and found[n].shape == (len(wanted), c.size)
            for have, want in zip(found[n], wanted):
                np.testing.assert_array_equal(have, np.full(c.size, np.nan, np.float16) if want is None else want)
        else:
            assert found[n] == wanted and [type(x) for x in found[n]] == [type(x) for x in wanted], n


def same(engine, reference, rng: random.Random, asked):
    "Count, search, read and walk"
    where = read_filter(asked, engine.columns)
    names = rng.sample(list(reference.columns), rng.randint(0, len(reference.columns)))
    assert dict(engine.columns.items()) == reference.columns
    assert (engine.count(), engine.count(where)) == (len(reference.rows), len(reference.found(asked)))
    for column in [n for n, c in reference.columns.items() if c.kind == "vector"]:
        k = rng.choice([1, 3, 10, 50])
        skip = rng.choice([0, 0, 2, 7, 100])
        queries = (
            np.random.default_rng(rng.random().__hash__())
            .standard_normal((2, reference.columns[column].size))
            .astype("float32")
        )
        for q, f in zip(queries, engine.nearest(column, queries, k, where, skip, exact=rng.random() < 0.3)):
            near(f, reference.cosines(column, q, asked), k, skip)
    ids = rng.choices([*reference.rows, "gone", *HOSTILE], k=9)
    found = engine.read(ids, names)
    assert list(found) == ["id", *names] and found["id"] == [i for i in ids if i in reference.rows]
    same_rows(engine, reference, found, names)
    size = rng.choice([1, 7, 1000]) if len(reference.rows) < 40 else 1000
    parts = list(engine.walk(names, where, size))
    walked = [i for p in parts for i in p["id"]]
    assert sorted(walked) == sorted(reference.found(asked)) and all(0 < len(p["id"]) <= size for p in parts)
    for p in parts:
        same_rows(engine, reference, p, names)


@pytest.fixture(params=ENGINES)
def make(request, tmp_path):
    "Opens the engine of one folder; closed at the end"
    opened = []

    def make(**more):
        opened.append(ENGINES[request.param](tmp_path, **more))
        return opened[-1]

    make.kind = request.param
    make.folder = tmp_path
    yield make
    for e in opened:
        e.close()


def filled(make, n=40, columns=COLUMNS, **more):
    "An engine and the reference, with the same rows"
    engine = make(**more)
    reference = Reference()
    rng = np.random.default_rng(1)
    for c in columns:
        engine.add_column(c)
        reference.add_column(c)
    values = dict(
        year=[i % 7 for i in range(n)],
        score=[i / 3 for i in range(n)],
        name=[HOSTILE[i % len(HOSTILE)] for i in range(n)],
        sharp=[i % 3 == 0 for i in range(n)],
        v=rng.standard_normal((n, 4)),
        more=rng.standard_normal((n, 5)),
    )
    ids = [f"{HOSTILE[i % len(HOSTILE)][:9]} {i}" for i in range(n)]
    [e.put(ids, values) for e in (engine, reference)]
    return engine, reference, ids


# what a random walk does


def some_value(rng, c: Column):
    if rng.random() < 0.15:
        return None
    return dict(
        integer=lambda: rng.choice([0, 1, -1, 5, 2**63 - 1, -(2**63) + 1, 2**53 + 1, rng.randrange(10)]),
        number=lambda: rng.choice([0.0, -1.5, 1e300, -5e-324, 1 / 3, float(rng.randrange(5))]),
        text=lambda: rng.choice([*HOSTILE, ""]),
        flag=lambda: rng.random() < 0.5,
    )[c.kind]()


def some_filter(rng, columns) -> dict:
    asked = {}
    facts = [c for c in columns.values() if c.kind in ("integer", "number", "text", "flag")]
    for c in rng.sample(facts, min(rng.randint(0, 2), len(facts))):

        def known():
            return next(v for _ in range(100) if (v := some_value(rng, c)) is not None)

        how = rng.choice(["value", "any", "not", "nots", "range", "open", "starts"])
        if how == "any":
            asked[c.name] = [known() for _ in range(rng.randint(1, 4))]
        elif how in ("not", "nots"):
            asked[c.name] = {"not": known() if how == "not" else [known(), known()]}
        elif how in ("range", "open") and c.kind != "flag":
            low, high = sorted([known(), known()], key=lambda x: x.encode() if isinstance(x, str) else x)
            asked[c.name] = (
                {"from": low, "to": high}
                if how == "range"
                else rng.choice([{"from": low}, {"to": high}, {"from": None}])
            )
        elif how == "starts" and c.kind == "text":
            asked[c.name] = {"starts": (t := known())[: rng.randint(0, len(t))]}
        else:
            asked[c.name] = known()
    return asked


def some_rows(rng, c: Column, n: int):
    if c.kind not in ("vector", "numbers"):
        return [some_value(rng, c) for _ in range(n)]
    rows = np.random.default_rng(rng.randrange(2**32)).standard_normal((n, c.size))
    rows[rng.randrange(n)] *= rng.random() < 0.8  # sometimes zeros
    return rows


@pytest.mark.parametrize("seed", range(2))
def test_a_random_walk_agrees_with_rows_in_a_dictionary(make, seed):
    thorough = dict(exact_below=20, **EVERY_LIST[make.kind])
    engine = make(**thorough)
    reference = Reference()
    rng = random.Random(seed)

    def both(call, *a):
        have, want = [getattr(e, call)(*a) for e in (engine, reference)]
        assert have == want, (call, *a)

    for c in COLUMNS[: rng.randint(1, len(COLUMNS))]:
        both("add_column", c)
    spare = [c for c in COLUMNS if c.name not in reference.columns] + [
        Column("w", "vector", 3),
        Column("place", "text"),
    ]
    for step in range(45):
        what = rng.choices(
            ["put", "again", "change", "remove", "add", "drop", "tidy", "reopen"], [8, 6, 4, 3, 1.5, 0.7, 0.7, 1]
        )[0]
        facts = [n for n, c in reference.columns.items() if c.kind in ("integer", "number", "text", "flag")]
        any_id = [*reference.rows, "gone"]
        if what in ("put", "again"):
            ids = list(
                dict.fromkeys(
                    rng.choices(any_id, k=4)
                    if what == "again"
                    else [(rng.choice(HOSTILE) + str(rng.randrange(200)))[-2000:] for _ in range(rng.randint(1, 12))]
                )
            )
            names = rng.sample(list(reference.columns), rng.randint(0, len(reference.columns)))
            both(
                "put",
                ids,
                {n: None if rng.random() < 0.1 else some_rows(rng, reference.columns[n], len(ids)) for n in names},
                rng.random() < 0.8,
            )
        elif what == "change" and facts:
            both(
                "change",
                rng.choices(any_id, k=3),
                {n: some_value(rng, reference.columns[n]) for n in rng.sample(facts, rng.randint(1, len(facts)))},
            )
        elif what == "remove":
            both("remove", rng.choices(any_id, k=2))
        elif what == "add" and spare:
            both("add_column", spare.pop(rng.randrange(len(spare))))
        elif what == "drop" and len(reference.columns) > 1:
            name = rng.choice(list(reference.columns))
            spare.append(reference.columns[name])
            both("drop_column", name)
        elif what == "tidy":
            engine.tidy()
        elif what == "reopen":
            engine.close()
            engine = make(**thorough)
        same(engine, reference, rng, some_filter(rng, reference.columns))
    assert len(reference.rows) > 10, "a walk that says something"


# clause by clause


def test_columns_survive_and_a_dropped_one_is_gone(make):
    engine, reference, ids = filled(make)
    engine.close()
    engine = make()
    assert engine.columns == {c.name: c for c in COLUMNS} and list(engine.columns) == [c.name for c in COLUMNS]
    for wrong in (COLUMNS[0], Column("year", "text"), Column("id", "text")):
        pytest.raises(LabError, engine.add_column, wrong)
    pytest.raises(LabError, engine.drop_column, "gone")
    for n in ("v", "name", "more"):
        engine.drop_column(n)
        engine.add_column(Column(n, "vector", 2) if n == "v" else next(c for c in COLUMNS if c.name == n))
    found = engine.read(ids[:3], ["v", "name", "more", "year"])
    assert (
        found["name"] == [None] * 3
        and found["year"] == [0, 1, 2]
        and np.isnan(found["v"]).all()
        and found["v"].shape == (3, 2)
        and np.isnan(found["more"]).all()
    )
    assert engine.nearest("v", np.ones((1, 2)), 5) == [Nearest((), ())]
    engine.put(ids[:1], dict(v=[[1, 1]]))
    assert engine.nearest("v", np.ones((1, 2)), 5)[0].ids == (ids[0],) and engine.read(ids[:1], ["year"])["year"] == [0]


def test_columns_that_are_not_given_stay_as_they_are(make):
    engine, reference, ids = filled(make)
    for values in (dict(year=[100, 101]), dict(v=np.eye(2, 4)), dict(more=np.ones((2, 5)), name=["x", None]), {}):
        [e.put([ids[3], f"new {len(values)}"], values) for e in (engine, reference)]
        same(engine, reference, random.Random(0), {})


def test_only_what_is_there_is_changed_where_nothing_new_is_wanted(make):
    engine, reference, ids = filled(make)
    for e in (engine, reference):
        e.remove(ids[:2])
        e.put(ids[:4], dict(v=np.eye(4), name=["x"] * 4), insert=False)
        e.put(ids[:2], dict(year=[1, 2]), insert=False)
        e.put([], dict(v=np.zeros((0, 4))), insert=False)
    assert engine.count() == 38 and engine.read(ids[:3], ["name"]) == dict(id=[ids[2]], name=["x"])
    same(engine, reference, random.Random(0), {})
    engine.add_column(Column("w", "vector", 2))
    engine.put(ids[:1], dict(w=[[1, 2]]), insert=False)
    assert engine.count() == 38


def test_none_for_a_column_makes_it_unknown(make):
    engine, reference, ids = filled(make)
    gone = dict.fromkeys(["v", "more", "year", "name", "sharp", "score"])
    [e.add_column(c) for e in (engine, reference) for c in (Column("w", "vector", 2), Column("vector_w", "vector", 64))]
    for e in (engine, reference):
        e.put(ids[:3], dict(vector_w=np.ones((3, 64))))
        e.put(ids[:2] + ["fresh"], dict(vector_w=None))
        e.put([ids[0], "new"], gone | dict(score=[0.5, None], w=None))
        e.put(ids[1:3], dict(v=None, year=[5, 6]), insert=False)
        e.put(["other"], dict(w=None))
    same(engine, reference, random.Random(0), {})
    assert (
        engine.nearest("v", np.ones((1, 4)), 50)[0].ids.__len__() == 37
        and engine.count(read_filter(dict(name={"from": None}), engine.columns)) == 39
        and engine.nearest("vector_w", np.ones((1, 64)), 9)[0].ids == (ids[2],)
    )


def test_columns_may_be_called_like_words_of_a_query_language(make):
    engine = make(exact_below=30)
    reference = Reference()
    names = ["select", "true", "null", "order", "from", "in", "and", "not", "text", "value", "timestamp", "rowid"]
    columns = (
        [Column(n, "integer") for n in names]
        + [Column("false", "flag")]
        + [Column("where", "text"), Column("vector", "vector", 3), Column("table", "numbers", 2)]
    )
    for e in (engine, reference):
        [e.add_column(c) for c in columns]
        e.put(
            [str(i) for i in range(40)],
            {n: [i] * 40 for i, n in enumerate(names)}
            | {
                "where": ["or"] * 40,
                "false": [True, None, False, True] * 10,
                "vector": np.random.default_rng(0).standard_normal((40, 3)),
                "table": np.ones((40, 2)),
            },
        )
        assert e.change(["1", "2"], {"select": 5, "true": None, "where": "x", "false": False}) == 2
    for n in range(2):
        for asked in (
            *({n: i} for i, n in enumerate(names)),
            {"select": {"not": 0}},
            {"true": {"from": 0, "to": 9}},
            {"where": {"starts": "o"}, "null": 2},
            {"false": True},
            {"false": {"not": True}},
            {"false": {"not": [True, False]}},
            {"false": [True, False]},
        ):
            same(engine, reference, random.Random(0), asked)
        n or engine.tidy()


def test_a_column_that_another_engine_added_or_dropped_is_known_at_once(make):
    a = make()
    b = make()
    [e.columns for e in (a, b)]
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
    assert [p["place"] for p in b.walk(["place"])] == [[None]]
    a.add_column(Column("score", "number"))
    assert b.change(["x"], dict(score=1)) == 1
    a.drop_column("year")
    pytest.raises(LabError, b.put, ["x"], dict(year=[1]))
    pytest.raises(LabError, b.drop_column, "year")
    assert list(b.columns) == list(a.columns)
    time.sleep(1.1)
    assert (
        a.nearest("v", [[1, 2]], 3) == b.nearest("v", [[1, 2]], 3)
        and a.nearest("v", [[1, 2]], 3)[0].ids == ("x",)
        and a.count(read_filter(dict(score=1), a.columns)) == 1
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_odd_ids_and_odd_texts_are_only_texts(text, odd):
    engine, ids = odd
    assert engine.read([text], ["name"]) == dict(id=[text], name=[text])
    for asked in (text, [text], [text, "elsewhere"], {"from": text, "to": text}):
        assert [i for p in engine.walk([], read_filter(dict(name=asked), engine.columns)) for i in p["id"]] == [text], (
            asked
        )
    assert engine.count(read_filter(dict(name={"not": text}), engine.columns)) == len(ids) - 1
    for part in (text, text[:1], text[:2]):
        assert sorted(
            i for p in engine.walk([], read_filter(dict(name={"starts": part}), engine.columns)) for i in p["id"]
        ) == sorted(i for i in ids if i.startswith(part))
    assert engine.nearest("v", [[1, 2, 3, 4]], 5, read_filter(dict(name=text), engine.columns))[0].ids == (text,)
    assert (
        engine.change([text], dict(year=7)) == 1
        and engine.read([text], ["year"])["year"] == [7]
        and engine.count(read_filter(dict(year=7), engine.columns)) == 1
        and engine.change([text], dict(year=None, name=text)) == 1
    )


@pytest.fixture(scope="module", params=ENGINES)
def odd(request, tmp_path_factory):
    "One picture a hostile text, which is its id and its name; one that is called nothing"
    engine = ENGINES[request.param](tmp_path_factory.mktemp("odd"))
    for c in COLUMNS:
        engine.add_column(c)
    engine.put(HOSTILE, dict(name=HOSTILE, v=np.tile([1, 2, 3, 4], (len(HOSTILE), 1))))
    engine.put(["unknown"], {})
    yield engine, HOSTILE
    engine.close()


def test_odd_ids_are_removed_alone(make):
    engine = make()
    engine.add_column(COLUMNS[0])
    left = [*HOSTILE]
    engine.put(left, dict(year=list(range(len(left)))))
    while left:
        assert (
            engine.remove([left.pop(0), "gone"]) == 1
            and engine.count() == len(left)
            and sorted(engine.read(left, [])["id"]) == sorted(left)
        )


def test_many_ids_at_once(make):
    engine = make()
    engine.add_column(COLUMNS[0])
    ids = [f"it's {i}" for i in range(2500)]
    engine.put(ids, dict(year=[i % 10 for i in range(2500)]))
    assert engine.count() == 2500
    found = engine.read(ids[::-1], ["year"])
    assert found["id"] == ids[::-1] and found["year"] == [i % 10 for i in range(2500)][::-1]
    assert (
        engine.count(read_filter(dict(year={"not": [1, 2]}), engine.columns)) == 2000
        and engine.count([Condition(COLUMNS[0], "any", tuple(range(5, 1005)))]) == 1250
    )
    assert (
        engine.change(ids[:2400] + ids[:2400], dict(year=77)) == 2400
        and engine.count(read_filter(dict(year=77), engine.columns)) == 2400
        and engine.remove(ids[:2300] + ["gone"]) == 2300
        and engine.count() == 200
    )


def test_pages_of_a_search_agree(make):
    engine, reference, ids = filled(make, 130)
    q = np.random.default_rng(5).standard_normal((3, 4)).astype("float32")
    for asked in ({}, dict(year={"from": 2, "to": 5}), dict(sharp=True, score={"to": 30})):
        where = read_filter(asked, engine.columns)
        whole = engine.nearest("v", q, 200, where)
        for n, (f, v) in enumerate(zip(whole, q)):
            near(f, reference.cosines("v", v, asked), 200)
            assert [i for s in range(0, 140, 9) for i in engine.nearest("v", q[n : n + 1], 9, where, s)[0].ids] == list(
                f.ids
            )


def test_zeros_and_what_is_not_known(make):
    engine, reference, ids = filled(make, 10)
    [e.put(["zero", "none"], dict(year=[1, None])) for e in (engine, reference)]
    [e.put(["zero"], dict(v=np.zeros((1, 4)), more=np.zeros((1, 5)))) for e in (engine, reference)]
    same(engine, reference, random.Random(3), {})
    found = engine.read(["zero", "none"], ["v", "more", "year", "name", "sharp", "score"])
    assert (
        not found["v"][0].any()
        and np.isnan(found["v"][1]).all()
        and found["year"] == [1, None]
        and found["sharp"] == found["score"] == found["name"] == [None, None]
    )
    assert (
        {*engine.nearest("v", np.ones((1, 4)), 50)[0].ids} == {*ids}
        and engine.nearest("v", np.stack([np.zeros(4), np.full(4, np.nan), np.full(4, np.inf)]), 5)
        == [Nearest((), ())] * 3
        and engine.nearest("v", np.zeros((0, 4)), 5) == []
    )
    for asked in ({"not": 1}, {"not": [99]}, {"from": None}, {"to": 2**62}):
        assert "none" not in [
            i for p in engine.walk([], read_filter(dict(year=asked), engine.columns)) for i in p["id"]
        ]


def test_an_empty_engine_answers(make):
    engine = make()
    assert (engine.count(), engine.columns, engine.read(["a"], []), list(engine.walk([])), engine.remove(["a"])) == (
        0,
        {},
        dict(id=[]),
        [],
        0,
    )
    engine.tidy()
    for c in COLUMNS:
        engine.add_column(c)
    assert (
        engine.nearest("v", np.ones((2, 4)), 3) == [Nearest((), ())] * 2
        and engine.change(["a"], dict(year=1)) == 0
        and engine.count(read_filter(dict(year=1), engine.columns)) == 0
        and list(engine.walk(["v"])) == []
        and engine.read(["a"], ["v", "year"])["v"].shape == (0, 4)
    )
    engine.put([], {})
    engine.put([], dict(v=np.zeros((0, 4))))
    engine.tidy()
    assert engine.count() == 0
    engine.put(["a"], {})
    assert engine.count() == 1 and np.isnan(engine.read(["a"], ["v"])["v"]).all()


def test_what_does_not_fit_is_refused_and_nothing_is_kept(make):
    engine, reference, ids = filled(make, 10)
    ones = np.ones((1, 4))
    wrong = [
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
        (["a"], dict(v=ones * np.nan)),
        (["a"], dict(v=ones * 1e6)),
        (["a"], dict(more=ones)),
        (["a", "b"], dict(v=ones)),
        (["a"], dict(year=[1, 2])),
        (["a"], dict(colour=[1])),
        (["a"], dict(id=["b"])),
        (["a", "a"], dict(year=[1, 2])),
        ([""], {}),
        (["x" * 2001], {}),
        (["bad\udcff"], {}),
        ([3], {}),
        ([ids[0], "a"], dict(year=[999, "x"])),
        ([ids[0], "a"], dict(year=[999, 1], v=np.ones((2, 3)))),
    ]
    for w in wrong:
        with pytest.raises(LabError):
            engine.put(*w)
    calls = dict(
        nearest=[
            ("year", ones, 3),
            ("gone", ones, 3),
            ("more", ones, 3),
            ("v", np.ones((1, 3)), 3),
            ("v", np.ones(4), 3),
        ],
        read=[(ids, ["gone"]), ([], ["gone"])],
        change=[
            (ids, dict(v=1)),
            (ids, dict(gone=1)),
            (ids, dict(year="x")),
            (ids, dict(more=None)),
            (ids, dict(id="x")),
        ],
    )
    for name, given in calls.items():
        for g in given:
            pytest.raises(LabError, getattr(engine, name), *g)
    with pytest.raises(LabError):
        list(engine.walk(["gone"]))
    same(engine, reference, random.Random(0), {})
    assert (
        engine.read(["bad\udcff", "", "x" * 3000, 3], [])["id"] == []
        and engine.remove(["bad\udcff", ""]) == 0
        and engine.change(["bad\udcff"], dict(year=1)) == 0
    )


FEW = dict(lance={}, milvus=dict(index=MilvusIndex(search=dict(nprobe=40))))  # of 128 lists, so that the index misses some


def test_an_index_finds_nearly_all_and_exact_finds_all(make):
    n = 2600
    engine = make(exact_below=1000, **FEW[make.kind])
    [engine.add_column(c) for c in (Column("v", "vector", 16), Column("year", "integer"))]
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 16)).astype("float16").astype("float32")
    ids = [f"{i:05d}" for i in range(n)]
    engine.put(ids, dict(v=rows, year=[i % 10 for i in range(n)]))
    engine.tidy()
    q = rng.standard_normal((30, 16)).astype("float32")

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    cosines = unit(q) @ unit(rows).T
    best = np.argsort(-cosines)[:, :10]
    found = engine.nearest("v", q, 10)
    exact = engine.nearest("v", q, 10, exact=True)
    for f, e, b, c in zip(found, exact, best, cosines):
        assert (
            np.allclose(c[[int(i) for i in e.ids]], c[b], atol=5e-4)
            and len({*e.ids}) == 10
            and np.allclose(e.cosines, c[b], atol=2e-3)
            and np.allclose(f.cosines, [c[int(i)] for i in f.ids], atol=2e-3)
            and list(f.cosines) == sorted(f.cosines, reverse=True)
        )
    share = np.mean([len({*map(int, f.ids)} & {*b}) / 10 for f, b in zip(found, best)])
    assert share > 0.9 and (engine.indexed("v") == n if make.kind == "lance" else share < 1), (
        "an index, or this test says nothing"
    )
    where = read_filter(dict(year=3), engine.columns)
    for f, c in zip(engine.nearest("v", q, 10, where, exact=True), cosines):
        assert all(int(i) % 10 == 3 for i in f.ids) and np.allclose(
            c[[int(i) for i in f.ids]], np.sort(c[3::10])[::-1][:10], atol=5e-4
        )
    assert (
        all(int(i) % 10 == 3 for f in engine.nearest("v", q, 10, where) for i in f.ids)
        and len(engine.nearest("v", q[:1], 10, where)[0].ids) == 10
    )
    engine.put(["new"], dict(v=q[:1]))
    assert engine.nearest("v", q[:1], 1)[0].ids == ("new",)
    engine.put(["new"], dict(v=-q[:1]))
    assert "new" not in engine.nearest("v", q[:1], 100)[0].ids
    assert engine.nearest("v", -q[:1], 1)[0].ids == ("new",)
    engine.remove(["new"])
    assert "new" not in engine.nearest("v", -q[:1], 100)[0].ids
    engine.close()
    engine = make(exact_below=1000, **FEW[make.kind])
    assert engine.nearest("v", q, 10) == found and engine.count() == n
    assert [i for s in range(0, 40, 10) for i in engine.nearest("v", q[:1], 10, skip=s)[0].ids][:10] == list(
        found[0].ids
    )


def test_a_column_that_few_have_is_compared_and_an_index_forgets_what_became_unknown(make):
    engine = make(exact_below=200)
    reference = Reference()
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(600)]
    q = rng.standard_normal((2, 4))

    def right():
        for c in "vw":
            for k in (5, 700):
                [near(f, reference.cosines(c, x), k) for f, x in zip(engine.nearest(c, q, k, exact=k == 5), q)]
            assert all(
                {*f.ids} <= {*reference.cosines(c, x)} and len(f.ids) == 5 for f, x in zip(engine.nearest(c, q, 5), q)
            )

    for e in (engine, reference):
        [e.add_column(Column(c, "vector", 4)) for c in "vw"]

    def both(ids, **values):
        [e.put(ids, values) for e in (engine, reference)]

    both(ids, v=rng.standard_normal((600, 4)))
    both(ids[:10], w=rng.standard_normal((10, 4)))
    engine.tidy()
    right()  # as after an embed that was stopped
    both(ids[:250], w=rng.standard_normal((250, 4)))
    right()
    engine.tidy()
    right()
    both(ids[20:60], w=None, v=None)
    both(["late"], w=np.ones((1, 4)))
    right()
    engine.tidy()
    right()
    both(ids[20:40] + ["zero"], w=np.zeros((21, 4)))
    both(ids[40:50], w=-np.ones((10, 4)))
    engine.tidy()
    right()
    both(ids[:220], w=None)
    engine.tidy()
    right()


def test_lists_of_an_index_follow_the_number_of_vectors(tmp_path):
    engine = ENGINES["lance"](tmp_path, exact_below=200)
    [engine.add_column(Column(c, "vector", 4)) for c in "vw"]
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(900)]

    def made():
        return {
            i.field_names[0]: i.details.get("target_partition_size")
            for i in lance.dataset(str(tmp_path / "lance" / "pictures.lance")).describe_indices()
        }

    engine.put(ids, dict(v=rng.standard_normal((900, 4))))
    engine.put(ids[:199], dict(w=rng.standard_normal((199, 4))))
    engine.tidy()
    assert made() == dict(id=None, v=30)
    for n, length in ((225, 15), (400, 15), (484, 22)):
        engine.put(ids[:n], dict(w=rng.standard_normal((n, 4))))
        engine.tidy()
        assert made() == dict(id=None, v=30, w=length) and engine.indexed("w") == 900
    engine.close()


def test_what_is_written_while_an_index_is_made_is_found(tmp_path, monkeypatch):
    engine, other = [ENGINES["lance"](tmp_path, exact_below=100, patience_s=0.05) for _ in range(2)]
    reference = Reference()
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(300)]
    other.TIDY_AFTER = 1
    done = []
    rows = rng.standard_normal((300, 4))
    for e in (engine, reference):
        e.add_column(Column("v", "vector", 4))
        e.add_column(Column("year", "integer"))
        e.put(ids, dict(v=rows))

    def meanwhile():  # by another process, and by another thread of this one
        for e in (other, reference):
            e.put(["new"], dict(v=np.ones((1, 4))))
            e.put(ids[:50], dict(v=-np.ones((50, 4))))
            e.put(ids[50:60], dict(v=None))
            e.remove(ids[60:70])
            e.put(ids[250:], dict(year=[1] * 50, v=np.eye(50, 4) - 0.5))
            e.change(ids[80:90], dict(year=3))
        engine.put(["thread"], dict(v=np.ones((1, 4))))
        engine.nearest("v", np.ones((1, 4)), 3)
        done.append(1)

    real = AsyncTable.create_index

    async def slow(table, column, **k):  # of the version that was there before
        if column == "v":
            table = await (await lancedb.connect_async(tmp_path / "lance")).open_table("pictures")
            (t := threading.Thread(target=meanwhile)).start()
            await asyncio.to_thread(t.join, 60)
        return await real(table, column, **k)

    monkeypatch.setattr(AsyncTable, "create_index", slow)
    engine.tidy()
    reference.put(["thread"], dict(v=np.ones((1, 4))))
    assert done == [1] and engine.indexed("v") == engine.count() == 292
    for e in (engine, other):
        time.sleep(1.1)
        [
            near(f, reference.cosines("v", q), k)
            for q in rng.standard_normal((3, 4))
            for k in (3, 400)
            for f in e.nearest("v", [q], k)
        ]
        e.close()


def test_tidy_writes_only_what_is_behind(tmp_path, monkeypatch):
    engine = ENGINES["lance"](tmp_path, exact_below=100)
    [engine.add_column(c) for c in (Column("v", "vector", 4), Column("w", "vector", 4), Column("year", "integer"))]
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(300)]

    def table():
        return lance.dataset(str(tmp_path / "lance" / "pictures.lance"))

    def parts():
        return {i.field_names[0]: [s.uuid for s in i.segments] for i in table().describe_indices()}

    def known():
        return {i.field_names[0]: i.num_rows_indexed for i in table().describe_indices()}

    index = AsyncTable.create_index
    seen = {}

    async def noted(table, column, **k):
        await index(table, column, **k)
        seen[column] = parts()[column]

    monkeypatch.setattr(AsyncTable, "create_index", noted)
    for a in range(0, 300, 100):
        engine.put(
            ids[a : a + 100], dict(v=rng.standard_normal((100, 4)), w=rng.standard_normal((100, 4)), year=[1] * 100)
        )
    engine.tidy()
    # those that were made a moment ago stay
    assert seen == parts() and {*seen} == {"id", "v", "w", "year"} and known() == dict.fromkeys(seen, 300)
    counted = []
    real = lance.LanceDataset.count_rows
    monkeypatch.setattr(
        lance.LanceDataset,
        "count_rows",
        lambda t, filter=None, **k: (counted.append(filter) if filter else None, real(t, filter, **k))[1],
    )
    before = parts()
    engine.tidy()
    assert parts() == before and counted == []  # nor is a column read to see how many vectors it has
    monkeypatch.setattr("dasd_lab.search.on_disk.lance.WHOLE", 0)
    engine.put(ids[:10], dict(w=rng.standard_normal((10, 4))))
    assert known()["w"] < 300 <= known()["v"]
    engine.tidy()
    after = parts()
    # one way that is behind
    assert (
        known() == dict.fromkeys(seen, 300) and after["w"] != before["w"] and all(len(p) == 1 for p in after.values())
    )
    engine.tidy()
    assert parts() == after
    engine.close()
    facts = LanceEngine(tmp_path / "facts", exact_below=100)
    facts.add_column(Column("year", "integer"))
    facts.put(ids, dict(year=[1] * 300))
    facts.tidy()
    facts.put(["late"], dict(year=[2]))
    facts.tidy()  # without any vectors
    assert {
        i.field_names[0]: i.num_rows_indexed
        for i in lance.dataset(str(tmp_path / "facts" / "pictures.lance")).describe_indices()
    } == dict(id=301, year=301)
    facts.close()


def test_a_write_that_is_kept_does_not_fail_where_files_cannot_be_put_together(tmp_path, monkeypatch):
    engine = ENGINES["lance"](tmp_path)
    engine.add_column(Column("year", "integer"))
    engine.TIDY_AFTER = 1

    def full(*a, **k):
        raise OSError("No space left on device")

    with monkeypatch.context() as m, pytest.warns(UserWarning, match="No space left"):
        m.setattr(DatasetOptimizer, "compact_files", full)
        engine.put(["a"], dict(year=[1]))
    assert engine.count() == 1
    engine.put(["b"], dict(year=[2]))
    assert engine.count() == 2
    engine.close()


def test_a_few_rows_of_one_column_are_little_to_write(tmp_path):
    "And an index of another column goes on knowing all other rows"
    engine = LanceEngine(tmp_path / "few", exact_below=2000)

    def size():
        return sum(f.stat().st_size for f in (tmp_path / "few").rglob("*") if f.is_file())

    vectors = np.random.default_rng(0).standard_normal((4000, 64)).astype(np.float32)
    for c in (Column("v", "vector", 64), Column("w", "vector", 64), Column("year", "integer")):
        engine.add_column(c)
    engine.put([str(i) for i in range(4000)], dict(v=vectors, w=vectors, year=[1] * 4000))
    engine.tidy()
    before = size()
    engine.put(["7", "gone"], dict(w=-vectors[:2]), insert=False)
    # a column has 512,000 bytes
    assert size() - before < 100_000 and engine.indexed("v") >= 3999 and engine.count() == 4000
    found = engine.read(["7", "8"], ["v", "w", "year"])
    assert found["year"] == [1, 1]
    np.testing.assert_array_equal(found["v"], vectors[7:9].astype(np.float16))
    np.testing.assert_array_equal(found["w"], np.stack([-vectors[0], vectors[8]]).astype(np.float16))
    engine.close()


def test_columns_are_not_asked_for_at_every_search(tmp_path, monkeypatch):
    engine = ENGINES["lance"](tmp_path)
    engine.add_column(Column("v", "vector", 2))
    engine.put(["a"], dict(v=[[1, 2]]))
    looked = []
    real = LanceEngine._refresh
    monkeypatch.setattr(LanceEngine, "_refresh", lambda e: (looked.append(1), real(e))[1])
    engine._refreshed_at = time.monotonic() + 600
    for _ in range(3):
        assert engine.nearest("v", np.ones((1, 2)), 1)[0].ids == ("a",) and [*engine.columns] == ["v"]
    assert not looked
    engine._refreshed_at = time.monotonic() - 2
    engine.nearest("v", np.ones((1, 2)), 1)
    assert len(looked) == 1
    engine.close()


def test_who_tidies_waits_for_who_writes(tmp_path):
    engine = ENGINES["lance"](tmp_path, exact_below=20, patience_s=0.05)
    engine.add_column(Column("v", "vector", 4))
    engine.put([str(i) for i in range(30)], dict(v=np.random.default_rng(0).standard_normal((30, 4))))
    engine.tidy()
    engine.put(["late"], dict(v=np.ones((1, 4))))
    with FileLock(tmp_path / "lance" / ".writing"):
        for call in (engine.tidy, lambda: engine.put(["x"], {}), lambda: engine.add_column(Column("w", "vector", 2))):
            pytest.raises(LabError, call)
    engine.patience_s = 60
    lock = FileLock(tmp_path / "lance" / ".writing", thread_local=False)
    lock.acquire()
    (t := threading.Thread(target=engine.tidy)).start()
    lock.release()
    t.join()
    assert engine.indexed("v") == 31 == engine.count()
    engine.close()


def test_an_index_loses_nothing_of_a_narrow_filter_and_of_deep_pages(make):
    n = 3000
    engine = make(exact_below=1000)
    reference = Reference()
    [
        e.add_column(c)
        for e in (engine, reference)
        for c in (Column("v", "vector", 8), Column("rare", "flag"), Column("year", "integer"))
    ]
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 8))
    q = rng.standard_normal((2, 8))
    for e in (engine, reference):
        e.put(
            [str(i) for i in range(n)],
            dict(v=rows, rare=[i % 300 == 0 for i in range(n)], year=[i % 2 for i in range(n)]),
        )
    engine.tidy()

    def by(asked):
        return read_filter(asked, engine.columns)

    for found, x in zip(engine.nearest("v", q, 10, by(dict(rare=True))), q):
        near(found, reference.cosines("v", x, dict(rare=True)), 10)
    for asked, k, skip, there in (
        (dict(rare=True), 100, 0, 10),
        (dict(rare=True), 4, 8, 2),
        ({}, 2000, 0, 2000),
        ({}, 2000, 2000, 1000),
        (dict(year=1), 1200, 0, 1200),
        (dict(year=1), 1000, 1000, 500),
        (dict(year=1, rare=True), 10, 0, 0),
    ):
        for found, x in zip(engine.nearest("v", q, k, by(asked), skip), q):
            cosines = reference.cosines("v", x, asked)
            assert (
                len({*found.ids}) == there
                and {*found.ids} <= {*cosines}
                and np.allclose(found.cosines, [cosines[i] for i in found.ids], atol=2e-3)
                and len({*found.ids} & {*sorted(cosines, key=cosines.get)[::-1][skip : skip + k]}) >= 0.95 * there
            ), (asked, k, skip)


# several processes, and their end

OPEN = dict(
    lance="from dasd_lab.search.on_disk.lance import LanceEngine; engine = LanceEngine({folder!r}+'/lance')",
    milvus="from dasd_lab.search.on_disk.milvus import MilvusEngine; engine = MilvusEngine({folder!r}+'/milvus.db', 'pictures')",
    server="from dasd_lab.search.on_disk.milvus import MilvusEngine; engine = MilvusEngine({uri!r}, 'pictures')",
)
BATCH = 20
WRITER = """
import itertools,numpy as np
for k in itertools.count():
    ids = [f"{k}-{i}" for i in range(20)]
    engine.put(ids, dict(year=[k]*20, v=np.full((20,4), k%50+1), name=["first"]*20)); print("put", k, flush=True)
    engine.put(ids[::2]+[f"{k}+{i}" for i in range(10)], dict(year=[k]*20, v=np.full((20,4), k%50+1), name=["second"]*20)); print("again", k, flush=True)
    engine.change(ids, dict(score=float(k))); print("change", k, flush=True)
    if k%3==2: engine.remove([f"{k-1}-{i}" for i in range(20)]); print("remove", k-1, flush=True)
"""


@contextmanager
def child(code: str):
    "Another process that prints lines; killed at the end"
    p = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield p
    finally:
        p.kill()
        p.communicate()


def line(p) -> str:
    "The next one; what went wrong if there is none"
    if text := p.stdout.readline():
        return text.strip()
    raise AssertionError(p.stderr.read()[-2000:])


@pytest.mark.parametrize("after", [11])
def test_a_kill_loses_nothing_that_was_acknowledged_and_leaves_nothing_half(make, after):
    engine = make()
    [engine.add_column(c) for c in COLUMNS]
    engine.close()
    said = set()
    with child(OPEN[make.kind].format(folder=str(make.folder)) + WRITER) as p:
        for _ in range(after):
            said.add(tuple(line(p).split()))
        time.sleep(random.Random(after).random() * 0.01)
        p.send_signal(signal.SIGKILL)
        said |= {tuple(l.split()) for l in p.stdout if l.endswith("\n")}
    engine = make()
    rows = {
        i: (y, s, n)
        for part in engine.walk(["year", "score", "name", "v"])
        for i, y, s, n, v in zip(part["id"], part["year"], part["score"], part["name"], part["v"])
        if (v == y % 50 + 1).all()
    }
    assert len(rows) == engine.count()
    last = max(int(k) for _, k in said)
    for k in range(last + 2):
        first, second, extra = [[rows.get(f"{k}-{i}") for i in range(s, BATCH, 2)] for s in (1, 0)] + [
            [rows.get(f"{k}+{i}") for i in range(10)]
        ]
        for part in (first, second, extra):
            assert len(set(part)) == 1, (k, part)  # all of a call or nothing
        (a,), (b,), (c,) = set(first), set(second), set(extra)
        removed = ("remove", str(k)) in said
        if removed:
            assert a is None and b is None and c == (k, None, "second")
            continue
        gone = k % 3 == 1 and a is None and b is None and c is not None  # its removal was under way
        if ("put", str(k)) in said and not gone:
            assert a and a[0] == k and a[2] == "first" and b
        if ("again", str(k)) in said:
            assert c == (k, None, "second") and (gone or b[2] == "second")
        if ("change", str(k)) in said and not gone:
            assert a[1] == b[1] == k
        # and the same over both halves of it
        assert (
            gone
            or (c is None) == (b is None or b[2] == "first")
            and (a is None) == (b is None)
            and (a is None or a[1] == b[1])
        )
    engine.put(["after"], dict(year=[1]))
    assert engine.count() == len(rows) + 1


READER = """
import sys,numpy as np; from collections import Counter
seen = 0; print("ready", flush=True)
while seen<{all}:
    walked = [i for part in engine.walk(["year"]) for i in part["id"]]; n = engine.count(); found = engine.nearest("v", np.ones((1,4)), 5)[0].ids
    assert len(set(walked))==len(walked) and len(walked)>=seen and n>=len(walked) and sum(v!=20 for v in Counter(i.split('-')[0] for i in walked).values())<={torn} and min(5, n)<=len(found)<=5 and all(len(engine.read([i], ["v"])["id"])==1 for i in found), (seen, len(walked), n)
    seen = len(walked)
print("all", flush=True)
"""


@contextmanager
def milvus_lite(folder: Path):
    "A server of Milvus Lite for several processes; on this machine only"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with child(
        f'from milvus_lite.adapter.grpc.server import run_server; run_server({str(folder)!r}, "127.0.0.1", {port})'
    ) as p:
        assert "listening" in line(p)
        yield p, f"http://127.0.0.1:{port}"


def written_and_read(engine, code: str, torn: int = 0):
    "torn: batches that a walk beside a writer may see in part; Milvus Lite keeps no time of its own to walk at"
    for k in range(3):
        engine.put(
            [f"{k}-{i}" for i in range(BATCH)],
            dict(year=[k] * BATCH, v=np.random.default_rng(k).standard_normal((BATCH, 4))),
        )
    with child(code + READER.replace("{all}", str(15 * BATCH)).replace("{torn}", str(torn))) as p:
        assert line(p) == "ready"
        for k in range(3, 15):
            engine.put(
                [f"{k}-{i}" for i in range(BATCH)],
                dict(year=[k] * BATCH, v=np.random.default_rng(k).standard_normal((BATCH, 4))),
            )
            engine.change([f"{k}-0"], dict(score=1.0))
            k == 8 and engine.tidy()
        assert line(p) == "all"


def test_other_processes_read_while_one_writes_lance(tmp_path):
    engine = ENGINES["lance"](tmp_path)
    [engine.add_column(c) for c in COLUMNS]
    written_and_read(engine, OPEN["lance"].format(folder=str(tmp_path)))
    engine.close()


def test_other_processes_read_while_one_writes_milvus_and_a_server_may_be_killed(tmp_path):
    "Over the network as a cluster is asked, also while a column is added, which makes the collection anew"
    with milvus_lite(tmp_path / "data") as (server, uri):
        engine = MilvusEngine(uri, "pictures")
        [engine.add_column(c) for c in COLUMNS]
        written_and_read(engine, OPEN["server"].format(uri=uri), torn=1)
        other = MilvusEngine(uri, "pictures")
        assert other.count() == 15 * BATCH
        engine.add_column(Column("w", "vector", 2))
        engine.put(["0-0"], dict(w=[[1, 2]]))
        # the old collection is gone
        assert (other.count(), other.nearest("v", np.ones((1, 4)), 400)[0].ids.__len__()) == (15 * BATCH, 15 * BATCH)
        walk = other.walk(["year"], size=100)
        begun = next(walk)["id"]
        engine.add_column(Column("place", "text"))
        engine.put(["0-1"], dict(place=["here"]))
        time.sleep(1.1)
        # and one that was walked through goes on in the new
        assert sorted(begun + [i for part in walk for i in part["id"]]) == sorted(
            f"{k}-{i}" for k in range(15) for i in range(BATCH)
        )
        time.sleep(1.1)
        assert other.columns == engine.columns and other.nearest("w", [[1, 2]], 3)[0].ids == ("0-0",)
        server.kill()
        server.wait()
    with milvus_lite(tmp_path / "data") as (_, uri):
        again = MilvusEngine(uri, "pictures")
        assert again.count() == 15 * BATCH and again.read(["0-1", "0-0"], ["place", "w"])["place"] == ["here", None]
        again.close()
    with pytest.raises(LabError, match="Fail connecting"):
        MilvusEngine(uri, "pictures", timeout_s=1)


def test_what_a_kill_leaves_of_a_gallery_on_milvus(tmp_path, monkeypatch):
    "Of its making, and of the making anew of the collection that holds its pictures"

    def killed(name, n, call):  # at the n-th request of that name
        real = getattr(MilvusClient, name)
        left = [n]

        def stopped(*a, **k):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*a, **k)

        with monkeypatch.context() as m:
            m.setattr(MilvusClient, name, stopped)
            pytest.raises(KeyboardInterrupt, call)

    keep = MilvusEngine(tmp_path / "m.db", "other")
    open_it = lambda: MilvusEngine(tmp_path / "m.db", "a")
    for request in ("create_index", "load_collection", "upsert"):
        if keep._client.has_collection("a"):
            keep._client.drop_collection("a")
        killed(request, 0, open_it)
        engine = open_it()
        assert engine.columns == {}
        engine.close()
    engine = open_it()
    engine.add_column(Column("v", "vector", 2))
    engine.put(["x", "y"], dict(v=[[1, 2], [2, 1]]))
    for k, request in enumerate(("insert", "drop_collection")):
        engine.add_column(Column(f"c{k}", "integer"))
        killed(request, k, lambda: engine.put(["x"], {f"c{k}": [k]}))
        engine.close()
        engine = open_it()
        assert engine.count() == 2 and engine.nearest("v", [[1, 2]], 5)[0].ids == ("x", "y")
        engine.put(["x"], {f"c{k}": [k]})
        assert engine.read(["x", "y"], [f"c{k}"])[f"c{k}"] == [k, None]

    def held():
        return [c for c in engine._client.list_collections() if c.startswith("a__")]

    assert len(held()) == 2
    engine.add_column(Column("more", "text"))
    engine.put(["x"], dict(more=["m"]))
    assert held() == [engine._collection(engine._layout(fresh=True))]
    for wrong in ("a__1", "a__01", "_" + "__7"):
        pytest.raises(LabError, MilvusEngine, tmp_path / "m.db", wrong)
    fine = MilvusEngine(tmp_path / "m.db", "a__b")
    fine.add_column(Column("v", "vector", 2))
    fine.put(["z"], dict(v=[[1, 2]]))
    engine.add_column(Column("w", "integer"))
    engine.put(["x"], dict(w=[1]))
    assert fine.count() == 1
    [e.close() for e in (fine, engine, keep)]


def test_a_gallery_on_milvus_whose_record_is_lost_is_no_new_one(tmp_path, monkeypatch):
    engine = MilvusEngine(tmp_path / "m.db", "a", consistency="Eventually")
    engine.add_column(Column("v", "vector", 2))
    engine.put(["x"], dict(v=[[1, 2]]))
    held = engine._collection(engine._layout())
    asked = []
    real = MilvusClient.query

    def query(client, name, *a, **k):
        asked.append((name, k["consistency_level"]))
        return real(client, name, *a, **k)

    with monkeypatch.context() as m:
        m.setattr(MilvusClient, "query", query)
        other = MilvusEngine(tmp_path / "m.db", "a", consistency="Eventually")
        other.count()
        assert {*asked} == {("a", "Strong"), (held, "Eventually")}  # the record is never an old one
    engine._client.delete("a", ids=["about"])
    pytest.raises(LabError, MilvusEngine, tmp_path / "m.db", "a").match(held)
    assert engine._client.has_collection(held)
    [e.close() for e in (engine, other)]


def test_a_change_on_milvus_makes_no_picture_that_was_removed_meanwhile(tmp_path, monkeypatch):
    engine = MilvusEngine(tmp_path / "m.db", "a")
    engine.add_column(Column("year", "integer"))
    engine.put(["x", "y"], dict(year=[1, 2]))
    real = MilvusEngine.put

    def late(self, *a, **k):
        self.remove(["x"])
        return real(self, *a, **k)

    monkeypatch.setattr(MilvusEngine, "put", late)
    engine.change(["x", "y"], dict(year=3))
    assert engine.count() == 1 and engine.read(["x", "y"], ["year"]) == dict(id=["y"], year=[3])
    engine.close()


# a gallery


def test_a_stored_gallery_finds_the_same_on_both(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [Image.new("RGB", (8, 8), tuple(int(x) for x in rng.integers(0, 255, 3))) for _ in range(40)]
    ids = [f"bild {i}'ü" for i in range(40)]
    engine = MilvusEngine(tmp_path / "milvus.db", "pictures")
    galleries = [
        StoredGallery(tmp_path / n, Named(), dict(shade="integer", colour="text"), engine=e)
        for n, e in (("lance", None), ("milvus", engine))
    ]
    for g in galleries:
        g.add(pictures, ids, dict(shade=list(range(40)), colour=["a", "b"] * 20), batch_size=7)
        g.update(ids[:3], colour="it's")
        g.delete(ids[3:5])
        g.add([Image.new("RGB", (8, 8), "lime")], [ids[5]], dict(shade=[-1], colour=[None]), replace=True)
        g.tidy()

    def hits(g):
        return [
            [(h.id, h.rank) for h in found]
            for found in (
                g.search("rot", "de", k=40),
                g.search("grün blau", "de", k=5, skip=7),
                g.search("gelb", "de", k=5, where=dict(colour=["it's", "a"], shade={"to": 20})),
                g.similar(ids[9], k=6),
                g.search("rot", "de", k=5, picture=ids[8], share=0.3),
            )
        ]

    a, b = map(hits, galleries)
    assert (
        a == b
        and [len(h) for h in a] == [38, 5, 5, 6, 5]
        and all(g.facts(ids[:6])["colour"].fillna("none").tolist() == ["it's"] * 3 + ["none"] for g in galleries)
    )
    galleries[1].close()
    with_lance = tmp_path / "milvus"
    pytest.raises(
        LabError,
        StoredGallery,
        tmp_path / "lance",
        Named(),
        engine=(again := MilvusEngine(tmp_path / "milvus.db", "pictures")),
    )
    g = StoredGallery(with_lance, Named(), engine=again)
    assert (
        hits(g) == a
        and json.loads((with_lance / "gallery.json").read_text())["engine"] == "MilvusEngine"
        and not (with_lance / "index").exists()
    )
    [x.close() for x in (g, galleries[0])]
