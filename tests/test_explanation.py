"Why this picture: numbers worked out again without captum, on the shipped weights"

from random import Random

import numpy as np
import pytest
import torch

from dasd_lab.backbone.towers import load_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.pictograms.painting import N_VIEWS, boxes, group
from dasd_lab.search.explain.contributions import explain_words, integrated_gradients, leave_one_out, word_spans
from dasd_lab.search.explain.regions import explain_places
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training.recipes import shipped_run
from dasd_lab.training.runs import load_method

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
    found = leave_one_out(gallery.method, caption.text, language, gallery.picture_visuals(caption.visual_id))
    words = caption.text.rstrip(".").split()
    full = score(gallery, caption.text, language, caption.visual_id)
    for word in found.words:
        if word.text not in words or words.count(word.text) > 1:
            continue
        shorter = " ".join(w for w in words if w != word.text) + "." * caption.text.endswith(".")
        assert word.contribution == pytest.approx(full - score(gallery, shorter, language, caption.visual_id), abs=1e-4)
    assert found.score == pytest.approx(full, abs=1e-5) and len(found.words) >= len(words)


@pytest.mark.parametrize("form", FORMS)
def test_integrated_gradients_add_up(corpus, galleries, form):
    gallery = galleries[form]
    coarse = []
    fine = []
    for language in ("de", "zh", "ja", "ar", "en"):
        caption = corpus.captions("test", language)[3]
        visuals = gallery.picture_visuals(caption.visual_id)
        coarse.append(abs(integrated_gradients(gallery.method, caption.text, language, visuals, 16).delta))
        found = integrated_gradients(gallery.method, caption.text, language, visuals, 200)
        fine.append(abs(found.delta))
        assert found.score == pytest.approx(score(gallery, caption.text, language, caption.visual_id), abs=1e-4)
        assert [caption.text[w.start : w.end] for w in found.words] == [w.text for w in found.words]
        assert sum(w.contribution for w in found.words) + found.delta == pytest.approx(
            found.score - found.base, abs=1e-6
        )
    assert max(fine) < 0.01 and np.mean(fine) <= np.mean(coarse) + 1e-4


def test_gradients_along_the_path_by_hand(corpus, galleries):
    "The same integral as a plain Riemann sum, driven block by block"
    gallery = galleries["method"]
    method = gallery.method
    caption = corpus.captions("test", "en")[5]
    backbone = method.backbone
    picture = gallery.picture_visuals(caption.visual_id)["features"].clone()
    ids, end = backbone.tokenizer([caption.text], backbone.context_length)
    blank = ids.clone()
    blank[:, 1 : int(end)] = backbone.tokenizer.pad_id
    table = backbone.text.embedding.weight.detach()
    x = table[ids]
    x0 = table[blank]
    total = torch.zeros(ids.shape[1])
    steps = 400
    for i in range(steps):
        here = (x0 + (i + 0.5) / steps * (x - x0)).requires_grad_()
        h = backbone.start(here, end)
        for b in range(backbone.n_blocks):
            h = backbone.block(b, h, end)
        torch.cosine_similarity(backbone.read_out(h, end), picture).sum().backward()
        total += (here.grad * (x - x0)).sum(-1)[0] / steps
    found = integrated_gradients(method, caption.text, "en", gallery.picture_visuals(caption.visual_id), 200)
    spans = backbone.tokenizer.tokenizer.encode(caption.text, add_special_tokens=False).offsets
    by_hand = [
        sum(float(total[1 + i]) for i, (a, b) in enumerate(spans) if w.start <= a and b <= w.end) for w in found.words
    ]
    np.testing.assert_allclose([w.contribution for w in found.words], by_hand, atol=0.005)


def where(corpus, id):
    "Where a scene's only things stand, from the painter itself"
    scene = corpus.scene(id)
    rng = Random(f"{corpus.seed}/{scene}")
    rng.randrange(N_VIEWS)
    return group(scene.things[0], boxes(scene, rng)[0], 1, rng)


def test_covering_the_object_costs_more_than_covering_a_corner(corpus, galleries):
    method = galleries["method"].method
    visuals = corpus.visuals("test")
    ids = [
        c.visual_id
        for c in corpus.captions("test", "de")
        if len((s := corpus.scene(c.visual_id)).things) == 1 and s.things[0].count == 1
    ][:24]
    gallery = Gallery(method).add([visuals[visuals.index_of(i)] for i in ids])
    gaps = []
    by_paint = []
    text = {c.visual_id: c.text for c in corpus.captions("test", "de")}
    for id in ids:
        pixels = visuals[visuals.index_of(id)]
        heat = explain_places(gallery, text[id], id, "de", pixels, window=0.4, n_windows=8).heat
        (centre,), side = where(corpus, id)
        x, y = (min(max(round(c * 64), 7), 56) for c in centre)
        cx, cy = max(((6, 6), (57, 6), (6, 57), (57, 57)), key=lambda c: abs(c[0] - x) + abs(c[1] - y))
        gaps.append(heat[y - 5 : y + 6, x - 5 : x + 6].mean() - heat[cy - 5 : cy + 6, cx - 5 : cx + 6].mean())

        def covered(x, y):
            p = pixels.frames[0].copy()
            p[max(0, y - 13) : y + 13, max(0, x - 13) : x + 13] = p.mean((0, 1)).round().astype(np.uint8)
            return float(
                method.score(
                    method.encode_captions([text[id]], "de"),
                    method.encode_visuals(method.backbone.encode_pictures([p])),
                )[0, 0]
            )

        by_paint.append(covered(cx, cy) - covered(x, y))
    assert np.mean(gaps) > 0.05 and np.mean(np.array(gaps) > 0) >= 0.9, gaps
    assert np.mean(by_paint) > 0.05 and np.mean(np.array(by_paint) > 0) >= 0.9, by_paint


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
    for way in ("leave_one_out", "integrated_gradients"):
        found = explain_words(gallery, text, id, language, way)
        shown = found._repr_html_()
        assert (
            found.words and np.isfinite([w.contribution for w in found.words]).all() and f'lang="{language}"' in shown
        )
        assert "".join(w.text for w in found.words) == found.text.replace(" ", "") and "<b>" not in shown
    assert explain_places(gallery, text, id, language).heat.shape == (64, 64)


def test_words_of_all_captions(corpus):
    "Every visible character is in one word, and no word is empty, in all languages"
    for language in corpus.languages:
        for c in corpus.captions("test", language)[:200]:
            spans = word_spans(c.text, language)
            assert "".join(c.text[a:b] for a, b in spans) == "".join(c.text.split()) and all(a < b for a, b in spans)
