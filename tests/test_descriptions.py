"Descriptions: tiny captioning models, frames of clips, errors, and the captioner in the results of a run"

import json

import numpy as np
import pytest
import tiny_captioners
import torch
from PIL import Image
from squares import Squares
from test_leccr import TINY

from dasd_lab.base.contracts import LabError
from dasd_lab.commands.cli import main
from dasd_lab.corpora.by_machine.captioners import CaptioningModel, ChatModel, open_captioner
from dasd_lab.corpora.captions import caption_line
from dasd_lab.corpora.catalog import FolderCorpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.runs.loading import load_run
from dasd_lab.training.recipes import train, training_data

RNG = np.random.default_rng(0)
PICTURES = [RNG.integers(0, 255, (1, h, w, 3), dtype=np.uint8) for h, w in ((40, 50), (64, 32), (30, 60), (40, 40))]
CLIPS = [RNG.integers(0, 255, (t, 40, 40, 3), dtype=np.uint8) for t in (4, 2, 4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    "kind → folder of a tiny model, created on first use"
    root = tmp_path_factory.mktemp("models")

    def folder(kind):
        if not (root / kind).exists():
            getattr(tiny_captioners, kind)(root / kind)
        return root / kind

    return folder


@pytest.fixture
def pictures(tmp_path):
    root = tmp_path / "squares"
    (root / "train").mkdir(parents=True)
    visuals = Squares().visuals("train")
    for i in range(24):
        Image.fromarray(np.asarray(visuals[i].frames[0])).save(root / "train" / f"v{i}.png")
    captions = Squares().captions("train", "en") + Squares().captions("train", "de")
    selected = [caption for caption in captions if int(caption.visual_id[1:]) < 24]
    (root / "train.jsonl").write_text("".join(caption_line(caption) for caption in selected))
    return root


@pytest.mark.parametrize("kind", ["blip", "git", "florence", "llava", "qwen"])
def test_a_description_does_not_depend_on_the_batch(kind, models):
    captioner = open_captioner(models(kind), max_new_tokens=8)
    batch = [PICTURES[0], CLIPS[0], *PICTURES[1:], *CLIPS[1:]]
    descriptions = captioner.describe(batch)
    assert [captioner.describe([visual])[0] for visual in batch] == descriptions
    assert captioner.describe(batch) == descriptions
    assert all(isinstance(text, str) for text in descriptions)
    assert len(set(descriptions)) >= 3
    for mark in ("<pad>", "<s>", "</s>", "<image>", "[DEC]"):
        assert not any(mark in text for text in descriptions)
    assert isinstance(captioner, ChatModel if kind in ("llava", "qwen") else CaptioningModel)


@pytest.mark.parametrize("kind", ["llava", "qwen"])
@pytest.mark.parametrize("clips", ["video", "images"])
def test_every_frame_reaches_a_chat_model(kind, clips, models):
    captioner = ChatModel(models(kind), max_new_tokens=1)
    captioner.clips = clips
    logits = []

    def record(module, args, kwargs, output):
        logits.append(output.logits[:, -1].detach())  # of the first new token

    handle = captioner.model.register_forward_hook(record, with_kwargs=True)
    clip = CLIPS[0]
    captioner.describe([clip])
    for t in range(len(clip)):
        changed = clip.copy()
        changed[t] = 255 - changed[t]
        captioner.describe([changed])
    handle.remove()
    assert len(logits) == 5
    assert not any(torch.equal(logits[0], other) for other in logits[1:])


def test_errors_name_the_next_step(models, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path))
    for call, message in (
        (lambda: open_captioner("florence"), "hf download"),
        (lambda: open_captioner("owner/model"), "hf download"),
        (lambda: CaptioningModel(models("git"), "a photo"), "no prompt"),
        (lambda: CaptioningModel(models("florence"), "What is it?"), "one of its tasks"),
        (lambda: CaptioningModel(models("qwen")), "ChatModel"),
        (lambda: open_captioner(models("git"), max_new_tokens=0), "at least 1"),
    ):
        with pytest.raises(LabError, match=message):
            call()


def describe_with_blip(pictures, models, capsys, max_new_tokens):
    "Row of the table, and messages of the command"
    command = ["describe", str(pictures), "--captioner", str(models("blip")), "--batch-size", "5", "--json"]
    assert main([*command, "--max-new-tokens", str(max_new_tokens)]) == 0
    out, err = capsys.readouterr()
    return json.loads(out)["rows"], err


def test_results_record_the_captioner(backbone, pictures, models, tmp_path, capsys):
    "BLIP describes, LECCR is trained, and the captioner is on the card and in the results"
    (row,), _ = describe_with_blip(pictures, models, capsys, 6)
    describe_with_blip(pictures, models, capsys, 3)
    assert main(["describe", str(pictures), "--use", row["fingerprint"], "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2
    assert [r["fingerprint"] for r in rows if r["read"]] == [row["fingerprint"]]
    corpus = FolderCorpus(pictures)
    source = dict(captioner="blip", fingerprint=row["fingerprint"], failed=row["failed"])
    assert corpus.captioner("train") == source
    (tmp_path / "tiny.json").write_text(json.dumps(TINY | {"stages.0.steps": 3}))
    run = tmp_path / "run"
    train(str(tmp_path / "tiny.json"), corpus, out=run, backbone=backbone, progress=False)
    assert json.loads((run / "card.json").read_text())["descriptions"] == source
    assert json.loads((run / "run.json").read_text())["data"]["descriptions"] == source
    results = evaluate(load_run(run), corpus, "train", ["de"], origin=None)
    assert results.about["descriptions"]["captioner"] == "blip"
    assert "descriptions" not in training_data(corpus, ["de"], backbone).about
