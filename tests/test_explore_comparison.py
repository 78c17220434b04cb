"Runs side by side, on the shipped weights, against independent computations"

import numpy as np
import pytest
import torch
from scipy.stats import binom

from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.base.storage import write_json
from dasd_lab.evaluation.comparison import (
    MethodComparison,
    differing,
    paired_difference,
    read_run,
    run_folders,
    scene_hits,
)
from dasd_lab.evaluation.retrieval import METRICS, Ranks, evaluate, rank
from dasd_lab.explore.comparison import figures
from dasd_lab.explore.comparison.panel import PAGE_SIZE, Compare
from dasd_lab.explore.comparison.state import KINDS, CompareState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.runs.shipped import shipped_run


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture(scope="module")
def state(bench):
    state = CompareState(bench, n_pictures=120)
    state.choose("DASD", "static adapter")
    state.evaluate(["de", "ar", "en"])
    return state


def write_run(folder, preset, **card):
    "A run folder with settings only"
    folder.mkdir()
    write_json(preset, folder / "preset.json")
    write_json(card, folder / "card.json")
    return read_run(folder)


CHANGES = [
    {"config.adapter.bottleneck": 8},
    {"stages.0.steps": 7, "stages.1.learning_rate": 0.5},
    {"config.disentangler.layer_norms": False, "vocab_size": 99, "stages.0.terms.0.weight": 3.0},
]


SETTING_NAMES = {  # in a preset → in the table, if they differ
    "stages.0.steps": "stages.cross_lingual_alignment.steps",
    "stages.1.learning_rate": "stages.cross_modal_alignment.learning_rate",
    "stages.0.terms.0.weight": "stages.cross_lingual_alignment.terms.alignment.weight",
}


@pytest.mark.parametrize("changes", CHANGES)
def test_differing_settings_are_exactly_those_changed(tmp_path, changes):
    preset = load_preset("dasd.pictograms")
    before = write_run(tmp_path / "a", preset, method="dasd", seed=3)
    after = write_run(tmp_path / "b", vary(preset, changes), method="dasd", seed=3)
    table = differing([before, after])
    changed = {SETTING_NAMES.get(name, name): value for name, value in changes.items()}
    assert set(table.index) == set(changed)
    for name, value in changed.items():
        assert table.loc[name, "b"] == (f"{value:g}" if isinstance(value, float) else str(value))
    assert len(differing([before, before])) == 0
    assert len(differing([after, after, after])) == 0


def test_an_explicit_default_is_no_difference(tmp_path):
    preset = load_preset("static_adapter.pictograms")
    explicit = vary(preset, {"stages.0.weight_decay": 0.0})
    records = [write_run(tmp_path / "a", preset, seed=1), write_run(tmp_path / "b", explicit, seed=1)]
    assert not len(differing(records))


def test_folders_without_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/card.json").write_text("{")
    with pytest.raises(LabError, match="holds no run"):
        read_run(tmp_path / "empty")
    with pytest.raises(LabError, match="cannot be read"):
        read_run(tmp_path / "broken")
    assert [folder.name for folder in run_folders(tmp_path)] == ["broken"]
    assert {"pictograms", "static_adapter"} <= {folder.name for folder in run_folders(shipped_run())}


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


def test_tables_equal_evaluate(bench):
    comparison = MethodComparison({"DASD": bench.main.method}, bench.corpus, "validation")
    results = evaluate(bench.main.method, bench.corpus, "validation", ["ja"])
    assert comparison.measure("DASD", "ja").rows == results.rows
    table = comparison.table("mean_recall", languages=["ja"])
    assert table.loc["ja", "DASD"] == results.rows["ja"]["mean_recall"]


def test_english_is_the_same_for_all(state):
    assert state.table().loc["en"].nunique() == 1
    assert state.languages() == ["de", "ar", "en"]


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


def test_false_alarms_are_rare():
    "Two equally good runs are told apart in few of 200 simulated comparisons"
    rng = np.random.default_rng(0)
    n_scenes = 150
    alarms = 0
    for _ in range(200):
        difficulty = rng.random(n_scenes)
        hits = []
        for _run in range(2):
            ranks = [torch.from_numpy((rng.random(n_scenes) < difficulty) * 3) for _direction in range(2)]
            hits.append(scene_hits(Ranks(*ranks), range(n_scenes)))
        difference = paired_difference(*hits, n_resamples=200)
        alarms += difference.p < 0.05 and not difference.low <= 0 <= difference.high
    assert alarms <= 16


@pytest.mark.parametrize("metric", METRICS[:2])
def test_figures_of_every_metric(state, metric):
    state.metric = metric
    table = state.table()
    shown = figures.recall_figure(table, metric)
    assert shown.layout.xaxis.title.text
    assert [trace.name for trace in shown.data] == ["DASD", "static adapter"]
    scale = 100 if figures.in_percent(metric) else 1
    np.testing.assert_allclose(shown.data[0].x, scale * table["DASD"].iloc[::-1])
    differences = figures.difference_figure(state.paired(), "DASD", "static adapter", metric)
    assert len(differences.data) >= 1
    state.metric = "text_to_image_R@1"


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


def test_a_model_with_other_languages(bench):
    "Languages that a run does not support are empty in the table"
    main = bench.main.method
    german = main.__class__.__new__(main.__class__)
    german.__dict__.update(main.__dict__)
    german.languages = ("de",)
    state = CompareState(Workbench({"all": main, "German": german}, bench.corpus), n_pictures=20)
    state.choose("all", "German")
    state.evaluate(["de", "fr"])
    assert not state.message
    assert state.languages() == ["de"]
    assert np.isnan(state.table().loc["fr", "German"])
    assert state.table().loc["fr", "all"] > 0


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
    assert "text/html" in panel._repr_mimebundle_()
    for kind in KINDS:
        panel["dl-kinds"].value = kind
        assert len(panel["dl-queries"].items) == min(PAGE_SIZE, len(state.kinds()[kind]))
