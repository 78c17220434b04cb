"""Torch beside exported graphs: captions, images, an import, a cold search with its memory, and recall by language

    python tools/bench/backends.py [--rounds 9] [--threads 1] [--json FILE]

The graphs of `photographs` are written first if they are missing. The commands run in processes of their own, whose
processor time includes every import; those with graphs find no torch and no pandas, as where the extra `light` alone is
installed. Recall is that of the graphs in float32 and in eight bits, without concepts, on at most 2,000 test captions
of Flickr8k a language."""

import os
import subprocess
import sys
import tempfile
from functools import partial

import numpy as np
from measuring import arguments, in_turn, keep

from dasd_lab.base.methods import as_array, unit
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.backends import BACKEND_VARIABLE, BACKENDS, load

PRECISION = "DASD_LAB_PRECISION"  # of torch
KINDS = {"torch": ("torch", "float32"), "torch, bf16 where it can": ("torch", "auto")}
KINDS |= {name: (name, "float32") for name in BACKENDS if name != "torch"}


RUN = """
import os, sys, time
if os.environ["DASD_LAB_BACKEND"] != "torch":
    class Missing:
        def find_spec(self, name, *_):
            if name in ("torch", "pandas"):
                raise ModuleNotFoundError(name, name=name)
    sys.meta_path.insert(0, Missing())
from dasd_lab.commands.cli import main
assert main(sys.argv[1:]) == 0
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(time.process_time(), peak, "torch" in sys.modules)
"""


def command(kind: str, *words: str) -> dict:
    "Processor seconds and memory of a command in a fresh process"
    backend, precision = KINDS[kind]
    chosen = os.environ | {BACKEND_VARIABLE: backend, PRECISION: precision}
    done = subprocess.run([sys.executable, "-c", RUN, *words], env=chosen, capture_output=True, text=True, check=True)
    cpu, peak, torch = done.stdout.splitlines()[-1].split()
    return dict(cpu_s=float(cpu), megabytes=round(int(peak) / 1e3), torch=torch == "True")


def recall(method, corpus, images: np.ndarray, language: str) -> float:
    "Mean of text-to-image recall at 1, 5 and 10, in per cent"
    method.concepts = None
    captions = np.random.default_rng(0).permutation(np.array(corpus.captions("test", language), object))[:2000]
    scores = unit(as_array(method.encode_captions([c.text for c in captions], language))) @ unit(images).T
    right = [corpus.visuals("test").index_of(c.visual_id) for c in captions]
    ranks = (scores > scores[np.arange(len(right)), right][:, None]).sum(1)
    return 100 * float(np.mean([(ranks < k).mean() for k in (1, 5, 10)]))


def main() -> None:
    a = arguments(__doc__, 9)
    corpus = load_corpus("everyday")
    captions = [c.text for c in corpus.captions("test", "de")][:64]
    methods = {kind: load("photographs", backend=backend) for kind, (backend, _) in KINDS.items()}
    for kind, (_, precision) in KINDS.items():
        methods[kind].backbone.precision = precision
    work = dict(
        caption={kind: partial(m.encode_captions, captions[:1], "de") for kind, m in methods.items()},
        captions_64={kind: partial(m.encode_captions, captions, "de") for kind, m in methods.items()},
        images_8={kind: partial(m.visual_columns, list(corpus.visuals("test"))[:8]) for kind, m in methods.items()},
    )
    facts = {name: (1e3 * in_turn(calls, a.rounds).median()).to_dict() for name, calls in work.items()}
    flickr = load_corpus("flickr8k")
    images = methods["onnx"].backbone.encode_pictures(list(flickr.visuals("test")))
    facts["recall"] = {
        k: {code: recall(methods[k], flickr, images, code) for code in flickr.languages} for k in list(KINDS)[2:]
    }
    facts["import torch"] = dict(
        cpu_s=float(subprocess.check_output([sys.executable, "-c", "import time, torch; print(time.process_time())"]))
    )
    with tempfile.TemporaryDirectory() as d:
        facts["import"] = {
            k: command(k, "gallery", "import", str(corpus.root / "test"), "--gallery", f"{d}/{i}")
            for i, k in enumerate(KINDS)
        }
        facts["search"] = {k: command(k, "search", "ein Hund am Strand", "--gallery", f"{d}/0") for k in KINDS}
    keep(a, facts, [dict(what=name) | {k: str(v) for k, v in row.items()} for name, row in facts.items()])


if __name__ == "__main__":
    main()
