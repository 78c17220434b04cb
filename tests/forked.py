"""Python programs in processes that are forked from one that has imported the libraries

To start Python and to import torch, open_clip and transformers takes seven seconds of processor time, a fork a tenth of
one. Inside `programs()`, `subprocess` and `multiprocessing` start `python -c`, `python -m` and scripts in this way, and
anything else as usual. Such a process is a child of the one that asked for it, with arguments, environment, folder,
streams and signals of its own, and it ends as Python ends. It cannot show what a fresh interpreter imports."""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from unittest import mock

IMPORTED = ("dasd_lab.training.recipes", "dasd_lab.cli", "dasd_lab.corpora.pictograms.corpus", "squares")
IMPORTED += ("matplotlib.backends.backend_svg", "torch.utils.tensorboard")  # at the end of a training
FREE = 500  # file descriptors from here on are not those of a program
LARGEST = 1 << 17  # bytes of a request
SET_CHILD_SUBREAPER = 36  # of prctl
USUAL = dict(executable=None, preexec_fn=None, pass_fds=(), shell=False, umask=-1, process_group=-1)
USUAL |= dict(uid=None, gid=None, gids=None)

StartedAsUsual = subprocess.Popen
spawned_as_usual = util.spawnv_passfds


def adopt_orphans(yes: bool) -> None:
    "Whether this process becomes the parent of those below it whose own has ended"
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


class Nursery:
    "The process that has imported everything; it starts when it is first needed, and ends with this one"

    def __init__(self, interpreter: str):
        self.interpreter = interpreter
        self.lock = threading.Lock()
        self.channel = None

    def start(self, environment: Mapping) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = StartedAsUsual(
                [self.interpreter, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment | dict(OMP_NUM_THREADS="1"),
            )

    def fork(self, request: Mapping, descriptors: Sequence[int]) -> int:  # process
        "Start a program with some file descriptors of this process"
        with self.lock:
            if self.channel is None:
                self.start(request["environment"])
            adopt_orphans(True)
            try:
                socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)
                pid = int(self.channel.recv(LARGEST))
                self.channel.recv(LARGEST)  # its parent has ended
            finally:
                adopt_orphans(False)
        return pid


NURSERIES = {sys.executable: Nursery(sys.executable)}


def program(words: Sequence) -> tuple[Nursery | None, list[str]]:  # None: not one that can be forked
    "The nursery of a command, and what follows the interpreter"
    interpreter, *rest = map(os.fsdecode, [words] if isinstance(words, str | bytes | os.PathLike) else words)
    rest = rest[1:] if rest[:1] == ["-u"] else rest  # what forked processes write is never kept back
    is_program = rest and (rest[0] in ("-c", "-m") or rest[0].endswith(".py"))
    return NURSERIES.get(interpreter) if is_program else None, rest


def as_started(environment: Mapping) -> bool:
    "Whether the variables that an interpreter reads when it starts are those of this one, or missing"
    return all(os.environ.get(name) == value for name, value in environment.items() if name.startswith("PYTHON"))


def requested(words: Sequence[str], descriptors: Sequence[int], folder, environment, session: bool = False) -> dict:
    return dict(
        words=words,
        descriptors=descriptors,
        folder=os.fsdecode(folder or os.getcwd()),
        environment={os.fsdecode(k): os.fsdecode(v) for k, v in (environment or os.environ).items()},
        session=session,
        interruptible=signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
    )


class Forked(subprocess.Popen):
    "A process that is forked if its command allows that"

    def _execute_child(self, *given):
        asked = signature(super()._execute_child).bind(*given).arguments
        nursery, words = program(asked["args"])
        usual = all(asked[name] == value for name, value in USUAL.items())
        if nursery is None or not usual or not as_started(asked["env"] or {}):
            return super()._execute_child(*given)
        theirs = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        ours = [asked[name] for name in ("p2cwrite", "c2pread", "errread")]
        streams = [i if fd == -1 else fd for i, fd in enumerate(theirs)]
        request = requested(words, [0, 1, 2], asked["cwd"], asked["env"], asked["start_new_session"])
        try:
            self.pid = nursery.fork(request, streams)
            self._child_created = True
        finally:
            of_pipes = {fd for fd, own in zip(theirs, ours) if own != -1}
            for fd in of_pipes | {vars(self).get("_devnull", -1)} - {-1}:
                os.close(fd)
            self._closed_child_pipe_fds = True
        return None


def spawned(path, words: Sequence, descriptors: Sequence[int]) -> int:  # process
    "A process of `multiprocessing`"
    words = [os.fsdecode(word) for word in words]
    if "-c" not in words or "resource_tracker" in words[-1]:
        return spawned_as_usual(path, words, descriptors)
    descriptors = [0, 1, 2, *sorted(map(int, descriptors))]
    nursery = NURSERIES[sys.executable]
    return nursery.fork(requested(words[words.index("-c") :], descriptors, None, None), descriptors)


@contextmanager
def programs(
    interpreter: str = sys.executable,  # of the programs that are forked; others are started as usual
):
    "Fork programs, if this system can"
    if sys.platform != "linux":
        yield
        return
    NURSERIES.setdefault(interpreter, Nursery(interpreter))
    with mock.patch.object(subprocess, "Popen", Forked), mock.patch.object(util, "spawnv_passfds", spawned):
        yield


# In the nursery


def forked_with(channel: socket.socket) -> tuple[dict, list[int]]:  # request, its file descriptors
    "Fork a process for each request; returns in each of these"
    while True:
        message, received, _, _ = socket.recv_fds(channel, LARGEST, 64)
        if not message:
            os._exit(0)
        descriptors = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE) for fd in received]
        for fd in received:
            os.close(fd)
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                channel.close()
                return json.loads(message), descriptors
            channel.send(str(pid).encode())
            os._exit(0)
        for fd in descriptors:
            os.close(fd)
        os.waitpid(between, 0)
        channel.send(b"adopted")


def become(request: Mapping, descriptors: Sequence[int]) -> None:
    "Take over what a new process is given"
    import torch

    for fd, target in zip(descriptors, request["descriptors"]):
        os.dup2(fd, target)
        os.close(fd)
    if request["session"]:
        os.setsid()
    if request["interruptible"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # those of the nursery may be files, which can seek
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))


def end_at_once(codes: Sequence[int]) -> None:
    "Leave it to the system to free what is left, if the program has ended with an exit code"
    if codes:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(codes[0])


def run(kind: str, *words: str) -> None:
    "Run a program as the interpreter does"
    if kind == "-c":
        code, *words = words
        sys.argv = ["-c", *words]
        sys.path[0] = ""
        sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
    elif kind == "-m":
        sys.argv = [*words]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *words]
        sys.path[0] = str(Path(kind).parent)
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the processes are interrupted, not the nursery
    number = int(sys.argv[1])
    channel = socket.socket(fileno=fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FREE))
    os.close(number)
    codes = []
    atexit.register(end_at_once, codes)  # the first that is registered is the last that is called
    for name in IMPORTED:
        import_module(name)
    assert threading.active_count() == 1  # of a fork, only the thread that forks goes on
    gc.collect()
    gc.freeze()
    request, descriptors = forked_with(channel)
    become(request, descriptors)
    try:
        run(*request["words"])
        codes.append(0)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            codes.append(e.code or 0)
        raise
