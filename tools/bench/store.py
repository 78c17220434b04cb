"""What a feature store costs: random batches against encoding pictures in the loop, and against one plain numpy memory map

    python tools/bench/store.py [--rows 3000000] [--pairs 9] [--threads 1] [--folder PLACE] [--json FILE]

Both sides of a pair are timed in one process, a few batches of one and the same of the other in turn, so that other
work on the machine hits them alike; a ratio is the median of the pairs' own ratios, with their quartiles. The pictures are the built-in corpus
with the shipped tower, the smallest there is: any other makes the first ratio larger. The large store is made of random
numbers, written by the store's own writer and removed afterwards; the memory map beside it holds the same numbers."""

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from dasd_lab.backbone.encoding import encode_shards
from dasd_lab.backbone.shards import write_shard, write_texts
from dasd_lab.backbone.store import StorePlan, agree, checksum, finish_store, open_store
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import shipped_run


def timed(call) -> float:  # seconds
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def each(call, rows) -> None:
    "Call it with every batch of row numbers, and keep nothing, as training does"
    for r in rows:
        call(r)


def compared(first, second, rows, pairs: int, chunk: int = 8) -> dict:
    "Seconds a pass over the rows of both, and how many times faster the second is, by the clock and in this thread's CPU time; both go through every pass a few batches in turn"
    each(first, rows[:chunk])
    each(second, rows[:chunk])
    spent = np.zeros((2, pairs, 2))
    turn = 0  # clock or CPU, pair, side
    for i in range(pairs):
        for some in (rows[j : j + chunk] for j in range(0, len(rows), chunk)):
            for side in ((0, 1), (1, 0))[turn % 2]:
                began = time.perf_counter(), time.thread_time()
                each((first, second)[side], some)
                spent[:, i, side] += np.subtract((time.perf_counter(), time.thread_time()), began)
            turn += 1
    found = dict(first_s=float(np.median(spent[0, :, 0])), second_s=float(np.median(spent[0, :, 1])), pairs=pairs)
    for name, s in zip(("", "cpu_"), spent):
        low, middle, high = statistics.quantiles(s[:, 0] / s[:, 1], n=4)
        found |= {f"{name}ratio": middle, f"{name}quartiles": [low, high]}
    return found


def against_encoding(place: Path, pairs: int, batch: int = 128, batches: int = 8) -> dict:
    "Batches of the training pictures: read and encoded, or cached"
    backbone = load_backbone(shipped_run() / "backbone")
    corpus = load_corpus("pictograms", progress=False)
    encode_shards(backbone, corpus, "validation", place / "pictures", rank=0, world_size=1)
    store = open_store(place / "pictures")["image"]
    pictures = corpus.visuals("validation")
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(pictures), (batches, batch))
    found = compared(
        lambda r: backbone.encode_pictures([pictures[int(i)] for i in r]), store.__getitem__, rows, pairs, 1
    )
    n = batch * batches
    rate = dict(encoded_per_s=n / found["first_s"], cached_per_s=n / found["second_s"])
    return dict(
        tower=backbone.name, batch=batch, pairs=pairs, times_faster=found["ratio"], quartiles=found["quartiles"], **rate
    )


def large_store(place: Path, n: int, width: int, shard_rows: int = 8192) -> dict:
    "A store of random numbers, and the same in one plain file; the seconds that writing took"
    ids = [f"image-{i:09}" for i in range(n)]
    plan = StorePlan(
        "random",
        "train",
        "none",
        "",
        "",
        "",
        "float16",
        shard_rows,
        dict(image=dict(rows=n, shape=[width], ids=checksum(ids))),
    )
    agree(place / "large", plan)
    rng = np.random.default_rng(0)
    spent = 0.0
    with open(place / "plain.npy", "wb") as f:
        for s in plan.shards:
            rows = rng.integers(0, 0x3C00, (len(s.rows), width), np.uint16)  # halves from 0 to 1
            f.write(rows.tobytes())
            spent += timed(
                lambda: write_shard(
                    dict(rows=torch.from_numpy(rows).view(torch.float16)),
                    place / "large" / s.name,
                    **plan.facts(s.name),
                )
            )
    names = timed(
        lambda: write_texts(ids, place / "large/image-ids.safetensors", **plan.facts("image-ids.safetensors"))
    )
    return dict(
        rows=n,
        width=width,
        shards=len(plan.shards),
        gigabytes=n * width * 2 / 1e9,
        write_shards_s=spent,
        write_ids_s=names,
        finish_s=timed(lambda: finish_store(place / "large")),
    )


def memory() -> dict:  # MB
    "Resident memory of this process: its own, and pages of files, which the system may take back"
    said = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {k: int(said[n].split()[0]) / 1e3 for k, n in (("own_mb", "RssAnon"), ("files_mb", "RssFile"))}


def opened(folder: Path) -> dict:
    "In a process of its own: opening, a batch, a thousand batches, ids; and the memory of each"
    before = memory()
    began = time.perf_counter()
    store = open_store(folder)
    open_s = time.perf_counter() - began
    rows = store["image"]
    after = memory()
    rng = np.random.default_rng(1)
    first = timed(lambda: rows[rng.integers(0, len(rows), 128)])
    thousand = timed(lambda: each(rows.__getitem__, rng.integers(0, len(rows), (1000, 128))))
    some = [store.ids["image"][int(i)] for i in rng.integers(0, len(rows), 1000)]
    look = timed(lambda: store.ids["image"].rows(some))
    return dict(
        open_s=open_s,
        first_batch_s=first,
        thousand_batches_s=thousand,
        thousand_ids_to_rows_s=look,
        before=before,
        after_opening=after,
        after_batches=memory(),
    )


def against_memory_map(place: Path, n: int, width: int, pairs: int, batch: int) -> dict:
    "Random batches of the large store and of one memory map, as they are stored and as float32 tensors"
    store = open_store(place / "large")["image"]
    plain = np.memmap(place / "plain.npy", np.float16, "r", shape=(n, width))
    rng = np.random.default_rng(batch)
    assert store._one is not None
    rows = rng.integers(0, n, (-(-50_000 // batch), batch))
    torch.testing.assert_close(store[rows[0]], torch.from_numpy(plain[rows[0]]).float(), rtol=0, atol=0)
    found = dict(batch=batch)
    for name, (a, b) in dict(
        stored=(lambda r: plain[r], store.stored_rows),
        float32=(lambda r: torch.from_numpy(plain[r]).float(), store.__getitem__),
    ).items():
        c = compared(a, b, rows, pairs)
        found[name] = dict(
            plain_us=1e6 * c["first_s"] / len(rows),
            store_us=1e6 * c["second_s"] / len(rows),
            of_plain=c["ratio"],
            quartiles=c["quartiles"],
            of_plain_cpu=c["cpu_ratio"],
            quartiles_cpu=c["cpu_quartiles"],
            pairs=pairs,
        )
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=3_000_000)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--folder", help="on the disk to measure; twice the store is written there and removed")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--opened", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    if a.opened:
        return print(json.dumps(opened(a.opened)))
    place = Path(tempfile.mkdtemp(dir=a.folder))
    need = 2 * a.rows * a.width * 2 + 1e9
    if (free := shutil.disk_usage(place).free) < need:
        raise SystemExit(
            f"{free / 1e9:.0f} GB free in {place}, {need / 1e9:.0f} needed: give fewer --rows or another --folder"
        )
    try:
        found = dict(
            machine=platform.machine(),
            threads=a.threads,
            torch=torch.__version__,
            numpy=np.__version__,
            encoding=against_encoding(place, a.pairs),
            large=large_store(place, a.rows, a.width),
        )

        def again():
            return json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--threads", str(a.threads), "--opened", str(place / "large")],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )

        found |= dict(
            first_opening=again(),
            later_opening=again(),
            memory_map=[against_memory_map(place, a.rows, a.width, a.pairs, b) for b in (128, 1024)],
        )
    finally:
        shutil.rmtree(place)
    e = found["encoding"]
    large = found["large"]
    one = found["first_opening"]
    two = found["later_opening"]
    print(
        f"{a.threads} thread(s), torch {torch.__version__}, numpy {np.__version__}, {platform.machine()}; medians of {a.pairs} pairs [quartiles]\n"
    )
    print(
        f"cached batches of {e['batch']}: × {e['times_faster']:,.0f} [{e['quartiles'][0]:,.0f}–{e['quartiles'][1]:,.0f}] the rate of encoding pictures in the loop ({e['cached_per_s']:,.0f} and {e['encoded_per_s']:,.0f} rows a second)"
    )
    for m in found["memory_map"]:
        for kind in ("stored", "float32"):
            c = m[kind]

            def percent(r, q):
                return f"{100 * c[r]:.0f} % [{100 * c[q][0]:.0f}–{100 * c[q][1]:.0f}]"

            print(
                f"batches of {m['batch']:,} {'as stored' if kind == 'stored' else 'in float32'}: {percent('of_plain', 'quartiles')} of a plain memory map's rate by the clock, {percent('of_plain_cpu', 'quartiles_cpu')} in CPU time ({c['store_us']:.0f} and {c['plain_us']:.0f} µs)"
            )
    print(
        f"{large['rows']:,} rows in {large['shards']} shards, {large['gigabytes']:.1f} GB: written in {large['write_shards_s']:.0f} s, ids in {large['write_ids_s']:.1f} s, finished in {large['finish_s']:.2f} s; first opening (every checksum) {one['open_s']:.1f} s, later ones {two['open_s']:.2f} s"
    )
    print(
        f"memory of its own: {two['before']['own_mb']:.0f} MB before opening, {two['after_opening']['own_mb']:.0f} after, {two['after_batches']['own_mb']:.0f} after a thousand batches, which touched {two['after_batches']['files_mb'] - two['before']['files_mb']:,.0f} MB of pages; a thousand ids found in {1e3 * two['thousand_ids_to_rows_s']:.0f} ms"
    )
    if a.json:
        write_json(found, a.json)


if __name__ == "__main__":
    main()
