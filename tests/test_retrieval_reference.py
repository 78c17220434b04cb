"""Ranks and figures against references written with plain loops."""

import itertools
import math
import statistics

import pytest
import torch

from dasd_lab.contracts import LabError
from dasd_lab.evaluation.retrieval import CUTOFFS, Ranks, gallery_slices, rank, retrieval_figures


def table_score(text, visuals):
    return text @ visuals["features"].T


def slow_ranks(S, positives, reading="captions"):
    "S[q][n]: nested lists. Nothing shared with the library: a comparison at a time"
    Q = len(S)
    N = len(S[0])
    forward = [sum(1 for n in range(N) if n != positives[q] and S[q][n] >= S[q][positives[q]]) for q in range(Q)]
    back = []
    for n in range(N):
        mine = [q for q in range(Q) if positives[q] == n]
        if not mine:
            continue
        best = max(S[q][n] for q in mine)
        if reading == "captions":
            back.append(sum(1 for q in range(Q) if positives[q] != n and S[q][n] >= best))
        else:
            count = 0
            for other in range(N):
                theirs = [S[q][n] for q in range(Q) if positives[q] == other]
                if other != n and theirs and max(theirs) >= best:
                    count += 1
            back.append(count)
    return forward, back


def slow_figures(forward, back):
    out = {}
    for way, ranks in (("text_to_image", forward), ("image_to_text", back)):
        for k in (1, 5, 10):
            out[f"{way}_R@{k}"] = sum(1 for r in ranks if r < k) / len(ranks)
        out[f"{way}_median_rank"] = statistics.median(r + 1 for r in ranks)
        out[f"{way}_mean_rank"] = sum(r + 1 for r in ranks) / len(ranks)
    six = [out[f"{w}_R@{k}"] for w in ("text_to_image", "image_to_text") for k in (1, 5, 10)]
    return out | dict(mean_recall=sum(six) / 6, sum_recall=100 * sum(six))


def random_case(seed):
    "Few score values (many ties), one to five captions a picture in mixed order, some pictures without captions"
    g = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 30, (1,), generator=g))
    counts = torch.randint(0, 6, (n,), generator=g)
    counts[int(torch.randint(n, (1,), generator=g))] += 1
    positives = torch.arange(n).repeat_interleave(counts)
    positives = positives[torch.randperm(len(positives), generator=g)]
    levels = [2, 3, 10, 10**6][seed % 4]
    S = torch.randint(-levels, levels, (len(positives), n), generator=g).double()
    return S, positives


@pytest.mark.parametrize("reading", ["captions", "official"])
@pytest.mark.parametrize("seed", range(40))
def test_ranks_equal_the_slow_reference_with_ties_and_several_captions(seed, reading):
    S, positives = random_case(seed)
    forward, back = slow_ranks(S.tolist(), positives.tolist(), reading)
    for size in (1, 3, 7, 1000):
        got = rank(
            table_score,
            torch.eye(len(S)).double(),
            dict(features=S.T.contiguous()),
            positives,
            slice_size=size,
            reading=reading,
        )
        assert got.text_to_image.tolist() == forward and got.image_to_text.tolist() == back
    want = slow_figures(forward, back)
    figures = retrieval_figures(got)
    assert set(figures) == set(want)
    for name in want:
        assert figures[name] == pytest.approx(want[name], abs=1e-12), name


def test_ties_stay_ties_between_slices_in_float32():
    "Copies of one picture all over the gallery tie, wherever the slices fall"
    g = torch.Generator().manual_seed(0)
    text = torch.nn.functional.normalize(torch.randn(50, 128, generator=g), dim=-1)
    one = torch.nn.functional.normalize(torch.randn(1, 128, generator=g), dim=-1).repeat(300, 1)
    for size in (2, 64, 128, 299, 300):
        got = rank(table_score, text, dict(features=one), torch.arange(50), slice_size=size)
        assert (got.text_to_image == 299).all()


def test_order_does_not_matter():
    "A symmetry: shuffling captions or pictures shuffles the ranks with them"
    S, positives = random_case(3)
    g = torch.Generator().manual_seed(9)
    base = rank(table_score, torch.eye(len(S)).double(), dict(features=S.T.contiguous()), positives)
    p = torch.randperm(S.shape[1], generator=g)
    moved = rank(
        table_score,
        torch.eye(len(S)).double(),
        dict(features=S.T[p].contiguous()),
        p.argsort()[positives],
        slice_size=4,
    )
    assert (moved.text_to_image == base.text_to_image).all() and sorted(moved.image_to_text) == sorted(
        base.image_to_text
    )


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_wide_matrix_is_ever_asked_for(size):
    widths = []

    def score(text, visuals):
        assert set(visuals) == {"features", "slots"} and len(visuals["slots"]) == len(visuals["features"]) <= size
        widths.append(len(visuals["features"]))
        return text @ visuals["features"].T + visuals["slots"].sum((1, 2))

    g = torch.Generator().manual_seed(1)
    text = torch.randn(40, 8, generator=g)
    features = torch.randn(100, 8, generator=g)
    slots = torch.randn(100, 3, 2, generator=g)
    positives = torch.randint(100, (40,), generator=g)
    got = rank(score, text, dict(features=features, slots=slots), positives, slice_size=size)
    S = (text @ features.T + slots.sum((1, 2))).double()
    assert sum(widths) == 2 * 100 and max(widths) <= size
    assert abs(got.text_to_image - torch.tensor(slow_ranks(S.tolist(), positives.tolist())[0])).max() <= 0


def test_readings_agree_on_the_first_place_and_official_is_never_lower():
    for seed in range(20):
        S, positives = random_case(seed)
        ours, theirs = (
            rank(
                table_score, torch.eye(len(S)).double(), dict(features=S.T.contiguous()), positives, reading=r
            ).image_to_text
            for r in ("captions", "official")
        )
        assert ((ours == 0) == (theirs == 0)).all() and (theirs <= ours).all()


def test_hand_values():
    "Scores of the two pictures: .1 .7 .2 .9 .3 and .6 .2 .3 .1 .5; captions 0-2 are of the first, 3-4 of the second"
    S = torch.tensor([[0.1, 0.7, 0.2, 0.9, 0.3], [0.6, 0.2, 0.3, 0.1, 0.5]])
    got = rank(table_score, torch.eye(5), dict(features=S), [0, 0, 0, 1, 1])

    def share(r, k):
        return float((r < k).float().mean())

    assert [share(got.image_to_text, k) for k in (1, 2)] == [0, 1] and [
        share(got.text_to_image, k) for k in (1, 2)
    ] == pytest.approx([0.4, 1])


def test_scores_that_are_not_numbers_are_refused():
    features = torch.randn(4, 3)
    features[2, 1] = math.nan
    with pytest.raises(LabError, match="NaN"):
        rank(table_score, torch.randn(5, 3), dict(features=features), [0, 1, 2, 3, 3], slice_size=2)
    with pytest.raises(LabError, match="a column a picture"):
        rank(lambda t, v: t @ t.T, torch.randn(5, 3), dict(features=torch.randn(4, 3)), [0, 1, 2, 3, 3])
    with pytest.raises(LabError):
        rank(table_score, torch.randn(0, 3), dict(features=torch.randn(4, 3)), [])


def test_infinite_scores_rank_like_any_other():
    S = torch.tensor([[-math.inf, -math.inf], [math.inf, 0.0]])
    got = rank(
        lambda t, v: S[:, v["features"][:, 0].long()],
        torch.eye(2),
        dict(features=torch.tensor([[0.0], [1.0]])),
        [0, 0],
        slice_size=1,
    )
    assert got.text_to_image.tolist() == [1, 0] and got.image_to_text.tolist() == [0]


def test_half_precision_scores_are_compared_as_they_are():
    S = torch.randint(-3, 3, (20, 20), generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    got = rank(
        lambda t, v: (t @ v["features"].T).to(torch.bfloat16),
        torch.eye(20),
        dict(features=S.T.float()),
        torch.arange(20),
        slice_size=6,
    )
    assert (got.text_to_image.tolist(), got.image_to_text.tolist()) == slow_ranks(S.tolist(), list(range(20)))


@pytest.mark.parametrize("n,size", list(itertools.product([0, 1, 2, 9, 1025], [1, 2, 512, 2000])))
def test_slices_cover_the_gallery_evenly(n, size):
    parts = list(gallery_slices(n, size))
    widths = [p.stop - p.start for p in parts]
    assert [i for p in parts for i in range(n)[p]] == list(range(n))
    assert not widths or (max(widths) <= size and max(widths) - min(widths) <= 1)


def test_figures_of_perfect_and_hopeless_ranks():
    perfect = retrieval_figures(Ranks(torch.zeros(7), torch.zeros(3)))
    assert perfect["sum_recall"] == 600 and perfect["mean_recall"] == 1 and perfect["image_to_text_median_rank"] == 1
    hopeless = retrieval_figures(Ranks(torch.full((7,), 10), torch.full((3,), 99)))
    assert hopeless["sum_recall"] == 0 and hopeless["text_to_image_median_rank"] == 11 and CUTOFFS == (1, 5, 10)
