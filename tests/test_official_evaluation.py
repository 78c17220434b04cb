"""The `official` reading of the evaluation reproduces the authors' figures on the features in `--golden DIR`"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from dasd_lab.evaluation.retrieval import rank, retrieval_figures

METHOD = "dasd"  # method of the cases


def cosine_100(text, visuals):
    return 100 * normalize(text, dim=-1) @ normalize(visuals["features"], dim=-1).T


@pytest.fixture(scope="module")
def golden(case_path):
    arrays = np.load(case_path.with_suffix(".npz"))
    case = json.loads(case_path.read_text(encoding="utf-8"))
    images = torch.from_numpy(arrays["eval.image_feats"])
    captions_per_image = torch.from_numpy(arrays["eval.captions_per_image"]).long()
    return SimpleNamespace(
        text=torch.from_numpy(arrays["eval.text_feats"]),
        images=images,
        positives=torch.arange(len(images)).repeat_interleave(captions_per_image),
        figures=case["evaluation"],
        ties=arrays["eval.tie_sim"],
    )


@pytest.mark.parametrize("slice_size", [3, 1024])
def test_official_reading_equals_the_stored_figures(golden, slice_size):
    stored = golden.figures
    visuals = dict(features=golden.images)
    ranks = rank(cosine_100, golden.text, visuals, golden.positives, slice_size=slice_size, reading="official")
    figures = retrieval_figures(ranks)
    assert ranks.image_to_text.tolist() == stored["V2T_cols"]
    for theirs, ours in (("T2V", "text_to_image"), ("V2T", "image_to_text")):
        for k in (1, 5, 10):
            assert 100 * figures[f"{ours}_R@{k}"] == pytest.approx(stored[f"{theirs}_R{k}"], abs=1e-4)
        assert figures[f"{ours}_median_rank"] == pytest.approx(stored[f"{theirs}_MedianR"], abs=1e-4)
        assert figures[f"{ours}_mean_rank"] == pytest.approx(stored[f"{theirs}_MeanR"], abs=1e-4)
        average = sum(figures[f"{ours}_R@{k}"] for k in (1, 5, 10)) / 3
        assert 100 * average == pytest.approx(stored[f"{theirs}_AR"], abs=1e-4)
    assert 100 * figures["mean_recall"] == pytest.approx(stored["AR"], abs=1e-4)
    assert figures["sum_recall"] == pytest.approx(6 * stored["AR"], abs=6e-4)


def test_caption_reading_equals_the_stored_contrast(golden):
    figures = retrieval_figures(rank(cosine_100, golden.text, dict(features=golden.images), golden.positives))
    stored = golden.figures["contrast_caption_level_V2T"]
    for k in (1, 5, 10):
        assert 100 * figures[f"image_to_text_R@{k}"] == pytest.approx(stored[f"R{k}"], abs=1e-4)


def test_ties_that_distort_the_official_figures_are_one_query_each_here(golden):
    scores = golden.ties
    n = len(scores)
    visuals = dict(features=torch.from_numpy(scores).T.contiguous())
    ranks = rank(lambda t, v: t @ v["features"].T, torch.eye(n).double(), visuals, torch.arange(n)).text_to_image
    assert len(golden.figures["tie_compute_metrics"]["cols"]) > n == len(ranks)
    for query in range(n):
        others = [scores[query][image] for image in range(n) if image != query]
        assert ranks[query] == sum(score >= scores[query][query] for score in others)
