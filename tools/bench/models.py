"""The cost of every model that can be used at once: parameters, memory, processor time of an image and of a query

    python tools/bench/models.py [--rounds 7] [--json data/results/models.json]

The shipped models are those in `data/weights`. Models of the catalogue are built with random weights of the real shape,
which cost the same. One thread, processor time, and the shortest of several calls."""

from functools import partial

import torch
from measuring import arguments, in_turn, keep

from dasd_lab.backbone.open_clip import clip_tokenizer, offline_config, registry_config
from dasd_lab.backbone.towers import Backbone, build
from dasd_lab.backbone.weights import CATALOGUE, two_towers
from dasd_lab.methods.baselines.teacher import Teacher
from dasd_lab.runs.loading import load_run

QUERY = "zwei Hunde rennen durch den Schnee"
QUERY_TOKENS = 12  # of a catalogue's model that need not read its whole context
SHIPPED = "photographs", "pictograms", "photographs/multilingual"


def parts(name: str) -> tuple:  # modules, call that encodes an image, call that encodes a query
    "A shipped model, or one of the catalogue with random weights"
    if name in SHIPPED:
        method = load_run(name)
        backbone = method.backbone
        modules = [backbone, method, *([method.encoder] if isinstance(method, Teacher) else [])]
        query = partial(method.encode_captions, [QUERY], "de")
    else:
        config, kind = offline_config(registry_config(CATALOGUE[name].opens))
        clip, text = build(kind, config)
        backbone = Backbone(clip, clip_tokenizer(), config, text=text, kind=kind)
        modules = [backbone]
        tokens = text.context_length if text.whole_context or kind == "open_clip" else QUERY_TOKENS
        query = partial(text.encode_ids, torch.randint(3, 1000, (1, tokens)), torch.tensor([tokens - 1]))
    side = backbone.image_size
    return modules, partial(backbone.encode_pixels, torch.rand(1, 3, side, side)), query


@torch.inference_mode()
def measured(name: str, rounds: int) -> dict:
    "Parameters, memory and times of a model"
    modules, image, query = parts(name)
    parameters = sum({id(p): p.numel() for module in modules for p in module.parameters()}.values())
    took = in_turn(dict(image=image, query=query), rounds)
    times = {f"{part}_cpu_ms": round(1000 * s, 2) for part, s in took.min().items()}
    return dict(parameters=parameters, weights_MB=round(4 * parameters / 1e6)) | times


def main() -> None:
    a = arguments(__doc__)
    # the configuration of a model of transformers comes with its weights
    catalogue = [name for name in two_towers() if CATALOGUE[name].opens != "transformers"]
    found = {name: measured(name, a.rounds) for name in (*SHIPPED, *catalogue)[: 2 if a.tiny else None]}
    keep(a, dict(models=found), [dict(model=name, **row) for name, row in found.items()])


if __name__ == "__main__":
    main()
