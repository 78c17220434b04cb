"""A published model: exactly the same vectors, complete or absent, nothing executed

Other benchmarks measure the same recalls as the lab."""

import json
import pickle
import socket
from pathlib import Path

import huggingface_hub.hub_mixin as mixin
import numpy as np
import PIL.Image
import pytest
import torch
from safetensors.torch import save_file

from dasd_lab.backbone import weights
from dasd_lab.backbone.open_clip import open_clip_backbone
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import save_backbone
from dasd_lab.base.contracts import LabError, RetrievalMethod
from dasd_lab.base.storage import sha256, write_json
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.benchmarks import ClipView, mteb_model, sentence_model
from dasd_lab.evaluation.retrieval import CUTOFFS, evaluate
from dasd_lab.methods.dasd.encoder import DASD, DASDConfig
from dasd_lab.runs import pretrained
from dasd_lab.runs.pretrained import Pretrained
from dasd_lab.runs.saved import save_method
from dasd_lab.runs.shipped import shipped_run

RESULTS = [
    dict(
        about=dict(corpus="pictograms", split="test", origin="human", n_visuals=1000, n_captions=dict(de=1000)),
        rows=json.loads((shipped_run() / "card.json").read_text(encoding="utf-8"))["test"],
    )
]


@pytest.fixture(scope="module")
def ours():
    return Pretrained.from_run(shipped_run(), RESULTS, license="apache-2.0")


@pytest.fixture
def folder(ours, tmp_path):
    ours.save_pretrained(tmp_path / "shared")
    return tmp_path / "shared"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refused(*a, **k):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


def change(folder, **facts):
    "Another configuration, its checksums right"
    c = json.loads((folder / "config.json").read_text(encoding="utf-8")) | facts
    c["files"] = {n: sha256(folder / n) for n in c["files"] if (folder / n).is_file()}
    write_json(c, folder / "config.json")


def test_a_card_that_cannot_be_read_stops_a_push_and_no_loading(folder, tmp_path):
    (folder / "README.md").write_text("---\na: [\n---\n")
    model = Pretrained.from_pretrained(folder)
    with pytest.raises(LabError, match="Correct README.md"):
        model.save_pretrained(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_no_pickle_and_no_program(folder):
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".json", ".safetensors", ".md"}

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (folder / "executed",))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
    change(folder)
    with pytest.raises(LabError, match="pickles are never opened"):
        Pretrained.from_pretrained(folder)
    assert not (folder / "executed").exists()


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "tokenizer.json",
        "backbone/manifest.json",
        "backbone/open_clip_model.safetensors",
        "backbone/tokenizer.json",
    ],
)
def test_missing_and_corrupt_files_are_named(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(LabError, match="changed or cut short"):
        Pretrained.from_pretrained(folder)
    (folder / name).unlink()
    with pytest.raises(LabError, match=f"lacks {name}"):
        Pretrained.from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["../outside.json", "/etc/hostname", "backbone/../../outside.json", "..\\outside.json"]
)
def test_names_outside_the_folder_are_refused(folder, name):
    (folder.parent / "outside.json").write_text("{}")
    c = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    c["files"][name] = sha256(folder.parent / "outside.json")
    write_json(c, folder / "config.json")
    with pytest.raises(LabError, match="below its own folder"):
        Pretrained.from_pretrained(folder)


def test_towers_that_would_be_fetched_are_refused(folder):
    m = json.loads((folder / "backbone/manifest.json").read_text(encoding="utf-8"))
    m["model_cfg"]["vision_cfg"]["timm_model_name"] = "hf-hub:somebody/net"
    write_json(m, folder / "backbone/manifest.json")
    change(folder)
    with pytest.raises(LabError, match="reaches outside"):
        Pretrained.from_pretrained(folder)


class Hub:
    "A mock that records its calls"

    calls = []
    fails = None

    def __init__(self, token=None):
        self.token = token

    def create_repo(self, repo_id, private, exist_ok):
        if self.fails:
            raise self.fails
        self.calls.append(dict(repo_id=repo_id, private=private))
        return type("Made", (), dict(repo_id=repo_id))

    def upload_folder(self, folder_path, **options):
        paths = [p for p in Path(folder_path).rglob("*") if p.is_file()]
        files = {p.relative_to(folder_path).as_posix(): sha256(p) for p in paths}
        self.calls.append(options | dict(files=files))
        return "https://hub/commit/1"


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(mixin, "HfApi", Hub)
    Hub.calls.clear()
    monkeypatch.setattr(Hub, "fails", None)
    return Hub


def test_a_public_repository_is_an_option(ours, hub, tmp_path):
    ours.push_to_hub("somebody/model", private=False)
    assert hub.calls[0]["private"] is False
    ours.save_pretrained(tmp_path / "x", repo_id="somebody/x", push_to_hub=True, private=False)
    assert hub.calls[2] == dict(repo_id="somebody/x", private=False)
    with pytest.raises(LabError, match="without push_to_hub"):
        ours.save_pretrained(tmp_path / "y", private=False)


def test_a_hub_that_cannot_be_reached_is_one_line(ours, hub, monkeypatch):
    monkeypatch.setattr(Hub, "fails", ConnectionError("no route\nto host"))
    with pytest.raises(LabError, match="(?s)somebody/model cannot be used.*no route.*hf auth login"):
        ours.push_to_hub("somebody/model")


def test_a_name_is_fetched_in_one_revision_and_a_path_never(folder, monkeypatch):
    asked = []

    def download(name, **options):
        asked.append((name, options))
        return str(folder)

    monkeypatch.setattr(pretrained, "snapshot_download", download)
    assert Pretrained.from_pretrained("somebody/model", revision="v1", token="t").method.languages
    ((name, options),) = asked
    assert (
        (name, options["revision"], options["token"]) == ("somebody/model", "v1", "t")
        and "*.safetensors" not in options["allow_patterns"]
        and not any(p.endswith((".bin", ".py", ".pkl")) for p in options["allow_patterns"])
    )
    for path in ("./somebody/model", "/tmp/none/x", "~/none", "none", "a/b/c", folder.parent / "none"):
        with pytest.raises(LabError, match="has no config.json"):
            Pretrained.from_pretrained(path)
    assert len(asked) == 1

    def none(name, **options):
        raise OSError("offline\nmore")

    monkeypatch.setattr(pretrained, "snapshot_download", none)
    with pytest.raises(LabError, match="somebody/other, which is no folder here, cannot be used .OSError: offline"):
        Pretrained.from_pretrained("somebody/other")


@pytest.fixture
def referred(tmp_path, monkeypatch):
    "A run on towers of a catalogue, which are imported as a download would be"
    cfg = dict(
        embed_dim=16,
        vision_cfg=dict(image_size=32, layers=1, width=32, patch_size=16, head_width=16),
        text_cfg=dict(context_length=77, vocab_size=49408, width=32, heads=2, layers=2),
    )
    torch.manual_seed(0)
    clip = build_clip(cfg)
    (tmp_path / "down").mkdir()
    save_file({k: v.contiguous() for k, v in clip.state_dict().items()}, tmp_path / "down/open_clip_model.safetensors")
    files = {"open_clip_model.safetensors": ""}
    known = weights.Weights("small", "small towers", "somebody/small", "MIT", "abc", files=files)
    for m in (weights, pretrained):
        monkeypatch.setattr(m, "CATALOGUE", {"small": known})
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    weights.import_weights("small", tmp_path / "down")
    from dasd_lab.backbone import open_clip as registry

    monkeypatch.setattr(registry, "registry_config", lambda name: dict(cfg))
    backbone = open_clip_backbone("ViT-B-32", weights.find_weights("small"))
    method = DASD(
        DASDConfig(("de",), token_width=16), backbone, train_tokenizer(["Ein Hund am Strand."] * 3, 80)
    ).eval()
    save_backbone(backbone, tmp_path / "run/backbone")
    save_method(method, tmp_path / "run/method")
    write_json(dict(preset="own", languages=["de"], seed=0, corpus=str(tmp_path / "mine")), tmp_path / "run/card.json")
    write_json(
        dict(backbone=dict(open_clip="ViT-B-32", pretrained="small"), languages=["de"]), tmp_path / "run/preset.json"
    )
    return tmp_path


def test_published_towers_may_be_named(referred):
    shared = Pretrained.from_run(referred / "run", refer=True)
    shared.save_pretrained(referred / "shared")
    assert not (referred / "shared/backbone").exists() and "base_model: somebody/small" in (
        referred / "shared/README.md"
    ).read_text(encoding="utf-8")
    # no folder of this machine
    assert json.loads((referred / "shared/config.json").read_text(encoding="utf-8"))["training"]["corpus"] == "mine"
    theirs = Pretrained.from_pretrained(referred / "shared")
    for language in ("de", "en"):
        vectors = shared.method.encode_captions(["Ein Hund."], language)
        assert torch.equal(theirs.method.encode_captions(["Ein Hund."], language), vectors)


def test_named_towers_are_compared(referred, monkeypatch):
    Pretrained.from_run(referred / "run", refer=True).save_pretrained(referred / "shared")
    other = open_clip_backbone("ViT-B-32", weights.find_weights("small"))
    other.clip.visual.proj.data += 1
    monkeypatch.setattr(pretrained, "named_towers", lambda published: other)
    with pytest.raises(LabError, match="another fingerprint"):
        Pretrained.from_pretrained(referred / "shared")
    with pytest.raises(LabError, match="another fingerprint"):
        Pretrained.from_run(referred / "run", refer=True).save_pretrained(referred / "more")
    assert not (referred / "more").exists()
    monkeypatch.undo()
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(referred / "nothing"))
    with pytest.raises(LabError):
        Pretrained.from_pretrained(referred / "shared")


def mteb_task(corpus):
    "A corpus as a task of MTEB: captions search for images"
    from datasets import Dataset, Features, Image, Value
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    def dataset(kind, value, ids, values):
        features = Features({"id": Value("string"), kind: value, "modality": Value("string")})
        return Dataset.from_dict({"id": ids, kind: values, "modality": [kind] * len(ids)}, features=features)

    class TextToImage(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="TextToImage",
            description="captions search for images",
            type="Any2AnyMultilingualRetrieval",
            category="t2i",
            modalities=["text", "image"],
            dataset=dict(path="dasd_lab/corpus", revision="local"),
            eval_splits=["test"],
            eval_langs=dict(de=["deu-Latn"], en=["eng-Latn"]),
            main_score="hit_rate_at_1",
        )

        def load_data(self, num_proc=None, **options):
            visuals = corpus.visuals("test")
            frames = [PIL.Image.fromarray(np.asarray(visuals[i].frames[0])) for i in range(len(visuals))]
            images = dataset("image", Image(), visuals.ids, frames)
            self.dataset = {}
            for language in self.hf_subsets:
                captions = {f"c{i}": c for i, c in enumerate(corpus.captions("test", language))}
                queries = dataset("text", Value("string"), [*captions], [c.text for c in captions.values()])
                docs = {i: {c.visual_id: 1} for i, c in captions.items()}
                test = dict(corpus=images, queries=queries, relevant_docs=docs, top_ranked=None)
                self.dataset[language] = dict(test=test)
            self.data_loaded = True

    return TextToImage()


@pytest.mark.slow
def test_mteb_measures_what_the_lab_measures(ours):
    mteb = pytest.importorskip("mteb", reason="MTEB is not installed")
    pytest.importorskip("sentence_transformers", reason="MTEB needs sentence-transformers")
    corpus = load_corpus("pictograms")
    own = evaluate(ours.method, corpus, "test", ["de", "en"]).rows
    options = dict(cache=None, co2_tracker=False, show_progress_bar=False)
    encoding = dict(batch_size=64, show_progress_bar=False)
    found = mteb.evaluate(mteb_model(ours.method), mteb_task(corpus), encode_kwargs=encoding, **options)
    rows = {row["hf_subset"]: row for row in found.task_results[0].scores["test"]}
    assert {*rows} == {"de", "en"}
    for language, row in rows.items():
        for k in CUTOFFS:
            expected = own[language][f"text_to_image_R@{k}"]
            assert row[f"hit_rate_at_{k}"] == pytest.approx(expected, abs=6e-6), (language, k)  # of five digits


def test_a_method_with_another_score_is_not_viewed(ours):
    class Own(type(ours.method)):
        def score(self, text_features, visuals):
            return text_features @ visuals["features"].T

    own = Own.__new__(Own)
    own.__dict__ = ours.method.__dict__
    for view in (lambda: ClipView(own, "de"), lambda: sentence_model(own), lambda: mteb_model(own)):
        with pytest.raises(LabError, match="whose score is not the cosine"):
            view()
    assert RetrievalMethod.score is type(ours.method).score
