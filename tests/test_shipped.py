"The weights that come with the lab do what their card says, and are no more than weights"

import json
from pathlib import Path

import pytest

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.storage import unseal
from dasd_lab.training.recipes import load_run, shipped_run

FOLDER = shipped_run()
WEIGHTS = FOLDER.parent
pytestmark = pytest.mark.skipif(not (FOLDER / "card.json").is_file(), reason=f"no trained run in {FOLDER}")


@pytest.fixture(scope="module")
def card():
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def told(card):
    "Figures of the card, a row a language, English among them"
    return card["test"] | (dict(en=card["english"]) if "english" in card else {})


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


@pytest.fixture(scope="module")
def method():
    return load_run(FOLDER)


@pytest.fixture(scope="module")
def found(method, corpus, told):
    return evaluate(method, corpus, "test", sorted(told))


def test_the_card_names_where_it_comes_from(card):
    assert not {"preset", "seed", "corpus", "corpus_checksum", "languages", "versions", "test"} - set(card)
    assert str(Path.home()) not in json.dumps(card)


def test_the_corpus_is_the_one_it_was_trained_on(card, corpus):
    assert card["corpus"] == corpus.name and card["corpus_checksum"] == corpus.checksum


def test_every_language_has_figures(method, told):
    assert {*method.languages, "en"} == set(told)


def test_figures_are_those_of_the_card(found, told):
    difference = {l: found.rows[l]["mean_recall"] - told[l]["mean_recall"] for l in told}
    assert all(abs(d) <= 0.002 for d in difference.values()), difference


def test_every_language_is_far_from_chance(found, corpus):
    chance = sum(k / len(corpus.visuals("test")) for k in (1, 5, 10)) / 3
    assert all(r["mean_recall"] > 10 * chance for r in found.rows.values()), found.rows


def test_size():
    def size(*parts):
        return sum(f.stat().st_size for p in parts for f in (WEIGHTS / p).rglob("*") if f.is_file())

    # the model with its adapters; with the other methods
    assert size("pictograms/backbone", "pictograms/method") <= 15_000_000 and size(".") <= 17_000_000


def test_nothing_inside_can_be_executed():
    files = [f for f in WEIGHTS.rglob("*") if not f.is_dir()]
    assert {f.suffix for f in files} <= {".safetensors", ".json", ".md"} and not any(f.is_symlink() for f in files), (
        files
    )
    for f in files:
        if f.suffix == ".json":
            json.loads(f.read_text(encoding="utf-8"))
        if f.suffix == ".safetensors":
            assert f.read_bytes()[8:9] == b"{"  # eight bytes of length, then a header in JSON


def test_checksums_hold():
    assert unseal(FOLDER / "backbone", "backbone") and unseal(FOLDER / "method", "method")


@pytest.mark.parametrize("name", ["static_adapter", "official_form", "smalr"])
def test_companions_do_what_the_card_says(name, card, method, corpus):
    "Other methods on the same backbone; two languages stand for all"
    from dasd_lab.training.runs import load_method

    own = card["companions"][name]
    results = evaluate(load_method(FOLDER / name, method.backbone), corpus, "test", ["de", "ja"])
    difference = {l: results.rows[l]["mean_recall"] - own["test"][l]["mean_recall"] for l in ("de", "ja")}
    assert all(abs(d) <= 0.002 for d in difference.values()), difference
