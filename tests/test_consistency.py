"Search with a query and its translations: mean and learned combination, with DASD, LECCR and SMALR"

import json

import numpy as np
import pytest
import torch
from squares import COLOURS, FEW_WORDS, WORDS, Squares
from test_leccr import TINY as LECCR

from dasd_lab.base.contracts import cosine_scores
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.corpora.by_machine.translators import Translator
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.methods.smalr.consistency import (
    LearnedConsistency,
)
from dasd_lab.search.explain.consistent_queries import Consistent, fit_to
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training.recipes import columns_of, new_method, training_data

PRESETS = dict(
    dasd=("dasd.pictograms", dict(vocab_size=120)),
    smalr=("smalr.pictograms", FEW_WORDS),
    leccr=(
        "leccr.pictograms",
        {k: v for k, v in LECCR.items() if k.split(".")[0] not in ("base", "corpus", "languages", "stages")},
    ),
)


class ByColour(Translator):
    "Between the three languages of the squares; German does not go into French"

    name = "by colour"
    languages = ("en", "de", "fr")
    asked = 0

    def supports(self, source, target):
        return super().supports(source, target) and (source, target) != ("de", "fr")

    def translate(self, texts, source, target):
        self.asked += len(texts)
        return [self.translation(text, source, target) for text in texts]

    def translation(self, text, source, target):
        "The sentence about the same colour"
        for en, (de, fr, _) in COLOURS.items():
            names = dict(en=en, de=de, fr=fr)
            if names[source] in text:
                return WORDS[target].format(*names.values())
        return None


@pytest.fixture(scope="module", params=PRESETS)
def inner(request, backbone):
    "A method with perturbed weights: layers that start as the identity could hide errors"
    name, changes = PRESETS[request.param]
    preset = vary(load_preset(name), changes)
    method = new_method(
        preset, training_data(Squares(), ("de", "fr"), backbone, reads=columns_of(preset)), backbone
    ).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for n, p in method.named_parameters():
            if not n.startswith("backbone."):
                p.add_(0.1 * torch.randn_like(p))
    return method.requires_grad_(False)


class Few(Squares):
    "Eight squares with noise, so that no two are equal and tie; four of them have captions"

    name = "few squares"

    def _captions(self, split, language):
        return super()._captions(split, language)[:4]

    def visuals(self, split):
        from dasd_lab.corpora.visuals import visuals_from_array

        noise = np.random.default_rng(0).integers(-20, 20, (8, 16, 16, 3))
        pixels = super().visuals(split).pixels[:8].astype(int) + noise
        return visuals_from_array([f"v{i}" for i in range(8)], pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture
def corpus():
    return Few()


# the fusers


# around a method


def test_evaluation_fuses_what_each_version_scores(inner, corpus):
    "In comparison with scores computed one language at a time, without the wrapper"
    searched = Consistent(inner, ByColour())
    translator = ByColour()
    assert searched.slots == ("de", "fr", "en") and searched.languages == ("de", "fr")
    seen = inner.encode_visuals(inner.visual_columns(corpus.visuals("train"), corpus.descriptions("train")))
    part = {k: v[2:5] for k, v in seen.items()}
    for language, versions in dict(de=("de", "en"), fr=("de", "fr", "en"), en=("de", "fr", "en")).items():
        texts = [c.text for c in corpus.captions("train", language)]
        expected = 0
        for version in versions:
            sentences = texts if version == language else translator.translate(texts, language, version)
            expected = expected + inner.score(inner.encode_captions(sentences, version), seen) / len(versions)
        features = searched.encode_captions(texts, language)
        assert features.shape == (4, 4, inner.embed_dim)
        assert int(features.isnan().all(-1).sum()) == 4 * (3 - len(versions))
        torch.testing.assert_close(searched.score(features, seen), expected, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(searched.score(features, part), expected[:, 2:5], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(searched.first_features(features), inner.encode_captions(texts, language))
    no_features = searched.encode_captions([], "de")
    assert no_features.shape == (0, 4, inner.embed_dim)
    assert searched.score(no_features, seen).shape == (0, 8)


@pytest.mark.filterwarnings("ignore:The loss begins")
@pytest.mark.parametrize("slice_size", [3, 1024])
def test_a_gallery_ranks_as_evaluation_does(inner, corpus, slice_size):
    searched = Consistent(inner, ByColour(), LearnedConsistency(("de", "fr", "en")))
    fit_to(searched, corpus, "train", origin=None)
    gallery = Gallery(searched, slice_size).add_split(corpus, "train")
    found = evaluate(searched, corpus, "train", ["de", "fr", "en"], None, slice_size=slice_size)
    for language in ("de", "fr", "en"):
        ranks = found.ranks[language].text_to_image.tolist()
        for caption, expected in zip(corpus.captions("train", language), ranks):
            scores = {h.id: h.score for h in gallery.search(caption.text, language, k=8)}
            own = scores[caption.visual_id]
            n_better = sum(score > own + 1e-6 for score in scores.values())
            n_ties = sum(abs(score - own) <= 1e-6 for score in scores.values()) - 1
            assert n_better <= expected <= n_better + n_ties


def test_candidates_of_a_large_gallery_are_selected_by_the_caption_itself(inner, corpus):
    searched = Consistent(inner, ByColour())
    whole, short = (Gallery(searched, head=h).add_split(corpus, "train") for h in (0, 5))
    text = corpus.captions("train", "fr")[1].text
    own = cosine_scores(inner.encode_captions([text], "fr"), whole.visuals)[0]
    close = {whole.ids[i] for i in own.topk(5).indices.tolist()}
    full = whole.search(text, "fr", k=8)
    best = next(h for h in full if h.id in close)
    found = short.search(text, "fr", k=1)[0]
    assert found.id == best.id and abs(found.score - best.score) < 1e-5
    assert whole.nearest_captions(whole.ids[0], corpus.captions("train", "de"), k=3)[0].rank == 1


def test_the_command(inner, corpus, tmp_path, monkeypatch, capsys):
    from dasd_lab.commands import studies
    from dasd_lab.commands.cli import main
    from dasd_lab.runs import loading

    monkeypatch.setattr(studies, "open_corpus", lambda name: corpus)
    monkeypatch.setattr(loading, "load_run", lambda folder: inner)
    words = [
        "consistency",
        "--run",
        "pictograms",
        "--split",
        "train",
        "--fit-on",
        "train",
        "--origin",
        "mt",
        "--languages",
        "de,fr",
        "--json",
    ]
    assert main([*words, "--out", str(tmp_path / "clc")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["translator"] == "word-by-word gloss"
    assert set(result["weights"]) == {"en", "de", "fr"}
    assert [row["language"] for row in result["rows"]] == ["de", "fr", "mean"]
    alone = evaluate(inner, corpus, "train", ["de", "fr"], "mt")
    expected = [round(100 * alone.rows[language]["mean_recall"], 6) for language in ("de", "fr")]
    assert [round(row["alone"], 6) for row in result["rows"][:2]] == expected
    method = studies.consistent_method(inner, str(tmp_path / "clc"), "gloss", "de")
    assert isinstance(method.fuser, LearnedConsistency) and method.slots == tuple(result["weights"])
    assert main([*words[:-1], "--out", str(tmp_path / "clc")]) == 1, "an existing folder is not overwritten"
    assert "clc" in capsys.readouterr().err
