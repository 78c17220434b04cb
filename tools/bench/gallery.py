"""A gallery of a million images: recall, times, memory, many clients, and an import of 100,000 files

    python tools/bench/gallery.py [parts …] [--n 1000000] [--files 100000] [--folder DIR] [--json FILE]

parts: fill index search service import (default: all). The vectors are the features of the built-in corpus, of its
images and of its captions in six languages, rotated into 512 dimensions, with noise of half their length on every
image; so each image has some forty others near it, and captions lie in regions without images, as in every shared
space. Recall is relative to an exact search. Each part runs in a process of its own, whose peak memory is what the
system counted. The folder needs 10 GB and is removed at the end unless it was given. Figures of a million images are
stored in data/results/gallery.json, with commit and day of each part; those of fewer are printed, and stored with
--json. The engines that were compared, killed processes and reranking are in that file as they were measured once;
`tests/test_kills.py` and `tests/test_stored_gallery.py` kill processes that write."""

import argparse
import io
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from measuring import in_turn
from PIL import Image
from tqdm.auto import tqdm

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.gallery.in_memory import caption_features
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.search.on_disk.thumbnails import StoredThumbnails

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


def peak_gb() -> float:
    "Peak memory of this process since its start; getrusage would count its parent"
    status = Path("/proc/self/status").read_text()
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


def fill(folder: Path, a: argparse.Namespace) -> dict:
    "A stored gallery of n images"
    gallery = open_gallery(folder, columns=dict(year="integer", album="text"))
    began = time.time()
    for start, part in tqdm(Vectors(folder, a.n).chunks(10_000), desc="images", total=a.n // 10_000):
        rows = range(start, start + len(part))
        facts = dict(
            year=[2000 + i % 25 for i in rows],
            album=[f"album {i % 1000}" for i in rows],
            width=[640] * len(part),
            height=[480] * len(part),
        )
        gallery.put([id_of(i) for i in rows], dict(features=torch.from_numpy(part)), facts)
    return dict(put_s=time.time() - began)


def index(folder: Path, a: argparse.Namespace) -> dict:
    "Time and memory of indexing"
    gallery = open_gallery(folder)
    before = peak_gb()
    began = time.time()
    gallery.tidy()
    made = dict(before_gb=before, index_s=time.time() - began, peak_gb=peak_gb(), size_gb=size_gb(folder / "gallery"))
    return made | dict(indexed=gallery.engine.indexed(gallery.vector_column))


def search(folder: Path, a: argparse.Namespace) -> dict:
    "A cold start, searches by vector and text, filters and later pages, and the index alone in alternation"
    vectors = Vectors(folder, a.n)
    drop_caches(folder / "gallery")
    began = time.perf_counter()
    gallery = open_gallery(folder)
    open_s = time.perf_counter() - began
    gallery.best(torch.from_numpy(vectors.queries[:1]), K)
    first_s = time.perf_counter() - began

    def best(query):
        return [number_of(id) for id in gallery.best(torch.from_numpy(query[None]), K)[0]]

    alone = lance_alone(gallery)
    queries = iter(np.tile(vectors.queries, (2, 1)))
    took = in_turn(dict(gallery=lambda: best(next(queries)), bare=lambda: alone(next(queries))), 300, time.perf_counter)
    return dict(
        open_s=open_s,
        open_and_search_s=first_s,
        gallery=timed_recall(best, vectors),
        bare=timed_recall(alone, vectors),
        ratio=statistics.median(took["gallery"]) / statistics.median(took["bare"]),
        searches=by_text(gallery),
        deep=deep(gallery, vectors),
        peak_gb=peak_gb(),
    )


SEARCHES = {
    "text": {},
    "text, one year of 25": dict(where=dict(year=2003)),
    "text, one album of 1,000": dict(where=dict(album="album 7")),
    "third page": dict(skip=48, k=24),
}


def by_text(gallery: StoredGallery) -> dict[str, dict]:
    "Times of whole searches by text, with filters and of a later page"
    ms = {name: [] for name in SEARCHES}
    for language in LANGUAGES:
        for caption in load_corpus("pictograms").captions("test", language, "human")[:40]:
            for name, options in SEARCHES.items():
                began = time.perf_counter()
                gallery.search(caption.text, language, **dict(k=K) | options)
                ms[name].append(1e3 * (time.perf_counter() - began))
    return {name: quantiles(times[20:]) for name, times in ms.items()}


def deep(gallery: StoredGallery, vectors: Vectors, queries: int = 40) -> list[dict]:
    "Recall and time of later pages and filters, with as many captions as images"
    half = len(vectors.queries) // 2
    asked = np.concatenate([vectors.queries[: half : half // queries], vectors.queries[half :: half // queries]])
    cosines = np.concatenate([asked @ unit(part).T for _, part in vectors.chunks(50_000)], 1)
    n = np.arange(vectors.n)
    rows = []
    for name, where, matches, k, skip in (
        ("the best 100", None, n >= 0, 100, 0),
        ("places 991 to 1,000", None, n >= 0, 10, 990),
        ("one year of 25", dict(year=2003), n % 25 == 3, 10, 0),
        ("one album of 1,000", dict(album="album 7"), n % 1000 == 7, 10, 0),
    ):
        ms = []
        recalls = []
        for query, similarity in zip(asked, np.where(matches, cosines, -9)):
            expected = np.argsort(-similarity)[skip : skip + k]
            began = time.perf_counter()
            ids = gallery.best(torch.from_numpy(query[None]), k, skip, where)[0]
            ms.append(1e3 * (time.perf_counter() - began))
            recalls.append(len(set(map(number_of, ids)) & set(expected.tolist())) / k)
        captions, pictures = np.mean(np.reshape(recalls, (2, -1)), 1)
        rows.append(dict(asked=name, recall_captions=captions, recall_pictures=pictures) | quantiles(ms))
    return rows


class Client:
    "A client with random requests; it changes and removes only its own images"

    WEIGHTS = dict(text=50, filter=10, like=12, add=16, change=6, remove=6)

    def __init__(self, number: int, http, n: int, captions: list):
        self.rng = random.Random(number)
        self.http = http
        self.n = n
        self.captions = captions
        self.years = {}  # id → year of its images
        self.removed = set()
        self.rows = []  # (kind, milliseconds, status)

    def run(self, requests: int) -> None:
        for _ in range(requests):
            (kind,) = self.rng.choices(list(self.WEIGHTS), self.WEIGHTS.values())
            kind = kind if self.years or kind not in ("change", "remove") else "add"
            began = time.perf_counter()
            answer = getattr(self, kind)()
            self.rows.append((kind, 1e3 * (time.perf_counter() - began), answer.status_code))

    def text(self, **params):
        caption = self.rng.choice(self.captions)
        return self.http.get("/api/search", params=dict(text=caption.text, language=caption.language, k=10) | params)

    def filter(self):
        return self.text(where=json.dumps(dict(year=self.rng.randrange(2000, 2025))))

    def like(self):
        return self.http.get("/api/search", params=dict(like=id_of(self.rng.randrange(self.n)), k=10))

    def add(self):
        pixels = np.random.default_rng(self.rng.randrange(2**32)).integers(0, 256, (24, 24, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        files = dict(picture=("x.png", file.getvalue(), "image/png"))
        answer = self.http.post("/api/pictures", files=files, data=dict(facts='{"year": 1999}'))
        self.years[answer.json()["id"]] = 1999
        return answer

    def change(self):
        id = self.rng.choice(list(self.years))
        self.years[id] = self.rng.randrange(1900, 1999)
        return self.http.patch("/api/picture", params=dict(id=id), json=dict(facts=dict(year=self.years[id])))

    def remove(self):
        id, _ = self.years.popitem()
        self.removed.add(id)
        return self.http.delete("/api/picture", params=dict(id=id))

    def lost(self) -> int:
        "Images without their last fact"
        answers = {id: self.http.get("/api/picture", params=dict(id=id)) for id in self.years}
        return sum(a.status_code != 200 or a.json()["facts"]["year"] != self.years[id] for id, a in answers.items())

    def came_back(self) -> int:
        "Removed images that are still there"
        return sum(self.http.get("/api/picture", params=dict(id=id)).status_code != 404 for id in self.removed)


def service(folder: Path, a: argparse.Namespace, n_clients: int = 32) -> dict:
    "Random requests of many clients over HTTP: searches, filters and changes"
    import httpx

    sys.path.insert(0, str(ROOT / "tests"))
    from served import serving

    from dasd_lab.serve.limits import ServiceSettings
    from dasd_lab.serve.service import gallery_app

    captions = [c for lang in LANGUAGES for c in load_corpus("pictograms").captions("test", lang, "human")[:200]]
    gallery = open_gallery(folder)
    before = len(gallery)
    settings = ServiceSettings(may_write=True, requests_per_minute=10**7)
    with serving(gallery_app(gallery, settings)) as port, ThreadPoolExecutor(n_clients) as pool:
        http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90)
        clients = [Client(i, http, a.n, captions) for i in range(n_clients)]
        began = time.time()
        list(pool.map(Client.run, clients, [a.requests // n_clients] * n_clients))
        took = time.time() - began
        checked = dict(lost=sum(c.lost() for c in clients), came_back=sum(c.came_back() for c in clients))
    rows = [row for client in clients for row in client.rows]
    errors = [status for _, _, status in rows if status >= 400]
    kinds = {}
    for kind in Client.WEIGHTS:
        ms = [t for k, t, _ in rows if k == kind]
        kinds[kind] = dict(n=len(ms), **quantiles(ms)) if ms else dict(n=0)
    return checked | dict(
        clients=n_clients,
        took_s=took,
        per_s=len(rows) / took,
        requests=len(rows),
        errors=len(errors),
        statuses=sorted(set(errors)),
        writes=sum(kinds[kind]["n"] for kind in ("add", "change", "remove")),
        kinds=kinds,
        counted=len(gallery) - before == sum(len(c.years) for c in clients),
        server_peak_gb=peak_gb(),
    )


IMPORT = """
import json, sys, time
from gallery import load_run, peak_gb, shipped_run, StoredGallery
from dasd_lab.search.on_disk.importing import import_folder
began = time.time()
report = import_folder(StoredGallery(sys.argv[1], load_run(shipped_run())), sys.argv[2], batch_size=256)
counts = dict(added=report.added, changed=report.changed, unchanged=report.unchanged, failed=len(report.failed))
print(json.dumps(counts | dict(s=time.time() - began, peak_gb=peak_gb())))
"""


def start_import(gallery: Path, folder: Path) -> subprocess.Popen:
    "An import in a process of its own, which prints its report"
    command = [sys.executable, "-c", IMPORT, str(gallery), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)


def imported(gallery: Path, folder: Path) -> dict:
    "The report of an import"
    return json.loads(start_import(gallery, folder).communicate()[0].splitlines()[-1])


def photographs(folder: Path, files: int = 300) -> dict:
    "Speed and memory of an import of images with twelve megapixels"
    visuals = load_corpus("pictograms").visuals("train")
    (folder / "photographs").mkdir()

    def write(i):
        picture = Image.fromarray(visuals[i].frames[0]).resize((4032, 3024), Image.Resampling.BICUBIC)
        picture.save(folder / "photographs" / f"{i:04d}.jpg", quality=90)

    write_files(write, files, "photographs")
    report = imported(folder / "of photographs", folder / "photographs")
    return dict(files=files, added=report["added"], per_s=files / report["s"], peak_gb=report["peak_gb"])


def write_files(write: Callable[[int], None], n: int, label: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(n), chunksize=100), total=n, desc=label))


def write_jpegs(folder: Path, files: int) -> None:
    "Images of the corpus in several sizes, one in a thousand truncated"
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
    child = start_import(gallery, folder)
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


def import_files(folder: Path, a: argparse.Namespace) -> dict:
    "A folder of JPEG files: an import that is killed, the same again, and once more without new files"
    jpegs = folder / "files"
    gallery = folder / "imported"
    write_jpegs(jpegs, a.files)
    when_killed = kill_import(gallery, jpegs, a.files // 10)
    second = imported(gallery, jpegs)
    third = imported(gallery, jpegs)
    with closing(StoredGallery(gallery, load_run(shipped_run()))) as opened:
        counts = dict(pictures=len(opened), thumbnails=len(opened.thumbnails))
    return counts | dict(
        files=a.files,
        broken=len(range(500, a.files, 1000)),
        kept_when_killed=when_killed,
        second=second,
        third=third,
        per_s=second["added"] / second["s"],
        size_gb=size_gb(gallery),
        photographs=photographs(folder),
    )


PARTS = {"fill": fill, "index": index, "search": search, "service": service, "import": import_files}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=[], choices=[*PARTS, []])
    for name, size in dict(n=1_000_000, files=100_000, requests=10_000).items():
        p.add_argument(f"--{name}", type=int, default=size)
    p.add_argument("--folder", type=Path)
    p.add_argument("--json", type=Path)
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # one part, in this process
    a = p.parse_args()
    if a.inside:
        print(json.dumps(PARTS[a.parts[0]](a.folder, a)))
        return
    results = a.json or (ROOT / "data/results/gallery.json" if a.n == 1_000_000 else None)
    found = json.loads(results.read_text(encoding="utf-8")) if results and results.exists() else dict(made={})
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    with tempfile.TemporaryDirectory(prefix="gallery-") as temporary:
        folder = a.folder or Path(temporary)
        for part in a.parts or PARTS:
            began = time.time()
            command = [sys.executable, __file__, part, "--inside", "--folder", str(folder)]
            command += [f"--{name}={getattr(a, name)}" for name in ("n", "files", "requests")]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[part] = json.loads(out.splitlines()[-1])
            minutes = round((time.time() - began) / 60, 1)
            found["made"][part] = dict(commit=commit.strip(), on=time.strftime("%Y-%m-%d"), n=a.n, minutes=minutes)
            print(part, json.dumps(found[part], indent=1), flush=True)
            if results:
                write_json(found, results)


if __name__ == "__main__":
    main()
