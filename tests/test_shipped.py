"Shipped weights: figures of the card, size, and safe files"

import json

import numpy as np
import pytest

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.probes import adapter_spread, leakage, linear_probe
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.short_queries import short_queries
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import load_method
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.gallery.in_memory import Gallery

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


def test_figures_are_those_of_the_card(results, figures):
    for language, row in figures.items():
        assert abs(results.rows[language]["mean_recall"] - row["mean_recall"]) <= 0.002, language


def test_the_first_image_of_a_single_noun_shows_it(method, corpus, card):
    found = short_queries(method, corpus)
    right = found.pivot_table("right", "language", "kind", "sum").to_dict("index")
    assert right == card["short_queries"]["right"]
    for language, row in right.items():
        assert row["noun"] >= 19, found[(found.language == language) & ~found.right]


# query, language → noun and place that its first image must show
QUERIES = {
    ("Katze", "de"): ("cat", None),
    ("chat", "fr"): ("cat", None),
    ("猫", "zh"): ("cat", None),
    ("قطة", "ar"): ("cat", None),
    ("cat", "en"): ("cat", None),
    ("zwei Katzen am Strand", "de"): ("cat", "beach"),
    ("Ein Pinguin auf dem Mond", "de"): ("penguin", "moon"),
    ("deux chiens sur la plage", "fr"): ("dog", "beach"),
    ("tři kočky ve městě", "cs"): ("cat", "city"),
    ("月球上的一只企鹅", "zh"): ("penguin", "moon"),
    ("街の中の三匹の猫", "ja"): ("cat", "city"),
    ("بطريق على القمر", "ar"): ("penguin", "moon"),
    ("un pingüino en la luna", "es"): ("penguin", "moon"),
    ("three cats in the city", "en"): ("cat", "city"),
}


@pytest.fixture(scope="module")
def gallery(method, corpus):
    return Gallery(method).add(corpus.visuals("test"))


@pytest.mark.parametrize(("text", "language"), QUERIES)
def test_the_first_image_of_an_example_shows_it(text, language, gallery, corpus):
    noun, place = QUERIES[text, language]
    scene = corpus.scene(gallery.search(text, language, k=1).ids[0])
    assert noun in [thing.noun for thing in scene.things]
    if any(noun in corpus.facts(i)["object"] and corpus.facts(i)["place"] == place for i in corpus.visuals("test").ids):
        assert scene.place == place


def test_no_file_can_be_executed():
    for path in WEIGHTS.rglob("*"):
        assert path.is_dir() or path.suffix in {".safetensors", ".json", ".md", ".txt"}, path
        assert not path.is_symlink(), path
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        if path.suffix == ".safetensors":
            assert path.read_bytes()[8:9] == b"{"  # eight bytes of length, then a JSON header


@pytest.mark.parametrize("name", ["static_adapter", "official_form", "smalr"])
def test_figures_of_other_methods(name, card, method, corpus):
    "Other methods on the same backbone, in two languages"
    expected = card["companions"][name]["test"]
    results = evaluate(load_method(FOLDER / name, method.backbone), corpus, "test", ["de", "ja"])
    for language in ("de", "ja"):
        assert abs(results.rows[language]["mean_recall"] - expected[language]["mean_recall"]) <= 0.002, language


STYLES = ("quantifier_object", "location_object", "quantifier_modifier_object", "event_supplement")


@pytest.fixture(scope="module")
def in_four_styles(method, corpus):
    "500 test scenes, each in four styles: scene, style, English meaning, captions in German and Chinese"
    scenes = corpus.visuals("test").ids[:500]
    captions = {
        language: [corpus.describe(scene, language, style).text for scene in scenes for style in STYLES]
        for language in ("en", "de", "zh")
    }
    of = np.repeat(np.arange(len(scenes)), 4)
    meaning = method.backbone.encode_source(captions.pop("en")).unflatten(0, (-1, 4)).mean(1)[of]
    return of, np.array(STYLES * len(scenes)), meaning, captions


@pytest.mark.slow
@pytest.mark.parametrize("language", ["de", "zh"])
def test_the_semantic_agnostic_feature_holds_expression_and_no_meaning(method, in_four_styles, language):
    scenes, styles, meaning, captions = in_four_styles
    found = method.inspect(captions[language], language)
    for kind in ("ridge", "mlp"):
        assert leakage(found["semantic_agnostic"], meaning, scenes, kind=kind).found <= 0.05
        assert leakage(found["semantic_related"], meaning, scenes, kind=kind).found > 0.5
    # in German a modifier is told by an adjective alone, which is a content word
    least = {"de": 0.55, "zh": 0.7}[language]
    assert linear_probe(found["semantic_agnostic"], styles, scenes, "ridge").low > least - 0.05
    spread = adapter_spread(found["generated"], styles, scenes)
    assert (spread["varying"] > 0.3).all()
    assert (spread["same style"] > spread["same content"]).all()
