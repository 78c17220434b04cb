"A person opens the guides in JupyterLab and runs them from top to bottom"

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import open_guide

# the guides of the explorers are run to the end by the explorers' own tests
OWN_TEST = {
    "ask_in_any_language",
    "inside_the_adapters",
    "clusters_of_expression",
    "compare_runs",
    "semantic_slots",
    "shared_words",
}
GUIDES = sorted(
    p for p in (Path(__file__).resolve().parents[2] / "nbs/guides").glob("*.ipynb") if p.stem not in OWN_TEST
)


def test_the_server_asks_for_its_token(lab):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{lab.url}api/contents")
    assert refused.value.code == 403
    with urllib.request.urlopen(f"{lab.url}api/contents?token={lab.token}") as answer:
        assert "guides" in [x["name"] for x in json.load(answer)["content"]]


@pytest.mark.parametrize("path", GUIDES, ids=lambda p: p.stem)
def test_guide(lab, page, path):
    open_guide(page, path.stem)
    assert not page.outside, page.outside
    assert not page.problems, page.problems
