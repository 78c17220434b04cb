"""A gallery of a million images: recall, times, memory, many clients, kills, and an import of 100,000 files

    python tools/bench/gallery.py [parts …] [--n 1000000] [--files 100000] [--folder DIR] [--json FILE]

parts: engines (with USearch and Qdrant Edge after `pip install usearch qdrant-edge-py`) fill index search service
kills import rerank (default: all). The vectors are the features of the built-in corpus, of its images and of its
captions in six languages, rotated into 512 dimensions, with noise of half their length on every image; so each
image has some forty others near it, and captions lie in regions without images, as in every shared space. Recall is
relative to an exact search. Each part runs in a process of its own, whose peak memory is what the system counted.
The folder needs 10 GB and is removed at the end unless it was given. Figures of a million images are stored in
data/results/gallery.json, with commit and day of each part; those of fewer are printed, and stored with --json."""

import argparse
import io
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import gallery_slices, split_columns
from dasd_lab.pictograms.gloss import GlossTranslator
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.gallery.in_memory import best_of_slices, caption_features
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.search.on_disk.thumbnails import StoredThumbnails
from dasd_lab.search.queries import supported_languages
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 512
NOISE = 0.5
K = 10
LANGUAGES = ("de", "fr", "cs", "zh", "ja", "ar")


class Widened(RetrievalMethod):
    "A method whose vectors are rotated into a wider space, with the same cosines"

    name = "widened"

    def __init__(self, inner, width=WIDTH):
        super().__init__()
        self.inner = inner.eval()
        self.languages = inner.languages
        # rows of the cosine transform: orthonormal, and the same on every machine
        rows = 3 * torch.arange(1, inner.embed_dim + 1)
        angles = torch.pi / width * torch.outer(rows, torch.arange(width) + 0.5)
        self.register_buffer("turn", torch.cos(angles).float() * (2 / width) ** 0.5)

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


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def quantiles(ms: list[float]) -> dict:
    return {f"p{q}_ms": float(np.percentile(ms, q)) for q in (50, 95, 99)}


def peak_gb(process: str | int = "self") -> float:
    "Peak memory of a process since its start; getrusage would count its parent"
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1e6


def size_gb(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e9


def id_of(i: int) -> str:
    return f"p/{i % 1000:03d}/{i:07d}.jpg"


def number_of(id: str) -> int:
    "The row of an id; -1 for images of other parts"
    return int(id[6:13]) if id.startswith("p/") else -1


def open_gallery(folder: Path, **options) -> StoredGallery:
    return StoredGallery(folder / "gallery", Widened(load_run(shipped_run())), **options)


def start_child(name: str, *args, **options) -> subprocess.Popen:
    "One of CHILDREN in a process of its own"
    return subprocess.Popen([sys.executable, __file__, "--child", name, *map(str, args)], **options)


# vectors


class Vectors:
    "Vectors of images as a memory map, queries, and their nearest neighbours"

    def __init__(self, folder: Path, n: int, queries: int = 500):
        self.folder = folder
        self.n = n
        if not self._is_complete():
            folder.mkdir(parents=True, exist_ok=True)
            self._make(queries)
        self.rows = np.load(folder / "vectors.npy", mmap_mode="r")
        stored = np.load(folder / "queries.npz")
        self.queries = stored["asked"]  # captions, then as many images
        self.nearest = stored["nearest"]  # rows of the K nearest vectors

    def _is_complete(self) -> bool:
        if not (self.folder / "queries.npz").exists():
            return False
        return len(np.load(self.folder / "vectors.npy", mmap_mode="r")) == self.n

    def _make(self, queries: int) -> None:
        rng = np.random.default_rng(0)
        images, captions = corpus_features()

        def noisy(x):
            return unit(x + NOISE / np.sqrt(WIDTH) * rng.standard_normal(x.shape, np.float32))

        path = self.folder / "vectors.npy"
        rows = np.lib.format.open_memmap(path, "w+", dtype=np.float16, shape=(self.n, WIDTH))
        for start in tqdm(range(0, self.n, 20_000), desc="vectors"):
            stop = min(self.n, start + 20_000)
            rows[start:stop] = noisy(images[rng.integers(0, len(images), stop - start)])
        asked_captions = captions[rng.permutation(len(captions))[:queries]]
        asked_images = noisy(images[rng.integers(0, len(images), queries)])
        asked = np.concatenate([asked_captions, asked_images]).astype(np.float32)
        np.savez(self.folder / "queries.npz", asked=asked, nearest=exact_nearest(rows, asked))

    def chunks(self, size: int) -> Iterator[tuple[int, np.ndarray]]:
        "First row and vectors (float32) of each part"
        for start in range(0, self.n, size):
            yield start, self.rows[start : start + size].astype(np.float32)


def corpus_features() -> tuple[np.ndarray, np.ndarray]:  # images, captions
    "Unit vectors of the built-in corpus"
    corpus = load_corpus("pictograms")
    method = Widened(load_run(shipped_run()))
    captions = [c for language in LANGUAGES for c in corpus.captions("test", language, "human")[:400]]
    with torch.no_grad():
        images = []
        for split in ("train", "validation", "test"):
            images.append(method.encode_visuals(split_columns(method.inner, corpus, split))["features"])
        return unit(torch.cat(images).numpy()), unit(caption_features(method, captions).numpy())


def exact_nearest(rows: np.ndarray, queries: np.ndarray) -> np.ndarray:  # [Q, K]
    "The nearest rows by all cosines"
    best = np.full((len(queries), K), -9.0, np.float32)
    places = np.zeros((len(queries), K), int)
    for start in tqdm(range(0, len(rows), 50_000), desc="exact search"):
        part = unit(rows[start : start + 50_000].astype(np.float32))
        numbers = np.broadcast_to(np.arange(start, start + len(part)), (len(queries), len(part)))
        cosines = np.concatenate([best, queries @ part.T], 1)
        candidates = np.concatenate([places, numbers], 1)
        top = np.argpartition(-cosines, K, 1)[:, :K]
        best = np.take_along_axis(cosines, top, 1)
        places = np.take_along_axis(candidates, top, 1)
    return places


def timed_recall(search: Callable, vectors: Vectors, n: int = 400) -> dict:
    "Recall and time of a search, captions and images in turn, after a warm-up with all queries"
    half = len(vectors.queries) // 2
    order = [i for pair in zip(range(half), range(half, 2 * half)) for i in pair]
    for i in order:
        search(vectors.queries[i])
    ms = []
    recalls = dict(captions=[], pictures=[])
    for i in order[:n]:
        began = time.perf_counter()
        results = search(vectors.queries[i])
        ms.append(1e3 * (time.perf_counter() - began))
        kind = "captions" if i < half else "pictures"
        recalls[kind].append(len(set(results) & set(vectors.nearest[i].tolist())) / K)
    return {f"recall_{kind}": float(np.mean(r)) for kind, r in recalls.items()} | quantiles(ms)


# engines


class EngineReport:
    "Rows of the comparison of engines"

    def __init__(self, vectors: Vectors):
        self.vectors = vectors
        self.rows = []

    def add(self, engine: str, build_s: float, search: Callable, keeps: str) -> None:
        row = dict(engine=engine, build_s=build_s, **timed_recall(search, self.vectors), keeps=keeps)
        self.rows.append(row)
        print(row, flush=True)

    def refined(self, candidates: np.ndarray, query: np.ndarray) -> list[int]:
        "The best candidates by their 16-bit vectors"
        candidates = np.sort(candidates)
        cosines = self.vectors.rows[candidates].astype(np.float32) @ query
        return candidates[np.argsort(-cosines)[:K]].tolist()


def compare_engines(folder: Path, n: int) -> list[dict]:
    "Indexes over the same vectors, used directly"
    report = EngineReport(Vectors(folder, n))
    measure_faiss(report)
    try:
        measure_usearch(report)
    except ImportError:
        print("usearch is not installed: left out")
    try:
        measure_qdrant(report, folder)
    except ImportError:
        print("qdrant-edge-py is not installed: left out")
    measure_lance(report, folder)
    return report.rows


def measure_faiss(report: EngineReport) -> None:
    import faiss

    vectors = report.vectors
    lists = round(vectors.n**0.5)
    faiss.omp_set_num_threads(2)
    began = time.time()
    index = faiss.index_factory(WIDTH, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = 20
    index.cp.max_points_per_centroid = 64
    sample = np.random.default_rng(0).permutation(vectors.n)[: 64 * lists]
    index.train(vectors.rows[np.sort(sample)].astype(np.float32))
    for _, part in vectors.chunks(20_000):
        index.add(part)
    build = time.time() - began
    index.nprobe = 20

    def search(query):
        _, candidates = index.search(query[None], 4 * K)
        return report.refined(candidates[0], query)

    report.add("FAISS IVF, 8 bits, refined", build, search, "vectors")


def measure_usearch(report: EngineReport) -> None:
    from usearch.index import Index

    index = Index(ndim=WIDTH, metric="cos", dtype="i8", connectivity=16, expansion_add=100, expansion_search=256)
    began = time.time()
    for start, part in tqdm(report.vectors.chunks(20_000), desc="usearch", total=report.vectors.n // 20_000):
        index.add(np.arange(start, start + len(part)), part, threads=2)
    build = time.time() - began

    def search(query):
        return report.refined(index.search(query, 4 * K).keys.astype(int), query)

    for candidates in (256, 1024):
        index.expansion_search = candidates
        report.add(f"USearch HNSW, 8 bits, refined, {candidates} candidates", build, search, "vectors")


def measure_qdrant(report: EngineReport, folder: Path) -> None:
    import qdrant_edge as qdrant

    shard_folder = folder / "qdrant"
    shard_folder.mkdir()
    began = time.time()
    vector = qdrant.EdgeVectorParams(
        size=WIDTH,
        distance=qdrant.Distance.Cosine,
        on_disk=True,
        datatype=qdrant.VectorStorageDatatype.Float16,
        quantization_config=qdrant.ScalarQuantizationConfig(type=qdrant.ScalarType.Int8, always_ram=True),
        hnsw_config=qdrant.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
    )
    shard = qdrant.EdgeShard.create(str(shard_folder), qdrant.EdgeConfig(vectors={"v": vector}))
    for start, part in tqdm(report.vectors.chunks(1000), desc="qdrant edge", total=report.vectors.n // 1000):
        points = [qdrant.Point(start + i, {"v": x.tolist()}) for i, x in enumerate(part)]
        shard.update(qdrant.UpdateOperation.upsert_points(points))
    shard.optimize()
    build = time.time() - began
    quantization = qdrant.QuantizationSearchParams(rescore=True, oversampling=2.0)

    def search(candidates, query):
        request = qdrant.QueryRequest(
            limit=K,
            query=qdrant.Query.Nearest(query.tolist(), using="v"),
            params=qdrant.SearchParams(hnsw_ef=candidates, quantization=quantization),
        )
        return [point.id for point in shard.query(request)]

    for candidates in (256, 1024):
        name = f"Qdrant Edge HNSW, 8 bits, rescored, {candidates} candidates"
        report.add(name, build, partial(search, candidates), "vectors, facts, filters")
    shard.close()
    shutil.rmtree(shard_folder)


def lance_table(vectors: Vectors, folder: Path):
    "A Lance table of the vectors"
    import lance
    import pyarrow as pa

    schema = pa.schema([("row", pa.int64()), ("v", pa.list_(pa.float16(), WIDTH))])

    def batches():
        for start, part in vectors.chunks(20_000):
            numbers = pa.array(np.arange(start, start + len(part)))
            halves = pa.array(part.astype(np.float16).ravel())
            yield pa.record_batch([numbers, pa.FixedSizeListArray.from_arrays(halves, WIDTH)], schema=schema)

    return lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), folder)


def measure_lance(report: EngineReport, folder: Path) -> None:
    n = report.vectors.n
    lists = round(n**0.5)
    table = lance_table(report.vectors, folder / "lance")
    options = dict(metric="cosine", max_iters=20, sample_rate=64, replace=True)
    whole = dict(num_partitions=lists, target_partition_size=lists)
    bits = dict(num_partitions=lists, num_bits=1)
    graph = dict(num_partitions=max(1, n // 200_000), m=16, ef_construction=100)

    def search(refine, candidates, query):
        nearest = dict(column="v", q=query, k=K, metric="cosine", nprobes=20, refine_factor=refine, ef=candidates)
        return table.to_table(columns=["row", "_distance"], nearest=nearest)["row"].to_pylist()

    for name, kind, config, refine, candidates in (
        ("Lance IVF, 8 bits, refined", "IVF_SQ", whole, 2, None),
        ("Lance IVF, 1 bit (RaBitQ), refined", "IVF_RQ", bits, 40, None),
        ("Lance IVF and HNSW, 8 bits, refined", "IVF_HNSW_SQ", graph, 2, 256),
    ):
        began = time.time()
        table.create_index("v", kind, **options, **config)
        build = time.time() - began
        report.add(name, build, partial(search, refine, candidates), "vectors, facts, filters")
    shutil.rmtree(folder / "lance")


# a gallery


def fill(folder: Path, n: int) -> dict:
    "A stored gallery of n images"
    vectors = Vectors(folder, n)
    gallery = open_gallery(folder, columns=dict(year="integer", album="text"))
    began = time.time()
    for start, part in tqdm(vectors.chunks(10_000), desc="images", total=n // 10_000):
        rows = range(start, start + len(part))
        facts = dict(
            year=[2000 + i % 25 for i in rows],
            album=[f"album {i % 1000}" for i in rows],
            width=[640] * len(part),
            height=[480] * len(part),
        )
        gallery.put([id_of(i) for i in rows], dict(features=torch.from_numpy(part)), facts)
    return dict(put_s=time.time() - began)


def make_index(folder: Path) -> dict:
    "Time and memory of indexing"
    gallery = open_gallery(folder)
    before = peak_gb()
    began = time.time()
    gallery.tidy()
    return dict(
        before_gb=before,
        index_s=time.time() - began,
        peak_gb=peak_gb(),
        size_gb=size_gb(folder / "gallery"),
        indexed=gallery.engine.indexed(gallery.vector_column),
    )


def drop_caches(folder: Path) -> None:
    "Remove the files of a folder from the system's memory"
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def lance_alone(gallery: StoredGallery) -> Callable:
    "A search in the index of a gallery without dasd_lab"
    engine = gallery.engine
    options = dict(k=K, metric="cosine", nprobes=engine.probes, refine_factor=engine.refine)

    def search(query):
        nearest = dict(column=gallery.vector_column, q=query) | options
        rows = engine.table.to_table(columns=["id", "_distance"], nearest=nearest)
        return [number_of(id) for id in rows["id"].to_pylist()]

    return search


def measure_search(folder: Path, n: int) -> dict:
    "A cold start, searches by vector and text, filters and later pages, and the index alone in alternation"
    vectors = Vectors(folder, n)
    method = Widened(load_run(shipped_run()))
    drop_caches(folder / "gallery")
    began = time.perf_counter()
    gallery = StoredGallery(folder / "gallery", method)
    open_s = time.perf_counter() - began
    gallery.best(torch.from_numpy(vectors.queries[:1]), K)
    first_s = time.perf_counter() - began

    def search(query):
        return [number_of(id) for id in gallery.best(torch.from_numpy(query[None]), K)[0]]

    alone = lance_alone(gallery)
    return dict(
        open_s=open_s,
        open_and_search_s=first_s,
        gallery=timed_recall(search, vectors),
        bare=timed_recall(alone, vectors),
        **compared(search, alone, vectors),
        searches=searches_by_text(gallery),
        peak_gb=peak_gb(),
        deep=deep_searches(gallery, vectors),
    )


def seconds(call: Callable, *args) -> float:
    began = time.perf_counter()
    call(*args)
    return time.perf_counter() - began


def compared(search: Callable, alone: Callable, vectors: Vectors) -> dict:
    "Times of two searches in alternation, so other work on the machine affects both"
    times = []
    alone_times = []
    for i in range(300):
        query = vectors.queries[(7 * i) % len(vectors.queries)]
        if i % 2:
            times.append(seconds(search, query))
            alone_times.append(seconds(alone, query))
        else:
            alone_times.append(seconds(alone, query))
            times.append(seconds(search, query))
    return dict(
        ratio=statistics.median(a / b for a, b in zip(times, alone_times)),
        ratio_of_medians=statistics.median(times) / statistics.median(alone_times),
    )


def searches_by_text(gallery: StoredGallery) -> dict[str, dict]:
    "Times of whole searches by text, with filters and of a later page"
    corpus = load_corpus("pictograms")
    ms = {"text": [], "text, one year of 25": [], "text, one album of 1,000": [], "third page": []}
    for language in LANGUAGES:
        for i, caption in enumerate(corpus.captions("test", language, "human")[:40]):
            options = {
                "text": {},
                "text, one year of 25": dict(where=dict(year=2000 + i % 25)),
                "text, one album of 1,000": dict(where=dict(album=f"album {i}")),
                "third page": dict(skip=48, k=24),
            }
            for name, more in options.items():
                began = time.perf_counter()
                hits = gallery.search(caption.text, language, **dict(k=K) | more)
                ms[name].append(1e3 * (time.perf_counter() - began))
                assert len(hits) == more.get("k", K)
    return {name: quantiles(times[20:]) for name, times in ms.items()}


def deep_searches(gallery: StoredGallery, vectors: Vectors, queries: int = 40) -> list[dict]:
    "Recall and time of later pages and filters, with as many captions as images"
    half = len(vectors.queries) // 2
    asked = np.concatenate([vectors.queries[: half : half // queries], vectors.queries[half :: half // queries]])
    parts = tqdm(vectors.chunks(50_000), desc="exact search", total=vectors.n // 50_000)
    cosines = np.concatenate([asked @ unit(part).T for _, part in parts], 1)
    n = np.arange(vectors.n)
    albums = [7, 8, 9]
    everything = np.ones(vectors.n, bool)
    rows = []
    for name, where, matches, k, skip in (
        ("the best 100", None, everything, 100, 0),
        ("places 91 to 100", None, everything, 10, 90),
        ("places 991 to 1,000", None, everything, 10, 990),
        ("13 years of 25", dict(year={"to": 2012}), n % 25 <= 12, 10, 0),
        ("one year of 25", dict(year=2003), n % 25 == 3, 10, 0),
        ("one album of 1,000", dict(album="album 7"), n % 1000 == 7, 10, 0),
        ("three albums of 1,000", dict(album=[f"album {i}" for i in albums]), np.isin(n % 1000, albums), 10, 0),
    ):
        ms = []
        recalls = []
        for query, similarity in zip(asked, cosines):
            order = np.argpartition(-np.where(matches, similarity, -9), k + skip)[: k + skip]
            best = order[np.argsort(-similarity[order])][skip:]
            began = time.perf_counter()
            ids = gallery.best(torch.from_numpy(query[None]), k, skip, where)[0]
            ms.append(1e3 * (time.perf_counter() - began))
            recalls.append(len(set(map(number_of, ids)) & set(best.tolist())) / k)
        captions, pictures = np.mean(np.reshape(recalls, (2, -1)), 1)
        row = dict(asked=name, recall_captions=float(captions), recall_pictures=float(pictures))
        rows.append(row | quantiles(ms))
    return rows


# many clients


def serve(folder: str, port: str) -> None:
    "Child: the service of the gallery"
    import warnings

    import uvicorn

    from dasd_lab.serve.limits import ServiceSettings
    from dasd_lab.serve.server import Config
    from dasd_lab.serve.service import gallery_app

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings = ServiceSettings(
        may_write=True, requests_per_minute=10**7, uploads_per_minute=10**7, timeout_s=60, at_once=4
    )
    app = gallery_app(open_gallery(Path(folder)), settings)
    uvicorn.Server(Config(app, port=int(port))).run()


class Client:
    "A client with random requests; it changes and removes only its own images"

    WEIGHTS = dict(text=50, filter=10, like=12, upload=6, add=12, change=6, remove=4)

    def __init__(self, number: int, url: str, n: int, captions: list[tuple[str, str]]):
        import httpx

        self.rng = random.Random(number)
        self.n = n
        self.captions = captions
        self.http = httpx.Client(base_url=url, timeout=90)
        self.years = {}  # id → year of its images
        self.removed = set()
        self.rows = []  # (kind, milliseconds, status)

    def run(self, requests: int, progress) -> None:
        for _ in range(requests):
            (kind,) = self.rng.choices(list(self.WEIGHTS), self.WEIGHTS.values())
            if kind in ("change", "remove") and not self.years:
                kind = "add"
            began = time.perf_counter()
            answer = getattr(self, kind)()
            self.rows.append((kind, 1e3 * (time.perf_counter() - began), answer.status_code))
            progress.update()
        self.http.close()

    def search(self, **params):
        return self.http.get("/api/search", params=params)

    def text(self, **params):
        language, text = self.rng.choice(self.captions)
        return self.search(text=text, language=language, k=10, **params)

    def filter(self):
        return self.text(where=json.dumps(dict(year=self.rng.randrange(2000, 2025))))

    def like(self):
        return self.search(like=id_of(self.rng.randrange(self.n)), k=10)

    def image(self) -> dict:
        from PIL import Image

        pixels = np.random.default_rng(self.rng.randrange(2**32)).integers(0, 256, (24, 24, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return dict(picture=("x.png", file.getvalue(), "image/png"))

    def upload(self):
        return self.http.post("/api/search", files=self.image(), params=dict(k=10))

    def add(self):
        answer = self.http.post("/api/pictures", files=self.image(), data=dict(facts='{"year": 1999}'))
        if answer.status_code == 201:
            self.years[answer.json()["id"]] = 1999
        return answer

    def change(self):
        id = self.rng.choice(list(self.years))
        year = self.rng.randrange(1900, 1999)
        answer = self.http.patch("/api/picture", params=dict(id=id), json=dict(facts=dict(year=year)))
        if answer.status_code == 200:
            self.years[id] = year
        return answer

    def remove(self):
        id = self.rng.choice(list(self.years))
        answer = self.http.delete("/api/picture", params=dict(id=id))
        if answer.status_code == 200:
            del self.years[id]
            self.removed.add(id)
        return answer


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def count_images(url: str) -> int:
    import httpx

    return httpx.get(f"{url}/api/gallery", timeout=90).json()["pictures"]


def wait_for(url: str) -> None:
    import httpx

    for _ in range(300):
        try:
            count_images(url)
            return
        except httpx.HTTPError:
            time.sleep(0.5)


def lost_and_restored(url: str, clients: list[Client]) -> tuple[int, int]:
    "Images without their last fact, and removed ones that are still there"
    import httpx

    lost = 0
    restored = 0
    with httpx.Client(base_url=url, timeout=90) as http:
        for client in clients:
            for id, year in client.years.items():
                answer = http.get("/api/picture", params=dict(id=id))
                lost += answer.status_code != 200 or answer.json()["facts"]["year"] != year
            for id in client.removed:
                restored += http.get("/api/picture", params=dict(id=id)).status_code != 404
    return lost, restored


def measure_service(folder: Path, n: int, requests: int = 10_000, n_clients: int = 32) -> dict:
    "Random requests of many clients over HTTP: searches, filters, uploads, and changes"
    port = free_port()
    server = start_child("serve", folder, port)
    url = f"http://127.0.0.1:{port}"
    corpus = load_corpus("pictograms")
    captions = [(c.language, c.text) for lang in LANGUAGES for c in corpus.captions("test", lang, "human")[:200]]
    try:
        wait_for(url)
        before = count_images(url)
        clients = [Client(i, url, n, captions) for i in range(n_clients)]
        shares = [requests // n_clients + (i < requests % n_clients) for i in range(n_clients)]
        progress = tqdm(total=requests, desc="requests")
        began = time.time()
        with ThreadPoolExecutor(n_clients) as pool:
            list(pool.map(Client.run, clients, shares, [progress] * n_clients))
        took = time.time() - began
        lost, restored = lost_and_restored(url, clients)
        added = sum(len(c.years) for c in clients)
        counted = count_images(url) - before == added
        service = dict(server_peak_gb=peak_gb(server.pid), lost=lost, came_back=restored, counted=counted)
    finally:
        server.terminate()
        server.wait(30)
    rows = [row for client in clients for row in client.rows]
    return dict(clients=n_clients, took_s=took, per_s=len(rows) / took) | request_statistics(rows) | service


def request_statistics(rows: list[tuple[str, float, int]]) -> dict:
    "Counts and times of requests (kind, milliseconds, status)"
    errors = [status for _, _, status in rows if status >= 400]
    kinds = {}
    for kind in sorted({kind for kind, _, _ in rows}):
        ms = [t for k, t, _ in rows if k == kind]
        kinds[kind] = dict(n=len(ms), **quantiles(ms))
    return dict(
        requests=len(rows),
        errors=len(errors),
        statuses=sorted(set(errors)),
        writes=sum(kind in ("add", "change", "remove") for kind, _, _ in rows),
        kinds=kinds,
    )


# kills


def batch_sizes(start: int) -> Iterator[int]:
    rng = random.Random(start)
    while True:
        yield rng.choice((1, 16, 256))


def add_until_killed(folder: str, start: str) -> None:
    "Child: adds batches and prints each one that is stored"
    gallery = open_gallery(Path(folder))
    for step, n in enumerate(batch_sizes(int(start))):
        ids = [f"kill/{start}-{step}-{i}" for i in range(n)]
        features = torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(step))
        gallery.put(ids, dict(features=features), dict(year=[step] * n), dict.fromkeys(ids, b"webp"))
        print(step, n, flush=True)
        if step % 40 == 39:
            gallery.tidy()


def killed_child(folder: Path, start: int, after_s: float) -> dict[int, int]:  # batch → images
    "Batches that a child acknowledged before it was killed"
    child = start_child("add", folder, start, stdout=subprocess.PIPE, text=True)
    lines = [child.stdout.readline()]  # it has started
    timer = threading.Timer(after_s, child.kill)
    timer.start()
    lines += child.stdout.read().splitlines()
    child.wait()
    timer.cancel()
    batches = [line.split() for line in lines]
    return {int(batch[0]): int(batch[1]) for batch in batches if len(batch) == 2}


def complete_images(folder: Path, ids: list[str]) -> Counter:  # batch → images
    "Images that are stored with their fact, vector and thumbnail"
    gallery = open_gallery(folder)
    rows = gallery.engine.read(ids, ["year", gallery.vector_column])
    counts = Counter()
    for id, year, vector in zip(rows["id"], rows["year"], rows[gallery.vector_column]):
        step = int(id.split("-")[1])
        complete = year == step and np.isfinite(vector).all() and gallery.thumbnails.get(id) == b"webp"
        counts[step] += int(complete)
    gallery.close()
    return counts


def measure_kills(folder: Path, times: int = 20) -> dict:
    "Processes that are killed while they add: acknowledged images that are lost, and incomplete batches"
    rng = random.Random(0)
    acknowledged = 0
    lost = 0
    torn = 0
    for start in tqdm(range(times), desc="kills"):
        batches = killed_child(folder, start, rng.uniform(0.05, 4))
        sizes = [n for n, _ in zip(batch_sizes(start), range(max(batches) + 3))]
        ids = [f"kill/{start}-{step}-{i}" for step, n in enumerate(sizes) for i in range(n)]
        stored = complete_images(folder, ids)
        acknowledged += sum(batches.values())
        lost += sum(n - stored[step] for step, n in batches.items())
        torn += sum(0 < stored[step] < n for step, n in enumerate(sizes))
    return dict(kills=times, acknowledged=acknowledged, lost=lost, torn=torn)


# an import


def run_import(gallery: str, folder: str) -> None:
    "Child: an import that prints its report as JSON"
    from dasd_lab.search.on_disk.importing import import_folder

    torch.set_num_threads(2)
    began = time.time()
    opened = StoredGallery(gallery, load_run(shipped_run()))
    report = import_folder(opened, folder, batch_size=256, progress=partial(tqdm, desc="import", mininterval=5))
    counts = dict(added=report.added, changed=report.changed, unchanged=report.unchanged, failed=len(report.failed))
    print(json.dumps(counts | dict(s=time.time() - began, peak_gb=peak_gb())))


def imported(gallery: Path, folder: Path) -> dict:
    "The report of an import in a process of its own"
    child = start_child("import", gallery, folder, stdout=subprocess.PIPE, text=True)
    out, _ = child.communicate()
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, child.args)
    return json.loads(out.splitlines()[-1])


def write_files(write: Callable[[int], None], n: int, label: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(n), chunksize=100), total=n, desc=label))


def measure_photographs(folder: Path, files: int = 300) -> dict:
    "Speed and memory of an import of images with twelve megapixels"
    from PIL import Image

    photographs = folder / "photographs"
    visuals = load_corpus("pictograms").visuals("train")
    photographs.mkdir()

    def write(i):
        picture = Image.fromarray(visuals[i].frames[0]).resize((4032, 3024), Image.Resampling.BICUBIC)
        picture.save(photographs / f"{i:04d}.jpg", quality=90)

    write_files(write, files, "photographs")
    report = imported(folder / "of photographs", photographs)
    return dict(files=files, added=report["added"], per_s=files / report["s"], peak_gb=report["peak_gb"])


def write_jpegs(folder: Path, files: int) -> None:
    "Images of the corpus in several sizes, one in a thousand truncated"
    from PIL import Image

    corpus = load_corpus("pictograms")
    splits = [corpus.visuals(s) for s in ("train", "validation", "test")]
    visuals = [(split, i) for split in splits for i in range(len(split))]

    def write(i):
        split, j = visuals[i % len(visuals)]
        repetition = i // len(visuals)
        side = 128 + 8 * repetition
        path = folder / f"{i // 1000:03d}" / f"{i:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(split[j].frames[0]).resize((side, side)).save(path, quality=88 - 4 * repetition)
        if i % 1000 == 500:
            path.write_bytes(path.read_bytes()[:200])

    write_files(write, files, "files")


def kill_import(gallery: Path, folder: Path, after: int) -> int:
    "Start an import, kill it after some images; the number of images that it stored"
    child = start_child("import", gallery, folder, stdout=subprocess.PIPE)
    thumbnails = gallery / "thumbnails.sqlite"

    def stored():
        if not thumbnails.exists():
            return 0
        with closing(StoredThumbnails(thumbnails)) as opened:
            return len(opened)

    while child.poll() is None and stored() <= after:
        time.sleep(0.5)
    child.kill()
    child.wait()
    with closing(StoredGallery(gallery, load_run(shipped_run()))) as opened:
        return len(opened)


def measure_import(folder: Path, files: int) -> dict:
    "A folder of JPEG files: an import that is killed, the same again, and once more without new files"
    jpegs = folder / "files"
    gallery = folder / "imported"
    shutil.rmtree(jpegs, ignore_errors=True)
    shutil.rmtree(gallery, ignore_errors=True)
    began = time.time()
    write_jpegs(jpegs, files)
    wrote = time.time() - began
    stored_when_killed = kill_import(gallery, jpegs, files // 10)
    second = imported(gallery, jpegs)
    third = imported(gallery, jpegs)
    with closing(StoredGallery(gallery, load_run(shipped_run()))) as opened:
        n_images = len(opened)
        n_thumbnails = len(opened.thumbnails)
        size = size_gb(gallery)
    return dict(
        files=files,
        broken=len(range(500, files, 1000)),
        wrote_s=wrote,
        kept_when_killed=stored_when_killed,
        second=second,
        third=third,
        pictures=n_images,
        thumbnails=n_thumbnails,
        per_s=second["added"] / second["s"],
        size_gb=size,
        again_over_first=third["s"] / second["s"],
        photographs=measure_photographs(folder),
    )


# reranking


def measure_reranking(folder: Path) -> dict:
    "LECCR's slots and SMALR in two languages on the head of the list, compared with the score of all images"
    corpus = load_corpus("pictograms")
    tower = load_backbone(shipped_run() / "backbone")
    leccr, smalr = (load_method(shipped_run() / name, tower).eval() for name in ("leccr", "smalr"))
    methods = dict(slots=leccr, consistency=Consistent(smalr, GlossTranslator()).eval())
    report = {}
    for name, method in methods.items():
        # the images of the corpus, and eight times as many, the others with noise
        report[name] = [Reranking(folder / f"{name} {times}", corpus, method, times).report() for times in (1, 8)]
    return report


class Reranking:
    "A gallery of one method, and the same images in memory for the score of all"

    HEADS = (0, 20, 50, 100, 200, 500)

    @torch.no_grad()
    def __init__(self, folder: Path, corpus, method, times: int):
        self.method = method
        self.gallery = StoredGallery(folder, method)
        self.ids = []
        self.generator = torch.Generator().manual_seed(0)
        parts = []
        for split in ("test", "validation", "train"):
            encoded = method.encode_visuals(split_columns(method, corpus, split))
            for repetition in range(times):
                visuals = {k: self.noisy(v) for k, v in encoded.items()} if repetition else encoded
                ids = [f"{repetition}/{split}/{i}" for i in corpus.visuals(split).ids]
                for part in gallery_slices(len(ids), 4096):
                    self.gallery.put(ids[part], {k: v[part] for k, v in visuals.items()})
                self.ids += ids
                parts.append({k: v.half() for k, v in visuals.items()})  # as the gallery stores them
        self.visuals = {k: torch.cat([part[k] for part in parts]) for k in parts[0]}
        self.gallery.tidy()
        self.queries = self.encoded_captions(corpus, 40 if times == 1 else 10)

    def noisy(self, v):
        length = v.norm(dim=-1, keepdim=True) / v.shape[-1] ** 0.5
        return v + NOISE * length * torch.randn(v.shape, generator=self.generator)

    def encoded_captions(self, corpus, per_language: int) -> list:
        captions = []
        for language in LANGUAGES:
            if language in supported_languages(self.method):
                captions += corpus.captions("test", language, "human")[:per_language]
        return [self.method.encode_captions([c.text], c.language) for c in captions]

    @torch.no_grad()
    def report(self) -> dict:
        best = []
        full_s = []
        for query in tqdm(self.queries, desc=f"{self.method.name}: all {len(self.ids):,} images"):
            began = time.perf_counter()
            best.append(self.best_of_all(query))
            full_s.append(time.perf_counter() - began)
        rows = [self.with_head(head, best, full_s) for head in self.HEADS]
        self.gallery.close()
        return dict(
            pictures=len(self.ids), queries=len(self.queries), full_ms=1e3 * statistics.median(full_s), rows=rows
        )

    def best_of_all(self, query) -> set[str]:
        def score(part):
            return self.method.score(query, {k: v[part].float() for k, v in self.visuals.items()})[0]

        return {self.ids[i] for i in best_of_slices(score, len(self.ids), K, 4096)[0]}

    def with_head(self, head: int, best: list[set[str]], full_s: list[float]) -> dict:
        "Share of the best images, and time relative to the score of all"
        self.gallery.head = max(head, 1)
        kept = []
        times = []
        for query, expected, full in zip(self.queries, best, full_s):
            score = partial(self.score, query) if head else None
            began = time.perf_counter()
            ids, _ = self.gallery.best(self.method.first_features(query), K, score=score)
            times.append((time.perf_counter() - began) / full)
            kept.append(len(set(ids) & expected) / K)
        return dict(head=head, kept=float(np.mean(kept)), time=statistics.median(times))

    def score(self, query, visuals):
        return self.method.score(query, visuals)[0]


# the command

PARTS = {
    "engines": lambda folder, a: compare_engines(folder, a.n),
    "fill": lambda folder, a: fill(folder, a.n),
    "index": lambda folder, a: make_index(folder),
    "search": lambda folder, a: measure_search(folder, a.n),
    "service": lambda folder, a: measure_service(folder, a.n, a.requests),
    "kills": lambda folder, a: measure_kills(folder),
    "import": lambda folder, a: measure_import(folder, a.files),
    "rerank": lambda folder, a: measure_reranking(folder),
}
CHILDREN = {"serve": serve, "add": add_until_killed, "import": run_import}
SIZES = dict(n=1_000_000, files=100_000, requests=10_000)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []])
    for name, size in SIZES.items():
        p.add_argument(f"--{name}", type=int, default=size)
    p.add_argument("--folder", type=Path)
    p.add_argument("--json", type=Path, dest="out")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # one part, in this process
    return p.parse_args()


def git(*words) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False).stdout.strip()


def current_commit() -> str:
    commit = git("rev-parse", "--short", "HEAD") or "no commit"
    return f"{commit}, changed" if git("status", "--porcelain", "--", "dasd_lab", "tools") else commit


def run_part(part: str, folder: Path, a: argparse.Namespace) -> dict:
    "One part in a process of its own"
    if part == "fill":
        shutil.rmtree(folder / "gallery", ignore_errors=True)
    sizes = [f"--{name}={getattr(a, name)}" for name in SIZES]
    command = [sys.executable, __file__, part, "--inside", "--folder", str(folder), *sizes]
    subprocess.run(command, check=True, env=os.environ | dict(OMP_NUM_THREADS="2"))
    return json.loads((folder / "part.json").read_text())


def run_parts(a: argparse.Namespace, folder: Path) -> None:
    standard = all(getattr(a, name) == size for name, size in SIZES.items())
    out = a.out or (ROOT / "data/results/gallery.json" if standard else folder / "report.json")
    report = json.loads(out.read_text()) if out.exists() else {}
    report |= dict(width=WIDTH, noise=NOISE, k=K)
    commit = current_commit()
    for part in a.parts or PARTS:
        print("→", part, flush=True)
        began = time.time()
        report[part] = run_part(part, folder, a)
        minutes = (time.time() - began) / 60
        made = dict(n=a.n, commit=commit, on=time.strftime("%Y-%m-%d"), minutes=minutes)
        report["made"] = report.get("made", {}) | {part: made}
        write_json(report, out)
        print(json.dumps(report[part], indent=1)[:1500], flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        CHILDREN[sys.argv[2]](*sys.argv[3:])
        return
    a = parse()
    if a.inside:
        torch.set_num_threads(2)
        write_json(PARTS[a.parts[0]](a.folder, a), a.folder / "part.json")
        return
    folder = a.folder or Path(tempfile.mkdtemp(prefix="gallery-", dir="."))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run_parts(a, folder)
    finally:
        if not a.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
