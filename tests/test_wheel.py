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
from pathlib import Path

import pytest
from served import draw

from dasd_lab.corpora.pictograms.building import build_pictograms
from dasd_lab.corpora.pictograms.scenes import ScenesSpec
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import write_json

ROOT = Path(__file__).resolve().parents[1]
MEGABYTE = 1e6
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


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
    assert sum(weights.values()) < 40 * MEGABYTE and wheel.stat().st_size < 40 * MEGABYTE
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


class Installed:
    "The wheel in an environment of its own; other packages are those of this environment"

    def __init__(self, wheel: Path, root: Path):
        venv.create(root / "env", symlinks=True)
        site = next((root / "env").glob("lib/python*/site-packages"))
        with zipfile.ZipFile(wheel) as z:
            z.extractall(site)
        # a path in a .pth file, whose own .pth files are not read: the checkout stays out
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.python = root / "env/bin/python"
        self.data = root / "user"
        spec = ScenesSpec(train=200, validation=20, test=24)
        build_pictograms(self.data / "dasd_lab/data/pictograms", spec=spec, progress=False)
        self.folder = root / "empty"
        self.folder.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASD_LAB", "PYTHONPATH", "XDG"))}
        self.env = kept | dict(XDG_DATA_HOME=str(self.data), XDG_CACHE_HOME=str(root / "cache"), OMP_NUM_THREADS="1")
        self.env["JUPYTER_PATH"] = f"{sys.prefix}/share/jupyter"  # templates of the other packages
        self.words = [str(self.python), "-c", "import sys; from dasd_lab.cli import main; sys.exit(main())"]

    def lab(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*self.words, *map(str, words)], cwd=self.folder, env=self.env, capture_output=True, text=True, check=True
        )

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
def installed(built, tmp_path_factory):
    return Installed(built[0], tmp_path_factory.mktemp("installed"))


def test_it_is_not_the_checkout(installed):
    words = [installed.python, "-c", "import dasd_lab; print(dasd_lab.__file__)"]
    found = subprocess.run(words, cwd=installed.folder, env=installed.env, capture_output=True, text=True, check=True)
    assert str(installed.folder.parent) in found.stdout
    assert str(installed.data / "dasd_lab") in installed.lab("--help").stdout.replace("\n", "")


def test_search(installed):
    found = json.loads(installed.lab("search", "zwei rote Äpfel am Strand", "--json").stdout)
    assert found["language"] == "de" and len(found["rows"]) == 12
    images = draw(installed.folder.parent / "images", 1)
    found = json.loads(installed.lab("search", "a red field", "--pictures", images, "--json").stdout)
    assert len(found["rows"]) == 4


def test_serve(installed):
    images = draw(installed.folder.parent / "more", 1)
    installed.lab("gallery", "import", images, "--gallery", installed.data / "dasd_lab/galleries/mine")
    with installed.serving("serve", "mine", "--port", "0") as address:
        hits = json.loads(page(f"{address}api/search?text=a+red+field&language=en"))["hits"]
    assert len(hits) == 4


def test_demo(installed):
    backbone = next(installed.python.parents[1].rglob("shipped/data/weights/pictograms/backbone"))
    short = {}
    for i in range(len(load_preset("dasd.pictograms")["stages"])):
        short |= {f"stages.{i}.steps": 2, f"stages.{i}.batch_size": 8}
    preset = vary(load_preset("dasd.pictograms"), short) | dict(backbone=dict(folder=str(backbone)), source_model=None)
    write_json(preset, installed.data / "short.json")
    installed.lab("demo", "--preset", installed.data / "short.json", "--languages", "de")
    assert (installed.data / "dasd_lab/runs/demo/sheet.png").is_file()


@pytest.mark.parametrize("command", ["lab", "app"])
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
