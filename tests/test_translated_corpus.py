"A published corpus is translated, checked, trained on, evaluated, searched, published, loaded and served, by command"

import json
import shutil

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from squares import COLOURS, TINY

from dasd_lab.backbone.towers import save_backbone
from dasd_lab.base.presets import vary
from dasd_lab.base.storage import write_json
from dasd_lab.commands.cli import main
from dasd_lab.commands.galleries import open_gallery
from dasd_lab.corpora.by_machine.engines import Apertium
from dasd_lab.runs.loading import load_run
from dasd_lab.serve.limits import ServiceSettings
from dasd_lab.serve.service import gallery_app

SPLITS = dict(train=("train", 12), validation=("val", 3), test=("test_2016_flickr", 3))
SPANISH = dict(red="rojo", blue="azul", green="verde", yellow="amarillo")
ENGINES = [
    "pairs",
    pytest.param(
        "apertium",
        marks=pytest.mark.skipif(
            not shutil.which("apertium") or not Apertium().supports("en", "es"), reason="needs Apertium with en-es"
        ),
    ),
]


@pytest.fixture(scope="module")
def backbone(backbone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone") / "b"
    save_backbone(backbone, folder)
    return str(folder)


@pytest.fixture
def multi30k(tmp_path, monkeypatch):
    "Multi30K in small, with English captions alone"
    root = tmp_path / "multi30k"
    for folder in ("task1/image_splits", "task1/raw", "images"):
        (root / folder).mkdir(parents=True)
    n = 0
    for name, each in SPLITS.values():
        names, texts = [], []
        for i in range(each):
            for colour, (*_, rgb) in COLOURS.items():
                n += 1
                names.append(f"{n}.jpg")
                texts.append(f"A {colour} square stands beside {i + 2} dogs in the park.")
                Image.new("RGB", (16, 16), rgb).save(root / "images" / f"{n}.jpg")
        (root / f"task1/image_splits/{name}.txt").write_text("\n".join(names) + "\n")
        (root / f"task1/raw/{name}.en").write_text("\n".join(texts) + "\n")
    monkeypatch.setenv("DASD_LAB_MULTI30K", str(root))
    monkeypatch.setenv("DASD_LAB_MULTI30K_PICTURES", str(root / "images"))
    return root


def stand_in(root) -> str:
    "A file of pairs, which the command takes as an engine"
    path = root / "pairs.tsv"
    lines = []
    for file in sorted((root / "task1/raw").glob("*.en")):
        for text in file.read_text().splitlines():
            _, colour, *_, number, _, _, _, _ = text.split()
            lines.append(f"{text}\tUn cuadrado {SPANISH[colour]} está junto a {number} perros en el parque.\n")
    path.write_text("".join(dict.fromkeys(lines)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_documented_path(multi30k, backbone, tmp_path, capsys, engine):
    def lab(*words):
        assert main([str(w) for w in words]) == 0, capsys.readouterr().err
        return capsys.readouterr()

    engine = stand_in(tmp_path / "multi30k") if engine == "pairs" else engine
    options = ["--keep-all", "--cache", tmp_path / "cache.sqlite"]
    for split in SPLITS:
        lab("translate", "--corpus", "multi30k", "--split", split, "--to", "es", "--engine", engine, *options)
    assert "train es mt 48" in " ".join(lab("corpus", "check", "multi30k").out.split())
    changes = {"stages.0.steps": 4, "stages.1.steps": 2}
    preset = vary(TINY, changes) | dict(corpus="multi30k", languages=["es"], backbone=dict(folder=backbone))
    write_json(preset, tmp_path / "tiny.json")
    run, model = tmp_path / "run", tmp_path / "model"
    lab("train", tmp_path / "tiny.json", "--dry-run")
    lab("train", tmp_path / "tiny.json", "--out", run)
    evaluated = lab("evaluate", run, "--corpus", "multi30k", "--json")
    about = json.loads(evaluated.out)
    assert about["origin"] == "mt" and about["n_captions"] == dict(es=12)
    assert "es: no captions by people; evaluated on machine translations" in evaluated.err
    both = json.loads(lab("evaluate", run, "--corpus", "multi30k", "--languages", "en,es", "--json").out)
    assert both["origin"] == dict(en="human", es="mt")
    assert main(["evaluate", str(run), "--corpus", "multi30k", "--origin", "human"]) == 1
    assert "no captions of origin 'human'" in capsys.readouterr().err
    query = "Un cuadrado rojo está junto a 3 perros en el parque."
    found = json.loads(lab("search", query, "--language", "es", "--run", run, "--corpus", "multi30k", "--json").out)
    assert len(found["rows"]) == 12
    lab("publish", run, model, "--corpus", "multi30k", "--license", "apache-2.0")
    assert "machine-translated: es" in (model / "README.md").read_text()
    lab("publish", run, tmp_path / "on_mt", "--corpus", "multi30k", "--languages", "es", "--origin", "mt")
    assert "captions (machine-translated: es) per language" in (tmp_path / "on_mt/README.md").read_text()
    assert load_run(model).languages == ("es",)
    gallery = tmp_path / "gallery"
    lab("gallery", "import", multi30k / "images", "--gallery", gallery, "--run", model)
    with_images = open_gallery(gallery)
    ask = TestClient(gallery_app(with_images, ServiceSettings()), base_url="http://localhost")
    answer = ask.get("/api/search", params=dict(text=query, language="es", k=12))
    assert answer.status_code == 200 and len(answer.json()["hits"]) == 12
    with_images.close()
