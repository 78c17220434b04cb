"Descriptions: real captioning models in small, a process that is killed, the authors' files, and from the command to the card of a run"

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_captioners
from PIL import Image
from squares import SOURCE, Squares
from test_leccr import TINY

from dasd_lab.cli import main
from dasd_lab.contracts import LabError
from dasd_lab.corpora.by_machine.captioners import CaptioningModel, ChatModel, open_captioner
from dasd_lab.corpora.catalog import FolderCorpus
from dasd_lab.corpora.descriptions import TextFolder, describe_split, fingerprint, read_lines, write_texts
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.training.recipes import load_run, train, training_data
from dasd_lab.training.source_model import train_source

RNG = np.random.default_rng(0)
PICTURES = [RNG.integers(0, 255, (1, h, w, 3), dtype=np.uint8) for h, w in ((40, 50), (64, 32), (30, 60), (40, 40))]
CLIPS = [RNG.integers(0, 255, (t, 40, 40, 3), dtype=np.uint8) for t in (4, 2, 4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    "Folders, made when they are asked for"
    root = tmp_path_factory.mktemp("models")
    return lambda kind: root / kind if (root / kind).exists() else getattr(tiny_captioners, kind)(root / kind)


@pytest.fixture
def pictures(tmp_path):
    root = tmp_path / "squares"
    (root / "train").mkdir(parents=True)
    visuals = Squares().visuals("train")
    for i in range(24):
        Image.fromarray(np.asarray(visuals[i].frames[0])).save(root / "train" / f"v{i}.png")
    rows = [c for l in ("en", "de") for c in Squares()._captions("train", l) if int(c.visual_id[1:]) < 24]
    (root / "train.jsonl").write_text("".join(json.dumps(vars(c)) + "\n" for c in rows))
    return root


@pytest.mark.parametrize("kind", ["blip", "git", "florence", "llava", "qwen"])
def test_a_batch_says_what_each_says_alone(kind, models):
    captioner = open_captioner(models(kind), max_new_tokens=8)
    batch = [PICTURES[0], CLIPS[0], *PICTURES[1:], *CLIPS[1:]]
    said = captioner.describe(batch)
    assert (
        said == [captioner.describe([v])[0] for v in batch] == captioner.describe(batch)
        and len(set(said)) >= 3
        and all(isinstance(t, str) for t in said)
    )
    assert not any(mark in t for t in said for mark in ("<pad>", "<s>", "</s>", "<image>", "[DEC]")) and isinstance(
        captioner, ChatModel if kind in ("llava", "qwen") else CaptioningModel
    )


@pytest.mark.parametrize("kind", ["llava", "qwen"])
@pytest.mark.parametrize("clips", ["video", "images"])
def test_every_frame_reaches_a_chat_model(kind, clips, models):
    import torch

    captioner = ChatModel(models(kind), max_new_tokens=1, clips=clips)
    seen = []

    def watch(module, args, kwargs, output):
        seen.append(output.logits[:, -1].detach())  # of the first new token

    handle = captioner.model.register_forward_hook(watch, with_kwargs=True)
    clip = CLIPS[0]
    captioner.describe([clip])
    for t in range(len(clip)):
        other = clip.copy()
        other[t] = 255 - other[t]
        captioner.describe([other])
    handle.remove()
    assert (
        captioner.settings["clips"] == clips and all(not torch.equal(seen[0], o) for o in seen[1:]) and len(seen) == 5
    )


def test_the_question_is_asked_and_left_out(models, monkeypatch):
    "The template has the question and its own words; the answer has neither unless the model says them"
    captioner = ChatModel(models("llava"), max_new_tokens=4)
    asked = []
    template = captioner.processor.apply_chat_template
    monkeypatch.setattr(
        captioner.processor, "apply_chat_template", lambda *a, **k: asked.append(template(*a, **k)) or asked[-1]
    )
    said = captioner.describe([PICTURES[0], CLIPS[0]])
    captioner.again([PICTURES[0]])
    assert [a.split("> ", 1)[1] for a in asked] == [
        f"{q} Assistant: "
        for q in (
            "Please describe the contents of this image in detail.",
            "Please describe the contents of this video in detail.",
            "What do you see?",
        )
    ]
    assert all(len(t.split()) <= 4 and "User:" not in t for t in said)
    begun = CaptioningModel(models("blip"), "a photo of the", max_new_tokens=6).describe(PICTURES)
    assert not any(t.startswith("a photo of the") for t in begun) and begun != CaptioningModel(
        models("blip"), max_new_tokens=6
    ).describe(PICTURES)


def test_what_changes_the_text_changes_the_fingerprint(models):
    def make(**o):
        return fingerprint(open_captioner(models("llava"), **o))

    first = make()
    assert (
        first == make(device="cpu")
        and len(
            {
                first,
                make(prompt="What ?"),
                make(max_new_tokens=9),
                make(fallback_prompt="What ?"),
                make(clips="images"),
                make(dtype="bfloat16"),
                make(max_side=64),
            }
        )
        == 7
    )


def test_refusals_name_the_next_step(models, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path))
    for wrong in (lambda: open_captioner("florence"), lambda: open_captioner("owner/model")):
        with pytest.raises(LabError, match="hf download"):
            wrong()
    for wrong, what in (
        (lambda: CaptioningModel(models("git"), "a photo"), "no prompt"),
        (lambda: CaptioningModel(models("florence"), "What is it?"), "one of its tasks"),
        (lambda: CaptioningModel(models("qwen")), "ChatModel"),
        (lambda: ChatModel(models("qwen"), clips="film"), "video or images"),
        (lambda: open_captioner(models("git"), max_new_tokens=0), "at least 1"),
    ):
        with pytest.raises(LabError, match=what):
            wrong()


SLOW = """
import sys,time
sys.path.insert(0, {tests!r})
from pathlib import Path
from dasd_lab.corpora.catalog import FolderCorpus
from dasd_lab.corpora.descriptions import describe_split
class Slow:
    name,settings = 'slow',dict(prompt='?')
    def describe(self, batch):
        open({log!r}, 'a').write('x'*len(batch)); time.sleep({pause}); return [f'Mean {{f.mean():.3f}}.' for f in batch]
found = describe_split(FolderCorpus({root!r}), 'train', Slow(), batch_size=2)
print(found.new)
"""


def test_a_kill_loses_nothing_that_was_written(pictures, tmp_path):
    log = tmp_path / "asked"

    def code(pause):
        return [
            sys.executable,
            "-c",
            SLOW.format(tests=str(Path(__file__).parent), log=str(log), root=str(pictures), pause=pause),
        ]

    run = subprocess.Popen(code(0.3))
    deadline = time.time() + 90

    def lines():
        return next(iter(pictures.glob("descriptions/*/train.jsonl")), tmp_path / "none")

    while time.time() < deadline and not (lines().is_file() and lines().read_bytes().count(b"\n") >= 6):
        time.sleep(0.02)
    corpus = FolderCorpus(pictures)

    class Same:
        name = "slow"
        settings = dict(prompt="?")
        describe = None

    with pytest.raises(LabError, match="another process"):
        describe_split(corpus, "train", Same())
    run.send_signal(signal.SIGKILL)
    run.wait()
    written = read_lines(lines())
    asked = len(log.read_text())
    assert 6 <= len(written) < 24 and asked - len(written) in (0, 2)
    with pytest.warns(UserWarning, match="not described yet by slow"):
        assert corpus.descriptions("train") == [""] * 24
    with open(lines(), "a") as f:
        f.write('{"id": "v9", "stamp": "12')  # torn
    done = subprocess.run(code(0), capture_output=True, text=True, check=True)
    assert int(done.stdout) == 24 - len(written) and len(log.read_text()) == asked + 24 - len(written)
    assert corpus.captioner("train")["captioner"] == "slow" and corpus.descriptions("train") == [
        f"Mean {v.frames.mean():.3f}." for v in corpus.visuals("train")
    ]
    assert (
        all(json.loads(line) for line in lines().read_text().splitlines())
        and subprocess.run(code(0), capture_output=True, text=True, check=True).stdout == "0\n"
    )


def test_a_changed_picture_and_a_failed_one(pictures):
    class Dark:
        name = "dark"
        settings = {}
        asked = []

        def describe(self, batch):
            self.asked += batch
            return ["" if f.mean() < 1 else f"Mean {f.mean():.3f}." for f in batch]

    Image.new("RGB", (32, 32)).save(pictures / "train/v3.png")
    (pictures / "train/v5.png").write_bytes(b"no picture")
    corpus = FolderCorpus(pictures)
    found = describe_split(corpus, "train", Dark())
    assert {*found.failed} == {"v3", "v5"} and len(Dark.asked) == 23 + 1 and corpus.captioner("train")["failed"] == 2
    note = json.loads((found.folder / "manifest.json").read_text())
    assert (
        note["parts"]["train"]["described"] == 22
        and note["parts"]["train"]["failed"] == 2
        and note["versions"]["dasd_lab"]
        and "no picture" in read_lines(found.folder / "train.jsonl")["v5"]["error"]
    )
    Image.new("RGB", (32, 32), "white").save(pictures / "train/v5.png")
    Image.new("RGB", (32, 32), "white").save(pictures / "train/v0.png")
    again = describe_split(FolderCorpus(pictures), "train", Dark())
    assert again.new == 2 and again.failed == ["v3"] and again.texts[0] == "Mean 255.000."


def test_the_authors_files_go_round(pictures, tmp_path):
    corpus = FolderCorpus(pictures)
    ids = corpus.visuals("train").ids
    texts = [f'Picture {i} "é", 狗.' for i in range(23)] + [""]
    write_texts(ids, texts, tmp_path / "authors")
    found = describe_split(corpus, "train", TextFolder(tmp_path / "authors"))
    assert (
        corpus.descriptions("train") == texts
        and found.failed == [ids[-1]]
        and (tmp_path / "authors" / f"{ids[-1]}.txt").read_text() == "a photo.\n"
    )
    assert main(["describe", str(pictures), "--export", str(tmp_path / "again")]) == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "authors").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()
    }


def test_from_the_command_to_the_card(pictures, models, tmp_path, capsys):
    "BLIP describes, LECCR reads it, and who described is on the card and beside the figures"
    words = [
        "describe",
        str(pictures),
        "--captioner",
        str(models("blip")),
        "--max-new-tokens",
        "6",
        "--batch-size",
        "5",
    ]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "train: " in err and " of 24 described by blip" in err and "  v0: " in err and "yes" in out
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)["rows"]
    assert (
        ", 0 of them now" in err
        and row["captioner"] == "blip"
        and row["described"] + row["failed"] == 24
        and row["read"] == "yes"
    )
    assert main([*words[:4], "--max-new-tokens", "3"]) == 0
    capsys.readouterr()
    assert main(["describe", str(pictures), "--use", row["fingerprint"], "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [r["fingerprint"] for r in rows if r["read"]] == [row["fingerprint"]] and len(rows) == 2
    corpus = FolderCorpus(pictures)
    backbone = train_source(SOURCE, Squares(), progress=False)
    its = TINY | {"stages.0.steps": 3}
    assert corpus.captioner("train") == dict(captioner="blip", fingerprint=row["fingerprint"], failed=row["failed"])
    (tmp_path / "tiny.json").write_text(json.dumps(its))
    train(str(tmp_path / "tiny.json"), corpus, out=tmp_path / "run", backbone=backbone, progress=False)
    card = json.loads((tmp_path / "run/card.json").read_text())
    assert (
        card["descriptions"]
        == corpus.captioner("train")
        == json.loads((tmp_path / "run/run.json").read_text())["data"]["descriptions"]
    )
    assert (
        evaluate(load_run(tmp_path / "run"), corpus, "train", ["de"], origin=None).about["descriptions"]["captioner"]
        == "blip"
    )
    assert "descriptions" not in training_data(corpus, ["de"], backbone).about
