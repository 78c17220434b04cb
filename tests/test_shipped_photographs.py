"Shipped weights of photographs: size, offline use, and figures of the card where Flickr8k is at hand"

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dasd_lab.backbone.towers import fingerprint, load_backbone, save_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.training.recipes import load_run, shipped_run

FOLDER = shipped_run("photographs")
FLICKR8K = Path(__file__).resolve().parents[2] / "shared/data/flickr8k"
with_photographs = pytest.mark.skipif(not FLICKR8K.is_dir(), reason=f"no Flickr8k in {FLICKR8K}")


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def method():
    return load_run("photographs")


@pytest.fixture(scope="module")
def some_photographs(method):
    "Every fifth test photograph, with its features"
    corpus = load_corpus("flickr8k", root=FLICKR8K)
    chosen = corpus.visuals("test").ids[::5]
    visuals = corpus.visuals("test")
    return corpus, chosen, method.backbone.encode_pictures([visuals[visuals.index_of(i)] for i in chosen])


def test_size():
    sizes = [path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(sizes) <= 25_000_000


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


def test_a_saved_backbone_keeps_only_what_its_packages_lack(method, tmp_path):
    save_backbone(method.backbone, tmp_path / "backbone", half=True)
    assert sum(path.stat().st_size for path in (tmp_path / "backbone").iterdir()) < 15_000_000
    assert fingerprint(load_backbone(tmp_path / "backbone")) == fingerprint(method.backbone)


@with_photographs
def test_captions_in_every_language_find_their_photographs(method, card, some_photographs):
    "Among 200 photographs recall is above that of the card among 1,000"
    corpus, chosen, images = some_photographs
    row_of = {visual_id: row for row, visual_id in enumerate(chosen)}
    for language in ("en", *method.languages):
        captions = [c for c in corpus.captions("test", language) if c.visual_id in row_of]
        texts = method.encode_captions([c.text for c in captions], language)
        scores = method.score(texts, method.encode_visuals(images))
        target = torch.tensor([row_of[c.visual_id] for c in captions])
        rank = (scores > scores.gather(1, target[:, None])).sum(1)
        assert (rank < 10).float().mean() > card["test"][language]["text_to_image_R@10"], language


@with_photographs
def test_nouns_are_as_many_as_the_card_says(card):
    "Of 20 single nouns in each language; the first photograph shows it by the captions of people"
    right = {language: row["noun"] for language, row in card["short_queries"]["right"].items()}
    assert set(right) == {"en", "zh", "de", "fr", "cs", "ar", "es", "uk"}
    assert min(right.values()) >= 14


def test_noise_is_searched_without_a_corpus(method):
    "Encoding needs neither corpus nor hub"
    noise = np.random.default_rng(0).integers(0, 256, (300, 200, 3), np.uint8)
    assert method.backbone.encode_pictures([noise]).shape == (1, method.embed_dim)
