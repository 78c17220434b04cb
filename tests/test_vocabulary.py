"Reduced vocabularies: same tokens, same embeddings, fewer vectors; verified weights"

from functools import cache

import pytest
import torch
from tokenizers import BertWordPieceTokenizer, SentencePieceUnigramTokenizer, Tokenizer, processors

from dasd_lab.backbone.token_vectors import (
    cut_tokenizer,
    framing,
    read_matrix,
    read_tokenizer,
)
from dasd_lab.backbone.tokens import CaptionTokenizer, train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.backbone.weights import CATALOGUE, find_weights, import_weights
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import write_tensors
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.methods.dasd.adapters import AdapterConfig
from dasd_lab.methods.dasd.disentangling import DisentanglerConfig
from dasd_lab.methods.dasd.encoder import DASD, DASDConfig

LANGUAGES = "de", "fr", "cs", "zh", "ja", "ar"
KINDS = "wordpiece", "unigram", "own"


@pytest.fixture(scope="module")
def captions():
    return {
        language: list(
            dict.fromkeys(c.text for c in load_corpus("pictograms").captions("validation", language, "human"))
        )[:300]
        for language in LANGUAGES
    }


@cache
def trained(kind: str, texts: tuple[str, ...]) -> Tokenizer:
    "The library's own algorithms, with the framing of the models that use them"
    if kind == "own":
        return train_tokenizer(texts, 1500).tokenizer
    if kind == "wordpiece":
        t = BertWordPieceTokenizer(lowercase=False)
        t.train_from_iterator(texts, 1500, show_progress=False)
        names = "[CLS]", "[SEP]"
    else:
        t = SentencePieceUnigramTokenizer()
        names = "<s>", "</s>"
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        t.train_from_iterator(texts, 1500, False, special, unk_token="<unk>")
    framed = [(name, t.token_to_id(name)) for name in names]
    t.post_processor = processors.TemplateProcessing(single=f"{names[0]} $A {names[1]}", special_tokens=framed)
    return t._tokenizer


@pytest.fixture(params=KINDS)
def whole(request, captions):
    t = Tokenizer.from_str(
        trained(request.param, tuple(c for language in LANGUAGES for c in captions[language])).to_str()
    )
    return CaptionTokenizer(t, **framing(t))


def backbone(layers: int = 3, width: int = 32) -> Backbone:
    english = train_tokenizer(["a red square", "a blue square"] * 3, 60)
    cfg = dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
        text_cfg=dict(context_length=40, width=width, heads=2, layers=layers, vocab_size=len(english)),
    )
    torch.manual_seed(0)
    return Backbone(build_clip(cfg), english, cfg, "tiny")


FORMS = dict(
    paper={},
    official=dict(
        separate_projections=False,
        disentangler=DisentanglerConfig(2, False, 8, True, "all_positions"),
        adapter=AdapterConfig(4, product="official", start="default"),
    ),
)


def small(tokenizer: CaptionTokenizer | int, languages=LANGUAGES, width: int = 24, **changes) -> DASD:
    "A small DASD with every weight of its own moved from where it starts"
    method = DASD(
        DASDConfig(
            tuple(languages),
            width,
            **(dict(adapter=AdapterConfig(4), disentangler=DisentanglerConfig(hidden=8)) | changes),
        ),
        backbone(),
        tokenizer,
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for n, p in method.named_parameters():
            if not n.startswith("backbone."):
                p.add_(0.1 * torch.randn_like(p))
    return method.eval().requires_grad_(False)


@pytest.mark.parametrize("form", FORMS)
def test_a_reduced_vocabulary_says_the_same(whole, captions, form):
    "Exactly: every caption whose pieces are kept, in every language, also those that it was not cut to"
    method = small(whole, **FORMS[form])
    cut = cut_tokenizer(whole, [c for language in ("de", "cs", "zh") for c in captions[language][:70]])
    assert len(cut) < len(whole)
    reduced = small(cut, **FORMS[form])
    kept = method.token_vectors.embedding.weight[[max(i, 0) for i in cut.kept]]
    reduced.load_state_dict(method.state_dict() | {"token_vectors.embedding.weight": kept})
    for language in LANGUAGES:
        encodings = {c: whole.tokenizer.encode(c, add_special_tokens=False).ids for c in captions[language]}
        inside = [c for c, ids in encodings.items() if all(i in cut.places for i in ids)]
        assert language not in ("de", "cs", "zh") or set(inside) >= set(captions[language][:70])
        if inside:
            said = method.encode_captions(inside, language)
            assert torch.equal(reduced.encode_captions(inside, language), said), language


def test_from_a_download_to_a_method(captions, tmp_path, monkeypatch):
    "A stand-in for multilingual BERT, from a folder of the hub's tool to a method, through every check"
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    download = tmp_path / "download"
    download.mkdir()
    t = trained("wordpiece", tuple(c for language in LANGUAGES for c in captions[language]))
    t.save(str(download / "tokenizer.json"))
    (download / "config.json").write_text("{}")
    matrix = torch.randn(t.get_vocab_size(), 24)
    tensors = {"bert.embeddings.word_embeddings.weight": matrix, "bert.pooler.dense.bias": torch.zeros(3)}
    write_tensors(tensors, download / "model.safetensors")
    fetch = f"hf download google-bert/bert-base-multilingual-cased .*{CATALOGUE['mbert'].revision}"
    with pytest.raises(LabError, match=f"{fetch}.*weights import mbert"):
        find_weights("mbert")
    import_weights("mbert", download)
    folder = find_weights("mbert")
    whole = read_tokenizer(folder)
    found = read_matrix(folder / "model.safetensors")
    assert torch.equal(found, matrix)
    cut = cut_tokenizer(whole, captions["de"])
    method = small(cut, ("de",))
    method.start_from(found[cut.kept], folder)
    full = small(whole, ("de",))
    full.start_from(found, folder)

    def own(m):
        return {k: v for k, v in m.state_dict().items() if not k.startswith("token_vectors.embedding")}

    full.load_state_dict(full.state_dict() | own(method))
    assert torch.equal(method.encode_captions(captions["de"], "de"), full.encode_captions(captions["de"], "de"))

    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8] + b"another!")
    with pytest.raises(LabError, match="changed or cut short"):
        find_weights("mbert")
