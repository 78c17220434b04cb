"The wheel, installed outside the checkout, searches, serves and opens the workbench from an empty folder"

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import venv
import zipfile
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from served import draw

from dasd_lab.pictograms.building import build_pictograms
from dasd_lab.pictograms.scenes import ScenesSpec
from dasd_lab.runs.onnx import export_run

ROOT = Path(__file__).resolve().parents[1]
MEGABYTE = 1e6
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"

UV = shutil.which("uv", path=os.pathsep.join((os.environ["PATH"], sysconfig.get_path("scripts"))))  # as tools/venv.sh
BORROWED = "no package index answers, so that the wheel was tried with the packages of this environment"
EVERY_MODULE = """
import importlib, pkgutil, dasd_lab
for module in pkgutil.walk_packages(dasd_lab.__path__, "dasd_lab."):
    importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    "The wheel and the source distribution, built from a copy of what git has"
    root = tmp_path_factory.mktemp("built")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a checkout of git")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("nbs/studies"):
            (root / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / "source" / name)
    for kind in ("wheel", "sdist"):
        words = [sys.executable, "-c", BUILD, kind, root]
        subprocess.run(words, cwd=root / "source", check=True, capture_output=True)
    return next(root.glob("*.whl")), next(root.glob("*.tar.gz"))


def test_the_contents(built):
    wheel, source = built
    sizes = {i.filename: i.file_size for i in zipfile.ZipFile(wheel).infolist()}
    weights = {name: size for name, size in sizes.items() if "shipped/data/weights" in name}
    assert sum(weights.values()) < 60 * MEGABYTE and wheel.stat().st_size < 60 * MEGABYTE
    for name in ("data/weights/photographs/method/model.safetensors", "nbs/guides/workbench.ipynb"):
        assert f"dasd_lab/shipped/{name}" in sizes
    meta = zipfile.ZipFile(wheel).read(next(n for n in sizes if n.endswith("/METADATA"))).decode()
    for field in (
        "Author: ",
        "Project-URL: Repository",
        "Classifier: Programming Language :: Python :: 3.14",
        "Keywords",
    ):
        assert f"\n{field}" in meta, field
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"tests/conftest.py", "constraints.txt", "setup.py", "nbs/guides/workbench.ipynb"} <= names


def links(env: Path) -> list[str]:
    "Options for uv, so that 6 GB of packages are not copied: it makes hard links or clones only beside its cache"
    told = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout
    cache = Path(told.strip())
    beside = cache.exists() and cache.stat().st_dev == env.stat().st_dev
    return [] if beside else ["--link-mode", "symlink"]


def installer(env: Path) -> list:
    "The command that installs into an environment"
    if UV:
        return [UV, "pip", "install", "-q", "--python", env / "bin/python", *links(env)]
    return [sys.executable, "-m", "pip", "--python", env / "bin/python", "install", "-q", "--no-compile"]


def pins() -> list:
    "Options for the versions that are tested, and for the torch that tools/venv.sh chose"
    torch = [f"{name}=={version(name)}" for name in ("torch", "torchvision")]
    without_triton = ["--overrides", ROOT / "tools/without_gpu.txt"] if UV and not find_spec("triton") else []
    return ["-c", ROOT / "constraints.txt", *without_triton, *torch]


def said(words: list) -> str | None:
    "What a command says where it fails"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


class Installed:
    "The wheel and its dependencies in an environment of their own, used from an empty folder"

    def __init__(self, wheel: Path, root: Path):
        self.wheel = wheel
        self.root = root
        self.borrowed = False  # whether other packages are those of this environment
        self.python = root / "env/bin/python"
        self.data = root / "user"
        self.folder = root / "empty"
        self.folder.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASD_LAB", "PYTHONPATH", "XDG"))}
        self.env = kept | dict(XDG_DATA_HOME=str(self.data), XDG_CACHE_HOME=str(root / "cache"), OMP_NUM_THREADS="1")
        self.words = [str(root / "env/bin/dasd-lab")]
        venv.create(root / "env", symlinks=True)

    def install(self, extra: str) -> None:
        "Install the wheel with an extra, and what it depends on"
        command = installer(self.root / "env")
        pinned = ["-c", ROOT / "constraints.txt"] if extra == "light" else pins()
        given = [*pinned, f"{self.wheel}[{extra}]"]
        if UV and said([*command, "--offline", *given]) is None:  # all of it is in uv's cache
            return
        failed = said([*command, *given])
        if failed is None:
            return
        no_index = said([*command, "--dry-run", "--refresh" if UV else "--no-cache-dir", "pip"])
        assert no_index, f"the package index answers, but not all can be installed: {failed}"
        self.borrow()

    def borrow(self) -> None:
        "Install the wheel alone; other packages are those of this environment"
        subprocess.run([*installer(self.root / "env"), "--no-deps", self.wheel], check=True)
        # a path in a .pth file, whose own .pth files are not read: the checkout stays out
        site = next((self.root / "env").glob("lib/python*/site-packages"))
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.env["JUPYTER_PATH"] = f"{sys.prefix}/share/jupyter"  # their templates
        self.borrowed = True

    def run(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*map(str, words)], cwd=self.folder, env=self.env, capture_output=True, text=True, check=True
        )

    def lab(self, *words) -> subprocess.CompletedProcess:
        return self.run(*self.words, *words)

    def python_says(self, code: str) -> str:
        return self.run(self.python, "-c", code).stdout.strip()

    @contextmanager
    def serving(self, *words):
        "A command that serves; yields the lines of its log until one has an address, and that address"
        with subprocess.Popen(
            [*self.words, *map(str, words)], cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield next(m[0] for line in process.stderr if (m := re.search(r"http://127\.0\.0\.1:\d+/\S*", line)))
            finally:
                process.terminate()
                process.stderr.close()


def page(address: str, seconds: float = 300) -> str:
    "A page, as soon as it answers"
    end = time.monotonic() + seconds
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # the door keeps its token in a cookie
    while True:
        try:
            with opener.open(address, timeout=seconds) as answer:
                return answer.read().decode()
        except OSError:
            assert time.monotonic() < end, address
            time.sleep(0.3)


@pytest.fixture(scope="module")
def core(built, tmp_path_factory):
    "The wheel and torch; `installed` adds to it. Removed afterwards, as pytest keeps its folders"
    root = tmp_path_factory.mktemp("installed")
    try:
        lab = Installed(built[0], root)
        lab.install("torch")
        yield lab
    finally:
        for _ in range(60):  # kernels of a stopped server may still write bytecode for a moment
            shutil.rmtree(root, ignore_errors=True)
            if not root.exists():
                break
            time.sleep(0.5)
        assert not root.exists()


@pytest.fixture(scope="module")
def installed(core):
    "What the workbench needs"
    if not core.borrowed:
        core.install("lab")
    spec = ScenesSpec(train=200, validation=20, test=24)
    build_pictograms(core.data / "dasd_lab/data/pictograms", spec=spec, progress=False)
    return core


@pytest.mark.slow
def test_the_core_loads_a_run_and_searches(core):
    if core.borrowed:
        pytest.skip(BORROWED)
    assert core.python_says("from importlib.util import find_spec; print(find_spec('jupyterlab'))") == "None"
    images = draw(core.root / "images", 1)
    found = core.lab("search", "ein rotes Feld", "--pictures", images, "--run", "pictograms", "--json")
    assert len(json.loads(found.stdout)["rows"]) == 4


@pytest.mark.slow
def test_without_torch_photographs_are_imported_and_served(built, tmp_path):
    graphs = export_run("photographs", tmp_path / "graphs")
    (tmp_path / "light").mkdir()
    lab = Installed(built[0], tmp_path / "light")
    lab.install("light")
    if lab.borrowed:
        pytest.skip(BORROWED)
    assert lab.python_says("from importlib.util import find_spec; print(find_spec('torch'))") == "None"
    assert sum(f.stat().st_size for f in (lab.root / "env").rglob("*") if f.is_file()) < 1000 * MEGABYTE
    lab.lab("gallery", "import", ROOT / "data/everyday/test", "--gallery", lab.data / "gallery", "--run", graphs)
    found = json.loads(lab.lab("search", "Pferde auf einer Wiese", "--gallery", lab.data / "gallery", "--json").stdout)
    with lab.serving("serve", lab.data / "gallery", "--port", "0") as address:
        hits = json.loads(page(f"{address}api/search?text=%E5%B0%8F%E7%8C%AB"))["hits"]
    assert (found["rows"][0]["picture"], hits[0]["id"]) == ("horses.webp", "kitten.webp")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        lab.lab("train")
    assert "the packages of the extra torch" in refused.value.stderr


@pytest.mark.slow
def test_the_dependencies_are_complete(installed):
    if installed.borrowed:
        pytest.skip(BORROWED)
    assert installed.python_says(EVERY_MODULE) == ""


def test_it_is_not_the_checkout(installed):
    assert str(installed.root) in installed.python_says("import dasd_lab; print(dasd_lab.__file__)")
    assert str(installed.data / "dasd_lab") in installed.lab("--help").stdout.replace("\n", "")


def test_search(installed):
    found = json.loads(installed.lab("search", "zwei rote Äpfel am Strand", "--json").stdout)
    assert found["language"] == "de" and len(found["rows"]) == 12
    images = draw(installed.root / "colours", 1)
    found = json.loads(installed.lab("search", "a red field", "--pictures", images, "--json").stdout)
    assert len(found["rows"]) == 4


@pytest.mark.slow
def test_serve(installed):
    images = draw(installed.root / "more", 1)
    installed.lab("gallery", "import", images, "--gallery", installed.data / "dasd_lab/galleries/mine")
    with installed.serving("serve", "mine", "--port", "0") as address:
        hits = json.loads(page(f"{address}api/search?text=a+red+field&language=en"))["hits"]
    assert len(hits) == 4


@pytest.mark.parametrize("command", ["lab", pytest.param("app", marks=pytest.mark.slow)])
def test_the_workbench_opens(installed, command):
    port = 8700 + os.getpid() % 1000
    if command == "lab":
        words = ["lab", "--", "--no-browser", f"--port={port}", "--IdentityProvider.token=x"]
        with installed.serving(*words) as address:
            assert '"guides"' in page(f"http://127.0.0.1:{port}/api/contents?token=x")
            assert "workbench" in page(f"http://127.0.0.1:{port}/api/contents/guides?token=x"), address
        assert (installed.data / "dasd_lab/notebooks/guides/workbench.ipynb").is_file()
    else:
        with installed.serving("app", "--port", port, "--", "--no-browser") as address:
            assert "voila" in page(address)


def test_nothing_is_written_elsewhere(installed):
    assert not any(installed.folder.iterdir())
