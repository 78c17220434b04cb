"The workbench runs by itself in JupyterLab, and the guides run from top to bottom"

import json
import re
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from conftest import IDLE, NO_SPLASH, OPENED, ROOT, STATE, Lab, open_guide, settle, shoot

FOLDER = ROOT / "nbs/guides"
GUIDES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
# test_notebooks.py runs the others as well, without JupyterLab
MARKED = [pytest.param(name, marks=[pytest.mark.slow] if name != "first_search" else []) for name in GUIDES]


def test_the_server_requires_its_token(lab):
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{lab.url}api/contents")
    assert error.value.code == 403
    with urllib.request.urlopen(f"{lab.url}api/contents?token={lab.token}") as response:
        names = [entry["name"] for entry in json.load(response)["content"]]
    assert "guides" in names


@pytest.mark.parametrize("name", MARKED)
def test_guide(lab, page, name):
    open_guide(page, name)


@pytest.fixture(scope="module")
def new_lab(browser, tmp_path_factory):
    "JupyterLab as somebody starts it for the first time: the working copy of the guides, default settings"
    home = tmp_path_factory.mktemp("new lab")
    server = Lab(home, DASD_LAB_HOME=str(home), DASD_LAB_DATA=str(ROOT / "data"))
    yield server
    server.stop()


@contextmanager
def visit(browser, width: int, height: int):
    "A page in a browser of its own, with all errors and warnings of its console"
    page = browser.new_context(viewport=dict(width=width, height=height)).new_page()
    page.set_default_timeout(180_000)
    page.problems = []
    page.on("console", lambda m: m.type in ("error", "warning") and page.problems.append(m.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    page.context.close()


HITS = ".dl-ask .dl-hit"
WIDGET = """() => {
  const outputs = window.jupyterapp.shell.currentWidget.content.widgets[1].outputArea.model;
  return outputs.get(0).toJSON().data['application/vnd.jupyter.widget-view+json'].model_id;
}"""

IN_VIEW = """() => {
  const first = document.querySelector('.dl-ask .dl-hit').getBoundingClientRect();
  return first.top > 0 && first.bottom < innerHeight;
}"""


def is_quiet(page) -> bool:
    "There is no dialog and no pop-up"
    return page.locator(".jp-Dialog, .Toastify__toast, #jp-bannerContainer").count() == 0


def test_the_workbench_shows_images_without_a_click(new_lab, browser):
    lines = new_lab.log.read_text().splitlines()
    assert len(lines) == 3, lines
    assert lines[1].startswith("Workbench: http://127.0.0.1") and lines[2].startswith("Next: ")
    address = re.search(r"http://\S+", lines[1])[0]
    guides = {path: path.read_bytes() for path in FOLDER.glob("*.ipynb")}
    with visit(browser, 1600, 1000) as page:
        page.goto(address)
        page.locator(HITS).nth(11).wait_for()
        settle(page, 1000)  # a pop-up would come after the notebook
        shoot(page, "lab_1600")
        first = page.locator(HITS).first.bounding_box()
        assert first["y"] > 0 and first["y"] + first["height"] < 1000, first
        assert is_quiet(page)
        widget = page.evaluate(WIDGET)
        page.set_viewport_size(dict(width=1024, height=768))
        page.reload()
        page.locator(HITS).nth(11).wait_for()
        assert page.evaluate(WIDGET) == widget  # it did not run again
        page.wait_for_function(IN_VIEW, timeout=20_000)
        shoot(page, "lab_1024")
        assert not page.problems, page.problems
    assert len(new_lab.log.read_text().splitlines()) == 3, new_lab.log.read_text()
    assert {path: path.read_bytes() for path in FOLDER.glob("*.ipynb")} == guides


@pytest.mark.slow
def test_nothing_else_runs_by_itself(new_lab, running_lab, browser):
    for lab, path in ((new_lab, "guides/first_search.ipynb"), (running_lab, "guides/workbench.ipynb")):
        with visit(browser, 1600, 1000) as page:
            page.goto(f"{lab.url}lab/tree/guides?reset&token={lab.token}")
            page.wait_for_function("() => window.jupyterapp")
            page.evaluate("async () => { await window.jupyterapp.restored }")
            page.wait_for_function(NO_SPLASH)
            page.evaluate(OPENED, path)
            page.wait_for_function(IDLE)
            settle(page, 1000)
            counts = page.evaluate(STATE)["counts"]
            assert counts and not any(counts), counts
            cells = page.evaluate("window.jupyterapp.shell.currentWidget.content.model.sharedModel.getSource()")
            assert ("assert" in json.dumps(cells)) == (lab is running_lab)  # the working copy has no checks
        lab.end_kernels()
