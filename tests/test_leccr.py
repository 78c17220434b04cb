"LECCR end to end: presets and their sources, training from files with descriptions, bit-identical resuming"

import json

import numpy as np
import pytest
import torch
from PIL import Image
from squares import BERT, COLOURS, WORDS, Squares
from squares import TINY as DASD

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import save_backbone
from dasd_lab.backbone.weights import import_weights
from dasd_lab.base.contracts import Caption, LabError
from dasd_lab.base.presets import load_preset, plain, settings, vary
from dasd_lab.base.storage import read_tensors, write_tensors
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import FolderCorpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.evaluation.retrieval import evaluate, rank, retrieval_figures
from dasd_lab.methods.leccr.encoder import UNDESCRIBED, LECCRConfig
from dasd_lab.methods.leccr.texts import MultilingualText, TextConfig
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import save_method
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.search.gallery.views import view
from dasd_lab.training.plan import plan
from dasd_lab.training.recipes import columns_of, new_method, train, training_data
from dasd_lab.training.stages import Stage

FORMS = "paper", "official"
NAMES = [
    f"leccr.{run}_{form}"
    for run in ("multi30k_de", "multi30k_fr", "multi30k_cs", "mscoco_zh", "mscoco_ja", "vatex_zh", "msrvtt_cn_zh")
    for form in FORMS
]
TINY = {
    "base": "leccr.pictograms",
    "corpus": "squares",
    "languages": ["de"],
    "vocab_size": 120,
    "config.text": dict(encoder=BERT, max_tokens=32),
    "config.embed_dim": 16,
    "config.block.heads": 2,
    "config.slots.n": 3,
    "stages.0.steps": 40,
    "stages.0.batch_size": 8,
    "stages.0.learning_rate": 1e-2,
}


class Described(Squares):
    "Squares that a model has described, all but the last"

    def _captions(self, split, language):
        return super()._captions(split, language) + (
            [
                Caption(f"A square that is {list(COLOURS)[i % 4]}, seen from above.", "en", f"v{i}", "mllm")
                for i in range(47)
            ]
            if language == "en"
            else []
        )


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def test_the_papers_and_the_codes_numbers():
    def weights(n):
        return {t.get("name"): t["weight"] for t in load_preset(n)["stages"][0]["terms"]}

    assert weights("leccr.paper") == dict(
        target_source=1.0,
        source_visual=0.5,
        target_visual=0.25,
        softened=0.25,
        source_slots=0.05,
        target_slots=0.05,
        slots_differ=0.01,
    )
    assert weights("leccr.official") == dict(
        target_source=1.0,
        source_visual=1.0,
        slots_visual=0.01,
        target_visual=0.5,
        softened=0.5,
        source_slots=0.01,
        target_slots=0.01,
        slots_differ=0.01,
    )
    assert [
        weights(f"leccr.{n}_official")[k]
        for n, k in (
            ("multi30k_de", "softened"),
            ("multi30k_de", "slots_differ"),
            ("mscoco_ja", "source_slots"),
            ("mscoco_ja", "softened"),
            ("msrvtt_cn_zh", "slots_differ"),
        )
    ] == [0.0, 0.05, 0.05, 0.3, 0.03]
    configs = {n: settings(LECCRConfig, load_preset(n)["config"]) for n in NAMES}
    assert {
        (c.slots.n, c.slots.layers, c.vision.reads, c.vision.layers)
        for n, c in configs.items()
        if "zh_" in n and "coco" not in n
    } == {(4, 2, "frames", 1), (2, 2, "frames", 1)}
    assert {c.slots.n for n, c in configs.items() if "30k" in n} == {4}
    assert {c.beta for n, c in configs.items() if n.endswith("paper")} == {0.8}
    assert configs["leccr.msrvtt_cn_zh_official"].beta == 0.9
    assert configs["leccr.multi30k_de_official"].beta == 1.0
    assert configs["leccr.multi30k_fr_official"].slots.start == 0.0
    assert settings(Stage, load_preset("leccr.multi30k_fr_official")["stages"][0]).steps == 29_000 // 128 * 70


def test_the_command_trains_it_from_files(backbone, tmp_path, monkeypatch, capsys, tiny):
    "Images in a folder and captions of three origins in one file; the run is opened, evaluated and listed"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    root = tmp_path / "squares"
    save_backbone(backbone, tmp_path / "backbone")
    corpus = Described()
    visuals = corpus.visuals("train")
    for split, n in (("train", 48), ("test", 8)):
        (root / split).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(np.asarray(visuals[i].frames[0])).save(root / split / f"v{i}.png")
        rows = [c for language in ("en", "de") for c in corpus._captions("train", language) if int(c.visual_id[1:]) < n]
        (root / f"{split}.jsonl").write_text(
            "".join(
                json.dumps(vars(c) | (dict(origin="human") if split == "test" and c.origin == "mt" else {})) + "\n"
                for c in rows
            )
        )
    assert main(["train", tiny, "--backbone", str(tmp_path / "backbone"), "--out", str(tmp_path / "run")]) == 0
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < log[0]["loss"]
    assert {
        "target_source",
        "softened",
        "slots_differ",
        "gradient_norm/visual",
    } <= set(log[-1])
    method = load_run(tmp_path / "run")
    files = FolderCorpus(root)
    assert files.descriptions("train")[0] == "A square that is red, seen from above."
    assert files.descriptions("train").count("") == 1
    found = evaluate(method, files, "test", ["de"])
    assert found.rows["de"]["text_to_image_R@10"] >= 0.5
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--corpus", str(root), "--split", "test"]) == 0
    assert "de" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "run"), str(tmp_path / "run"), "--json"]) == 0


def on_a_run(folder, backbone, run):
    "The preset of photographs, made small: captions through a run of DASD"
    return {
        "base": "leccr.photographs_dasd",
        "backbone": dict(run=str(folder)),
        "text_run": str(folder),
        "languages": ["de"],
        "config.text.config": plain(run.method.config),
        "config.embed_dim": backbone.embed_dim,
        "config.block.heads": 2,
        "config.slots.n": 3,
        "stages.0.steps": 40,
        "stages.0.batch_size": 8,
        "stages.0.learning_rate": 1e-2,
    }


def test_it_reads_captions_as_a_trained_run_does(backbone, tmp_path):
    "The text side is that of the run, which stays as it is"
    run = train(DASD, Squares(), ["de", "fr"], out=tmp_path / "run", backbone=backbone, progress=False)
    leccr = on_a_run(tmp_path / "run", backbone, run)
    (tmp_path / "leccr.json").write_text(json.dumps(leccr))
    preset = str(tmp_path / "leccr.json")
    assert plan(preset).needs[-1].found
    slots = train(preset, Described(), out=tmp_path / "slots", progress=False)
    assert slots.log[-1]["loss"] < slots.log[0]["loss"]
    trained, used = run.method.state_dict(), load_run(tmp_path / "slots").text.method.state_dict()
    assert used and all(used[name].equal(trained[name]) for name in used)
    assert slots.method.tokenizer.reads_like(run.method.tokenizer)
    gallery = Gallery(slots.method).add_split(Described(), "train")
    hits = [gallery.search(c.text, "de", 1).ids[0] for c in Described().captions("train", "de")[:8]]
    assert [int(id[1:]) % 4 for id in hits] == [0, 1, 2, 3] * 2  # the colours

    (tmp_path / "other.json").write_text(json.dumps(leccr | {"config.text.config.token_width": 4}))
    with pytest.raises(LabError, match="Copy `config.text` from its run"):
        train(str(tmp_path / "other.json"), Described(), progress=False)
    (tmp_path / "other.json").write_text(json.dumps(leccr | dict(text_run="nowhere")))
    assert not plan(str(tmp_path / "other.json")).needs[-1].found
    with pytest.raises(LabError, match="no run"):
        train(str(tmp_path / "other.json"), Described(), progress=False)
    (tmp_path / "other.json").write_text(json.dumps(dict(base="dasd.pictograms", text_run=str(tmp_path / "run"))))
    with pytest.raises(LabError, match="can read captions as another one does"):
        train(str(tmp_path / "other.json"), Squares(), ["de"], backbone=backbone, progress=False)


def test_its_text_side_lies_beside_it(backbone, tmp_path):
    "Slots of a width of their own, saved without the text side of the run that it reads with"
    run = train(DASD, Squares(), ["de", "fr"], out=tmp_path / "run", backbone=backbone, progress=False)
    narrow = on_a_run(tmp_path / "run", backbone, run) | {
        "config.interaction.width": 8,
        "config.slots.n": 2,
        "stages.0.steps": 4,
        "stages.0.trains": ["visual", "temperature"],
    }
    (tmp_path / "narrow.json").write_text(json.dumps(narrow))
    method = train(str(tmp_path / "narrow.json"), Described(), progress=False).method
    folder = tmp_path / "run/slots"
    save_method(method, folder, half=True, text_folder=tmp_path / "run/method")
    stored = read_tensors(folder / "model.safetensors")
    assert {name.split(".")[0] for name in stored} == {"visual", "temperature"}
    again = load_run(folder)
    captions = ["ein rotes Quadrat", "ein blaues Quadrat"]
    same = run.method.encode_captions(captions, "de")
    assert again.encode_captions(captions, "de").equal(same)
    columns = again.visual_columns(Described().visuals("train")[:4], Described().descriptions("train")[:4])
    torch.testing.assert_close(
        again.encode_visuals(columns)["slots"], method.eval().encode_visuals(columns)["slots"], atol=0.02, rtol=0.02
    )
    kept = tmp_path / "kept"
    (tmp_path / "run/method").rename(kept)
    with pytest.raises(LabError, match="method beside slots"):
        load_run(folder)
    save_method(run.method, tmp_path / "run/method", seed=1)
    with pytest.raises(LabError, match="another .*method than .*slots was trained with"):
        load_run(folder)


def test_published_weights_are_where_it_starts(backbone, tmp_path, monkeypatch):
    "A small multilingual BERT, imported under the name in the preset: LECCR loads all of it, DASD its token vectors"
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    words = train_tokenizer(
        [template.format(en, de, fr) for template in WORDS.values() for en, (de, fr, _) in COLOURS.items()] * 5,
        90,
    )
    words.save(tmp_path / "tokenizer.json")
    (tmp_path / "config.json").write_text("{}")
    torch.manual_seed(5)
    given = MultilingualText(TextConfig(BERT), len(words)).encoder
    state = {f"bert.{k}": v for k, v in given.state_dict().items() if "position_ids" not in k}
    write_tensors(
        state | {"bert.pooler.dense.weight": torch.ones(16, 16), "cls.predictions.bias": torch.ones(3)},
        tmp_path / "model.safetensors",
    )
    import_weights("mbert", tmp_path)
    preset = vary(
        load_preset("leccr.multi30k_de_paper"),
        {"config.text.encoder": BERT, "token_vectors.n_tokens": len(words), "config.block.heads": 2},
    )
    data = training_data(Described(), ["de"], backbone, reads=columns_of(preset))
    made = new_method(preset, data, backbone)
    assert all(torch.equal(made.text.encoder.state_dict()[k], v) for k, v in given.state_dict().items())
    changes = {"token_vectors.n_tokens": len(words), "config.token_width": 16}
    dasd = vary(load_preset("dasd.cc300k_zero_shot_official"), changes)
    vectors = new_method(dasd, data, backbone).token_vectors.embedding.weight
    assert torch.equal(vectors, state["bert.embeddings.word_embeddings.weight"])
    with pytest.raises(LabError, match=f"{len(words)} pieces"):
        new_method(vary(dasd, {"token_vectors.n_tokens": 5}), data, backbone)


def with_slots(n, corpus, backbone):
    "LECCR with n slots after a few steps"
    changes = {k: v for k, v in TINY.items() if k != "base"} | {"stages.0.steps": 3, "config.slots.n": n}
    preset = vary(load_preset("leccr.pictograms"), changes)
    return train(preset, corpus, ["de"], backbone=backbone, progress=False, seed=n).method


def test_a_gallery_keeps_what_it_reads(backbone, tmp_path):
    "Descriptions are stored as text: saved, loaded, and used by another method of the same backbone"
    corpus = Described()
    pictures = [corpus.visuals("train")[i] for i in range(9)]
    descriptions = corpus.descriptions("train")[:9]
    assert descriptions[8]
    assert UNDESCRIBED not in descriptions
    ids = [f"p{i}" for i in range(9)]
    two_slots = with_slots(2, corpus, backbone)
    three_slots = with_slots(3, corpus, backbone)
    gallery = Gallery(two_slots).add(pictures, ids=ids, descriptions=descriptions, batch_size=4)
    assert gallery.visuals["slots"].shape == (9, 2, 16)
    assert set(gallery.columns) == {"image_features", "visual_tokens", "visual_mask"}

    captions = [Caption(text, "en", id, "mllm") for id, text in zip(ids, descriptions)]
    same = Gallery(two_slots).add(pictures, ids=ids, captions=captions)
    torch.testing.assert_close(same.visuals["slots"], gallery.visuals["slots"])
    bare = Gallery(two_slots).add(pictures)
    assert not torch.allclose(bare.visuals["slots"], gallery.visuals["slots"])

    assert gallery.descriptions == descriptions
    other = view(gallery, method=three_slots)
    assert other.visuals["slots"].shape == (9, 3, 16)
    expected = Gallery(three_slots).add(pictures, descriptions=descriptions)
    torch.testing.assert_close(other.visuals["slots"], expected.visuals["slots"])

    assert len(gallery.search("ein rotes Quadrat", "de")) == 9
    assert len(gallery.similar("p0", 3)) == 3


class Films(Described):
    "Every square as a clip: itself for one to three frames, more of it the later it stands"

    def visuals(self, split):
        seen = super().visuals(split)
        found = Visuals(seen.ids, lambda i: np.repeat(seen[i].frames, 1 + i % 3, 0))
        found.n_frames = 3
        return found


def test_clips_from_training_to_search(backbone, tmp_path, tiny):
    "Clips with masks: trained from memory and from a store, evaluated and searched; padding changes nothing"
    clips = Films()
    changes = {"config.vision": dict(reads="frames", layers=1, pooling="mean")}
    memory, stored = (
        train(tiny, clips, backbone=backbone, features=f, changes=changes, progress=False)
        for f in (None, tmp_path / "stores")
    )
    (store,) = (tmp_path / "stores").iterdir()
    assert set(json.loads((store / "plan.json").read_text())["parts"]) == {"image", "source", "frames"}
    a, b = ([r["loss"] for r in run.log if "loss" in r] for run in (memory, stored))
    assert np.isfinite(a).all()
    assert max(abs(x - y) for x, y in zip(a, b)) < 0.05 * max(a)
    assert a[-1] < a[0] - 0.1
    method = memory.method.eval()
    gallery = Gallery(method).add_split(clips, "train")
    alone = Gallery(method).add(clips.visuals("train")[:1], ids=["v0"], descriptions=clips.descriptions("train")[:1])
    assert gallery.columns["frame_features"].shape[1] == 3
    assert gallery.columns["frame_mask"].sum(1)[:3].tolist() == [
        1,
        2,
        3,
    ]
    text = method.encode_captions([c.text for c in clips.captions("train", "de")], "de")
    # evaluation sees what the gallery sees
    assert evaluate(method, clips, "train", ["de"], None).rows["de"] == retrieval_figures(
        rank(method.score, text, gallery.visuals, list(range(48)))
    )
    for k, v in alone.visuals.items():
        torch.testing.assert_close(v[0], gallery.visuals[k][0], atol=1e-5, rtol=1e-5)
