"""The cost of a feature store: random batches compared with encoding images in the loop and with a numpy memory map

    python tools/bench/store.py [--rows 3000000] [--pairs 9] [--threads 1] [--folder PLACE] [--json FILE]

Both sides of a pair are timed in one process in alternation, a few batches at a time, so other work on the machine
affects both; a ratio is the median of the ratios of all pairs, with quartiles. The images are those of the built-in
corpus with the shipped tower, the smallest one: any other tower makes the first ratio larger. The large store contains
random numbers, written by the store's own writer and removed afterwards; the memory map contains the same numbers."""

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
from dasd_lab.backbone.store import StorePlan, agree, checksum, finish_store, open_store
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.storage import write_json, write_tensors
from dasd_lab.training.recipes import shipped_run


def timed(call) -> float:  # seconds
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def each(call, rows) -> None:
    "Call a function with every batch of row numbers"
    for r in rows:
        call(r)


def compared(first, second, rows, pairs: int, chunk: int = 8) -> dict:
    "Seconds of both for all rows, and how many times faster the second is, by wall time and CPU time of this thread"
    each(first, rows[:chunk])
    each(second, rows[:chunk])
    spent = np.zeros((2, pairs, 2))  # wall or CPU time, pair, side
    calls = (first, second)
    first_side = 0
    for pair in range(pairs):
        for start in range(0, len(rows), chunk):
            for side in (first_side, 1 - first_side):
                began = time.perf_counter(), time.thread_time()
                each(calls[side], rows[start : start + chunk])
                spent[:, pair, side] += np.subtract((time.perf_counter(), time.thread_time()), began)
            first_side = 1 - first_side
    report = dict(first_s=float(np.median(spent[0, :, 0])), second_s=float(np.median(spent[0, :, 1])), pairs=pairs)
    for name, times in zip(("", "cpu_"), spent):
        low, middle, high = statistics.quantiles(times[:, 0] / times[:, 1], n=4)
        report |= {f"{name}ratio": middle, f"{name}quartiles": [low, high]}
    return report


def against_encoding(folder: Path, pairs: int, batch: int = 128, batches: int = 8) -> dict:
    "Batches of training images: encoded in the loop, or read from the store"
    backbone = load_backbone(shipped_run() / "backbone")
    corpus = load_corpus("pictograms", progress=False)
    encode_shards(backbone, corpus, "validation", folder / "pictures", rank=0, world_size=1)
    store = open_store(folder / "pictures")["image"]
    pictures = corpus.visuals("validation")
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(pictures), (batches, batch))

    def encode(numbers):
        return backbone.encode_pictures([pictures[int(i)] for i in numbers])

    times = compared(encode, store.__getitem__, rows, pairs, 1)
    n = batch * batches
    return dict(
        tower=backbone.name,
        batch=batch,
        pairs=pairs,
        times_faster=times["ratio"],
        quartiles=times["quartiles"],
        encoded_per_s=n / times["first_s"],
        cached_per_s=n / times["second_s"],
    )


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
            began = time.perf_counter()
            write_tensors(tensors, store / shard.name, store=plan.digest)
            shards_s += time.perf_counter() - began
    ids_s = timed(lambda: write_json(dict(image=ids), store / "ids.json", readable=False))
    return dict(
        rows=n,
        width=width,
        shards=len(plan.shards),
        gigabytes=n * width * 2 / 1e9,
        write_shards_s=shards_s,
        write_ids_s=ids_s,
        finish_s=timed(lambda: finish_store(store)),
    )


def memory() -> dict:  # MB
    "Resident memory of this process: private memory, and pages of files, which the system may reclaim"
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)

    def megabytes(name):
        return int(status[name].split()[0]) / 1e3

    return dict(own_mb=megabytes("RssAnon"), files_mb=megabytes("RssFile"))


def opened(folder: Path) -> dict:
    "Time and memory of opening a store, of a batch, of a thousand batches, and of finding ids"
    before = memory()
    began = time.perf_counter()
    store = open_store(folder)
    open_s = time.perf_counter() - began
    rows = store["image"]
    after = memory()
    rng = np.random.default_rng(1)
    first = timed(lambda: rows[rng.integers(0, len(rows), 128)])
    thousand = timed(lambda: each(rows.__getitem__, rng.integers(0, len(rows), (1000, 128))))
    ids_s = timed(lambda: store.ids["image"])
    return dict(
        open_s=open_s,
        first_batch_s=first,
        thousand_batches_s=thousand,
        read_ids_s=ids_s,
        before=before,
        after_opening=after,
        after_batches=memory(),
    )


def against_memory_map(folder: Path, n: int, width: int, pairs: int, batch: int) -> dict:
    "Random batches of the large store and of one memory map, as float32 tensors"
    store = open_store(folder / "large")["image"]
    plain = np.memmap(folder / "plain.npy", np.float16, "r", shape=(n, width))
    rng = np.random.default_rng(batch)
    rows = rng.integers(0, n, (-(-50_000 // batch), batch))
    torch.testing.assert_close(store[rows[0]], torch.from_numpy(plain[rows[0]]).float(), rtol=0, atol=0)

    def plain_float32(numbers):
        return torch.from_numpy(plain[numbers]).float()

    sides = dict(float32=(plain_float32, store.__getitem__))
    report = dict(batch=batch)
    for name, (plain_rows, store_rows) in sides.items():
        times = compared(plain_rows, store_rows, rows, pairs)
        report[name] = dict(
            plain_us=1e6 * times["first_s"] / len(rows),
            store_us=1e6 * times["second_s"] / len(rows),
            of_plain=times["ratio"],
            quartiles=times["quartiles"],
            of_plain_cpu=times["cpu_ratio"],
            quartiles_cpu=times["cpu_quartiles"],
            pairs=pairs,
        )
    return report


def opened_in_a_child(folder: Path, threads: int) -> dict:
    "`opened` in a process of its own"
    command = [sys.executable, __file__, "--threads", str(threads), "--opened", str(folder)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def check_space(folder: Path, rows: int, width: int) -> None:
    need = 2 * rows * width * 2 + 1e9
    free = shutil.disk_usage(folder).free
    if free < need:
        raise SystemExit(
            f"{free / 1e9:.0f} GB free in {folder}, {need / 1e9:.0f} needed: use fewer --rows or another --folder"
        )


def measure(a: argparse.Namespace, folder: Path) -> dict:
    return dict(
        machine=platform.machine(),
        threads=a.threads,
        torch=torch.__version__,
        numpy=np.__version__,
        encoding=against_encoding(folder, a.pairs),
        large=large_store(folder, a.rows, a.width),
        first_opening=opened_in_a_child(folder / "large", a.threads),
        later_opening=opened_in_a_child(folder / "large", a.threads),
        memory_map=[against_memory_map(folder, a.rows, a.width, a.pairs, batch) for batch in (128, 1024)],
    )


def print_report(report: dict, a: argparse.Namespace) -> None:
    print(
        f"{a.threads} thread(s), torch {torch.__version__}, numpy {np.__version__}, {platform.machine()}; "
        f"medians of {a.pairs} pairs [quartiles]\n"
    )
    encoding = report["encoding"]
    low, high = encoding["quartiles"]
    print(
        f"cached batches of {encoding['batch']}: × {encoding['times_faster']:,.0f} [{low:,.0f}–{high:,.0f}] "
        f"the rate of encoding in the loop ({encoding['cached_per_s']:,.0f} and "
        f"{encoding['encoded_per_s']:,.0f} rows/s)"
    )
    for row in report["memory_map"]:
        print_memory_map(row)
    print_large_store(report)


def percent(ratio: float, quartiles: list[float]) -> str:
    low, high = quartiles
    return f"{100 * ratio:.0f} % [{100 * low:.0f}–{100 * high:.0f}]"


def print_memory_map(row: dict) -> None:
    for label in ("float32",):
        c = row[label]
        print(
            f"batches of {row['batch']:,} in {label}: {percent(c['of_plain'], c['quartiles'])} of the rate of a plain "
            f"memory map by wall time, {percent(c['of_plain_cpu'], c['quartiles_cpu'])} by CPU time "
            f"({c['store_us']:.0f} and {c['plain_us']:.0f} µs)"
        )


def print_large_store(report: dict) -> None:
    large = report["large"]
    first = report["first_opening"]
    later = report["later_opening"]
    print(
        f"{large['rows']:,} rows in {large['shards']} shards, {large['gigabytes']:.1f} GB: written in "
        f"{large['write_shards_s']:.0f} s, ids in {large['write_ids_s']:.1f} s, finished in {large['finish_s']:.2f} s; "
        f"first opening {first['open_s']:.1f} s, later ones {later['open_s']:.2f} s"
    )
    before, opened, after = (later[k] for k in ("before", "after_opening", "after_batches"))
    print(
        f"private memory: {before['own_mb']:.0f} MB before opening, {opened['own_mb']:.0f} after, "
        f"{after['own_mb']:.0f} after a thousand batches, which read "
        f"{after['files_mb'] - before['files_mb']:,.0f} MB of pages; "
        f"ids read in {1e3 * later['read_ids_s']:.0f} ms"
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=3_000_000)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--folder", help="on the disk to measure; twice the size of the store is written and removed")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--opened", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    if a.opened:
        print(json.dumps(opened(a.opened)))
        return
    folder = Path(tempfile.mkdtemp(dir=a.folder))
    try:
        check_space(folder, a.rows, a.width)
        report = measure(a, folder)
    finally:
        shutil.rmtree(folder)
    print_report(report, a)
    if a.json:
        write_json(report, a.json)


if __name__ == "__main__":
    main()
