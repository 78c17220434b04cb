"""The cost of every model that can be used at once: parameters, memory, processor time of an image and of a query

    python tools/bench/models.py [--rounds 7] [--json data/results/models.json]

The shipped models are those in `data/weights`. Models of the catalogue are built with random weights of the real shape,
which cost the same. One thread, processor time, and the shortest of several calls."""

import gc
from collections.abc import Callable, Iterator

import torch
from measuring import arguments, in_turn, keep

from dasd_lab.backbone.open_clip import ENCODERS, registry_config
from dasd_lab.backbone.towers import build
from dasd_lab.backbone.weights import CATALOGUE, two_towers
from dasd_lab.methods.baselines.multilingual import Multilingual
from dasd_lab.runs.loading import load_run

QUERY = "zwei Hunde rennen durch den Schnee"
QUERY_TOKENS = 12  # of a catalogue's model that need not read its whole context
SHIPPED = "photographs", "pictograms", "photographs/multilingual"
Parts = tuple[int, Callable[[], object], Callable[[], object]]  # parameters; encode an image, encode a query


def shipped_parts(name: str) -> Parts:
    "A shipped model, with its method"
    method = load_run(name)
    backbone = method.backbone
    pixels = torch.rand(1, 3, backbone.image_size, backbone.image_size)
    encoder = [method.encoder] if isinstance(method, Multilingual) else []
    parameters = {id(p): p.numel() for module in (backbone, method, *encoder) for p in module.parameters()}
    return (
        sum(parameters.values()),
        lambda: backbone.encode_pixels(pixels),
        lambda: method.encode_captions([QUERY], "de"),
    )


def catalogue_parts(name: str) -> Parts:
    "A model of the catalogue with random weights"
    config = registry_config(CATALOGUE[name].opens)
    encoder = config["text_cfg"].get("hf_model_name")
    if encoder:
        config["text_cfg"]["encoder"] = ENCODERS[encoder]
    model, text = build("open_clip_encoder" if encoder else "open_clip", config)
    model.eval()
    side = config["vision_cfg"]["image_size"]
    pixels = torch.rand(1, 3, side, side)
    length = text.context_length if text.whole_context or not encoder else QUERY_TOKENS
    ids = torch.randint(3, 1000, (1, length))
    end = torch.tensor([length - 1])
    count = sum(p.numel() for p in model.parameters())
    return count, lambda: model.encode_image(pixels), lambda: text.encode_ids(ids, end)


@torch.inference_mode()
def measured(parts: Parts, rounds: int) -> dict:
    "Parameters, memory and times of a model"
    parameters, image, query = parts
    took = in_turn(dict(image=image, query=query), rounds)
    times = {f"{name}_cpu_ms": round(1000 * min(values), 2) for name, values in took.items()}
    return dict(parameters=parameters, weights_MB=round(4 * parameters / 1e6)) | times


def rows(rounds: int) -> Iterator[tuple[str, dict]]:
    "Every model in turn, one in memory at a time"
    for name in SHIPPED:
        yield name, measured(shipped_parts(name), rounds)
    for name in two_towers():
        if CATALOGUE[name].opens == "transformers":
            continue  # its configuration comes with its weights
        yield name, measured(catalogue_parts(name), rounds)
        gc.collect()


def main() -> None:
    a = arguments(__doc__)
    found = dict(rows(a.rounds))
    command = f"python tools/bench/models.py --json {a.json}"
    keep(a, dict(command=command, models=found), [dict(model=name, **row) for name, row in found.items()])


if __name__ == "__main__":
    main()
