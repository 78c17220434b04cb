"Kernels that are forked from a process that has loaded the models"

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from dasd_lab.serve import forking, kernels
from dasd_lab.serve.kernels import ForkedProcess, KernelNursery

COMPUTES = """
import torch
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.serve import kernels

add = Gallery.add

def add_some(gallery, visuals, **options):
    return add(gallery, visuals[:64], **options)  # of a thousand that a workbench embeds

def computes(request, nursery):
    with torch.inference_mode():
        torch.nn.Conv2d(3, 32, 3)(torch.rand(8, 3, 224, 224))
    print(torch.get_num_threads(), flush=True)

Gallery.add = add_some
kernels._become_kernel = computes
kernels.fork_kernels()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
def test_a_forked_kernel_computes_with_several_threads():
    "As people start it: without OMP_NUM_THREADS, so that torch has several threads, which do not survive a fork"
    asked = json.dumps(dict(arguments=[], environment={}, folder=os.getcwd())) + "\n"
    child = subprocess.Popen(
        [sys.executable, "-c", COMPUTES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | dict(OMP_NUM_THREADS="2", DASD_LAB_WORLD="pictograms"),
        start_new_session=True,
    )
    try:
        said, _ = child.communicate(asked, timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    number, threads = sorted(map(int, said.split()), reverse=True)
    assert number != child.pid and threads == 2


def test_kernels_are_not_forked_beside_a_gpu(tmp_path, monkeypatch):
    "CUDA that was asked for devices does not survive a fork: a kernel that trains needs a fresh process"
    monkeypatch.setattr(forking, "GPUS", (str(tmp_path),))
    factory = kernels.KernelProvisionerFactory.instance()
    before = factory.default_provisioner_name
    assert not kernels.fork_kernels_from_now_on()
    assert factory.default_provisioner_name == before


class Answers:
    "Stands for the process that forks: it answers each request, late, with the next number"

    def __init__(self):
        self.stdin = self.stdout = self
        self.asked = asyncio.Queue()
        self.n = 0

    def write(self, line):
        self.n += 1
        self.asked.put_nowait(self.n)

    async def drain(self):
        pass

    async def readline(self):
        await asyncio.sleep(0.05)
        return f"{await self.asked.get()}\n".encode()


def test_a_cancelled_start_does_not_give_its_process_to_the_next():
    async def starts():
        nursery = KernelNursery()
        nursery._process = Answers()
        nursery._code = kernels.last_change()
        first = asyncio.create_task(nursery.fork([], {}, "."))
        await asyncio.sleep(0.01)
        first.cancel()
        return await nursery.fork([], {}, "."), await nursery.fork([], {}, ".")

    assert asyncio.run(starts()) == (2, 3)


def test_a_process_that_has_ended_is_not_signalled():
    child = subprocess.Popen([sys.executable, "-c", ""])
    forked = ForkedProcess(child.pid)
    child.wait()
    assert forked.poll() == 0
    forked.terminate()
