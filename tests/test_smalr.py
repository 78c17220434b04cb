"SMALR on a small grammar with planted translations: latent stages, dropped entries, saving, resuming, guards"

from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dasd_lab.backbone.towers import fingerprint
from dasd_lab.base.contracts import LabError
from dasd_lab.runs.saved import load_method, own_state, save_method
from dasd_lab.training.runs import Keeping, fit
from dasd_lab.training.stages import Stage, Term

COLOURS = ["red", "blue", "green", "white", "black", "brown"]
THINGS = ["dog", "cat", "horse", "bird", "car", "house", "tree", "boat", "chair", "lamp"]
PLACES = ["garden", "street", "kitchen", "forest", "beach"]
LANGUAGES = "en", "de", "fr"
MEANINGS = list(product(range(6), range(10), range(5)))


def close(a, b):
    return torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def word(w: str, language: str) -> str:
    return w if language == "en" else language[0] + w[::-1]


def caption(meaning, language: str, k: int) -> str:
    "One of two ways to say it; the order of words is each language's own"
    c, t, p = (word(x, language) for x in (COLOURS[meaning[0]], THINGS[meaning[1]], PLACES[meaning[2]]))
    return {
        "en": (f"a {c} {t} in the {p}", f"the {p} with a {c} {t}"),
        "de": (f"im {p} ein {c} {t}", f"ein {t} {c} im {p}"),
        "fr": (f"un {t} {c} dans le {p}", f"dans le {p} un {t} {c}"),
    }[language][k]


@pytest.fixture(scope="module")
def smalr():
    "The module of the encoder"
    import dasd_lab.methods.smalr.encoder as module

    return module


class Planted:
    """Vectors in which translations differ by a rotation per language and some noise

    Co-occurrence carries no information in a grammar with independent parts."""

    name = "planted"
    dim = 16

    def vectors(self, language, words):
        def normal(*seed, size):
            return np.random.default_rng([*map(ord, "".join(seed))]).normal(size=size)

        rotation, _ = np.linalg.qr(normal("turn", language, size=(16, 16)))
        rows = []
        for w in words:
            english = w if language == "en" else w[1:][::-1]
            rows.append(rotation @ normal("word", english, size=16) + 0.2 * normal(language, w, size=16))
        return np.stack(rows).astype(np.float32), np.ones(len(words), bool)


@pytest.fixture(scope="module")
def words():
    from dasd_lab.methods.smalr.vectors import vectors_of
    from dasd_lab.methods.smalr.vocabulary import count_words

    return vectors_of(
        count_words({language: [caption(m, language, k) for m in MEANINGS for k in (0, 1)] for language in LANGUAGES}),
        Planted(),
    )


@pytest.fixture(scope="module")
def config(smalr):
    return smalr.SMALRConfig(
        languages=LANGUAGES,
        specific=8,
        latent=smalr.LatentConfig(entries=32, dim=12, margin=0.1),
        vector_width=16,
        own_width=8,
        embed_dim=16,
        image_hidden=24,
        gru_width=16,
        max_words=8,
    )


@pytest.fixture
def method(smalr, config, backbone, words):
    torch.manual_seed(0)
    made = smalr.SMALR(config, backbone, words[0])
    made.start_from(torch.from_numpy(words[1]))
    return made


def batches(method, B=24, S=2, steps=1):
    "stage → step → batch; the picture of a meaning is a fixed random vector"
    from dasd_lab.methods.smalr.branches import draw_masks
    from dasd_lab.methods.smalr.vocabulary import pad_rows

    ids = torch.stack(
        [
            pad_rows(
                sum(
                    (
                        method.tokenizer.encode([caption(m, language, k) for k in range(S)], language, 8)
                        for language in LANGUAGES
                    ),
                    [],
                ),
                8,
            ).view(len(LANGUAGES), S, -1)
            for m in MEANINGS
        ]
    )
    # three numbers would not tell them apart: one-hot parts are added
    seen = torch.randn(len(MEANINGS), 3, generator=torch.Generator().manual_seed(0))
    one_hot = torch.cat([F.one_hot(torch.tensor(MEANINGS)[:, i], n).float() for i, n in enumerate((6, 10, 5))], 1)
    project = torch.randn(24, method.backbone.embed_dim, generator=torch.Generator().manual_seed(1))
    pictures = torch.cat([seen, one_hot], 1) @ project

    def batch(stage, step):
        rows = torch.from_numpy(np.random.default_rng([7, step]).permutation(len(MEANINGS))[:B])
        some = ids[rows]
        masked = draw_masks((some > 0).sum(-1), some.shape[-1], torch.Generator().manual_seed(step))
        return dict(
            ids=some,
            word_ids=some,
            masked_words=masked,
            image_features=pictures[rows],
            visual_index=rows,
            done=step / stage.steps,
            language="all",
        )

    return lambda stage: lambda step: batch(stage, step)


# the mean over ordered pairs of three languages
NEAR = Term("neighbourhood", options=dict(weights=[1 / 3, 0.0, 2 / 3, 0.0], margin=0.1))
PRE = [
    Stage("words_warm_up", (NEAR,), ("words.latent.projections",), 90, 24, 1e-2, warmup=0.01),
    Stage("latent_words", (NEAR,), ("words.latent.projections", "words.latent.entries"), 40, 24, 3e-3, warmup=0.01),
]


def pretrain(method, stages=PRE):
    return fit(method, stages, batches(method), keeping=Keeping(log_every=1), progress=False)


@pytest.fixture(scope="module")
def pretrained(smalr, backbone, words, config):
    "Once through both latent stages"
    torch.manual_seed(0)
    made = smalr.SMALR(config, backbone, words[0])
    made.start_from(torch.from_numpy(words[1]))
    return made, pretrain(made)


@pytest.fixture
def trained_words(pretrained, smalr, backbone):
    "A copy after the latent stages, before they are frozen"
    made = smalr.SMALR(pretrained[0].config, backbone, pretrained[0].tokenizer)
    made.make_room({k: v.shape for k, v in own_state(pretrained[0]).items()})
    made.load_state_dict(made.state_dict() | own_state(pretrained[0]))
    return made, pretrained[1]


def test_planted_translations_share_entries(trained_words):
    method, log = trained_words
    v = method.tokenizer
    codes = method.words.latent.chosen()

    def place(w, language):
        return v.encode([word(w, language)], language)[0][0]

    pairs = [(place(w, "en"), place(w, language)) for w in (*COLOURS, *THINGS, *PLACES) for language in ("de", "fr")]

    def share(ps):
        return np.mean([int(codes[a] == codes[b]) for a, b in ps])

    shuffled = [share([(a, pairs[(i + k) % len(pairs)][1]) for i, (a, _) in enumerate(pairs)]) for k in range(2, 12, 2)]
    assert share(pairs) > 0.5 and share(pairs) > 4 * np.mean(shuffled), (share(pairs), shuffled)
    figures = method.words.latent.figures()
    assert figures["entries_used"] > 12
    assert figures["entries_shared"] > 0.5
    warm = [r["loss"] for r in log if r["stage"] == "words_warm_up"]
    assert np.mean(warm[-10:]) < 0.05 < np.mean(warm[:5])


def test_it_collapses_without_a_warm_up_and_is_refused(method):
    with pytest.raises(LabError, match="plateau"):
        method.prepare("latent_words", [dict(stage="words_warm_up", loss=0.09)] * 10)
    assert int(method.words.latent.phase) == 0
    latent = method.words.latent
    latent.phase.fill_(1)
    with torch.no_grad():
        latent.entries.weight.copy_(F.normalize(1 + 0.05 * torch.randn(latent.entries.weight.shape), dim=-1))
    with pytest.raises(LabError, match="collapsed"):
        method.prepare("scaling")
    assert int(latent.phase) == 1
    assert len(latent.projections) == 3  # nothing was changed


def test_dropping_entries_changes_no_word(trained_words):
    method, _ = trained_words
    latent = method.words.latent
    tail = method.words.tail.nonzero()[:, 0]
    method.eval()
    codes = latent.chosen()
    rows = latent.entries.weight.detach().clone()
    method.prepare("scaling")
    assert torch.equal(latent(tail).detach(), rows[codes[tail]])
    assert torch.equal(latent.original[latent.codes[tail]], codes[tail])
    assert latent.entries.num_embeddings == len(codes[tail].unique())
    assert not latent.projections
    assert not len(latent.vectors)
    assert (latent.codes[~method.words.tail] < latent.entries.num_embeddings).all()


@pytest.mark.parametrize("phase", ["fresh", "continuous", "choosing", "frozen", "precomputed"])
def test_saved_and_loaded_in_every_phase(phase, method, trained_words, smalr, backbone, tmp_path):
    if phase != "fresh" and phase != "continuous":
        method = trained_words[0]
    if phase == "fresh":
        method.words.latent.make_room(False, 32)
    if phase in ("frozen", "precomputed"):
        method.prepare("scaling")
    if phase == "precomputed":
        method = smalr.precomputed(method)
    method.eval()
    save_method(method, tmp_path / "m", seed=0)
    again = load_method(tmp_path / "m", backbone)
    assert again.config == method.config
    assert again.tokenizer == method.tokenizer
    assert fingerprint(again) == fingerprint(method)
    if phase == "fresh":
        return
    for language in LANGUAGES:
        assert torch.equal(
            again.encode_captions([caption(m, language, 0) for m in MEANINGS[:9]], language),
            method.encode_captions([caption(m, language, 0) for m in MEANINGS[:9]], language),
        )
    save_method(method, tmp_path / "half", half=True)
    close = torch.cosine_similarity(
        load_method(tmp_path / "half", backbone).encode_captions(["a red dog"], "en"),
        method.encode_captions(["a red dog"], "en"),
    )
    assert close > 0.999
