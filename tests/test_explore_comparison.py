"Runs side by side: on the shipped weights and on a small world of squares, against independent computations"

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import binom

from dasd_lab.contracts import LabError
from dasd_lab.evaluation.comparison import (
    MethodComparison,
    RunRecord,
    curves,
    differing,
    flat,
    paired_difference,
    read_run,
    run_folders,
    scene_hits,
)
from dasd_lab.evaluation.retrieval import METRICS, Ranks, evaluate, rank
from dasd_lab.explore.comparison import figures
from dasd_lab.explore.comparison.panel import Compare
from dasd_lab.explore.comparison.state import KINDS, CompareState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import write_json
from dasd_lab.training.recipes import shipped_run


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture(scope="module")
def state(bench):
    s = CompareState(bench, n_pictures=120)
    s.choose("DASD", "static adapter")
    s.evaluate(["de", "ar", "en"])
    return s


CHANGES = [
    {"config.adapter.bottleneck": 8},
    {"stages.0.steps": 7, "stages.1.learning_rate": 0.5},
    {"config.disentangler.layer_norms": False, "vocab_size": 99, "stages.0.terms.0.weight": 3.0},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_differing_settings_are_exactly_those_changed(tmp_path, changes):
    preset = load_preset("dasd.pictograms")
    for name, p in (("a", preset), ("b", vary(preset, changes))):
        (tmp_path / name).mkdir()
        write_json(p, tmp_path / name / "preset.json")
        write_json(dict(method="dasd", seed=3), tmp_path / name / "card.json")
    a, b = (read_run(tmp_path / n) for n in "ab")
    found = differing([a, b])
    names = {
        "stages.0.steps": "stages.cross_lingual_alignment.steps",
        "stages.1.learning_rate": "stages.cross_modal_alignment.learning_rate",
        "stages.0.terms.0.weight": "stages.cross_lingual_alignment.terms.alignment.weight",
    }
    assert set(found.index) == {names.get(k, k) for k in changes}
    for k, v in changes.items():
        assert found.loc[names.get(k, k), "b"] == (f"{v:g}" if isinstance(v, float) else str(v))
    assert len(differing([a, a])) == len(differing([b, b, b])) == 0


def test_a_default_written_out_is_no_difference(tmp_path):
    preset = load_preset("static_adapter.pictograms")
    for name, p in (("a", preset), ("b", vary(preset, {"stages.0.weight_decay": 0.0}))):
        (tmp_path / name).mkdir()
        write_json(p, tmp_path / name / "preset.json")
        write_json(dict(seed=1), tmp_path / name / "card.json")
    assert not len(differing([read_run(tmp_path / "a"), read_run(tmp_path / "b")]))


def test_true_is_not_one():
    a = RunRecord("a", None, dict(x=True, y=1, z=(1, 2)))
    b = RunRecord("b", None, dict(x=1, y=1.0, z=(1, 2)))
    assert list(differing([a, b]).index) == ["x"] and flat(dict(a={}, b=None)) == {"b": None}


def test_folders_that_are_no_runs(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/card.json").write_text("{")
    with pytest.raises(LabError, match="holds no run"):
        read_run(tmp_path / "empty")
    with pytest.raises(LabError, match="cannot be read"):
        read_run(tmp_path / "broken")
    assert [f.name for f in run_folders(tmp_path)] == ["broken"]
    assert {"pictograms", "static_adapter"} <= {f.name for f in run_folders(shipped_run())}


def test_curves_put_stages_behind_each_other():
    log = [
        dict(step=s, stage=t, language="de", loss=float(i))
        for i, (t, s) in enumerate(product(("one", "two"), (0, 10, 20)))
    ]
    got = curves([RunRecord("r", None, {}, log)])
    assert (
        got["step"].tolist() == [0, 10, 20, 21, 31, 41]
        and got["value"].tolist() == [0, 1, 2, 3, 4, 5]
        and set(got["name"]) == {"loss"}
    )
    # never averaged across stages
    assert curves([RunRecord("r", None, {}, log)], 2)["value"].tolist() == [0, 0.5, 1.5, 3, 3.5, 4.5]


def test_wins_and_losses_by_rank(bench, state):
    "Ranks again, from `rank` on features computed anew"
    corpus = bench.corpus
    visuals = corpus.visuals("test")
    pictures = bench.main.method.backbone.encode_pictures(visuals.pixels)
    for language in ("de", "ar"):
        captions = [c for c in corpus.captions("test", language, "human") if c.visual_id in set(visuals.ids[:120])]
        place = [visuals.index_of(c.visual_id) for c in captions]
        ranks = {}
        for n in ("DASD", "static adapter"):
            m = bench.models[n].method
            ranks[n] = (
                rank(
                    m.score, m.encode_captions([c.text for c in captions], language), m.encode_visuals(pictures), place
                ).text_to_image
                + 1
            )
        state.language = language
        gaps = state.gaps()
        kinds = state.kinds()
        known = {(r.text, r.visual_id): (r.first, r.second) for r in gaps.itertuples()}
        # near-ties may fall the other way
        assert sum(known[c.text, c.visual_id] != (int(a), int(b)) for c, a, b in zip(captions, *ranks.values())) <= 1
        assert gaps["gap"].tolist() == sorted(gaps["second"] - gaps["first"], reverse=True) and sum(
            map(len, kinds.values())
        ) == len(captions)
        assert (
            (kinds["first only"]["first"] == 1).all()
            and (kinds["first only"]["second"] > 1).all()
            and (kinds["second only"]["second"] == 1).all()
            and (kinds["second only"]["gap"].diff().dropna() >= 0).all()
        )


def test_tables_equal_evaluate(bench):
    made = MethodComparison({"DASD": bench.main.method}, bench.corpus, "validation")
    whole = evaluate(bench.main.method, bench.corpus, "validation", ["ja"])
    assert (
        made.measure("DASD", "ja").rows == whole.rows
        and made.table("mean_recall", languages=["ja"]).loc["ja", "DASD"] == whole.rows["ja"]["mean_recall"]
    )


def test_a_run_against_itself_differs_nowhere(state):
    state.first = state.second = "DASD"
    found = state.paired()
    assert (
        (found[["difference", "low", "high"]] == 0).all(axis=None)
        and (found["p"] == 1).all()
        and set(found["verdict"]) == {"not told apart"}
    )
    assert (
        not state.gaps()["gap"].any() and not len(state.kinds()["first only"]) and not len(state.kinds()["second only"])
    )
    state.second = "static adapter"


def test_english_is_the_same_for_all(state):
    assert state.table().loc["en"].nunique() == 1 and state.languages() == ["de", "ar", "en"]


@pytest.mark.parametrize("up,down", [(0, 0), (1, 0), (9, 2), (30, 30), (3, 14)])
def test_sign_test_is_mcnemars(up, down):
    "Exact McNemar: the discordant pairs are a fair coin"
    n = up + down
    both = 50
    a = [0] * up + [5] * down + [0] * both
    b = [5] * up + [0] * down + [0] * both
    d = paired_difference(*(scene_hits(Ranks(torch.tensor(r), torch.tensor(r)), range(len(r))) for r in (a, b)))
    exact = 1.0 if up == down else min(1.0, 2 * binom.cdf(min(up, down), n, 0.5))
    assert (
        d.p == pytest.approx(exact)
        and (d.first_better, d.second_better, d.n_scenes) == (up, down, n + both)
        and d.low <= d.difference <= d.high
    )


def test_false_alarms_are_rare():
    "Two runs that are equally good: seldom told apart, in 200 simulated comparisons"
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        hard = rng.random(150)
        runs = [Ranks(*(torch.from_numpy((rng.random(150) < hard) * 3) for _ in range(2))) for _ in range(2)]
        d = paired_difference(*(scene_hits(r, range(150)) for r in runs), n_resamples=200)
        alarms += d.p < 0.05 and not d.low <= 0 <= d.high
    assert alarms <= 16


@pytest.mark.parametrize("metric", METRICS)
def test_figures_of_every_metric(state, metric):
    state.metric = metric
    table = state.table()
    made = figures.recall_figure(table, metric)
    assert made.layout.xaxis.title.text and [d.name for d in made.data] == ["DASD", "static adapter"]
    scale = 100 if figures.in_percent(metric) else 1
    np.testing.assert_allclose(made.data[0].x, scale * table["DASD"].iloc[::-1])
    assert len(figures.difference_figure(state.paired(), "DASD", "static adapter", metric).data) >= 1
    state.metric = "text_to_image_R@1"


def test_asked_shows_what_the_model_finds(bench, state):
    state.language = "ar"
    state.kind = "both"
    state.query = 0
    one = state.asked(5)
    for n in ("DASD", "static adapter"):
        hits = bench.models[n].search(one.text, "ar", 5, among=bench.corpus.visuals("test").ids)
        assert [i for i, _ in one.found[n]] == hits.ids and one.ranks[n] == 1 == 1 + hits.ids.index(one.visual_id)


def test_a_model_that_reads_other_languages(bench):
    "What a run does not read is left empty, not an error"
    half = bench.main.method.__class__.__new__(bench.main.method.__class__)
    half.__dict__.update(bench.main.method.__dict__)
    half.languages = ("de",)
    s = CompareState(Workbench({"all": bench.main.method, "German": half}, bench.corpus), n_pictures=20)
    s.choose("all", "German")
    s.evaluate(["de", "fr"])
    assert (
        not s.message
        and s.languages() == ["de"]
        and np.isnan(s.table().loc["fr", "German"])
        and s.table().loc["fr", "all"] > 0
    )


def test_panel_and_state_agree(bench):
    panel = Compare(bench)
    s = panel.state
    panel.n.value = 100
    panel.which.value = "ar"
    panel._evaluate(wait=True)
    assert s.languages() == ["ar"] and panel.queries.rtl or not panel.queries.items
    panel.kinds.value = "both"
    assert (
        panel.queries.rtl
        and {c["direction"] for i in panel.queries.items for c in i["captions"]} == {"rtl"}
        and all(i["alt"] for g in panel.grids for i in g.items)
    )
    assert 'lang="ar" dir="rtl"' in panel.asked.value and "text/html" in panel._repr_mimebundle_()
    for k in KINDS:
        panel.kinds.value = k
        assert len(panel.queries.items) == min(12, len(s.kinds()[k]))
