"Word-by-word English: examples by hand, nouns of captions, and unknown words"

import importlib.util
import json
from pathlib import Path

import pytest

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.pictograms.gloss import gloss_languages, to_english
from dasd_lab.pictograms.grammar import STYLES, languages, load_language

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ["de", "fr", "cs", "zh", "ja", "es", "ar", "it"]

BY_HAND = {
    "de": {
        "eine rote Katze": "a red cat",
        "Katzen": "cats",
        "der Hund und die Katze im Wald": "the dog and the cat in the forest",
        "zwei schwarze Hunde auf der Wiese": "two black dogs in a meadow",
        "Ein Flugzeug oberhalb von drei Löwen mitten im Wald.": "An airplane above three lions in the forest.",
        "Kaetzchen": "Kaetzchen",
        "LÖWE": "a lion",
        "Loewe": "a lion",
    },
    "fr": {
        "deux chats noirs": "two black cats",
        "des chats": "cats",
        "des ciseaux": "a pair of scissors",
        "une rose rose": "a pink rose",
        "l’arc-en-ciel": "the rainbow",
        "un gros chien à gauche de la maison": "a big dog to the left of the house",
        "En mer, il y a quatre oignons violets sur la droite d'une grande roue bleue.": (
            "On the sea, there are four purple onions to the right of a blue Ferris wheel."
        ),
    },
    "cs": {
        "kočky": "cats",
        "dvě kočky vlevo od psa": "two cats left of a dog",
        "dve zlute kocky": "two yellow cats",
        "V lese se nachází fialové letadlo, a to nad třemi červenými lvy.": (
            "In the forest is a purple airplane, above three red lions."
        ),
    },
    "zh": {
        "猫": "a cat",
        "两只红色的猫": "two red cats",
        "一只狗在猫的左边": "a dog to the left of a cat",
        "一大串葡萄": "a big bunch of grapes",
        "森林里的２只猫": "two cats in the forest",
        "三头红色的狮子上面停着一架紫色客机，这一幕就发生在森林里。": (
            "Stands a purple airplane over three red lions, in the forest."
        ),
    },
    "ja": {
        "猫": "a cat",
        "赤い猫が二匹": "two red cats",
        "２匹の猫": "two cats",
        "森の中の犬": "a dog in the forest",
        "犬の左に猫がいる": "a cat left of a dog",
        "一つの星の下に猫": "a cat under a star",
        "四個の玉ねぎが一基の青い観覧車の右隣に置かれている、海の上で、色は紫だ。": (
            "Four onions to the right of a blue Ferris wheel placed, on the sea, purple."
        ),
    },
    "es": {
        "una rosa rosa": "a pink rose",
        "rosas": "roses",
        "el gato negro": "the black cat",
        "un gato debajo del árbol": "a cat below the tree",
        "una gran casa azul": "a big blue house",
        "delfin": "a dolphin",
        "Cuatro cebollas violetas reposan en alta mar, al lado derecho de una noria azul.": (
            "Four purple onions rest out on the water, to the right of a blue Ferris wheel."
        ),
    },
    "ar": {
        "قطة حمراء": "a red cat",
        "القطة الحمراء": "the red cat",
        "قطتان": "two cats",
        "ثلاث قطط على الشاطئ": "three cats on the beach",
        "والكلب": "and the dog",
        "قِطَّة": "a cat",
        "قطه": "a cat",
        "كلب إلى يسار شجرة": "a dog to the left of a tree",
    },
    "it": {
        "un'ape": "a bee",
        "due gatti neri sulla spiaggia": "two black cats on the beach",
        "l'elefante grigio nella foresta": "the gray elephant in the forest",
        "gli zaini": "the backpacks",
        "una rosa rosa": "a pink rose",
        "il cane a sinistra del gatto": "the dog to the left of the cat",
    },
}


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms", progress=False)


@pytest.mark.parametrize("language", TARGETS)
def test_by_hand(language):
    for text, english in BY_HAND[language].items():
        assert to_english(text, language).english == english


def free_style_captions(corpus, language):
    "Free-style validation captions; generated for Italian, which has none in the corpus"
    if language != "it":
        return corpus.captions("validation", language, "human")
    ids = corpus.visuals("validation").ids
    return [corpus.describe(visual_id, "it", STYLES[i % 4]) for i, visual_id in enumerate(ids)]


def english_form(thing):
    "English noun of a thing, singular or plural"
    number = "sg" if thing.count == 1 else "pl"
    return load_language("en").nouns[thing.noun][0].forms[number, "nom"]


@pytest.mark.parametrize("language", TARGETS)
def test_validation_captions_keep_their_content(corpus, language):
    "The gloss has the nouns, numbers and places of the scene, and no unknown word"
    captions = free_style_captions(corpus, language)
    n_things = 0
    n_nouns = 0
    n_numbers = 0
    n_places = 0
    n_unknown = 0
    for caption in captions:
        gloss = to_english(caption.text, language)
        scene = corpus.scene(caption.visual_id)
        nouns = {word.key for word in gloss.words if word.kind == "noun"}
        places = {word.key for word in gloss.words if word.kind == "place"}
        n_unknown += bool(gloss.unknown)
        n_places += scene.place in places
        for thing in scene.things:
            n_things += 1
            n_nouns += thing.noun in nouns
            n_numbers += english_form(thing).lower() in gloss.english.lower()
    assert n_nouns / n_things >= 0.99
    assert n_numbers / n_things >= 0.98
    assert n_places / len(captions) >= 0.99
    assert n_unknown / len(captions) <= 0.01


@pytest.mark.parametrize("language", TARGETS)
def test_forms_are_read_as_their_noun(language):
    n_forms = 0
    n_correct = 0
    for key, synonyms in load_language(language).nouns.items():
        for noun in synonyms:
            for form in noun.forms.values():
                words = to_english(form, language).words
                n_forms += 1
                n_correct += any(word.kind == "noun" and word.key == key for word in words)
    assert n_correct / n_forms >= 0.98


def test_unknown_words():
    gloss = to_english("Mädchen mit einem roten Ballon", "de")
    assert gloss.english == "Mädchen with a red balloon"
    assert gloss.unknown == ("Mädchen",)
    assert str(gloss) == gloss.english
    assert to_english("una casa xyz roja", "es").unknown == ("xyz",)
    assert to_english("黑猫警长", "zh").unknown == ("警长",)
    assert to_english("ポケモン", "ja").english == "ポケモン"
    assert to_english("42 Hunde", "de").english == "42 dogs"
    assert to_english("<script>", "de").unknown == ("script",)
    assert "🐈" in to_english("🐈 Katze", "de").english
    for text in ("", " \n", "?!", "。。。", "ـ"):
        assert not any(to_english(text, language).unknown for language in ("en", *TARGETS))


def test_a_language_without_a_lexicon_names_the_next_step():
    with pytest.raises(LabError, match="'de'.*translate"):
        to_english("punainen kissa", "fi")
    assert gloss_languages() == languages(True)
    assert set(TARGETS) < set(gloss_languages())


def test_the_stored_table_is_up_to_date():
    "data/results/gloss.json agrees with tools/studies/gloss.py, for one language"
    spec = importlib.util.spec_from_file_location("tools_gloss", ROOT / "tools/studies/gloss.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    stored = json.loads(tool.RESULTS.read_text(encoding="utf-8"))["rows"]["cs"]
    computed = tool.gloss_results("test", ["cs"]).rows["cs"]
    assert abs(stored["mean_recall"] - computed["mean_recall"]) < 0.003
