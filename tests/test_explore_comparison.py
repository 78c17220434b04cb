"Runs side by side, on the shipped weights, against independent computations"

import pytest
import torch
from scipy.stats import binom

from dasd_lab.evaluation.comparison import (
    paired_difference,
    scene_hits,
)
from dasd_lab.evaluation.retrieval import Ranks, rank
from dasd_lab.explore.comparison.panel import PAGE_SIZE, Compare
from dasd_lab.explore.comparison.state import KINDS, CompareState
from dasd_lab.explore.workbench import default_workbench


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture(scope="module")
def state(bench):
    state = CompareState(bench, n_pictures=120)
    state.choose("DASD", "static adapter")
    state.evaluate(["de", "ar", "en"])
    return state


@pytest.fixture(scope="module")
def image_features(bench):
    "Features of the test images, computed without a gallery"
    return bench.main.method.backbone.encode_pictures(bench.corpus.visuals("test").pixels)


@pytest.mark.parametrize("language", ["de", "ar"])
def test_ranks_and_kinds(bench, state, image_features, language):
    "Against `rank` on features computed without a gallery"
    visuals = bench.corpus.visuals("test")
    evaluated = set(visuals.ids[:120])
    captions = [c for c in bench.corpus.captions("test", language, "human") if c.visual_id in evaluated]
    texts = [caption.text for caption in captions]
    positives = [visuals.index_of(caption.visual_id) for caption in captions]
    expected = []
    for name in ("DASD", "static adapter"):
        method = bench.models[name].method
        ranks = rank(
            method.score, method.encode_captions(texts, language), method.encode_visuals(image_features), positives
        )
        expected.append((ranks.text_to_image + 1).tolist())
    state.language = language
    gaps = state.gaps()
    known = {(row.text, row.visual_id): (row.first, row.second) for row in gaps.itertuples()}
    different = sum(known[c.text, c.visual_id] != pair for c, pair in zip(captions, zip(*expected)))
    assert different <= 1  # a near-tie may be ordered the other way
    assert gaps["gap"].tolist() == sorted(gaps["second"] - gaps["first"], reverse=True)
    kinds = state.kinds()
    assert sum(len(queries) for queries in kinds.values()) == len(captions)
    assert (kinds["first only"]["first"] == 1).all()
    assert (kinds["first only"]["second"] > 1).all()
    assert (kinds["second only"]["second"] == 1).all()
    assert (kinds["second only"]["gap"].diff().dropna() >= 0).all()


@pytest.mark.parametrize("up,down", [(0, 0), (1, 0), (9, 2), (30, 30), (3, 14)])
def test_the_sign_test_is_mcnemars(up, down):
    "Exact McNemar test: discordant pairs are tosses of a fair coin"
    both = 50
    runs = [[0] * up + [5] * down + [0] * both, [5] * up + [0] * down + [0] * both]
    hits = []
    for run in runs:
        ranks = torch.tensor(run)
        hits.append(scene_hits(Ranks(ranks, ranks), range(len(run))))
    difference = paired_difference(*hits)
    exact = 1.0 if up == down else min(1.0, 2 * binom.cdf(min(up, down), up + down, 0.5))
    assert difference.p == pytest.approx(exact)
    assert (difference.first_better, difference.second_better) == (up, down)
    assert difference.n_scenes == up + down + both
    assert difference.low <= difference.difference <= difference.high


def test_hits_of_the_selected_query(bench, state):
    state.language = "ar"
    state.kind = "both"
    state.query = 0
    query = state.selected(5)
    for name in ("DASD", "static adapter"):
        hits = bench.models[name].search(query.text, "ar", 5, among=bench.corpus.visuals("test").ids)
        assert [visual_id for visual_id, _ in query.hits[name]] == hits.ids
        assert query.ranks[name] == 1
        assert hits.ids.index(query.visual_id) == 0


def test_panel_and_state_agree(bench):
    panel = Compare(bench)
    state = panel.state
    panel["dl-n-images"].value = 100
    panel["dl-languages"].value = "ar"
    panel["dl-evaluate"].run(wait=True)
    assert state.languages() == ["ar"]
    assert panel["dl-queries"].rtl
    panel["dl-kinds"].value = "both"
    assert panel["dl-queries"].rtl
    directions = {caption["direction"] for item in panel["dl-queries"].items for caption in item["captions"]}
    assert directions == {"rtl"}
    assert 'lang="ar" dir="rtl"' in panel["dl-query"].value
    assert "<table" in panel.snapshot()
    for kind in KINDS:
        panel["dl-kinds"].value = kind
        assert len(panel["dl-queries"].items) == min(PAGE_SIZE, len(state.kinds()[kind]))
