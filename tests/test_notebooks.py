"Every notebook under nbdev's own runner, counted one by one"

import atexit
import os
import sys

import nbdev.test
import pytest
import torch
from execnb.shell import CaptureShell
from nbdev.config import get_config
from nbdev.doclinks import nbglob

from dasd_lab.base.contracts import METHODS

CONFIG = get_config()
FOLDER = CONFIG.nbs_path
# guides run in kernels of their own (make guides); studies only re-read results here, their heavy cells are flagged
PATHS = sorted(p for p in nbglob(FOLDER, as_path=True) if "guides" not in p.relative_to(FOLDER).parts)
SHARE, SHARES = map(int, os.environ.get("NOTEBOOKS", "1/1").split("/"))  # so that shares can run side by side
PATHS = PATHS[SHARE - 1 :: SHARES]


@pytest.fixture
def shells(monkeypatch):
    "Shells end with their notebook; IPython would keep each until the process ends"
    made = []

    def shell(*given):
        made.append(CaptureShell(*given, mpl_format="png"))  # nobody looks at the figures on a fine screen
        return made[-1]

    monkeypatch.setattr(nbdev.test, "CaptureShell", shell)
    yield
    for s in made:
        atexit.unregister(s.atexit_operations)
        s.history_manager.end_session()
        s.history_manager.close()


@pytest.mark.parametrize("path", PATHS, ids=lambda p: str(p.relative_to(FOLDER)))
def test_notebook(path, shells):
    here = os.getcwd()
    known = dict(METHODS)
    places = [*sys.path]
    try:
        passed, seconds = nbdev.test.test_nb(
            path.absolute(), skip_flags=CONFIG.tst_flags.split(), basepath=CONFIG.config_path
        )
    finally:
        os.chdir(here)
        sys.path[:] = places  # or every import would look in the folders of all notebooks before
        torch.set_grad_enabled(True)
        # a notebook's own class would stand in for the package's in those that follow
        for name in [n for n, cls in METHODS.items() if not cls.__module__.startswith("dasd_lab")]:
            del METHODS[name]
            if name in known:
                METHODS[name] = known[name]
    assert passed, f"{path.name} failed after {seconds:.1f} s, see the traceback above"
