"A gallery of another user, which may not be written, is searched, listed and served; two first imports both succeed"

import os
from pathlib import Path

import pytest
from colours import Named
from fastapi.testclient import TestClient
from served import draw, make
from test_processes import PROCESSES

from dasd_lab.base.contracts import LabError
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.places import gallery_run
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.service import gallery_app

NOBODY = 65534


@pytest.fixture
def made(tmp_path):
    make(tmp_path / "gallery", draw(tmp_path / "drawn", 1)).close()
    return tmp_path / "gallery"


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
        assert refused.status_code == 400 and "permission" in refused.json()["next_step"]
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
