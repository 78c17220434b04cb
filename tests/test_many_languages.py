"Ten languages: the means A and HA, and parameter counts, each checked by hand"

from dataclasses import replace

import pytest
from squares import FEW_WORDS, TINY, Squares

from dasd_lab.base.presets import load_preset, vary
from dasd_lab.evaluation.languages import language_figures, needs
from dasd_lab.evaluation.main_tables import measure
from dasd_lab.evaluation.papers import PaperColumn
from dasd_lab.evaluation.retrieval import available_origin, evaluate
from dasd_lab.evaluation.selection import figures_on
from dasd_lab.methods.smalr.encoder import precomputed
from dasd_lab.training.recipes import new_method, training_data


@pytest.fixture(scope="module")
def data(backbone):
    return training_data(Squares(), ("de", "fr"), backbone)


def test_every_evaluation_chooses_the_same_captions(backbone, data):
    class Described(Squares):
        "French captions by a captioner alone, German ones also by a machine translator"

        def _captions(self, split, language):
            captions = super()._captions(split, language)
            if language == "fr":
                return [replace(c, origin="mllm") for c in captions]
            if language == "de":
                return [replace(c, origin="mllm", text="ein Bild") for c in captions] + captions
            return captions

    corpus = Described()
    method = new_method(vary(TINY, dict(vocab_size=120)), data, backbone)
    expected = evaluate(method, corpus, "train", ["de"], "mt").rows["de"]
    expected_fr = evaluate(method, corpus, "train", ["fr"], "mllm").rows["fr"]
    assert [available_origin(corpus, "train", language) for language in ("en", "de", "fr")] == ["human", "mt", "mllm"]
    assert figures_on(corpus, ["de"], "train")(method) == expected
    figures = language_figures(method, corpus, "train", ("en", "de", "fr"))
    assert figures["human"] == ["en"]
    assert figures["mR"]["de"] == 100 * expected["mean_recall"]
    assert figures["mR"]["fr"] == 100 * expected_fr["mean_recall"]
    columns = [PaperColumn(language, "squares", "train", language, "mean_recall") for language in ("de", "fr")]
    values = measure(method, corpus, columns).values
    assert values == pytest.approx({language: figures["mR"][language] for language in ("de", "fr")})


def test_needs_of_a_small_smalr_by_hand(backbone, data):
    preset = vary(
        load_preset("smalr.pictograms"),
        FEW_WORDS | {"config.embed_dim": 5, "config.image_hidden": 7, "config.gru_width": 3},
    )
    method = new_method(preset, data, backbone)
    n = needs(method)
    E = backbone.embed_dim
    words = len(method.tokenizer) - 2
    # two layers with a norm between them, a GRU with two sets of biases, and a layer
    use = (E * 7 + 7 + 2 * 7 + 7 * 5 + 5) + 3 * (5 * 3 + 3 * 3 + 2 * 3) + 3 * 5 + 5
    own = sum(min(4, len(w)) for w in method.tokenizer.words.values())
    entries = min(6, words)
    assert (n.use, n.frozen_text, n.table) == (use, 0, (words + 2) * 5)
    words_of_languages = own * 4 + 3 * (4 * 5 + 5)
    shared_words = entries * 4 + 4 * 5 + 5
    masked_language = 2 * (10 * 10 + 10)
    classifier = 5 + 3 * 5 + 3
    assert n.training == use + words_of_languages + shared_words + masked_language + classifier
    form = precomputed(method)
    assert (
        n.use == sum(p.numel() for k, p in form.named_parameters() if not k.startswith("backbone."))
        and needs(form).table == n.table == form.words.rows.numel()
    )
