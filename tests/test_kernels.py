"Kernels that are forked from a process that has loaded the models"

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

COMPUTES = """
import torch
from dasd_lab.serve import kernels

def computes(request, nursery):
    with torch.inference_mode():
        torch.nn.Conv2d(3, 32, 3)(torch.rand(8, 3, 224, 224))
    print(torch.get_num_threads(), flush=True)

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
