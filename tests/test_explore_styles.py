"The Styles explorer on the shipped weights: reproducible maps, planted clusters, agreement, selection"

import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from dasd_lab.base.contracts import Caption
from dasd_lab.evaluation.maps import (
    ClusterSpec,
    MapSpec,
    caption_features,
    draw_map,
    find_clusters,
    label_agreement,
    standardised,
)
from dasd_lab.explore.styles import figures as f
from dasd_lab.explore.styles.panel import Styles, card_html
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
    "Features in well-separated clusters, shuffled, with the cluster of each row"
    rng = np.random.default_rng(seed)
    labels = rng.integers(kinds, size=n)
    centres = 3 * rng.normal(size=(kinds, width))
    features = centres[labels] + rng.normal(size=(n, width))
    return features.astype(np.float32), labels


PRINT_MAP_HASHES = """
import hashlib
import numpy as np
from dasd_lab.evaluation.maps import MapSpec, draw_map

x = np.random.default_rng(0).normal(size=(150, 24)).astype("float32")
for reducer in ("umap", "tsne"):
    points = draw_map(x, MapSpec(reducer, seed=3)).points
    print(hashlib.sha256(points.tobytes()).hexdigest())
"""


def test_the_same_seed_gives_the_same_map_in_another_process_with_other_threads():
    "Bit for bit: a map must not depend on the process, on hashing or on the number of threads"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(PRINT_MAP_HASHES, {})
    other_process = subprocess.run(
        [sys.executable, "-c", PRINT_MAP_HASHES],
        env=os.environ | dict(OMP_NUM_THREADS="2", NUMBA_NUM_THREADS="2", PYTHONHASHSEED="2"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.getvalue()
    assert output.getvalue() == other_process.stdout


def test_planted_clusters_are_found_on_features_and_on_maps():
    x, labels = planted()
    for spec in (ClusterSpec(n_clusters=5), ClusterSpec("hdbscan")):
        assert adjusted_rand_score(labels, find_clusters(x, spec)) > 0.98, spec
    for reducer in ("umap", "tsne"):
        points = draw_map(x, MapSpec(reducer)).points
        clusters = find_clusters(points, ClusterSpec("hdbscan"))
        assert adjusted_rand_score(labels, clusters) > 0.9, reducer


def test_agreement_equals_scikit_learn_and_collapses_for_shuffled_labels():
    x, labels = planted()
    clusters = find_clusters(x, ClusterSpec(n_clusters=3))
    agreement = label_agreement(clusters, labels)
    assert agreement.nmi == pytest.approx(normalized_mutual_info_score(labels, clusters))
    assert agreement.ari == pytest.approx(adjusted_rand_score(labels, clusters))
    shuffled = label_agreement(clusters, np.random.default_rng(9).permutation(labels))
    assert shuffled.nmi < 0.1 * agreement.nmi
    assert abs(shuffled.ari) < 0.05
    assert agreement.nmi_chance == pytest.approx(shuffled.nmi, abs=0.03)
    assert abs(agreement.ari_chance) < 0.02


def test_features_are_those_of_the_method(state, bench):
    captions = state.analysis.captions
    method = bench.main.method
    single = method.inspect([captions[7].text], captions[7].language)
    with torch.no_grad():
        together = method.inspect([c.text for c in captions], "de")
    for name, features in state.analysis.features.items():
        column = together[name].double()
        expected = (single[name][0] - column.mean(0)) / column.std(0, correction=0)
        np.testing.assert_allclose(features[7], expected.numpy(), atol=2e-3)


def test_same_state_same_map_other_seed_other_captions(state, bench, tmp_path):
    again = StylesState(bench, keep_in=tmp_path)
    again.update()
    assert again.analysis.captions == state.analysis.captions
    for name, m in state.analysis.maps.items():
        assert np.array_equal(m.points, again.analysis.maps[name].points)
    again.seed = 1
    again.update()
    assert again.analysis.captions != state.analysis.captions


def test_the_list_has_the_captions_in_the_lasso(state):
    points = state.analysis.maps["semantic_agnostic"].points
    low, high = np.quantile(points, [0.3, 0.7], axis=0)
    inside = np.flatnonzero(((points > low) & (points < high)).all(1))
    state.select(inside[::-1])
    rows = state.listing()
    assert [row["index"] for row in rows] == inside.tolist()
    assert [row["text"] for row in rows] == [state.analysis.captions[i].text for i in inside]
    for name in state.analysis.maps:
        assert f.map_figure(state, name).data[0].selectedpoints == tuple(inside)
    state.select([])


def test_recolouring_changes_colours_and_computes_nothing(state):
    marker_colours = set()
    agreement = state.analysis.agreement
    for colour in state.colours:
        state.colour = colour
        state.update()
        assert state.analysis.agreement is agreement
        points = f.map_figure(state, "semantic_agnostic").data[0]
        marker_colours.add(str(points.marker.color))
    assert len(marker_colours) == len(state.colours)
    state.colour = "style"


def test_sentences_of_every_language_of_the_main_model(bench, tmp_path):
    "Captions pasted as text with groups are recognised and encoded as the captions they are"
    for language in ("zh", "ar"):
        captions = bench.sample(12, (language,), origin=None)
        s = StylesState(bench, keep_in=tmp_path, reducer="tsne")
        s.give_sentences("\n".join(f"{'ab'[i % 2]} | {c.text}" for i, c in enumerate(captions)))
        assert s.message == ""
        s.update()
        assert s.message == ""
        assert [(c.text, c.language) for c in s.analysis.captions] == [(c.text, language) for c in captions]
        assert s.colour == "group"
        assert set(s.analysis.facts.group) == {"a", "b"}
        raw = caption_features(bench.main.method, captions)
        for name, features in s.analysis.features.items():
            np.testing.assert_allclose(features, standardised(raw[name]), atol=1e-4)
        s.select([1])
        assert s.listing()[0]["direction"] == ("rtl" if language == "ar" else "ltr")


def test_groups_that_the_features_hold_agree_with_the_clusters(bench, tmp_path):
    "Captions of one scene in four languages: groups of equal meaning are clusters of f_sr and neighbours"
    s = StylesState(bench, keep_in=tmp_path, reducer="tsne")
    lines = []
    for id in bench.ids[:8:2]:
        lines += [f"{id}\t{bench.captions(id, language)[0].text}" for language in ("de", "fr", "zh", "ar")]
    s.give_sentences("\n".join([*lines, "Ein Hund ohne Gruppe."]))
    assert s.message == ""
    s.update()
    assert s.message == ""
    assert s.n_clusters == 4
    agreement = s.analysis.agreement.set_index(["feature", "label"])
    row = agreement.loc[("semantic_related", "group")]
    assert row.nmi > row.nmi_high
    assert row.ari > row.ari_high
    assert s.analysis.same_group["semantic_related"].nearest > 0.9
    assert all(near < 4 for near in s.nearest(0)["semantic_related"])


def test_a_gallery_without_captions(bench, tmp_path):
    method = bench.main.method
    gallery = Gallery(method).add([bench.picture(id) for id in bench.ids[:3]], ids="abc")
    panel = Styles(Workbench(method, gallery=gallery), keep_in=tmp_path)
    panel.work.run(wait=True)
    assert "captions" in panel.state.message
    assert panel.state.analysis is None
    assert panel.snapshot()
    panel.fill_example("de")
    panel.use_sentences(wait=True)
    assert panel.state.message == ""
    assert "16 sentences of your own" in panel.kept.value
    panel.use_images(wait=True)
    assert "captions" in panel.state.message


def test_a_gallery_with_captions(bench, tmp_path):
    "Captions without a style, and without a caption in the source language"
    method = bench.main.method
    ids = bench.ids[:12]
    origins = ["human"] * 10 + ["mt", "mllm"]
    captions = [Caption(bench.captions(id, "de")[0].text, "de", id, o) for id, o in zip(ids, origins)]
    gallery = Gallery(method).add([bench.picture(id) for id in ids], ids=ids, captions=captions)
    s = StylesState(Workbench(method, gallery=gallery), keep_in=tmp_path, n=12, reducer="tsne")
    panel = Styles(s)
    panel.work.run(wait=True)
    assert s.message == ""
    assert len(s.analysis.captions) == 12
    for i, caption in enumerate(s.analysis.captions):
        card = card_html(s, i)
        said = ["machine translation" in card, "written by a captioner" in card]
        assert said == [caption.origin == "mt", caption.origin == "mllm"]
    assert "style" not in s.colours
    assert s.colour in s.colours
    assert panel.table.value.count("<tr>") >= 2


def test_settings_that_change_during_the_work(bench, tmp_path):
    "Also during the work that an earlier change caused"
    s = StylesState(bench, keep_in=tmp_path, n=40, reducer="tsne")
    panel = Styles(s)
    panel.work.run(wait=True)
    seeds = iter((5, 6, 7))

    def change_and_compute(report):
        analysis = s.compute(report)
        panel.seed.value = next(seeds, 7)
        return analysis

    panel.work.work = change_and_compute
    panel.work.run(wait=True)
    assert s.message == "" and s.analysis.settings == s.settings and s.seed == 7
