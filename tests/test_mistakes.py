"Ordinary mistakes end in one line with a next step"

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from served import draw, make, picture
from squares import Squares

from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset
from dasd_lab.base.storage import writable_folder, write_json
from dasd_lab.commands.cli import main
from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.service import gallery_app
from dasd_lab.training import subprocess as subprocess_module
from dasd_lab.training.recipes import train
from dasd_lab.training.subprocess import TrainingProcess

NOT_WRITABLE = "/proc/dasd_lab"  # not even by root


def one_line(capsys, *words):
    "The message of a command that fails"
    assert main(words) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("dasd-lab: ") and "Expected" in message
    return message


def test_a_preset_without_languages(capsys, tmp_path):
    content = {name: value for name, value in load_preset("dasd.pictograms").items() if name != "languages"}
    path = str(tmp_path / "preset.json")
    write_json(content, Path(path))
    for words in (["train", path, "--dry-run"], ["speed", path]):
        assert "without `languages`" in one_line(capsys, *words)
    with pytest.raises(LabError, match="without `languages`"):
        train(path, Squares(), progress=False)


WRONG = {
    "config=3": "config = 3",
    "stages=3": "stages = 3",
    "method=[1]": "method = [1]",
    "corpus=3": "corpus = 3",
    "tokenizer=foo": "tokenizer = 'foo'",
    "languages=de": "languages = 'de'",
    "base=dasd.paper": "the setting 'base'",
    "config.token_width=0": "token_width = 0",
    "foo=3": "no setting 'foo'",
    "foo.bar=3": "no setting 'foo.bar'",
    "stages.².steps=3": "no setting 'stages.².steps'",
}


@pytest.mark.parametrize("change", WRONG)
def test_a_setting_of_the_wrong_kind_is_refused_as_in_a_file(capsys, change):
    assert WRONG[change] in one_line(capsys, "train", "dasd.pictograms", "--dry-run", "--set", change)


def test_a_folder_that_cannot_be_written(capsys, tmp_path):
    with pytest.raises(LabError, match="write permission"):
        writable_folder(NOT_WRITABLE)
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="write permission"):
        writable_folder(tmp_path / "file")
    assert writable_folder(tmp_path / "new" / "folder").is_dir()
    assert NOT_WRITABLE in one_line(capsys, "train", "dasd.pictograms", "--out", NOT_WRITABLE)


def test_a_folder_that_cannot_be_written_is_refused_first(capsys, monkeypatch):
    def too_early(*_, **__):
        raise AssertionError("work before the folder was checked")

    monkeypatch.setattr("dasd_lab.commands.demo.load_corpus", too_early)
    monkeypatch.setattr("dasd_lab.runs.pretrained.Pretrained.from_run", too_early)
    assert NOT_WRITABLE in one_line(capsys, "demo", "--out", NOT_WRITABLE)
    assert NOT_WRITABLE in one_line(capsys, "publish", "pictograms", f"{NOT_WRITABLE}/model")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_an_error_of_the_system_is_one_line(capsys, monkeypatch, code):
    def failing(words):
        raise OSError(code, os.strerror(code), "results.csv")

    monkeypatch.setattr("dasd_lab.commands.cli.command_line", failing)
    message = one_line(capsys)
    assert "results.csv" in message and os.strerror(code) in message


def test_a_corpus_that_is_not_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    for words in (["consistency"], ["evaluate"], ["search", "Hund"], ["translate", "--to", "de", "--engine", "x"]):
        assert "It belongs in" in one_line(capsys, *words, "--corpus", "multi30k")


@pytest.fixture
def gallery(tmp_path):
    return make(tmp_path / "gallery", draw(tmp_path / "drawn", 2))


@pytest.mark.parametrize(
    "error", [OSError("LanceError(IO): No space left on device (os error 28)"), RuntimeError("lance")]
)
def test_a_full_disk_while_a_gallery_is_written(gallery, tmp_path, monkeypatch, error):
    def full(*_, **__):
        raise error

    before = len(gallery)
    with monkeypatch.context() as m:
        for name in ("insert", "merge_insert", "delete"):
            m.setattr(type(gallery.engine.table), name, full)
        for change in (
            lambda: gallery.add([picture("red", 5)], ids=["new"]),
            lambda: gallery.change(["red-00.png"], dict(shade=7)),
            lambda: gallery.engine.remove(["red-00.png"]),
        ):
            with pytest.raises(LabError, match="cannot be used") as e:
                change()
            assert "Free some space" in e.value.next_step
        ask = TestClient(gallery_app(gallery, ServiceSettings(may_write=True)), base_url="http://localhost")
        answer = ask.patch("/api/picture", params=dict(id="red-00.png"), json=dict(facts=dict(shade=7)))
        assert answer.status_code == 503 and "Free some space" in answer.json()["next_step"]
    assert len(gallery) == before
    gallery.change(["red-00.png"], dict(shade=7))  # the lock is free again


def test_a_training_that_was_just_started_is_stopped_from_another_page(tmp_path, monkeypatch):
    "Before its first step there is no progress of its own, and an older file names another process"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    order = dict(captions="a.tsv", language="it", backbone="b")
    write_json(dict(order=order, began=time.time(), pid=child.pid), tmp_path / "order.json")
    old = dict(pid=os.getpid(), time=1.0, state="training")
    monkeypatch.setattr(subprocess_module, "read_progress", lambda folder: old)
    monkeypatch.setattr(TrainingProcess, "alive", True)
    process = TrainingProcess(tmp_path)
    process.stop()
    assert child.wait(30) == -signal.SIGTERM
    process.stop()  # it has ended meanwhile
