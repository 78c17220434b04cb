"""The cost of one language on OpenAI's CLIP from parallel text, with random weights of the real shape

    python tools/bench/clip_from_text.py --captions FILE [--languages de] [--steps 8] [--threads 1] [--json FILE]

Leaves what `dasd-lab weights get clip-vit-b-32` and `weights get mbert` leave (the catalogue's checksums are set to
those of the random weights), then runs the command `dasd-lab train dasd.clip_from_text` with few steps, and times each
step. Time and memory do not depend on the values of the weights; recall does, and is not measured."""

import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from measuring import arguments, keep
from tokenizers import AddedToken

from dasd_lab.backbone.open_clip import registry_config
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.presets import load_preset
from dasd_lab.base.storage import sha256, write_tensors
from dasd_lab.commands.cli import main
from dasd_lab.corpora.own.parallel import read_parallel
from dasd_lab.training import runs

PRESET = "dasd.clip_from_text"


def leave(name: str, tensors: dict, texts: dict[str, str], folder: Path) -> None:
    "Import random weights under a name of the catalogue"
    download = folder / f"download-{name}"
    download.mkdir()
    entry = CATALOGUE[name]
    path = download / next(iter(entry.files))
    write_tensors(tensors, path)
    CATALOGUE[name] = replace(entry, files=entry.files | {path.name: sha256(path)})
    for file, text in texts.items():
        (download / file).write_text(text, encoding="utf-8")
    import_weights(name, download)


def leave_all(captions: list[str], folder: Path) -> None:
    "CLIP's ViT-B/32 and as many token vectors as multilingual BERT has"
    preset = load_preset(PRESET)
    torch.manual_seed(0)
    leave("clip-vit-b-32", build_clip(registry_config(preset["backbone"]["open_clip"])).state_dict(), {}, folder)
    n_tokens = preset["token_vectors"]["n_tokens"]
    words = train_tokenizer(captions, 8000).tokenizer
    words.add_tokens([AddedToken(f"unused{i}") for i in range(n_tokens - words.get_vocab_size())])
    rows = 0.02 * torch.randn(n_tokens, preset["config"]["token_width"])
    texts = {"tokenizer.json": words.to_str(), "config.json": "{}"}
    leave("mbert", {"bert.embeddings.word_embeddings.weight": rows}, texts, folder)


def timed_steps() -> list[tuple[float, float]]:  # filled while training: wall and CPU seconds of each step
    "Time every training step of this process"
    seconds = []
    step = runs.train_step

    def timed(*args, **options):
        wall, cpu = time.perf_counter(), time.process_time()
        result = step(*args, **options)
        seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
        return result

    runs.train_step = timed
    return seconds


def measure(captions: str, language: str, steps: int, threads: int) -> dict:
    "Figures of a short run"
    pairs = read_parallel(Path(captions), language, recognise=False).pairs
    with tempfile.TemporaryDirectory() as d:
        os.environ["DASD_LAB_WEIGHTS"] = f"{d}/weights"
        leave_all([text for pair in pairs for text in (pair.source, pair.target)], Path(d))
        seconds = timed_steps()
        words = ["train", PRESET, "--captions", captions, "--languages", language, "--out", f"{d}/run"]
        words += ["--set", f"stages.0.steps={steps}", "--checkpoint-every", "0", "--select-every", str(steps)]
        if main(words):
            sys.exit(1)
        card = json.loads(Path(d, "run/card.json").read_text(encoding="utf-8"))
        run_bytes = sum(f.stat().st_size for f in Path(d, "run").rglob("*") if f.is_file())
    stage = load_preset(PRESET)["stages"][0]
    cpu = statistics.median(cpu for _, cpu in seconds[1:])
    return dict(
        command=" ".join(["python tools/bench/clip_from_text.py", *sys.argv[1:]]),
        processor=platform.processor() or platform.machine(),
        threads=threads,
        pairs=len(pairs),
        batch_size=stage["batch_size"],
        steps=steps,
        step_cpu_s=round(cpu, 3),
        step_wall_s=round(statistics.median(wall for wall, _ in seconds[1:]), 3),
        preset_steps=stage["steps"],
        preset_cpu_hours=round(cpu * stage["steps"] / 3600, 2),
        peak_MB=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        parameters=card["parameters"],
        run_MB=round(run_bytes / 1e6),
    )


if __name__ == "__main__":
    options = dict(captions=dict(required=True), languages=dict(default="de"), steps=dict(type=int, default=8))
    a = arguments(__doc__, **options)
    found = measure(a.captions, a.languages, a.steps, a.threads)
    keep(a, found, [dict(figure=name, value=str(value)) for name, value in found.items()])
