"Contributions of words and regions, computed again without captum, with the shipped weights"

import numpy as np
import pytest
import torch

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.saved import load_method
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.explain.contributions import explain_words, integrated_gradients, leave_one_out, word_spans
from dasd_lab.search.explain.regions import explain_regions
from dasd_lab.search.gallery.in_memory import Gallery

FORMS = [n for n in ("method", "static_adapter", "official_form") if (shipped_run() / n).is_dir()]


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("pictograms")


@pytest.fixture(scope="module")
def galleries(corpus):
    backbone = load_backbone(shipped_run() / "backbone")
    visuals = corpus.visuals("test")
    return {n: Gallery(load_method(shipped_run() / n, backbone)).add([visuals[i] for i in range(12)]) for n in FORMS}


def score(gallery, text, language, id):
    "Cosine by hand"
    a = gallery.method.encode_captions([text], language)[0].double()
    b = gallery.picture_visuals(id)["features"][0].double()
    return float(a @ b / (a.norm() * b.norm()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", ["de", "fr", "cs", "es", "ar", "en"])
def test_leave_one_out_is_the_shortened_query(corpus, galleries, form, language):
    gallery = galleries[form]
    caption = corpus.captions("test", language)[1]
    result = leave_one_out(gallery.method, caption.text, language, gallery.picture_visuals(caption.visual_id))
    words = caption.text.rstrip(".").split()
    period = "." if caption.text.endswith(".") else ""
    full = score(gallery, caption.text, language, caption.visual_id)
    for word in result.words:
        if words.count(word.text) != 1:
            continue
        shorter = " ".join(w for w in words if w != word.text) + period
        assert word.contribution == pytest.approx(full - score(gallery, shorter, language, caption.visual_id), abs=1e-4)
    assert result.score == pytest.approx(full, abs=1e-5)
    assert len(result.words) >= len(words)


def test_regions_are_covered_in_evaluation_mode(galleries, monkeypatch):
    gallery = galleries["method"]
    method = gallery.method
    score = method.score
    modes = []

    def recorded(text_features, visuals):
        modes.append(method.training)
        return score(text_features, visuals)

    monkeypatch.setattr(method, "score", recorded)
    method.train()
    explain_regions(gallery, "ein Hund", gallery.ids[0], "de", n_windows=4)
    with pytest.raises(LabError, match="at least 4 windows"):
        explain_regions(gallery, "ein Hund", gallery.ids[0], "de", n_windows=2)
    assert modes and not any(modes) and method.training
    method.eval()


def test_integrated_gradients_by_hand(corpus, galleries):
    "The same integral as a Riemann sum, block by block"
    gallery = galleries["method"]
    method = gallery.method
    caption = corpus.captions("test", "en")[5]
    backbone = method.backbone
    picture = gallery.picture_visuals(caption.visual_id)["features"].clone()
    ids, end = backbone.tokenizer([caption.text], backbone.context_length)
    padding = ids.clone()
    padding[:, 1 : int(end)] = backbone.tokenizer.pad_id
    table = backbone.text.embedding.weight.detach()
    x = table[ids]
    x0 = table[padding]
    total = torch.zeros(ids.shape[1])
    steps = 400
    for i in range(steps):
        point = (x0 + (i + 0.5) / steps * (x - x0)).requires_grad_()
        h = backbone.start(point, end)
        for b in range(backbone.n_blocks):
            h = backbone.block(b, h, end)
        torch.cosine_similarity(backbone.read_out(h, end), picture).sum().backward()
        total += (point.grad * (x - x0)).sum(-1)[0] / steps
    result = integrated_gradients(method, caption.text, "en", gallery.picture_visuals(caption.visual_id), 200)
    offsets = backbone.tokenizer.tokenizer.encode(caption.text, add_special_tokens=False).offsets
    by_hand = []
    for word in result.words:
        tokens = [i for i, (start, end) in enumerate(offsets) if word.start <= start and end <= word.end]
        by_hand.append(sum(float(total[1 + i]) for i in tokens))
    np.testing.assert_allclose([w.contribution for w in result.words], by_hand, atol=0.005)


@pytest.mark.parametrize(
    "text,language",
    [
        ("两只黄色的狐狸", "zh"),
        ("三匹の犬がいる", "ja"),
        ("  قطة   حمراء!  ", "ar"),
        ("🐕 🐕", "en"),
        ("x" * 900, "de"),
        ('<b>Hund</b> & "Katze"', "de"),
        ("!", "de"),
    ],
)
def test_any_query(galleries, text, language):
    gallery = galleries["method"]
    id = gallery.ids[0]
    for algorithm in ("leave_one_out", "integrated_gradients"):
        result = explain_words(gallery, text, id, language, algorithm)
        assert result.words
        assert np.isfinite([w.contribution for w in result.words]).all()
        assert "".join(w.text for w in result.words) == result.text.replace(" ", "")
        page = result._repr_html_()
        assert f'lang="{language}"' in page
        assert "<b>" not in page
    assert explain_regions(gallery, text, id, language).heat.shape == (64, 64)


def test_words_of_all_captions(corpus):
    "Every visible character is in exactly one word, and no word is empty, in all languages"
    for language in corpus.languages:
        for c in corpus.captions("test", language)[:200]:
            spans = word_spans(c.text, language)
            assert "".join(c.text[a:b] for a, b in spans) == "".join(c.text.split())
            assert all(a < b for a, b in spans)
