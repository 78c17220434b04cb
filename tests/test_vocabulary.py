"Reduced and extended vocabularies: same tokens, same embeddings, fewer vectors; verified weights"

from functools import cache

import pytest
import torch
from tokenizers import BertWordPieceTokenizer, SentencePieceUnigramTokenizer, Tokenizer, processors

from dasd_lab.backbone.token_vectors import (
    carried_rows,
    cut_tokenizer,
    framing,
    read_matrix,
    read_tokenizer,
    unknown_piece,
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
from dasd_lab.methods.dasd.growing import cut_method, extended

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


def train_a_little(method: DASD, captions: dict[str, list[str]]):
    method.token_vectors.requires_grad_(True)
    method.adapters.requires_grad_(True)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-2)
    for language in method.languages:
        method.features(*method.tokens(captions[language][:8]), language)["target_features"].square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    method.requires_grad_(False)


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_method_says_the_same(whole, captions, form):
    "Exactly: every caption whose pieces are kept, in every language, also those that it was not cut to"
    method = small(whole, **FORMS[form])
    kept_for = [c for language in ("de", "cs", "zh") for c in captions[language][:70]]
    cut = cut_method(method, kept_for)
    assert len(cut.tokenizer) < len(whole)
    assert set(cut.tokenizer.kept) - {-1} <= set(range(len(whole)))
    also = 0
    for language in LANGUAGES:
        inside = [
            c
            for c in captions[language]
            if all(i in cut.tokenizer.places for i in whole.tokenizer.encode(c, add_special_tokens=False).ids)
        ]
        assert language not in ("de", "cs", "zh") or set(inside) >= set(captions[language][:70])
        also += len(set(inside) - set(kept_for))
        for c in inside:
            assert cut.tokenizer.pieces(c) == whole.pieces(c)
        if inside:
            assert torch.equal(cut.encode_captions(inside, language), method.encode_captions(inside, language)), (
                language
            )
    assert also > 20


def unknown_share(tokenizer: CaptionTokenizer, captions) -> float:
    "Share of the pieces of captions that a tokenizer does not know"
    encodings = tokenizer.tokenizer.encode_batch(list(captions), add_special_tokens=False)
    ids = [tokenizer.place(i) for encoding in encodings for i in encoding.ids]
    return ids.count(tokenizer.unknown) / len(ids)


def whole_again(tokenizer: CaptionTokenizer) -> CaptionTokenizer:
    "A table that keeps everything"
    unknown = unknown_piece(tokenizer.tokenizer)
    kept = [*range(len(tokenizer)), *([-1] if unknown is None else [])]
    return CaptionTokenizer(
        Tokenizer.from_str(tokenizer.tokenizer.to_str()),
        *tokenizer.names,
        kept,
        len(tokenizer) if unknown is None else unknown,
    )


def test_a_language_is_added_to_a_trained_cut_method(whole, captions):
    old = ("de", "fr", "zh")
    new = ("ja", "ar")
    method = small(whole, old, width=24)
    full = method.token_vectors.embedding.weight.clone()
    before = cut_method(method, [c for language in old for c in captions[language][:90]])
    train_a_little(before, captions)
    said = {language: before.encode_captions(captions[language][:90], language) for language in old}
    rows = before.token_vectors.embedding.weight.clone()
    state = {k: v.clone() for k, v in before.state_dict().items()}
    grown = before
    for language in new:
        grown = extended(grown, captions[language], language, full)
    n = len(before.tokenizer)
    assert grown.tokenizer.kept[:n] == before.tokenizer.kept
    assert len(grown.tokenizer) > n
    assert grown.languages == (*old, *new)
    for language in old:
        assert torch.equal(grown.encode_captions(captions[language][:90], language), said[language]), language
    for language in new:
        assert unknown_share(grown.tokenizer, captions[language]) == unknown_share(
            whole_again(whole), captions[language]
        )
    weight = grown.token_vectors.embedding.weight
    # trained rows stay
    assert torch.equal(weight[:n], rows)
    assert not torch.equal(rows, full[[max(k, 0) for k in before.tokenizer.kept]])
    assert torch.equal(weight[n:], full[grown.tokenizer.kept[n:]])  # new ones are the model's
    for k, v in state.items():
        if k != "token_vectors.embedding.weight":
            assert torch.equal(grown.state_dict()[k], v) and torch.equal(before.state_dict()[k], v), k
    for language in new:
        # untrained: no change
        assert torch.equal(
            grown.encode_captions(captions[language], language),
            grown.encode_captions(captions[language], language, skip=range(3)),
        )


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
    method.start_from(carried_rows(found, whole, cut), folder)
    full = small(whole, ("de",))
    full.start_from(found, folder)

    def own(m):
        return {k: v for k, v in m.state_dict().items() if not k.startswith("token_vectors.embedding")}

    full.load_state_dict(full.state_dict() | own(method))
    assert torch.equal(method.encode_captions(captions["de"], "de"), full.encode_captions(captions["de"], "de"))

    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8] + b"another!")
    with pytest.raises(LabError, match="changed or cut short"):
        find_weights("mbert")
