"""A gallery of a million images: recall, times, memory, many clients, and an import of 100,000 files

    python tools/bench/gallery.py [--n 1000000] [--files 100000] [--requests 10000] [--folder DIR] [--json FILE]

The vectors are the features of the built-in corpus, of its images and of its captions in six languages, rotated into
512 dimensions, with noise of half their length on every image; so each image has some forty others near it, and
captions lie in regions without images, as in every shared space. Recall is relative to an exact search. The folder
needs 10 GB and is removed at the end. Results are added to a file that is there: data/results/gallery.json also has
what was measured once, such as the engines that were compared, killed processes and reranking."""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from measuring import arguments, keep, seconds
from PIL import Image
from tqdm.auto import tqdm

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.presets import read_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.runs.loading import load_run
from dasd_lab.search.gallery.in_memory import caption_features
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.stored import StoredGallery

WIDTH = 512
NOISE = 0.5
K = 10
LANGUAGES = ("de", "fr", "cs", "zh", "ja", "ar")
CLOCK = time.perf_counter


class Widened(RetrievalMethod):
    "A method whose vectors are rotated into a wider space, with the same cosines"

    name = "widened"

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.eval()
        self.languages = inner.languages
        self.backbone = inner.backbone
        # rows of the cosine transform: orthonormal, and the same on every machine
        rows = 3 * torch.arange(1, inner.embed_dim + 1)
        angles = torch.pi / WIDTH * torch.outer(rows, torch.arange(WIDTH) + 0.5)
        self.register_buffer("turn", torch.cos(angles).float() * (2 / WIDTH) ** 0.5)

    @property
    def embed_dim(self):
        return WIDTH

    def encode_captions(self, captions, language):
        return self.inner.encode_captions(captions, language) @ self.turn

    def encode_visuals(self, visuals):
        return {k: v @ self.turn for k, v in self.inner.encode_visuals(visuals).items()}


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def quantiles(ms: list[float]) -> dict:
    return {f"p{q}_ms": float(np.percentile(ms, q)) for q in (50, 95, 99)}


def peak_gb() -> float:
    "Peak memory of this process since the last call"
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1e6
    Path("/proc/self/clear_refs").write_text("5")
    return peak


def size_gb(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e9


def test_captions(n: int) -> list:
    "Captions of each language"
    corpus = load_corpus("pictograms")
    return [c for language in LANGUAGES for c in corpus.captions("test", language, "human")[:n]]


class Vectors:
    "Vectors of images in a memory map, queries, and their nearest neighbours"

    def __init__(self, folder: Path, n: int, method: Widened, queries: int = 500):
        rng = np.random.default_rng(0)
        corpus = load_corpus("pictograms")
        with torch.no_grad():
            splits = ("train", "validation", "test") if n > 100_000 else ("test",)
            columns = [split_columns(method.inner, corpus, split) for split in splits]
            images = unit(torch.cat([method.encode_visuals(c)["features"] for c in columns]).numpy())
            captions = unit(caption_features(method, test_captions(400)).numpy())

        def noisy(k: int) -> np.ndarray:
            chosen = images[rng.integers(0, len(images), k)]
            return unit(chosen + NOISE / np.sqrt(WIDTH) * rng.standard_normal(chosen.shape, np.float32))

        shape = (n, WIDTH)
        self.rows = np.lib.format.open_memmap(folder / "vectors.npy", "w+", dtype=np.float16, shape=shape)
        for start in tqdm(range(0, n, 20_000), desc="vectors"):
            self.rows[start : start + 20_000] = noisy(min(20_000, n - start))
        asked = captions[rng.permutation(len(captions))[:queries]]
        self.queries = np.concatenate([asked, noisy(len(asked))]).astype(np.float32)  # captions, then as many images

    def chunks(self, size: int) -> Iterator[tuple[range, np.ndarray]]:
        "Numbers and vectors (float32) of each part"
        for start in range(0, len(self.rows), size):
            part = self.rows[start : start + size].astype(np.float32)
            yield range(start, start + len(part)), part

    def nearest(self, queries: np.ndarray, k: int, matches: Callable = lambda i: i >= 0) -> np.ndarray:  # [Q, k]
        "The nearest of the rows that match, best first, by all cosines"
        best = np.full((len(queries), k), -9.0, np.float32)
        places = np.zeros((len(queries), k), int)
        for numbers, part in self.chunks(50_000):
            i = np.array(numbers)
            cosines = np.concatenate([best, np.where(matches(i), queries @ unit(part).T, -9)], 1)
            candidates = np.concatenate([places, np.broadcast_to(i, (len(queries), len(i)))], 1)
            top = np.argsort(-cosines, 1)[:, :k]
            best, places = np.take_along_axis(cosines, top, 1), np.take_along_axis(candidates, top, 1)
        return places


def fill(gallery: StoredGallery, vectors: Vectors) -> dict:
    "Put all images"
    began = time.time()
    for rows, part in tqdm(vectors.chunks(10_000), desc="images", total=len(vectors.rows) // 10_000):
        facts = dict(year=[2000 + i % 25 for i in rows], album=[f"album {i % 1000}" for i in rows])
        facts |= dict(width=[640] * len(part), height=[480] * len(part))
        gallery.put([str(i) for i in rows], dict(features=torch.from_numpy(part)), facts)
    return dict(put_s=time.time() - began)


def index(gallery: StoredGallery) -> dict:
    "Time and memory of indexing"
    before = peak_gb()
    index_s = seconds(gallery.tidy, time.time)
    return dict(before_gb=before, index_s=index_s, peak_gb=peak_gb(), size_gb=size_gb(gallery.folder))


def recall_and_times(search: Callable, queries: np.ndarray, expected: np.ndarray) -> dict:
    "Recall and time of a search, captions and images in turn, after a warm-up with all queries"
    half = len(queries) // 2
    order = np.arange(2 * half).reshape(2, half).T.ravel()
    for i in order:
        search(queries[i])
    recalls = np.zeros(2 * half)
    ms = []
    for i in order:
        began = CLOCK()
        found = search(queries[i])
        ms.append(1e3 * (CLOCK() - began))
        recalls[i] = len(set(found) & set(map(str, expected[i]))) / expected.shape[1]
    captions, pictures = recalls.reshape(2, half).mean(1)
    return dict(recall_captions=captions, recall_pictures=pictures) | quantiles(ms)


def search(gallery: StoredGallery, vectors: Vectors) -> dict:
    "Searches by vector and text, with filters and of later pages, and of the index alone"
    column = gallery.embedding_columns()["features"].name

    def best(query, k=K, skip=0, where=None):
        return list(gallery.best(torch.from_numpy(query[None]), k, skip, where))

    def bare(query):
        options = dict(column=column, q=query, k=K, metric="cosine", minimum_nprobes=24, refine_factor=2)
        return gallery.engine.table.to_table(columns=["id", "_distance"], nearest=options)["id"].to_pylist()

    expected = vectors.nearest(vectors.queries, K)
    found = {call.__name__: recall_and_times(call, vectors.queries, expected) for call in (best, bare)}
    about = dict(gallery=found["best"], bare=found["bare"], ratio=found["best"]["p50_ms"] / found["bare"]["p50_ms"])
    return about | dict(searches=by_text(gallery), deep=deep(best, vectors), peak_gb=peak_gb())


SEARCHES = {
    "text": {},
    "text, one year of 25": dict(where=dict(year=2003)),
    "text, one album of 1,000": dict(where=dict(album="album 7")),
    "third page": dict(skip=48, k=24),
}


def by_text(gallery: StoredGallery) -> dict[str, dict]:
    "Times of whole searches by text, with filters and of a later page"
    ms = {name: [] for name in SEARCHES}
    for caption in test_captions(40):
        for name, options in SEARCHES.items():
            call = lambda options=options: gallery.search(caption.text, caption.language, **dict(k=K) | options)  # noqa: B023, E731
            ms[name].append(1e3 * seconds(call, CLOCK))
    return {name: quantiles(times[20:]) for name, times in ms.items()}


def deep(best: Callable, vectors: Vectors) -> list[dict]:
    "Recall and time of later pages and filters"
    queries = vectors.queries[:: max(1, len(vectors.queries) // 80)]
    rows = []
    for name, where, matches, k, skip in (
        ("the best 100", None, lambda i: i >= 0, 100, 0),
        ("places 991 to 1,000", None, lambda i: i >= 0, 10, 990),
        ("one year of 25", dict(year=2003), lambda i: i % 25 == 3, 10, 0),
        ("one album of 1,000", dict(album="album 7"), lambda i: i % 1000 == 7, 10, 0),
    ):
        expected = vectors.nearest(queries, skip + k, matches)[:, skip:]
        call = lambda query, k=k, skip=skip, where=where: best(query, k, skip, where)  # noqa: E731
        rows.append(dict(asked=name) | recall_and_times(call, queries, expected))
    return rows


def service(gallery: StoredGallery, requests: int, n_clients: int = 32) -> dict:
    "Requests of many clients over HTTP: searches by text, with a filter and by an image, and changes"
    import httpx

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from served import serving

    from dasd_lab.serve.limits import ServiceSettings
    from dasd_lab.serve.service import gallery_app

    captions = test_captions(200)
    n = len(gallery)
    settings = ServiceSettings(may_write=True, requests_per_minute=10**7)
    with serving(gallery_app(gallery, settings)) as port, ThreadPoolExecutor(n_clients) as pool:
        http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90)

        def ask(i: int) -> tuple[str, float, int]:  # kind, milliseconds, status
            caption = captions[i % len(captions)]
            text = dict(text=caption.text, language=caption.language, k=10)
            kind, params = (
                ("text", text),
                ("filter", text | dict(where=json.dumps(dict(year=2000 + i % 25)))),
                ("like", dict(like=str(i * 7919 % n), k=10)),
                ("change", dict(id=str(i * 104_729 % n))),
            )[i % 4]
            began = CLOCK()
            if kind == "change":
                answer = http.patch("/api/picture", params=params, json=dict(facts=dict(year=2000 + i % 25)))
            else:
                answer = http.get("/api/search", params=params)
            return kind, 1e3 * (CLOCK() - began), answer.status_code

        began = CLOCK()
        rows = list(pool.map(ask, range(requests)))
        took = CLOCK() - began
    ms = {kind: [t for k, t, _ in rows if k == kind] for kind in ("text", "filter", "like", "change")}
    kinds = {kind: dict(n=len(times)) | quantiles(times) for kind, times in ms.items()}
    errors = sum(status >= 400 for *_, status in rows)
    about = dict(clients=n_clients, requests=requests, took_s=took, per_s=requests / took, errors=errors)
    return about | dict(kinds=kinds, server_peak_gb=peak_gb())


def write_jpegs(folder: Path, n: int, side: int, every: int) -> None:
    "Images of the corpus, one of `every` truncated"
    folder.mkdir()
    visuals = load_corpus("pictograms").visuals("train")

    def write(i):
        picture = Image.fromarray(visuals[i % len(visuals)].frames[0])
        path = folder / f"{i:06d}.jpg"
        picture.resize((side + i // len(visuals), side), Image.Resampling.BICUBIC).save(path, quality=88)
        if i % every == every // 2:
            path.write_bytes(path.read_bytes()[:200])

    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(n)), total=n, desc=folder.name))


def imported(folder: Path, n: int, side: int) -> dict:
    "An import, and the same again without new files"
    write_jpegs(folder / f"files {side}", n, side, 1000)
    with closing(StoredGallery(folder / f"gallery {side}", load_run("pictograms"))) as gallery:
        rounds = []
        for _ in range(2):
            began = time.time()
            report = import_folder(gallery, folder / f"files {side}", batch_size=256)
            counts = dict(added=report.added, changed=report.changed, failed=len(report.failed))
            rounds.append(counts | dict(s=time.time() - began, peak_gb=peak_gb()))
        about = dict(
            files=n, pictures=len(gallery), thumbnails=len(gallery.thumbnails), size_gb=size_gb(gallery.folder)
        )
    return about | rounds[0] | dict(per_s=rounds[0]["added"] / rounds[0]["s"], third=rounds[1])


def main() -> None:
    sizes = dict(n=1_000_000, files=100_000, photographs=300, requests=10_000)
    a = arguments(__doc__, folder=dict(type=Path), **{k: dict(type=int, default=v) for k, v in sizes.items()})
    if a.tiny:
        a.n, a.files, a.photographs, a.requests = 3000, 60, 4, 80
    method = Widened(load_run("pictograms"))
    found = {}
    with tempfile.TemporaryDirectory(dir=a.folder) as temporary:
        folder = Path(temporary)
        vectors = Vectors(folder, a.n, method, 60 if a.tiny else 500)
        with closing(StoredGallery(folder / "gallery", method, dict(year="integer", album="text"))) as gallery:
            found["fill"] = fill(gallery, vectors)
            found["index"] = index(gallery)
        began = CLOCK()
        gallery = StoredGallery(folder / "gallery", method)
        gallery.best(torch.from_numpy(vectors.queries[:1]), K)
        first_s = CLOCK() - began
        found["search"] = dict(open_and_search_s=first_s) | search(gallery, vectors)
        found["service"] = service(gallery, a.requests)
        found["import"] = imported(folder, a.files, 128) | dict(photographs=imported(folder, a.photographs, 3024))
    before = read_json(a.json, optional=True) if a.json else {}
    found = before | {name: before.get(name, {}) | row for name, row in found.items()}
    rows = [dict(asked=name) | row for name, row in found["search"]["searches"].items()]
    keep(a, found, rows + found["search"]["deep"])


if __name__ == "__main__":
    main()
