"A method whose semantic-agnostic feature is the expression: trained and saved"

import pytest
import torch
from german import german_data

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import load_method, save_method
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.training.recipes import train

PRESET = "dasd.pictograms_expression"
CHANGES = {
    "stages.0.steps": 4,
    "stages.1.steps": 2,
    "vocab_size": 600,
    "phrases": 0,
    "config.disentangler.expression.least": 20,
}
GERMAN = ["Ein Hund auf einer Wiese.", "Eine Katze auf einem Stuhl.", "Am Strand gibt es einen roten Ball."]


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(shipped_run() / "backbone")


@pytest.fixture(scope="module")
def data(backbone):
    return german_data(backbone)


def trained(backbone, data, changes=CHANGES, **options):
    return train(PRESET, data=data, backbone=backbone, changes=changes, progress=False, **options)


@pytest.fixture(scope="module")
def run(backbone, data, tmp_path_factory):
    return trained(backbone, data, out=tmp_path_factory.mktemp("expression") / "run")


def agnostic(method, captions=GERMAN):
    return method.inspect(captions, "de")["semantic_agnostic"]


def test_training_leaves_it_as_fitted(run, backbone, data):
    torch.testing.assert_close(agnostic(trained(backbone, data, seed=1).method), agnostic(run.method))


def test_words_of_content_do_not_matter(run):
    first, second = agnostic(run.method, ["Ein Hund auf einer Wiese.", "Ein Ball auf einer Wiese."])
    torch.testing.assert_close(first, second)


def test_a_saved_run_has_the_same_features(run, tmp_path):
    torch.testing.assert_close(agnostic(load_run(run.folder)), agnostic(run.method))
    save_method(run.method, tmp_path / "half", half=True)
    half = load_method(tmp_path / "half", run.method.backbone)
    torch.testing.assert_close(agnostic(half), agnostic(run.method), atol=0.02, rtol=0.02)
