"The Train explorer without a browser: trainings of a tiny model in subprocesses"

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image
from squares import TINY
from test_processes import PROCESSES
from test_runs import run_command

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.own.parallel import parts
from dasd_lab.explore.training.state import RUNNING, TrainingState
from dasd_lab.explore.workbench import Workbench, default_workbench
from dasd_lab.methods.dasd.encoder import StaticAdapter, StaticAdapterConfig
from dasd_lab.runs.loading import load_run
from dasd_lab.training import runs as training_runs
from dasd_lab.training.checkpoints import checkpoints
from dasd_lab.training.subprocess import COMMAND

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
COLOURS = dict(
    red=("rosso", (220, 40, 40)),
    blue=("blu", (40, 60, 220)),
    green=("verde", (40, 160, 60)),
    yellow=("giallo", (240, 220, 60)),
)
SIZES = dict(big="grande", small="piccolo", old="vecchio", new="nuovo", round="tondo", flat="piatto")
ENDINGS = {
    "": "",
    " on the table": " sul tavolo",
    " in the sea": " nel mare",
    " near a tree": " accanto a un albero",
    " at night": " di notte",
}
PAIRS = [  # English, Italian, id of the image
    (
        f"a {size} {colour} square{ending}.",
        f"un quadrato {COLOURS[colour][0]} {SIZES[size]}{ENDINGS[ending]}.",
        f"{colour}-{size}-{i}",
    )
    for i, ending in enumerate(ENDINGS)
    for colour in COLOURS
    for size in SIZES
]
TEXT = "en\tit\tpicture\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS)
STEPS = 300, 20  # of the two stages; an interrupted run is not to end before it is interrupted


def write_preset(folder: Path, *steps: int) -> str:  # the file
    "A preset of a DASD with some thousand parameters"
    stages = [stage | dict(steps=n) for stage, n in zip(TINY["stages"], steps)]
    preset = {key: value for key, value in TINY.items() if key != "corpus"}
    preset |= dict(name="tiny", languages=["it"], vocab_size=150, stages=stages)
    file = folder / f"tiny-{steps[0]}.json"
    file.write_text(json.dumps(preset))
    return str(file)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    "A folder corpus of one-coloured squares"
    home = tmp_path_factory.mktemp("train explorer")
    (home / "corpus/train").mkdir(parents=True)
    lines = []
    for english, _, name in PAIRS:
        colour = name.split("-")[0]
        Image.new("RGB", (16, 16), COLOURS[colour][1]).save(home / f"corpus/train/{name}.png")
        lines.append(json.dumps(dict(text=english, language="en", visual_id=name)) + "\n")
    (home / "corpus/train.jsonl").write_text("".join(lines))
    return home


@pytest.fixture(scope="session")
def bench(home):
    "A workbench with a tiny model for German, over those squares"
    torch.manual_seed(0)
    tokenizer = train_tokenizer([english for english, _, _ in PAIRS], 80)
    config = dict(
        embed_dim=16,
        vision_cfg=dict(image_size=16, layers=1, width=16, patch_size=8, head_width=16),
        text_cfg=dict(
            context_length=16,
            vocab_size=len(tokenizer),
            width=32,
            heads=2,
            layers=2,
            pool_type="eos",
            eos_id=tokenizer.end_id,
        ),
    )
    main = StaticAdapter(
        StaticAdapterConfig(("de",), token_width=16),
        Backbone(build_clip(config), tokenizer, config, "tiny"),
        train_tokenizer(["ein rotes Quadrat"], 60),
    ).eval()
    return Workbench(main, load_corpus("folder", root=home / "corpus"), ("train",))


def new_state(bench, home, runs, steps=STEPS, **options):
    "A state that has read the Italian captions"
    state = TrainingState(bench, runs, preset=write_preset(home, *steps), **options)
    state.read(TEXT, "it")
    assert state.message == ""
    assert len(state.captions.pairs) == 120
    return state


def poll_until(state, condition, timeout_s=600):
    end = time.monotonic() + timeout_s
    while not condition(state):
        assert time.monotonic() < end
        assert state.poll() in RUNNING, (state.status, state.message)
        time.sleep(0.03)


def file_bytes(folder):
    "Everything that two equal runs have in common"
    names = (
        "method/model.safetensors",
        "method/tokenizer.json",
        "backbone/open_clip_model.safetensors",
        "log.jsonl",
        "captions.jsonl",
    )
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="session")
def finished(bench, home, tmp_path_factory):
    "The state of an uninterrupted run, during which another model answers and the remaining time is estimated"
    state = new_state(bench, home, tmp_path_factory.mktemp("straight"))
    state.start()
    n_searches = 0
    while state.poll() in RUNNING:
        if state.status == "training":
            n_searches += len(bench.main.search("a red square.", "en", k=3)) == 3
        remaining = state.remaining()
        assert (remaining or 0) >= 0
        assert remaining is not None or "estimating" in state.words() or state.status == "stopping"
        time.sleep(0.1)
    assert n_searches > 5
    assert state.status == "finished", state.message
    return state


def test_a_run_through_both_stages(finished):
    stages = ("cross_lingual_alignment", "cross_modal_alignment")
    training = parts(finished.captions.pairs)["train"]
    card = json.loads((finished.folder / "card.json").read_text())
    assert card["stages"] == dict(zip(stages, STEPS))
    assert card["with_picture"] == {"it": len(training)}
    assert card["pairs"] == {"it": len(training)}
    assert card["corpus"] == "corpus"
    assert card["kept_back"] == dict(validation=6, test=12)
    assert not (finished.folder / "progress.json").exists()
    assert not (finished.folder / "checkpoints").exists()
    assert (finished.share(), finished.remaining(), finished.message) == (1, 0, "")
    assert {row["stage"] for row in finished.log} == set(stages)
    assert sum("validation" in row for row in finished.log) == STEPS[0] // 50
    alignment = [row["alignment"] for row in finished.log if "alignment" in row]
    assert alignment[-1] < 0.5 * alignment[0]


def test_results_of_the_new_model(finished):
    finished.evaluate()
    assert finished.message == ""
    assert list(finished.results["targets"]) == ["12 English sentences", "12 images"]
    assert finished.results["R@1"].between(0, 1).all()
    # R@1 again, computed here
    method = finished.trained()
    test = parts(finished.captions.pairs)["test"]
    captions = method.encode_captions([pair.target for pair in test], "it")
    sentences = method.backbone.encode_source([pair.source for pair in test])
    scores = torch.nn.functional.cosine_similarity(captions[:, None], sentences[None], dim=-1)
    recall = (scores.argmax(1) == torch.arange(len(test))).double().mean().item()
    assert finished.results["R@1"][0] == pytest.approx(recall)
    assert [row["n"] for row in json.loads((finished.folder / "evaluation.json").read_text())] == [12, 12]


def test_the_new_model_beside_the_others(finished, bench):
    before = bench.languages
    finished.add("Italian")
    assert "it" not in before
    assert "it" in bench.languages
    assert bench.model("Italian").folder == finished.folder
    finished.ask(PAIRS[0][1], 5)
    assert len(finished.hits) == 5
    loaded = load_run(finished.folder)
    torch.testing.assert_close(
        loaded.encode_captions(["un quadrato rosso."], "it"),
        bench.model("Italian").method.encode_captions(["un quadrato rosso."], "it"),
    )
    finished.ask("")
    assert finished.hits is None


def pausing_command(pause_at: int | None, *arguments):
    "The command, which pauses itself before a step, so that a signal of the test cannot come too late"
    step_of = training_runs.train_step

    def train_step(method, stage, optimizers, batch, step, *more, **options):
        if step == pause_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        return step_of(method, stage, optimizers, batch, step, *more, **options)

    training_runs.train_step = train_step
    run_command(*arguments)


def wait_for_pause(state):
    "Until the training of a state has paused itself, with what it had written by then"
    process = psutil.Process(state.child.process.pid)
    poll_until(state, lambda _: process.status() == psutil.STATUS_STOPPED)
    state.poll()


class Forked:
    "Stands for `subprocess.Popen`: the same command in a real process that need not import everything"

    pause_at: int | None = None  # step before which the process pauses itself

    def __init__(self, command, stdout, env, **options):
        arguments = self.pause_at, command[len(COMMAND) :], stdout.name, int(env["OMP_NUM_THREADS"])
        self._process = PROCESSES.Process(target=pausing_command, args=arguments)
        self._process.start()
        self.pid = self._process.pid
        self.terminate = self._process.terminate

    def poll(self):
        return self.returncode

    @property
    def returncode(self):
        return self._process.exitcode


@pytest.fixture
def forked(monkeypatch):
    "Trainings are forked; those of `finished` and of a kernel are started as the page starts them"
    monkeypatch.setattr(subprocess, "Popen", Forked)


@pytest.mark.usefixtures("forked")
def test_an_interrupted_run_ends_with_the_same_bits(finished, bench, home, tmp_path, monkeypatch):
    "Stopped, opened and resumed by another state, killed, and resumed by a third"
    runs = tmp_path / "runs"
    monkeypatch.setattr(Forked, "pause_at", 25)
    first = new_state(bench, home, runs)
    first.start()
    wait_for_pause(first)
    assert len(first.log) > 1
    first.stop()
    os.kill(first.child.process.pid, signal.SIGCONT)
    assert first.status in ("stopping", "stopped")
    assert first.wait(600) == "stopped"
    assert first.progress["state"] == "stopped"
    assert "can be resumed" in first.words()
    assert first.child.process.returncode == 130
    assert "resumes it" in first.child.exit_message()
    step = first.progress["step"]
    manifest = json.loads((checkpoints(first.folder)[-1] / "manifest.json").read_text())
    assert manifest["position"] == [0, step]

    second = TrainingState(bench, runs)
    ((label, folder),) = second.earlier_runs()
    assert label.endswith("stopped")
    second.attach(folder)
    assert (second.status, second.steps, second.language) == ("stopped", STEPS, "it")
    assert second.progress["step"] == step
    assert second.log == first.log
    monkeypatch.setattr(Forked, "pause_at", step + 30)
    second.resume()
    wait_for_pause(second)
    os.kill(second.child.process.pid, signal.SIGKILL)
    assert second.wait(600) == "failed"
    assert "SIGKILL" in second.message
    assert "Resume from the last checkpoint" in second.message

    monkeypatch.setattr(Forked, "pause_at", None)
    third = TrainingState(bench, runs)
    third.attach(folder)
    assert third.status == "failed"
    assert third.message
    third.resume()
    assert third.wait(600) == "finished", third.message
    assert file_bytes(third.folder) == file_bytes(finished.folder)


@pytest.mark.usefixtures("forked")
def test_a_failed_training_reports_its_cause(bench, home, tmp_path):
    state = new_state(bench, home, tmp_path / "runs")
    preset = json.loads(Path(state.preset).read_text())
    preset["stages"][0]["learning_rate"] = 1e30
    (tmp_path / "wild.json").write_text(json.dumps(preset))
    state.preset = str(tmp_path / "wild.json")
    state.start()
    assert state.wait(600) == "failed"
    for words in ("finite losses", "start again"):
        assert words in state.message


BEGIN = """
import sys; sys.path.insert(0, sys.argv[1])
from dasd_lab.training.subprocess import TrainingJob,TrainingProcess
from pathlib import Path
TrainingProcess(Path(sys.argv[2])/'run', TrainingJob(sys.argv[2]+'/it.tsv', 'it', sys.argv[3], sys.argv[4])).begin()
"""


@pytest.mark.slow
def test_a_training_outlives_its_kernel(finished, bench, home, tmp_path):
    "It goes on, refuses a second training in its folder, and can be stopped from another kernel"
    (tmp_path / "it.tsv").write_text(TEXT)
    arguments = [
        Path(__file__).parent,
        tmp_path,
        finished.folder / "backbone",
        write_preset(home, 30000, 20),
    ]
    kernel = [sys.executable, "-c", BEGIN, *map(str, arguments)]
    subprocess.run(kernel, check=True, timeout=600)
    state = TrainingState(bench, tmp_path)
    end = time.monotonic() + 600
    while not (tmp_path / "run/progress.json").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    state.attach(tmp_path / "run")
    assert state.status == "training"
    assert state.child.process is None
    state.read(TEXT, "it")
    state.start()
    assert "one at a time" in state.message
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(state.child.job.arguments(tmp_path / "run")) == 1
    assert "another process is training" in errors.getvalue()
    state.stop()
    assert state.wait(600) == "stopped"
    assert 0 < state.progress["step"] < 30000


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    "400 generated pairs, on the shipped models"
    state = TrainingState(default_workbench(), runs=tmp_path_factory.mktemp("example"))
    state.read_example("it", 400)
    assert state.message == ""
    return state


def test_test_captions_on_the_shipped_models(example):
    captions = example.test_captions()
    assert len(captions) == 1000
    assert {(caption.origin, caption.language) for caption in captions} == {("human", "it")}
    example.language = "br"
    assert example.test_captions() == []


@pytest.mark.parametrize(
    "data,language,words",
    [
        ("", "", "no usable pair"),
        ("a\tb", "en", "another language"),
        ("a\tb", "elvish", "the language"),
        (b"\xff\xfe", "it", "no usable pair"),
    ],
    ids=str,
)
def test_captions_that_cannot_be_read(bench, tmp_path, data, language, words):
    state = TrainingState(bench, tmp_path)
    state.language = "it"
    state.read(data, language)
    assert words in state.message
    state.start()
    assert "at least 8" in state.message
    assert not any(tmp_path.iterdir())
