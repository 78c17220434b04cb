"""A gallery of a million images: recall, times, memory, and an import of 100,000 files

    python tools/bench/gallery.py [--n 1000000] [--files 100000] [--folder DIR] [--json FILE]

The vectors are the features of the built-in corpus, of its images and of its captions in six languages, rotated into
512 dimensions, with noise of half their length on every image; so each image has some forty others near it, and
captions lie in regions without images, as in every shared space. Recall is relative to an exact search. The folder
needs 10 GB and is removed at the end. Results are added to a file that is there: data/results/gallery.json also has
what was measured once: the engines that were compared, many clients, killed processes and reranking."""

import re
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import arguments, keep, seconds
from PIL import Image
from tqdm.auto import tqdm

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.methods import unit
from dasd_lab.base.presets import read_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.runs.loading import load_run
from dasd_lab.search.gallery.in_memory import caption_features
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.stored import StoredGallery

WIDTH = 512
NOISE = 0.5
PART = 10_000  # vectors that are made and put at once
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
        torch.manual_seed(0)
        self.register_buffer("turn", torch.nn.init.orthogonal_(torch.empty(inner.embed_dim, WIDTH)))

    @property
    def embed_dim(self):
        return WIDTH

    def encode_captions(self, captions, language):
        return self.inner.encode_captions(captions, language) @ self.turn

    def encode_visuals(self, visuals):
        return {k: v @ self.turn for k, v in self.inner.encode_visuals(visuals).items()}


def quantiles(ms: list[float]) -> dict:
    return {f"p{q}_ms": float(np.percentile(ms, q)) for q in (50, 95, 99)}


def peak_gb() -> float:
    "Peak memory of this process since the last call"
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1e6
    Path("/proc/self/clear_refs").write_text("5")
    return peak


def test_captions(n: int) -> list:
    "Captions of each language"
    corpus = load_corpus("pictograms")
    return [c for language in LANGUAGES for c in corpus.captions("test", language, "human")[:n]]


def vectors_of(folder: Path, n: int, method: Widened, queries: int) -> tuple[np.ndarray, np.ndarray]:  # rows, queries
    "Vectors of images in a memory map; vectors of captions and of as many images"
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

    rows = np.lib.format.open_memmap(folder / "vectors.npy", "w+", dtype=np.float16, shape=(n, WIDTH))
    for start in tqdm(range(0, n, PART), desc="vectors"):
        rows[start : start + PART] = noisy(min(PART, n - start))
    asked = rng.choice(captions, queries, replace=False)
    return rows, np.concatenate([asked, noisy(queries)]).astype(np.float32)


def nearest(rows: np.ndarray, queries: np.ndarray, k: int, first: int = 0, step: int = 1) -> np.ndarray:  # [Q, k]
    "The nearest of every `step`th row, best first, by all cosines"
    chosen = torch.from_numpy(unit(rows[first::step].astype(np.float32)))
    best = [(part @ chosen.T).topk(k).indices for part in torch.from_numpy(queries).split(50)]
    return first + step * torch.cat(best).numpy()


def fill(gallery: StoredGallery, rows: np.ndarray) -> None:
    "Put all images"
    for start in tqdm(range(0, len(rows), PART), desc="images"):
        part = torch.from_numpy(rows[start : start + PART].astype(np.float32))
        numbers = range(start, start + len(part))
        facts = dict(year=[2000 + i % 25 for i in numbers], album=[f"album {i % 1000}" for i in numbers])
        facts |= dict(width=[640] * len(part), height=[480] * len(part))
        gallery.put([str(i) for i in numbers], dict(features=part), facts)


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


def search(gallery: StoredGallery, rows: np.ndarray, queries: np.ndarray) -> dict:
    "Searches by vector and text, with filters and of later pages, and of the index alone"
    column = gallery.embedding_columns()["features"].name

    def best(query, k=K, skip=0, where=None):
        return list(gallery.best(torch.from_numpy(query[None]), k, skip, where))

    def bare(query):
        options = dict(column=column, q=query, k=K, metric="cosine", minimum_nprobes=24, refine_factor=2)
        return gallery.engine.table.to_table(columns=["id", "_distance"], nearest=options)["id"].to_pylist()

    expected = nearest(rows, queries, K)
    by_vector, alone = (recall_and_times(call, queries, expected) for call in (best, bare))
    about = dict(gallery=by_vector, bare=alone, ratio=by_vector["p50_ms"] / alone["p50_ms"])
    return about | dict(searches=by_text(gallery), deep=deep(best, rows, queries))


SEARCHES = {
    "text": {},
    "text, one year of 25": dict(where=dict(year=2003)),
    "text, one album of 1,000": dict(where=dict(album="album 7")),
    "third page": dict(skip=48, k=24),
}


def by_text(gallery: StoredGallery) -> dict[str, dict]:
    "Times of whole searches by text, with filters and of a later page; the first ones warm up"
    found = {}
    for name, options in SEARCHES.items():
        calls = [partial(gallery.search, c.text, c.language, **dict(k=K) | options) for c in test_captions(40)]
        found[name] = quantiles([1e3 * seconds(call, CLOCK) for call in calls][20:])
    return found


def deep(best: Callable, rows: np.ndarray, queries: np.ndarray) -> list[dict]:
    "Recall and time of later pages and filters"
    queries = queries[:: max(1, len(queries) // 80)]
    found = []
    for name, where, first, step, k, skip in (
        ("the best 100", None, 0, 1, 100, 0),
        ("places 991 to 1,000", None, 0, 1, 10, 990),
        ("one year of 25", dict(year=2003), 3, 25, 10, 0),
        ("one album of 1,000", dict(album="album 7"), 7, 1000, 10, 0),
    ):
        expected = nearest(rows, queries, min(skip + k, len(rows[first::step])), first, step)[:, skip:]
        found.append(dict(asked=name) | recall_and_times(partial(best, k=k, skip=skip, where=where), queries, expected))
    return found


def write_jpegs(folder: Path, n: int, side: int) -> None:
    "Images of the corpus, each a little wider than the one before of the same scene"
    folder.mkdir()
    visuals = load_corpus("pictograms").visuals("train")

    def write(i):
        picture = Image.fromarray(visuals[i % len(visuals)].frames[0])
        size = (side + i // len(visuals), side)
        picture.resize(size, Image.Resampling.BICUBIC).save(folder / f"{i:06d}.jpg", quality=88)

    with ThreadPoolExecutor(2) as pool:
        list(tqdm(pool.map(write, range(n)), total=n, desc=folder.name))


def imported(folder: Path, n: int, side: int) -> dict:
    "An import, and the same again without new files"
    write_jpegs(folder / f"files {side}", n, side)
    with closing(StoredGallery(folder / f"gallery {side}", load_run("pictograms"))) as gallery:
        rounds = []
        for _ in range(2):
            began = time.time()
            report = import_folder(gallery, folder / f"files {side}", batch_size=256)
            took = dict(s=time.time() - began, peak_gb=peak_gb())
            rounds.append(dict(added=report.added, changed=report.changed) | took)
    first, again = rounds
    return dict(files=n, per_s=first["added"] / first["s"], third=again) | first


def main() -> None:
    sizes = dict(n=1_000_000, files=100_000, photographs=300)
    a = arguments(__doc__, folder=dict(type=Path), **{k: dict(type=int, default=v) for k, v in sizes.items()})
    if a.tiny:
        a.n, a.files, a.photographs = 3000, 60, 4
    method = Widened(load_run("pictograms"))
    found = {}
    with tempfile.TemporaryDirectory(dir=a.folder) as temporary:
        folder = Path(temporary)
        rows, queries = vectors_of(folder, a.n, method, 60 if a.tiny else 500)
        with closing(StoredGallery(folder / "gallery", method, dict(year="integer", album="text"))) as gallery:
            fill(gallery, rows)
            peak_gb()
            found["index"] = dict(index_s=seconds(gallery.tidy, CLOCK), peak_gb=peak_gb())
        began = CLOCK()
        gallery = StoredGallery(folder / "gallery", method)
        gallery.best(torch.from_numpy(queries[:1]), K)
        found["search"] = dict(open_and_search_s=CLOCK() - began) | search(gallery, rows, queries)
        found["import"] = imported(folder, a.files, 128) | dict(photographs=imported(folder, a.photographs, 3024))
    before = read_json(a.json, optional=True) if a.json else {}
    found = before | {name: before.get(name, {}) | row for name, row in found.items()}
    table = [dict(asked=name) | row for name, row in found["search"]["searches"].items()]
    keep(a, found, table + found["search"]["deep"])


if __name__ == "__main__":
    main()
