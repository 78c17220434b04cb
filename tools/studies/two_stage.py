"""LECCR's two-stage search: how many of the best images it keeps, and its time relative to a full search

    python tools/studies/two_stage.py [--run FOLDER] [--queries 500] [--pairs 9]

The gallery holds all 26,000 images of the built-in corpus, training images included, of which few match a query. The
full score compares a caption with all slots of all images; in two stages, the cosine first selects `head` of them.
Both are timed alternately on the same caption vectors; the ratio is the median over the pairs, with quartiles. Writes
data/results/two_stage.json."""

import statistics
import time
from collections.abc import Sequence

import torch
from common import RESULTS, start
from torch import Tensor
from tqdm.auto import tqdm

from dasd_lab.base.contracts import cosine_scores
from dasd_lab.base.storage import write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.loading import load_run
from dasd_lab.search.gallery.in_memory import Gallery

HEADS = 50, 100, 200, 500, 1000, 2000, 5000
K = 10


def searched(gallery: Gallery, vectors: Tensor, head: int) -> tuple[list[list[int]], float]:  # 0: the full search
    "Places of the K best images for each caption, and the CPU time"
    gallery.head = head
    start = time.thread_time()
    found = [gallery.best_places(vector[None], K)[0] for vector in vectors]
    return found, time.thread_time() - start


def agreement(full: Sequence[list[int]], found: Sequence[list[int]], targets: Sequence[int]) -> dict[str, float]:
    "Agreement with the full search, and recall@K"
    pairs = list(zip(full, found))
    return dict(
        kept=statistics.fmean(len({*best} & {*own}) / K for best, own in pairs),
        same_order=statistics.fmean(best == own for best, own in pairs),
        first=statistics.fmean(best[0] == own[0] for best, own in pairs),
        recall=statistics.fmean(target in own for target, own in zip(targets, found)),
    )


def main(
    run: str = "pictograms/leccr", queries: int = 500, pairs: int = 9, out: str = str(RESULTS / "two_stage.json")
) -> None:
    torch.set_num_threads(1)
    method = load_run(run).eval()
    corpus = load_corpus("pictograms")
    gallery = Gallery(method)
    for split in ("test", "validation", "train"):
        gallery.add_split(corpus, split, tqdm)
    languages = [language for language in method.languages if language in corpus.languages]
    share = -(-queries // len(languages))  # rounded up
    captions = [c for language in languages for c in corpus.captions("test", language, "human")[:share]]
    vectors = torch.cat([method.encode_captions([c.text], c.language) for c in captions])
    targets = [gallery.places[c.visual_id] for c in captions]
    full, _ = searched(gallery, vectors, 0)
    by_cosine = cosine_scores(vectors, {"features": gallery.visuals["features"]}).topk(K).indices.tolist()
    rows = []
    for head in HEADS:
        found, _ = searched(gallery, vectors, head)
        samples = [vectors[i::pairs][:40] for i in range(pairs)]
        ratios = [searched(gallery, sample, head)[1] / searched(gallery, sample, 0)[1] for sample in samples]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(dict(head=head, **agreement(full, found, targets), time=middle, quartiles=[low, high]))
        print(rows[-1])
    report = dict(
        pictures=len(gallery),
        queries=len(captions),
        languages=languages,
        slots=method.config.slots.n,
        k=K,
        full_recall=agreement(full, full, targets)["recall"],
        rows=rows,
        cosine_alone=agreement(full, by_cosine, targets),
    )
    write_json(report, out)


if __name__ == "__main__":
    start(main, __doc__)
