"""A gallery of a million pictures: recall, times, memory, a crowd of clients, kills, and an import of 100,000 files

    python tools/bench/gallery.py [parts …] [--n 1000000] [--files 100000] [--folder DIR] [--json FILE]

parts: engines (USearch and Qdrant Edge where `pip install usearch qdrant-edge-py` was called) fill index search service kills import rerank (default: all). Vectors are the built-in corpus' features, of pictures and
of captions in six languages, turned into 512 dimensions, with noise half as long as they are on every picture; so a
picture has some forty others near it, and captions lie where no pictures are, as they do in every shared space. Recall is
against all cosines. Each heavy part runs in a process of its own, whose peak memory is what the system counted. The
folder takes some 10 GB, and is removed at the end unless it was given. Figures of a million pictures are kept in
data/results/gallery.json, with the commit and the day of each part; those of fewer are printed, and kept where --json says."""

import argparse
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from lancedb.background_loop import LOOP
from tqdm.auto import tqdm

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.by_machine.builtin_translators import GlossTranslator
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import gallery_slices, split_columns
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.gallery.in_memory import best_of_slices, caption_features
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.search.on_disk.thumbnails import StoredThumbnails
from dasd_lab.search.queries import supported_languages
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

WIDTH = 512
NOISE = 0.5
K = 10
LANGUAGES = ("de", "fr", "cs", "zh", "ja", "ar")


class Widened(RetrievalMethod):
    "A method whose vectors are turned into a wider space, which changes no cosine"

    name = "widened"

    def __init__(self, inner, width=WIDTH):
        super().__init__()
        self.inner = inner.eval()
        self.languages = inner.languages
        # rows of the cosine transform: orthonormal, the same numbers everywhere
        self.register_buffer(
            "turn",
            torch.cos(
                torch.pi / width * torch.outer(3 * torch.arange(1, inner.embed_dim + 1), torch.arange(width) + 0.5)
            ).float()
            * (2 / width) ** 0.5,
        )

    @property
    def backbone(self):
        return self.inner.backbone

    @property
    def embed_dim(self):
        return self.turn.shape[1]

    def encode_captions(self, captions, language):
        return self.inner.encode_captions(captions, language) @ self.turn

    def encode_visuals(self, visuals):
        return {k: v @ self.turn for k, v in self.inner.encode_visuals(visuals).items()}

    def visual_columns(self, pictures, descriptions=None, known=None):
        return self.inner.visual_columns(pictures, descriptions, known)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def quantiles(ms):
    return dict(
        p50_ms=float(np.percentile(ms, 50)), p95_ms=float(np.percentile(ms, 95)), p99_ms=float(np.percentile(ms, 99))
    )


def peak_gb(process="self"):
    # of this process since it began; getrusage would count its parent
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1e6


def name_of(i):
    return f"p/{i % 1000:03d}/{i:07d}.jpg"


# vectors


def made(at: Path, n: int, queries: int = 500) -> dict:
    "Vectors of pictures as a memory map, queries of both kinds, and what is nearest to them"
    if (at / "queries.npz").exists() and len(np.load(at / "vectors.npy", mmap_mode="r")) == n:
        return dict(np.load(at / "queries.npz"))
    at.mkdir(parents=True, exist_ok=True)
    corpus = load_corpus("pictograms")
    method = Widened(load_run(shipped_run()))
    rng = np.random.default_rng(0)
    with torch.no_grad():
        seen = unit(
            torch.cat(
                [
                    method.encode_visuals(split_columns(method.inner, corpus, s))["features"]
                    for s in ("train", "validation", "test")
                ]
            ).numpy()
        )
        said = unit(
            caption_features(
                method, [c for language in LANGUAGES for c in corpus.captions("test", language, "human")[:400]]
            ).numpy()
        )

    def noisy(x):
        return unit(x + NOISE / np.sqrt(WIDTH) * rng.standard_normal(x.shape, np.float32))

    out = np.lib.format.open_memmap(at / "vectors.npy", "w+", dtype=np.float16, shape=(n, WIDTH))
    for a in tqdm(range(0, n, 20_000), desc="vectors"):
        b = min(n, a + 20_000)
        out[a:b] = noisy(seen[rng.integers(0, len(seen), b - a)])
    asked = np.concatenate(
        [said[rng.permutation(len(said))[:queries]], noisy(seen[rng.integers(0, len(seen), queries)])]
    ).astype(np.float32)
    best = np.full((len(asked), K), -9.0, np.float32)
    place = np.zeros((len(asked), K), int)
    for a in tqdm(range(0, n, 50_000), desc="all cosines"):
        rows = unit(out[a : a + 50_000].astype(np.float32))
        s = np.concatenate([best, asked @ rows.T], 1)
        p = np.concatenate([place, np.broadcast_to(np.arange(a, a + len(rows)), (len(asked), len(rows)))], 1)
        top = np.argpartition(-s, K, 1)[:, :K]
        best = np.take_along_axis(s, top, 1)
        place = np.take_along_axis(p, top, 1)
    np.savez(at / "queries.npz", asked=asked, nearest=place)
    return dict(asked=asked, nearest=place)


def measured(ask, q, n=400) -> dict:
    "Recall and time of a search, captions and pictures in turn, after all were asked once"
    half = len(q["asked"]) // 2
    order = [i for pair in zip(range(half), range(half, 2 * half)) for i in pair]
    ms = []
    recall = {True: [], False: []}
    for i in order:
        ask(q["asked"][i])
    for i in order[:n]:
        began = time.perf_counter()
        found = ask(q["asked"][i])
        ms.append(1e3 * (time.perf_counter() - began))
        recall[i < half].append(len({*found} & {*q["nearest"][i].tolist()}) / K)
    return dict(
        recall_captions=float(np.mean(recall[True])), recall_pictures=float(np.mean(recall[False])), **quantiles(ms)
    )


# engines: what was chosen among


def engines(at: Path, n: int) -> list[dict]:
    "Indexes over the same vectors, as bare as they come"
    q = made(at, n)
    rows = np.load(at / "vectors.npy", mmap_mode="r")
    found = []
    lists = round(n**0.5)

    def note(engine, build_s, ask, **more):
        found.append(dict(engine=engine, build_s=build_s, **measured(ask, q), **more))
        print(found[-1], flush=True)

    def chunks():
        return ((a, rows[a : a + 20_000].astype(np.float32)) for a in range(0, n, 20_000))

    import faiss
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfHnswSq, IvfRq, IvfSq

    faiss.omp_set_num_threads(2)
    began = time.time()
    index = faiss.index_factory(WIDTH, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.max_points_per_centroid = 20, 64
    index.train(rows[np.sort(np.random.default_rng(0).permutation(n)[: 64 * lists])].astype(np.float32))
    for a, x in chunks():
        index.add(x)
    build = time.time() - began
    index.nprobe = 20

    def refined(v):
        c = np.sort(index.search(v[None], 4 * K)[1][0])
        return c[np.argsort(-(rows[c].astype(np.float32) @ v))[:K]].tolist()

    note("FAISS IVF, 8 bits, refined", build, refined, keeps="vectors")
    del index
    try:
        from usearch.index import Index

        index = Index(ndim=WIDTH, metric="cos", dtype="i8", connectivity=16, expansion_add=100, expansion_search=256)
        began = time.time()
        for a, x in tqdm(chunks(), desc="usearch", total=n // 20_000):
            index.add(np.arange(a, a + len(x)), x, threads=2)
        build = time.time() - began

        def walked(v):
            c = np.sort(index.search(v, 4 * K).keys.astype(int))
            return c[np.argsort(-(rows[c].astype(np.float32) @ v))[:K]].tolist()

        for index.expansion_search in (256, 1024):
            note(f"USearch HNSW, 8 bits, refined, {index.expansion_search} in sight", build, walked, keeps="vectors")
        del index
    except ImportError:
        print("usearch is not installed: left out")
    try:
        from qdrant_edge import (
            Distance,
            EdgeConfig,
            EdgeShard,
            EdgeVectorParams,
            HnswIndexConfig,
            Point,
            QuantizationSearchParams,
            Query,
            QueryRequest,
            ScalarQuantizationConfig,
            ScalarType,
            SearchParams,
            UpdateOperation,
            VectorStorageDatatype,
        )

        (at / "qdrant").mkdir()
        began = time.time()
        shard = EdgeShard.create(
            str(at / "qdrant"),
            EdgeConfig(
                vectors={
                    "v": EdgeVectorParams(
                        size=WIDTH,
                        distance=Distance.Cosine,
                        on_disk=True,
                        datatype=VectorStorageDatatype.Float16,
                        quantization_config=ScalarQuantizationConfig(type=ScalarType.Int8, always_ram=True),
                        hnsw_config=HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
                    )
                }
            ),
        )
        for a in tqdm(range(0, n, 1000), desc="qdrant edge"):
            shard.update(
                UpdateOperation.upsert_points(
                    [Point(a + i, {"v": x.tolist()}) for i, x in enumerate(rows[a : a + 1000].astype(np.float32))]
                )
            )
        shard.optimize()
        build = time.time() - began
        for ef in (256, 1024):
            note(
                f"Qdrant Edge HNSW, 8 bits, rescored, {ef} in sight",
                build,
                lambda v: [
                    p.id
                    for p in shard.query(
                        QueryRequest(
                            limit=K,
                            query=Query.Nearest(v.tolist(), using="v"),
                            params=SearchParams(
                                hnsw_ef=ef, quantization=QuantizationSearchParams(rescore=True, oversampling=2.0)
                            ),
                        )
                    )
                ],
                keeps="vectors, facts, filters",
            )
        shard.close()
        shutil.rmtree(at / "qdrant")
    except ImportError:
        print("qdrant-edge-py is not installed: left out")
    schema = pa.schema([("row", pa.int64()), ("v", pa.list_(pa.float16(), WIDTH))])
    table = LOOP.run(LOOP.run(lancedb.connect_async(at / "lance")).create_table("v", schema=schema))
    LOOP.run(
        table.add(
            pa.RecordBatchReader.from_batches(
                schema,
                (
                    pa.record_batch(
                        [
                            pa.array(np.arange(a, a + len(x))),
                            pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float16).ravel()), WIDTH),
                        ],
                        schema=schema,
                    )
                    for a, x in chunks()
                ),
            )
        )
    )
    more = dict(distance_type="cosine", max_iterations=20, sample_rate=64)
    for name, config, refine in (
        ("LanceDB IVF, 8 bits, refined", IvfSq(target_partition_size=lists, **more), 2),
        ("LanceDB IVF, 1 bit (RaBitQ), refined", IvfRq(num_partitions=lists, **more), 40),
        (
            "LanceDB IVF and HNSW, 8 bits, refined",
            IvfHnswSq(num_partitions=max(1, n // 200_000), m=16, ef_construction=100, **more),
            2,
        ),
    ):
        began = time.time()
        LOOP.run(table.create_index("v", config=config, replace=True))
        build = time.time() - began

        async def asked(v):
            s = (
                table.query()
                .nearest_to(v)
                .column("v")
                .distance_type("cosine")
                .nprobes(20)
                .refine_factor(refine)
                .limit(K)
                .select(["row", "_distance"])
            )
            return await (s.ef(256) if "HNSW" in name else s).to_arrow()

        note(name, build, lambda v: LOOP.run(asked(v))["row"].to_pylist(), keeps="vectors, facts, filters")
    shutil.rmtree(at / "lance")
    return found


# a gallery


def filled(at: Path, n: int) -> dict:
    "A stored gallery of n pictures"
    made(at, n)
    rows = np.load(at / "vectors.npy", mmap_mode="r")
    gallery = StoredGallery(at / "gallery", Widened(load_run(shipped_run())), dict(year="integer", album="text"))
    began = time.time()
    for a in tqdm(range(0, n, 10_000), desc="pictures"):
        x = torch.from_numpy(rows[a : a + 10_000].astype(np.float32))
        ids = range(a, a + len(x))
        gallery.put(
            [name_of(i) for i in ids],
            dict(features=x),
            dict(
                year=[2000 + i % 25 for i in ids],
                album=[f"album {i % 1000}" for i in ids],
                width=[640] * len(x),
                height=[480] * len(x),
            ),
        )
    return dict(put_s=time.time() - began)


def indexed(at: Path) -> dict:
    "Time and memory of making the index"
    gallery = StoredGallery(at / "gallery", Widened(load_run(shipped_run())))
    before = peak_gb()
    began = time.time()
    gallery.tidy()
    return dict(
        before_gb=before,
        index_s=time.time() - began,
        peak_gb=peak_gb(),
        size_gb=sum(f.stat().st_size for f in (at / "gallery").rglob("*") if f.is_file()) / 1e9,
        indexed=gallery.engine.indexed(f"vector_{gallery.way}"),
    )


def searched(at: Path, n: int) -> dict:
    "The gallery, the bare index beneath it in turn, whole searches by text, filters, cold opening"
    q = made(at, n)
    method = Widened(load_run(shipped_run()))

    def place(ids):
        return [int(i[6:13]) if i.startswith("p/") else -1 for i in ids]

    for f in (at / "gallery").rglob("*"):  # out of the system's memory
        if f.is_file():
            with open(f, "rb") as o:
                os.fsync(o.fileno())
                os.posix_fadvise(o.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    gallery = StoredGallery(at / "gallery", method)
    opened = time.perf_counter() - began
    gallery.best(torch.from_numpy(q["asked"][:1]), K)
    first = time.perf_counter() - began
    column = f"vector_{gallery.way}"
    table = gallery.engine._table
    engine = gallery.engine

    def through(v):
        return place(gallery.best(torch.from_numpy(v[None]), K)[0])

    async def asked(v):
        return (
            await table.query()
            .nearest_to(v)
            .column(column)
            .distance_type("cosine")
            .nprobes(engine.probes)
            .refine_factor(engine.refine)
            .limit(K)
            .select(["id", "_distance"])
            .to_arrow()
        )

    def bare(v):
        return place(LOOP.run(asked(v))["id"].to_pylist())

    found = dict(open_s=opened, open_and_search_s=first, gallery=measured(through, q), bare=measured(bare, q))
    pairs = []
    for i in range(300):  # in turn, so that other work on the machine falls on both alike
        v = q["asked"][(7 * i) % len(q["asked"])]
        t = [0, 0]
        for j in (0, 1) if i % 2 else (1, 0):
            began = time.perf_counter()
            (through, bare)[j](v)
            t[j] = time.perf_counter() - began
        pairs.append(t)
    found["ratio"] = statistics.median(a / b for a, b in pairs)
    found["ratio_of_medians"] = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
    captions = {
        language: [c.text for c in load_corpus("pictograms").captions("test", language, "human")[:40]]
        for language in LANGUAGES
    }
    ms = {"text": [], "text, one year of 25": [], "text, one album of 1,000": [], "third page": []}
    for l, texts in captions.items():
        for i, t in enumerate(texts):
            for kind, more in {
                "text": {},
                "text, one year of 25": dict(where=dict(year=2000 + i % 25)),
                "text, one album of 1,000": dict(where=dict(album=f"album {i}")),
                "third page": dict(skip=48, k=24),
            }.items():
                began = time.perf_counter()
                hits = gallery.search(t, l, **(dict(k=K) | more))
                ms[kind].append(1e3 * (time.perf_counter() - began))
                assert len(hits) == (24 if kind == "third page" else K)
    found["searches"] = {k: quantiles(v[20:]) for k, v in ms.items()}
    found["peak_gb"] = peak_gb()
    found["deep"] = deep(at, n, gallery, q)
    return found


def deep(at: Path, n: int, gallery: StoredGallery, q: dict, queries: int = 40) -> list[dict]:
    "Recall and time of later pages and under filters, as many captions as pictures"
    rows = np.load(at / "vectors.npy", mmap_mode="r")
    half = len(q["asked"]) // 2
    ids = np.arange(n)
    asked = np.concatenate([q["asked"][: half : half // queries], q["asked"][half :: half // queries]])
    some = []
    cosines = np.concatenate(
        [
            asked @ unit(rows[a : a + 50_000].astype(np.float32)).T
            for a in tqdm(range(0, n, 50_000), desc="all cosines")
        ],
        1,
    )
    for name, where, there, k, skip in (
        ("the best 100", None, ids >= 0, 100, 0),
        ("places 91 to 100", None, ids >= 0, 10, 90),
        ("places 991 to 1,000", None, ids >= 0, 10, 990),
        ("13 years of 25", dict(year={"to": 2012}), ids % 25 <= 12, 10, 0),
        ("one year of 25", dict(year=2003), ids % 25 == 3, 10, 0),
        ("one album of 1,000", dict(album="album 7"), ids % 1000 == 7, 10, 0),
        ("three albums of 1,000", dict(album=[f"album {i}" for i in (7, 8, 9)]), np.isin(ids % 1000, (7, 8, 9)), 10, 0),
    ):
        ms = []
        shares = []
        for v, c in zip(asked, cosines):
            order = np.argpartition(-np.where(there, c, -9), k + skip)[: k + skip]
            best = order[np.argsort(-c[order])][skip:]
            began = time.perf_counter()
            got = gallery.best(torch.from_numpy(v[None]), k, skip, where)[0]
            ms.append(1e3 * (time.perf_counter() - began))
            shares.append(len({int(i[6:13]) for i in got if i.startswith("p/")} & {*best.tolist()}) / k)
        h = len(shares) // 2
        some.append(
            dict(
                asked=name,
                recall_captions=float(np.mean(shares[:h])),
                recall_pictures=float(np.mean(shares[h:])),
                **quantiles(ms),
            )
        )
    return some


# a crowd

SERVE = """import sys; sys.path.insert(0, sys.argv[1]+'/tools/bench'); import torch,uvicorn,warnings; torch.set_num_threads(1); warnings.simplefilter('ignore')
from gallery import Widened,load_run,shipped_run,StoredGallery
from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.server import Config
from dasd_lab.serve.service import gallery_app
gallery = StoredGallery(sys.argv[2], Widened(load_run(shipped_run())))
uvicorn.Server(Config(gallery_app(gallery, ServiceSettings(may_write=True, requests_per_minute=10**7, uploads_per_minute=10**7, timeout_s=60, at_once=4)), port=int(sys.argv[3]))).run()
"""


def crowd(at: Path, n: int, requests: int = 10_000, clients: int = 32) -> dict:
    "Mixed requests of many clients over HTTP: searches, filters, pictures like one, pictures added, changed and removed"
    import io

    import httpx
    from PIL import Image

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(__file__).resolve().parents[2]
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(root), str(at / "gallery"), str(port)])
    url = f"http://127.0.0.1:{port}"
    captions = [
        (language, c.text)
        for language in LANGUAGES
        for c in load_corpus("pictograms").captions("test", language, "human")[:200]
    ]
    before = None
    try:
        for _ in range(300):
            try:
                before = httpx.get(url + "/api/gallery", timeout=5).json()["pictures"]
                break
            except httpx.HTTPError:
                time.sleep(0.5)

        def one(client, rng, kept):
            kind = rng.choices(
                ("text", "filter", "like", "upload", "add", "change", "remove"), (50, 10, 12, 6, 12, 6, 4)
            )[0]

            def get(**p):
                return client.get("/api/search", params=p)

            began = time.perf_counter()
            language, text = rng.choice(captions)
            if kind in ("change", "remove") and not kept:
                kind = "add"  # it changes only its own
            if kind == "text":
                r = get(text=text, language=language, k=10)
            elif kind == "filter":
                r = get(text=text, language=language, k=10, where=json.dumps(dict(year=rng.randrange(2000, 2025))))
            elif kind == "like":
                r = get(like=name_of(rng.randrange(n)), k=10)
            elif kind in ("upload", "add"):
                to = io.BytesIO()
                Image.fromarray(
                    np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (24, 24, 3), np.uint8)
                ).save(to, "PNG")
                file = dict(picture=("x.png", to.getvalue(), "image/png"))
                r = (
                    client.post("/api/search", files=file, params=dict(k=10))
                    if kind == "upload"
                    else client.post("/api/pictures", files=file, data=dict(facts='{"year": 1999}'))
                )
                if kind == "add" and r.status_code == 201:
                    kept[r.json()["id"]] = 1999
            elif kind == "change":
                id = rng.choice(list(kept))
                year = rng.randrange(1900, 1999)
                r = client.patch("/api/picture", params=dict(id=id), json=dict(facts=dict(year=year)))
                if r.status_code == 200:
                    kept[id] = year
            else:
                id = rng.choice(list(kept))
                r = client.delete("/api/picture", params=dict(id=id))
                if r.status_code == 200:
                    del kept[id]
                    gone.add(id)
            return kind, 1e3 * (time.perf_counter() - began), r.status_code

        gone = set()
        bar = tqdm(total=requests, desc="requests")

        def work(w):
            rng = random.Random(w)
            kept = {}
            rows = []
            with httpx.Client(base_url=url, timeout=90) as client:
                for _ in range(requests // clients + (w < requests % clients)):
                    rows.append(one(client, rng, kept))
                    bar.update()
            return rows, kept

        began = time.time()
        with ThreadPoolExecutor(clients) as pool:
            done = list(pool.map(work, range(clients)))
        took = time.time() - began
        rows = [r for some, _ in done for r in some]
        kept = {i: y for _, k in done for i, y in k.items()}
        errors = [r for r in rows if r[2] >= 400]
        with httpx.Client(base_url=url, timeout=90) as c:
            lost = [
                i
                for i, y in kept.items()
                if (r := c.get("/api/picture", params=dict(id=i))).status_code != 200 or r.json()["facts"]["year"] != y
            ]
            back = [i for i in gone if c.get("/api/picture", params=dict(id=i)).status_code != 404]
            after = c.get("/api/gallery").json()["pictures"]
        kinds = sorted({r[0] for r in rows})
        return dict(
            requests=len(rows),
            clients=clients,
            took_s=took,
            per_s=len(rows) / took,
            server_peak_gb=peak_gb(server.pid),
            errors=len(errors),
            statuses=sorted({r[2] for r in errors}),
            writes=sum(r[0] in ("add", "change", "remove") for r in rows),
            lost=len(lost),
            came_back=len(back),
            counted=after - before == len(kept),
            kinds={
                k: dict(n=sum(r[0] == k for r in rows), **quantiles([r[1] for r in rows if r[0] == k])) for k in kinds
            },
        )
    finally:
        server.terminate()
        server.wait(30)


# kills

ADD = """import sys; sys.path.insert(0, sys.argv[1]+'/tools/bench'); import torch,random
from gallery import Widened,load_run,shipped_run,StoredGallery
gallery = StoredGallery(sys.argv[2], Widened(load_run(shipped_run()))); start = int(sys.argv[3]); rng = random.Random(start); step = 0
while True:
    ids = [f'kill/{start}-{step}-{i}' for i in range(rng.choice((1,16,256)))]; g = torch.Generator().manual_seed(step)
    gallery.put(ids, dict(features=torch.randn(len(ids), 512, generator=g)), dict(year=[step]*len(ids)), {i:b'webp' for i in ids}); print(step, len(ids), flush=True); step += 1
    if step%40==0: gallery.tidy()
"""


def killed(at: Path, times: int = 20) -> dict:
    "Processes that are killed while they add: what they acknowledged is there, and every batch is whole or absent"
    root = Path(__file__).resolve().parents[2]
    rng = random.Random(0)
    acknowledged = 0
    lost = 0
    torn = 0
    for start in tqdm(range(times), desc="kills"):
        p = subprocess.Popen(
            [sys.executable, "-c", ADD, str(root), str(at / "gallery"), str(start)], stdout=subprocess.PIPE, text=True
        )
        first = p.stdout.readline()
        timer = threading.Timer(rng.uniform(0.05, 4), p.kill)
        timer.start()
        said = [first, *p.stdout.read().splitlines()]
        p.wait()
        timer.cancel()  # until then it adds
        steps = {int(step): int(n) for step, n in (l.split() for l in said if len(l.split()) == 2)}
        sizes = random.Random(start)
        planned = [sizes.choice((1, 16, 256)) for _ in range(max(steps) + 3)]
        gallery = StoredGallery(at / "gallery", Widened(load_run(shipped_run())))
        vector = f"vector_{gallery.way}"
        rows = gallery.engine.read(
            [f"kill/{start}-{s}-{i}" for s, n in enumerate(planned) for i in range(n)], ["year", vector]
        )
        small = {i: gallery.thumbnails.get(i) for i in rows["id"]}
        gallery.close()
        there = Counter(
            step
            for id, year, v in zip(rows["id"], rows["year"], rows[vector])
            if year == (step := int(id.split("-")[1])) and np.isfinite(v).all() and small[id] == b"webp"
        )
        acknowledged += sum(steps.values())
        lost += sum(n - there[s] for s, n in steps.items())
        torn += sum(0 < there[s] < n for s, n in enumerate(planned))
    return dict(kills=times, acknowledged=acknowledged, lost=lost, torn=torn)


# an import

IMPORT = """import sys; sys.path.insert(0, sys.argv[1]+'/tools/bench'); import torch,json,time; torch.set_num_threads(2)
from gallery import load_run,peak_gb,shipped_run,StoredGallery; from dasd_lab.search.on_disk.importing import import_folder; from functools import partial; from tqdm.auto import tqdm
began = time.time(); r = import_folder(StoredGallery(sys.argv[2], load_run(shipped_run())), sys.argv[3], batch_size=256, progress=partial(tqdm, desc='import', mininterval=5)); print(json.dumps(dict(added=r.added, changed=r.changed, unchanged=r.unchanged, failed=len(r.failed), s=time.time()-began, peak_gb=peak_gb())))
"""


def photographs(at: Path, files: int = 300) -> dict:
    "Pictures of twelve megapixels, as telephones take them: how quick, and how much memory"
    from PIL import Image

    folder = at / "photographs"
    visuals = load_corpus("pictograms").visuals("train")
    folder.mkdir()

    def write(i):
        Image.fromarray(visuals[i].frames[0]).resize((4032, 3024), Image.Resampling.BICUBIC).save(
            folder / f"{i:04d}.jpg", quality=90
        )

    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(files)), total=files, desc="photographs"))
    found = json.loads(
        subprocess.run(
            [
                sys.executable,
                "-c",
                IMPORT,
                str(Path(__file__).resolve().parents[2]),
                str(at / "of photographs"),
                str(folder),
            ],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.splitlines()[-1]
    )
    return dict(files=files, added=found["added"], per_s=files / found["s"], peak_gb=found["peak_gb"])


def imported(at: Path, files: int) -> dict:
    "A folder of JPEG files, one in a thousand broken: killed on the way, called again, called once more"
    from PIL import Image

    corpus = load_corpus("pictograms")
    folder = at / "files"
    root = Path(__file__).resolve().parents[2]
    splits = [corpus.visuals(s) for s in ("train", "validation", "test")]
    visuals = [(v, i) for v in splits for i in range(len(v))]

    def write(i):
        v, j = visuals[i % len(visuals)]
        turn = i // len(visuals)
        path = folder / f"{i // 1000:03d}" / f"{i:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(v[j].frames[0]).resize((128 + 8 * turn,) * 2)
        picture.save(path, quality=88 - 4 * turn)
        if i % 1000 == 500:
            path.write_bytes(path.read_bytes()[:200])

    began = time.time()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(at / "imported", ignore_errors=True)
    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(files), chunksize=100), total=files, desc="files"))
    wrote = time.time() - began
    words = [sys.executable, "-c", IMPORT, str(root), str(at / "imported"), str(folder)]
    first = subprocess.Popen(words, stdout=subprocess.PIPE)
    small = at / "imported" / "thumbnails.sqlite"

    def kept():
        with closing(StoredThumbnails(small)) as t:
            return len(t)

    while first.poll() is None and not (small.exists() and kept() > files // 10):
        time.sleep(0.5)
    first.kill()
    first.wait()
    there = len(g := StoredGallery(at / "imported", load_run(shipped_run())))
    g.close()

    def run():
        return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])

    second = run()
    third = run()
    g = StoredGallery(at / "imported", load_run(shipped_run()))
    total = len(g)
    thumbs = len(g.thumbnails)
    size = sum(f.stat().st_size for f in g.folder.rglob("*") if f.is_file()) / 1e9
    g.close()
    return dict(
        files=files,
        broken=sum(i % 1000 == 500 for i in range(files)),
        wrote_s=wrote,
        kept_when_killed=there,
        second=second,
        third=third,
        pictures=total,
        thumbnails=thumbs,
        per_s=second["added"] / second["s"],
        size_gb=size,
        again_over_first=third["s"] / second["s"],
        photographs=photographs(at),
    )


# reranking


def reranked(at: Path) -> dict:
    "Scores that are no cosine, LECCR's slots and SMALR in two languages at once, on the head of the cosine's list against the score of all pictures; among those of the corpus, and among eight times as many, the others with noise"
    corpus = load_corpus("pictograms")
    tower = load_backbone(shipped_run() / "backbone")

    def own(name):
        return load_method(shipped_run() / name, tower).eval()

    methods = dict(slots=own("leccr"), consistency=Consistent(own("smalr"), GlossTranslator()).eval())
    return {
        name: [by_head(at / f"{name} {times}", corpus, method, times) for times in (1, 8)]
        for name, method in methods.items()
    }


@torch.no_grad()
def by_head(at: Path, corpus, method, times: int) -> dict:
    "Lists of one method by heads of several lengths"
    gallery = StoredGallery(at, method)
    seen = []
    names = []
    g = torch.Generator().manual_seed(0)

    def noisy(v):
        return v + NOISE * v.norm(dim=-1, keepdim=True) / v.shape[-1] ** 0.5 * torch.randn(v.shape, generator=g)

    for split in ("test", "validation", "train"):
        found = method.encode_visuals(split_columns(method, corpus, split))
        for t in range(times):
            some = {k: noisy(v) for k, v in found.items()} if t else found
            ids = [f"{t}/{split}/{i}" for i in corpus.visuals(split).ids]
            for part in gallery_slices(len(ids), 4096):
                gallery.put(ids[part], {k: v[part] for k, v in some.items()})
            seen.append({k: v.half() for k, v in some.items()})
            names += ids  # half: as a gallery keeps them
    seen = {k: torch.cat([s[k] for s in seen]) for k in seen[0]}
    gallery.tidy()
    captions = [
        c
        for language in LANGUAGES
        if language in supported_languages(method)
        for c in corpus.captions("test", language, "human")[: 40 if times == 1 else 10]
    ]
    vectors = [method.encode_captions([c.text], c.language) for c in captions]
    wanted = []
    took = []
    rows = []
    for v in tqdm(vectors, desc=f"{method.name}: all {len(names):,} pictures"):
        began = time.perf_counter()
        best = best_of_slices(
            lambda part: method.score(v, {k: x[part].float() for k, x in seen.items()})[0], len(names), K, 4096
        )[0]
        took.append(time.perf_counter() - began)
        wanted.append({names[i] for i in best})
    for head in (0, 20, 50, 100, 200, 500):
        gallery.head = max(head, 1)
        ratio = []
        kept = []
        for v, w, t in zip(vectors, wanted, took):
            began = time.perf_counter()
            ids, _ = gallery.best(
                method.first_features(v), K, score=(lambda x: method.score(v, x)[0]) if head else None
            )
            ratio.append((time.perf_counter() - began) / t)
            kept.append(len({*ids} & w) / K)
        rows.append(dict(head=head, kept=float(np.mean(kept)), time=statistics.median(ratio)))
    gallery.close()
    return dict(pictures=len(names), queries=len(vectors), full_ms=1e3 * statistics.median(took), rows=rows)


PARTS = dict(
    engines=lambda at, a: engines(at, a.n),
    fill=lambda at, a: filled(at, a.n),
    index=lambda at, a: indexed(at),
    search=lambda at, a: searched(at, a.n),
    service=lambda at, a: crowd(at, a.n, a.requests),
    kills=lambda at, a: killed(at),
) | {
    "import": lambda at, a: imported(at, a.files),
    "rerank": lambda at, a: reranked(at),
}

if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []])
    sizes = dict(n=1_000_000, files=100_000, requests=10_000)
    for name, size in sizes.items():
        p.add_argument(f"--{name}", type=int, default=size)
    p.add_argument("--folder", type=Path)
    p.add_argument("--json", type=Path, dest="out")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.inside:
        torch.set_num_threads(2)
        write_json(PARTS[a.parts[0]](a.folder, a), a.folder / "part.json")
        raise SystemExit
    at = a.folder or Path(tempfile.mkdtemp(prefix="gallery-", dir="."))
    at.mkdir(parents=True, exist_ok=True)
    out = a.out or (
        Path("data/results/gallery.json")
        if all(getattr(a, n) == size for n, size in sizes.items())
        else at / "report.json"
    )
    report = json.loads(out.read_text()) if out.exists() else {}

    def git(*words):
        return subprocess.run(
            ["git", *words], capture_output=True, text=True, cwd=Path(__file__).parents[2]
        ).stdout.strip()

    commit = (git("rev-parse", "--short", "HEAD") or "no commit") + (
        ", changed" if git("status", "--porcelain", "--", "dasd_lab", "tools") else ""
    )
    try:
        for part in a.parts or PARTS:
            if part == "fill" and (at / "gallery").exists():
                shutil.rmtree(at / "gallery")
            print("→", part, flush=True)
            began = time.time()
            subprocess.run(
                [
                    sys.executable,
                    __file__,
                    part,
                    "--inside",
                    "--folder",
                    str(at),
                    *(f"--{n}={getattr(a, n)}" for n in sizes),
                ],
                check=True,
                env=os.environ | dict(OMP_NUM_THREADS="2"),
            )
            report |= {part: json.loads((at / "part.json").read_text())} | dict(width=WIDTH, noise=NOISE, k=K)
            report["made"] = report.get("made", {}) | {
                part: dict(n=a.n, commit=commit, on=time.strftime("%Y-%m-%d"), minutes=(time.time() - began) / 60)
            }
            write_json(report, out)
            print(json.dumps(report[part], indent=1)[:1500], flush=True)
    finally:
        if not a.folder:
            shutil.rmtree(at, ignore_errors=True)
