"The Adapters explorer says what the model itself says: matrices, likeness, ranks with adapters switched off; and it copes with other models and pictures"

import numpy as np
import pytest
import torch
from squares import SOURCE, TINY, Squares

from dasd_lab.contracts import LabError
from dasd_lab.evaluation.adaptation import (
    adapter_similarity,
    ranks_without,
    read_adapters,
    switch_offs,
    usual_distances,
    variation_share,
)
from dasd_lab.explore.adapters import figures
from dasd_lab.explore.adapters.panel import Adapters
from dasd_lab.explore.adapters.state import NOW, AdaptersState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training.recipes import shipped_run

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
    "Rank from all scores of all pictures, counted one by one"
    scores = method.score(method.encode_captions([text], language, skip=skip), gallery.visuals)[0].tolist()
    own = scores[gallery.ids.index(id)]
    return 1 + sum(s >= own for i, s in enumerate(scores) if gallery.ids[i] != id)


@pytest.mark.parametrize("name", ["DASD", "static adapter"])
@pytest.mark.parametrize("off", [(), (0,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_ranks_are_the_models_own(bench, name, off):
    if name not in bench.models:
        pytest.skip(f"no model {name!r}")
    state = AdaptersState(bench, model=name)
    captions = [
        bench.captions(i, l, "human")[0]
        for i, l in (("test-00007", "de"), ("test-00021", "zh"), ("test-00450", "ar"), ("validation-00003", "fr"))
    ]
    state.ask(*captions)
    state.switch(*off)
    assert state.message == ""
    model = bench.model(name)
    expected = [full_matrix_rank(model.method, model.gallery, c.text, c.language, c.visual_id, off) for c in captions]
    assert state.ranks[NOW].tolist() == expected
    assert [len(state.pictures(i, 5)) for i in range(4)] == [5] * 4


def test_some_rank_does_move(bench, state):
    "Otherwise the test above would pass on a switch that does nothing"
    captions = bench.sample(60, ["de", "zh"])
    state.ask(*captions[:60])
    assert (state.ranks["all adapters"] != state.ranks["no adapters"]).any()


def test_matrices_are_the_models_own(bench, state):
    asked = [("eine rote Katze", "de"), ("猫", "zh"), ("قطة حمراء", "ar"), ("zwei Hunde am Strand", "de")]
    state.ask(*asked)
    alone = torch.cat([bench.main.method.inspect([t], l)["generated"] for t, l in asked])
    torch.testing.assert_close(state.adapted.generated, alone, atol=1e-5, rtol=1e-4)
    drawn = figures.heat_maps(state.adapted.generated - torch.eye(32), [t for t, _ in asked], state.blocks)
    assert np.allclose([t.z for t in drawn.data], (alone - torch.eye(32)).flatten(0, 1).numpy(), atol=1e-5)
    assert {t.coloraxis for t in drawn.data} == {"coloraxis"}


def test_change_is_that_of_the_hidden_states(bench):
    text = "Zwei kleine Hunde liegen am Strand."
    read = read_adapters(bench.main.method, [text], ["de"])
    own = bench.main.method.inspect([text], "de")
    b = own["block_tokens"][:, 0]
    a = own["adapted_tokens"][:, 0]
    e = int(own["end_index"][0])
    by_hand = (a - b).norm(dim=-1) / b.norm(dim=-1)
    torch.testing.assert_close(read.change_at_end[0], by_hand[:, e], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(read.change[0], by_hand[:, : e + 1].mean(1), atol=1e-5, rtol=1e-4)


def test_similarity(state):
    state.take_many(120, ["de", "ja"])
    assert state.message == ""
    for block in (None, 0, 2):
        s = state.many.similarity(block)
        assert np.allclose(s, s.T) and np.allclose(np.diag(s), 1) and s.min() >= -1 and s.max() <= 1
    for by in ("style", "content", "language"):
        order = state.many.order(by)
        labels = np.array(state.many.labels[by])[order.index]
        assert sorted(order.index) == list(range(len(labels)))
        assert all(set(labels[a:b]) == {name} for name, a, b in order.groups) and order.groups[-1][2] == len(labels)
    drawn = figures.likeness(state.many)
    assert len(drawn.data) == 3
    assert len({(c.language, c.text) for c in state.many.captions}) == len(state.many.captions)


def test_similarity_by_a_slow_reference():
    g = torch.randn(7, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    s = adapter_similarity(g, 1)
    x = g[:, 1].reshape(7, 9).double() - g[:, 1].reshape(7, 9).double().mean(0)
    for i in range(7):
        for j in range(7):
            assert abs(s[i, j] - float(x[i] @ x[j] / (x[i].norm() * x[j].norm()))) < 1e-6
    assert usual_distances(g).shape == (21, 2) and variation_share(g, range(7))[0] == pytest.approx([1, 1])


def test_official_form_has_matrices_too(bench):
    if "official form" not in bench.models:
        pytest.skip("the official form is not shipped")
    state = AdaptersState(bench, model="official form")
    state.ask("eine rote Katze", "猫")
    state.switch(0)
    method = state.method
    torch.testing.assert_close(
        state.adapted.generated[0], method.inspect(["eine rote Katze"], "de")["generated"][0], atol=1e-5, rtol=1e-4
    )
    assert state.ranks[NOW].tolist() == state.ranks["without block 0"].tolist()


def test_a_switch_leaves_the_matrices(state):
    state.ask("eine rote Katze", "猫")
    state.switch(0)
    matrices = state.adapted.generated
    state.switch(1)
    assert state.off == {1} and state.adapted.generated.equal(matrices)


def test_a_run_of_ones_own(tmp_path):
    "A tiny method with two blocks on plain squares: no styles, no describe, nothing of the built-in corpus"
    from dasd_lab.training.recipes import train
    from dasd_lab.training.source_model import train_source

    corpus = Squares()
    run = train(TINY, corpus, backbone=train_source(SOURCE, corpus, progress=False), progress=False)
    bench = Workbench(run.method, corpus, ("train",))
    state = AdaptersState(bench)
    state.ask(
        "ein rotes Quadrat auf der Wiese.", "ein blaues Quadrat auf der Wiese.", "ein gelbes Quadrat auf der Wiese."
    )
    assert state.message == "" and state.blocks == (0, 1) and state.adapted.generated.shape == (3, 2, 4, 4)
    state.switch(1)
    assert (state.adapted.change[:, 1] == 0).all()
    state.draw(2)
    # machine captions, for want of others
    assert state.message == "" and all(a.why == "its own picture" for a in state.asked)
    state.take_many(30)
    assert state.message == "" and state.many.labels == {} or "content" in state.many.labels
    state.take_recall(20)
    assert len(state.recall) == 4
    state.draw_pairs()
    panel = Adapters(state)
    assert panel.maps.figure and len(panel.toggles.children) == 3


def test_without_captions(bench):
    "A gallery of pictures alone can be asked, and says what it cannot give"
    method = bench.main.method
    panel = Adapters(Workbench(method, gallery=Gallery(method).add([bench.picture(i) for i in bench.ids[:20]])))
    assert "Type a caption" in panel.state.message
    panel.rows[0].box.value = "eine rote Katze"
    assert panel.state.message == "" and "Katze" in panel.rank_table.value and len(panel.grid.items) == 8


def test_bad_input_becomes_a_message(state):
    state.ask("eine rote Katze")
    before = state.ranks
    state.ask(("kissa", "fi"))
    assert "'fi'" in state.message and state.ranks is before
    state.ask("\u200b", "   ")
    assert state.message or state.asked == []
    state.ask("Hund " * 500)
    assert "only the first" in state.message and len(state.asked) == 1


def test_english_uses_no_adapter(state):
    panel = Adapters(state, "a red cat on the beach")
    assert (
        panel.state.ranks.nunique(axis=1).item() == 1
        and "no adapter" in panel.rows[0].box.hint
        and "use no adapters" in panel.maps.figure.layout.annotations[0].text
    )


def test_refusals(bench):
    with pytest.raises(LabError, match="none of which has adapters"):
        AdaptersState(
            Workbench({"translated": bench.models["English, translated query"].method}, gallery=bench.main.gallery)
        )
    with pytest.raises(LabError, match="block 5"):
        ranks_without(bench.main.method, ["x"], ["de"], bench.main.gallery.visuals, [0], {"x": (5,)})
    assert list(switch_offs((0, 1))) == ["all adapters", "without block 0", "without block 1", "no adapters"]
