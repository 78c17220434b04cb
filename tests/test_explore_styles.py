"The Styles explorer on the shipped weights: reproducible maps, planted clusters, agreement, selection"

import contextlib
import io
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from dasd_lab.base.contracts import Caption
from dasd_lab.evaluation.expression_groups import expression_groups
from dasd_lab.evaluation.maps import caption_features, standardised
from dasd_lab.explore.styles.figures import finding
from dasd_lab.explore.styles.panel import Styles, card_html
from dasd_lab.explore.styles.state import StylesState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.search.gallery.in_memory import Gallery


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture(scope="module")
def state(bench, tmp_path_factory):
    s = StylesState(bench, keep_in=tmp_path_factory.mktemp("maps"), reducer="tsne")  # nothing to compile
    s.update()
    assert s.message == ""
    return s


PRINT_MAP_HASHES = """
import hashlib
import numpy as np
from dasd_lab.evaluation.maps import MapSpec, draw_map

x = np.random.default_rng(0).normal(size=(150, 24)).astype("float32")
for reducer in ("umap", "tsne"):
    points = draw_map(x, MapSpec(reducer, seed=3))
    print(hashlib.sha256(points.tobytes()).hexdigest())
"""


@pytest.mark.slow
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
    row = s.analysis.agreement.set_index(["feature", "label"]).loc[("semantic_related", "group")]
    assert row.nmi > row.nmi_high
    assert row.ari > row.ari_high
    assert s.analysis.alike["group"]["semantic_related"].nearest > 0.9
    assert all(near < 4 for near in s.nearest(0)["semantic_related"])


def nearest_share(features: np.ndarray, labels: list[str]) -> float:
    "Share of the rows whose nearest other row, by centred cosine, has their label"
    x = features - features.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosine = x @ x.T - 2 * np.eye(len(x))
    return np.mean([labels[j] == labels[i] for i, j in enumerate(cosine.argmax(1))])


def test_what_is_shown_first_needs_no_captions(bench, tmp_path):
    "Sentences in four kinds of expression: kinds are near by f_sa and topics by f_sr, as the headline says"
    method = bench.main.method
    gallery = Gallery(method).add([bench.picture(id) for id in bench.ids[:3]], ids="abc")
    panel = Styles(Workbench(method, gallery=gallery), keep_in=tmp_path, reducer="tsne")
    assert panel.snapshot().count("<figure") == 2  # both maps, in an exported page
    s = panel.state
    assert s.message == "" and s.shown == s.expressions[0]
    assert "<h3" in panel["dl-finding"].value
    sample = expression_groups(s.shown)
    shares = [nearest_share(x, list(sample[by])) for x in s.analysis.features.values() for by in ("group", "topic")]
    (kind, topic), (kind_sr, topic_sr) = shares[:2], shares[2:]
    assert kind > 2 * kind_sr and topic_sr > 3 * topic
    assert re.findall(r"(\d+) %", finding(s))[:4] == [f"{100 * share:.0f}" for share in shares]
    panel.fill_example("de")
    panel.use_sentences(wait=True)
    assert s.message == "" and "16 sentences" in panel["dl-kept"].value
    panel.choose_shown("", wait=True)
    assert "captions" in s.message


def test_a_gallery_with_captions(bench, tmp_path):
    "Captions without a style, and without a caption in the source language"
    method = bench.main.method
    ids = bench.ids[:12]
    origins = ["human"] * 10 + ["mt", "mllm"]
    captions = [Caption(bench.captions(id, "de")[0].text, "de", id, o) for id, o in zip(ids, origins)]
    gallery = Gallery(method).add([bench.picture(id) for id in ids], ids=ids, captions=captions)
    s = StylesState(Workbench(method, gallery=gallery), keep_in=tmp_path, n=12, reducer="tsne")
    panel = Styles(s)
    panel.choose_shown("", wait=True)
    assert s.message == ""
    assert len(s.analysis.captions) == 12
    for i, caption in enumerate(s.analysis.captions):
        card = card_html(s, i)
        said = ["machine translation" in card, "written by a captioner" in card]
        assert said == [caption.origin == "mt", caption.origin == "mllm"]
    assert "style" not in s.colours
    assert s.colour in s.colours
    assert panel["dl-table"].value.count("<tr>") >= 2
