"The Styles explorer on the shipped weights: the same map again, what is planted is found, figures are scikit-learn's, lists hold what was selected"

import contextlib
import io
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from dasd_lab.contracts import Caption
from dasd_lab.evaluation.maps import (
    ClusterSpec,
    MapSpec,
    draw_map,
    find_clusters,
    label_agreement,
    map_of,
    marks,
    neighbours_kept,
)
from dasd_lab.explore.styles import figures as f
from dasd_lab.explore.styles.panel import Styles
from dasd_lab.explore.styles.state import StylesState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.search.gallery.in_memory import Gallery


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture(scope="module")
def state(bench, tmp_path_factory):
    s = StylesState(bench, keep_in=tmp_path_factory.mktemp("maps"))
    s.update()
    assert s.message == ""
    return s


def planted(n=400, kinds=5, width=32, seed=0):
    "Features of planted kinds, shuffled"
    rng = np.random.default_rng(seed)
    kind = rng.integers(kinds, size=n)
    return (3 * rng.normal(size=(kinds, width))[kind] + rng.normal(size=(n, width))).astype(np.float32), kind


MAP = """import sys,hashlib,numpy as np
from dasd_lab.evaluation.maps import MapSpec,draw_map
x = np.random.default_rng(0).normal(size=(150,24)).astype('float32')
for r in ('umap','tsne'): print(hashlib.sha256(draw_map(x, MapSpec(r, seed=3)).points.tobytes()).hexdigest())"""


def test_the_same_seed_is_the_same_map_in_another_process_with_other_threads():
    "Bit for bit: nothing of a map may depend on the process, on hashing or on the number of threads"
    import os

    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(MAP, {})
    there = subprocess.run(
        [sys.executable, "-c", MAP],
        env=os.environ | dict(OMP_NUM_THREADS="2", NUMBA_NUM_THREADS="2", PYTHONHASHSEED="2"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert here.getvalue() == there != ""


def test_a_planted_set_is_found_on_features_and_survives_on_maps():
    x, kind = planted()
    for spec in (ClusterSpec(n_clusters=5), ClusterSpec("hdbscan")):
        found = find_clusters(x, spec)
        assert adjusted_rand_score(kind, found) > 0.98, spec
    for reducer in ("umap", "tsne"):
        assert (
            adjusted_rand_score(kind, find_clusters(draw_map(x, MapSpec(reducer)).points, ClusterSpec("hdbscan"))) > 0.9
        )


def test_agreement_is_scikit_learns_and_collapses_for_shuffled_labels():
    x, kind = planted()
    clusters = find_clusters(x, ClusterSpec(n_clusters=3))
    found = label_agreement(clusters, kind)
    assert found.nmi == pytest.approx(normalized_mutual_info_score(kind, clusters)) and found.ari == pytest.approx(
        adjusted_rand_score(kind, clusters)
    )
    shuffled = label_agreement(clusters, np.random.default_rng(9).permutation(kind))
    assert shuffled.nmi < 0.1 * found.nmi and abs(shuffled.ari) < 0.05
    assert found.nmi_chance == pytest.approx(shuffled.nmi, abs=0.03) and abs(found.ari_chance) < 0.02


def test_marks_against_counting_by_hand():
    clusters = np.repeat([0, 1, -1], [30, 60, 10])
    values = ["a"] * 25 + ["b"] * 5 + ["a"] * 5 + ["b"] * 55 + ["a"] * 10
    found = marks(clusters, dict(letter=values)).set_index(["cluster", "value"])
    assert (
        found.loc[(0, "a"), "count"] == 25
        and found.loc[(0, "a"), "share"] == pytest.approx(25 / 30)
        and found.loc[(0, "a"), "overall"] == pytest.approx(0.4)
    )
    assert (
        found.loc[(0, "a"), "lift"] == pytest.approx(25 / 30 / 0.4)
        and (1, "b") in found.index
        and (0, "b") not in found.index
    )


def test_a_kept_map_is_reread_only_where_it_fits(tmp_path):
    x, _ = planted(60)
    first = map_of(x, MapSpec("tsne"), tmp_path)
    again = map_of(x, MapSpec("tsne"), tmp_path)
    assert again.reread and not first.reread and np.array_equal(first.points, again.points)
    card = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert card["spec"]["seed"] == 0 and card["features"] == first.features and "umap-learn" in card["versions"]
    assert not map_of(x + planted(60, seed=1)[0], MapSpec("tsne"), tmp_path).reread
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_features_are_those_of_the_method(state, bench):
    import torch

    found = state.found
    method = bench.main.method
    c = found.captions[7]
    raw = method.inspect([c.text], c.language)
    with torch.no_grad():
        every = method.inspect([o.text for o in found.captions], "de")
    for name, x in found.features.items():
        column = every[name].double()
        by_hand = ((raw[name][0] - column.mean(0)) / column.std(0, correction=0)).numpy()
        np.testing.assert_allclose(x[7], by_hand, atol=2e-3)


def test_same_state_same_map_other_seed_other_captions(state, bench, tmp_path):
    again = StylesState(bench, keep_in=tmp_path)
    again.update()
    assert again.found.captions == state.found.captions
    for name, m in state.found.maps.items():
        assert np.array_equal(m.points, again.found.maps[name].points)
    again.seed = 1
    again.update()
    assert again.found.captions != state.found.captions


def test_the_lasso_lists_what_it_holds(state):
    points = state.found.maps["semantic_agnostic"].points
    low, high = np.quantile(points, [0.3, 0.7], axis=0)
    inside = np.flatnonzero(((points > low) & (points < high)).all(1))
    state.select(inside[::-1])
    assert [r["index"] for r in state.listing()] == inside.tolist() and [r["text"] for r in state.listing()] == [
        state.found.captions[i].text for i in inside
    ]
    for name in state.found.maps:
        assert f.map_figure(state, name).data[0].selectedpoints == tuple(inside)
    state.select([])


def test_recolouring_changes_colours_and_computes_nothing(state):
    seen = set()
    for by in state.colours:
        state.colour = by
        state.update()
        assert state.found.computed == ()
        seen.add(str(f.map_figure(state, "semantic_agnostic").data[0].marker.color))
    assert len(seen) == len(state.colours)
    state.colour = "style"


def test_a_model_that_reads_english_too_and_every_language_of_the_main_one(bench, tmp_path):
    s = StylesState(
        bench, keep_in=tmp_path, n=140, languages=tuple(StylesState(bench).readable), reducer="tsne", colour="language"
    )
    s.update()
    assert s.message == "" and {c.language for c in s.found.captions} == set(bench.main.method.languages)
    rtl = next(i for i, c in enumerate(s.found.captions) if c.language == "ar")
    s.select([rtl])
    assert s.listing()[0]["direction"] == "rtl"
    from dasd_lab.explore.styles.panel import card_html

    assert 'dir="rtl"' in card_html(s, rtl) and 'lang="ar"' in card_html(s, rtl)


def test_a_gallery_without_captions_says_what_is_missing(bench, tmp_path):
    method = bench.main.method
    own = Workbench(method, gallery=Gallery(method).add([bench.picture(i) for i in bench.ids[:3]], ids="abc"))
    panel = Styles(state=StylesState(own, keep_in=tmp_path), wait=True)
    assert "captions" in panel.state.message and panel.state.found is None and panel.snapshot()


def test_a_gallery_with_captions_of_its_own(bench, tmp_path):
    method = bench.main.method
    ids = bench.ids[:12]
    captions = [Caption(c.text, "de", i) for i in ids for c in bench.captions(i, "de")[:1]]  # no style, no English
    own = Workbench(method, gallery=Gallery(method).add([bench.picture(i) for i in ids], ids=ids, captions=captions))
    s = StylesState(own, keep_in=tmp_path, n=12, reducer="tsne")
    panel = Styles(state=s, wait=True)
    assert s.message == "" and len(s.found.captions) == 12 and "style" not in s.colours and s.colour in s.colours
    assert panel.table.value.count("<tr>") >= 2


def test_numbers_out_of_range_are_told(bench, tmp_path):
    s = StylesState(bench, keep_in=tmp_path, n=20_001)
    s.update()
    assert "20,000" in s.message and s.found is None
    s.n = 200
    s.languages = ()
    s.update()
    assert "no language" in s.message


def test_twenty_thousand_captions_can_be_drawn(bench):
    assert len(bench.sample(20_000, origin=None)) == 20_000


def test_noise_keeps_few_neighbours():
    x = np.random.default_rng(0).normal(size=(300, 64))
    kept, chance = neighbours_kept(x, draw_map(x, MapSpec("tsne")).points)
    assert chance < 0.06 and kept < 0.5
