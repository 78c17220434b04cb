"The Slots explorer says what the method computes: attention, similarities and the score; it copes with every setting of descriptions, with clips, other scripts, and no model"

import numpy as np
import pytest
import torch
from squares import COLOURS, SOURCE, Squares
from torch.nn.functional import normalize

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.contracts import Caption, LabError
from dasd_lab.corpora.visuals import Visual
from dasd_lab.explore.slots import figures as f
from dasd_lab.explore.slots.panel import Slots
from dasd_lab.explore.slots.state import SlotsState
from dasd_lab.explore.workbench import SHIPPED, Workbench, default_workbench
from dasd_lab.leccr.encoder import LECCR, LECCRConfig
from dasd_lab.presets import load_preset, settings, vary
from dasd_lab.search.explain.slot_attention import has_slots, match_slots, nearest_to_slots, read_slots
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training.recipes import shipped_run
from dasd_lab.training.source_model import train_source

BERT = dict(
    model_type="bert",
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
)
SAID = dict(de="ein {} Quadrat", ar="مربع {}", zh="一个{}方块")
WORDS = dict(
    de=("rotes", "blaues", "grünes", "gelbes"), ar=("أحمر", "أزرق", "أخضر", "أصفر"), zh=("红色", "蓝色", "绿色", "黄色")
)
TOLD = [f"A square that is {c}, seen from above." for c in COLOURS]
CAPTIONS = [
    Caption(SAID[language].format(w), language, f"p{i}") for language, ws in WORDS.items() for i, w in enumerate(ws)
] + [Caption(f"a {c} square", "en", f"p{i}") for i, c in enumerate(COLOURS)]


@pytest.fixture(scope="module")
def backbone():
    return train_source(SOURCE, Squares(), progress=False)


def method_of(backbone, **changes):
    torch.manual_seed(1)
    config = vary(
        dict(
            config=load_preset("leccr.pictograms")["config"]
            | dict(languages=list(WORDS), embed_dim=16, text=dict(encoder=BERT, max_tokens=32))
        ),
        {"config.block.heads": 2, "config.slots.n": 3} | {f"config.{k}": v for k, v in changes.items()},
    )["config"]
    return LECCR(
        settings(LECCRConfig, config), backbone, train_tokenizer([c.text for c in CAPTIONS] * 3 + TOLD * 3, 200)
    ).eval()


def gallery_of(backbone, captions=CAPTIONS, **changes):
    return Gallery(method_of(backbone, **changes)).add(
        [Squares().visuals("train")[i] for i in range(4)],
        ids=[f"p{i}" for i in range(4)],
        descriptions=TOLD,
        captions=captions,
    )


@pytest.fixture
def gallery(backbone):
    return gallery_of(backbone)


@pytest.fixture
def state(gallery):
    return SlotsState(Workbench({"LECCR": gallery.method}, gallery=gallery))


SETTINGS = [
    {},
    dict(similarity="raw"),
    dict(descriptions="first"),
    dict(descriptions="mean"),
    dict(descriptions="tokens"),
    dict(beta=1.0),
    dict(beta=0.0),
    {"interaction.direction": "coattention"},
    {"interaction.direction": "c2v"},
    {"interaction.direction": "v2c", "interaction.layers": 2, "slots.layers": 2},
    {"vision.reads": "frames"},
    dict(description_encoder="frozen"),
    {"block.form": "literal"},
]


@pytest.mark.parametrize("changes", SETTINGS, ids=lambda c: " ".join(f"{k}={v}" for k, v in c.items()) or "preset")
def test_every_setting_adds_up(backbone, changes):
    "Shares of attention sum to one; the score is the equation's, slot by slot, and the search's"
    gallery = gallery_of(backbone, **changes)
    method = gallery.method
    found = match_slots(gallery, "ein rotes Quadrat", gallery.ids, "de")
    vector = normalize(method.encode_captions(["ein rotes Quadrat"], "de")[0], dim=0)
    for n, id in enumerate(gallery.ids):
        own = gallery.visuals["slots"][n]
        real = (
            gallery.visuals["slot_mask"][n]
            if "slot_mask" in gallery.visuals
            else torch.ones(len(own), dtype=torch.bool)
        )
        by_hand = [
            float(vector @ (s if method.config.similarity == "raw" else s / s.norm())) for s, r in zip(own, real) if r
        ]
        np.testing.assert_allclose([v for v in found.slots[n].tolist() if v > -np.inf], by_hand, atol=1e-5)
        whole = float(vector @ normalize(gallery.visuals["features"][n], dim=0))
        assert found.score[n].item() == pytest.approx(
            method.config.beta * whole + (1 - method.config.beta) * max(by_hand), abs=1e-5
        )
        assert found.best[n] == int(np.argmax(by_hand))
    assert [(h.id, pytest.approx(h.score, abs=1e-5)) for h in gallery.search("ein rotes Quadrat", "de")] == sorted(
        zip(found.ids, found.score.tolist()), key=lambda x: -x[1]
    )
    r = read_slots(gallery, "p1")
    assert len(r.names) == len(
        gallery.picture_visuals("p1")["slots"][0][gallery.visuals["slot_mask"][1]]
        if "slot_mask" in gallery.visuals
        else gallery.visuals["slots"][0]
    )
    if r.maps is None:
        assert r.blind
    else:
        torch.testing.assert_close(
            r.maps.sum((1, 2, 3)) + r.whole.sum(1) + (0 if r.others is None else r.others),
            torch.ones(len(r.names)),
            atol=1e-5,
            rtol=0,
        )
    if r.read is not None:
        torch.testing.assert_close(r.read.sum(1) + r.framing, torch.ones(len(r.names)), atol=1e-5, rtol=0)
    panel = Slots(Workbench({"LECCR": method}, gallery=gallery), "ein rotes Quadrat")
    assert panel.state.message == "" and panel.scores.value.count("aria-current") == 1 and panel.snapshot()
    assert f.map_figure(panel.state.picture(), r, 0) and len(panel.cards.items) == len(r.names)


def test_a_description_that_is_cut_is_read_as_far_as_the_method_reads(backbone):
    gallery = gallery_of(backbone)
    r = read_slots(gallery, "p0", "A square " * 40)
    assert (
        r.read.shape == (3, 80)
        and float(r.read[:, 40:].sum()) == 0
        and torch.allclose(r.read.sum(1) + r.framing, torch.ones(3), atol=1e-5)
    )


def test_maps_are_of_the_picture_alone(backbone):
    "Clips in the same gallery fill pictures up with nothing; a clip has a map a frame"
    still = gallery_of(backbone)
    visuals = Squares().visuals("train")
    clip = Visual("clip", np.concatenate([visuals[i].frames for i in (0, 1, 2)]))
    mixed = Gallery(still.method).add([visuals[0], clip], ids=["p0", "clip"], descriptions=TOLD[:2])
    torch.testing.assert_close(read_slots(mixed, "p0").maps, read_slots(still, "p0").maps, atol=1e-5, rtol=1e-4)
    film = read_slots(mixed, "clip")
    assert film.maps.shape == (3, 3, 2, 2) and film.whole.shape == (3, 3) and film.heat.shape == (3, 2, 2)
    torch.testing.assert_close(film.maps.sum((1, 2, 3)) + film.whole.sum(1), torch.ones(3), atol=1e-5, rtol=0)


def test_permuted_queries_permute_maps(backbone):
    a = gallery_of(backbone)
    first = read_slots(a, "p2")
    order = [2, 0, 1]
    with torch.no_grad():
        a.method.visual.slots.queries.copy_(a.method.visual.slots.queries[order].clone())
    again = read_slots(a, "p2")
    torch.testing.assert_close(again.maps, first.maps[order], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(again.read, first.read[order], atol=1e-5, rtol=1e-4)


def test_another_query_moves_the_mark(state):
    "Slots that are put where two queries are"
    gallery = state.source.gallery

    def place(t, l):
        return gallery.method.encode_captions([t], l)[0]

    gallery.visuals["slots"] = gallery.visuals["slots"].clone()
    gallery.visuals["slots"][0, 1], gallery.visuals["slots"][0, 2] = (
        place("ein rotes Quadrat", "de"),
        place("مربع أزرق", "ar"),
    )
    panel = Slots(state)
    state.choose("p0")

    def marked():
        return [c.get("marked", False) for c in panel.cards.items].index(True)

    panel.query.value = "ein rotes Quadrat"
    assert (
        (marked(), state.chosen, state.slot) == (1, "p0", 1)
        and "slot 2 · fits best" in panel.scores.value
        and panel.map.figure.layout.title.text == "Slot 2: fits the query best"
    )
    panel.cards.clicked, panel.cards.clicks = "0", 1
    assert (
        state.slot == 0
        and panel.map.figure.layout.title.text == "Slot 1"
        and panel.cards.selected == "0"
        and marked() == 1
    )
    panel.query.value = "مربع أزرق"
    assert (marked(), state.slot) == (2, 2) and panel.query.hint.startswith("Arabic")
    panel.query.submitted += 1
    assert panel.found.rtl and [i["id"] for i in panel.found.items] == gallery.search("مربع أزرق", "ar").ids
    panel.query.value = "一个红色方块"
    assert panel.query.hint.startswith("Chinese") and "一个红色方块" in panel.snapshot()


def test_what_many_captions_say(state):
    state.draw(3)
    panel = Slots(state)
    panel._take_wins(wait=True)
    wins = state.wins
    assert (
        state.message == ""
        and wins.counts.sum(axis=1).tolist() == [4] * 4
        and [c.language for c in wins.captions[::4]] == ["de", "ar", "zh", "en"]
    )
    for c, w in zip(wins.captions, wins.winners.tolist()):
        assert match_slots(state.source.gallery, c.text, c.visual_id, c.language).best == [w]
    panel.word_language.value = "ar"
    panel._take_nearest(wait=True)
    assert state.message == "" and 'lang="ar" dir="rtl"' in panel.nearest.value
    words = ["مربع", *WORDS["ar"]]
    near = nearest_to_slots(state.source.gallery, state.chosen, [Caption(w, "ar", "") for w in words], 1, "more")
    method = state.source.method
    cos = torch.cosine_similarity(
        method.encode_captions(words, "ar")[:, None],
        state.source.gallery.picture_visuals(state.chosen)["slots"],
        dim=-1,
    )
    more = cos - cos.mean(1, keepdim=True)
    assert near.text.tolist() == [words[i] for i in more.argmax(0)] and near.more.tolist() == pytest.approx(
        more.max(0).values.tolist(), abs=1e-5
    )
    panel.by.value = "more"
    panel._take_nearest(wait=True)
    assert state.message == "" and len(state.nearest)


def test_what_it_cannot_do_is_told(backbone, state):
    state.ask("kissa", "fi")
    assert "'fi'" in state.message
    state.choose("nobody")
    assert "nobody" in state.message
    state.take_nearest()
    assert "no picture chosen" in state.message
    bare = gallery_of(backbone, captions=[])
    panel = Slots(Workbench({"LECCR": bare.method}, gallery=bare))
    assert "Type a query" in panel.state.message and panel.about.layout.display == "none"
    panel.query.value = "ein rotes Quadrat"
    panel.query.submitted = 1
    assert panel.state.message == "" and panel.about.layout.display is None
    panel._take_wins(wait=True)
    assert "without captions" in panel.state.message
    tokens = gallery_of(backbone, descriptions="tokens")
    s = SlotsState(Workbench({"LECCR": tokens.method}, gallery=tokens))
    s.take_wins(4)
    assert "one view per token" in s.message and s.mean_cosines() is None
    with pytest.raises(LabError, match="descriptions 'none'"):
        read_slots(gallery_of(backbone, descriptions="none"), "p0")


def test_models_come_and_go(backbone, gallery):
    "Only those with slots are offered, and what was seen of one is not shown of another"
    plain = method_of(backbone, descriptions="none")
    other = method_of(backbone, **{"slots.n": 5})
    bench = Workbench({"plain": plain}, gallery=gallery)
    state = SlotsState(bench)
    panel = Slots(state)
    assert state.model == "" and "dasd-lab train leccr" in panel.message.value and panel.asking.layout.display == "none"
    state.ask("Quadrat")
    state.take_wins()
    assert "no model with slots" in state.message
    bench.add("three", gallery.method)
    assert state.model == "three" and state.message == "" and panel.asking.layout.display is None
    panel.query.value = "ein rotes Quadrat"
    panel.query.submitted = 1
    panel._take_wins(wait=True)
    chosen = state.chosen
    bench.add("five", other)
    assert state.names == ["three", "five"]
    panel.model.value = "five"
    assert (
        state.chosen == chosen
        and len(panel.cards.items) == 5
        and state.wins is None
        and state.matches.query.text == "ein rotes Quadrat"
        and panel.wins.figure is None
    )


def test_a_companion_is_loaded_where_it_is_shipped():
    if not (shipped_run() / "card.json").is_file():
        pytest.skip(f"no trained run in {shipped_run()}")
    bench = default_workbench()
    there = (shipped_run() / SHIPPED["LECCR"]).is_dir()
    panel = Slots(bench)
    assert ("LECCR" in bench.models) == there and (panel.state.message == "") == there
    if there:
        assert has_slots(bench.models["LECCR"].method) and panel.state.reading.description in bench.corpus.descriptions(
            "test"
        ) + bench.corpus.descriptions("validation")
