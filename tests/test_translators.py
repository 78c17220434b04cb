"Machine translation: random models of the published kinds, and own corpora with translated captions"

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from dasd_lab.base.contracts import LabError
from dasd_lab.commands.cli import main
from dasd_lab.corpora.by_machine.engines import NLLB, Seq2Seq, open_translator
from dasd_lab.corpora.by_machine.splits import translate_split
from dasd_lab.corpora.by_machine.translators import Translator
from dasd_lab.corpora.catalog import caption_pairs, corpus_named
from dasd_lab.corpora.own.corpus import import_corpus, understand

ENGLISH = [
    "A dog.",
    "A cat sits on the sofa.",
    "Two men talk in the park while a dog runs behind them.",
    "A red car.",
    "Three birds fly over the water near a small old town in the evening sun.",
    "A man.",
]
TEXTS = [*ENGLISH, "Ein Hund läuft im Park.", "Eine Katze sitzt auf dem Sofa.", "狗在公园里跑。"] * 3
SIZES = dict(
    d_model=16,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
)


def enlarged(model):
    "With the default random weights of 0.02 all translations are equal; with larger ones they differ"
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(12)
    return model


def subword_tokens(path: Path, size: int = 90) -> list[str]:
    "Write a SentencePiece model like those of published tokenizers; its tokens"
    spm = pytest.importorskip("sentencepiece", reason="needs pip install 'dasd_lab[translation]'")
    with open(path, "wb") as f:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS), model_writer=f, vocab_size=size, hard_vocab_limit=False, minloglevel=2
        )
    processor = spm.SentencePieceProcessor(str(path))
    tokens = [processor.id_to_piece(i) for i in range(len(processor))]
    return [token for token in tokens if token not in ("<unk>", "<s>", "</s>")]


def with_m2m100(folder: Path, vocabulary: int) -> Path:
    "The architecture of NLLB and of M2M-100, beside a tokenizer"
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(0)
    tokens = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
    config = M2M100Config(vocab_size=vocabulary, max_position_embeddings=96, **tokens, **SIZES)
    enlarged(M2M100ForConditionalGeneration(config)).save_pretrained(folder)
    return folder


def nllb(folder: Path) -> Path:
    "NLLB's tokenizer class and architecture, as save_pretrained writes them"
    from transformers import NllbTokenizer

    base = Tokenizer(models.BPE(unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.Metaspace()
    base.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=180, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False),
    )
    m = json.loads(base.to_str())["model"]
    tokenizer = NllbTokenizer(vocab=m["vocab"], merges=[tuple(o) for o in m["merges"]])
    tokenizer.save_pretrained(folder)
    return with_m2m100(folder, len(tokenizer))


def m2m100(folder: Path) -> Path:
    "M2M-100's own tokenizer: SentencePiece, vocabulary, languages as __de__"
    from transformers import M2M100Tokenizer

    folder.mkdir()
    names = subword_tokens(folder / "sentencepiece.bpe.model")
    (folder / "vocab.json").write_text(
        json.dumps({p: i for i, p in enumerate(["<s>", "<pad>", "</s>", "<unk>", *names])})
    )
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    return with_m2m100(folder, tokenizer.convert_tokens_to_ids("__zu__") + 9)


def marian(folder: Path, targets=()) -> Path:
    "Marian's: two SentencePiece models, one vocabulary; several targets are written before the sentence"
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir()
    names = dict.fromkeys([*targets, *subword_tokens(folder / "source.spm"), *subword_tokens(folder / "target.spm")])
    vocabulary = {p: i for i, p in enumerate(["</s>", "<unk>", *names, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    pad = vocabulary["<pad>"]
    MarianTokenizer(
        *(str(folder / n) for n in ("source.spm", "target.spm", "vocab.json")), source_lang="eng", target_lang="deu"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    enlarged(
        MarianMTModel(
            MarianConfig(
                vocab_size=len(vocabulary),
                max_position_embeddings=96,
                pad_token_id=pad,
                eos_token_id=0,
                forced_eos_token_id=0,
                decoder_start_token_id=pad,
                **SIZES,
            )
        )
    ).save_pretrained(folder)
    return folder


KINDS = dict(nllb=nllb, m2m100=m2m100, marian=marian)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    names = dict(nllb="tiny-nllb", m2m100="tiny-m2m100", marian="opus-mt-en-de")
    return {kind: make(place / names[kind]) for kind, make in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_translations_do_not_depend_on_the_batch(folders, kind):
    "Sorting, padding and the limit of a batch do not change a translation"
    engine = Seq2Seq(folders[kind], beams=3, batch=3)
    assert engine.kind == kind and engine.supports("en", "de") and not engine.supports("en", "en")
    together = engine.translate(ENGLISH, "en", "de")
    alone = [engine.translate([t], "en", "de")[0] for t in ENGLISH]
    assert together == alone and len(set(together)) > 1
    assert engine.translate(ENGLISH[::-1], "en", "de") == together[::-1]
    found = engine.translate(["A dog.", " ".join(["dog"] * 200)], "en", "de")
    assert found == [engine.translate(["A dog."], "en", "de")[0], None], "what is too long is not truncated"


@pytest.mark.parametrize("kind", ["nllb", "m2m100"])
def test_the_target_language_is_the_first_token(folders, kind):
    "And the source language is the first token of the input, in every call"
    engine = Seq2Seq(folders[kind], beams=2)
    write = NLLB.get if kind == "nllb" else "__{}__".format
    for source, target in (("en", "de"), ("de", "zh"), ("en", "fr")):
        calls = []
        generate = engine.model.generate

        def recorded(**options):
            calls.append((options["input_ids"], generate(**options)))
            return calls[-1][1]

        engine.model.generate = recorded
        engine.translate(ENGLISH[:2], source, target)
        engine.model.generate = generate
        for input_ids, output_ids in calls:
            assert (output_ids[:, 1] == engine.tokenizer.convert_tokens_to_ids(write(target))).all()
            assert (input_ids[:, 0] == engine.tokenizer.convert_tokens_to_ids(write(source))).all()
    assert len(engine.languages) > 80
    with pytest.raises(LabError, match="from en to bh"):
        engine.translate(["a"], "en", "bh")


def test_pickled_weights_are_loaded_without_executing_code(folders, tmp_path):
    "Older repositories have pytorch_model.bin: tensors are loaded, code is not executed"
    from safetensors.torch import load_file

    folder = shutil.copytree(folders["nllb"], tmp_path / "pickled")
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    expected = Seq2Seq(folders["nllb"], beams=1).translate(ENGLISH, "en", "de")
    assert Seq2Seq(folder, beams=1).translate(ENGLISH, "en", "de") == expected

    class Program:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    torch.save(dict(state, program=Program()), folder / "pytorch_model.bin")
    with pytest.raises(LabError, match="cannot be used"):
        Seq2Seq(folder)
    assert not (tmp_path / "was-run").exists()


def test_errors_say_how_to_get_a_model(tmp_path, folders, monkeypatch):
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path))
    with pytest.raises(LabError, match="hf download facebook/nllb-200-distilled-600M"):
        open_translator("nllb", "de")
    folder = shutil.copytree(folders["nllb"], tmp_path / "nllb-200-distilled-600M")
    assert open_translator("nllb", "de").folder == folder
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(LabError, match="cannot be used"):
        open_translator("nllb", "de")
    (folder / "model.safetensors").unlink()
    with pytest.raises(LabError, match="without weights"):
        open_translator("nllb", "de")
    with pytest.raises(LabError, match="float33"):
        Seq2Seq(folders["nllb"], dtype="float33")


def small_corpus(folder):
    "Four images with two captions each"
    (folder / "train").mkdir(parents=True)
    rows = []
    for i in range(4):
        Image.new("RGB", (16, 16), (i * 50,) * 3).save(folder / "train" / f"p{i}.png")
        rows += [dict(text=f"caption {k} of {i}.", language="en", visual_id=f"p{i}") for k in range(2)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class OneMissing(Translator):
    name = "slow"
    languages = ("de",)

    def translate(self, texts, source, target):
        return [None if t == "caption 0 of 1." else f"deutsch: {t}" for t in texts]


@pytest.mark.parametrize("form", ["folder", "imported"])
def test_an_own_corpus_with_machine_translations(tmp_path, form, capsys):
    "The lines are stored with the corpus, a missing one shifts no pair, and lines of other captions are rejected"
    source = small_corpus(tmp_path / "made")
    place = source if form == "folder" else import_corpus(understand(source), tmp_path / "imported")
    corpus = corpus_named(str(place))
    split = corpus.splits[0]
    _, path = translate_split(corpus, split, OneMissing(), "de", spec=None)
    corpus = corpus_named(str(place))
    assert corpus.languages == ("en", "de") and len(corpus.captions(split, "de", "mt")) == 7
    pairs = caption_pairs(corpus, split, "de")
    assert len(pairs) == 7
    assert all(b == f"deutsch: {a}" for a, b in zip(pairs.source, pairs.target))
    assert main(["corpus", "info", str(place), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert any((row["language"], row["origin"], row["captions"]) == ("de", "mt", 7) for row in rows)
    path.with_suffix(".json").write_text(json.dumps(dict(source="de", source_checksum="other")))
    with pytest.raises(LabError, match="other captions"):
        corpus_named(str(place)).captions(split, "de")
    with pytest.raises(LabError, match="from 'en', or into it"):
        translate_split(corpus, split, OneMissing(), "fr", source="de")
