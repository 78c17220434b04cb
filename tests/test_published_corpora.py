"Corpora as their owners publish them: one loading test each, with what files have in store; real files where they are at hand"

import gzip
import json
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from squares import COLOURS, SOURCE, TINY, WORDS

from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import caption_pairs, load_corpus, multilingual_batches
from dasd_lab.corpora.published.cards import card, corpus_table, published_corpora, what_to_get
from dasd_lab.corpora.published.leaks import find_leaks

ROOT = Path(__file__).resolve().parents[1]
REAL = Path(os.environ.get("DASD_LAB_SHARED") or ROOT.parent / "shared") / "data/multi30k"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no ../shared/data/multi30k, nor below DASD_LAB_SHARED")
BOM = b"\xef\xbb\xbf"
NFD = unicodedata.normalize("NFD", "Zwei Mädchen im Café.")


def coco_name(part, i):
    return f"COCO_{part}2014_{i:012d}"


def write(path, text, encoding="utf-8", windows=False, mark=False, packed=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.replace("\n", "\r\n" if windows else "\n").encode(encoding)
    path.write_bytes(gzip.compress((BOM if mark else b"") + data) if packed else (BOM if mark else b"") + data)


def picture(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8), colour).save(path)


def texts(corpus, split, language, origin="human"):
    return [(c.visual_id, c.text) for c in corpus.captions(split, language, origin)]


# Each corpus as published, in small


@real
def test_multi30k_is_what_its_repository_says():
    corpus = load_corpus("multi30k", root=REAL)
    found = corpus.report(pictures=False)
    assert found.ok and not found.faults and corpus.languages == ("en", "cs", "de", "fr") and len(found.counts) == 18
    # an independent reading: bytes, newlines, nothing else
    for split, file in (("train", "train"), ("test", "test_2016_flickr"), ("test_2017_mscoco", "test_2017_mscoco")):
        names = (REAL / f"task1/image_splits/{file}.txt").read_bytes().decode().split("\n")[:-1]
        for language in corpus.languages:
            path = REAL / f"task1/raw/{file}.{language}.gz"
            if not path.is_file():
                continue
            lines = gzip.open(path).read().decode().split("\n")[:-1]
            assert texts(corpus, split, language) == [
                (n.split(".jpg")[0], " ".join(unicodedata.normalize("NFC", l).replace("\u200b", "").split()))
                for n, l in zip(names, lines, strict=True)
            ]
    assert not {v for s in ("train", "validation") for v in corpus.ids(s)} & set(corpus.ids("test"))


@real
def test_the_two_tasks_of_multi30k_are_different_corpora():
    a, b = (load_corpus(n, root=REAL) for n in ("multi30k", "multi30k_independent"))
    assert (
        a.ids("test") == b.ids("test")
        and b.languages == ("en", "de")
        and len(b.captions("test", "de")) == 5_000 == 5 * len(a.captions("test", "de"))
    )
    # English is shared, German is not
    assert set(texts(a, "test", "en")) <= set(texts(b, "test", "en")) and not set(texts(a, "test", "de")) <= set(
        texts(b, "test", "de")
    )
    lines = [gzip.open(REAL / f"task2/raw/test_2016.{i}.de.gz").read().decode().split("\n")[7] for i in range(1, 6)]
    assert [t for v, t in texts(b, "test", "de") if v == b.ids("test")[7]] == [" ".join(l.split()) for l in lines]
    assert b.report(pictures=False).ok and a.mt_folder != b.mt_folder


def test_multi30k_unpacked_in_a_clone(tmp_path):
    raw = tmp_path / "dataset" / "task1"
    write(
        raw / "image_splits/train.txt", "1000092795.jpg\n10002456.jpg\n1000268201.jpg\n1000344755.jpg\n", windows=True
    )
    write(
        raw / "raw/train.en",
        'Two "young"\tmales.\nMen\u2028on a crane.\n\nA girl\x0bin a café.\n',
        windows=True,
        mark=True,
    )
    write(raw / "raw/train.de.gz", f"Zwei „junge“ Männer.\nMänner.\nEin Kind.\n{NFD}\n", packed=True)
    picture(tmp_path / "flickr30k-images/10002456.jpg")
    corpus = load_corpus("multi30k", root=tmp_path)
    assert texts(corpus, "train", "en") == [
        ("1000092795", 'Two "young" males.'),
        ("10002456", "Men on a crane."),
        ("1000344755", "A girl in a café."),
    ]
    assert (
        texts(corpus, "train", "de")[-1] == ("1000344755", "Zwei Mädchen im Café.")
        and len(caption_pairs(corpus, "train", "de")) == 3
    )
    found = corpus.report()
    assert (
        [(f.file, f.line) for f in found.faults] == [("train.en", 3)]
        and not found.ok
        and found.visuals[0]["missing"] == 3
    )
    assert corpus.visuals("train")[1].frames.shape == (1, 8, 12, 3)
    with pytest.raises(LabError, match="without 1000092795 in .*flickr30k-images"):
        corpus.visuals("train")[0]
    with pytest.raises(LabError, match="task1/image_splits/test_2016_flickr.txt"):
        corpus.captions("test", "en")
    write(raw / "raw/train.fr", "Deux hommes.\n")
    with pytest.raises(LabError, match="1 captions for 4 pictures"):
        load_corpus("multi30k", root=tmp_path).captions("train", "fr")


def test_flickr8k_cn(tmp_path):
    for s, n in (("train", "1_aa"), ("val", "2_bb"), ("test", "3_cc")):
        write(tmp_path / f"data/flickr8k{s}.txt", n + "\n", windows=True)
    write(
        tmp_path / "data/flickr8kenc.caption.txt",
        "".join(f'{n}.jpg#enc#{i} A "dog"\t{i} .\n' for n in ("1_aa", "3_cc") for i in range(5))
        + "3_cc.jpg.1#0 Nobody.\n",
        mark=True,
    )
    write(
        tmp_path / "data/flickr8kzhc.caption.txt",
        "3_cc.jpg#zhc#0 一只狗。\n1_aa.jpg#zhc#0 \n3_cc.jpg#zhc#1 一只狗。\n",
        windows=True,
    )
    corpus = load_corpus("flickr8k_cn", root=tmp_path)
    assert (
        len(corpus.captions("test", "en")) == 5
        and texts(corpus, "test", "zh") == [("3_cc", "一只狗。")] * 2
        and texts(corpus, "test", "en")[0] == ("3_cc", 'A "dog" 0 .')
    )
    assert "says of '3_cc' again what was said" in [f.what for f in corpus.report().faults]


@pytest.fixture
def coco(tmp_path):
    "Karpathy's file with five captions a picture, STAIR's with two"
    images = [
        ("train", "train", 1),
        ("train", "train", 2),
        ("restval", "val", 3),
        ("val", "val", 4),
        ("test", "val", 5),
        ("test", "val", 6),
    ]
    write(
        tmp_path / "dataset_coco.json",
        json.dumps(
            dict(
                images=[
                    dict(
                        filepath=f"{p}2014",
                        filename=coco_name(p, i) + ".jpg",
                        cocoid=i,
                        split=s,
                        sentences=[dict(raw=f'A "dog"\t{i}\nof {k}.') for k in range(5)],
                    )
                    for s, p, i in images
                ]
            )
        ),
    )
    for part, ids in (("train", (1, 2)), ("val", (3, 4, 5, 6))):
        write(
            tmp_path / f"stair_captions_v1.2_{part}.json",
            json.dumps(
                dict(
                    images=[dict(id=i, file_name=coco_name(part, i) + ".jpg") for i in (*ids, ids[0])],
                    annotations=[
                        dict(id=10 * i + k, image_id=i, caption=f"犬{i}" if k else "か\u3099")
                        for i in ids
                        for k in (1, 0)
                    ]
                    + [
                        dict(id=11, image_id=ids[0], caption="二度"),
                        dict(id=12, image_id=999, caption="無い"),
                        dict(id=13, image_id=ids[0], caption=None),
                    ],
                )
            ),
            mark=True,
        )
    return tmp_path


def test_mscoco(coco):
    corpus = load_corpus("mscoco", root=coco)
    assert {s: len(corpus.captions(s, "en")) for s in ("train", "validation", "test")} == dict(
        train=15, validation=5, test=10
    ) and corpus.captions("train", "en")[0].text == 'A "dog" 1 of 0.'
    assert texts(corpus, "test", "jp") == [
        (coco_name("val", 5), "犬5"),
        (coco_name("val", 5), "が"),
        (coco_name("val", 6), "犬6"),
        (coco_name("val", 6), "が"),
    ]
    assert len(load_corpus("mscoco", root=coco, restval=False).captions("train", "en")) == 10
    told = [f.what for f in corpus.report().faults]
    assert (
        any("second annotation with the id 11" in t for t in told)
        and any("image 999" in t for t in told)
        and any("NoneType" in t for t in told)
    )


def test_mscoco_with_yj_captions(coco):
    write(
        coco / "yjcaptions26k_clean.json",
        json.dumps(
            dict(
                images=[dict(id=2, flickr_url="…")],
                annotations=[dict(id=1, image_id=2, caption=" 犬。 "), dict(id=2, image_id=2, caption="")],
            )
        ),
    )
    corpus = load_corpus("mscoco", root=coco, japanese="yj")
    assert texts(corpus, "train", "ja") == [(coco_name("train", 2), "犬。")] and [f.what for f in corpus.faults] == [
        "an empty caption, left out"
    ]


def test_coco_cn(coco):
    for split, names in (
        ("train", [coco_name("train", 1)]),
        ("val", [coco_name("val", 3)]),
        ("test", [coco_name("train", 2), coco_name("val", 5)]),
    ):
        write(coco / f"coco-cn-version1805v1.1/coco-cn_{split}.txt", "\n".join(names) + "\n", windows=True)
    write(
        coco / "coco-cn-version1805v1.1/imageid.human-written-caption.txt",
        f"{coco_name('val', 5)}#0\t一只\t“狗”\n{coco_name('train', 2)}#0 两只狗\n{coco_name('val', 99)}#0\t别处\n\nno number\n",
        mark=True,
    )
    corpus = load_corpus("coco_cn", root=coco)
    assert (
        texts(corpus, "test", "cn") == [(coco_name("train", 2), "两只狗"), (coco_name("val", 5), "一只 “狗”")]
        and len(corpus.captions("test", "en")) == 10
        and [f.line for f in corpus.faults] == [5]
    )
    # its split is not Karpathy's
    assert find_leaks(load_corpus("mscoco", root=coco), corpus).evaluation_ids == {coco_name("train", 2)}


def test_xtd10(coco):
    clone = coco / "Cross-lingual-Test-Dataset-XTD10"
    write(clone / "XTD10/test_image_names.txt", f"{coco_name('train', 1)}.jpg\n{coco_name('val', 6)}.jpg\n")
    write(clone / "MIC/test_1kcaptions_en.txt", "One dog.\nTwo dogs.\n")
    write(clone / "STAIR/test_1kcaptions_jp.txt", "犬\n二匹\n", windows=True)
    write(clone / "XTD10/test_1kcaptions_tr.txt", "Bir köpek.\n\n")
    corpus = load_corpus("xtd10", root=coco)
    assert (
        corpus.languages == ("en", "ja", "tr")
        and texts(corpus, "test", "ja")[1] == (coco_name("val", 6), "二匹")
        and texts(corpus, "test", "tr") == [(coco_name("train", 1), "Bir köpek.")]
    )
    leaks = find_leaks(load_corpus("mscoco", root=coco), corpus)
    assert (leaks.train_ids, leaks.n_evaluation, leaks.looked_at) == (
        {coco_name("train", 1)},
        2,
        (0, 0),
    ) and "1 of 2" in str(leaks)


def test_cc3m(tmp_path):
    write(
        tmp_path / "Train_GCC-training.tsv",
        'a "quoted\tcaption\thttp://a/1\n\thttp://a/2\nwithout address\na dog\thttp://a/4\n',
        windows=True,
    )
    picture(tmp_path / "images/train/00000/000000003.jpg")
    corpus = load_corpus("cc3m", root=tmp_path)
    assert texts(corpus, "train", "en") == [("train/000000000", 'a "quoted caption'), ("train/000000003", "a dog")]
    assert texts(load_corpus("cc3m", root=tmp_path, downloaded=True), "train", "en") == [
        ("train/000000003", "a dog")
    ] and {(f.line, f.what) for f in corpus.faults} == {
        (2, "an empty caption, left out"),
        (3, "1 of 2 fields, left out"),
    }


def test_cc300k(tmp_path):
    home = tmp_path / "ConceptualCaption"
    write(home / "cc300k.json", '["b.jpg","a.jpg","b.jpg"]')
    for l, told in (
        ("en", {"a.jpg": ["a dog"], "b.jpg": ["a cat"], "c.jpg": ["a bird"]}),
        ("zh", {"a.jpg": ["一只狗"], "b.jpg": [" "], "c.jpg": ["一只鸟"]}),
        ("de", {"b.jpg": [unicodedata.normalize("NFD", "Kätzchen")]}),
    ):
        write(
            home / f"annotation/uc2_6langs/jsons/ref_captions_{l}.json", json.dumps(told, ensure_ascii=False), mark=True
        )
    corpus = load_corpus("cc300k", root=tmp_path)
    assert (
        corpus.languages == ("en", "de", "zh")
        and texts(corpus, "train", "de", "mt") == [("b", "Kätzchen")]
        and texts(corpus, "train", "en") == [("b", "a cat"), ("a", "a dog")]
    )
    pairs = caption_pairs(corpus, "train", "zh")
    assert (pairs.source, pairs.target, pairs.visual_index.tolist()) == (["a dog"], ["一只狗"], [1])
    with pytest.raises(LabError, match="ref_captions_fr.json"):
        corpus.captions("train", "fr")


def test_crossmodal3600(tmp_path):
    def row(key):
        return json.dumps(
            {"image/key": key, "image/locale": "quz"}
            | {
                l: {"caption": c}
                for l, c in dict(
                    en=["A dog.", 'A "dog"\tagain.'], quz=["Allqu."], fil=["Aso.", ""], no=["En hund."]
                ).items()
            },
            ensure_ascii=False,
        )

    write(
        tmp_path / "captions.jsonl", "\n".join([row("0001"), row("0002"), row("0001")]) + "\n", windows=True, mark=True
    )
    picture(tmp_path / "images/0002.jpg")
    corpus = load_corpus("crossmodal3600", root=tmp_path)
    assert (
        len(corpus.captions("test", "en")) == 4
        and texts(corpus, "test", "tl") == [("0001", "Aso."), ("0002", "Aso.")]
        and corpus.captions("test", "quz")[0].language == "qu"
        and corpus.visuals("test")[1].frames.shape[0] == 1
    )
    assert len(load_corpus("crossmodal3600", root=tmp_path, captions="first").captions("test", "en")) == 2 and any(
        "second time" in f.what for f in corpus.report().faults
    )


# What holds for all of them


@pytest.mark.parametrize("name", sorted(published_corpora()))
def test_on_a_machine_that_has_nothing(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    corpus = load_corpus(name)
    first = next(iter(corpus.published))
    assert (
        corpus.splits == corpus.languages == ()
        and len(corpus.missing()) == len(corpus.wanted)
        and str(corpus).endswith(f"nothing in {corpus.root}")
    )
    told = card(corpus)
    assert (
        corpus.licence in told
        and all(w.place in told and w.how in told for w in corpus.wanted)
        and told.count("[missing]") == len(corpus.wanted)
    )
    for ask in (
        lambda: corpus.captions(first, corpus.source),
        lambda: corpus.visuals(first),
        lambda: corpus.captions(first, corpus.source, "human"),
        corpus.report,
    ):
        with pytest.raises(LabError, match="It belongs in") as e:
            ask()
        assert str(corpus.root) in e.value.next_step and e.value.expected
    assert all(
        w.place in " ".join(what_to_get(corpus, first))
        for w in corpus.missing(first, corpus.source)
        if w.kind == "captions"
    )
    assert {r["corpus"] for r in corpus_table()} >= {name, "pictograms", "stamps"} and not any(tmp_path.iterdir())


def test_machine_translations_stand_in_one_place(coco):
    corpus = load_corpus("mscoco", root=coco)
    source = corpus.captions("train", "en", "human")
    write(
        coco / "mt/train.zh.txt.gz",
        "".join("\n" if i == 1 else f"第{i}句\n" for i in range(len(source))),
        windows=True,
        packed=True,
    )
    corpus = load_corpus("mscoco", root=coco)
    pairs = caption_pairs(corpus, "train", "zh")
    assert (
        corpus.languages == ("en", "ja", "zh")
        and len(pairs) == len(source) - 1
        and [(s, t) for s, t in zip(pairs.source, pairs.target)]
        == [(c.text, f"第{i}句") for i, c in enumerate(source) if i != 1]
    )
    batch = next(multilingual_batches(corpus, "train", ["zh", "ja"], 3, np.random.default_rng(0)))
    assert sorted(batch["visual_index"]) == [0, 1, 2] and all(t.startswith("第") for t in batch["zh"])
    with pytest.raises(LabError, match="mscoco, train, in 'zh'"):
        corpus.captions("train", "zh", "human")
    with pytest.raises(LabError, match="mt/test.zh.txt"):
        corpus.captions("test", "zh")
    write(coco / "mt/train.zh.txt.gz", "一\n", packed=True)
    with pytest.raises(LabError, match="with 1 lines. Expected 15"):
        load_corpus("mscoco", root=coco).captions("train", "zh")


def test_faults_never_stop_the_reading(tmp_path):
    raw = tmp_path / "task1"
    write(raw / "image_splits/train.txt", "a.jpg\n\na.jpg\nc.jpg\n")
    (raw / "raw").mkdir()
    (raw / "raw/train.en").write_bytes(b"Gr\xfc\xdfe\nnameless\nagain\n\xe2\x80\x8b\n")
    corpus = load_corpus("multi30k", root=tmp_path)
    assert texts(corpus, "train", "en") == [("a", "Gr��e"), ("a", "again")] and corpus.ids("train") == ["a", "c"]
    assert sorted((f.line, f.what.split(",")[0]) for f in corpus.report().faults) == [
        (1, "letters that are not UTF-8"),
        (2, "no picture is named; left out"),
        (4, "an empty caption"),
    ]


@pytest.mark.parametrize(
    "path, content, told",
    [
        ("task1/raw/train.en.gz", b"no gzip", "cannot be unpacked"),
        ("task1/raw/train.en", "a\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, path, content, told):
    write(tmp_path / "task1/image_splits/train.txt", "a.jpg\n")
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_bytes(content)
    with pytest.raises(LabError, match=told):
        load_corpus("multi30k", root=tmp_path).captions("train", "en")


# Used by the rest of the lab


@pytest.fixture
def squares(tmp_path, monkeypatch):
    "Multi30K in its published form, told of plain squares: people's German to test on, machine translations with a hole to train on"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    home = tmp_path / "multi30k"
    told = [*COLOURS.items()] * 12
    for part, file in (("train", "train"), ("test", "test_2016_flickr")):
        ids = [f"{10000 + i + 1000 * (part == 'test')}" for i in range(len(told))]
        write(home / f"task1/image_splits/{file}.txt", "".join(f"{i}.jpg\n" for i in ids))
        write(
            home / f"task1/raw/{file}.en", "".join(WORDS["en"].format(en) + f" {i}\n" for i, (en, _) in enumerate(told))
        )
        write(home / f"task1/raw/{file}.de", "".join(WORDS["de"].format(en, de) + "\n" for en, (de, *_) in told))
        for i, (_, (*_, rgb)) in zip(ids, told):
            picture(home / f"flickr30k-images/{i}.jpg", rgb)
    write(
        home / "mt/train.de.txt",
        "".join("\n" if i == 5 else WORDS["de"].format(en, de) + "\n" for i, (en, (de, *_)) in enumerate(told)),
    )
    return home


def test_a_preset_finds_its_corpus_and_trains(squares):
    "By its name through the catalogue; machine translations are what is trained on, and their hole is left out"
    from dasd_lab.evaluation.retrieval import evaluate
    from dasd_lab.training.plan import corpus_need
    from dasd_lab.training.recipes import train
    from dasd_lab.training.source_model import train_source

    corpus = load_corpus("multi30k")
    need = corpus_need("multi30k", ["de"], "all")
    assert need.found and "de 48 human, de 47 mt" in need.detail and need.next_step == ""
    backbone = train_source(SOURCE, corpus, progress=False)
    run = train(TINY | dict(corpus="multi30k"), backbone=backbone, progress=False)
    assert run.card["corpus"] == "multi30k" and run.card["corpus_checksum"] == corpus.checksum
    assert set(evaluate(run.method, corpus, "test").rows) == {"de"}
    (squares / "mt/train.de.txt").unlink()
    need = corpus_need("multi30k", ["de"], "all")
    assert need.found and "No machine translations into de" in need.next_step
    for p in (squares / "flickr30k-images").iterdir():
        p.unlink()
    (squares / "flickr30k-images").rmdir()
    need = corpus_need("multi30k", ["de"], "all")
    assert not need.found and "flickr30k-images" in need.next_step


def test_several_captions_a_picture_are_all_scored(coco):
    "Recall by hand: captions are vectors by their picture's number, some of them of the wrong one"
    from dasd_lab.contracts import RetrievalMethod
    from dasd_lab.evaluation.retrieval import evaluate

    class Numbers(RetrievalMethod):
        name = "numbers"
        languages = ("ja",)

        def encode_captions(self, captions, language):
            return torch.eye(3)[[{"犬5": 0, "犬6": 1}.get(c, 2) for c in captions]]

        def encode_visuals(self, visuals):
            return dict(features=visuals["image_features"])

        def score(self, text, visuals):
            return text @ visuals["features"].T

    features = torch.tensor([[1.0, 0, 0.5], [0, 1.0, 0.2]])
    corpus = load_corpus("mscoco", root=coco)  # が is nearer to the first picture
    found = evaluate(Numbers(), corpus, "test", image_features=features)
    assert found.about["n_captions"] == {"ja": 4} and found.about["n_visuals"] == 2
    assert found.rows["ja"]["text_to_image_R@1"] == 3 / 4 and found.rows["ja"]["image_to_text_R@1"] == 1.0


@pytest.mark.parametrize(
    "preset, files",
    [
        ("dasd.multi30k_finetune_paper", ["task1/raw/train.en", "flickr30k-images", "mt/train.de.txt"]),
        ("dasd.mscoco_finetune_paper", ["dataset_coco.json", "mt/train.zh.txt", "val2014"]),
        ("dasd.cc300k_zero_shot_paper", ["cc300k.json", "ref_captions_cs.json", "images"]),
        ("dasd.multi30k_finetune_cc300k_paper", ["cc300k.json", "task1/raw/train.en"]),
    ],
)
def test_a_dry_run_names_the_files(preset, files, tmp_path, monkeypatch):
    from dasd_lab.training.plan import plan

    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    told = str(plan(preset, measure=False))
    assert all(f in told for f in files) and "[missing] corpus" in told and str(tmp_path) in told


def test_in_the_shell(squares, capsys, monkeypatch):
    from dasd_lab.cli import main

    assert main(["corpus", "info"]) == 0
    told = capsys.readouterr().out
    assert (
        "mscoco" in told and "captions and pictures: train, test; en de" in told and "licence" in told.splitlines()[0]
    )
    assert main(["corpus", "info", "multi30k"]) == 0
    told = capsys.readouterr().out
    assert "[here] `task1/raw/train.en`" in told and "[missing] `task1/raw/train.fr`" in told
    assert main(["corpus", "info", "xtd10", "--json"]) == 0
    assert not any(r["here"] for r in json.loads(capsys.readouterr().out)["rows"])
    assert main(["corpus", "check", "multi30k"]) == 0
    assert "train: 48, published 29,000 visuals" in capsys.readouterr().out
    assert main(["corpus", "check", "multi30k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_published"] is False
    assert main(["corpus", "check", "mscoco"]) == 1
    assert "dataset_coco.json" in capsys.readouterr().err
    assert main(["corpus", "check", "no such file"]) == 1
    assert "--language" in capsys.readouterr().err
