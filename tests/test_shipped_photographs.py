"Shipped weights of photographs: size, offline use, and, where Flickr8k is at hand, the card and shown queries"

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from test_shown_queries import IMAGES, ROW, of_world
from torch.nn.functional import normalize

from dasd_lab.base.storage import read_tensors
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import FolderCorpus, load_corpus
from dasd_lab.evaluation.fields import field_figures
from dasd_lab.evaluation.short_queries import short_queries
from dasd_lab.runs.loading import load_run, words_of
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.explain.slot_attention import read_slots, slot_wins
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.search.gallery.views import corpus_gallery

FOLDER = shipped_run("photographs")
FLICKR8K = Path(os.environ.get("DASD_LAB_FLICKR8K") or Path(__file__).resolve().parents[2] / "shared/data/flickr8k")


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def method():
    return load_run("photographs")


@pytest.fixture(scope="module")
def corpus():
    if not FLICKR8K.is_dir():
        pytest.skip(f"no Flickr8k in {FLICKR8K}: what is found is judged by its captions")
    return load_corpus("flickr8k", root=FLICKR8K)


@pytest.fixture(scope="module")
def gallery(method, corpus):
    "The test photographs; with a data root that keeps their embeddings they are encoded once"
    return corpus_gallery(method, corpus, "test")


@pytest.fixture(scope="module")
def english(corpus):
    "What people say of each test photograph in English, by id"
    captions: dict[str, list[str]] = {}
    for caption in corpus.captions("test", "en"):
        captions.setdefault(caption.visual_id, []).append(caption.text)
    return {visual_id: " ".join(texts) for visual_id, texts in captions.items()}


@pytest.fixture(scope="module")
def slots(method):
    return load_run("photographs/leccr", backbone=method.backbone)


def test_slots_read_captions_as_the_shipped_model_does(method, slots, monkeypatch):
    monkeypatch.setattr(method, "companion", None)
    for code, text in dict(de="ein Hund im Schnee", zh="一只狗", ar="كلب", en="a dog").items():
        whole = method.encode_captions([text], code)[:, : slots.embed_dim]  # without the concepts of the other
        assert normalize(slots.encode_captions([text], code).float(), dim=-1).equal(whole), code
    assert slots.languages == method.languages
    stored = read_tensors(FOLDER / "leccr/model.safetensors")
    assert {name.split(".")[0] for name in stored} == {"visual", "temperature"}


def test_words_describe_what_an_image_shows(slots):
    "Embeddings of sentences stand for images: a describer is right about what they say"
    sentences = ["a surfer on a big wave", "a boy jumps into a swimming pool", "a man rides a bicycle"]
    words = words_of("photographs", slots.backbone)
    texts = words.of_features(slots.backbone.encode_source(sentences))
    assert "surf" in texts[0] and "pool" in texts[1] and "bicycle" in texts[2], texts
    assert 300 < len(words.words) < 1000 and all(word.isalpha() for word in words.words)
    assert words.settings == slots.describer.settings


def test_slots_describe_and_rank_ones_own_images(slots):
    "Images of one colour, without a corpus and without descriptions"
    colours = ["red", "green", "blue", "white", "black"]
    images = [np.full((64, 64, 3), ImageColor.getrgb(colour), np.uint8) for colour in colours]
    gallery = Gallery(slots).add(images, colours)
    assert all(text.endswith(".") and "," in text for text in gallery.descriptions)
    assert gallery.search("green", "en", 1).ids == ["green"]
    reading = read_slots(gallery, "blue")
    assert reading.description == gallery.descriptions[2]
    assert gallery.visuals["slots"].shape == (5, 4, slots.embed_dim)


def test_no_slot_fits_more_than_half_of_the_captions_best(slots):
    everyday = load_corpus("everyday")
    captions = [caption for code in slots.languages for caption in everyday.captions("test", code)]
    winners = slot_wins(Gallery(slots).add_split(everyday), captions).winners
    assert winners.bincount().max() <= len(winners) / 2


def test_commands_describe_by_words(tmp_path, capsys):
    "Images of one's own, with no corpus of captions in between"
    (tmp_path / "train").mkdir()
    for colour in ("red", "green", "blue"):
        Image.new("RGB", (64, 64), colour).save(tmp_path / f"train/{colour}.png")
    rows = [dict(text="a colour", language="en", visual_id=colour, origin="human") for colour in ("red", "green")]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["describe", str(tmp_path), "--captioner", "words"]) == 0
    assert all("," in text for text in FolderCorpus(tmp_path).descriptions("train"))
    assert main(["describe", str(tmp_path), "--captioner", "words", "--prompt", "what"]) == 1
    assert "--captioner words with ['prompt']" in capsys.readouterr().err
    assert main(["describe", str(tmp_path), "--captioner", "words", "--backbone", "pictograms"]) == 1
    assert "without a folder `words`" in capsys.readouterr().err
    search = ["search", "green", "--pictures", str(tmp_path / "train"), "--run", "photographs/leccr", "-k", "1"]
    for captioner in ([], ["--captioner", "words"]):
        assert main([*search, *captioner]) == 0
        out, err = capsys.readouterr()
        assert "green" in out and "reads descriptions" not in err


def test_the_card_says_what_it_was_trained_on(card):
    assert "Flickr8k" in card["trained_on"]
    assert "research" in card["licence"]
    assert {"zh", "de", "fr", "cs", "ar", "es", "uk"} <= set(card["languages"])
    assert str(Path.home()) not in json.dumps(card)


def test_every_language_is_read(method):
    queries = dict(
        en="a dog", zh="一只狗", de="ein Hund", fr="un chien", cs="pes", ar="كلب", es="un perro", uk="собака"
    )
    features = {code: method.encode_captions([text], code)[0] for code, text in queries.items()}
    other = method.encode_captions(["two women at a market"], "en")[0]
    cosine = torch.nn.functional.cosine_similarity
    for code, found in features.items():
        assert cosine(found, features["en"], dim=0) > cosine(found, other, dim=0), code


@pytest.mark.slow
def test_figures_are_those_of_the_card(method, card, corpus, gallery):
    "Mean recall on fields of Multi30K, one caption a photograph: by people, and by a machine"
    fields = ["m30k_de", "m30k_cs", "m30k_mt_uk"]
    found = field_figures(method, corpus, fields, known=gallery.columns)
    assert set(found) == set(fields)
    for field, row in found.items():
        assert abs(row["mean_recall"] - card["fields"][field]["mean_recall"]) <= 0.002, field


@pytest.mark.slow
def test_short_queries_are_as_right_as_the_card_says(method, card, corpus, gallery):
    "The first photograph shows what is named, by the captions of people: 14 of 20 single nouns or more"
    found = short_queries(method, corpus, gallery.columns)
    right = found.pivot_table("right", "language", "kind", "sum").to_dict("index")
    assert set(right) == {"en", *method.languages}
    for language, row in right.items():
        assert row["noun"] >= 14, found[(found.language == language) & ~found.right]
        for kind, n in card["short_queries"]["right"][language].items():
            assert abs(row[kind] - n) <= 1, (language, kind)


@pytest.mark.slow
@pytest.mark.parametrize("query", of_world("photographs"))
def test_the_first_row_of_a_shown_query_is_right(query, gallery, english):
    "The captions of the first photograph say all that is asked for, and those of half of the row or more some of it"
    assert query.text in IMAGES, f"say in IMAGES what {query.text!r} ({query.where}) asks for"
    row = [english[visual_id] for visual_id in gallery.search(query.text, k=ROW).ids]
    said = [[bool(re.search(rf"(?i)\b(?:{words})", text)) for words in IMAGES[query.text]] for text in row]
    assert all(said[0]), (query.text, row[0])
    assert sum(map(any, said)) >= ROW / 2, (query.text, row)
