"""LECCR's two-stage search: how many of the best images it keeps, and its time relative to a full search

    python tools/studies/two_stage.py [--run FOLDER] [--queries 500] [--pairs 9] [--json FILE]

The gallery holds all 26,000 images of the built-in corpus, training images included, of which few match a query. The
full score compares a caption with all slots of all images; in two stages, the cosine first selects `head` of them.
Both are timed alternately on the same caption vectors; the ratio is the median over the pairs, with quartiles."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from dasd_lab.contracts import RetrievalMethod, cosine_scores
from dasd_lab.corpora.catalog import Corpus, load_corpus
from dasd_lab.evaluation.retrieval import slice_scores
from dasd_lab.search.gallery.in_memory import Gallery, best_of_slices
from dasd_lab.storage import write_json
from dasd_lab.training.loading import load_run

HEADS = 50, 100, 200, 500, 1000, 2000, 5000
K = 10


def seconds(call: Callable) -> float:
    "CPU time of a call in this thread"
    start = time.thread_time()
    call()
    return time.thread_time() - start


def captions_of(method: RetrievalMethod, corpus: Corpus, n: int) -> list[tuple[str, str, str]]:
    "Text, language and image of about n test captions, equally many per language"
    languages = [language for language in method.languages if language in corpus.languages]
    share = -(-n // len(languages))  # rounded up
    captions = []
    for language in languages:
        for caption in corpus.captions("test", language, "human")[:share]:
            captions.append((caption.text, language, caption.visual_id))
    return captions


class Comparison:
    "Full search and two-stage search with the same caption vectors"

    def __init__(self, gallery: Gallery, captions: list[tuple[str, str, str]]):
        self.gallery = gallery
        method = gallery.method
        self.vectors = torch.cat([method.encode_captions([text], language) for text, language, _ in captions])
        self.targets = [gallery.places[visual_id] for _, _, visual_id in captions]
        self.full = [self.best(vector, 0) for vector in self.vectors]

    def search(self, vector: Tensor, head: int) -> list[list[int]]:
        "Search with a head; 0: the full search"
        self.gallery.head = head
        return self.gallery.best_places(vector[None], K)

    def best(self, vector: Tensor, head: int) -> list[int]:
        "Places of the K best images"
        return self.search(vector, head)[0]

    def best_by_cosine(self, vector: Tensor) -> list[int]:
        "Places of the K images with the largest cosine"

        def scores(part):
            return slice_scores(cosine_scores, vector[None], self.gallery.visuals, part)[0]

        return best_of_slices(scores, len(self.gallery), K, 4096)[0]

    def recall(self, found: Sequence[Sequence[int]]) -> float:
        "Recall@K"
        return sum(target in best for target, best in zip(self.targets, found)) / len(self.targets)

    def agreement(self, found: Sequence[Sequence[int]]) -> dict[str, float]:
        "Agreement with the full search"
        n = len(self.full)
        pairs = list(zip(self.full, found))
        return dict(
            kept=sum(len(set(full) & set(best)) for full, best in pairs) / K / n,
            same_order=sum(full == best for full, best in pairs) / n,
            first=sum(full[0] == best[0] for full, best in pairs) / n,
            recall=self.recall(found),
        )

    def time_ratios(self, head: int, pairs: int) -> list[float]:
        "Time of the two-stage search relative to the full one, in several samples of queries"
        ratios = []
        for i in range(pairs):
            two_stages = 0.0
            full = 0.0
            for vector in self.vectors[i::pairs][:40]:
                two_stages += seconds(lambda: self.search(vector, head))
                full += seconds(lambda: self.search(vector, 0))
            ratios.append(two_stages / full)
        return ratios

    def row(self, head: int, pairs: int) -> dict:
        "Agreement and time for a head"
        found = [self.best(vector, head) for vector in self.vectors]
        low, middle, high = statistics.quantiles(self.time_ratios(head, pairs), n=4)
        return dict(head=head, **self.agreement(found), time=middle, quartiles=[low, high])


def main(run: Path | None, n: int, pairs: int, out: Path | None) -> None:
    torch.set_num_threads(1)
    method = load_run(run or "pictograms/leccr")
    if method.by_cosine:
        raise SystemExit(f"{method.name} scores by cosine only: two stages would not be faster")
    corpus = load_corpus("pictograms")
    gallery = Gallery(method.eval())
    for split in ("test", "validation", "train"):
        gallery.add_split(corpus, split, tqdm)
    captions = captions_of(method, corpus, n)
    comparison = Comparison(gallery, captions)
    alone = [comparison.best_by_cosine(vector) for vector in comparison.vectors]
    rows = []
    for head in HEADS:
        rows.append(comparison.row(head, pairs))
        print({name: round(value, 4) if isinstance(value, float) else value for name, value in rows[-1].items()})
    report = dict(
        pictures=len(gallery),
        queries=len(captions),
        languages=list(dict.fromkeys(language for _, language, _ in captions)),
        slots=method.config.slots.n,
        k=K,
        full_recall=comparison.recall(comparison.full),
        cosine_alone=comparison.agreement(alone),
        rows=rows,
    )
    print({name: value for name, value in report.items() if name != "rows"})
    if out:
        write_json(report, out)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--run", type=Path, help="a LECCR run (default: the shipped one)")
    p.add_argument("--queries", type=int, default=500)
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--json", type=Path, dest="out")
    args = p.parse_args()
    main(args.run, args.queries, args.pairs, args.out)
