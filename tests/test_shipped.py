"Shipped weights: figures of the card, size, and safe files"

import json
from pathlib import Path

import pytest

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.storage import unseal
from dasd_lab.training.recipes import load_run, shipped_run
from dasd_lab.training.runs import load_method

FOLDER = shipped_run()
WEIGHTS = FOLDER.parent
pytestmark = pytest.mark.skipif(not (FOLDER / "card.json").is_file(), reason=f"no trained run in {FOLDER}")


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def figures(card):
    "Figures of the card by language, including English"
    if "english" in card:
        return card["test"] | dict(en=card["english"])
    return card["test"]


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


@pytest.fixture(scope="module")
def method():
    return load_run(FOLDER)


@pytest.fixture(scope="module")
def results(method, corpus, figures):
    return evaluate(method, corpus, "test", sorted(figures))


def test_the_card_records_its_origin(card):
    required = {"preset", "seed", "corpus", "corpus_checksum", "languages", "versions", "test"}
    assert required <= set(card)
    assert str(Path.home()) not in json.dumps(card)


def test_the_corpus_is_that_of_training(card, corpus):
    assert card["corpus"] == corpus.name
    assert card["corpus_checksum"] == corpus.checksum


def test_every_language_has_figures(method, figures):
    assert {*method.languages, "en"} == set(figures)


def test_figures_are_those_of_the_card(results, figures):
    for language, row in figures.items():
        assert abs(results.rows[language]["mean_recall"] - row["mean_recall"]) <= 0.002, language


def test_every_language_is_far_above_chance(results, corpus):
    n = len(corpus.visuals("test"))
    chance = sum(k / n for k in (1, 5, 10)) / 3
    for language, row in results.rows.items():
        assert row["mean_recall"] > 10 * chance, language


def size(*folders):
    "Bytes of all files in folders of the weights"
    files = [path for folder in folders for path in (WEIGHTS / folder).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def test_size():
    assert size("pictograms/backbone", "pictograms/method") <= 15_000_000
    assert size(".") <= 17_000_000  # including the other methods


def test_no_file_can_be_executed():
    files = [path for path in WEIGHTS.rglob("*") if not path.is_dir()]
    for path in files:
        assert path.suffix in {".safetensors", ".json", ".md"}, path
        assert not path.is_symlink(), path
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        if path.suffix == ".safetensors":
            assert path.read_bytes()[8:9] == b"{"  # eight bytes of length, then a JSON header


def test_checksums():
    assert unseal(FOLDER / "backbone", "backbone")
    assert unseal(FOLDER / "method", "method")


@pytest.mark.parametrize("name", ["static_adapter", "official_form", "smalr"])
def test_figures_of_other_methods(name, card, method, corpus):
    "Other methods on the same backbone, in two languages"
    expected = card["companions"][name]["test"]
    results = evaluate(load_method(FOLDER / name, method.backbone), corpus, "test", ["de", "ja"])
    for language in ("de", "ja"):
        assert abs(results.rows[language]["mean_recall"] - expected[language]["mean_recall"]) <= 0.002, language
