"Every registered method fulfils `contracts.RetrievalMethod`, with the settings of its own presets"

import copy
from dataclasses import replace
from itertools import chain

import pytest
import torch
from squares import FEW_WORDS, SOURCE, Squares

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.base.contracts import METHODS, LabError, method_class
from dasd_lab.base.presets import list_presets, load_preset, vary
from dasd_lab.methods.smalr.vocabulary import WordVocabulary
from dasd_lab.runs.saved import load_method, own_state, save_method
from dasd_lab.training.logging import loss_terms
from dasd_lab.training.losses import IMAGE_FEATURES, LOSSES
from dasd_lab.training.recipes import batches_for, columns_of, new_method, scaled_stages, training_data
from dasd_lab.training.stages import needs_pictures, set_trainable, stage_loss
from dasd_lab.training.steps import CriticTurn, open_stage, train_step

EVERY_PRESET = {name: load_preset(name) for name in list_presets()}
# presets with published token vectors have the settings of their base
PRESETS = {name: p for name, p in EVERY_PRESET.items() if p.get("method") and not p.get("token_vectors")}
SENTENCES = [
    "ein Quadrat",
    "ein rotes Quadrat auf der grünen Wiese und noch ein blaues Quadrat auf einer Wiese",
    "Wiese",
    "ein gelbes Quadrat auf der Wiese.",
    "狗 🐕 unbekannte Zeichen",
    "",
]


def close(a, b):
    return torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def data(backbone):
    reads = set(chain.from_iterable(columns_of(p) for p in PRESETS.values()))
    return training_data(Squares(), ("de", "fr"), backbone, reads=reads)


@pytest.fixture(scope="module", params=PRESETS)
def preset(request):
    preset = PRESETS[request.param]
    changes = FEW_WORDS if preset.get("word_vectors") is not None else dict(vocab_size=120)
    if preset.get("text_run"):  # the run has another backbone
        changes |= {"text_run": None, "config.embed_dim": SOURCE["model_cfg"]["embed_dim"]}
    return vary(preset, changes | {"captions_per_picture": None})  # the squares have one


@pytest.fixture
def stages(preset):
    return [replace(s, batch_size=6, steps=3) for s in scaled_stages(preset, 2)]


def captions_of(method, data, batches, batch, features):
    "Captions, language and features of every language in a batch"
    if method.batch_type == "captions":
        captions = [data.pairs[batch["language"]].target[i] for i in batch["rows"]]
        yield captions, batch["language"], features["target_features"]
        return
    for g, language in enumerate(batches.languages):
        captions = [batches.texts[language][i] for i in batch["text_index"][:, g].flatten()]
        yield captions, language, features["final_features"][g]


@pytest.fixture
def columns(method):
    "Visual columns of the first images"
    visuals = Squares().visuals("train")
    return lambda n: method.visual_columns([visuals[i] for i in range(n)], Squares().descriptions("train")[:n])


@pytest.fixture(scope="module")
def made(preset, data, backbone):
    "An untrained method whose own weights were all changed: adapters start as the identity, which could hide errors"
    method = new_method(preset, data, backbone).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for n, p in method.named_parameters():
            if not n.startswith("backbone."):
                p.add_(0.1 * torch.randn_like(p))
    return method


@pytest.fixture
def method(made):
    return copy.deepcopy(made, {id(made.backbone): made.backbone})  # a stage may change shapes


def test_every_method_that_is_trained_has_a_preset_and_every_preset_a_method():
    trained = {p["method"] for p in EVERY_PRESET.values() if p.get("method")}
    assert trained == {"dasd", "static_adapter", "lora", "teacher", "leccr", "smalr"}
    assert {method_class(name).name for name in trained} == trained
    own = {name for name, cls in METHODS.items() if cls.__module__.startswith("dasd_lab")}  # tools register more
    assert own - trained <= {"frozen"}


def test_captions_become_vectors_of_the_shared_space(method, backbone):
    for language in (*method.languages, "en"):
        found = method.encode_captions(SENTENCES, language)
        assert (
            found.shape == (len(SENTENCES), method.embed_dim)
            and found.dtype == torch.float32
            and found.isfinite().all()
            and not found.requires_grad
        )
        assert method.encode_captions(SENTENCES[:1], language).shape == (1, method.embed_dim)
        assert method.encode_captions([], language).shape == (0, method.embed_dim)
    distinct = {tuple(r) for r in method.encode_captions(SENTENCES, "de").tolist()}
    # with a vocabulary of whole words, unknown words give the same vector as an empty caption
    same = 1 if isinstance(method.tokenizer, WordVocabulary) else 0
    assert len(distinct) == len(SENTENCES) - same


def test_a_caption_does_not_depend_on_its_neighbours(method):
    for language in ("de", "en"):
        found = method.encode_captions(SENTENCES, language)
        for i, caption in enumerate(SENTENCES):
            close(method.encode_captions([caption], language)[0], found[i])
        for size in (1, 2, 4):
            close(method.encode_captions(SENTENCES, language, batch_size=size), found)


@pytest.mark.parametrize("language", ["fi", "", "DE", "german"])
def test_an_untrained_language_is_refused(method, language):
    with pytest.raises(LabError, match="one of .*de.*fr.*en"):
        method.encode_captions(SENTENCES, language)


def test_visuals_have_features_first_axis_the_gallery(method, columns):
    known = columns(7)
    visuals = method.encode_visuals(known)
    assert visuals["features"].shape == (7, method.embed_dim) and all(len(v) == 7 for v in (known | visuals).values())
    parts = [method.encode_visuals({k: v[part] for k, v in known.items()}) for part in (slice(0, 3), slice(3, 7))]
    for k, v in visuals.items():
        close(torch.cat([p[k] for p in parts]), v)


def test_scores_of_a_slice_are_a_slice_of_the_scores(method, columns):
    text = method.encode_captions(SENTENCES, "de")
    visuals = method.encode_visuals(columns(11))
    whole = method.score(text, visuals)
    assert whole.shape == (len(SENTENCES), 11) and whole.isfinite().all()
    for part in (slice(0, 4), slice(4, 5), slice(5, 11), slice(0, 0)):
        close(method.score(text, {k: v[part] for k, v in visuals.items()}), whole[:, part])
    close(method.score(text[2:4], visuals), whole[2:4])


def with_critic(method, stage, features):
    "Features with the critic's logits, if the stage has a critic"
    if not stage.critic:
        return features
    method.critic.requires_grad_(True)
    return features | CriticTurn(method.critic, stage.critic)(features, 0)


def test_every_part_that_learns_exists_and_gets_a_gradient(method, data, stages):
    batches = batches_for(method, data)
    for stage in stages:
        method.prepare(stage.name)
        opened = set_trainable(method, stage.trains)
        assert opened and not any(n.startswith("backbone.") for n in opened)
        for part in stage.trains:
            assert any(n.startswith(part + ".") for n in opened) or method.get_submodule(part) is None
        features = with_critic(method, stage, method.training_features(batches(stage)(0)))
        stage_loss(stage, features)[0].backward()
        for part in stage.trains:
            found = [p.grad for n, p in method.named_parameters() if n.startswith(part + ".") and p.grad is not None]
            assert any(g.abs().max() > 0 for g in found), part
        assert all(p.grad is None for p in method.backbone.parameters())
        method.zero_grad()


def test_training_features_are_those_of_encoding(method, data, stages):
    for stage in stages:
        method.prepare(stage.name)
    batches = batches_for(method, data)(stages[-1])
    batch = batches(0)
    with torch.no_grad():
        features = method.training_features(batch)
    for captions, language, rows in captions_of(method, data, batches, batch, features):
        encoded = method.encode_captions(captions, language)
        close(rows, encoded[:, encoded.any(0)])  # zeros: parts of other languages (EmbN)


def test_a_step_changes_what_learns_and_nothing_else(method, data, stages):
    for stage in stages:
        method.prepare(stage.name)
        before = copy.deepcopy(own_state(method))
        frozen = fingerprint(method.backbone)
        optimizers, turn = open_stage(method, stage)
        # step 1, as the authors' schedule starts at a rate of 0
        row = train_step(method, stage, optimizers, batches_for(method, data)(stage)(1), 1, turn)
        changed = {k for k, v in own_state(method).items() if not torch.equal(v, before[k])}
        trained = {part for part in stage.trained_parts if method.get_submodule(part) is not None}
        assert row["loss"].isfinite()
        assert set(loss_terms([row])) == {term.called for term in stage.terms}
        assert all(any(k.startswith(part + ".") for k in changed) for part in trained), trained
        assert all(any(k.startswith(part + ".") for part in trained) for k in changed), changed
        assert fingerprint(method.backbone) == frozen


def test_saved_and_loaded_it_answers_the_same(method, backbone, data, tmp_path):
    save_method(method, tmp_path / "a method", seed=0)
    again = load_method(tmp_path / "a method", backbone)
    assert (
        type(again) is type(method)
        and again.config == method.config
        and again.languages == method.languages
        and not again.training
    )
    assert not any(p.requires_grad for p in again.parameters()) and fingerprint(again) == fingerprint(method)
    for language in (*method.languages, "en"):
        assert torch.equal(again.encode_captions(SENTENCES, language), method.encode_captions(SENTENCES, language))
    assert not any(n.startswith("backbone.") for n in own_state(method))
    save_method(method, tmp_path / "half", half=True)
    half = load_method(tmp_path / "half", backbone).encode_captions(SENTENCES, "de")
    assert torch.cosine_similarity(half, method.encode_captions(SENTENCES, "de")).min() > 0.9999


class Recorded(dict):
    "Features that remember which of them were read"

    def __init__(self, features):
        super().__init__(features)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def test_losses_read_what_they_declare(method, data, stages):
    "Losses read no other features, and `needs_pictures` follows from them"
    batches = batches_for(method, data)
    for stage in stages:
        method.prepare(stage.name)
        features = with_critic(method, stage, method.training_features(batches(stage)(0)))
        for term in stage.terms:
            recorded = Recorded(features)
            LOSSES[term.loss](recorded, **term.options)
            counted = {"visual_features"} if term.loss == "neighbourhood" else set()  # their number alone is read
            assert recorded.names and recorded.names <= term.reads | counted, term
        images = any(term.reads & IMAGE_FEATURES for term in stage.terms)
        assert needs_pictures(stage) == (images or bool(stage.critic) and stage.critic.reference == "image_features")


# A method that the lab does not know: a bag of words, on images with captions in all languages, with a loss of its own


@pytest.mark.parametrize("name", ["dasd.pictograms", "lora.photographs", "leccr.pictograms"])
def test_word_transport_is_trained_where_the_tower_encodes_words_and_refused_elsewhere(name, data, backbone):
    term = dict(loss="word_transport", options=dict(softness=0.5))
    preset = vary(PRESETS[name], {"vocab_size": 120, "stages": [PRESETS[name]["stages"][0] | dict(terms=[term])]})
    stage = replace(scaled_stages(preset, 1)[0], batch_size=4, critic=None)
    method = new_method(preset, data, backbone, 0).train()
    batch = batches_for(method, data)(stage)(0)
    if method.batch_type != "captions" or name.startswith("leccr"):
        with pytest.raises(LabError, match="no features"):
            stage_loss(stage, method.training_features(batch))
        return
    set_trainable(method, stage.trains)
    features = method.training_features(batch)
    assert features["source_tokens"].shape[::2] == features["target_tokens"].shape[::2] == (4, backbone.embed_dim)
    plain = method.training_features({k: v for k, v in batch.items() if not k.startswith("original")})
    close(features["target_features"], plain["target_features"])
    last = features["target_tokens"][torch.arange(4), features["target_mask"].sum(1) - 1]
    close(last, features["target_features"])
    stage_loss(stage, features)[0].backward()
    assert all(p.grad.isfinite().all() for p in method.adapters.parameters() if p.grad is not None)
    assert any(p.grad is not None and p.grad.any() for p in method.adapters.parameters())
