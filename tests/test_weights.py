"Weights from a stand-in for the hub: shown and accepted first, verified, continued where a download broke off"

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch

from dasd_lab.backbone import weights as module
from dasd_lab.backbone.weights import CATALOGUE, WeightFile, Weights, find_weights, get_weights, list_weights
from dasd_lab.cli import main
from dasd_lab.contracts import LabError
from dasd_lab.storage import write_tensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 6_000_000  # numbers: 24 MB, more than one of the downloader's chunks of 10 MB


class Hub:
    "The part of the hub's protocol that the downloader uses; the first `broken` answers end early"

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.broken = 0
        self.asked: list[tuple[str, str, str]] = []  # method, file, Range
        self.digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def info(self) -> dict:
        siblings = [
            dict(
                rfilename=name, size=len(content), lfs=dict(sha256=self.digests[name], size=len(content), pointerSize=1)
            )
            for name, content in self.files.items()
        ]
        return dict(id="someone/model", modelId="someone/model", sha=COMMIT, siblings=siblings, tags=[])

    def handler(hub):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, content: bytes, status=200, headers=(), length=None, cut=None):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content) if length is None else length))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content if cut is None else content[:cut])
                    if cut is not None:
                        self.wfile.flush()
                        self.close_connection = True

            def do_GET(self):
                if self.path.startswith("/api/models/"):
                    return self.answer(json.dumps(hub.info()).encode(), headers=[("Content-Type", "application/json")])
                name = self.path.split("?")[0].rsplit("/", 1)[1]
                wanted = self.headers.get("Range", "")
                hub.asked.append((self.command, name, wanted))
                if name not in hub.files:
                    return self.answer(b"{}", 404)
                content = hub.files[name]
                headers = [("ETag", f'"{hub.digests[name]}"'), ("X-Repo-Commit", COMMIT), ("Accept-Ranges", "bytes")]
                start = re.match(r"bytes=(\d+)-", wanted)
                status = 200
                if start:
                    status = 206
                    first = int(start[1])
                    headers.append(("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}"))
                    content = content[first:]
                cut = None
                if self.command == "GET" and hub.broken and len(content) > 1_000_000:
                    hub.broken -= 1
                    cut = len(content) * 3 // 4
                return self.answer(content, status, headers, cut=cut)

            do_HEAD = do_GET

        return Handler


@contextmanager
def serving(hub):
    "Its address"
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub.handler())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    write_tensors({"a": torch.randn(LARGE, generator=torch.Generator().manual_seed(0))}, path)
    return {"model.safetensors": path.read_bytes(), "tokenizer.json": b"{}", "unasked.bin": b"never"}


@pytest.fixture
def entry(monkeypatch, tmp_path, files):
    "A model of the catalogue, with the checksum of its weights and without a revision"
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    digest = hashlib.sha256(files["model.safetensors"]).hexdigest()
    weights = Weights(
        name="stand-in",
        what="a model of one tensor",
        hub="someone/model",
        revision=None,
        licence="MIT",
        files=(
            WeightFile("model.safetensors", len(files["model.safetensors"]), digest, "pytorch_model.bin"),
            WeightFile("tokenizer.json"),
        ),
    )
    monkeypatch.setitem(CATALOGUE, "stand-in", weights)
    return weights


def test_size_licence_and_revision_are_shown_before_anything_is_fetched(entry, files, tmp_path):
    hub = Hub(files)
    seen = []
    with serving(hub) as address:
        assert get_weights("stand-in", lambda offer: seen.append(str(offer)), address) is None
    assert hub.asked == [] and not (tmp_path / "weights").exists()
    for word in ("24 MB", "MIT", COMMIT, "someone/model", "what main is today", "model.safetensors, tokenizer.json"):
        assert word in seen[0], word


def test_it_is_fetched_verified_and_imported(entry, files, tmp_path):
    hub = Hub(files)
    with serving(hub) as address:
        folder = get_weights("stand-in", lambda offer: True, address)
    assert folder == find_weights("stand-in")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["revision"], manifest["licence"]) == (COMMIT, "MIT")
    assert {name for _, name, _ in hub.asked} == {"model.safetensors", "tokenizer.json"}
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["stand-in"], "nothing is left of the download"
    assert next(row["state"] for row in list_weights() if row["name"] == "stand-in") == "found"


def test_a_download_that_breaks_off_goes_on_where_it_stopped(entry, files):
    hub = Hub(files)
    hub.broken = 10**6
    with serving(hub) as address:
        with pytest.raises(LabError, match="continues where it broke off"):
            get_weights("stand-in", lambda offer: True, address)
        asked = len(hub.asked)
        hub.broken = 0
        folder = get_weights("stand-in", lambda offer: True, address)
    starts = [wanted for method, name, wanted in hub.asked[asked:] if method == "GET" and name == "model.safetensors"]
    assert starts and re.match(r"bytes=[1-9]\d{5,}-", starts[0]), starts
    assert (folder / "model.safetensors").read_bytes() == files["model.safetensors"]


def test_another_file_than_the_catalogues_is_refused_before_the_download(entry, files):
    hub = Hub(files | {"model.safetensors": files["model.safetensors"][:-1] + b"!"})
    with serving(hub) as address, pytest.raises(LabError, match="not the one that the catalogue describes"):
        get_weights("stand-in", lambda offer: True, address)
    assert hub.asked == []


def test_a_file_that_changes_on_its_way_is_refused_and_not_kept(entry, files, tmp_path):
    hub = Hub(files)
    hub.files = files | {"model.safetensors": files["model.safetensors"][:-1] + b"!"}  # the digests are of the other
    with serving(hub) as address, pytest.raises(LabError, match="checksum"):
        get_weights("stand-in", lambda offer: True, address)
    assert not [path for path in (tmp_path / "weights").iterdir() if path.is_dir()]


def test_no_hub_says_what_to_do(entry):
    with serving(Hub({})) as address:
        pass  # nobody listens there any more
    with pytest.raises(LabError, match=r"could not be fetched.*hf download someone/model.*weights import stand-in"):
        get_weights("stand-in", lambda offer: True, address)


def test_the_command_asks_and_fetches_once(entry, files, monkeypatch, capsys):
    hub = Hub(files)
    fetch = module.get_weights
    with serving(hub) as address:
        monkeypatch.setattr(module, "get_weights", lambda name, accept: fetch(name, accept, address))
        assert main(["weights", "get", "stand-in"]) == 1, "no terminal, no --yes"
        said = capsys.readouterr().err
        assert "24 MB" in said and "--yes" in said and hub.asked == []
        for answer in ("n\n", ""):  # "": the end of the input, Ctrl-D
            terminal = SimpleNamespace(isatty=lambda: True, readline=lambda answer=answer: answer)
            monkeypatch.setattr("sys.stdin", terminal)
            assert main(["weights", "get", "stand-in"]) == 0 and hub.asked == []
            assert "not fetched" in capsys.readouterr().err
        assert main(["weights", "get", "stand-in", "--yes"]) == 0
        assert capsys.readouterr().out.strip() == str(find_weights("stand-in"))
        asked = len(hub.asked)
        assert main(["weights", "get", "stand-in"]) == 0 and len(hub.asked) == asked, "it is here already"


def test_every_two_tower_model_of_the_catalogue_is_known_to_its_library():
    import open_clip

    for weights in CATALOGUE.values():
        assert weights.opens in ("", "transformers") or open_clip.get_model_config(weights.opens), weights.name
