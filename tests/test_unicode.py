"Everything that reads text takes any text: it answers, or refuses it in one line"

from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_gallery import Colours, plain

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.base.contracts import LabError
from dasd_lab.commands.arguments import text_table
from dasd_lab.corpora.captions import (
    clean_text,
    recognise_language,
    script_of,
    written_as,
)
from dasd_lab.corpora.languages import language_code
from dasd_lab.corpora.own.parallel import read_parallel
from dasd_lab.corpora.quality import judge_translations
from dasd_lab.methods.smalr.vocabulary import caption_words
from dasd_lab.pictograms.gloss import to_english
from dasd_lab.search.cleaning import clean_query
from dasd_lab.search.explain.contributions import word_spans
from dasd_lab.search.gallery.in_memory import Gallery

TANGUT = "\U00017000"  # Python 3.11 has no name of its letters
LANGUAGES = "en", "de", "zh", "ja", "ar", "ru"
TOKENIZER = train_tokenizer(["two dogs run", "zwei Hunde laufen", "两只狗"], 100)


@cache
def gallery():
    "Two plain images and a method that reads the length of a query"
    method = Colours()
    method.encode_captions = lambda captions, language: torch.tensor([[float(len(c)), 1.0, 2.0] for c in captions])
    return Gallery(method).add([plain((i * 40, 100, 50)) for i in range(2)])


def spans_cover(text):
    "Words and the blanks between them are the whole text"
    spans = word_spans(text, "ja")
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())


READERS = dict(
    clean_text=lambda text: clean_text(clean_text(text)),
    clean_query=clean_query,
    language_code=language_code,
    recognise_language=lambda text: recognise_language(text, LANGUAGES),
    written_as=lambda text: written_as(text, "de"),
    search=lambda text: gallery().search(text),
    word_spans=spans_cover,
    filters=lambda text: judge_translations([("two dogs", text), (text, text), (text, "zwei Hunde")], "de"),
    parallel=lambda text: read_parallel(f"two dogs\t{text}\n{text}\tzwei Hunde\n", "de"),
    parallel_bytes=lambda text: read_parallel(text.encode("utf-8", "surrogatepass"), "de", "captions.csv"),
    gloss=lambda text: [to_english(text, language) for language in ("de", "ja")],
    words=lambda text: [caption_words(text, tokenizer) for tokenizer in ("unicode_words", "character_bigrams")],
    tokens=lambda text: TOKENIZER([clean_text(text)]),
    text_table=lambda text: text_table([{text: text}]),
)
anything = st.text(st.characters(exclude_categories=()), max_size=40)  # with lone surrogates, as JSON may hold them
letters = st.text(st.characters(categories=["L"]), min_size=1, max_size=20)
HARD = [TANGUT * 13, "9" * 5000, "٣ ² ⅓", "dogs\t1", '"', "{", "\ud83d dogs"]
captions = st.sampled_from(["zwei Hunde im Schnee", *HARD])
texts = st.lists(anything | letters | captions, max_size=3).map("".join)


@pytest.mark.filterwarnings("ignore:A query of")
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=texts)
def test_any_text_is_read_or_refused_in_one_line(reader, text):
    try:
        READERS[reader](text)
    except LabError as e:
        assert e.expected and e.next_step and "\n" not in str(e)


def test_every_character_has_a_script_or_none():
    scripts = {script_of(chr(code)) for code in range(0x20000)}
    assert {"", "LATIN", "CJK", "HIRAGANA", "TANGUT"} <= scripts
    assert script_of(TANGUT) == ""


@pytest.mark.filterwarnings("ignore:A query of")
@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
@pytest.mark.parametrize("reader", READERS)
def test_texts_that_were_refused_by_a_traceback_or_might_be(reader, text):
    if reader == "language_code":
        with pytest.raises(LabError):
            language_code(text)
    else:
        READERS[reader](text)
