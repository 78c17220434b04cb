"The guides run from top to bottom in JupyterLab"

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import open_guide

# guides that the tests of the explorers run
TESTED_ELSEWHERE = {
    "ask_in_any_language",
    "inside_the_adapters",
    "clusters_of_expression",
    "compare_runs",
    "semantic_slots",
    "shared_words",
}
FOLDER = Path(__file__).resolve().parents[2] / "nbs/guides"
GUIDES = sorted(path for path in FOLDER.glob("*.ipynb") if path.stem not in TESTED_ELSEWHERE)


def test_the_server_requires_its_token(lab):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{lab.url}api/contents")
    assert error.value.code == 403
    with urllib.request.urlopen(f"{lab.url}api/contents?token={lab.token}") as response:
        names = [entry["name"] for entry in json.load(response)["content"]]
    assert "guides" in names


@pytest.mark.parametrize("path", GUIDES, ids=lambda p: p.stem)
def test_guide(lab, page, path):
    open_guide(page, path.stem)
    assert not page.outside, page.outside
    assert not page.problems, page.problems
