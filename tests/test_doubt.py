"Signs of doubt on the shipped models: right queries have none, queries that no image fits have one"

import json

import pytest
from PIL import Image

from dasd_lab.cli import main
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.short_queries import scene_queries
from dasd_lab.search.calibrating import queries_without_image
from dasd_lab.search.doubt import SENTENCES, calibration_of
from dasd_lab.search.queries import read_query
from dasd_lab.training.loading import load_run
from dasd_lab.training.shipped import shipped_run


@pytest.fixture(scope="module")
def method():
    loaded = load_run("pictograms", images=False)
    if calibration_of(loaded) is None:
        pytest.skip("the weights changed since; run: python tools/release/ship.py --only doubt")
    return loaded


def test_queries_without_image_are_marked(method):
    calibration = calibration_of(method)
    asked = [(code, text) for code, texts in queries_without_image().items() for text in texts]
    asked = [(code, text) for code, text in asked if code in calibration.limits]
    marked = [text for code, text in asked if "query" in calibration.signs(text, code)]
    assert len(asked) == 64
    assert len(marked) >= 0.95 * len(asked)


def test_short_queries_about_scenes_are_not_marked(method):
    calibration = calibration_of(method)
    corpus = load_corpus("pictograms")
    asked = [query for code in ("de", "zh", "ar") for query in scene_queries(corpus, "test", code)]
    marked = [query.text for query in asked if "query" in calibration.signs(query.text, query.language)]
    assert len(marked) <= 0.03 * len(asked), marked


def test_the_language_of_known_words_is_certain(method):
    for text, language in (("Hund", "de"), ("chien", "fr"), ("两只猫", "zh"), ("pes", "cs")):
        query = read_query(text, method)
        assert query.language == language
        assert query.confidence > 0.7


def test_a_search_says_so(capsys):
    if calibration_of(load_run("pictograms", images=False)) is None:
        pytest.skip("the weights changed since; run: python tools/release/ship.py --only doubt")
    assert main(["search", "Quantencomputer Aktienkurs", "--run", "pictograms", "--json"]) == 0
    out, err = capsys.readouterr()
    doubt = json.loads(out)["doubt"]
    assert "query" in doubt["signs"]
    assert doubt["unknown"] == ["quantencomputer", "aktienkurs"]
    assert "quantencomputer" in err
    assert main(["search", "ein roter Apfel am Strand", "--run", "pictograms", "--json"]) == 0
    assert not json.loads(capsys.readouterr()[0])["doubt"]["signs"]


def test_images_of_another_kind_are_marked(method):
    screens = sorted(shipped_run().parents[2].glob("nbs/images/*.webp"))

    calibration = calibration_of(method)
    corpus = load_corpus("pictograms")
    usual = [corpus.picture(id, 160) for id in corpus.visuals("test").ids[::100]]
    assert not calibration.unlike_images(usual)
    assert screens, "the screenshots of the documentation"
    assert calibration.unlike_images([Image.open(path) for path in screens])
    assert SENTENCES["images"].startswith("The images are unlike")
