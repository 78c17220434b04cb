"A vocabulary and its vectors, from a download to a method, and verified weights"

import pytest
import torch
from tokenizers import BertWordPieceTokenizer, Tokenizer, processors

from dasd_lab.backbone.token_vectors import read_matrix, read_tokenizer
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.backbone.weights import CATALOGUE, find_weights, import_weights
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import write_tensors
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.methods.dasd.adapters import AdapterConfig
from dasd_lab.methods.dasd.disentangling import DisentanglerConfig
from dasd_lab.methods.dasd.encoder import DASD, DASDConfig


def trained(texts: list[str]) -> Tokenizer:
    "The library's WordPiece, framed as multilingual BERT frames captions"
    t = BertWordPieceTokenizer(lowercase=False)
    t.train_from_iterator(texts, 1500, show_progress=False)
    framed = [(name, t.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=framed)
    return t._tokenizer


def backbone() -> Backbone:
    english = train_tokenizer(["a red square", "a blue square"] * 3, 60)
    cfg = dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
        text_cfg=dict(context_length=40, width=32, heads=2, layers=3, vocab_size=len(english)),
    )
    torch.manual_seed(0)
    return Backbone(build_clip(cfg), english, cfg, "tiny")


def test_from_a_download_to_a_method(tmp_path, monkeypatch):
    "A stand-in for multilingual BERT, from a folder of the hub's tool to a method, through every check"
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    download = tmp_path / "download"
    download.mkdir()
    captions = [c.text for c in load_corpus("pictograms").captions("validation", "de", "human")[:300]]
    t = trained(captions)
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
    parts = dict(adapter=AdapterConfig(4), disentangler=DisentanglerConfig(hidden=8))
    method = DASD(DASDConfig(("de",), 24, **parts), backbone(), whole).eval()
    method.start_from(found, folder)
    assert torch.equal(method.token_vectors.embedding.weight, found)
    assert method.encode_captions(captions[:2], "de").isfinite().all()
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-8] + b"another!")
    with pytest.raises(LabError, match="changed or cut short"):
        find_weights("mbert")
