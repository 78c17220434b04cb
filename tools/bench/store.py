"""The cost of a feature store: random batches compared with a numpy memory map of the same numbers

    python tools/bench/store.py [--rows 3000000] [--rounds 9] [--threads 1] [--folder PLACE] [--json FILE]

The store contains random numbers, written by the store's own writer and removed afterwards."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measuring import arguments, in_turn, keep, ratio

from dasd_lab.backbone.store import StorePlan, agree, checksum, finish_store, open_store
from dasd_lab.base.storage import write_json, write_tensors

WIDTH = 512


def write_both(folder: Path, n: int) -> None:
    "Write a store of random numbers, and the same numbers to one plain file"
    ids = [f"image-{i:09}" for i in range(n)]
    columns = dict(image=dict(rows=n, ids=checksum(ids)))
    plan = StorePlan("random", "train", "none", "", "", "", "float16", 8192, columns)
    store = folder / "large"
    agree(store, plan)
    rng = np.random.default_rng(0)
    with open(folder / "plain.npy", "wb") as file:
        for shard in plan.shards:
            rows = rng.integers(0, 0x3C00, (len(shard.rows), WIDTH), np.uint16)  # 16-bit floats from 0 to 1
            file.write(rows.tobytes())
            tensors = dict(rows=torch.from_numpy(rows).view(torch.float16), left_out=torch.empty(0, dtype=torch.long))
            write_tensors(tensors, store / shard.name, store=plan.digest)
    write_json(dict(image=ids), store / "ids.json", readable=False)
    finish_store(store)


def measured(folder: Path, n: int, rounds: int, batch: int) -> dict:
    "Random batches of the store and of the memory map, as float32 tensors"
    store = open_store(folder / "large")["image"]
    plain = np.memmap(folder / "plain.npy", np.float16, "r", shape=(n, WIDTH))
    batches = np.random.default_rng(batch).integers(0, n, (-(-50_000 // batch), batch))

    def plain_rows(numbers):
        return torch.from_numpy(plain[numbers]).float()

    torch.testing.assert_close(store[batches[0]], plain_rows(batches[0]), rtol=0, atol=0)
    calls = dict(plain=lambda: list(map(plain_rows, batches)), store=lambda: [store[numbers] for numbers in batches])
    took = in_turn(calls, rounds, time.perf_counter)
    each = 1e6 * took.median() / len(batches)
    figures = dict(plain_us=each["plain"], store_us=each["store"]) | ratio(took["plain"], took["store"], "of_plain")
    return dict(batch=batch, float32=figures)


def main() -> None:
    a = arguments(__doc__, 9, folder=dict(type=Path), rows=dict(type=int, default=3_000_000))
    n = 50_000 if a.tiny else a.rows
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        write_both(Path(folder), n)
        maps = [measured(Path(folder), n, a.rounds, batch) for batch in (128, 1024)]
    keep(a, dict(numpy=np.__version__, rows=n, memory_map=maps), [dict(batch=m["batch"]) | m["float32"] for m in maps])


if __name__ == "__main__":
    main()
