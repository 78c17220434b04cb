"""A process that waits answers searches as the command itself would, and nothing of it stays behind

`searching` stands for `dasd-lab search` in most tests, so that they need no model."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dasd_lab.commands import ready
from dasd_lab.foundation import LabError

pytestmark = pytest.mark.skipif(not ready.can_fork(), reason="processes are not forked on this system")

WAITING = """
import os, sys, time
from dasd_lab.commands.ready import wait

def searching(words):
    mask = os.umask(0)
    print(os.getcwd(), os.environ.get("MARK"), f"{mask:o}", *words[1:])
    print("said", file=sys.stderr)
    if "long" in words:
        sys.stdout.flush()
        open(words[-1], "w").write(str(os.getpid()))
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            return 130
    if "killed" in words:
        os.kill(os.getpid(), 9)
    if "wrong" in words:
        sys.exit(2)
    if "broken" in words:
        raise RuntimeError("a fault")
    return 0

wait(float(sys.argv[1]), lambda: None, searching)
"""
# a process started in the background inherits that SIGINT is ignored
ASKING = """
import signal, sys
from dasd_lab.commands.ready import answered
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(answered(sys.argv[1:]) or 0)
"""
NOBODY = (
    "import sys; from dasd_lab.commands.ready import answered; sys.exit(7 if answered(sys.argv[1:]) is None else 0)"
)


def until(what, seconds=60):
    "Wait until something holds"
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def settings():
    "The environment of these tests: no process that somebody else keeps ready has it"
    return os.environ | {ready.READY_VARIABLE: "1", "DASD_LAB_TEST_READY": str(os.getpid())}


def asked(settings, *words, program=NOBODY, **options):
    return subprocess.run(
        [sys.executable, "-c", program, *words], env=settings, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(scope="module")
def waiting(settings):
    process = subprocess.Popen([sys.executable, "-c", WAITING, "10"], env=settings)
    until(lambda: asked(settings, "search").returncode == 0)
    yield settings
    process.kill()
    process.wait()


def test_output_folder_environment_and_exit_code_are_those_of_the_command(waiting, tmp_path):
    done = asked(waiting | {"MARK": "a mark"}, "search", "Füße", cwd=tmp_path, umask=0o077)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path} a mark 77 Füße\n", "said\n")
    assert asked(waiting, "search", "wrong", program=ASKING).returncode == 2
    done = asked(waiting, "search", "broken", program=ASKING)
    assert done.returncode == 1 and done.stderr.endswith("RuntimeError: a fault\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", ASKING, "search"], env=waiting, stdout=full, check=False)
    assert done.returncode == 0  # as a command whose last output cannot be written


def test_other_commands_and_other_settings_run_by_themselves(waiting):
    assert asked(waiting, "gallery", "list").returncode == 7
    assert asked(waiting | {"DASD_LAB_HOME": "/elsewhere"}, "search").returncode == 7
    assert asked(waiting | {ready.READY_VARIABLE: "0"}, "search").returncode == 7
    without_messages = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", NOBODY, "search"]
    assert subprocess.run(without_messages, env=waiting, check=False).returncode == 7


def test_another_user_is_not_answered(waiting, monkeypatch):
    for name in ("DASD_LAB_TEST_READY", ready.READY_VARIABLE):
        monkeypatch.setenv(name, waiting[name])
    with ready._connected() as connection:
        assert ready._user_of(connection) == os.getuid()
    monkeypatch.setattr(ready, "_user_of", lambda connection: os.getuid() + 1)
    assert ready._connected() is None


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_search_ends_with_its_command(waiting, tmp_path, number, code):
    place = tmp_path / "number"
    command = subprocess.Popen([sys.executable, "-c", ASKING, "search", "long", str(place)], env=waiting)
    search = int(until(lambda: place.exists() and place.read_text()))
    command.send_signal(number)
    assert command.wait(60) == code
    until(lambda: not os.path.exists(f"/proc/{search}"))


def test_a_search_that_is_killed_is_said(waiting):
    done = asked(waiting, "search", "killed", program=ASKING)
    assert done.returncode == 1 and done.stderr == (
        "said\ndasd-lab: the process that answers searches has ended. Search again.\n"
    )


def test_nobody_waits_for_a_process_that_has_ended(settings, tmp_path):
    "Also while a search that it began goes on"
    settings = settings | {"DASD_LAB_TEST_READY": "short"}
    process = subprocess.Popen([sys.executable, "-c", WAITING, "0.05"], env=settings)
    until(lambda: asked(settings, "search").returncode == 0)
    second = subprocess.run([sys.executable, "-c", WAITING, "10"], env=settings, timeout=120, check=False)
    assert second.returncode == 0  # there is one
    place = tmp_path / "number"
    long = subprocess.Popen([sys.executable, "-c", ASKING, "search", "long", str(place)], env=settings)
    until(lambda: place.exists() and place.read_text())
    assert process.wait(60) == 0
    assert asked(settings, "search", timeout=60).returncode == 7
    long.send_signal(signal.SIGINT)
    assert long.wait(60) == 130


class Asked(io.StringIO):
    "What a process is asked for"

    def __init__(self, minutes):
        super().__init__()
        self.minutes = minutes

    def close(self):
        asked = json.loads(self.getvalue())
        assert asked["words"] == ["search", "Hund"]
        self.minutes.append(asked["minutes"])
        super().close()


def test_a_process_is_started_at_a_terminal_or_where_it_is_asked_for(monkeypatch, capsys):
    started = []

    def start(command, **options):
        return SimpleNamespace(stdin=Asked(started))

    monkeypatch.setattr(ready.subprocess, "Popen", start)
    monkeypatch.setenv("DASD_LAB_TEST_READY", "nobody")
    for given, terminal in (("", False), ("", True), ("0", True), ("3", False)):
        monkeypatch.setenv(ready.READY_VARIABLE, given)
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        ready.start_waiting(["search", "Hund"])
    monkeypatch.setenv(ready.READY_VARIABLE, "soon")
    with pytest.raises(LabError, match="minutes from 0 to 1440"):
        ready.start_waiting(["search", "Hund"])
    assert started == [5, 3]
    assert "stays for 3 minutes (DASD_LAB_READY=0: none)" in capsys.readouterr().err


def test_the_second_search_prints_what_the_first_printed(settings):
    "With the shipped model for pictograms"
    settings = settings | {"DASD_LAB_TEST_READY": "a model", ready.READY_VARIABLE: "0.2"}
    command = [sys.executable, "-m", "dasd_lab.cli", "search", "zwei Hunde am Strand", "-k", "3"]

    def search():
        return subprocess.run(command, env=settings, capture_output=True, text=True, check=True)

    def said(searched):  # without the progress of embedding the images, which is done once
        return [line for line in searched.stderr.splitlines() if line.strip() and "%|" not in line]

    first = search()
    *told, promise = said(first)
    assert "stays for 0.2 minutes" in promise
    until(lambda: asked(settings, "search", "--help").returncode == 0)
    assert search().stdout == first.stdout
    assert said(search()) == told
