"A killed process leaves no helping processes; the next one removes its files, and no one else's"

import os
import random
import signal
import time
from pathlib import Path

import pytest
from colours import Named
from PIL import Image
from squares import SOURCE, TINY, Squares
from test_processes import PROCESSES

from dasd_lab.base.presets import vary
from dasd_lab.base.storage import whole_folder
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.stored import StoredGallery

KILLS = int(os.environ.get("SOAK", "1"))


def litter(folder: Path) -> list[Path]:
    return [p for p in folder.glob(".*") if p.is_dir()]


def until(condition, seconds: float = 60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def publish(run: Path, folder: Path, began: Path) -> None:
    from dasd_lab.runs.pretrained import Pretrained

    model = Pretrained.from_run(run)
    began.touch()
    model.save_pretrained(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def import_all(pictures: Path, gallery: Path) -> None:
    import_folder(StoredGallery(gallery, Named()), pictures)


def test_an_import_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    n = 96 * (KILLS + 1)
    for i in range(n):
        Image.new("RGB", (8, 8), (i % 256, i // 256, 0)).save(pictures / f"{i}.png")
    stored = []
    for _ in range(KILLS + 1):
        p = PROCESSES.Process(target=import_all, args=(pictures, tmp_path / "gallery"))
        p.start()
        until((tmp_path / "gallery/gallery.json").exists)
        p.join(random.uniform(0, 1))
        p.kill()
        p.join()
        stored.append(len(StoredGallery(tmp_path / "gallery", Named())))
    assert stored == sorted(stored), "an image was lost"
    gallery = StoredGallery(tmp_path / "gallery", Named())
    assert not import_folder(gallery, pictures).failed and len(gallery) == n
    assert gallery.embed() == 0


def import_captions(source: Path, folder: Path, began: Path) -> None:
    from dasd_lab.corpora.own.corpus import import_corpus, understand

    understood = understand(source / "captions.csv", source)
    began.touch()
    import_corpus(understood, folder)


@pytest.fixture(params=[pytest.param(publish, marks=pytest.mark.slow), import_captions])
def job(request, tmp_path):
    "What writes a folder, and what it is made from"
    from dasd_lab.training.recipes import train
    from dasd_lab.training.source_model import train_source

    if request.param is publish:
        quick = vary(TINY, {"stages.0.steps": 3, "stages.1.steps": 2})
        backbone = train_source(vary(SOURCE, {"phases.0.steps": 2, "phases.1.steps": 2}), Squares(), progress=False)
        return publish, train(quick, Squares(), out=tmp_path / "run", backbone=backbone, progress=False).folder
    source = tmp_path / "pictures"
    source.mkdir()
    Image.new("RGB", (8, 8)).save(source / "0.png")
    (source / "captions.csv").write_text("visual_id,language,text\n" + "0.png,de,ein Bild\n" * 2000)
    return import_captions, source


def test_writing_that_is_killed_leaves_a_whole_folder_or_none(job, tmp_path):
    "Half of the kills come at any moment, half while the folder is written"
    write, source = job
    start = time.monotonic()
    write(source, tmp_path / "straight/model", tmp_path / "began")
    took = time.monotonic() - start
    expected = contents(tmp_path / "straight/model")
    place = tmp_path / "published"
    rng = random.Random(time.time_ns())
    whole = inside = 0
    for kill in range(2 * KILLS):
        began = tmp_path / f"began {kill}"
        before = set(litter(place))
        p = PROCESSES.Process(target=write, args=(source, place / "model", began))
        p.start()
        if kill % 2:
            until(began.exists)
        time.sleep(rng.uniform(0, took))
        p.kill()
        p.join()
        assert p.exitcode in (0, -signal.SIGKILL)
        inside += bool(set(litter(place)) - before)
        if (place / "model").exists():
            assert contents(place / "model") == expected
            (place / "model").rename(tmp_path / f"whole {kill}")
            whole += 1
    write(source, place / "model", tmp_path / "last")
    assert contents(place / "model") == expected and [p.name for p in place.iterdir()] == ["model"]
    print(f"{2 * KILLS} kills, {inside} of them while it wrote, {whole} after it")
    assert KILLS < 20 or inside


def test_an_interrupt_between_the_two_renames_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    with whole_folder(folder) as fresh:
        (fresh / "x").write_text("first")
    renames = []

    def interrupted(source, target, real=os.replace):
        renames.append(Path(target).name)
        if len(renames) == 2:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_folder(folder) as fresh:
        (fresh / "x").write_text("second")
    assert renames == [".a-old", "a", "a"], "set aside, interrupted, put back"
    assert (folder / "x").read_text() == "first" and [p.name for p in tmp_path.iterdir()] == ["a"]
