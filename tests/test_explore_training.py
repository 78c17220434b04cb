"The Train explorer without a browser: real trainings of a tiny model in processes of their own"

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.cli import main
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.own.parallel import parts
from dasd_lab.dasd.encoder import StaticAdapter, StaticAdapterConfig
from dasd_lab.explore.training.figures import curves
from dasd_lab.explore.training.state import RUNNING, TrainingState, corpus_word
from dasd_lab.explore.workbench import Workbench
from dasd_lab.presets import list_presets, load_preset
from dasd_lab.training.checkpoints import checkpoints
from dasd_lab.training.recipes import load_run, needs_pictures, scaled_stages

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
COLOURS = dict(
    red=("rosso", (220, 40, 40)),
    blue=("blu", (40, 60, 220)),
    green=("verde", (40, 160, 60)),
    yellow=("giallo", (240, 220, 60)),
)
SIZES = dict(big="grande", small="piccolo", old="vecchio", new="nuovo", round="tondo", flat="piatto")
PAIRS = [
    (f"a {s} {c} square{w}.", f"un quadrato {c2} {s2}{w2}.", f"{c}-{s}-{i}")
    for i, (w, w2) in enumerate(
        [
            ("", ""),
            (" on the table", " sul tavolo"),
            (" in the sea", " nel mare"),
            (" near a tree", " accanto a un albero"),
            (" at night", " di notte"),
        ]
    )
    for c, (c2, _) in COLOURS.items()
    for s, s2 in SIZES.items()
]
TEXT = "en\tit\tpicture\n" + "".join("\t".join(p) + "\n" for p in PAIRS)
STEPS = 300, 20  # of the two stages
PARTS = ["token_vectors", "disentangler", "generator", "adapters"]


def preset(folder: Path, *steps: int) -> str:
    "A DASD of some thousand parameters"
    stages = [
        dict(
            name="cross_lingual_alignment",
            steps=steps[0],
            batch_size=16,
            learning_rate=5e-3,
            trains=PARTS,
            critic={},
            terms=[dict(loss="alignment"), dict(loss="consistency", weight=0.1), dict(loss="adversarial", weight=0.1)],
        ),
        dict(
            name="cross_modal_alignment",
            steps=steps[1],
            batch_size=8,
            learning_rate=1e-3,
            trains=PARTS,
            critic={},
            terms=[dict(loss="contrastive", options=dict(temperature=0.1)), dict(loss="adversarial", weight=0.1)],
        ),
    ]
    file = folder / f"tiny-{steps[0]}.json"
    file.write_text(
        json.dumps(
            dict(
                name="tiny",
                method="dasd",
                languages=["it"],
                vocab_size=150,
                config=dict(token_width=16, adapter=dict(bottleneck=4), disentangler=dict(hidden=8)),
                stages=stages,
            )
        )
    )
    return str(file)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    "A folder corpus of plain squares"
    home = tmp_path_factory.mktemp("train explorer")
    (home / "corpus/train").mkdir(parents=True)
    rows = []
    for en, _, name in PAIRS:
        Image.new("RGB", (16, 16), COLOURS[name.split("-")[0]][1]).save(home / f"corpus/train/{name}.png")
        rows.append(dict(text=en, language="en", visual_id=name))
    (home / "corpus/train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return home


@pytest.fixture(scope="session")
def bench(home):
    "A workbench of a tiny model that reads German, over those squares"
    torch.manual_seed(0)
    tokens = train_tokenizer([p[0] for p in PAIRS], 80)
    cfg = dict(
        embed_dim=16,
        vision_cfg=dict(image_size=16, layers=1, width=16, patch_size=8, head_width=16),
        text_cfg=dict(
            context_length=16,
            vocab_size=len(tokens),
            width=32,
            heads=2,
            layers=2,
            pool_type="eos",
            eos_id=tokens.end_id,
        ),
    )
    main = StaticAdapter(
        StaticAdapterConfig(("de",), token_width=16),
        Backbone(build_clip(cfg), tokens, cfg, "tiny"),
        train_tokenizer(["ein rotes Quadrat"], 60),
    ).eval()
    return Workbench(main, load_corpus("folder", root=home / "corpus"), ("train",))


def state_of(bench, home, runs, steps=STEPS, **options):
    state = TrainingState(bench, runs, preset=preset(home, *steps), **options)
    state.read(TEXT, "it")
    assert state.message == "" and len(state.captions.pairs) == 120
    return state


def until(state, reached, timeout_s=600):
    end = time.monotonic() + timeout_s
    while not reached(state):
        assert time.monotonic() < end and state.poll() in RUNNING, (state.status, state.message)
        time.sleep(0.03)


def bits(folder):
    return {
        n: (folder / n).read_bytes()
        for n in (
            "method/model.safetensors",
            "method/tokenizer.json",
            "backbone/open_clip_model.safetensors",
            "log.jsonl",
            "captions.jsonl",
        )
    }


@pytest.fixture(scope="session")
def straight(bench, home, tmp_path_factory):
    "A run that nobody disturbed, and what a page saw of it that asked meanwhile"
    state = state_of(bench, home, tmp_path_factory.mktemp("straight"))
    state.start()
    seen = dict(guesses=[], words=set(), answered=0)
    while state.poll() in RUNNING:
        seen["answered"] += len(bench.main.search("a red square.", "en", k=3)) == 3 and state.status == "training"
        if (left := state.remaining()) is not None:
            seen["guesses"].append((dict(state.progress or {}), left))
        else:
            seen["words"].add((state.status, state.words()))
        time.sleep(0.05)
    assert state.status == "finished", state.message
    state.seen = seen
    return state


def test_a_run_through_both_stages(straight, bench):
    card = json.loads((straight.folder / "card.json").read_text())
    assert card["stages"] == dict(zip(("cross_lingual_alignment", "cross_modal_alignment"), STEPS)) and card[
        "with_picture"
    ] == card["pairs"] == {"it": len(parts(straight.captions.pairs)["train"])}
    assert (
        card["corpus"] == "corpus"
        and card["kept_back"] == dict(validation=6, test=12)
        and not (straight.folder / "progress.json").exists()
        and not (straight.folder / "checkpoints").exists()
    )
    assert straight.share() == 1 and straight.remaining() == 0 and straight.message == ""
    assert {r["stage"] for r in straight.log} == {"cross_lingual_alignment", "cross_modal_alignment"} and sum(
        "validation" in r for r in straight.log
    ) == 6
    first = [r["alignment"] for r in straight.log if "alignment" in r]
    assert first[-1] < 0.5 * first[0]
    shown = curves(straight.log, card["stages"])
    assert {t.name for t in shown.data} >= {
        "alignment",
        "consistency",
        "adversarial",
        "contrastive",
        "learning rate",
        "the gradient's norm",
        "critic is right",
        "norm of f_sa",
        "validation: mean recall",
    }
    at = next(t for t in shown.data if t.name == "learning rate")
    assert list(at.x)[-1] == sum(STEPS) - 1 and len(at.x) == sum("learning_rate" in r for r in straight.log)


def test_the_new_model_beside_the_others(straight, bench):
    straight.evaluate()
    assert straight.message == ""
    assert (
        list(straight.results["look for"]) == ["12 English sentences", "12 pictures"]
        and straight.results["R@1"].between(0, 1).all()
    )
    # counted once more, by hand
    method = straight.trained()
    test = parts(straight.captions.pairs)["test"]
    scores = torch.nn.functional.cosine_similarity(
        method.encode_captions([p.target for p in test], "it")[:, None],
        method.backbone.encode_source([p.source for p in test])[None],
        dim=-1,
    )
    assert straight.results["R@1"][0] == pytest.approx(
        (scores.argmax(1) == torch.arange(len(test))).double().mean().item()
    )
    assert [r["n"] for r in json.loads((straight.folder / "evaluation.json").read_text())] == [12, 12]
    before = bench.languages
    straight.add("Italian")
    assert "it" not in before and "it" in bench.languages and bench.model("Italian").folder == straight.folder
    straight.ask(PAIRS[0][1], 5)
    assert len(straight.hits) == 5
    own = load_run(straight.folder)
    torch.testing.assert_close(
        own.encode_captions(["un quadrato rosso."], "it"),
        bench.model("Italian").method.encode_captions(["un quadrato rosso."], "it"),
    )
    straight.ask("")
    assert straight.hits is None


def test_stopped_by_the_page_taken_up_by_another_killed_and_taken_up_again_it_ends_with_the_same_bits(
    straight, bench, home, tmp_path
):
    first = state_of(bench, home, tmp_path / "runs")
    first.start()
    until(first, lambda s: len(s.log) > 3)
    first.stop()
    assert first.status in ("stopping", "stopped")
    first.wait(600)
    assert (
        first.status == "stopped"
        and first.progress["state"] == "stopped"
        and "it can go on" in first.words()
        and first.child.process.returncode == 130
    )
    assert "goes on from there" in first.child.exit_message()
    at = first.progress["step"]
    assert json.loads((checkpoints(first.folder)[-1] / "manifest.json").read_text())["position"] == [0, at]
    second = TrainingState(bench, tmp_path / "runs")
    ((told, folder),) = second.earlier()
    assert told.endswith("stopped")
    second.attach(folder)
    assert (second.status, second.steps, second.language, second.progress["step"]) == (
        "stopped",
        STEPS,
        "it",
        at,
    ) and second.log == first.log
    second.resume()
    until(second, lambda s: s.progress.get("step", 0) > at + STEPS[0] // 4)
    os.kill(second.child.process.pid, signal.SIGKILL)
    second.wait(600)
    assert second.status == "failed" and "SIGKILL" in second.message and "Go on" in second.message
    third = TrainingState(bench, tmp_path / "runs")
    third.attach(folder)
    assert third.status == "failed" and third.message
    third.resume()
    assert third.wait(600) == "finished", third.message
    assert bits(third.folder) == bits(straight.folder)


def test_what_cannot_be_trained_says_why(bench, home, tmp_path):
    state = state_of(bench, home, tmp_path / "runs")
    broken = json.loads(Path(state.preset).read_text())
    broken["stages"][0]["learning_rate"] = 1e30
    (tmp_path / "wild.json").write_text(json.dumps(broken))
    state.preset = str(tmp_path / "wild.json")
    state.start()
    state.wait(600)
    assert (
        state.status == "failed"
        and "finite losses" in state.message
        and "batch lies in" in state.message
        and "begin again" in state.message
    ), state.message


def test_remaining_time_and_a_page_that_answers(straight):
    "Estimating until the rate was measured for a while, then what is left at that rate; polls and queries go on meanwhile (how fast: `make bench-app`)"
    guesses, words, answered = (straight.seen[k] for k in ("guesses", "words", "answered"))
    assert words and all("estimating" in said for status, said in words if status == "training") and answered > 5
    for p, left in guesses:
        # less what has gone by since; a quick machine has finished before anything is said
        assert p["measured_s"] >= 3 and 0 <= left <= (p["captions_of"] - p["captions"]) / p["captions_per_s"]


BEGIN = """
import sys; sys.path.insert(0, sys.argv[1])
from dasd_lab.training.subprocess import TrainingJob,TrainingProcess
from pathlib import Path
TrainingProcess(Path(sys.argv[2])/'run', TrainingJob(sys.argv[2]+'/it.tsv', 'it', sys.argv[3], sys.argv[4])).begin()
"""


def test_it_outlives_its_kernel_refuses_another_and_is_stopped_by_one(straight, bench, home, tmp_path):
    (tmp_path / "it.tsv").write_text(TEXT)
    # that "kernel" is gone
    subprocess.run(
        [
            sys.executable,
            "-c",
            BEGIN,
            str(Path(__file__).parent),
            str(tmp_path),
            str(straight.folder / "backbone"),
            preset(home, 30000, 20),
        ],
        check=True,
        timeout=600,
    )
    state = TrainingState(bench, tmp_path)
    end = time.monotonic() + 600
    while not (tmp_path / "run/progress.json").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    state.attach(tmp_path / "run")
    assert state.status == "training" and state.child.process is None
    state.read(TEXT, "it")
    state.start()
    assert "one at a time" in state.message
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        assert main(state.child.job.arguments(tmp_path / "run")) == 1
    assert "another process is training" in told.getvalue()
    state.stop()
    assert state.wait(600) == "stopped" and 0 < state.progress["step"] < 30000


def test_reading_and_planning_on_the_shipped_models(tmp_path):
    state = TrainingState(runs=tmp_path)
    state.read_example("it", 400)
    assert (
        state.message == ""
        and state.language == "it"
        and len(state.captions.pairs) == 400
        and state.pictured() == 400
        and corpus_word(state.workbench.corpus) == "pictograms"
    )
    assert list(state.plan()["runs"]) == ["yes", "yes"] and list(state.plan()["steps"]) == [
        s.steps for s in scaled_stages(load_preset("dasd.new_language"), 1)
    ]
    state.use_pictures = False
    assert state.plan()["runs"][1].startswith("no") and state.pictured() == 0
    people = state.human_captions()
    assert len(people) == 1000 and {c.origin for c in people} == {"human"} and {c.language for c in people} == {"it"}
    state.language = "br"
    assert state.human_captions() == []
    seen = {
        n: [needs_pictures(s) for s in scaled_stages(load_preset(n), 1)]
        for n in list_presets()
        if "stages" in load_preset(n)
    }
    ends = dict(leccr=[True], smalr=[False, False, True]) | {"smalr.mule": [False, True]}
    assert seen and all(found == ends.get(n, ends.get(n.split(".")[0], [False, True])) for n, found in seen.items())


@pytest.mark.parametrize(
    "given,told",
    [
        ((""), "no usable pair"),
        (("a\tb", "en"), "another language"),
        (("a\tb", "klingon"), "the language"),
        ((b"\xff\xfe", "it"), "no usable pair"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(bench, tmp_path, given, told):
    state = TrainingState(bench, tmp_path)
    state.language = "it"
    state.read(*([given] if isinstance(given, str) else given))
    assert told in state.message
    state.start()
    assert "at least 8" in state.message and not any(tmp_path.iterdir())
