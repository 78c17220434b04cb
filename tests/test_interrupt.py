"Ctrl-C at any moment of a command: one line, exit code 130"

import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

TIMES = 20 if os.environ.get("SOAK") else 1
# a process started in the background inherits that SIGINT is ignored
SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from dasd_lab.commands import cli

def main(run=cli.main):
    print("ready", file=sys.stderr, flush=True)
    return run()

cli.main = main
cli.command()
"""
COMMANDS = {
    "search": ["search", "two dogs", "--run", "pictograms"],
    "plan": ["train", "dasd.pictograms", "--dry-run"],
    "train": ["train", "dasd.pictograms", "--out", "run"],
    "info": ["corpus", "info", "pictograms"],
    "table": ["table", "list"],
    "build": ["corpus", "build", "--folder", "corpus"],
    "app": ["app", "--", "--no-browser"],
    "lab": ["lab", "--", "--no-browser"],
}


def started(words, folder) -> subprocess.Popen:
    "A command that Ctrl-C can reach"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | dict(PYTHONUTF8="1"),
    )
    assert process.stderr.readline() == "ready\n"
    return process


def interrupted(words, folder, after: float, again: bool = False) -> tuple[int, str]:
    "Exit code and messages of a command that Ctrl-C reaches some seconds after its start"
    process = started(words, folder)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    if again:
        process.send_signal(signal.SIGINT)
    return process.wait(60), process.stderr.read()


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_at_any_moment(command, tmp_path):
    for i in range(TIMES):
        after = random.Random(f"{command} {i}").choice([0, 0.05, 0.3, 1, 2, 4]) * random.random()
        code, messages = interrupted(COMMANDS[command], tmp_path, after)
        assert "Traceback" not in messages, f"after {after:.3f} s: {messages}"
        if code != 0:  # it had not ended before
            assert code == 130, f"after {after:.3f} s: {messages}"
            assert "interrupted" in messages.splitlines()[-1] or "--resume" in messages.splitlines()[-1]


@pytest.mark.parametrize("command,waits", [("app", True), ("lab", False)])
def test_ctrl_c_while_a_page_starts(command, waits, tmp_path):
    "The page has started the process of its kernels; JupyterLab, which starts it later, is being loaded"
    process = started(COMMANDS[command], tmp_path)
    while " starts …" not in process.stderr.readline():
        assert process.poll() is None
    kernels = []
    while waits and not kernels and process.poll() is None:
        time.sleep(0.05)
        kernels = psutil.Process(process.pid).children(recursive=True)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert (process.wait(60), process.stderr.read()) == (130, "interrupted\n")
    assert not psutil.wait_procs(kernels, 10)[1]


def test_a_second_ctrl_c_ends_the_process(tmp_path):
    code, messages = interrupted(COMMANDS["build"], tmp_path, 1.5, again=True)
    assert code == 130 and "Traceback" not in messages
