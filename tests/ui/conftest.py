"A JupyterLab and a web page in child processes, and a browser"

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import nbformat
import pytest
from PIL import Image

from dasd_lab.explore.app import explorer

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "tests/shots"
BIN = Path(sys.executable).parent
START_TIMEOUT = 300  # seconds
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")  # the first is the fastest
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
]
WIDE = dict(width=1400, height=1000)

# console messages of JupyterLab and Voilà themselves: a missing favicon, workspace or language server
# the last one: JupyterLab's own code, when it attaches cells of a notebook on a busy machine
HARMLESS = r"favicon|/api/workspaces|/lsp/|ResizeObserver|(?s:'removeChild' on 'Node'.*/jlab_core\.)"


def find_browser() -> str | None:
    "Path of the browser; None if there is none"
    if os.environ.get("CHROMIUM"):
        return os.environ["CHROMIUM"]
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    return None


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def jupyter_folders(home: Path) -> dict[str, str]:
    "Environment variables that keep Jupyter out of the user's folders"
    return dict(
        JUPYTER_CONFIG_DIR=str(home / "config"),
        JUPYTER_DATA_DIR=str(home / "data"),
        JUPYTER_RUNTIME_DIR=str(home / "runtime"),
        IPYTHONDIR=str(home / "ipython"),
    )


class Server:
    "A `dasd-lab` command in a child process that writes a log file"

    def __init__(self, home: Path, *arguments, **environment: str):
        self.log = home / "server.log"
        self.child = subprocess.Popen(
            [BIN / "dasd-lab", *arguments],
            cwd=ROOT,
            env=os.environ | jupyter_folders(home) | environment,
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for(self, pattern: str) -> re.Match:
        "The first match in the log; an error with its end if the server ends or takes too long"
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.child.poll() is None:
            match = re.search(pattern, self.log.read_text())
            if match:
                return match
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self):
        "Stop the server, which stops its kernels"
        if self.child.poll() is not None:
            return
        os.killpg(self.child.pid, signal.SIGTERM)
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)


def write_settings(folder: Path):
    "JupyterLab settings: no news, no update checks, all cells in the page"
    settings = {
        "apputils-extension/notification": dict(fetchNews="false", checkForUpdates=False, doNotDisturbMode=True),
        "notebook-extension/tracker": dict(windowingMode="none"),
    }
    for plugin, values in settings.items():
        file = folder / f"@jupyterlab/{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))


class Lab(Server):
    "`dasd-lab lab`"

    def __init__(self, home: Path, *arguments, **environment: str):
        super().__init__(
            home,
            "lab",
            *arguments,
            "--",
            "--no-browser",
            f"--port={free_port()}",
            "--ServerApp.port_retries=0",
            "--LabApp.expose_app_in_browser=True",
            JUPYTERLAB_WORKSPACES_DIR=str(home / "workspaces"),
            **environment,
        )
        port, self.token = self.wait_for(r"http://127\.0\.0\.1:(\d+)/\S*\?token=(\w+)").groups()
        self.url = f"http://127.0.0.1:{port}/"

    def end_kernels(self):
        "Shut down all kernels"
        for session in json.loads(self._request("GET", "sessions")):
            self._request("DELETE", f"sessions/{session['id']}")

    def _request(self, method: str, path: str) -> bytes:
        request = Request(f"{self.url}api/{path}?token={self.token}", method=method)
        return urlopen(request, timeout=60).read()


class Web(Server):
    "`dasd-lab app`"

    def __init__(self, home: Path, **environment: str):
        port = free_port()
        none_waits = "--preheat_kernel=False"  # a kernel that nobody visits costs as much as one that is used
        super().__init__(home, "app", "--port", str(port), "--", "--no-browser", none_waits, **environment)
        self.home = f"http://127.0.0.1:{port}/"
        self.url = self.wait_for(rf"{re.escape(self.home)}\?token=\S+")[0]


@pytest.fixture(scope="session")
def browser():
    executable = find_browser()
    if executable is None:
        packages = "chromium-headless-shell fonts-noto-core fonts-noto-cjk"
        pytest.skip(f"no Chromium on this machine; as root: apt-get install {packages}")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as p:
        b = p.chromium.launch(executable_path=executable, args=FLAGS)
        yield b
        b.close()


def pytest_collection_modifyitems(items):
    "The documentation is built before there are kernels: each needs two gigabytes"
    items.sort(key=lambda item: item.path.name != "test_docs.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    "A test fails if its page wrote an error to the console or asked another host for something"
    funcargs = getattr(item, "funcargs", {})
    page = funcargs.get("page") or funcargs.get("workbench")
    try:
        result = yield
    except Exception:
        SHARED.pop("page", None)
        raise
    if page:
        assert not page.problems, page.problems
        assert not page.outside, page.outside
    return result


def watched(page):
    "A page that records errors in `problems` and requests to other hosts in `outside`"
    page.set_default_timeout(180_000)
    page.outside = []
    page.problems = []

    def on_console(message):
        text = message.text + str(message.location)
        if message.type == "error" and not re.search(HARMLESS, text):
            page.problems.append(message.text)

    def on_error(error):
        text = error.stack or str(error)
        if not re.search(HARMLESS, text):
            page.problems.append(text)

    def on_request(request):
        is_network = re.match("https?:|wss?:", request.url)
        if is_network and "//127.0.0.1" not in request.url:
            page.outside.append(request.url)

    page.on("console", on_console)
    page.on("pageerror", on_error)
    page.on("request", on_request)
    return page


@pytest.fixture
def page(browser, request):
    "A new page, or for tests of JupyterLab the page in which it is open; a screenshot is saved in tests/shots"
    in_lab = "lab" in request.fixturenames
    pg = request.getfixturevalue("lab_page")() if in_lab else watched(browser.new_context(viewport=WIDE).new_page())
    yield pg
    shoot(pg, re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_"))
    if in_lab:
        pg.evaluate(CLEARED)
        pg.wait_for_function(NO_SPLASH)
    else:
        leave(pg)


def leave(page):
    "A page that is left ends its kernel; a browser that is closed may not say so"
    page.goto("about:blank")
    page.context.close()


SHARED = {}  # the workbench as a web page, if it is open: its kernel takes ten seconds to start


@pytest.fixture
def workbench(browser, web, request):
    "The workbench as a web page, as the tests before left it; after a failed test a new one"
    if "page" not in SHARED:
        SHARED["page"] = watched(browser.new_context().new_page())
        SHARED["page"].goto(web.url)
        SHARED["page"].locator(".dl-ask .dl-hit").nth(11).wait_for()
    pg = SHARED["page"]
    pg.problems.clear()
    pg.outside.clear()
    pg.set_viewport_size(WIDE)
    pg.emulate_media(color_scheme="light")
    pg.mouse.move(0, 0)
    yield pg
    shoot(pg, re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_"))
    if SHARED.get("page") is not pg:
        leave(pg)


def open_tab(page, name: str):
    "Open a tab of the workbench; returns its explorer"
    page.get_by_role("tab", name=name, exact=True).click()
    panel = page.locator(f".{explorer(name).css_class}")
    panel.wait_for()
    return panel


def unfold(button):
    "Press a button that shows more, unless it is pressed"
    if button.get_attribute("aria-pressed") != "true":
        button.click()


def unfold_details(panel):
    "Show all cards that are folded at first"
    for fold in panel.locator(".dl-folded .dl-fold").all():
        unfold(fold)


@pytest.fixture(scope="session")
def lab_page(browser, running_lab):
    "Returns the page in which JupyterLab is open; it is opened once, since its scripts take seconds to load"
    pg = None

    def opened():
        nonlocal pg
        if pg is None:
            pg = watched(browser.new_context().new_page())
            pg.goto(f"{running_lab.url}lab?reset&token={running_lab.token}")
            pg.wait_for_function("() => window.jupyterapp")
            pg.wait_for_function(NO_SPLASH)
            pg.evaluate(CLEARED)
            pg.wait_for_function(NO_SPLASH)
        pg.set_viewport_size(WIDE)
        pg.mouse.move(0, 0)
        pg.outside.clear()
        pg.problems.clear()
        return pg

    yield opened
    if pg:
        pg.context.close()


WCAG = dict(type="tag", values=["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"])
# those of its rules that look at colours; a dark scheme changes nothing else
COLOURS = dict(type="rule", values=["color-contrast", "link-in-text-block"])


def violations(page, within: str | None = None, rules: dict = WCAG) -> list[str]:
    "What axe-core finds against WCAG 2.2 A and AA, on the page or in an element: the rule, the element, and the reason"
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, context=within, options=dict(runOnly=rules, resultTypes=["violations"]))
    lines = []
    for rule in found.response["violations"]:
        for node in rule["nodes"]:
            checks = node["any"] + node["all"] + node["none"]
            lines.append(f"{rule['id']}: {node['html'][:120]}: {checks[0]['message'] if checks else rule['help']}")
    return lines


STILL = """([quiet, longest]) => new Promise(resolve => {
  const done = () => { observer.disconnect(); clearTimeout(last); resolve(); };
  let timer = setTimeout(done, quiet);
  const last = setTimeout(done, longest);
  const observer = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(done, quiet); });
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
})"""


def settle(page, quiet: int = 250, longest: int = 4000):
    "Wait until nothing on the page has changed for some milliseconds"
    page.evaluate(STILL, [quiet, longest])


RECOLOURED = "() => !document.getAnimations().some(animation => animation instanceof CSSTransition)"


def colour(page, scheme: str):
    "Prefer light or dark colours from now on, and wait until the page has them"
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(RECOLOURED)


def shoot(page, name: str) -> Path:
    "Save a screenshot in tests/shots"
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
    return SHOTS / f"{name}.png"


@pytest.fixture(scope="session")
def running_lab(browser, tmp_path_factory):
    "JupyterLab on a copy of all notebooks, so that a test cannot change the working tree"
    home = tmp_path_factory.mktemp("lab of our own")
    shutil.copytree(ROOT / "nbs", home / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints", "_drafts"))
    write_settings(home / "settings")
    settings = dict(JUPYTERLAB_SETTINGS_DIR=str(home / "settings"), DASD_LAB_WORLD="pictograms")
    server = Lab(home, "--notebooks", home / "nbs", **settings)
    server.notebooks = home / "nbs"
    yield server
    server.stop()


@pytest.fixture
def lab(running_lab):
    "JupyterLab; its kernels are shut down after the test, since each uses 1.5 GB"
    yield running_lab
    running_lab.end_kernels()


def pictures_of_one_colour() -> Path:
    "A folder of images that stands for somebody's photographs; always the same, so that they are embedded once"
    folder = SHOTS / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for colour in ("red", "green", "blue", "yellow", "black", "white", "orange", "purple"):
        file = folder / f"{colour}.png"
        if not file.exists():
            Image.new("RGB", (64, 64), colour).save(file)
    return folder


@pytest.fixture(scope="session")
def web(browser, tmp_path_factory):
    folder = pictures_of_one_colour()
    server = Web(tmp_path_factory.mktemp("web page"), DASD_LAB_WORLD="pictograms", DASD_LAB_PICTURES=str(folder))
    yield server
    server.stop()


# scripts that run in JupyterLab's page
IDLE = """() => {
  const notebook = window.jupyterapp?.shell.currentWidget;
  return notebook?.sessionContext?.isReady && notebook.sessionContext.session?.kernel?.status === 'idle';
}"""
# run all cells and wait; the command resolves to false if a cell failed
# the page asks a new kernel for its widgets: a widget of the first cell is lost if that answer comes after it
RUN = """async () => {
  await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestCommInfo({});
  return await window.jupyterapp.commands.execute('notebook:run-all-cells');
}"""
STATE = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code');
  const outputs = cell => {
    const model = cell.outputArea.model;
    return [...Array(model.length).keys()].map(i => model.get(i).toJSON());
  };
  const all = cells.flatMap(outputs);
  return {
    counts: cells.map(cell => cell.model.executionCount),
    errors: all.filter(output => output.output_type === 'error').map(output => output.evalue),
    stderr: all.filter(output => output.name === 'stderr').map(output => [].concat(output.text).join('')),
  };
}"""
# all images of outputs have loaded; icons of widgets do not count
DRAWN = """() => {
  const images = document.querySelectorAll('.jp-RenderedImage img, .jp-RenderedHTMLCommon img, .dl-grid img');
  return [...images].every(image => image.complete && image.naturalWidth > 0);
}"""
# the splash screen of the start and of a theme change is gone; JupyterLab fails if two overlap
NO_SPLASH = "() => !document.getElementById('jupyterlab-splash')"
# close all notebooks and switch to the light theme
CLEARED = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  for (const widget of [...app.shell.widgets('main')]) widget.dispose();
  await app.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'});
  app.shell.expandLeft();
}"""
OPENED = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'}); }"
DARK = "() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
NO_OUTPUTS = "() => window.jupyterapp.commands.execute('editmenu:clear-all')"


def fits(page, selector: str = "html") -> bool:
    "Nothing in an element is wider than it"
    return page.evaluate(
        "s => { const e = document.querySelector(s); return e.scrollWidth <= e.clientWidth + 1 }", selector
    )


def is_dark(page) -> bool:
    "Whether the page has a dark background"
    return (
        sum(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"))
        < 200
    )


def run_notebook(page, path: str, dark: bool = False):
    "Open a notebook in JupyterLab, clear its outputs, and run all cells"
    if dark:
        page.evaluate(DARK)
    page.evaluate(OPENED, path)
    page.wait_for_function(IDLE)
    page.evaluate(NO_OUTPUTS)
    page.set_default_timeout(300_000)
    page.evaluate(RUN)
    page.wait_for_function(IDLE)
    page.set_default_timeout(180_000)


def run_cell(lab, page, source: str, dark: bool = False):
    "Run a notebook with a single cell"
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nb.metadata["kernelspec"] = dict(name="python3", display_name="Python 3", language="python")
    nbformat.write(nb, lab.notebooks / "one_cell.ipynb")
    run_notebook(page, "one_cell.ipynb", dark)
    errors = page.evaluate(STATE)["errors"]
    assert not errors, errors


def open_guide(page, name: str, dark: bool = False):
    "Run a guide in JupyterLab; errors, cells that did not run, and text on stderr fail the test"
    run_notebook(page, f"guides/{name}.ipynb", dark)
    state = page.evaluate(STATE)
    assert not state["errors"], state["errors"]
    assert state["counts"], "no code cell"
    assert all(state["counts"]), state["counts"]
    unexpected = [text for text in state["stderr"] if not re.search(r"\d+%\||it/s", text)]  # progress bars are fine
    assert not unexpected, unexpected
    page.wait_for_function(DRAWN, timeout=300_000)
    return page.locator(".jp-Notebook").last
