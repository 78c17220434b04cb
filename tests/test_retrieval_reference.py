"""Ranks and metrics agree with references written as plain loops."""

import math
import statistics

import pytest
import torch

from dasd_lab.base.contracts import LabError
from dasd_lab.evaluation.retrieval import CUTOFFS, DIRECTIONS, rank, retrieval_figures


def table_score(text, visuals):
    return text @ visuals["features"].T


def slow_image_rank(S, positives, n, reading):
    "Rank of image n; None if it has no captions"
    n_captions = len(S)
    n_images = len(S[0])
    correct = [q for q in range(n_captions) if positives[q] == n]
    if not correct:
        return None
    best = max(S[q][n] for q in correct)
    if reading == "captions":
        return sum(1 for q in range(n_captions) if positives[q] != n and S[q][n] >= best)
    ahead = 0
    for other in range(n_images):
        scores = [S[q][n] for q in range(n_captions) if positives[q] == other]
        if other != n and scores and max(scores) >= best:
            ahead += 1
    return ahead


def slow_ranks(S, positives, reading="captions"):
    "Ranks of nested lists S[q][n], one comparison at a time, without code of the library"
    text_to_image = []
    for q, scores in enumerate(S):
        correct = positives[q]
        text_to_image.append(sum(1 for n, score in enumerate(scores) if n != correct and score >= scores[correct]))
    ranks = [slow_image_rank(S, positives, n, reading) for n in range(len(S[0]))]
    return text_to_image, [r for r in ranks if r is not None]


def random_case(seed):
    "Few distinct scores (many ties), one to five captions per image in random order, some images without captions"
    g = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 30, (1,), generator=g))
    counts = torch.randint(0, 6, (n,), generator=g)
    counts[int(torch.randint(n, (1,), generator=g))] += 1
    positives = torch.arange(n).repeat_interleave(counts)
    positives = positives[torch.randperm(len(positives), generator=g)]
    levels = [2, 3, 10, 10**6][seed % 4]
    return torch.randint(-levels, levels, (len(positives), n), generator=g).double(), positives


@pytest.mark.parametrize("reading", ["captions", "official"])
@pytest.mark.parametrize("seed", range(20))
def test_ranks_equal_the_slow_reference_with_ties_and_several_captions(seed, reading):
    S, positives = random_case(seed)
    text_to_image, image_to_text = slow_ranks(S.tolist(), positives.tolist(), reading)
    for size in (1, 3, 7, 1000):
        got = rank(
            table_score,
            torch.eye(len(S)).double(),
            dict(features=S.T.contiguous()),
            positives,
            slice_size=size,
            reading=reading,
        )
        assert got.text_to_image.tolist() == text_to_image
        assert got.image_to_text.tolist() == image_to_text
    figures = retrieval_figures(got)
    for direction, ranks in (("text_to_image", text_to_image), ("image_to_text", image_to_text)):
        for k in (1, 5, 10):
            assert figures[f"{direction}_R@{k}"] == pytest.approx(sum(r < k for r in ranks) / len(ranks))
        assert figures[f"{direction}_median_rank"] == statistics.median(r + 1 for r in ranks)
        assert figures[f"{direction}_mean_rank"] == pytest.approx(statistics.fmean(ranks) + 1)
    recalls = [figures[f"{direction}_R@{k}"] for direction in DIRECTIONS for k in CUTOFFS]
    assert figures["mean_recall"] == pytest.approx(statistics.fmean(recalls))
    assert figures["sum_recall"] == pytest.approx(100 * sum(recalls))


def test_ties_stay_ties_between_slices_in_float32():
    "Copies of one image tie in any slice of the gallery"
    g = torch.Generator().manual_seed(0)
    text = torch.nn.functional.normalize(torch.randn(50, 128, generator=g), dim=-1)
    one = torch.nn.functional.normalize(torch.randn(1, 128, generator=g), dim=-1).repeat(300, 1)
    for size in (2, 64, 128, 299, 300):
        got = rank(table_score, text, dict(features=one), torch.arange(50), slice_size=size)
        assert (got.text_to_image == 299).all()


def test_nan_scores_and_wrong_shapes_raise_errors():
    features = torch.randn(4, 3)
    features[2, 1] = math.nan
    with pytest.raises(LabError, match="NaN"):
        rank(table_score, torch.randn(5, 3), dict(features=features), [0, 1, 2, 3, 3], slice_size=2)
    with pytest.raises(LabError, match="one column per image"):
        rank(lambda t, v: t @ t.T, torch.randn(5, 3), dict(features=torch.randn(4, 3)), [0, 1, 2, 3, 3])
    with pytest.raises(LabError):
        rank(table_score, torch.randn(0, 3), dict(features=torch.randn(4, 3)), [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinite_and_half_precision_scores_rank_like_any_other(dtype):
    S = torch.randint(-3, 3, (20, 20), generator=torch.Generator().manual_seed(5)).to(dtype)
    S[3], S[:, 4], S[5, 5] = -math.inf, math.inf, -math.inf
    places = dict(features=torch.arange(20)[:, None])
    got = rank(lambda t, v: S[:, v["features"][:, 0]], torch.eye(20), places, torch.arange(20), slice_size=6)
    assert (got.text_to_image.tolist(), got.image_to_text.tolist()) == slow_ranks(S.tolist(), list(range(20)))
