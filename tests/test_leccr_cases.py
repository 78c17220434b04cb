"""`--golden DIR` takes a case of LECCR with any numbers of pictures, layers and slots, and any weights

The cases are written by `leccr_reference`, which shares no code with the package."""

import gc
import json
from collections import Counter
from pathlib import Path

import numpy as np
import parity as noted
import pytest
from leccr_reference import Reference, write_case
from parity import close

PARITY = Path(__file__).with_name("test_leccr_parity.py")
SMALL = dict(B=3, d_v=16, d_t=12, d_e=8, N_q=2, N_v=5, N_c=6, N_s=4, N_t=5, heads=2, slot_layers=1, inter_layers=1)
LARGE = dict(B=6, d_v=24, d_t=20, d_e=12, N_q=5, N_v=7, N_c=9, N_s=6, N_t=8, heads=4, slot_layers=2, inter_layers=4)
WEIGHTS = dict(alpha=0.6, w_reg=0.03, w_c=0.05, w_dstl=0.3, w_cv=0.02, lam=0.7, mu1=0.2, mu2=0.05)
OTHER = dict(alpha=0.3, w_reg=0.5, w_c=0.2, w_dstl=0.0, w_cv=0.4, lam=1.0, mu1=0.6, mu2=0.4)
CASES = (
    (dict(case="small", temp=0.1, beta_paper=0.7, beta_video_code=0.85) | SMALL | WEIGHTS, 12, 2),
    (dict(case="large", temp=0.2, beta_paper=0.3, beta_video_code=0.5) | LARGE | OTHER, 31, 1),
)


class Outcomes(Counter):
    "How many tests passed, failed and were skipped, and what was said of the failed ones"

    def __init__(self):
        super().__init__()
        self.reasons = ""

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.skipped:
            self[report.outcome] += 1
        elif report.failed:
            self["error"] += 1
        if report.failed:
            self.reasons += report.longreprtext


@pytest.fixture
def parity(monkeypatch):
    "The parity tests on the cases of a folder, as pytest runs them, in this process, which has imported everything"
    monkeypatch.setattr(noted, "GROUPS", {})
    monkeypatch.setattr(noted, "CASES", {})
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # at the end of these tests, others follow

    def run(folder, *options):
        outcomes = Outcomes()
        plain = [f"-pno:{plugin}" for plugin in ("cacheprovider", "faulthandler", "terminal")]
        code = pytest.main([*plain, str(PARITY), "--golden", str(folder), *options], plugins=[outcomes])
        return code, outcomes

    return run


def test_cases_of_other_sizes_and_weights(parity, tmp_path):
    for case, pictures, captions_each in CASES:
        write_case(tmp_path, case, pictures, captions_each)
    code, outcomes = parity(tmp_path)
    assert code == 0, outcomes.reasons[-3000:]
    # of each case, only the two comparisons with the presets' own weights are left out
    assert outcomes == dict(passed=22, skipped=4)


def test_a_changed_weight_is_noticed(parity, tmp_path):
    case, pictures, captions_each = CASES[0]
    path = write_case(tmp_path, case, pictures, captions_each)
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["config"]["w_c"] *= 1.01
    path.write_text(json.dumps(stored), encoding="utf-8")
    code, outcomes = parity(tmp_path, "-k", "losses_of_the_code")
    assert (code, outcomes) == (1, dict(failed=3)), outcomes.reasons[-300:]


def test_the_reference_reproduces_the_golden_case():
    folder = PARITY.parent / "golden/leccr"
    from test_leccr_parity import drawn

    case = json.loads((folder / "case_a.json").read_text(encoding="utf-8"))
    with np.load(folder / "case_a.npz") as z:
        arrays = {k: z[k] for k in z.files}
    given = {k: v for k, v in arrays.items() if k.startswith("in/")}
    found = Reference(case["config"], drawn(case["state_dict"], case["prefix"]), given).arrays()
    assert len(found) > 100
    for name, value in found.items():
        close(value, arrays[name], name)
