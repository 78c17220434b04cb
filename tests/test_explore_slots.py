"""The Slots explorer shows the attention, similarities and scores of the method.

Also every setting of descriptions, clips, several scripts, and models without slots."""

import numpy as np
import pytest
import torch
from squares import BERT, COLOURS, Squares
from torch.nn.functional import normalize

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.base.contracts import Caption, LabError
from dasd_lab.base.presets import load_preset, settings, vary
from dasd_lab.explore.slots import figures as f
from dasd_lab.explore.slots import state as slots_state
from dasd_lab.explore.slots.panel import Slots
from dasd_lab.explore.slots.state import SlotsState
from dasd_lab.explore.workbench import Workbench
from dasd_lab.methods.leccr.encoder import LECCR, LECCRConfig
from dasd_lab.search.explain.slot_attention import content_words, match_slots, nearest_to_slots, read_slots
from dasd_lab.search.gallery.in_memory import Gallery

SENTENCES = dict(de="ein {} Quadrat", ar="مربع {}", zh="一个{}方块")
COLOUR_WORDS = dict(
    de=("rotes", "blaues", "grünes", "gelbes"), ar=("أحمر", "أزرق", "أخضر", "أصفر"), zh=("红色", "蓝色", "绿色", "黄色")
)
DESCRIPTIONS = [f"A square that is {colour}, seen from above." for colour in COLOURS]
TRANSLATED_CAPTIONS = [
    Caption(SENTENCES[language].format(word), language, f"p{i}")
    for language, words in COLOUR_WORDS.items()
    for i, word in enumerate(words)
]
CAPTIONS = TRANSLATED_CAPTIONS + [Caption(f"a {colour} square", "en", f"p{i}") for i, colour in enumerate(COLOURS)]


def method_of(backbone, **changes):
    "A LECCR with random weights and changed settings"
    base = load_preset("leccr.pictograms")["config"]
    base |= dict(languages=list(COLOUR_WORDS), embed_dim=16, text=dict(encoder=BERT, max_tokens=32))
    small = {"config.block.heads": 2, "config.slots.n": 3}
    config = vary(dict(config=base), small | {f"config.{key}": value for key, value in changes.items()})["config"]
    tokenizer = train_tokenizer([c.text for c in CAPTIONS] * 3 + DESCRIPTIONS * 3, 200)
    torch.manual_seed(1)
    return LECCR(settings(LECCRConfig, config), backbone, tokenizer).eval()


def gallery_of(backbone, captions=CAPTIONS, **changes):
    "Four squares with their descriptions"
    return Gallery(method_of(backbone, **changes)).add(
        [Squares().visuals("train")[i] for i in range(4)],
        ids=[f"p{i}" for i in range(4)],
        descriptions=DESCRIPTIONS,
        captions=captions,
    )


def bench_of(gallery):
    return Workbench({"LECCR": gallery.method}, gallery=gallery)


@pytest.fixture
def gallery(backbone):
    return gallery_of(backbone)


@pytest.fixture
def state(gallery):
    return SlotsState(bench_of(gallery))


SETTINGS = [
    {},
    dict(similarity="raw", beta=0.0),
    dict(descriptions="first"),
    dict(descriptions="tokens"),
    {"interaction.direction": "coattention"},
    {"interaction.direction": "v2c", "interaction.layers": 2, "slots.layers": 2},
    {"vision.reads": "frames", "description_encoder": "frozen"},
]
QUERY = "ein rotes Quadrat"


def real_slots(gallery, n):
    "Slots of the n-th image, without padding"
    slots = gallery.visuals["slots"][n]
    if "slot_mask" in gallery.visuals:
        return slots[gallery.visuals["slot_mask"][n]]
    return slots


def check_scores(gallery):
    "The score is that of the equation, slot by slot, and that of the search"
    method = gallery.method
    matches = match_slots(gallery, QUERY, gallery.ids, "de")
    query = normalize(method.encode_captions([QUERY], "de")[0], dim=0)
    beta = method.config.beta
    for n in range(len(gallery)):
        slots = real_slots(gallery, n)
        if method.config.similarity != "raw":
            slots = normalize(slots, dim=-1)
        expected = (slots @ query).tolist()
        shown = [value for value in matches.slots[n].tolist() if value > -np.inf]
        np.testing.assert_allclose(shown, expected, atol=1e-5)
        whole = float(query @ normalize(gallery.visuals["features"][n], dim=0))
        score = beta * whole + (1 - beta) * max(expected)
        assert matches.score[n].item() == pytest.approx(score, abs=1e-5)
        assert matches.best[n] == int(np.argmax(expected))
    hits = [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in gallery.search(QUERY, "de")]
    assert hits == sorted(zip(matches.ids, matches.score.tolist()), key=lambda match: -match[1])


def check_attention(reading):
    "Shares of attention sum to one"
    ones = torch.ones(len(reading.names))
    if reading.maps is None:
        assert reading.blind
    else:
        others = 0 if reading.others is None else reading.others
        total = reading.maps.sum((1, 2, 3)) + reading.whole.sum(1) + others
        torch.testing.assert_close(total, ones, atol=1e-5, rtol=0)
    if reading.read is not None:
        torch.testing.assert_close(reading.read.sum(1) + reading.framing, ones, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "changes", SETTINGS, ids=lambda changes: " ".join(f"{k}={v}" for k, v in changes.items()) or "preset"
)
def test_every_setting_adds_up(backbone, changes):
    gallery = gallery_of(backbone, **changes)
    check_scores(gallery)
    reading = read_slots(gallery, "p1")
    assert len(reading.names) == len(real_slots(gallery, 1))
    check_attention(reading)
    panel = Slots(bench_of(gallery), QUERY)
    assert panel.state.message == ""
    assert panel["dl-scores"].value.count("aria-current") == 1
    assert panel.snapshot()
    assert f.map_figure(panel.state.picture(), reading, 0)
    assert len(panel["dl-cards"].items) == len(reading.names)


def test_best_slots_of_many_captions(state):
    state.draw(3)
    Slots(state)["dl-count-wins"].run(wait=True)
    assert state.message == ""
    wins = state.wins
    assert wins.counts.sum(axis=1).tolist() == [4] * 4
    assert [caption.language for caption in wins.captions[::4]] == ["de", "ar", "zh", "en"]
    for caption, winner in zip(wins.captions, wins.winners.tolist()):
        matches = match_slots(state.source.gallery, caption.text, caption.visual_id, caption.language)
        assert matches.best == [winner]


def test_a_choice_made_during_the_work(backbone, gallery, monkeypatch):
    "Results of the previous model or image are dropped"
    bench = Workbench({"three": gallery.method, "five": method_of(backbone, **{"slots.n": 5})}, gallery=gallery)
    state = SlotsState(bench)
    state.draw(3)
    state.count_wins(report=lambda *_: state.set_trait("model", "five"))
    assert (state.model, state.message, state.wins) == ("five", "", None)

    def words(captions, language):
        state.choose(next(id for id in gallery.ids if id != state.chosen))
        return content_words(captions, language)

    monkeypatch.setattr(slots_state, "content_words", words)
    state.find_nearest()
    assert (state.message, state.nearest) == ("", None)


def test_columns_that_a_gallery_lacks(backbone, tmp_path, monkeypatch):
    "They are embedded once, from the file of an image or else from its thumbnail"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path / "data"))
    plain = method_of(backbone, descriptions="none", **{"vision.reads": "frames"})
    sources = {f"p{i}": tmp_path / f"p{i}.png" for i in range(4)}
    for i, file in enumerate(sources.values()):
        Squares().visuals("train")[i].picture.save(file)
    images = Gallery(plain).add(list(sources.values()), list(sources))
    sources["p0"].unlink()
    sources["p1"].write_bytes(b"no image")

    def opened():
        bench = Workbench({"plain": plain, "LECCR": method_of(backbone)}, gallery=images, sources=sources)
        said = []
        bench.observe(lambda change: said.append(change.new), "status")
        return bench, bench.models["LECCR"].gallery, said

    bench, gallery, said = opened()
    assert said == ["embedding images: 0 of 4", ""]
    expected = Gallery(gallery.method).add([bench.picture(id) for id in sources], list(sources))
    assert gallery.ids == list(sources)
    torch.testing.assert_close(gallery.visuals["slots"], expected.visuals["slots"], atol=1e-5, rtol=1e-4)
    _, again, said = opened()
    assert again.visuals["slots"].equal(gallery.visuals["slots"]) and not said


def test_words_nearest_to_slots(state):
    state.draw(3)
    panel = Slots(state)
    panel["dl-words-in"].value = "ar"
    panel["dl-find-nearest"].run(wait=True)
    assert state.message == ""
    assert 'lang="ar" dir="rtl"' in panel["dl-nearest"].value
    gallery = state.source.gallery
    words = ["مربع", *COLOUR_WORDS["ar"]]
    near = nearest_to_slots(gallery, state.chosen, [Caption(word, "ar", "") for word in words], 1, "more")
    vectors = gallery.method.encode_captions(words, "ar")
    cosines = torch.cosine_similarity(vectors[:, None], gallery.picture_visuals(state.chosen)["slots"], dim=-1)
    more = cosines - cosines.mean(1, keepdim=True)
    assert near.text.tolist() == [words[i] for i in more.argmax(0)]
    assert near.more.tolist() == pytest.approx(more.max(0).values.tolist(), abs=1e-5)


def test_a_gallery_without_captions(backbone):
    panel = Slots(bench_of(gallery_of(backbone, captions=[])))
    assert "Type a query" in panel.state.message
    assert panel["dl-details"].layout.display == "none"
    panel.query.box.value = QUERY
    panel.query.box.submitted = 1
    assert panel.state.message == ""
    assert panel["dl-details"].layout.display is None
    panel["dl-count-wins"].run(wait=True)
    assert "without captions" in panel.state.message


def test_methods_whose_views_cannot_be_compared(backbone):
    state = SlotsState(bench_of(gallery_of(backbone, descriptions="tokens")))
    state.count_wins(4)
    assert "one view per token" in state.message
    assert state.mean_cosines() is None
    with pytest.raises(LabError, match="descriptions 'none'"):
        read_slots(gallery_of(backbone, descriptions="none"), "p0")


def test_another_model_replaces_the_results(backbone, gallery):
    bench = Workbench({"three": gallery.method}, gallery=gallery)
    state = SlotsState(bench)
    panel = Slots(state)
    panel.query.box.value = QUERY
    panel.query.box.submitted = 1
    panel["dl-count-wins"].run(wait=True)
    chosen = state.chosen
    bench.add("five", method_of(backbone, **{"slots.n": 5}))
    assert state.available == ["three", "five"]
    panel["dl-model"].value = "five"
    assert state.chosen == chosen
    assert len(panel["dl-cards"].items) == 5
    assert state.wins is None
    assert state.matches.query.text == QUERY
    assert panel["dl-wins"].figure is None
