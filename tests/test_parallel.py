"Parallel captions: every kind of fault is found on its own line, and good lines are kept"

import json

import numpy as np
import pytest

from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.own.parallel import (
    FAULTS,
    Pair,
    example_pairs,
    parts,
    picture_places,
    read_parallel,
    told_in,
    write_pairs,
)

GOOD = [
    ("two red apples on the beach", "due mele rosse sulla spiaggia"),
    ("a small dog under the tree", "un piccolo cane sotto l'albero"),
    ("three horses in the desert", "tre cavalli nel deserto"),
    ("a yellow boat on the sea", "una barca gialla sul mare"),
    ("an old book beside a lamp", "un vecchio libro accanto a una lampada"),
    ('"stop", says the sign', '"alt", dice il cartello'),
    ("a cat; a bird, and a fish", "un gatto; un uccello, e un pesce"),
    ("the big house in the snow", "la grande casa nella neve"),
]


def tsv(pairs):
    return "".join(f"{a}\t{b}\n" for a, b in pairs)


def quoted(s):
    return '"' + s.replace('"', '""') + '"'


def csv(pairs, mark=","):
    return "".join(f"{quoted(a)}{mark}{quoted(b)}\n" for a, b in pairs)


def jsonl(pairs):
    return "".join(json.dumps(dict(en=a, it=b), ensure_ascii=False) + "\n" for a, b in pairs)


def said(found):
    return [(p.source, p.target) for p in found.pairs]


@pytest.mark.parametrize(
    "text",
    [
        tsv(GOOD),
        csv(GOOD),
        csv(GOOD, ";"),
        jsonl(GOOD),
        "en\tit\n" + tsv(GOOD),
        "Italian,English\n" + csv([(b, a) for a, b in GOOD]),
        tsv(GOOD).replace("\n", "\r\n"),
        "\ufeff" + tsv(GOOD),
        tsv(GOOD).replace("\n", "\n\n"),
    ],
    ids=[
        "tsv",
        "csv",
        "semicolons",
        "jsonl",
        "header",
        "columns the other way round",
        "windows",
        "mark",
        "blank lines",
    ],
)
@pytest.mark.parametrize("encoding", ["text", "utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_the_same_pairs_however_they_come(text, encoding):
    found = read_parallel(text if encoding == "text" else text.encode(encoding), "it")
    assert said(found) == GOOD and found.left_out == 0, found.table()
    assert not [f for f in found.faults if f.line], found.table()


# one faulty line among good ones: the text of the line, its kind, whether it is kept
FAULTY = dict(
    columns=("a cat\tun gatto\tx\ty", "columns", False),
    one_column=("a cat un gatto", "columns", False),
    empty_target=("a cat\t ", "empty", False),
    empty_source=("\tun gatto", "empty", False),
    invisible=("a cat\t\u200b\u200e", "empty", False),
    copy=("a black cat on a roof\tA black cat on a roof", "copy", False),
    duplicate=("\t".join(GOOD[0]), "duplicate", False),
    control=("a cat\x07 on a roof\tun gatto su un tetto", "control", True),
    lost_letter=("why a cat\tperch\ufffd un gatto", "encoding", False),
    mojibake=("because a cat is old\tperchÃ© un gatto Ã¨ vecchio", "encoding", True),
    language=(
        "three black cats sleep on the warm roof\tdrei schwarze Katzen schlafen auf dem warmen Dach",
        "language",
        True,
    ),
    english=("three black cats sleep on the roof\tthe black cats are asleep on the roof of a house", "language", True),
    quote=('a "cat on a roof\tun gatto su un tetto', "quotes", True),
    endless=("a cat\t" + "gatto " * 300, "length", False),
)


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("place", [3, 8])
def test_a_fault_is_told_on_its_line_and_costs_no_other(name, place):
    line, kind, kept = FAULTY[name]
    lines = tsv(GOOD).splitlines()
    lines.insert(place, line)
    found = read_parallel("\n".join(lines), "it")
    assert [(f.line, f.kind, f.kept) for f in found.faults if f.line] == [(place + 1, kind, kept)], found.table()
    assert [p for p in said(found) if p in GOOD] == GOOD and len(found.pairs) == len(GOOD) + kept
    assert all(f.what and f.next_step and f.kind in FAULTS for f in found.faults) and len(found.table()) == len(
        found.faults
    )


def test_a_mended_line_is_mended():
    text = tsv(GOOD) + "because it is old\tperchÃ© Ã¨ vecchio\n" + "a c\x00at\tun g\x1fatto\n"
    assert said(read_parallel(text, "it", recognise=False))[-2:] == [
        ("because it is old", "perché è vecchio"),
        ("a c at", "un g atto"),
    ]


@pytest.mark.parametrize(
    "broken,line,kind", [('"never closed,b\n', 3, "quotes"), ("a,b,c,d\n", 3, "columns"), ('"a" b,c\n', 3, "quotes")]
)
def test_csv_faults(broken, line, kind):
    lines = csv(GOOD).splitlines(keepends=True)
    lines.insert(2, broken)
    found = read_parallel("".join(lines), "it", name="mine.csv", recognise=False)
    assert [(f.line, f.kind, f.kept) for f in found.faults if f.line] == [(line, kind, False)] and said(found) == GOOD


def test_a_line_end_inside_quotes():
    found = read_parallel('en,it\n"a cat\non a roof","un gatto\nsu un tetto"\na dog,un cane\n', "it", recognise=False)
    assert said(found) == [("a cat on a roof", "un gatto su un tetto"), ("a dog", "un cane")] and [
        p.line for p in found.pairs
    ] == [2, 5]


@pytest.mark.parametrize(
    "row", ["not json", "[1, 2", '"a cat"', '{"en": "a cat"}', '{"text": "a cat", "other": "un gatto"}', "{}"]
)
def test_jsonl_faults(row):
    lines = jsonl(GOOD).splitlines()
    lines.insert(4, row)
    found = read_parallel("\n".join(lines), "it", name="x.jsonl", recognise=False)
    assert [(f.line, f.kept) for f in found.faults if f.line] == [(5, False)] and said(found) == GOOD


def test_encodings_of_other_times():
    accents = [("because it is old", "perché è vecchio"), ("the city", "la città")]
    found = read_parallel((tsv(GOOD) + tsv(accents)).encode("cp1252"), "it", recognise=False)
    assert said(found) == GOOD + accents and [(f.line, f.kind, f.kept) for f in found.faults if f.line] == [
        (9, "encoding", True),
        (10, "encoding", True),
    ]
    russian = (
        tsv(GOOD).encode()
        + "a red cat on the roof\tкрасный кот на крыше\n".encode("cp1251")
        + tsv(GOOD[:1]).replace("two", "2").encode()
    )
    found = read_parallel(russian, "it", recognise=False)
    assert [(f.line, f.kind, f.kept) for f in found.faults if f.line] == [(9, "encoding", False)] and len(
        found.pairs
    ) == len(GOOD) + 1
    both = read_parallel(b"\xef\xbb\xbf" + tsv(GOOD).replace("\n", "\r\n").encode(), "it", recognise=False)
    assert {(f.line, f.kind) for f in both.faults} == {(0, "encoding"), (0, "line_ends"), (0, "header")} and said(
        both
    ) == GOOD


def test_lengths_are_compared_with_the_file():
    "Chinese is shorter than English throughout; only the line that is unlike the others is told"
    pairs = [(f"{n} red apples lie on the white beach", "白色沙滩上有红苹果" + str(n)) for n in range(30)] + [
        ("a dog", "一只狗和两匹马在沙滩上跑步，旁边有一棵大树，还有三只鸟")
    ]
    found = read_parallel(tsv(pairs), "zh", recognise=False)
    assert [(f.line, f.kind, f.kept) for f in found.faults if f.line] == [(31, "length", True)] and len(
        found.pairs
    ) == 31


def test_the_wrong_language_altogether():
    found = read_parallel(tsv([(b, a) for a, b in GOOD]), "it")
    assert any(f.line == 0 and "other way round" in f.next_step for f in found.faults)
    unknown = read_parallel(tsv(GOOD), "br")
    assert said(unknown) == GOOD and any(f.kind == "language" and f.line == 0 for f in unknown.faults)


def test_ids():
    text = "".join(f"{a}\t{b}\tv{i}\n" for i, (a, b) in enumerate(GOOD)) + "a bird\tun uccello\n"
    found = read_parallel(text, "it", recognise=False)
    assert [p.visual_id for p in found.pairs] == [f"v{i}" for i in range(8)] + [""] and [
        (f.line, f.kind, f.kept) for f in found.faults if f.line
    ] == [(9, "columns", True)]


@pytest.mark.parametrize(
    "data",
    [
        "",
        " \n\n",
        b"",
        b"\x00" * 50,
        bytes(range(256)) * 20,
        "\t\t\t\n" * 5,
        '"' * 99,
        "{" * 500,
        "[]\n{}\n",
        "a\tb\n" * 3 + "\x1a",
    ],
    ids=range(10),
)
def test_rubbish_is_no_crash(data):
    found = read_parallel(data, "it", recognise=False)
    assert len(found.pairs) <= 1 and isinstance(found.table().to_html(), str)


def test_refusals(tmp_path):
    for language, told in (("en", "another language"), ("klingon", "the language")):
        with pytest.raises(LabError, match=told):
            read_parallel("a\tb", language)
    with pytest.raises(LabError, match="no file"):
        read_parallel(tmp_path / "none.tsv", "it")


def test_ten_thousand_lines():
    found = read_parallel(tsv((f"{a} {n}", f"{b} {n}") for n in range(1250) for a, b in GOOD), "it", recognise=False)
    assert len(found.pairs) == 10_000


def test_written_and_read_again(tmp_path):
    pairs = [Pair(a, b, i, f"v{i}") for i, (a, b) in enumerate(GOOD)]
    for name in ("x.tsv", "x.jsonl"):
        write_pairs(pairs, tmp_path / name, "it")
        assert [
            (p.source, p.target, p.visual_id) for p in read_parallel(tmp_path / name, "it", recognise=False).pairs
        ] == [(p.source, p.target, p.visual_id) for p in pairs]


@pytest.mark.parametrize("n", [1, 9, 10, 99, 100, 5000])
def test_parts_share_nothing(n):
    pairs = [Pair(f"sentence {i // 2}", f"frase {i}", i) for i in range(2 * n)]
    cut = parts(pairs)
    assert sorted(p.line for v in cut.values() for p in v) == list(range(2 * n))
    english = {k: {p.source for p in v} for k, v in cut.items()}
    assert (
        not english["train"] & english["test"]
        and not english["train"] & english["validation"]
        and not english["test"] & english["validation"]
    )
    assert len(english["test"]) == (min(500, n // 10) if n >= 10 else 0) and len(english["validation"]) == (
        min(200, n // 20) if n >= 100 else 0
    )


class Untold:
    "The built-in corpus as if it had been built without Spanish"

    def __init__(self, corpus):
        self.corpus = corpus
        self.languages = tuple(language for language in corpus.languages if language != "es")

    def __getattr__(self, name):
        return getattr(self.corpus, name)


def test_a_language_told_later_is_the_one_that_would_have_been_built():
    corpus = load_corpus("pictograms")
    ids = corpus.visuals("train").ids[::4000]
    assert told_in(Untold(corpus), "es", "train", ids) == told_in(corpus, "es", "train", ids)
    assert told_in(Untold(corpus), "es", "test", ["test-00000", "test-00777"]) == [
        c for c in corpus.captions("test", "es", "human") if c.visual_id in ("test-00000", "test-00777")
    ]


def test_the_example_is_in_italian_and_its_pictures_are_known():
    corpus = load_corpus("pictograms")
    pairs = example_pairs(corpus, "it", 300)
    places = picture_places(pairs, corpus)
    assert (
        (places >= 0).all()
        and [corpus.visuals("train").ids[i] for i in places] == [p.visual_id for p in pairs]
        and np.unique(places).size == 300
    )
    english = {c.visual_id: c.text for c in corpus.captions("train", "en", "human")}
    assert all(english[p.visual_id] == p.source for p in pairs) and example_pairs(corpus, "it", 300) == pairs
    found = read_parallel(tsv((p.source, p.target) for p in pairs), "it")
    assert len(found.pairs) >= 297 and found.counts().get("language", 0) < 15, found.table()
