"A JupyterLab of our own and a real browser"

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

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "tests/shots"
# the first draws no window around the page: a quarter less work
BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"))), None
)
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

# what JupyterLab and Voilà themselves put on the console: a missing favicon, and a terminal or workspace that is not there
HARMLESS = r"favicon|/api/workspaces|/lsp/|ResizeObserver"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def own_folders(home: Path) -> dict[str, str]:
    "Jupyter's folders away from the person's own"
    return {f"JUPYTER_{k}_DIR": str(home / k.lower()) for k in ("CONFIG", "DATA", "RUNTIME")} | dict(
        IPYTHONDIR=str(home / "ipython")
    )


class Lab:
    "`dasd-lab lab` as a child, on a copy of the notebooks, with settings of its own"

    def __init__(self, home: Path):
        self.notebooks = home / "nbs"
        self.log = home / "server.log"
        # the address of the repository stays out of it: nothing that the test saves reaches the working tree
        shutil.copytree(ROOT / "nbs", self.notebooks, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "_drafts"))
        quiet = {
            "apputils-extension/notification": dict(fetchNews="false", checkForUpdates=False, doNotDisturbMode=True),
            "notebook-extension/tracker": dict(windowingMode="none"),
        }
        for plugin, settings in quiet.items():
            f = home / f"settings/@jupyterlab/{plugin}.jupyterlab-settings"
            f.parent.mkdir(parents=True)
            f.write_text(json.dumps(settings))
        own = own_folders(home) | dict(
            JUPYTERLAB_SETTINGS_DIR=str(home / "settings"), JUPYTERLAB_WORKSPACES_DIR=str(home / "workspaces")
        )
        self.port = free_port()
        command = [
            Path(sys.executable).parent / "dasd-lab",
            "lab",
            "--notebooks",
            self.notebooks,
            "--",
            "--no-browser",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            "--LabApp.expose_app_in_browser=True",
        ]
        self.child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | own,
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.url, self.token = self._address(time.monotonic() + 300)

    def _address(self, until: float) -> tuple[str, str]:
        "What a person would copy from the terminal"
        while time.monotonic() < until:
            if m := re.search(r"http://127\.0\.0\.1:(\d+)/\S*\?token=(\w+)", self.log.read_text()):
                return f"http://127.0.0.1:{m[1]}/", m[2]
            if self.child.poll() is not None:
                break
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-3000:]}")

    def end_kernels(self):
        def ask(method: str, path: str):
            return urlopen(Request(f"{self.url}api/{path}?token={self.token}", method=method), timeout=60).read()

        for session in json.loads(ask("GET", "sessions")):
            ask("DELETE", f"sessions/{session['id']}")

    def stop(self):
        stop(self.child)


def stop(child: subprocess.Popen):
    "A server ends its own kernels"
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)


class Web:
    "`dasd-lab app` as a child"

    def __init__(self, home: Path):
        self.log = home / "server.log"
        self.port = free_port()
        command = [Path(sys.executable).parent / "dasd-lab", "app", "--port", str(self.port), "--", "--no-browser"]
        self.child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | own_folders(home),
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.url = f"http://127.0.0.1:{self.port}/"
        self.wait(1)

    def wait(self, n: int):
        "Until n kernels have been made ready, each with the page in it: Voilà says when they are begun, and they rest when they are done"
        import psutil

        until = time.monotonic() + 300
        while time.monotonic() < until and self.child.poll() is None:
            time.sleep(0.2)
            if self.log.read_text().count("is filled with") < n:
                continue
            kernels = [
                p
                for p in psutil.Process(self.child.pid).children(recursive=True)
                if "ipykernel_launcher" in " ".join(p.cmdline())
            ]
            for p in kernels:
                p.cpu_percent()
            time.sleep(1)
            if kernels and all(sum(p.cpu_times()[:2]) > 3 and p.cpu_percent() < 3 for p in kernels):
                return
        self.stop()
        raise RuntimeError(f"the web page did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self):
        stop(self.child)


@pytest.fixture(scope="session")
def browser():
    if BROWSER is None:
        pytest.skip(
            "no Chromium on this machine; as root: apt-get install chromium-headless-shell fonts-noto-core fonts-noto-cjk"
        )
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield b
        b.close()


WIDE = dict(width=1400, height=1000)


def watched(page):
    "The page, which remembers what it asked other hosts for and what went wrong"
    page.set_default_timeout(180_000)
    page.outside = []
    page.problems = []
    page.on(
        "console",
        lambda m: (
            page.problems.append(m.text)
            if m.type == "error" and not re.search(HARMLESS, m.text + str(m.location))
            else None
        ),
    )
    page.on("pageerror", lambda e: page.problems.append(str(e)) if not re.search(HARMLESS, str(e)) else None)
    page.on(
        "request",
        lambda r: (
            page.outside.append(r.url) if re.match("https?:|wss?:", r.url) and "//127.0.0.1" not in r.url else None
        ),
    )
    return page


@pytest.fixture
def page(browser, request):
    "A page of its own; for a test of JupyterLab the one in which it is open. A screenshot is kept in tests/shots"
    at_desk = "lab" in request.fixturenames
    pg = request.getfixturevalue("desk")() if at_desk else watched(browser.new_context(viewport=WIDE).new_page())
    yield pg
    shoot(pg, re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_"))
    if at_desk:
        pg.evaluate(CLEARED)
    else:
        pg.context.close()


@pytest.fixture(scope="session")
def desk(browser, running_lab):
    "JupyterLab as a person has it: opened once, for its scripts take seconds to read, and then one notebook after the other"
    pg = None

    def at_it():
        nonlocal pg
        if pg is None:
            pg = watched(browser.new_context().new_page())
            pg.goto(f"{running_lab.url}lab?reset&token={running_lab.token}")
            pg.wait_for_function("() => window.jupyterapp")
            pg.evaluate(CLEARED)
        pg.set_viewport_size(WIDE)
        pg.mouse.move(0, 0)
        pg.outside.clear()
        pg.problems.clear()
        return pg

    yield at_it
    if pg:
        pg.context.close()


def shoot(page, name: str) -> Path:
    "A screenshot in tests/shots"
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
    return SHOTS / f"{name}.png"


@pytest.fixture(scope="session")
def running_lab(browser, tmp_path_factory):
    server = Lab(tmp_path_factory.mktemp("lab of our own"))
    yield server
    server.stop()


@pytest.fixture
def lab(running_lab):
    "JupyterLab, whose kernels end with the test: each holds 1.5 GB"
    yield running_lab
    running_lab.end_kernels()


@pytest.fixture(scope="session")
def web(browser, tmp_path_factory):
    server = Web(tmp_path_factory.mktemp("web page"))
    yield server
    server.stop()


IDLE = """() => { const w = window.jupyterapp?.shell.currentWidget;
  return w?.sessionContext?.isReady && w.sessionContext.session?.kernel?.status === 'idle' }"""
# run all and wait for it; the command resolves to false where a cell failed
RUN = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
STATE = """() => { const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code');
  const all = c => { const o = c.outputArea.model; return [...Array(o.length).keys()].map(i => o.get(i)) };
  return { counts: cells.map(c => c.model.executionCount),
           errors: cells.flatMap(c => all(c).filter(x => x.type === 'error').map(x => x.toJSON().evalue)),
           stderr: cells.flatMap(c => all(c).map(x => x.toJSON()).filter(x => x.name === 'stderr').map(x => [].concat(x.text).join(''))) } }"""
# pictures have arrived: those of outputs, not a widget's own icons
DRAWN = """() => [...document.querySelectorAll('.jp-RenderedImage img, .jp-RenderedHTMLCommon img, .dl-grid img')].every(i => i.complete && i.naturalWidth > 0)"""

# light, and no notebook open
CLEARED = """async () => { const app = window.jupyterapp; await app.restored;
  for (const w of [...app.shell.widgets('main')]) w.dispose();
  await app.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'}); app.shell.expandLeft() }"""
OPENED = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'}); }"


def run_notebook(page, path: str, dark: bool = False):
    "Open a notebook in JupyterLab, without its stored outputs, and run it from top to bottom"
    if dark:
        page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.evaluate(OPENED, path)
    page.wait_for_function(IDLE)
    page.evaluate("() => window.jupyterapp.commands.execute('editmenu:clear-all')")
    page.set_default_timeout(300_000)
    page.evaluate(RUN)
    page.wait_for_function(IDLE)
    page.set_default_timeout(180_000)


def open_guide(page, name: str, dark: bool = False):
    "Open a guide in JupyterLab and run it from top to bottom; a cell that fails, or says something on stderr, fails the test"
    run_notebook(page, f"guides/{name}.ipynb", dark)
    state = page.evaluate(STATE)
    assert not state["errors"], state["errors"]
    assert state["counts"] and all(state["counts"]), state["counts"]
    # progress bars are welcome
    assert not [t for t in state["stderr"] if not re.search(r"\d+%\||it/s", t)], state["stderr"]
    page.wait_for_function(DRAWN, timeout=300_000)
    return page.locator(".jp-Notebook").last
