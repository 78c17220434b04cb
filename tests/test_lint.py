"The repository's own lint rules find what they are for, and nothing else"

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import check
import lint


def found(rule, source: str) -> list[str]:
    "Messages of one rule about a piece of code"
    return [message for _, message in rule(lint.nodes_of(source))]


def test_long_functions_are_found():
    body = "\n".join(f"    x = {i}" for i in range(lint.LONGEST - 1))
    assert not found(lint.too_long, f"def f():\n{body}")
    assert found(lint.too_long, f"def f():\n{body}\n    return x") == [
        "f has 51 lines; at most 50. Give its parts names."
    ]


def test_private_names_of_other_modules():
    assert len(found(lint.private_imports, "from dasd_lab.a import _b, c, __version__")) == 1


COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    "uses,pinned",
    [
        (f"a/b@{COMMIT} # v1.2.3", True),
        ("./.github/actions/own", True),
        ("a/b@v5", False),
        ("a/b@main", False),
        (f"a/b@{COMMIT}", False),  # of which version?
        (f"a/b@{COMMIT[:7]} # v1.2.3", False),
    ],
)
@pytest.mark.parametrize("before", ["      - uses: ", "        uses: "])
def test_actions_are_pinned_by_commit(before, uses, pinned):
    assert [line for line, _ in lint.unpinned_actions(f"steps:\n{before}{uses}\n")] == ([] if pinned else [2])


def test_tests_of_a_module_are_those_that_use_its_names():
    tests = check.tests_of("methods.smalr.consistency")
    assert tests and all(t.startswith("tests/test_") and "::test_" in t for t in tests)
    assert not check.tests_of("explore.theme")
