"A gallery of another user, which may not be written, is searched, listed and served; two first imports both succeed"

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from colours import Named
from fastapi.testclient import TestClient
from served import draw, make
from test_processes import PROCESSES
from test_serve import SERVE

from dasd_lab.base.contracts import LabError
from dasd_lab.runs.loading import load_run
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.places import gallery_run
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.service import gallery_app

NOBODY = 65534


@pytest.fixture
def made(tmp_path):
    make(tmp_path / "gallery", draw(tmp_path / "drawn", 1)).close()
    shutil.copytree(Path(__file__).parents[1] / "data/weights/pictograms", tmp_path / "gallery/another name")
    return tmp_path / "gallery"


@pytest.fixture
def expected():
    return load_run("pictograms").encode_captions(["ein Hund"], "de")


def test_a_run_that_was_copied_renamed_and_may_not_be_written(expected, of_another):
    method = load_run(of_another / "another name")
    assert method.encode_captions(["ein Hund"], "de").equal(expected)


@pytest.fixture
def tmp_path():
    "Outside of pytest's folder, which every run of pytest closes to others when it starts"
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_commands_of_another_user_in_an_unusual_environment(tmp_path):
    "Without English or UTF-8 in the locale, a home, a folder for temporary files, a wide terminal, or rights of others"
    for folder in (tmp_path, draw(tmp_path / "Bilder ü", 1)):
        folder.chmod(0o755)
    place = tmp_path / "own"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    here = Path(__file__).parent
    env = dict(PATH=os.environ["PATH"], LC_ALL="C", COLUMNS="20", TMPDIR="/missing", HOME="/missing")
    env |= dict(PYTHONPATH=os.pathsep.join([str(here), str(here.parent)]), PYTHONDONTWRITEBYTECODE="1")
    is_for_all = all(p.stat().st_mode & 0o001 for p in Path(sys.executable).resolve().parents)
    user = dict(user=NOBODY, group=NOBODY) if os.geteuid() == 0 and is_for_all else {}
    for words in (
        ["gallery", "import", str(tmp_path / "Bilder ü"), "--gallery", "g"],
        ["gallery", "info", "g"],
        ["search", "grün", "--language", "de", "--gallery", "g", "-k", "1"],
    ):
        command = [sys.executable, "-c", SERVE, *words]
        done = subprocess.run(command, cwd=place, env=env, umask=0o077, capture_output=True, check=False, **user)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert b"green-00.png" in done.stdout and (place / "g/gallery.json").stat().st_mode & 0o077 == 0


@pytest.fixture
def of_another(made):
    "The gallery without the right to write it"
    parents = [p for p in made.parents if len(p.parts) > 2]
    before = {p: p.stat().st_mode for p in parents}
    for parent in parents:
        parent.chmod(0o755)
    for path in (made, *made.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield made
    finally:
        os.seteuid(os.getuid())
        for path, mode in before.items():
            path.chmod(mode)
        for path in (made, *made.rglob("*")):
            path.chmod(0o755)


def test_a_gallery_that_may_not_be_written(of_another):
    folder = of_another
    gallery = StoredGallery(folder, Named())
    try:
        assert gallery_run(folder) == "" and len(gallery) == 4
        hits = gallery.search("rot", "de")
        assert hits.ids[0] == "red-00.png" and gallery.thumbnails[hits.ids[0]][:4] == b"RIFF"
        assert list(gallery.facts(["red-00.png"])["colour"]) == ["red"]
        ask = TestClient(gallery_app(gallery, ServiceSettings(may_write=True)), base_url="http://localhost")
        answer = ask.get("/api/search", params=dict(text="rot", language="de"))
        assert answer.json()["hits"][0]["id"] == "red-00.png"
        assert ask.get("/api/thumbnail", params=dict(id="red-00.png")).status_code == 200
        refused = ask.patch("/api/picture", params=dict(id="red-00.png"), json=dict(facts=dict(shade=7)))
        assert refused.status_code == 503 and "permission" in refused.json()["next_step"]
        for change in (lambda: gallery.delete("red-00.png"), lambda: gallery.thumbnails.put({"x": b""})):
            with pytest.raises(LabError, match="cannot be used") as e:
                change()
            assert "remove" not in e.value.next_step
    finally:
        gallery.close()


def import_again_and_again(both, gallery: Path, drawn: Path, rounds: int):
    "Import a folder into new galleries, beginning when another process does"
    both.wait(300)
    for i in range(rounds):
        opened = StoredGallery(f"{gallery}{i}", Named(), dict(year="integer"), run="photographs")
        report = import_folder(opened, drawn)
        assert len(opened) == 4 and not report.failed
        opened.close()


def test_two_first_imports_at_once(tmp_path):
    drawn = draw(tmp_path / "drawn", 1)
    rounds = int(os.environ.get("SOAK", "6"))
    words = [PROCESSES.Barrier(2), tmp_path / "gallery", drawn, rounds]
    both = [PROCESSES.Process(target=import_again_and_again, args=words) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(300)
        assert process.exitcode == 0
    for i in range(rounds):
        gallery = StoredGallery(f"{tmp_path}/gallery{i}", Named())
        assert len(gallery) == len(gallery.thumbnails) == 4 and len(gallery.embeddings) == 1
        gallery.close()
