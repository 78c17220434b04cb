"""Shared words and rankings with translations, with numbers computed by hand

Also scripts, unknown words, the precomputed form, changing models, and methods without words."""

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import test_consistency
import torch
from test_consistency import ByColour, Few

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.by_machine.builtin_translators import translators_for
from dasd_lab.explore.words import figures as f
from dasd_lab.explore.words.panel import Words
from dasd_lab.explore.workbench import Workbench
from dasd_lab.methods.smalr.consistency import LearnedConsistency
from dasd_lab.methods.smalr.encoder import SMALR, SMALRConfig, precomputed
from dasd_lab.methods.smalr.latent import LatentConfig
from dasd_lab.methods.smalr.vocabulary import WordVocabulary
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.explain.rankings import learn_combination, moves, rankings
from dasd_lab.search.explain.shared_words import (
    SharedWords,
    dictionary_check,
    dictionary_pairs,
    entries_by_languages,
    entry_meanings,
    has_words,
    read_word,
    with_words,
)
from dasd_lab.search.gallery.in_memory import Gallery

# fixtures
corpus = test_consistency.corpus
inner = test_consistency.inner

WORDS = dict(
    en=["the", "dog", "cat", "apple", "dogs"],
    de=["der", "hund", "katze", "apfel", "hunde", "dog"],
    ar=["على", "كلب", "قطة", "تفاحة"],
    zh=["一只", "熊猫", "只熊"],
)
COUNTS = dict(en=[60, 20, 10, 6, 4], de=[50, 20, 15, 10, 4, 1], ar=[40, 30, 20, 10], zh=[50, 30, 20])
# with K = 1 the first word of each language has its own vector; the entry of 'der' was dropped
CODES = [0, 1, 2, 3, 1, -1, 1, 2, 0, 1, 3, 0, 1, 3, 3, 0, 2, 2]


def method_of(backbone, words=WORDS, counts=COUNTS, codes=CODES, k=1, n=4):
    tokenizers = dict.fromkeys(words, "unicode_words") | {code: "character_bigrams" for code in words if code == "zh"}
    counted = {language: dict(zip(names, counts[language])) for language, names in words.items()}
    vocabulary = WordVocabulary(counted, tokenizers)
    torch.manual_seed(0)
    config = SMALRConfig(
        languages=tuple(words)[1:],
        specific=k,
        latent=LatentConfig(entries=n, dim=4),
        vector_width=6,
        own_width=4,
        embed_dim=8,
        image_hidden=8,
        gru_width=8,
    )
    made = SMALR(config, backbone, vocabulary)
    made.start_from(torch.randn(len(vocabulary), 6))
    made.words.latent.begin_entries()
    latent = made.words.latent
    latent.make_room(True, n, torch.randn(n, 4))
    latent.phase.fill_(2)
    latent.codes[2:] = torch.tensor(codes)
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def method(backbone):
    return method_of(backbone)


@pytest.fixture(scope="module")
def words(method):
    return SharedWords(method)


def gallery_of(method):
    return Gallery(method).add(
        [Few().visuals("train")[i] for i in range(8)],
        ids=[f"v{i}" for i in range(8)],
        captions=Few().captions("train", "en") + Few().captions("train", "de"),
    )


# words


@pytest.mark.parametrize(
    "text,language,pieces,unknown",
    [
        ("Hund", "de", ("hund",), []),
        ("dog", "en", ("dog",), []),
        ("كلب", "ar", ("كلب",), []),
        ("熊猫", "zh", ("熊猫",), []),
        ("一只熊猫", "zh", ("一只", "只熊", "熊猫"), []),
        ("der HUND bellt", "de", ("der", "hund", "bellt"), ["bellt"]),
        ("熊", "zh", ("熊",), ["熊"]),
        ("دب", "ar", ("دب",), ["دب"]),
    ],
)
def test_a_word_is_read_in_its_own_language(method, text, language, pieces, unknown):
    reading = read_word(text, method)
    assert (reading.language, reading.pieces, reading.unknown) == (language, pieces, unknown)
    assert reading.recognised
    for word, id in zip(reading.pieces, reading.ids):
        assert id is None or method.tokenizer.word(id) == (language, word)
    assert read_word(text, method, language).recognised is False


def test_entries_by_hand(words):
    assert words.table.own.sum() == 4
    assert words.of_entry(1)[["language", "word"]].values.tolist() == [
        ["en", "dog"],
        ["en", "dogs"],
        ["de", "hund"],
        ["de", "hunde"],
        ["ar", "كلب"],
    ]
    assert words.of_entry(0)[["word", "own"]].values.tolist() == [
        ["the", True],
        ["apfel", False],
        ["على", True],
        ["一只", True],
    ]
    # read: 0 apfel; 1 en de ar; 2 cat katze 熊猫 只熊; 3 apple dog قطة تفاحة — all words: 0 gains en, ar and zh
    assert entries_by_languages(words).T.values.tolist() == [[1, 0, 3, 0], [0, 0, 3, 1]]


def test_meanings_of_entries_by_hand(words):
    table = entry_meanings(words)
    assert table.loc[1, ["meanings", "share", "most", "agree"]].tolist() == [1, 1.0, "dog", 3]
    # apple twice, cat; the German lexicon has no "dog"
    assert table.loc[3, ["meanings", "share"]].tolist() == [2, pytest.approx(2 / 3)]


def test_neighbours_by_cosine(words, method):
    dog = method.tokenizer.numbers["de"]["hund"]
    near = words.nearest(dog, 2)
    assert near.groupby("language").size().to_dict() == dict(en=2, de=2, ar=2, zh=2)
    assert dog not in near.index
    vectors = method.words.table()
    cosine = torch.cosine_similarity(vectors[dog][None], vectors[near.index.tolist()])
    torch.testing.assert_close(
        torch.tensor(near.cosine.values), cosine.to(torch.float64), atol=1e-5, rtol=0, check_dtype=False
    )
    assert near.cosine.is_monotonic_decreasing
    assert set(near[near.cosine > 0.9999].word) == {"dog", "dogs", "hunde", "كلب"}
    # words with a count of at least 11: en 2, de 3 without itself, ar 3, zh 3
    assert len(words.nearest(dog, 9, fewest=11)) == 2 + 2 + 3 + 3


def test_the_curve_and_its_cut(words, backbone):
    assert words.curve("de").covered.tolist() == pytest.approx([0.5, 0.7, 0.85, 0.95, 0.99, 1.0])
    assert words.cut("de") == 1
    assert "1 of 6 words cover 50%" in f.frequency_figure(words, "de").layout.title.text


def test_the_dictionary_by_hand(words):
    pairs = dictionary_pairs(words)
    counts = Counter(zip(pairs.key, pairs.one, pairs.other))
    languages = (("en", "de"), ("en", "ar"), ("de", "ar"))
    expected = {("dog", "en", "de"): 4, ("dog", "en", "ar"): 2, ("dog", "de", "ar"): 2}
    for key in ("cat", "apple"):
        expected |= {(key, one, other): 1 for one, other in languages}
    assert counts == expected
    check = dictionary_check(words)
    shared = 8 + 1 + 1  # all dogs; cat and katze; apple and تفاحة
    figures = check.loc[("all", "dictionary")]
    assert (figures["pairs"], figures["compared"]) == (14, 14)
    assert figures["shared"] == pytest.approx(shared / 14)
    assert check.loc[("ar", "dictionary"), "shared"] == pytest.approx(5 / 8)
    assert "zh" not in check.index.get_level_values(0)
    assert f"{shared / 14:.1%} share" in f.describe_check(check)
    assert check.loc[("all", "dictionary"), "cosine"] > check.loc[("all", "shuffled"), "cosine"]


def test_the_precomputed_form_has_neighbours_without_entries(method, words):
    plain = SharedWords(precomputed(method))
    assert not plain.has_entries
    assert plain.tail.equal(words.tail)
    torch.testing.assert_close(plain.vectors, words.vectors)
    assert plain.nearest(5, 1).word.tolist() == words.nearest(5, 1).word.tolist()
    assert "shared" not in dictionary_check(plain)
    assert "form for use" in f.describe_entry(None, plain, 5)
    with pytest.raises(LabError, match="precomputed form"):
        plain.of_entry(0)


def test_other_methods_have_no_words(inner, backbone):
    assert not has_words(inner)
    with pytest.raises(LabError, match="dasd-lab train smalr"):
        with_words(inner)


def test_words_without_a_lexicon(backbone):
    vocabulary = dict(en=["tesseract", "nil"], fi=["kissa", "koira"])
    words = SharedWords(method_of(backbone, vocabulary, dict(en=[2, 1], fi=[2, 1]), [0, 1, 0, 1], n=2))
    assert entry_meanings(words).known.sum() == 0
    with pytest.raises(LabError, match="one meaning"):
        dictionary_check(words)


# rankings


def ids_by(method, gallery, text, language):
    "Ids of the images of a gallery as ranked by another method"
    other = Gallery(method)
    other.extend(gallery.ids, gallery.columns, {}, [], gallery.descriptions)
    return other.search(text, language, k=8).ids


def test_rankings_are_those_of_the_wrapped_method(inner):
    "By the query, by each translation, by their mean and by a learnt combination"
    gallery = gallery_of(inner)
    learnt = LearnedConsistency(("de", "fr", "en"))
    for weights in learnt.parameters():
        torch.nn.init.uniform_(weights, 0.0, 0.2, torch.Generator().manual_seed(3))
    found = rankings(gallery, "ein rotes Quadrat auf der Wiese.", "de", ByColour(), learnt)
    # no translation from German into French
    assert found.ways == ["own words", "en", "CLC-A", "CLC-C"]
    assert found.translated == {"en": "a red square."}
    assert found.extension == (inner.name != "smalr")
    assert not found.oracle

    text = found.query.text
    assert found.best("own words", 8) == gallery.search(text, "de", k=8).ids
    assert found.best("en", 8) == gallery.search("a red square.", "en", k=8).ids
    assert found.best("CLC-A", 8) == ids_by(Consistent(inner, ByColour()), gallery, text, "de")
    assert found.best("CLC-C", 8) == ids_by(Consistent(inner, ByColour(), learnt), gallery, text, "de")
    assert found.weights["CLC-A"] == dict(de=0.5, en=0.5)
    weights = learnt.weights
    german = weights["de"] + weights["fr"] / 2
    assert found.weights["CLC-C"]["de"] == pytest.approx(german / sum(weights.values()))
    table = moves(found, "CLC-A", 8)
    assert (table.was - table["rank"]).equals(table.moved)
    assert table.moved.sum() == 0


def test_a_rank_counts_ties(inner):
    found = rankings(gallery_of(inner), "a red square.", "en", ByColour())
    scores = pd.DataFrame({"own words": [0.5, 0.9, 0.5, 0.1, 0, 0, 0, 0]}, found.ids)
    tied = replace(found, scores=scores)
    assert [tied.rank("own words", f"v{i}") for i in range(5)] == [3, 1, 3, 4, 8]
    assert tied.best("own words", 3) == ["v1", "v0", "v2"]


def test_translators_of_a_corpus(corpus):
    assert [t.oracle for t in translators_for(corpus, ["train"]).values()] == [False, True]


def test_a_combination_is_learnt_from_a_split(inner, corpus):
    module, curve = learn_combination(inner, ByColour(), corpus, "train", n=8, origin=None)
    assert module.languages == ("de", "fr", "en")
    assert len(curve) == 31
    with pytest.raises(LabError, match="captions"):
        learn_combination(inner, ByColour(), corpus, "train", n=8, origin="mllm")


# the explorer


def test_images_without_captions_are_ranked_too(method):
    bare = Gallery(method).add([Few().visuals("train")[i] for i in range(4)], ids=list("abcd"))
    panel = Words(Workbench({"SMALR": method}, gallery=bare))
    s = panel.state
    assert "Type a query" in s.message
    assert s.rankings is None
    assert panel["dl-near"].figure
    assert list(panel.rankings.children) == []
    assert panel.snapshot()
    panel.query.box.value = "ein Hund"
    panel.query.box.submitted = 1
    assert s.message == ""
    assert s.target == ""
    assert s.followed == s.rankings.best("own words", 1)[0]
    assert len(panel.rankings.children) == 3
    s.draw(1)
    assert "without captions" in s.message
