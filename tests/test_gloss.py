"Word-by-word English: examples by hand, nouns of captions, and unknown words"

import importlib.util
import json
from pathlib import Path

import pytest

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.gloss import to_english
from dasd_lab.pictograms.grammar import STYLES, load_language

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ["de", "fr", "cs", "zh", "ja", "es", "ar", "it"]


@pytest.mark.parametrize(
    "language, text, english",
    [
        ("de", "Ein Flugzeug oberhalb von drei Löwen mitten im Wald.", "An airplane above three lions in the forest."),
        ("de", "Loewe", "lion"),
        ("fr", "l’arc-en-ciel", "the rainbow"),
        ("fr", "un gros chien à gauche de la maison", "a big dog to the left of the house"),
        ("cs", "dve zlute kocky", "two yellow cats"),
        ("zh", "两只红色的猫", "two red cats"),
        ("zh", "一大串葡萄", "a big bunch of grapes"),
        ("ja", "２匹の猫", "two cats"),
        ("es", "una rosa rosa", "a rose pink"),
        ("ar", "القطة الحمراء", "the cat the red"),
        ("ar", "قطتان", "two cats"),
        ("ar", "قِطَّة", "cat"),
        ("it", "un'ape", "a bee"),
        ("de", "Mädchen mit einem roten Ballon", "Mädchen with a red balloon"),
        ("ja", "ポケモン", "ポケモン"),
        ("de", "42 Hunde", "42 dogs"),
    ],
)
def test_by_hand(language, text, english):
    assert to_english(text, language).english == english


@pytest.mark.parametrize("language", TARGETS)
def test_validation_captions_keep_their_content(language):
    "The gloss has the nouns and places of the scene, and hardly an unknown word; Italian captions are generated"
    corpus = load_corpus("pictograms", progress=False)
    ids = corpus.visuals("validation").ids[:300]
    captions = [corpus.describe(v, language, STYLES[i % 4]) for i, v in enumerate(ids)]
    found = []
    for caption in captions:
        gloss = to_english(caption.text, language)
        scene = corpus.scene(caption.visual_id)
        keys = {reading.key for _, reading in gloss.words}
        found.append((all(t.noun in keys for t in scene.things), scene.place in keys, not gloss.unknown))
    assert all(sum(column) / len(captions) >= 0.97 for column in zip(*found))


@pytest.mark.parametrize("language", TARGETS)
def test_forms_are_read_as_their_noun(language):
    correct = []
    for key, synonyms in load_language(language).nouns.items():
        for form in {form for noun in synonyms for form in noun.forms.values()}:
            correct.append(any(reading.key == key for _, reading in to_english(form, language).words))
    assert sum(correct) / len(correct) >= 0.97


def test_unknown_words():
    assert to_english("una casa xyz roja", "es").unknown == ("xyz",)
    assert to_english("黑猫警长", "zh").unknown == ("警长",)
    for text in ("", " \n", "?!", "。。。", "ـ"):
        assert not any(to_english(text, language).unknown for language in ("en", *TARGETS))
    with pytest.raises(LabError, match="'de'.*translate"):
        to_english("punainen kissa", "fi")


def test_the_stored_table_is_up_to_date(monkeypatch):
    "data/results/gloss.json agrees with tools/studies/gloss.py, for one language"
    monkeypatch.syspath_prepend(ROOT / "tools/studies")
    spec = importlib.util.spec_from_file_location("tools_gloss", ROOT / "tools/studies/gloss.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    stored = json.loads(tool.RESULTS.read_text(encoding="utf-8"))["rows"]["cs"]
    computed = tool.gloss_results("test", ["cs"]).rows["cs"]
    assert abs(stored["mean_recall"] - computed["mean_recall"]) < 0.003
