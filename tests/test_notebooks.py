"Every notebook under nbdev's own runner, counted one by one"

import atexit
import os
import sys

import nbdev.test
import pytest
import torch
from execnb.shell import CaptureShell
from ipywidgets import Widget
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from traitlets import HasTraits

from dasd_lab.base.contracts import METHODS
from dasd_lab.explore.workbench import world_workbench

CONFIG = get_config()
FOLDER = CONFIG.nbs_path
# studies only re-read results here, their heavy cells are flagged
PATHS = sorted(nbglob(FOLDER, as_path=True))
SHARE, SHARES = map(int, os.environ.get("NOTEBOOKS", "1/1").split("/"))  # so that shares can run side by side
PATHS = PATHS[SHARE - 1 :: SHARES]
# they train a language, as other tests do; the probes of a study
SLOW = {"guides/add_a_language.ipynb", "guides/photographs.ipynb", "studies/disentangling.ipynb"}


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
        # its models and widgets; functions that it has patched into a class read their other globals there
        for name in [n for n, value in s.user_ns.items() if isinstance(value, (torch.nn.Module, HasTraits))]:
            del s.user_ns[name]
    Widget.close_all()


def marked(path):
    name = path.relative_to(FOLDER).as_posix()
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("path", map(marked, PATHS))
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
        if path.relative_to(FOLDER).as_posix() in SLOW:
            world_workbench.cache_clear()  # the language is one of its models now
        # a notebook's own class would stand in for the package's in those that follow
        for name in [n for n, cls in METHODS.items() if not cls.__module__.startswith("dasd_lab")]:
            del METHODS[name]
            if name in known:
                METHODS[name] = known[name]
    assert passed, f"{path.name} failed after {seconds:.1f} s, see the traceback above"
