"Corpora in their published files: a loading test each with typical irregularities, and the real files if present"

import gzip
import json
import unicodedata

import pytest
import torch
from PIL import Image
from squares import COLOURS, WORDS

from dasd_lab.base.contracts import LabError, RetrievalMethod
from dasd_lab.base.presets import load_preset
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import caption_pairs, corpus_named, load_corpus
from dasd_lab.corpora.leaks import refuse_trained_test_pictures
from dasd_lab.corpora.published.cards import card, corpus_table, published_corpora
from dasd_lab.evaluation.retrieval import evaluate

BOM = b"\xef\xbb\xbf"
NFD = unicodedata.normalize("NFD", "Zwei Mädchen im Café.")


def coco_name(part, i):
    return f"COCO_{part}2014_{i:012d}"


def write(path, text, windows=False, mark=False, packed=False):
    "A text file: with Windows line ends, a byte order mark, or gzip-compressed"
    path.parent.mkdir(parents=True, exist_ok=True)
    if windows:
        text = text.replace("\n", "\r\n")
    data = text.encode()
    if mark:
        data = BOM + data
    path.write_bytes(gzip.compress(data) if packed else data)


def picture(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8), colour).save(path)


def texts(corpus, split, language, origin="human"):
    return [(c.visual_id, c.text) for c in corpus.captions(split, language, origin)]


# Each corpus as published, in small


def test_both_tasks_of_multi30k_in_small(tmp_path):
    for task, file in (("task1", "train"), ("task2", "train_images")):
        write(tmp_path / f"{task}/image_splits/{file}.txt", "1_a.jpg\n2_b.jpg\n")
    for i in range(1, 6):
        write(tmp_path / f"task2/raw/train.{i}.en", f"one {i}\ntwo {i}\n")
        write(tmp_path / f"task2/raw/train.{i}.de", f"eins {i}\nzwei {i}\n")
    write(tmp_path / "task1/raw/train.en", "one 4\nof none\n")
    corpus = load_corpus("multi30k_both", root=tmp_path)
    assert corpus.languages == ("en", "de")
    with pytest.raises(LabError, match="task1/raw/train.fr"):
        corpus.captions("train", "fr")
    write(tmp_path / "task1/raw/train.fr", "un 4\ndeux\n")
    corpus = load_corpus("multi30k_both", root=tmp_path)
    assert len(corpus.captions("train", "en")) == 10 and len(corpus.captions("train", "fr")) == 2
    # the second French caption has no English original among the five
    assert caption_pairs(corpus, "train", "fr").source == ["one 4"]
    assert caption_pairs(corpus, "train", "de").target[:2] == ["eins 1", "eins 2"]
    write(tmp_path / "mt/multi30k_both/train.fr.txt", "".join(f"mt {i}\n" for i in range(10)))
    pairs = caption_pairs(load_corpus("multi30k_both", root=tmp_path), "train", "fr")
    assert pairs.target == [f"mt {i}" for i in range(10)] and pairs.source[4:6] == ["one 5", "two 1"]


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
    assert texts(corpus, "train", "de")[-1] == ("1000344755", "Zwei Mädchen im Café.")
    assert len(caption_pairs(corpus, "train", "de")) == 3
    report = corpus.report()
    assert [(f.file, f.line) for f in report.faults] == [("train.en", 3)]
    assert not report.ok and report.visuals[0]["missing"] == 3
    assert corpus.visuals("train")[1].frames.shape == (1, 8, 12, 3)
    with pytest.raises(LabError, match="without 1000092795 in .*flickr30k-images"):
        corpus.visuals("train")[0]
    with pytest.raises(LabError, match="task1/image_splits/test_2016_flickr.txt"):
        corpus.captions("test", "en")
    write(raw / "raw/train.fr", "Deux hommes.\n")
    with pytest.raises(LabError, match="1 captions for 4 pictures"):
        load_corpus("multi30k", root=tmp_path).captions("train", "fr")


def karpathy_json():
    "Karpathy's file with five English captions per image"
    images = []
    for split, part, i in (
        ("train", "train", 1),
        ("train", "train", 2),
        ("restval", "val", 3),
        ("val", "val", 4),
        ("test", "val", 5),
        ("test", "val", 6),
    ):
        image = dict(filepath=f"{part}2014", filename=coco_name(part, i) + ".jpg", cocoid=i, split=split)
        images.append(image | dict(sentences=[dict(raw=f'A "dog"\t{i}\nof {k}.') for k in range(5)]))
    return json.dumps(dict(images=images))


def stair_json(part, ids):
    "STAIR's file with two captions per image, and a repeated id, an unknown image and a null caption"
    annotations = []
    for i in ids:
        annotations.append(dict(id=10 * i + 1, image_id=i, caption=f"犬{i}"))
        annotations.append(dict(id=10 * i, image_id=i, caption="か\u3099"))
    annotations.append(dict(id=11, image_id=ids[0], caption="二度"))
    annotations.append(dict(id=12, image_id=999, caption="無い"))
    annotations.append(dict(id=13, image_id=ids[0], caption=None))
    images = [dict(id=i, file_name=coco_name(part, i) + ".jpg") for i in (*ids, ids[0])]
    return json.dumps(dict(images=images, annotations=annotations))


@pytest.fixture
def coco(tmp_path):
    "A folder with Karpathy's file and STAIR's two"
    write(tmp_path / "dataset_coco.json", karpathy_json())
    for part, ids in (("train", (1, 2)), ("val", (3, 4, 5, 6))):
        write(tmp_path / f"stair_captions_v1.2_{part}.json", stair_json(part, ids), mark=True)
    return tmp_path


def test_mscoco(coco):
    corpus = load_corpus("mscoco", root=coco)
    assert [len(corpus.captions(s, "en")) for s in ("train", "validation", "test")] == [15, 5, 10]
    assert corpus.captions("train", "en")[0].text == 'A "dog" 1 of 0.'
    assert texts(corpus, "test", "jp") == [
        (coco_name("val", 5), "犬5"),
        (coco_name("val", 5), "が"),
        (coco_name("val", 6), "犬6"),
        (coco_name("val", 6), "が"),
    ]
    assert len(load_corpus("mscoco", root=coco, restval=False).captions("train", "en")) == 10
    faults = "\n".join(f.what for f in corpus.report().faults)
    for part in ("second annotation with the id 11", "image 999", "an empty caption"):
        assert part in faults


@pytest.fixture
def coco_cn(coco, monkeypatch):
    "COCO-CN's lists beside it: each of the two tests an image that the other one trains on"
    for split, names in (
        ("train", [coco_name("train", 1), coco_name("val", 6)]),
        ("val", [coco_name("val", 3)]),
        ("test", [coco_name("train", 2), coco_name("val", 5)]),
    ):
        write(coco / f"coco-cn-version1805v1.1/coco-cn_{split}.txt", "\n".join(names) + "\n")
    monkeypatch.setenv("DASD_LAB_MSCOCO", str(coco))
    return coco


def test_test_images_of_another_corpus_are_held_out(coco_cn):
    whole, corpus = load_corpus("mscoco"), corpus_named("mscoco:held_out=coco_cn")
    assert corpus.address == "mscoco:held_out=coco_cn"
    assert set(whole.ids("train")) - set(corpus.ids("train")) == {coco_name("train", 2)}
    assert len(corpus.captions("train", "en")) == 10
    kept = {coco_name("train", 1), coco_name("val", 3)}
    assert {c.visual_id for language in ("en", "ja") for c in corpus.captions("train", language)} == kept
    for split in ("validation", "test", "test_1k_0"):
        assert corpus.ids(split) == whole.ids(split)
    assert corpus.report(pictures=False).faults == whole.report(pictures=False).faults
    assert corpus.checksum != whole.checksum and corpus.mt_folder == coco_cn / "mt/held_out_coco_cn"
    write(corpus.mt_folder / "train.de.txt", "".join(f"Satz {i}\n" for i in range(10)))
    assert len(caption_pairs(corpus_named("mscoco:held_out=coco_cn"), "train", "de")) == 10
    assert load_corpus("coco_cn", held_out="mscoco").ids("train") == [coco_name("train", 1)]
    (coco_cn / "coco-cn-version1805v1.1/coco-cn_test.txt").unlink()
    corpus = corpus_named("mscoco:held_out=coco_cn")
    with pytest.raises(LabError, match="coco-cn_test.txt"):
        corpus.ids("train")
    assert "coco-cn_test.txt" in " ".join(corpus.what_to_get("train", visuals=False))


def test_a_preset_does_not_train_on_test_images_of_coco(coco_cn):
    "MSCOCO and COCO-CN test each other's training images"
    from dasd_lab.training.plan import plan
    from dasd_lab.training.recipes import train

    for corpus, other in (("mscoco", "coco_cn"), ("coco_cn", "mscoco")):
        with pytest.raises(LabError, match=f"{other}, test: 1 of 2 pictures .*{corpus}:held_out={other}"):
            refuse_trained_test_pictures([corpus])
        refuse_trained_test_pictures([f"{corpus}:held_out={other}"])
    with pytest.raises(LabError, match="mscoco:held_out=coco_cn"):
        train(load_preset("dasd.mscoco_finetune_paper"), corpus="mscoco", progress=False)
    unsafe = load_preset("dasd.pictograms") | dict(corpus="mscoco", languages=["ja"])
    needs = {need.what: need for need in plan(unsafe).needs}
    assert not needs["training pictures that are in no test split"].found
    safe = plan(unsafe | dict(corpus="mscoco:held_out=coco_cn"))
    assert "training pictures that are in no test split" not in {need.what for need in safe.needs}


def test_a_thousand_test_images_are_a_mean_of_five_folds(tmp_path):
    "`test_1k`: the mean over five galleries"
    images = [dict(filename=coco_name("val", i), split="test", sentences=[dict(raw=f"{i} a")]) for i in range(5_000)]
    write(tmp_path / "dataset_coco.json", json.dumps(dict(images=images)))
    seen = torch.randn(5_000, 12, generator=torch.Generator().manual_seed(0))
    said = seen + torch.randn(5_000, 12, generator=torch.Generator().manual_seed(1))

    class Vectors(RetrievalMethod):
        name = "vectors"
        languages = ("en",)

        def visual_columns(self, visuals, descriptions=None, known=None, progress=None):
            return dict(image_features=seen[[int(v[-12:]) for v in visuals.ids]])

        def encode_captions(self, captions, language):
            return said[[int(c.split()[0]) for c in captions]]

        def encode_visuals(self, visuals):
            return dict(features=visuals["image_features"])

        def score(self, text, visuals):
            return text @ visuals["features"].T

    corpus = load_corpus("mscoco", root=tmp_path)
    results = evaluate(Vectors(), corpus, "test_1k", ["en"])
    folds = [evaluate(Vectors(), corpus, f"test_1k_{k}", ["en"]).rows["en"]["text_to_image_R@1"] for k in range(5)]
    assert results.rows["en"]["text_to_image_R@1"] == pytest.approx(sum(folds) / 5)
    assert results.about["n_visuals"] == 5_000 and results.about["folds"] == [f"test_1k_{k}" for k in range(5)]


# All published corpora


@pytest.mark.parametrize("name", published_corpora())
def test_on_a_machine_that_has_nothing(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    corpus = load_corpus(name)
    first = next(iter(corpus.published))
    assert corpus.splits == corpus.languages == ()
    assert len(corpus.missing()) == len(corpus.wanted)
    assert str(corpus).endswith(f"nothing in {corpus.root}")
    text = card(corpus)
    assert corpus.about.licence in text
    assert all(w.place in text and w.how in text for w in corpus.wanted)
    assert text.count("[missing]") == len(corpus.wanted)
    for call in (
        lambda: corpus.captions(first, corpus.source),
        lambda: corpus.visuals(first),
        lambda: corpus.captions(first, corpus.source, "human"),
        corpus.report,
    ):
        with pytest.raises(LabError, match="It belongs in") as e:
            call()
        assert str(corpus.root) in e.value.next_step and e.value.expected
    help_text = " ".join(corpus.what_to_get(first))
    assert all(w.place in help_text for w in corpus.missing(first, corpus.source) if w.kind == "captions")
    assert {r["corpus"] for r in corpus_table()} >= {name, "pictograms", "stamps"}
    assert not any(tmp_path.iterdir()), "nothing is written"


def test_faults_never_stop_the_reading(tmp_path):
    raw = tmp_path / "task1"
    write(raw / "image_splits/train.txt", "a.jpg\n\na.jpg\nc.jpg\n")
    (raw / "raw").mkdir()
    (raw / "raw/train.en").write_bytes(b"Gr\xfc\xdfe\nnameless\nagain\n\xe2\x80\x8b\n")
    corpus = load_corpus("multi30k", root=tmp_path)
    assert texts(corpus, "train", "en") == [("a", "Gr��e"), ("a", "again")]
    assert corpus.ids("train") == ["a", "c"]
    assert sorted((f.line, f.what.split(",")[0]) for f in corpus.report().faults) == [
        (1, "characters that are not UTF-8"),
        (2, "no image is named; skipped"),
        (4, "an empty caption"),
    ]


# Training, evaluation and commands


@pytest.fixture
def squares(tmp_path, monkeypatch):
    "Multi30K in its published form, with images of plain squares; one machine translation is missing"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    home = tmp_path / "multi30k"
    colours = [(en, de, rgb) for en, (de, *_, rgb) in COLOURS.items()] * 12
    english = "".join(f"{WORDS['en'].format(en)} {i}\n" for i, (en, _, _) in enumerate(colours))
    german = [WORDS["de"].format(en, de) for en, de, _ in colours]
    for file, first in (("train", 10_000), ("test_2016_flickr", 11_000)):
        ids = [str(first + i) for i in range(len(colours))]
        write(home / f"task1/image_splits/{file}.txt", "".join(f"{i}.jpg\n" for i in ids))
        write(home / f"task1/raw/{file}.en", english)
        write(home / f"task1/raw/{file}.de", "".join(f"{line}\n" for line in german))
        for i, (_, _, rgb) in zip(ids, colours):
            picture(home / f"flickr30k-images/{i}.jpg", rgb)
    german[5] = ""
    write(home / "mt/train.de.txt", "".join(f"{line}\n" for line in german))
    return home


def test_in_the_shell(squares, capsys):
    for words, code, said in (
        (["info"], 0, "captions and images: train, test; en de"),
        (["info", "multi30k"], 0, "[missing] `task1/raw/train.fr`"),
        (["check", "multi30k"], 0, "train      48     29000"),
        (["check", "mscoco"], 1, "dataset_coco.json"),
        (["check", "no such file"], 1, "no such file"),
    ):
        assert main(["corpus", *words]) == code
        assert said in "".join(capsys.readouterr())
    assert main(["corpus", "check", "multi30k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["as_published"] is False
