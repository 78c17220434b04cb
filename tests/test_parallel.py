"Parallel captions: every kind of fault is reported for its line, and other lines are kept"

import json

import pytest

from dasd_lab.corpora.own.parallel import (
    FAULTS,
    Pair,
    parts,
    read_parallel,
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


def texts(found):
    return [(p.source, p.target) for p in found.pairs]


def line_faults(found):
    return [(f.line, f.kind, f.kept) for f in found.faults if f.line]


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
@pytest.mark.parametrize("encoding", ["text", "utf-16", "utf-32"])
def test_formats_and_encodings(text, encoding):
    found = read_parallel(text if encoding == "text" else text.encode(encoding), "it")
    assert texts(found) == GOOD and found.left_out == 0, found.table()
    assert not [f for f in found.faults if f.line], found.table()


# a faulty line: text, kind of the fault, whether it is kept
FAULTY = dict(
    columns=("a cat\tun gatto\tx\ty", "columns", False),
    one_column=("a cat un gatto", "columns", False),
    empty_target=("a cat\t ", "empty", False),
    empty_source=("\tun gatto", "empty", False),
    invisible=("a cat\t\u200b\u200e", "empty", False),
    copy=("a black cat on a roof\tA black cat on a roof", "copy", False),
    duplicate=("\t".join(GOOD[0]), "duplicate", False),
    lost_letter=("why a cat\tperch\ufffd un gatto", "encoding", False),
    mojibake=("because a cat is old\tperchÃ© un gatto Ã¨ vecchio", "encoding", True),
    language=(
        "three black cats sleep on the warm roof\tdrei schwarze Katzen schlafen auf dem warmen Dach",
        "language",
        True,
    ),
    english=("three black cats sleep on the roof\tthe black cats are asleep on the roof of a house", "language", True),
    endless=("a cat\t" + "gatto " * 300, "length", False),
)


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_affects_its_own_line_only(name):
    place = 3
    line, kind, kept = FAULTY[name]
    lines = tsv(GOOD).splitlines()
    lines.insert(place, line)
    found = read_parallel("\n".join(lines), "it")
    assert line_faults(found) == [(place + 1, kind, kept)], found.table()
    assert [p for p in texts(found) if p in GOOD] == GOOD
    assert len(found.pairs) == len(GOOD) + kept
    assert all(f.what and f.next_step and f.kind in FAULTS for f in found.faults)
    assert len(found.table()) == len(found.faults)


@pytest.mark.parametrize(
    "broken,line,kind", [('"never closed,b\n', 3, "quotes"), ("a,b,c,d\n", 3, "columns"), ('"a" b,c\n', 3, "quotes")]
)
def test_csv_faults(broken, line, kind):
    lines = csv(GOOD).splitlines(keepends=True)
    lines.insert(2, broken)
    found = read_parallel("".join(lines), "it", name="mine.csv", recognise=False)
    assert line_faults(found) == [(line, kind, False)]
    assert texts(found) == GOOD


@pytest.mark.parametrize(
    "row", ["not json", "[1, 2", '"a cat"', '{"en": "a cat"}', '{"text": "a cat", "other": "un gatto"}', "{}"]
)
def test_jsonl_faults(row):
    lines = jsonl(GOOD).splitlines()
    lines.insert(4, row)
    found = read_parallel("\n".join(lines), "it", name="x.jsonl", recognise=False)
    assert [(f.line, f.kept) for f in found.faults if f.line] == [(5, False)]
    assert texts(found) == GOOD


def test_lengths_are_compared_with_the_file():
    "Chinese is always shorter than English; only the line with another ratio is reported"
    pairs = [(f"{n} red apples lie on the white beach", "白色沙滩上有红苹果" + str(n)) for n in range(30)]
    pairs.append(("a dog", "一只狗和两匹马在沙滩上跑步，旁边有一棵大树，还有三只鸟"))
    found = read_parallel(tsv(pairs), "zh", recognise=False)
    assert line_faults(found) == [(31, "length", True)]
    assert len(found.pairs) == 31


def test_the_wrong_language_altogether():
    found = read_parallel(tsv([(b, a) for a, b in GOOD]), "it")
    assert any(f.line == 0 and "other way round" in f.what for f in found.faults)
    unknown = read_parallel(tsv(GOOD), "br")
    assert texts(unknown) == GOOD
    assert any(f.kind == "language" and f.line == 0 for f in unknown.faults)


def test_a_language_without_a_code_of_two_letters():
    text = "English\tCebuano\na dog runs on the beach\tusa ka iro nagdagan sa baybayon\na cat\tusa ka iring\n"
    for name in ("ceb", "Cebuano", "cebuano"):
        found = read_parallel(text, name, "x.tsv")
        assert found.language == "ceb"
        assert [pair.target for pair in found.pairs] == ["usa ka iro nagdagan sa baybayon", "usa ka iring"]
        assert "cannot be recognised" in found.faults[-1].what, "no line is said to be in another language"


@pytest.mark.parametrize("n", [1, 10, 99, 5000])
def test_parts_share_nothing(n):
    cut = parts([Pair(f"sentence {i // 2}", f"frase {i}", i) for i in range(2 * n)])
    assert sorted(p.line for v in cut.values() for p in v) == list(range(2 * n))
    english = {k: {p.source for p in v} for k, v in cut.items()}
    assert not english["train"] & english["test"]
    assert not english["train"] & english["validation"]
    assert not english["test"] & english["validation"]
    assert len(english["test"]) == (min(500, n // 10) if n >= 10 else 0)
    assert len(english["validation"]) == (min(200, n // 20) if n >= 100 else 0)
