"Shared words and rankings with translations: every number against one worked by hand; scripts, unknown words, the form for use, models that come and go, and no SMALR at all"

from dataclasses import replace

import pytest
import torch
from test_consistency import ByColour, Few, backbone, corpus, inner  # noqa: F401  fixtures

from dasd_lab.contracts import LabError
from dasd_lab.explore.words import figures as f
from dasd_lab.explore.words.panel import Words
from dasd_lab.explore.workbench import SHIPPED, Workbench, default_workbench
from dasd_lab.search.explain.consistent_queries import Consistent
from dasd_lab.search.explain.rankings import (
    FirstOf,
    is_oracle,
    learn_combination,
    moves,
    rank_table,
    rankings,
    translators_for,
)
from dasd_lab.search.explain.shared_words import (
    SharedWords,
    dictionary_check,
    dictionary_pairs,
    entries_by_languages,
    entry_meanings,
    has_words,
    read_word,
    spelt_alike,
    with_words,
)
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.smalr.consistency import LearnedConsistency
from dasd_lab.smalr.encoder import SMALR, SMALRConfig, precomputed
from dasd_lab.smalr.latent import LatentConfig
from dasd_lab.smalr.vocabulary import WordVocabulary
from dasd_lab.training.recipes import shipped_run

SAID = dict(
    en=["the", "dog", "cat", "apple", "dogs"],
    de=["der", "hund", "katze", "apfel", "hunde", "dog"],
    ar=["على", "كلب", "قطة", "تفاحة"],
    zh=["一只", "熊猫", "只熊"],
)
COUNTS = dict(en=[60, 20, 10, 6, 4], de=[50, 20, 15, 10, 4, 1], ar=[40, 30, 20, 10], zh=[50, 30, 20])
# with K = 1 the first word of each language has its own vector; the entry of 'der' was dropped
CODES = [0, 1, 2, 3, 1, -1, 1, 2, 0, 1, 3, 0, 1, 3, 3, 0, 2, 2]


def method_of(backbone, said=SAID, counts=COUNTS, codes=CODES, k=1, n=4):
    words = WordVocabulary(said, counts, {l: "character_bigrams" if l == "zh" else "unicode_words" for l in said})
    torch.manual_seed(0)
    made = SMALR(
        SMALRConfig(
            languages=tuple(said)[1:],
            specific=k,
            latent=LatentConfig(entries=n, dim=4),
            vector_width=6,
            own_width=4,
            embed_dim=8,
            image_hidden=8,
            gru_width=8,
        ),
        backbone,
        words,
    )
    made.start_from(torch.randn(len(words), 6))
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
        captions=[c for l in ("en", "de") for c in Few().captions("train", l)],
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
    r = read_word(text, method)
    assert (
        (r.language, r.pieces, r.unknown) == (language, pieces, unknown)
        and r.recognised
        and all(method.tokenizer.word(i) == (language, p) for p, i in zip(r.pieces, r.ids) if i)
    )
    assert read_word(text, method, language).recognised is False


def test_a_word_of_two_languages_is_read_where_it_is_said_more_often(method):
    # 20 of 100 against 1 of 100
    assert (read_word("dog", method).others, read_word("dog", method, "de").others) == (("de",), ("en",))
    assert (
        spelt_alike("hundchen", method.tokenizer, "de") == ["hund", "hunde"]
        and spelt_alike("熊", method.tokenizer, "zh") == ["熊猫", "只熊"]
        and spelt_alike("zzzz", method.tokenizer, "de") == []
    )


def test_entries_by_hand(words):
    assert words.table.own.sum() == 4 and words.of_entry(1)[["language", "word"]].values.tolist() == [
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
    means = entry_meanings(words)
    # apple twice, cat; no lexicon has a German dog
    assert (means.meanings[1], means.share[1], means.most[1], means.agree[1]) == (1, 1.0, "dog", 3) and (
        means.meanings[3],
        means.share[3],
    ) == (2, pytest.approx(2 / 3))


def test_neighbours_are_those_of_the_vectors(words, method):
    dog = method.tokenizer.numbers["de"]["hund"]
    near = words.nearest(dog, 2)
    assert near.groupby("language").size().to_dict() == dict(en=2, de=2, ar=2, zh=2) and dog not in near.index
    vectors = method.words.table()
    cosine = torch.cosine_similarity(vectors[dog][None], vectors[near.index.tolist()])
    torch.testing.assert_close(
        torch.tensor(near.cosine.values), cosine.to(torch.float64), atol=1e-5, rtol=0, check_dtype=False
    )
    # the two most frequent words of …, without itself
    assert (
        near.cosine.is_monotonic_decreasing
        and set(near[near.cosine > 0.9999].word) == {"dog", "dogs", "hunde", "كلب"}
        and len(words.nearest(dog, 9, fewest=11)) == 2 + 2 + 3 + 3
    )


def test_the_curve_and_its_cut(words, backbone):
    assert (
        words.curve("de").covered.tolist() == pytest.approx([0.5, 0.7, 0.85, 0.95, 0.99, 1.0])
        and words.cut("de") == 1
        and "1 of 6 words cover 50%" in f.frequency_figure(words, "de").layout.title.text
    )
    every = SharedWords(method_of(backbone, k=99))
    none = SharedWords(method_of(backbone, codes=[0 if c < 0 else c for c in CODES], k=0))
    assert (
        every.cut("de") == 6
        and not every.tail.any()
        and none.tail.sum() == 18
        and "all 6 words read entries" in f.frequency_figure(none, "de").layout.title.text
    )
    assert entries_by_languages(every)["words that read it"].sum() == 0 and f.frequency_figure(every, "ar").data


def test_the_dictionary_by_hand(words):
    pairs = dictionary_pairs(words)
    assert sorted(zip(pairs.key, pairs.one, pairs.other)) == sorted(
        [("dog", "en", "de")] * 4
        + [("dog", "en", "ar")] * 2
        + [("dog", "de", "ar")] * 2
        + [(w, a, b) for w in ("cat", "apple") for a, b in (("en", "de"), ("en", "ar"), ("de", "ar"))]
    )
    check = dictionary_check(words)
    shared = 8 + 1 + 1  # all dogs; cat and katze; apple and تفاحة
    assert (
        check.loc[("all", "dictionary"), ["pairs", "compared", "shared"]].tolist()
        == [14, 14, pytest.approx(shared / 14)]
        and check.loc[("ar", "dictionary"), "shared"] == pytest.approx(5 / 8)
        and "zh" not in check.index.get_level_values(0)
    )
    assert (
        f"{shared / 14:.1%} share" in f.said_of_check(check)
        and check.loc[("all", "dictionary"), "cosine"] > check.loc[("all", "shuffled"), "cosine"]
    )


def test_without_entries_there_are_neighbours(method, words):
    plain = SharedWords(precomputed(method))
    assert not plain.has_entries and plain.tail.equal(words.tail)
    torch.testing.assert_close(plain.vectors, words.vectors)
    assert plain.nearest(5, 1).word.tolist() == words.nearest(5, 1).word.tolist()
    assert "shared" not in dictionary_check(plain) and "form for use" in f.said_of_entry(None, plain, 5)
    with pytest.raises(LabError, match="form for use"):
        plain.of_entry(0)


def test_other_methods_have_no_words(inner, backbone):
    assert not has_words(inner)
    with pytest.raises(LabError, match="dasd-lab train smalr"):
        with_words(inner)


def test_where_no_lexicon_helps_it_is_said(backbone):
    made = SharedWords(
        method_of(
            backbone,
            dict(en=["tesseract", "nil"], fi=["kissa", "koira"]),
            dict(en=[2, 1], fi=[2, 1]),
            [0, 1, 0, 1],
            n=2,
        )
    )
    assert entry_meanings(made).known.sum() == 0
    with pytest.raises(LabError, match="one meaning"):
        dictionary_check(made)


# rankings


def test_every_way_is_the_methods_own(inner):
    "The wrapped method, by the mean and by a combination, and each translation by itself, rank as is told"
    gallery = gallery_of(inner)
    learnt = LearnedConsistency(("de", "fr", "en"), init="random", seed=3)
    found = rankings(gallery, "ein rotes Quadrat auf der Wiese.", "de", ByColour(), learnt)
    # German does not go into French
    assert (
        found.ways == ["own words", "en", "CLC-A", "CLC-C"]
        and found.translated == {"en": "a red square."}
        and found.extension == (inner.name != "smalr")
        and not found.oracle
    )

    def order(m, t, l):
        return (
            g := Gallery(m),
            g.extend(gallery.ids, gallery.columns, {}, [], gallery.descriptions),
            g.search(t, l, k=8).ids,
        )[-1]

    assert (
        found.best("own words", 8) == gallery.search(found.query.text, "de", k=8).ids
        and found.best("en", 8) == gallery.search("a red square.", "en", k=8).ids
    )
    assert found.best("CLC-A", 8) == order(Consistent(inner, ByColour()), found.query.text, "de") and found.best(
        "CLC-C", 8
    ) == order(Consistent(inner, ByColour(), learnt), found.query.text, "de")
    assert found.weights["CLC-A"] == dict(de=0.5, en=0.5)
    w = learnt.weights
    total = sum(w.values())
    assert found.weights["CLC-C"]["de"] == pytest.approx((w["de"] + w["fr"] / 2) / total)
    table = moves(found, "CLC-A", 8)
    assert (
        (table.was - table["rank"]).equals(table.moved)
        and table.moved.sum() == 0
        and rank_table(found, "v0").loc["en", "rank"] == found.rank("en", "v0")
    )


def test_a_rank_counts_ties(inner):
    found = rankings(gallery_of(inner), "a red square.", "en", ByColour())
    tied = replace(found, scores={"own words": torch.tensor([0.5, 0.9, 0.5, 0.1, 0, 0, 0, 0])})
    assert [tied.rank("own words", f"v{i}") for i in range(5)] == [3, 1, 3, 4, 8] and tied.best("own words", 3) == [
        "v1",
        "v0",
        "v2",
    ]


def test_translators_are_asked_in_turn(corpus):
    class Silent(ByColour):
        def translate(self, texts, source, target):
            return [None] * len(texts)

    both = FirstOf(Silent(), ByColour())
    assert (
        both.translate(["ein rotes Quadrat auf der Wiese."], "de", "en") == ["a red square."]
        and not both.supports("de", "fr")
        and both.translate([], "de", "en") == []
        and not is_oracle(both)
    )
    names = translators_for(corpus, ["train"])
    assert len(names) == 2 and [is_oracle(t) for t in names.values()] == [False, True]


def test_a_combination_is_learnt_of_a_split(inner, corpus):
    module, curve = learn_combination(inner, ByColour(), corpus, "train", n=8, origin=None)
    assert module.languages == ("de", "fr", "en") and len(curve) == 31
    with pytest.raises(LabError, match="captions"):
        learn_combination(inner, ByColour(), corpus, "train", n=8, origin="mllm")


# the explorer


def test_pictures_without_captions_are_ranked_too(method):
    bare = Gallery(method).add([Few().visuals("train")[i] for i in range(4)], ids=list("abcd"))
    panel = Words(Workbench({"SMALR": method}, gallery=bare))
    s = panel.state
    assert (
        "Type a query" in s.message
        and s.found is None
        and panel.near.figure
        and list(panel.rankings.children) == []
        and panel.snapshot()
    )
    panel.query.value = "ein Hund"
    panel.query.submitted = 1
    assert (
        s.message == ""
        and s.sought == ""
        and s.followed == s.found.best("own words", 1)[0]
        and len(panel.rankings.children) == 3
    )
    s.draw(1)
    assert "without captions" in s.message


@pytest.fixture
def bench(method):
    return Workbench({"SMALR": method}, gallery=gallery_of(method))


def test_a_person_looks_words_up(bench):
    panel = Words(bench, "Hund", "ein rotes Quadrat auf der Wiese.")
    s = panel.state
    assert (
        s.message == ""
        and s.sought == "v0"
        and "entry 1 of 4" in panel.told_entry.value
        and panel.entry.value.count("<tr>") == 1 + 3
    )
    panel.word.value = "قطة"
    assert (
        'dir="rtl"' in panel.entry.value
        and panel.word.hint == "Arabic · العربية"
        and panel.near.figure
        and panel.curve_language.value == "ar"
    )
    panel.word.value = "der"
    assert "was dropped" in panel.told_entry.value and panel.entry.value == "" and panel.near.figure
    panel.word.value = "一只熊猫"
    assert [b.description for b in panel.pieces.children] == ["一只", "只熊", "熊猫"]
    panel.pieces.children[1].click()
    assert s.words.table.word[s.looked_at] == "只熊" and "cut into" in panel.word.hint
    panel.word.value = "Elefant"
    assert "not in the vocabulary" in panel.word.hint and panel.near.figure is None and s.message == ""
    panel.word.value = ""
    assert panel.word.hint == "" and s.message == ""
    panel.word_language.value = "de"
    panel.word.value = "dog"
    assert s.reading.language == "de" and "as chosen" in panel.word.hint
    panel._take_check(wait=True)
    assert panel.check.figure and s.message == ""


def test_a_person_follows_a_picture(method, inner):
    panel = Words(Workbench({"other": inner, "SMALR": method}, gallery=gallery_of(inner)))
    s = panel.state
    assert s.found and s.sought and len(panel.rankings.children) == len(s.found.ways)
    panel.ranker.value = "other"
    assert s.found.extension == (inner.name != "smalr")
    panel.query.value = "ein rotes Quadrat auf der Wiese."
    panel.query.submitted += 1
    assert s.sought == "v0" and [i["id"] for g, _, _ in panel.grids.values() for i in g.items if i["marked"]].count(
        "v0"
    ) <= len(panel.grids)
    g = panel.grids["own words"][0]
    g.clicked = g.items[2]["id"]
    g.clicks += 1
    assert s.followed == g.items[2]["id"] and "rank 3 of 8" in panel.grids["own words"][1].value
    panel.query.value = "kissa"
    panel.language.value = "de"
    assert s.message == "" and s.found.query.language == "de"
    panel._learn(wait=True)
    assert "validation" in s.message
    assert "<img" in panel.snapshot()


def test_models_come_and_go(backbone, method, inner):
    "Another SMALR has other words and languages; what was seen of one is not shown of the other"
    bench = Workbench({"plain": inner}, gallery=gallery_of(inner))
    panel = Words(bench)
    s = panel.state
    assert (
        s.model == ""
        and "dasd-lab train smalr" in panel.missing.value
        and panel.vocabulary.layout.display == "none"
        and s.found
    )
    s.look_up("Hund")
    assert "no model with words" in s.message
    bench.add("one", method)
    assert s.model == "one" and panel.vocabulary.layout.display is None
    panel.word.value = "كلب"
    panel._take_check(wait=True)
    bench.add(
        "two",
        method_of(backbone, dict(en=["the", "dog"], fr=["le", "chien"]), dict(en=[2, 1], fr=[2, 1]), [0, 1, 0, 1], n=2),
    )
    panel.model.value = "two"
    assert (
        s.check is None
        and panel.check.figure is None
        and s.looked_at == -1
        and s.shown_language == "en"
        and dict(panel.curve_language.options).keys() == {"English", "French · français"}
        and "not in the vocabulary" in panel.word.hint
    )
    bench.add("two", precomputed(method))
    panel.word.value = "hund"
    assert "form for use" in panel.told_entry.value and panel.near.figure


def test_a_companion_is_loaded_where_it_is_shipped():
    if not (shipped_run() / "card.json").is_file():
        pytest.skip(f"no trained run in {shipped_run()}")
    bench = default_workbench()
    there = (shipped_run() / SHIPPED["SMALR"]).is_dir()
    panel = Words(bench)
    assert (
        ("SMALR" in bench.models) == there == bool(panel.state.model)
        and panel.state.message == ""
        and panel.state.found
    )
    if there:
        assert panel.state.looked_at > 0 and not panel.state.found.extension
