"Everyday photographs, which no model was trained on: what a folder of one's own finds"

import pytest
import torch

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.published.everyday import everyday_labels, everyday_words
from dasd_lab.evaluation.labels import label_precision
from dasd_lab.explore.workbench import EVERYDAY_QUERIES
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.search.on_disk.stored import embedding_name

pytestmark = pytest.mark.skipif(
    not (shipped_run("photographs") / "concepts").is_dir(), reason="no concepts in data/weights/photographs"
)


@pytest.fixture(scope="module")
def method():
    return load_run("photographs")


@pytest.fixture(scope="module")
def gallery(method):
    return Gallery(method).add_split(load_corpus("everyday"))


@pytest.mark.parametrize(
    "query,language,right",
    [
        ("hammer", "en", "hammer"),
        ("ein Schloss in Frankreich", "de", "castle"),
        ("pez naranja", "es", "fish"),
        ("塔", "zh", "tower"),
        ("una torre", "es", "tower"),
        ("un mouton", "fr", "sheep"),
    ],
)
def test_the_first_pictures_show_what_is_named(gallery, query, language, right):
    labels = everyday_labels()
    found = [labels.get(id) for id in gallery.search(query, language, k=3).ids]
    assert right in found, found


def test_what_the_workbench_offers_finds_what_it_names_first(gallery):
    labels = everyday_labels() | dict(discus="fish")
    found = [labels[gallery.search(query, language, k=1).ids[0]] for query, language in EVERYDAY_QUERIES]
    assert found == ["castle", "fish", "horse", "hammer", "cat", "horse", "fish", "cat"]


def test_snow_on_mountains_is_found_without_a_class_of_that_name(gallery):
    assert "mountain_path" in gallery.search("schneebedeckte Berge", "de", k=3).ids


def test_concepts_find_what_the_training_pictures_do_not_show(method, gallery, monkeypatch):
    "Mean average precision of the labels, one word a query, with concepts and without them"
    labels = [everyday_labels().get(id, "") for id in gallery.ids]

    def found() -> float:
        visuals = method.encode_visuals(gallery.columns)
        return label_precision(method, visuals, labels, everyday_words()["en"], "en")["average_precision"].mean()

    with_concepts = found()
    monkeypatch.setattr(method, "concepts", None)
    assert with_concepts > 0.5 and with_concepts > found() + 0.15


def test_it_says_by_what_a_query_was_read(gallery):
    assert "image classifier knows" in " ".join(gallery.search("Zange", "de", k=1).doubt.sentences)
    assert gallery.search("ein Hund rennt durch den Schnee", "de", k=1).doubt.unknown == ()


NEGATED = dict(en="no hammer", de="kein Hammer", zh="没有锤子", it="senza martello")


@pytest.mark.parametrize("language", NEGATED)
def test_what_is_negated_is_found_and_it_is_said(gallery, language):
    hits = gallery.search(NEGATED[language], language, k=3)
    assert {everyday_labels().get(id) for id in hits.ids} == {"hammer"}
    assert "negation" in hits.doubt.signs and hits.doubt.negations[0] in NEGATED[language]


def test_concepts_are_a_part_of_the_embedding(method, gallery):
    "One vector and one cosine; another model on the same tower without concepts has an embedding of its own"
    assert gallery.visuals["features"].shape[1] == method.embed_dim == 2 * method.backbone.embed_dim
    assert torch.equal(
        method.columns_in(gallery.visuals["features"])["concept_features"], gallery.columns["concept_features"]
    )
    paper = load_run("photographs/paper", backbone=method.backbone)
    assert paper.concepts is None and embedding_name(paper) != embedding_name(method)
    assert embedding_name(load_run("photographs", images=False)) == embedding_name(method)
