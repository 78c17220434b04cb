"""The cost of a generated adapter at query time: DASD and the static adapter compared with the plain text tower

    python tools/bench/query.py [--repeats 9] [--threads 1] [--json FILE]

Weights are random, since times do not depend on them. The three are timed in alternation, so other work on the machine
affects all of them; a ratio is the median of the ratios of all repeats, with quartiles. Tokenization is not included:
token ids become vectors of the shared space."""

import argparse
import platform
import statistics
import time

import torch

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, attention, build_clip
from dasd_lab.dasd.encoder import DASD, DASDConfig, StaticAdapter, StaticAdapterConfig

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


def timed(call) -> float:  # seconds
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@torch.inference_mode()
def measure(size: dict, batch: int, repeats: int) -> dict:
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
        for call in calls.values():
            call()
            call()
        seconds = [{name: timed(call) for name, call in calls.items()} for _ in range(repeats)]
    row = dict(captions=batch, plain_ms=1e3 * statistics.median(s["plain"] for s in seconds))
    for name in ("static", "dasd"):
        low, middle, high = statistics.quantiles([s[name] / s["plain"] for s in seconds], n=4)
        row |= {name: middle, f"{name}_quartiles": [low, high]}
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--repeats", type=int, default=9)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    rows = [dict(tower=name, **measure(size, batch, a.repeats)) for name, size in SIZES.items() for batch in (1, 64)]
    print(
        f"{a.threads} thread(s), torch {torch.__version__}, {platform.machine()}, "
        f"median of {a.repeats} repeats [quartiles]\n"
    )
    print("| text tower | captions | plain tower | static adapter | DASD |\n|---|---:|---:|---:|---:|")

    def spread(r, n):
        return f"× {r[n]:.2f} [{r[n + '_quartiles'][0]:.2f}–{r[n + '_quartiles'][1]:.2f}]"

    for r in rows:
        print(
            f"| {r['tower']} | {r['captions']} | {r['plain_ms']:.1f} ms | {spread(r, 'static')} | {spread(r, 'dasd')} |"
        )
    if a.json:
        from dasd_lab.storage import write_json

        write_json(
            dict(threads=a.threads, torch=torch.__version__, machine=platform.machine(), repeats=a.repeats, rows=rows),
            a.json,
        )


if __name__ == "__main__":
    main()
