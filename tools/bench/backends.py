"""Torch beside exported graphs: captions, images, an import, a cold search with its memory, and recall by language

    python tools/bench/backends.py [--model FOLDER] [--rounds 9] [--threads 1] [--json FILE]

The graphs of `photographs` are written first if they are missing. The commands run in processes of their own, whose
processor time includes every import; those with graphs find no torch and no pandas, as where the extra `light` alone is
installed. Recall is that of the graphs in float32 and in eight bits, without concepts, on at most 2,000 test captions
of Flickr8k a language.

With --model, a folder of sentence-transformers with graphs of all-MiniLM-L6-v2, captions a second beside it instead, in
an environment with sentence-transformers[onnx], which needs transformers 4."""

import subprocess
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
from measuring import arguments, in_turn, keep

from dasd_lab.base.methods import as_array, unit
from dasd_lab.commands.timing import encoding_jobs, fresh_command
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.backends import BACKENDS, load

KINDS = {"torch": ("torch", "float32"), "torch, bf16 where it can": ("torch", "auto")}
KINDS |= {name: (name, "float32") for name in BACKENDS if name != "torch"}


def fresh(kind: str, *words: str) -> dict:
    "A command in a process of its own; with graphs where the extra `light` alone is installed"
    backend, precision = KINDS[kind]
    without = [] if backend == "torch" else ["torch", "pandas"]
    return fresh_command(backend, *words, without=without, DASD_LAB_PRECISION=precision)


def recall(method, corpus, images: np.ndarray, language: str) -> float:
    "Mean of text-to-image recall at 1, 5 and 10, in per cent"
    method.concepts = None
    captions = np.random.default_rng(0).permutation(np.array(corpus.captions("test", language), object))[:2000]
    scores = unit(as_array(method.encode_captions([c.text for c in captions], language))) @ unit(images).T
    right = [corpus.visuals("test").index_of(c.visual_id) for c in captions]
    ranks = (scores > scores[np.arange(len(right)), right][:, None]).sum(1)
    return 100 * float(np.mean([(ranks < k).mean() for k in (1, 5, 10)]))


def beside(model: Path, a: Namespace) -> None:
    "English captions by the text tower of `photographs`, and by sentence-transformers from graphs of the same weights"
    from sentence_transformers import SentenceTransformer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    captions = [c.text for c in load_corpus("everyday").captions("test", "en")][:64]
    calls = {k: partial(load("photographs", backend=k).backbone.encode_source, captions) for k in list(BACKENDS)[1:]}
    for path in sorted(model.glob("onnx/*.onnx")):
        graph = dict(file_name=f"onnx/{path.name}", session_options=options, provider="CPUExecutionProvider")
        theirs = SentenceTransformer(str(model), backend="onnx", device="cpu", model_kwargs=graph)
        calls[path.stem] = partial(theirs.encode, captions, batch_size=64)
    rates = (len(captions) / in_turn(calls, a.rounds)).median().to_dict()
    keep(a, dict(captions_a_second=rates), [rates], "sentence_transformers")


def main() -> None:
    a = arguments(__doc__, 9, model=dict(type=Path))
    if a.model:
        beside(a.model, a)
        return
    corpus = load_corpus("everyday")
    captions = [c.text for c in corpus.captions("test", "de")][:64]
    methods = {kind: load("photographs", backend=backend) for kind, (backend, _) in KINDS.items()}
    for kind, (_, precision) in KINDS.items():
        methods[kind].backbone.precision = precision
    jobs = encoding_jobs(methods, captions, "de", list(corpus.visuals("test"))[:8])
    facts = {job: (1e3 * in_turn(calls, a.rounds).median()).to_dict() for job, calls in jobs.items()}
    flickr = load_corpus("flickr8k")
    images = methods["onnx"].backbone.encode_pictures(list(flickr.visuals("test")))
    facts["recall"] = {
        k: {code: recall(methods[k], flickr, images, code) for code in flickr.languages} for k in list(KINDS)[2:]
    }
    torch = [sys.executable, "-c", "import time, torch; print(time.process_time())"]
    facts["import torch"] = dict(cpu_s=min(float(subprocess.check_output(torch)) for _ in range(3)))
    with tempfile.TemporaryDirectory() as d:
        pictures = "gallery", "import", str(corpus.root / "test"), "--gallery"
        facts["import"] = {k: fresh(k, *pictures, f"{d}/{i}") for i, k in enumerate(KINDS)}
        search = "search", "ein Hund am Strand", "--gallery", f"{d}/0"
        found = [{k: fresh(k, *search) for k in KINDS} for _ in range(4)][1:]
        facts["search"] = {k: pd.DataFrame([row[k] for row in found]).median().to_dict() for k in KINDS}
    keep(a, facts, [dict(what=name) | {k: str(v) for k, v in row.items()} for name, row in facts.items()])


if __name__ == "__main__":
    main()
