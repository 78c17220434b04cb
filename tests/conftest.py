"""TESTS=i/n: a share of the test files

Options: `--golden`, a folder of cases `case_*.json` with their `.npz`; `--record`, a file of deviations from them."""

import gc
import hashlib
import json
import os
import sys
from pathlib import Path

import parity
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.modules["rfc3987_syntax"] = None  # of jsonschema: takes seconds to import, and would check IRIs, which no test has
gc.set_threshold(50_000)  # as the command has it


def pytest_addoption(parser):
    parser.addoption(
        "--golden",
        metavar="DIR",
        type=Path,
        help="folder with golden cases of a method (default: those in tests/golden, by method)",
    )
    parser.addoption(
        "--record",
        metavar="FILE",
        type=Path,
        help="JSON of the largest deviations from the golden cases of one method; written when every test of it passed",
    )


SHARE, SHARES = map(int, os.environ.get("TESTS", "1/1").split("/"))  # so that shares of the files run side by side
ELSEWHERE = ("test_notebooks.py", "test_exports.py", "test_path.py")  # have targets of their own in the Makefile


def shared_out(names, share, shares):
    "The files of a share, from 1"
    return sorted(set(names) - set(ELSEWHERE))[share - 1 :: shares]


def pytest_ignore_collect(collection_path):
    "With TESTS=i/n, the i-th of n shares of the files of this folder"
    if SHARES == 1 or collection_path.parent != ROOT / "tests" or collection_path.suffix != ".py":
        return None
    names = (p.name for p in collection_path.parent.glob("test_*.py"))
    return collection_path.name not in shared_out(names, SHARE, SHARES) or None


def method_of(path):
    "Which method a case is of: its names begin with it"
    return json.loads(path.read_text(encoding="utf-8")).get("prefix", "dasd").split("_")[0]


def pytest_generate_tests(metafunc):
    "Every test that asks for `case_path` runs once a case of its module's METHOD"
    if "case_path" not in metafunc.fixturenames:
        return
    method = getattr(metafunc.module, "METHOD", "dasd")
    folder = metafunc.config.getoption("golden") or ROOT / "tests/golden" / method
    cases = [pytest.param(p, id=p.stem) for p in sorted(folder.glob("case_*.json")) if method_of(p) == method]
    assert cases, f"no golden case of {method} in {folder}"
    metafunc.parametrize("case_path", cases, scope="module")


@pytest.fixture(scope="module")
def backbone():
    "Two small towers, trained on images of squares"
    from squares import SOURCE, Squares

    from dasd_lab.training.source_model import train_source

    return train_source(SOURCE, Squares(), progress=False)


@pytest.fixture(autouse=True)
def compared_here(request):
    "What `parity.close` notes belongs to this test"
    known = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    parity.here.update(
        test=getattr(request.node, "originalname", "").removeprefix("test_").replace("_", " "),
        of=" ".join(str(v) for k, v in known.items() if k != "case_path"),
    )
    if known.get("case_path"):
        parity.CASES[known["case_path"].name] = hashlib.sha256(
            known["case_path"].with_suffix(".npz").read_bytes()
        ).hexdigest()[:12]


def pytest_collection_finish():
    "What the imports left is no garbage: the collector need not look at it again and again"
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # or some libraries complain of leaks at the end


def pytest_sessionfinish(session, exitstatus):
    "Write the record of --record"
    path = session.config.getoption("record")
    if not path or exitstatus or not parity.GROUPS:
        return
    tests = {Path(i.path): i.module for i in session.items if "case_path" in i.fixturenames}
    if len(tests) > 1:
        raise pytest.UsageError(
            f"--record {path} with {', '.join(t.name for t in tests)}. Expected one test module. Run them one by one."
        )
    ((test, module),) = tests.items()
    parity.write(path, module.METHOD, test, module.COMPUTES)
