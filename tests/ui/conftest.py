"A JupyterLab of our own and a real browser"
import json,os,re,shutil,signal,socket,subprocess,sys,time
from pathlib import Path
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT/'tests/shots'
BROWSER = os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, ('chromium','google-chrome','chromium-browser'))), None)
FLAGS = ['--no-sandbox','--disable-gpu','--disable-dev-shm-usage','--disable-background-networking','--disable-component-update',
         '--disable-sync','--no-first-run','--no-default-browser-check']

def free_port()->int:
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]

class Lab:
    "`dasd-lab lab` as a child, on a copy of the notebooks, with settings of its own"
    def __init__(self, home:Path):
        self.notebooks,self.log = home/'nbs',home/'server.log'
        # the address of the repository stays out of it: nothing that the test saves reaches the working tree
        shutil.copytree(ROOT/'nbs', self.notebooks, ignore=shutil.ignore_patterns('.ipynb_checkpoints','_drafts'))
        quiet = {'apputils-extension/notification':dict(fetchNews='false', checkForUpdates=False, doNotDisturbMode=True),
                 'notebook-extension/tracker':dict(windowingMode='none')}
        for plugin,settings in quiet.items():
            f = home/f'settings/@jupyterlab/{plugin}.jupyterlab-settings'
            f.parent.mkdir(parents=True)
            f.write_text(json.dumps(settings))
        own = {f'JUPYTER_{k}_DIR':str(home/k.lower()) for k in ('CONFIG','DATA','RUNTIME')}
        own |= dict(IPYTHONDIR=str(home/'ipython'), JUPYTERLAB_SETTINGS_DIR=str(home/'settings'), JUPYTERLAB_WORKSPACES_DIR=str(home/'workspaces'))
        self.port = free_port()
        command = [Path(sys.executable).parent/'dasd-lab','lab','--notebooks',self.notebooks,'--','--no-browser',f'--port={self.port}',
                   '--ServerApp.port_retries=0','--LabApp.expose_app_in_browser=True']
        self.child = subprocess.Popen(command, cwd=ROOT, env=os.environ|own, stdout=self.log.open('w'), stderr=subprocess.STDOUT,
                                      stdin=subprocess.DEVNULL, start_new_session=True)
        self.url,self.token = self._address(time.monotonic()+180)

    def _address(self, until:float)->tuple[str,str]:
        "What a person would copy from the terminal"
        while time.monotonic()<until:
            if m := re.search(r'http://127\.0\.0\.1:(\d+)/\S*\?token=(\w+)', self.log.read_text()): return f'http://127.0.0.1:{m[1]}/',m[2]
            if self.child.poll() is not None: break
            time.sleep(.2)
        self.stop()
        raise RuntimeError(f'JupyterLab did not start:\n{self.log.read_text()[-3000:]}')

    def stop(self):
        "The server ends its own kernels"
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGTERM)
            try: self.child.wait(20)
            except subprocess.TimeoutExpired: os.killpg(self.child.pid, signal.SIGKILL)

@pytest.fixture(scope='session')
def browser():
    if BROWSER is None: pytest.skip('no Chromium on this machine; as root: apt-get install chromium fonts-noto-core fonts-noto-cjk')
    sync_api = pytest.importorskip('playwright.sync_api')
    with sync_api.sync_playwright() as p:
        b = p.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield b
        b.close()

@pytest.fixture
def page(browser, request):
    "A page that remembers what it asked other hosts for; a screenshot is kept in tests/shots"
    context = browser.new_context(viewport=dict(width=1400, height=1000))
    pg = context.new_page()
    pg.set_default_timeout(60_000)
    pg.outside = []
    pg.on('request', lambda r: pg.outside.append(r.url) if re.match('https?:|wss?:', r.url) and '//127.0.0.1' not in r.url else None)
    yield pg
    SHOTS.mkdir(exist_ok=True)
    pg.screenshot(path=SHOTS/f'{re.sub("[^A-Za-z0-9]+", "_", request.node.name).strip("_")}.png')
    context.close()

@pytest.fixture(scope='session')
def lab(browser, tmp_path_factory):
    server = Lab(tmp_path_factory.mktemp('lab of our own'))
    yield server
    server.stop()
