"""The cost of a generated adapter at query time: DASD and the static adapter compared with the plain text tower

    python tools/bench/query.py [--rounds 9] [--threads 1] [--json FILE]

Weights are random, since times do not depend on them. The three are timed in alternation, so other work on the machine
affects all of them; a ratio is the median of the ratios of all rounds, with quartiles. Tokenization is not included:
token ids become vectors of the shared space."""

import time

import torch
from measuring import arguments, in_turn, keep, ratio

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, attention, build_clip
from dasd_lab.methods.dasd.encoder import DASD, DASDConfig, StaticAdapter, StaticAdapterConfig

VOCABULARY = 1000
SIZES = {
    "small (4 blocks, width 128)": dict(layers=4, width=128, heads=4, embed=128, tokens=16),
    "CLIP ViT-B/32 (12 blocks, width 512)": dict(layers=12, width=512, heads=8, embed=512, tokens=16),
}


def models(layers: int, width: int, heads: int, embed: int, tokens: int):
    "A tower and two methods on it, with random weights"
    torch.manual_seed(0)
    config = dict(
        embed_dim=embed,
        vision_cfg=dict(image_size=32, layers=1, width=64, patch_size=16, head_width=32),
        text_cfg=dict(
            context_length=max(tokens, 77),
            vocab_size=VOCABULARY,
            width=width,
            heads=heads,
            layers=layers,
            pool_type="eos",
            eos_id=3,
        ),
    )
    tokenizer = train_tokenizer(["one two three"], 80)
    backbone = Backbone(build_clip(config), tokenizer, config)
    return (
        backbone,
        StaticAdapter(StaticAdapterConfig(), backbone, VOCABULARY).eval(),
        DASD(DASDConfig(), backbone, VOCABULARY).eval(),
    )


@torch.inference_mode()
def measure(size: dict, batch: int, rounds: int) -> dict:
    "Medians of one size and batch"
    backbone, static, dasd = models(**size)
    ids = torch.randint(4, VOCABULARY, (batch, size["tokens"]))
    ids[:, -1] = 3
    end = torch.full((batch,), size["tokens"] - 1)
    calls = dict(
        plain=lambda: backbone.source_from_ids(ids, end),
        static=lambda: static.features(ids, end, "de"),
        dasd=lambda: dasd.features(ids, end, "de"),
    )
    with attention(torch.device("cpu")):
        took = in_turn(calls, rounds, time.perf_counter)
    row = dict(captions=batch, plain_ms=1e3 * took["plain"].median())
    for name in ("static", "dasd"):
        found = ratio(took[name], took["plain"], name)
        row |= {name: found[name], f"{name}_quartiles": found["quartiles"]}
    return row


def main() -> None:
    a = arguments(__doc__, 9)
    rows = [dict(tower=name, **measure(size, batch, a.rounds)) for name, size in SIZES.items() for batch in (1, 64)]
    keep(a, dict(rows=rows), rows)


if __name__ == "__main__":
    main()
