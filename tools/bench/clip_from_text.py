"""The cost of one language on OpenAI's CLIP from parallel text, with random weights of the real shape

    python tools/bench/clip_from_text.py --captions FILE [--languages de] [--steps 8] [--threads 1] [--json FILE]

Leaves what `dasd-lab weights get clip-vit-b-32` and `weights get mbert` leave (the catalogue's checksums are set to
those of the random weights), then runs the command `dasd-lab train dasd.clip_from_text` with few steps, and times each
step. Time and memory do not depend on the values of the weights; recall does, and is not measured."""

import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from measuring import arguments, keep
from tokenizers import AddedToken

from dasd_lab.backbone.open_clip import registry_config
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.presets import load_preset, read_json
from dasd_lab.base.storage import sha256, write_json, write_tensors
from dasd_lab.commands.cli import main
from dasd_lab.corpora.own.parallel import read_parallel
from dasd_lab.training import runs

PRESET = "dasd.clip_from_text"


def leave(name: str, tensors: dict, folder: Path) -> None:
    "Import random weights under a name of the catalogue"
    entry = CATALOGUE[name]
    path = folder / next(iter(entry.files))
    write_tensors(tensors, path)
    CATALOGUE[name] = replace(entry, files=entry.files | {path.name: sha256(path)})
    import_weights(name, folder)
    path.unlink()


def leave_all(captions: list[str], folder: Path) -> None:
    "CLIP's ViT-B/32 and as many token vectors as multilingual BERT has"
    preset = load_preset(PRESET)
    torch.manual_seed(0)
    leave("clip-vit-b-32", build_clip(registry_config(preset["backbone"]["open_clip"])).state_dict(), folder)
    n_tokens = preset["token_vectors"]["n_tokens"]
    words = train_tokenizer(captions, 8000).tokenizer
    words.add_tokens([AddedToken(f"unused{i}") for i in range(n_tokens - words.get_vocab_size())])
    words.save(str(folder / "tokenizer.json"))
    write_json({}, folder / "config.json")
    rows = 0.02 * torch.randn(n_tokens, preset["config"]["token_width"])
    leave("mbert", {"bert.embeddings.word_embeddings.weight": rows}, folder)


def measure(a) -> dict:
    "Figures of a short run"
    pairs = read_parallel(Path(a.captions), a.languages, recognise=False).pairs
    took = []
    step = runs.train_step

    def timed(*args, **options):
        before = np.array((time.process_time(), time.perf_counter()))
        result = step(*args, **options)
        took.append(np.array((time.process_time(), time.perf_counter())) - before)
        return result

    runs.train_step = timed
    with tempfile.TemporaryDirectory() as d:
        os.environ["DASD_LAB_WEIGHTS"] = f"{d}/weights"
        leave_all([text for pair in pairs for text in (pair.source, pair.target)], Path(d))
        words = ["train", PRESET, "--captions", a.captions, "--languages", a.languages, "--out", f"{d}/run"]
        words += ["--set", f"stages.0.steps={a.steps}", "--checkpoint-every", "0", "--select-every", str(a.steps)]
        if main(words):
            sys.exit(1)
        parameters = read_json(f"{d}/run/card.json")["parameters"]
        run_bytes = sum(f.stat().st_size for f in Path(d, "run").rglob("*") if f.is_file())
    stage = load_preset(PRESET)["stages"][0]
    cpu, wall = np.median(took[1:], 0).round(3).tolist()
    return dict(
        pairs=len(pairs),
        batch_size=stage["batch_size"],
        steps=a.steps,
        step_cpu_s=cpu,
        step_wall_s=wall,
        preset_steps=stage["steps"],
        preset_cpu_hours=round(cpu * stage["steps"] / 3600, 2),
        peak_MB=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        parameters=parameters,
        run_MB=round(run_bytes / 1e6),
    )


if __name__ == "__main__":
    options = dict(captions=dict(required=True), languages=dict(default="de"), steps=dict(type=int, default=8))
    a = arguments(__doc__, **options)
    found = measure(a)
    keep(a, found, [dict(figure=name, value=str(value)) for name, value in found.items()])
