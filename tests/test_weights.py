"Weights from a stand-in for the hub: shown and accepted first, then fetched, verified and imported"

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants

from dasd_lab.backbone.weights import CATALOGUE, Weights, find_weights, get_weights, list_weights
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import write_tensors
from dasd_lab.commands.cli import main

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    "The part of the hub's protocol that the downloader uses"

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.fetched: list[str] = []
        self.digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def described(self, path: str) -> object:
        "The answer to a question about the repository"
        entries = []
        for name, content in self.files.items():
            lfs = dict(oid=self.digests[name], sha256=self.digests[name], size=len(content), pointerSize=1)
            entries.append(dict(lfs, type="file", path=name, rfilename=name, lfs=lfs))
        return entries if "/tree/" in path else dict(id="someone/model", sha=COMMIT, siblings=entries, tags=[])

    def handler(hub):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                path = self.path.split("?")[0]
                headers = {"Content-Type": "application/json"}
                if path.startswith("/api/models/"):
                    content = json.dumps(hub.described(path)).encode()
                else:
                    name = path.rsplit("/", 1)[1]
                    content = hub.files[name]
                    headers = {"ETag": f'"{hub.digests[name]}"', "X-Repo-Commit": COMMIT}
                    hub.fetched += [name] * (self.command == "GET")
                self.send_response(200)
                for name, value in (headers | {"Content-Length": str(len(content))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content if self.command == "GET" else b"")

            do_HEAD = do_GET

        return Handler


@contextmanager
def serving(hub, monkeypatch):
    "While it answers in the place of the hub"
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub.handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix("https://huggingface.co")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + template)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    write_tensors({"a": torch.randn(500_000, generator=torch.Generator().manual_seed(0))}, path)
    return {"model.safetensors": path.read_bytes(), "tokenizer.json": b"{}", "unasked.bin": b"never"}


@pytest.fixture
def entry(monkeypatch, tmp_path, files):
    "A model of the catalogue, with the checksum of its weights and without a revision"
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    digest = hashlib.sha256(files["model.safetensors"]).hexdigest()
    known = {"model.safetensors": digest, "tokenizer.json": ""}
    weights = Weights("stand-in", "a model of one tensor", "someone/model", "MIT", files=known)
    monkeypatch.setitem(CATALOGUE, "stand-in", weights)


def test_it_is_shown_then_fetched_verified_and_imported(entry, files, tmp_path, monkeypatch):
    hub = Hub(files)
    seen = []
    with serving(hub, monkeypatch):
        assert get_weights("stand-in", seen.append) is None
        assert hub.fetched == []
        folder = get_weights("stand-in", lambda offer: True)
    for word in ("2 MB", "MIT", COMMIT, "someone/model", "what main is today", "model.safetensors, tokenizer.json"):
        assert word in seen[0], word
    assert folder == find_weights("stand-in")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["revision"], manifest["licence"]) == (COMMIT, "MIT")
    assert sorted(hub.fetched) == ["model.safetensors", "tokenizer.json"]
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["stand-in"], "nothing is left of the download"
    assert next(row["state"] for row in list_weights() if row["name"] == "stand-in") == "found"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_file_that_changes_on_its_way_is_refused_and_not_kept(entry, files, tmp_path, monkeypatch, name):
    hub = Hub(files)
    hub.files = files | {name: files[name][:-1] + b"!"}  # the digests are of the other
    with serving(hub, monkeypatch), pytest.raises(LabError, match="checksum"):
        get_weights("stand-in", lambda offer: True)
    assert not list((tmp_path / "weights").glob("*[!.]*/*.json"))


def test_without_a_connection_it_says_what_to_do(entry, monkeypatch):
    with serving(Hub({}), monkeypatch):
        pass  # nobody listens there any more
    with pytest.raises(LabError, match=r"could not be fetched.*hf download someone/model.*weights import stand-in"):
        get_weights("stand-in", lambda offer: True)


def test_the_command_asks_and_fetches_once(entry, files, monkeypatch, capsys):
    hub = Hub(files)
    answers = iter(("n\n", ""))  # "": the end of the input, Ctrl-D
    with serving(hub, monkeypatch):
        assert main(["weights", "get", "stand-in"]) == 1, "no terminal, no --yes"
        said = capsys.readouterr().err
        assert "2 MB" in said and "--yes" in said
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: next(answers)))
        assert [main(["weights", "get", "stand-in"]) for _ in range(2)] == [0, 0] and hub.fetched == []
        assert capsys.readouterr().err.count("not fetched") == 2
        for _ in range(2):  # the second time it is here already
            assert main(["weights", "get", "stand-in", "--yes"]) == 0
            assert len(hub.fetched) == 2
    assert str(find_weights("stand-in")) in capsys.readouterr().out
