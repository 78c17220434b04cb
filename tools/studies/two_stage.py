"""LECCR's search in two stages: how many of the best pictures it keeps, and how much of a full search's time it takes

    python tools/studies/two_stage.py [--run FOLDER] [--queries 500] [--pairs 9] [--json FILE]

The gallery holds every picture of the built-in corpus, training pictures too: 26,000, of which a query has but few that
fit. The full score compares a caption with all slots of all pictures; in two stages the cosine chooses `head` of them
first. Both are timed in turn on the same caption vectors; a ratio is the median of the pairs', with their quartiles."""

import argparse
import statistics
import time
from pathlib import Path

import torch
from tqdm.auto import tqdm

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import cosine_scores
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import slice_scores
from dasd_lab.search.gallery.in_memory import Gallery, best_of_slices
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

HEADS = 50, 100, 200, 500, 1000, 2000, 5000
K = 10


def spent(call) -> float:  # seconds of this thread
    began = time.thread_time()
    call()
    return time.thread_time() - began


def main(run: Path | None, n: int, pairs: int, out: Path | None) -> None:
    torch.set_num_threads(1)
    method = load_run(run) if run else load_method(shipped_run() / "leccr", load_backbone(shipped_run() / "backbone"))
    if method.by_cosine:
        raise SystemExit(f"{method.name} scores by the cosine alone: nothing to do in two stages")
    corpus = load_corpus("pictograms")
    gallery = Gallery(method.eval())
    for split in ("test", "validation", "train"):
        gallery.add_split(corpus, split, tqdm)
    languages = [language for language in method.languages if language in corpus.languages]
    share = -(-n // len(languages))
    captions = [
        (c.text, language, c.visual_id)
        for language in languages
        for c in corpus.captions("test", language, "human")[:share]
    ]
    vectors = torch.cat([method.encode_captions([c], l) for c, l, _ in captions])

    def best(v, head):
        gallery.head = head
        return gallery.best_places(v[None], K)

    full = [best(v, 0)[0] for v in vectors]
    wanted = [gallery.places[i] for _, _, i in captions]
    rows = []
    # what the cosine finds by itself
    alone = [
        best_of_slices(
            lambda part: slice_scores(cosine_scores, v[None], gallery.visuals, part)[0], len(gallery), K, 4096
        )[0]
        for v in vectors
    ]

    def kept(found):
        return dict(
            kept=sum(len({*a} & {*b}) for a, b in zip(full, found)) / K / len(full),
            same_order=sum(a == b for a, b in zip(full, found)) / len(full),
            first=sum(a[0] == b[0] for a, b in zip(full, found)) / len(full),
            recall=hit(found),
        )

    def hit(found):
        return sum(w in f for w, f in zip(wanted, found)) / len(wanted)

    for head in HEADS:
        found = [best(v, head)[0] for v in vectors]
        ratios = []
        for i in range(pairs):
            some = vectors[i::pairs][:40]
            two, one = 0.0, 0.0
            for v in some:
                two += spent(lambda: best(v, head))
                one += spent(lambda: best(v, 0))
            ratios.append(two / one)
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(dict(head=head, **kept(found), time=middle, quartiles=[low, high]))
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()})
    report = dict(
        pictures=len(gallery),
        queries=len(vectors),
        languages=languages,
        slots=method.config.slots.n,
        k=K,
        full_recall=hit(full),
        cosine_alone=kept(alone),
        rows=rows,
    )
    print({k: v for k, v in report.items() if k != "rows"})
    if out:
        write_json(report, out)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--run", type=Path, help="a LECCR run (default: the shipped one)")
    p.add_argument("--queries", type=int, default=500)
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--json", type=Path, dest="out")
    a = p.parse_args()
    main(a.run, a.queries, a.pairs, a.out)
