"The corpus flickr8k: its fields, pairs and splits, a made-up one in training, and the real one where it is"

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from squares import COLOURS, SOURCE, TINY, WORDS

from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import caption_pairs, corpus_named, load_corpus
from dasd_lab.corpora.leaks import find_leaks, refuse_shared_pictures, shared_pictures
from dasd_lab.corpora.published.flickr8k import EVALUATION, TRAINING

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("DASD_LAB_SHARED") or ROOT.parent / "shared") / "data"
REAL = SHARED / "flickr8k"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data/flickr8k, nor below DASD_LAB_SHARED")
both = pytest.mark.skipif(
    not (REAL.is_dir() and (SHARED / "multi30k").is_dir()),
    reason="no ../shared/data/flickr8k and multi30k, nor below DASD_LAB_SHARED",
)
LANGUAGES = ("en", "ar", "cs", "de", "es", "fr", "uk", "zh")

BOTH = TINY | dict(training_captions=["mt", "human"])


# A corpus of squares in the joined layout, and Multi30K on some of the same photographs

FIELDS = dict(
    en=dict(language="en", origin="human", source="made up"),
    de=dict(language="de", origin="human", source="made up"),
    m30k_en=dict(language="en", origin="human", source="made up"),
    m30k_de=dict(language="de", origin="human", source="made up"),
    fr_mt=dict(language="fr", origin="mt", source="made up", translates="en", engine="an engine"),
)
SQUARES = [(en, de, fr, rgb) for en, (de, fr, rgb) in COLOURS.items()] * 12


def joined_corpus(home: Path) -> None:
    "Captions and pictures of squares: 32 for training, 8 for validation, 8 for the test"
    (home / "pictures").mkdir(parents=True)
    with open(home / "captions.jsonl", "w", encoding="utf-8") as f:
        for i, (en, de, fr, rgb) in enumerate(SQUARES):
            name = f"{10_000 + i}_ab{i}.jpg"
            row = dict(picture=name, split="train" if i < 32 else "dev" if i < 40 else "test")
            row |= dict(en=[WORDS["en"].format(en), f"one {en} square ."], de=[f"{de} Fläche"])
            row |= dict(m30k_en=[f"A {en} square."], m30k_de=[WORDS["de"].format(en, de)])
            row |= dict(fr_mt=[WORDS["fr"].format(en, de, fr), ""])
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
            Image.new("RGB", (20, 16), rgb).save(home / "pictures" / name)
    (home / "fields.json").write_text(json.dumps(FIELDS), encoding="utf-8")


def multi30k_corpus(home: Path, numbers: range) -> None:
    "Captions of photographs of these numbers, without pictures"
    for folder in ("image_splits", "raw"):
        (home / "task1" / folder).mkdir(parents=True)
    rows = [SQUARES[i % len(SQUARES)] for i in numbers]
    english = "".join(f"{WORDS['en'].format(en)} {i}\n" for i, (en, *_) in zip(numbers, rows))
    german = "".join(WORDS["de"].format(en, de) + f" {i}\n" for i, (en, de, *_) in zip(numbers, rows))
    names = "".join(f"{10_000 + i}.jpg\n" for i in numbers)
    (home / "task1/image_splits/train.txt").write_text(names)
    (home / "task1/raw/train.en").write_text(english, encoding="utf-8")
    (home / "task1/raw/train.de").write_text(german, encoding="utf-8")


@pytest.fixture
def data(tmp_path, monkeypatch):
    "A data root with both"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    for name in ("FLICKR8K", "MULTI30K"):
        monkeypatch.delenv(f"DASD_LAB_{name}", raising=False)
    joined_corpus(tmp_path / "flickr8k")
    multi30k_corpus(tmp_path / "multi30k", range(44, 92))
    return tmp_path


@pytest.fixture
def backbone(data):
    from dasd_lab.training.source_model import train_source

    return train_source(SOURCE, load_corpus("flickr8k"), progress=False)


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"de": {"language": "de", "origin": "people", "source": ""}}', "origin 'people'"),
        ('{"de": {"origin": "mt"}}', "cannot be used"),
    ],
)
def test_a_wrong_description_of_the_fields(data, content, message):
    (data / "flickr8k/fields.json").write_text(content)
    with pytest.raises(LabError, match=message):
        load_corpus("flickr8k").captions("train", "de")


def test_training_on_test_pictures_is_refused(data, backbone, tmp_path, monkeypatch, capsys):
    "Four of the eight test pictures are in the other corpus' training split"
    from dasd_lab.evaluation.retrieval import evaluate
    from dasd_lab.training.recipes import train

    phase = dict(name="English", reading="sentences", trains=["text"], steps=2, batch_size=8, learning_rate=1e-3)
    tuned = BOTH | dict(
        corpus="multi30k:text_only=true",
        source_model=None,
        backbone=dict(folder="none"),
        finetuning=dict(corpus="flickr8k", phases=[phase]),
    )
    with pytest.raises(LabError, match="flickr8k, test: 4 of 8 pictures .*multi30k:without=flickr8k"):
        train(tuned, backbone=backbone, progress=False)
    run = train(BOTH, "multi30k:text_only=true", backbone=backbone, out=tmp_path / "run", progress=False)
    with pytest.raises(LabError, match="4 of 8 pictures are in the training split of multi30k:text_only=true"):
        evaluate(run.method, load_corpus("flickr8k"), "test")
    monkeypatch.setattr(backbone, "training_corpora", ("multi30k:text_only=true",))
    with pytest.raises(LabError, match="flickr8k, test: 4 of 8 pictures"):
        train(BOTH, "flickr8k", backbone=backbone, progress=False)
    assert main(["evaluate", str(tmp_path / "run"), "--corpus", "flickr8k"]) != 0
    assert "4 of 8 pictures are in the training split" in capsys.readouterr().err


def test_transfer_from_text_of_other_pictures(data, backbone, tmp_path, monkeypatch):
    from dasd_lab.evaluation.retrieval import evaluate
    from dasd_lab.runs.loading import load_run
    from dasd_lab.training.recipes import train

    name = "multi30k:without=flickr8k,text_only=true"
    corpus = corpus_named(name)
    assert corpus.address == name and len(corpus.ids("train")) == 44
    assert not {corpus.published_id(v) for v in corpus.ids("train")} & load_corpus("flickr8k").photographs()
    assert corpus.faults == [] and corpus.missing("train", kind="visuals") == []
    assert corpus.mt_folder == data / "multi30k/mt/without_flickr8k"
    run = train(BOTH, name, backbone=backbone, out=tmp_path / "run", progress=False)
    # without images there is no cross-modal stage
    assert list(run.card["stages"]) == ["cross_lingual_alignment"] and run.card["text_only"]
    assert set(evaluate(load_run(tmp_path / "run"), load_corpus("flickr8k"), "test").rows) == {"de"}
    assert load_preset("dasd.photographs_transfer")["corpus"] == name
    shutil.rmtree(data / "flickr8k")
    with pytest.raises(LabError, match="flickr8k, train, in 'en'"):
        corpus_named(name).ids("train")


# The real corpus


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("flickr8k", root=REAL)


@pytest.fixture(scope="module")
def rows():
    "An independent reading"
    lines = (REAL / "captions.jsonl").read_bytes().decode().split("\n")
    return {row["picture"].removesuffix(".jpg"): row for row in map(json.loads, filter(None, lines))}


@real
def test_splits_and_counts(corpus, rows):
    assert corpus.languages == LANGUAGES
    for split, named, n in (("train", "train", 6_000), ("validation", "dev", 1_000), ("test", "test", 1_000)):
        assert corpus.ids(split) == [name for name, row in rows.items() if row["split"] == named]
        assert len(corpus.ids(split)) == n
    assert len(rows) - sum(len(corpus.ids(s)) for s in corpus.splits) == 91 and len(corpus.photographs()) == 8_091
    stated = json.loads((REAL / "fields.json").read_text(encoding="utf-8"))
    table = {row["field"]: row for row in corpus.field_table()}
    assert list(table) == list(stated)
    for name, about in stated.items():
        for key in ("language", "origin", "source", "pictures", "captions"):
            assert table[name][key] == about[key]
        in_splits = sum(len(corpus.field_captions(s, name)) for s in corpus.splits)
        assert in_splits == sum(len(row.get(name) or ()) for row in rows.values() if row["split"])


@real
@pytest.mark.parametrize("language", LANGUAGES)
def test_defaults(corpus, language):
    assert [f.name for f in corpus.chosen("train", language)] == [TRAINING[language]]
    assert [f.name for f in corpus.chosen("test", language)] == [EVALUATION[language]]
    pairs = caption_pairs(corpus, "train", language)
    known = set(corpus.source_texts("train", "en"))
    assert set(pairs.source) <= known
    assert len(pairs) == (30_000 if language in ("en", "zh") else 5_528)
    assert Counter(np.diff(pairs.visual_index) >= 0)[False] == 0  # in the order of the pictures


@real
def test_the_published_reader_has_the_same_captions(corpus, tmp_path):
    "Flickr8k-CN's own files, for the fields that they have"
    published = load_corpus("flickr8k_cn", root=REAL / "as_published", translator="google")
    for split in corpus.splits:
        assert set(published.ids(split)) == set(corpus.ids(split))
        for language, field in (("en", "en"), ("zh", "zh")):
            theirs = Counter((c.visual_id, c.text) for c in published.captions(split, language, "human"))
            ours = Counter((c.visual_id, c.text) for c in corpus.field_captions(split, field))
            assert sum((ours - theirs).values()) <= 0.001 * sum(ours.values())


@both
def test_leaks_between_flickr8k_and_multi30k(corpus):
    other = load_corpus("multi30k", root=SHARED / "multi30k")
    assert len(shared_pictures(other, corpus)) == 871
    assert len(find_leaks(other, corpus, pictures=False)) == 871
    with pytest.raises(LabError, match="871 of 1,000 pictures .*multi30k:without=flickr8k"):
        refuse_shared_pictures(other, corpus)
    with pytest.raises(LabError, match="multi30k, test: 173 of 1,000 pictures .*flickr8k:without=multi30k"):
        refuse_shared_pictures(corpus, other)
    refuse_shared_pictures(corpus, load_corpus("flickr8k_cn", root=REAL / "as_published"))
