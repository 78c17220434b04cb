"Signs of doubt on the shipped models: right queries have none, queries that no image fits have one"

import json
import shutil
from types import SimpleNamespace

import pytest
from PIL import Image

from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.short_queries import queries_about
from dasd_lab.explore.ask.state import AskState
from dasd_lab.explore.workbench import WORLDS, world_workbench
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.calibrating import queries_without_image
from dasd_lab.search.doubt import SENTENCES, calibration_of, save_calibration
from dasd_lab.search.queries import read_query


@pytest.fixture(scope="module")
def method():
    loaded = load_run("pictograms", images=False)
    if calibration_of(loaded) is None:
        pytest.skip("the weights changed since; run: python tools/release/ship.py --only doubt")
    return loaded


def test_a_companion_keeps_a_calibration_of_its_own(method, tmp_path):
    "Of other weights it is none"
    calibration = calibration_of(method)
    for name in ("smalr", "static_adapter"):
        shutil.copytree(method.run_folder / name, tmp_path / name)
    save_calibration(calibration, tmp_path / "smalr")
    kept = calibration_of(SimpleNamespace(run_folder=tmp_path / "smalr"))
    assert kept.limits == calibration.limits and kept.words == calibration.words
    (tmp_path / "smalr/doubt").rename(tmp_path / "static_adapter/doubt")
    assert calibration_of(SimpleNamespace(run_folder=tmp_path / "static_adapter")) is None


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
    asked = [query for code in ("de", "zh", "ar") for query in queries_about(corpus, "test", code)]
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


@pytest.fixture(params=list(WORLDS))
def world(request, tmp_path):
    "A workbench as people open it; photographs: on two images of their own"
    folder = None
    if request.param == "photographs":
        folder = tmp_path
        for colour in ("red", "blue"):
            Image.new("RGB", (64, 48), colour).save(tmp_path / f"{colour}.png")
    world_workbench.cache_clear()
    yield world_workbench(request.param, folder)
    world_workbench.cache_clear()


def test_ask_says_what_a_search_says(world):
    "The workbench reads queries with the calibration of its model, as `search` does"
    state = AskState(world)
    (answer, *_) = state.ask("Quantencomputer Aktienkurs").values()
    assert ("concepts" if state.workbench.main.method.concepts else "query") in answer.hits.doubt.signs
    for text, language in world.world.examples:
        (answer, *_) = state.ask(text).values()
        assert answer.hits.query.language == language
        assert answer.hits.query.confidence > 0.85, text
        assert not {"query", "concepts"} & {*answer.hits.doubt.signs}


def test_images_of_another_kind_are_marked(method):
    screens = sorted(shipped_run().parents[2].glob("nbs/images/*.webp"))

    calibration = calibration_of(method)
    corpus = load_corpus("pictograms")
    usual = [corpus.picture(id, 160) for id in corpus.visuals("test").ids[::100]]
    assert not calibration.unlike_images(usual)
    assert screens, "the screenshots of the documentation"
    assert calibration.unlike_images([Image.open(path) for path in screens])
    assert SENTENCES["images"].startswith("The images are unlike")
