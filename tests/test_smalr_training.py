"""SMALR in training: interrupted in any stage it ends with the same weights, a seed determines the result, and a
warm-up that stays on its plateau is refused"""

import json
from dataclasses import replace

import pytest
from squares import COLOURS, FEW_WORDS, Squares

from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.training import runs
from dasd_lab.training.checkpoints import checkpoints
from dasd_lab.training.recipes import train, training_data
from dasd_lab.training.runs import Keeping


class Things(Squares):
    "Squares with a noun for each colour; without it all colour words would have the same neighbours and vectors"

    NOUNS = dict(
        red=("tomato", "Tomate", "tomate"),
        blue=("whale", "Wal", "baleine"),
        green=("frog", "Frosch", "grenouille"),
        yellow=("lemon", "Zitrone", "citron"),
    )

    def _captions(self, split, language):
        k = ("en", "de", "fr").index(language)
        texts = [f"{([colour, *COLOURS[colour][:2]])[k]} {self.NOUNS[colour][k]}" for colour in COLOURS]
        return [replace(c, text=texts[i % 4]) for i, c in enumerate(super()._captions(split, language))]


STEPS = 30, 8, 10  # of words_warm_up, latent_words, scaling
BASE = load_preset("smalr.pictograms")


def same_text(term):
    "A term that treats equal captions as matching: there are twelve squares of each colour"
    if term["loss"] in ("image_sentence", "neighbourhood"):
        return term | dict(options=term.get("options", {}) | dict(same_text_is_positive=True))
    return term


def tiny_preset():
    "A preset of a few thousand parameters and short stages"
    changes = FEW_WORDS | {"config.embed_dim": 8, "config.image_hidden": 8, "config.gru_width": 8}
    changes["stages.0.learning_rate"] = 0.05
    for i, steps in enumerate(STEPS):
        changes[f"stages.{i}.steps"] = steps
        changes[f"stages.{i}.batch_size"] = 12
        changes[f"stages.{i}.terms"] = [same_text(t) for t in BASE["stages"][i]["terms"]]
    return vary(BASE, changes)


TINY = tiny_preset()


@pytest.fixture(scope="module")
def data(backbone):
    return training_data(Things(), ("de", "fr"), backbone)


@pytest.fixture(scope="module")
def trained(backbone, data):
    return lambda out=None, seed=3, changes=None, every=5: train(
        TINY,
        seed=seed,
        backbone=backbone,
        data=data,
        out=out,
        changes=changes,
        keeping=Keeping(every, log_every=1),
        progress=False,
    )


@pytest.fixture(scope="module")
def straight(trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return out, trained(out)


class Killed(Exception):
    "Ends a run"


# checkpoints every five steps over all stages, and at the end of each stage
@pytest.mark.parametrize(
    "stage,at,place",
    [
        ("words_warm_up", 7, [0, 5]),
        ("words_warm_up", 0, None),
        ("latent_words", 0, [0, 30]),
        ("latent_words", 6, [1, 5]),
        ("scaling", 0, [1, 8]),
        ("scaling", 9, [2, 7]),
    ],
)
def test_interrupted_and_resumed(trained, straight, tmp_path, monkeypatch, stage, at, place):
    step_of = runs.train_step

    def killed(method, trained_stage, optimizers, batch, step, *more, **options):
        if (trained_stage.name, step) == (stage, at):
            raise Killed
        return step_of(method, trained_stage, optimizers, batch, step, *more, **options)

    monkeypatch.setattr(runs, "train_step", killed)
    with pytest.raises(Killed):
        trained(tmp_path / "run")
    found = checkpoints(tmp_path / "run")
    position = json.loads((found[-1] / "manifest.json").read_text())["position"] if found else None
    assert position == place
    monkeypatch.setattr(runs, "train_step", step_of)
    trained(tmp_path / "run")
    for name in ("method/model.safetensors", "method/tokenizer.json", "method/manifest.json", "log.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (straight[0] / name).read_bytes(), name


def test_what_people_wrote_is_trained_on_with_its_translation_into_english(backbone, tmp_path):
    corpus = Things()
    corpus.root = tmp_path
    corpus.all_captions = lambda split, code: [replace(c, origin="human") for c in corpus._captions(split, code)]
    (tmp_path / "mt").mkdir()
    (tmp_path / "mt/train.de.en.txt").write_text("a thing\n" * 48)
    reads = {"training_captions": ["human", "back_translated"], "captions_per_picture": 2, "stages": TINY["stages"][:1]}
    words = train(TINY, corpus, ["de", "fr"], backbone=backbone, changes=reads, progress=False).method.tokenizer.words
    assert "thing" in words["en"] and "thing" not in words["de"]


def test_a_warm_up_on_the_plateau_is_refused(trained, tmp_path):
    with pytest.raises(LabError, match="ends at a loss of .* the margin.*plateau"):
        trained(tmp_path / "run", changes={"stages.0.steps": 3, "stages.0.until": 0.0, "stages.0.learning_rate": 1e-6})
    assert not (tmp_path / "run/card.json").exists() and {
        r["stage"] for r in map(json.loads, (tmp_path / "run/log.jsonl").read_text().splitlines())
    } == {"words_warm_up"}
