"""The cost of a feature store: random batches compared with encoding images in the loop and with a numpy memory map

    python tools/bench/store.py [--rows 3000000] [--rounds 9] [--threads 1] [--folder PLACE] [--json FILE]

The images are those of the built-in
corpus with the shipped tower, the smallest one: any other tower makes the first ratio larger. The large store contains
random numbers, written by the store's own writer and removed afterwards; the memory map contains the same numbers."""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measuring import arguments, in_turn, keep, ratio, seconds

from dasd_lab.backbone.encoding import encode_shards
from dasd_lab.backbone.store import StorePlan, agree, checksum, finish_store, open_store
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.base.storage import write_json, write_tensors
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.shipped import shipped_run

CLOCK = time.perf_counter


def compared(first, second, rows, rounds: int, clock=CLOCK) -> tuple[float, float, dict]:
    "Median seconds of two calls with every batch of row numbers, and how many times longer the first takes"
    took = in_turn(dict(first=lambda: list(map(first, rows)), second=lambda: list(map(second, rows))), rounds, clock)
    return statistics.median(took["first"]), statistics.median(took["second"]), ratio(took["first"], took["second"])


def against_encoding(folder: Path, rounds: int, batch: int = 128, batches: int = 8) -> dict:
    "Batches of training images: encoded in the loop, or read from the store"
    backbone = load_backbone(shipped_run() / "backbone")
    corpus = load_corpus("pictograms", progress=False)
    encode_shards(backbone, corpus, "validation", folder / "pictures", rank=0, world_size=1)
    store = open_store(folder / "pictures")["image"]
    pictures = corpus.visuals("validation")
    rows = np.random.default_rng(0).integers(0, len(pictures), (batches, batch))

    def encode(numbers):
        return backbone.encode_pictures([pictures[int(i)] for i in numbers])

    encode_s, store_s, found = compared(encode, store.__getitem__, rows, rounds)
    n = batch * batches
    about = dict(tower=backbone.name, batch=batch, pairs=rounds, times_faster=found["times"])
    return about | dict(quartiles=found["quartiles"], encoded_per_s=n / encode_s, cached_per_s=n / store_s)


def large_store(folder: Path, n: int, width: int, shard_rows: int = 8192) -> dict:
    "Write a store of random numbers and the same numbers to one plain file; seconds of writing"
    ids = [f"image-{i:09}" for i in range(n)]
    columns = dict(image=dict(rows=n, ids=checksum(ids)))
    plan = StorePlan("random", "train", "none", "", "", "", "float16", shard_rows, columns)
    store = folder / "large"
    agree(store, plan)
    rng = np.random.default_rng(0)
    shards_s = 0.0
    with open(folder / "plain.npy", "wb") as file:
        for shard in plan.shards:
            rows = rng.integers(0, 0x3C00, (len(shard.rows), width), np.uint16)  # 16-bit floats from 0 to 1
            file.write(rows.tobytes())
            tensors = dict(rows=torch.from_numpy(rows).view(torch.float16), left_out=torch.empty(0, dtype=torch.long))
            shards_s += seconds(lambda: write_tensors(tensors, store / shard.name, store=plan.digest), CLOCK)  # noqa: B023
    ids_s = seconds(lambda: write_json(dict(image=ids), store / "ids.json", readable=False), CLOCK)
    return dict(
        rows=n,
        width=width,
        shards=len(plan.shards),
        gigabytes=n * width * 2 / 1e9,
        write_shards_s=shards_s,
        write_ids_s=ids_s,
        finish_s=seconds(lambda: finish_store(store), CLOCK),
    )


def opened(folder: Path) -> dict:
    "Time of opening a store, of a batch, of a thousand batches, and of reading the ids"
    stores = []
    open_s = seconds(lambda: stores.append(open_store(folder)), CLOCK)
    rows = stores[0]["image"]
    batches = np.random.default_rng(1).integers(0, len(rows), (1000, 128))
    return dict(
        open_s=open_s,
        first_batch_s=seconds(lambda: rows[batches[0]], CLOCK),
        thousand_batches_s=seconds(lambda: list(map(rows.__getitem__, batches)), CLOCK),
        read_ids_s=seconds(lambda: stores[0].ids["image"], CLOCK),
    )


def against_memory_map(folder: Path, n: int, width: int, rounds: int, batch: int) -> dict:
    "Random batches of the large store and of one memory map, as float32 tensors"
    store = open_store(folder / "large")["image"]
    plain = np.memmap(folder / "plain.npy", np.float16, "r", shape=(n, width))
    rows = np.random.default_rng(batch).integers(0, n, (-(-50_000 // batch), batch))
    torch.testing.assert_close(store[rows[0]], torch.from_numpy(plain[rows[0]]).float(), rtol=0, atol=0)

    def plain_rows(numbers):
        return torch.from_numpy(plain[numbers]).float()

    plain_s, store_s, wall = compared(plain_rows, store.__getitem__, rows, rounds)
    _, _, cpu = compared(plain_rows, store.__getitem__, rows, rounds, time.thread_time)
    figures = dict(plain_us=1e6 * plain_s / len(rows), store_us=1e6 * store_s / len(rows), pairs=rounds)
    figures |= dict(of_plain=wall["times"], quartiles=wall["quartiles"])
    return dict(batch=batch, float32=figures | dict(of_plain_cpu=cpu["times"], quartiles_cpu=cpu["quartiles"]))


def main() -> None:
    sizes = dict(rows=dict(type=int, default=3_000_000), width=dict(type=int, default=512))
    a = arguments(__doc__, 9, folder=dict(type=Path), **sizes)
    a.rows = 50_000 if a.tiny else a.rows
    with tempfile.TemporaryDirectory(dir=a.folder) as d:
        folder = Path(d)
        found = dict(encoding=against_encoding(folder, a.rounds), large=large_store(folder, a.rows, a.width))
        found |= {name: opened(folder / "large") for name in ("first_opening", "later_opening")}
        maps = [against_memory_map(folder, a.rows, a.width, a.rounds, batch) for batch in (128, 1024)]
    facts = dict(numpy=np.__version__) | found | dict(memory_map=maps)
    keep(a, facts, [dict(batch=row["batch"]) | row["float32"] for row in maps])


if __name__ == "__main__":
    main()
