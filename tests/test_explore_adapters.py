"The Adapters explorer agrees with the model: matrices, similarity, ranks with adapters off; a model chosen later"

import numpy as np
import pytest
import torch

from dasd_lab.base.contracts import LabError
from dasd_lab.evaluation.adaptation import (
    ranks_without,
    read_adapters,
    switch_offs,
)
from dasd_lab.explore.adapters import figures
from dasd_lab.explore.adapters.panel import Adapters
from dasd_lab.explore.adapters.state import NOW, AdaptersState
from dasd_lab.explore.workbench import TRANSLATED, Workbench, default_workbench
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.gallery.in_memory import Gallery

pytestmark = pytest.mark.skipif(
    not (shipped_run() / "card.json").is_file(), reason=f"no trained run in {shipped_run()}"
)


@pytest.fixture(scope="module")
def bench():
    return default_workbench()


@pytest.fixture
def state(bench):
    return AdaptersState(bench)


def full_matrix_rank(method, gallery, text, language, id, skip):
    "Rank from the scores of all images, counted one by one"
    scores = method.score(method.encode_captions([text], language, skip=skip), gallery.visuals)[0].tolist()
    target_score = scores[gallery.ids.index(id)]
    return 1 + sum(score >= target_score for other, score in zip(gallery.ids, scores) if other != id)


@pytest.mark.parametrize("name", ["DASD", "static adapter"])
@pytest.mark.parametrize("off", [(), (0,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_ranks_equal_those_of_the_model(bench, name, off):
    if name not in bench.models:
        pytest.skip(f"no model {name!r}")
    state = AdaptersState(bench, model=name)
    images = (("test-00007", "de"), ("test-00021", "zh"), ("test-00450", "ar"), ("validation-00003", "fr"))
    captions = [bench.captions(id, language, "human")[0] for id, language in images]
    state.ask(*captions)
    state.switch(*off)
    assert state.message == ""
    model = bench.model(name)
    expected = [full_matrix_rank(model.method, model.gallery, c.text, c.language, c.visual_id, off) for c in captions]
    assert state.ranks[NOW].tolist() == expected
    assert [len(state.top_images(i, 5)) for i in range(4)] == [5] * 4


def test_matrices_equal_those_of_the_model(bench, state):
    queries = [("eine rote Katze", "de"), ("猫", "zh"), ("قطة حمراء", "ar"), ("zwei Hunde am Strand", "de")]
    state.ask(*queries)
    method = bench.main.method
    expected = torch.cat([method.inspect([text], language)["generated"] for text, language in queries])
    torch.testing.assert_close(state.adapted.generated, expected, atol=1e-5, rtol=1e-4)
    deviations = state.adapted.generated - torch.eye(32)
    figure = figures.heat_maps(deviations, [text for text, _ in queries], state.blocks)
    drawn = [trace.z for trace in figure.data]
    assert np.allclose(drawn, (expected - torch.eye(32)).flatten(0, 1).numpy(), atol=1e-5)
    assert {trace.coloraxis for trace in figure.data} == {"coloraxis"}


def test_change_is_that_of_the_hidden_states(bench):
    text = "Zwei kleine Hunde liegen am Strand."
    adapted = read_adapters(bench.main.method, [text], ["de"])
    inspected = bench.main.method.inspect([text], "de")
    before = inspected["block_tokens"][:, 0]
    after = inspected["adapted_tokens"][:, 0]
    end = int(inspected["end_index"][0])
    expected = (after - before).norm(dim=-1) / before.norm(dim=-1)
    torch.testing.assert_close(adapted.change_at_end[0], expected[:, end], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(adapted.change[0], expected[:, : end + 1].mean(1), atol=1e-5, rtol=1e-4)


def test_similarity(state):
    state.take_many(120, ["de", "ja"])
    assert state.message == ""
    for block in (None, 0, 2):
        similarity = state.many.similarity(block)
        assert np.allclose(similarity, similarity.T)
        assert np.allclose(np.diag(similarity), 1)
    for by in ("style", "content", "language"):
        order = state.many.order(by)
        labels = np.array(state.many.labels[by])[order.index]
        assert all(set(labels[start:end]) == {name} for name, start, end in order.groups)
    assert len(figures.similarity_maps(state.many).data) == 3


def test_a_model_chosen_during_the_work(bench):
    "Results of the previous model are dropped, not mixed with those of the new one"
    if "static adapter" not in bench.models:
        pytest.skip("no static adapter")
    state = AdaptersState(bench, model="DASD")
    for take, language in ((state.take_many, ["de"]), (state.take_recall, "de")):
        state.model = "DASD"
        take(100, language, report=lambda *_: state.set_trait("model", "static adapter"))
        assert (state.model, state.message, state.many, state.recall) == ("static adapter", "", None, None)


def test_without_captions(bench):
    "A gallery without captions accepts typed queries"
    method = bench.main.method
    gallery = Gallery(method).add([bench.picture(id) for id in bench.ids[:20]])
    panel = Adapters(Workbench(method, gallery=gallery))
    assert "Enter a caption" in panel.state.message
    panel.rows[0].box.value = "eine rote Katze"
    assert panel.state.message == ""
    assert "Katze" in panel["dl-ranks"].value
    assert len(panel["dl-images"].items) == 8


def test_bad_input_becomes_a_message(state):
    state.ask("eine rote Katze")
    before = state.ranks
    state.ask(("kissa", "fi"))
    assert "'fi'" in state.message
    assert state.ranks is before
    state.ask("Hund " * 500)
    assert "only the first" in state.message
    assert len(state.parsed) == 1


def test_refusals(bench):
    with pytest.raises(LabError, match="none of which has adapters"):
        AdaptersState(Workbench({"translated": bench.models[TRANSLATED].method}, gallery=bench.main.gallery))
    with pytest.raises(LabError, match="block 5"):
        ranks_without(bench.main.method, ["x"], ["de"], bench.main.gallery.visuals, [0], {"x": (5,)})
    assert list(switch_offs((0, 1))) == ["all adapters", "without block 0", "without block 1", "no adapters"]
