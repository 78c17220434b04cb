"""What the field of the first page needs to answer queries in a browser: graphs, tokenizers, vectors, words

Everything is computed from the shipped model for photographs when the site is built, and kept in `_proc` until the
model or this file changes. demo.js reads it."""

import gzip
import json
import shutil
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dasd_lab import load_corpus
from dasd_lab.backbone.concept_words import english_names
from dasd_lab.backbone.multilingual_e5 import open_sentence_encoder
from dasd_lab.backbone.tokens import CaptionTokenizer
from dasd_lab.backbone.towers import Backbone
from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.methods import as_array, unit
from dasd_lab.base.presets import plain
from dasd_lab.base.storage import whole_folder
from dasd_lab.corpora.captions import SCRIPTS
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.onnx import CaptionStep, _caption_inputs, write_graph, write_small
from dasd_lab.runs.shipped import run_folder
from dasd_lab.search.doubt import SENTENCES, calibration_of

ROOT = Path(__file__).resolve().parents[2]
RUN = "photographs"
NPM = ROOT / "node_modules"
# of ONNX Runtime for one thread, which needs no headers of the server, and of the tokenizers
LIBRARIES = [NPM / "onnxruntime-web/dist" / name for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs")]
LIBRARIES += [NPM / "@huggingface/tokenizers/dist/tokenizers.min.mjs"]
RUNTIME = NPM / "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm"
ROWS = 256  # token vectors in a file: a query reads a few files
UNICODE_NAMES = dict(CJK="Han", ORIYA="Oriya")  # of scripts, where they are not those of characters


class WithMatrices(nn.Module):
    "Captions of one language, and the matrices that they generate"

    def __init__(self, method: RetrievalMethod):
        super().__init__()
        self.method = method

    def forward(self, ids: Tensor, end_index: Tensor) -> tuple[Tensor, Tensor]:
        features = self.method.features(ids, end_index, self.method.languages[0], longest=ids.shape[1])
        return features["target_features"], features["generated"]


class FromVectors(nn.Module):
    "A text tower whose token vectors are given, and the head of the companion on it"

    def __init__(self, tower: Backbone, head: nn.Module | None = None):
        super().__init__()
        self.tower = tower
        self.head = head

    def forward(self, vectors: Tensor, end_index: Tensor) -> tuple[Tensor, ...]:
        tokens = self.tower.start(vectors, end_index)
        for i in range(self.tower.n_blocks):
            tokens = self.tower.block(i, tokens, end_index)
        read = self.tower.read_out(tokens, end_index)
        return (read, self.head(F.layer_norm(read, read.shape[-1:]))) if self.head else (read,)


def packed(path: Path, data: bytes) -> None:
    "A file that the page unpacks: servers of static files send it as it is"
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(data, 6, mtime=0))


def graph(folder: Path, name: str, step: nn.Module, inputs: list[Tensor], longest: int) -> None:
    "A step with matrices in eight bits"
    write_graph(step.eval(), inputs, folder / "whole.onnx", longest)
    write_small(folder / "whole.onnx", folder / "small.onnx")
    packed(folder / f"{name}.onnx", (folder / "small.onnx").read_bytes())
    for written in ("whole.onnx", "small.onnx"):
        (folder / written).unlink()


def tower(folder: Path, name: str, backbone: Backbone, head: nn.Module | None = None) -> None:
    "A text tower, and its token vectors in files of a few rows: a scale and 384 numbers in eight bits"
    longest = min(24, backbone.context_length)
    ids, end_index = _caption_inputs(backbone.tokenizer, longest, 0)
    graph(folder, name, FromVectors(backbone, head), [backbone.text.embedding(ids), end_index], backbone.context_length)
    tokenizer(folder, name, backbone.tokenizer)
    (folder / name).mkdir()
    for start in range(0, len(backbone.tokenizer), ROWS):
        some = torch.arange(start, min(start + ROWS, len(backbone.tokenizer)))
        rows = as_array(backbone.text.embedding(some[None]))[0]
        scales = np.maximum(np.abs(rows).max(1), 1e-9).astype("<f4") / 127
        levels = np.round(rows / scales[:, None]).astype(np.int8)
        (folder / name / f"{start // ROWS}.bin").write_bytes(scales.tobytes() + levels.tobytes())


def tokenizer(folder: Path, name: str, tokens: CaptionTokenizer) -> None:
    packed(folder / f"{name}.tokens.json", tokens.tokenizer.to_str().encode())


def frame(tokens: CaptionTokenizer, longest: int) -> tuple[int, int, int]:
    "Ids of the start and end tokens, and the longest row"
    return tokens.start_id, tokens.end_id, longest


def numbers(folder: Path, **arrays: np.ndarray) -> None:
    "Arrays in float32"
    for name, values in arrays.items():
        packed(folder / f"{name}.bin", np.ascontiguousarray(as_array(values), "<f4").tobytes())


def write_concepts(folder: Path, method: RetrievalMethod, pictures: np.ndarray) -> None:
    "What a query's concepts are compared with, and CLDR's names of every language"
    concepts = method.concepts
    classes = as_array(concepts.classes)
    shown = pictures[:, -classes.shape[1] :] @ concepts.decoder.T
    numbers(folder, classes=classes, shown=shown, centre=concepts.centre)
    (folder / "names").mkdir()
    for language in method.reached:
        (folder / f"names/{language}.json").write_text(json.dumps(english_names(language), ensure_ascii=False))


def words_of(method: RetrievalMethod) -> dict:
    "Words of the training captions of each language, and how well the concepts know them"
    known, words = method.concepts.known, calibration_of(method).words
    return dict(known=known, words={language: sorted(own) for language, own in words.items()})


def facts_of(method: RetrievalMethod) -> dict:
    "What the page says and asks of the model"
    photographs = load_corpus("everyday")
    captions = {caption.visual_id: caption.text for caption in photographs.captions("test", "en")}
    others = [code for code in method.reached if code not in method.readable]
    frames = dict(text=method, source=method.backbone, sentences=open_sentence_encoder(method.concepts.config.encoder))
    scripts = {}
    for script, codes in SCRIPTS.items():
        read = sorted((code for code in codes if code in method.reached), key=method.reached.index)  # taught ones first
        scripts |= {UNICODE_NAMES.get(script, script.title()): read[0]} if read else {}
    return dict(
        taught=method.languages,
        others=others,
        latin=[code for code in reversed(method.readable) if not any(code in codes for codes in SCRIPTS.values())],
        scripts=scripts,
        pictures=[dict(id=id, caption=captions[id]) for id in photographs.visuals("test").ids],
        limits=dict(method=calibration_of(method).limits, others=calibration_of(method.companion.method).limits),
        said=SENTENCES,
        concepts=plain(method.concepts.config),
        prompt=method.companion.method.config.head.prompt,
        share=method.companion.share,
        frames={name: frame(each.tokenizer, each.context_length) for name, each in frames.items()},
        rows=ROWS,
        width=method.backbone.width,
    )


def mean_matrices(method: RetrievalMethod) -> np.ndarray:  # [K, H, H]
    "Over the captions of the photographs in all taught languages"
    photographs = load_corpus("everyday")
    texts = {code: [caption.text for caption in photographs.captions("test", code)] for code in method.languages}
    return np.concatenate([as_array(method.inspect(own, code)["generated"]) for code, own in texts.items()]).mean(0)


def parts() -> dict[str, Iterable[str]]:
    "What is loaded together: for every query, taught languages, English, and concepts with all other languages"
    common = ["runtime.wasm.gz", "pictures.bin.gz", "words.json.gz"]
    own = ["text.onnx.gz", "text.tokens.json.gz", "matrices.bin.gz"]
    others = ["sentences.onnx.gz", "sentences.tokens.json.gz", "cohort.bin.gz", "cohort_others.bin.gz"]
    others += [f"{name}.bin.gz" for name in ("classes", "shown", "centre")]
    return dict(common=common, taught=own, english=["source.onnx.gz", "source.tokens.json.gz"], others=others)


def write(folder: Path) -> None:
    "Everything that the page loads"
    method, captions = load_run(RUN), load_run(RUN, images=False)
    for loaded in (method, captions):
        loaded.backbone.precision = "float32"
    photographs = load_corpus("everyday")
    images = [photographs.picture(id) for id in photographs.visuals("test").ids]
    pictures = unit(as_array(method.encode_visuals(method.visual_columns(images))["features"]))
    step = CaptionStep(captions)
    step.one = WithMatrices(captions)
    read = [*_caption_inputs(captions.tokenizer, 24, 1), torch.tensor(len(method.languages) - 1)]
    graph(folder, "text", step, read, captions.backbone.context_length)
    tokenizer(folder, "text", captions.tokenizer)
    tower(folder, "source", captions.backbone)
    encoder = open_sentence_encoder(method.concepts.config.encoder, "float32")
    tower(folder, "sentences", encoder, method.companion.method.head)
    numbers(folder, pictures=pictures, matrices=mean_matrices(captions), cohort=calibration_of(method).cohort)
    numbers(folder, cohort_others=calibration_of(method.companion.method).cohort)
    write_concepts(folder, method, pictures)
    packed(folder / "words.json", json.dumps(words_of(method), ensure_ascii=False).encode())
    packed(folder / "runtime.wasm", RUNTIME.read_bytes())
    for library in LIBRARIES:
        shutil.copy(library, folder)
    shutil.copytree(ROOT / "data/everyday/test", folder / "pictures")
    loaded = {name: {file: (folder / file).stat().st_size for file in files} for name, files in parts().items()}
    (folder / "facts.json").write_text(json.dumps(facts_of(method) | dict(parts=loaded), ensure_ascii=False))


def sources() -> Iterator[Path]:
    "Files that the demonstration is made from"
    yield Path(__file__)
    yield from sorted(run_folder(RUN).rglob("manifest.json"))
    yield ROOT / "data/everyday/test.jsonl"
    yield from LIBRARIES


def demonstration() -> Path | None:
    "The folder with the files, made if it is missing; None without the packages from npm"
    if not all(library.is_file() for library in [RUNTIME, *LIBRARIES]):
        return None
    digest = sha256(b"".join(source.read_bytes() for source in sources())).hexdigest()[:12]
    folder = ROOT / f"_proc/demo-{digest}"
    if not folder.is_dir():
        for older in folder.parent.glob("demo-*"):
            shutil.rmtree(older)
        with whole_folder(folder) as f:
            write(f)
    return folder
