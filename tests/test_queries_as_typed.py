"Queries as people type them find what the plain ones find"

import unicodedata
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dasd_lab.commands.search import _image_of, _unread
from dasd_lab.corpora.captions import Spelling, plain_text
from dasd_lab.runs.loading import load_run
from dasd_lab.search.doubt import calibration_of
from dasd_lab.search.queries import read_query

CAPTIONS = {
    "en": "two dogs run in the snow",
    "de": "Ein Mädchen läuft über die Straße",
    "cs": "dva psi běží ve sněhu",
    "fr": "l'homme à la fenêtre regarde la mer",
    "es": "un niño jugando al fútbol",
    "uk": "двоє собак біжать по снігу",
    "ar": "امرأة تجلس على الشاطئ",
    "zh": "两只狗在雪地里奔跑",
}


def bare(text):
    "Without marks"
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")


WAYS = {
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    "capitals": lambda text: text.upper(),
    "quotes": lambda text: f"“{text}”",
    "no marks": lambda text: text if "د" in text else bare(text),
    "curly": lambda text: text.replace("'", "’"),
    "accents": lambda text: text.replace("'", "´"),
    "tatweel": lambda text: text.replace("ل", "لـــ"),
    "vowels": lambda text: text.replace("ت", "تَ"),
    "keyboard": lambda text: text.replace("ك", "ک").replace("ي", "ی"),
    "traditional": lambda text: text.replace("里", "裡").replace("两", "兩"),
    "alef": lambda text: text.replace("أ", "ا").replace("ة", "ه"),
    "Latin letters": lambda text: text.replace("і", "i").replace("о", "o"),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "transcribed": lambda text: text.replace("ä", "ae").replace("ß", "ss"),
}


@cache
def photographs():
    "The shipped method, without its image tower"
    return load_run("photographs", images=False)


@cache
def vector(text, language):
    "Embedding of a query, as a search makes it"
    query = read_query(text, photographs(), language)
    return torch.nn.functional.normalize(photographs().encode_captions([query.encoded], language), dim=-1)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CAPTIONS)), st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=3, unique=True))
def test_a_caption_written_in_other_ways_is_read_as_the_caption(language, ways):
    typed = CAPTIONS[language]
    for way in ways:
        typed = WAYS[way](typed)
    assert float(vector(typed, language) @ vector(CAPTIONS[language], language).T) > 0.97, typed


@given(st.text(max_size=40))
@settings(deadline=None)
def test_the_usual_form_of_a_text_stays(text):
    plain = plain_text(text)
    assert plain_text(plain_text(plain)) == plain_text(plain)


@pytest.mark.parametrize(
    ("typed", "language", "read"),
    [
        ("IŞIK IŞIĞI", "tr", "ışık ışığı"),
        ("ΔΥΟ ΣΚΥΛΟΣ", "el", "δυο σκυλος"),
        ("STRASSE", "de", "straße"),
        ("DVA PSI", "cs", "dva psi"),
    ],
)
def test_capitals_follow_the_rules_of_the_language(typed, language, read):
    spelled = Spelling(dict(de=["straße"]))(typed, language)
    assert spelled == read


def test_a_language_without_accents_is_recognised():
    for language in ("cs", "es"):
        assert read_query(bare(CAPTIONS[language]), photographs()).language == language


@pytest.mark.parametrize(
    ("query", "language"),
    [("due cani corrono nella neve", "it"), ("две собаки бегут по снегу", "ru"), ("dois cães correndo na neve", "pt")]
    + [(caption, None) for caption in CAPTIONS.values()],
)
def test_a_language_of_the_companion_alone_is_recognised(query, language):
    read = read_query(query, photographs())
    assert (read.language if read.reader else None) == language


def test_the_companion_doubts():
    companion = load_run("photographs/multilingual", images=False)
    calibration = calibration_of(companion)
    nonsense = companion.encode_captions(["xqzt blorf"], "it")
    assert "no image" in calibration.signs("xqzt blorf", "it", nonsense, -0.5)
    assert not calibration.signs("due cani", "it", nonsense, 0.9)


def test_words_that_are_not_read_are_named():
    first = "a man in a blue shirt stands near a small wooden table with many cups and plates " * 5
    unread = _unread(photographs(), f"{first}and two dogs", "en")
    assert unread.endswith("and two dogs ") and 0 < len(unread) < len(first)
    assert not _unread(photographs(), "two dogs run", "en")


def test_an_image_is_searched_by_its_path(tmp_path):
    from PIL import Image

    Image.new("RGB", (9, 9)).save(tmp_path / "house.jpg")
    assert _image_of(str(tmp_path / "house.jpg")) == _image_of(f"'{tmp_path}/house.jpg'") == tmp_path / "house.jpg"
    assert _image_of("a house") is None
    with pytest.raises(ValueError, match="path of no image"):
        _image_of("missing/house.jpg")
