"The service of a gallery against arbitrary requests: fuzzed by its OpenAPI document, and tested by hand"

import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from served import Named, draw, make, picture, serving

from dasd_lab.base.contracts import LabError
from dasd_lab.commands import galleries
from dasd_lab.runs import loading
from dasd_lab.search.on_disk.places import recorded_name
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve.limits import ServiceSettings, cookie_of
from dasd_lab.serve.service import gallery_app

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

HOST_NAMES = ("127.0.0.1", "localhost", "testserver")
WRITER = ServiceSettings(may_write=True, timeout_s=120.0, requests_per_minute=10**6, hosts=HOST_NAMES)


def encoded(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def upload(data: bytes, name="x.png", kind="image/png") -> dict:
    return dict(picture=(name, data, kind))


def client(gallery, settings=WRITER, **more):
    return TestClient(
        gallery_app(gallery, settings), base_url="http://localhost", raise_server_exceptions=False, **more
    )


def ids(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [h["id"] for h in answer.json()["hits"]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("served") / "drawn", 3)


@pytest.fixture
def gallery(tmp_path, drawn):
    made = make(tmp_path / "gallery", drawn)
    yield made
    made.close()


# the OpenAPI document


@pytest.fixture(scope="module")
def document(drawn, tmp_path_factory):
    gallery = make(tmp_path_factory.mktemp("fuzzed") / "gallery", drawn)
    config = schemathesis.Config.from_dict({"generation": {"mode": "all"}})
    yield schemathesis.openapi.from_asgi(
        "/api/openapi.json", gallery_app(gallery, replace(WRITER, originals=str(drawn))), config=config
    )
    gallery.close()


OPERATIONS = [
    ("/api/gallery", "GET"),
    ("/api/search", "GET"),
    ("/api/search", "POST"),
    ("/api/picture", "GET"),
    ("/api/picture", "PATCH"),
    ("/api/picture", "DELETE"),
    ("/api/thumbnail", "GET"),
    ("/api/original", "GET"),
    ("/api/pictures", "POST"),
]

FUZZ = settings(
    max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def validate(case):
    "The answer is as documented; a search without text or image is refused although the document allows it"
    case.call_and_validate(excluded_checks=[CHECKS.get_one("positive_data_acceptance")])


@pytest.mark.parametrize("path,method", OPERATIONS, ids=lambda p: p.strip("/").replace("/", "-"))
def test_valid_and_invalid_requests_are_answered_as_documented(document, path, method):
    "No 5xx; statuses, types and bodies as documented; invalid requests are refused"
    operation = document[path][method]
    for mode in GenerationMode:
        if path == "/api/gallery" and mode.is_negative:
            continue  # every request is valid
        FUZZ(given(operation.as_strategy(generation_mode=mode))(validate))()


def test_the_document_lists_every_route(document, gallery):
    document.validate()
    schema = client(gallery).get("/api/openapi.json").json()
    documented = [(path, m.upper()) for path, operations in schema["paths"].items() for m in operations]
    assert sorted(documented) == sorted(OPERATIONS) and str(gallery.folder) not in json.dumps(schema)
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert {"400", "401", "403", "413", "422", "429", "504"} <= set(operation["responses"]), operation


# sizes and timeouts


def raw(port: int, head: str, *parts: bytes) -> tuple[int, dict, bytes]:  # status, headers, body
    "One request over a socket, exactly as written"
    with socket.create_connection(("127.0.0.1", port), 120) as s:
        s.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n")
        try:
            for part in parts:
                s.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the end
        answer = http.client.HTTPResponse(s)
        answer.begin()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


def test_a_body_that_is_too_large_is_refused(gallery):
    good = multipart(encoded(picture("red")))
    with serving(gallery_app(gallery, replace(WRITER, most_bytes=len(good)))) as port:
        for length in (len(good) + 1, 10**12):
            assert raw(port, POST + f"content-length: {length}\n")[0] == 413  # without reading it
        assert raw(port, POST + f"content-length: {len(good)}\n", good)[0] == 200


START = b'--b\r\ncontent-disposition: form-data; name="picture"; filename="x.png"\r\n\r\n'


def multipart(data: bytes) -> bytes:
    return START + data + b"\r\n--b--\r\n"


POST = "POST /api/search HTTP/1.1\nhost: localhost\ncontent-type: multipart/form-data; boundary=b\n"


def test_a_slow_answer_is_given_up_and_a_forwarded_scheme_is_believed_of_a_trusted_proxy(gallery, monkeypatch):
    monkeypatch.setattr(gallery.engine, "read", lambda *given: time.sleep(2))
    assert client(gallery, replace(WRITER, timeout_s=0.2)).get("/api/picture?id=a").status_code == 504
    head = f"GET /?token={TOKEN} HTTP/1.1\nhost: localhost\nx-forwarded-proto: https\n"
    for proxies, secure in (((), False), (["127.0.0.1"], True)):
        with serving(gallery_app(gallery, replace(WRITER, token=TOKEN)), proxies=proxies) as port:
            assert ("Secure" in raw(port, head)[1]["set-cookie"]) == secure


# paths

ELSEWHERE = [
    "../secret.txt",
    "../../../../etc/passwd",
    "/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/secret.txt",
    "....//secret.txt",
    "..\\secret.txt",
    "file:///etc/passwd",
    "red-00.png/../../secret.txt",
    "red-00.png\x00.txt",
    "C:\\boot.ini",
    "uploads/../gallery.json",
    "gallery.json",
    "index",
    "\u2025/secret.txt",
    ".",
    "~",
]


@pytest.fixture
def outside(tmp_path):
    "Files outside of the gallery and of the originals"
    image = tmp_path / "secret.png"
    picture("blue", 9, (31, 17)).save(image)
    (tmp_path / "secret.txt").write_text("secret words")
    return image


@pytest.fixture
def tempting(tmp_path, outside):
    "A gallery with images whose files must not be shown"
    drawn = draw(tmp_path / "drawn", 1)
    gallery = make(tmp_path / "gallery", drawn)
    (drawn / "notes.txt").write_text("secret words")
    gallery.set_facts(["blue-00.png"], dict(source=str(drawn / "notes.txt")))
    gallery.add([outside], ["outside"])
    (drawn / "link.png").symlink_to(outside)
    gallery.add([drawn / "link.png"], ["a link"])
    replaced = drawn / "green-00.png"
    replaced.unlink()
    replaced.symlink_to(outside)
    gallery.drawn = drawn
    yield gallery
    gallery.close()


def check_no_secret(content: bytes, outside: Path):
    for secret in (outside.read_bytes(), b"secret words", b"root:", b'"stored gallery"'):
        assert secret not in content


def test_only_originals_and_uploads_are_shown(tempting):
    ask = client(tempting, replace(WRITER, originals=str(tempting.drawn)))
    red = dict(id="red-00.png")
    assert ask.get("/api/original", params=red).content == (tempting.drawn / "red-00.png").read_bytes()
    assert ask.get("/api/picture", params=red).json()["original"] is True
    new = ask.post("/api/pictures", files=upload(encoded(picture("red", 3)))).json()
    stored = ask.get("/api/original", params=dict(id=new["id"]))
    assert new["original"] and stored.headers["content-type"] == "image/webp"
    assert stored.content == (tempting.folder / new["id"]).read_bytes()
    without_originals = client(tempting, WRITER)
    assert without_originals.get("/api/original", params=dict(id=new["id"])).status_code == 404
    for id in ("outside", "a link", "green-00.png", "blue-00.png"):
        assert ask.get("/api/original", params=dict(id=id)).status_code == 404
        assert ask.get("/api/picture", params=dict(id=id)).json()["original"] is False


def test_an_id_cannot_be_a_path(tempting, outside):
    ask = client(tempting, replace(WRITER, originals=str(tempting.drawn)))
    for place in ELSEWHERE:
        for path in ("original", "thumbnail", "picture"):
            answer = ask.get(f"/api/{path}", params=dict(id=place))
            assert answer.status_code == 404, (path, place)
            check_no_secret(answer.content, outside)
        assert ask.get("/api/search", params=dict(like=place)).status_code == 404
        assert ask.delete("/api/picture", params=dict(id=place)).status_code == 404
    assert outside.with_suffix(".txt").is_file() and (tempting.folder / "gallery.json").is_file()
    assert len(tempting) == 6


PATHS = [
    "/../settings.ini",
    "/..%2f..%2fsettings.ini",
    "/%2e%2e/%2e%2e/settings.ini",
    "//etc/passwd",
    "/etc/passwd",
    "/..\\..\\settings.ini",
    "/app.js/../../service.py",
    "/__init__.py",
    "/../service.py",
    "/.%00/",
    "/index.html/..;/service.py",
    "/uploads/x.webp",
    "/api",
    "/api/",
    "/docs",
    "/redoc",
    "/openapi.json",
]


PAGE_FILES = {"/": "text/html", "/app.js": "javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml"}


def test_only_the_files_of_the_page_are_served(tempting):
    with serving(gallery_app(tempting, replace(WRITER, originals=str(tempting.drawn)))) as port:
        for path in PATHS:
            status, _, body = raw(port, f"GET {path} HTTP/1.1\nhost: localhost\n")
            assert status in (400, 404), (path, status)
            assert not any(text in body for text in (b"import", b"[DEFAULT]", b"root:")), path
        for path, kind in PAGE_FILES.items():
            status, headers, body = raw(port, f"GET {path} HTTP/1.1\nhost: localhost\n")
            assert status == 200 and kind in headers["content-type"] and body
            assert headers["x-content-type-options"] == "nosniff"


class Other(Named):
    "Sees as `Named` does, by another name"

    def __init__(self):
        super().__init__()
        self.backbone.register_buffer("other", torch.ones(1))


def test_no_answer_contains_a_path_of_this_machine(tmp_path, monkeypatch):
    "Neither successful nor failed ones, also when the disk fails; and no filter can find it letter by letter"
    monkeypatch.chdir(tmp_path)
    gallery = make(Path("our-secret/gallery"), draw(tmp_path / "drawn", 1))
    ask = client(gallery, replace(WRITER, originals=str(tmp_path / "drawn")))
    red = dict(id="red-00.png")
    texts = [dict(text="rot", where=where) for where in ("", '{"source":{"starts":"/"}}', '{"no":1}')]
    answers = [ask.get("/api/search", params=params) for params in (*texts, dict(text=""), dict(like="red-00.png"))]
    assert answers[1].status_code == 400 and "source" not in answers[2].json()["expected"]
    answers += [ask.get(f"/api/{path}", params=red) for path in ("gallery", "openapi.json", "picture", "nothing")]
    answers += [ask.post("/api/pictures", files=upload(data)) for data in (encoded(picture("red", 2)), b"x")]
    shutil.rmtree(gallery.folder / "uploads")
    (gallery.folder / "uploads").write_text("in the way")
    answers.append(ask.post("/api/pictures", files=upload(encoded(picture("red", 3)))))
    for table in (gallery.folder / "index/pictures.lance").rglob("*.lance"):
        table.unlink()
    answers.append(ask.get("/api/search", params=dict(text="rot")))
    shutil.rmtree(gallery.folder / "index")
    answers.append(ask.get("/api/search", params=dict(text="rot")))
    assert [answer.status_code for answer in answers[-3:]] == [503, 503, 503]
    for answer in answers:
        text = answer.text + str(answer.headers)
        assert not any(p in text for p in (str(tmp_path), "our-secret", "Traceback", "site-packages")), text


@pytest.mark.parametrize("done", ["moved", "replaced", "unindexed", "unrecorded"])
def test_a_gallery_that_is_gone_is_said_to_be_and_nothing_is_made_in_its_place(tmp_path, gallery, drawn, done):
    ask = client(gallery)
    assert ask.get("/api/gallery").json()["pictures"] == 12
    part = dict(unindexed="index", unrecorded="gallery.json").get(done, "")
    (gallery.folder / part).rename(tmp_path / "away")
    if done == "replaced":
        make(gallery.folder, draw(tmp_path / "others", 1)).close()
    before = sorted(tmp_path.rglob("*"))
    for path, method in OPERATIONS:
        files = upload(encoded(picture("red", 2))) if method == "POST" else None
        answer = ask.request(method, path, params=dict(id="red-00.png", text="rot"), files=files)
        assert answer.status_code == 503 and "again" in answer.json()["error"], (path, method, answer.text)
        assert str(tmp_path) not in answer.text
    assert sorted(tmp_path.rglob("*")) == before


# uploads


def zipped() -> bytes:
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w") as z:
        z.writestr("evil.html", "<script>alert(1)</script>")
    return to.getvalue()


NO_PICTURES = {
    "x.svg": (b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>', "image/svg+xml"),
    "x.png": (b"<!doctype html><script>alert(1)</script>", "image/png"),
    "x.pdf": (b"%PDF-1.7\n1 0 obj", "application/pdf"),
    "x.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image/png"),
    "x.jpg": (b"\xff\xd8\xff\xe0" + b"<?php system($_GET[0]); ?>", "image/jpeg"),
    "x.ppm": (b"P6 2 2 255 " + b"\xff" * 12, "image/png"),
    "x.psd": (b"8BPS" + bytes(60), "image/png"),
    "x.js": (b"GIF89a=1;alert(1)", "image/gif"),
    "x.zip": (zipped(), "image/png"),
    "nothing": (b"", "image/png"),
    "zeros": (bytes(5000), "image/webp"),
    "../../x.html": (b"\x00", "image/png"),
}


def large(kind: str, at: bytes, size: bytes) -> bytes:
    "An image whose header names other sizes"
    data = encoded(picture("red"), kind)
    assert at in data
    return data.replace(at, size)


# headers of images that would need gigabytes: nothing may be decoded
BOMBS = {
    "bomb.png": large("PNG", b"\0\0\0\x18\0\0\0\x10", b"\0\0\xff\xff" * 2),
    "bomb.jpg": large("JPEG", b"\x08\0\x10\0\x18", b"\x08\xff\xff\xff\xff"),
    "bomb.bmp": large("BMP", struct.pack("<II", 24, 16), struct.pack("<II", 60_000, 60_000)),
    "bomb.gif": b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;",
}
NO_PICTURES |= {name: (data, "image/png") for name, data in BOMBS.items()}


@pytest.mark.parametrize("name", NO_PICTURES)
def test_other_files_are_refused_and_not_stored(gallery, name):
    data, kind = NO_PICTURES[name]
    ask = client(gallery)
    for path in ("/api/search", "/api/pictures"):
        r = ask.post(path, files=upload(data, name, kind))
        assert r.status_code == 400 and r.json()["error"], (path, r.text)
    assert len(gallery) == 12 and not [*(gallery.folder / "uploads").glob("*")]


def test_only_pixels_of_an_upload_are_stored(gallery):
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    files = [
        encoded(picture("red", 1), "JPEG", exif=exif) + zipped(),
        encoded(picture("green", 1)) + b"<script>alert(1)</script>",
        encoded(picture("blue", 1), "GIF") + zipped(),
        encoded(picture("red", 2), "WEBP", exif=exif) + b"%PDF-1.4",
    ]
    ask = client(gallery)
    for data in files:
        answer = ask.post("/api/pictures", files=upload(data, "../../evil.html", "text/html"))
        assert answer.status_code == 201, answer.text
        id = answer.json()["id"]
        assert re.fullmatch(r"uploads/[0-9a-f]{20}\.webp", id)
        thumbnail = ask.get("/api/thumbnail", params=dict(id=id))
        for content in ((gallery.folder / id).read_bytes(), thumbnail.content):
            assert not any(w in content for w in (b"script", b"where I live", b"PK\x03\x04", b"%PDF", b"Exif"))
            assert Image.open(io.BytesIO(content)).format == "WEBP"
        assert thumbnail.headers["content-type"] == "image/webp"
        assert thumbnail.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in thumbnail.headers["content-security-policy"]
    stored = {f"uploads/{p.name}" for p in (gallery.folder / "uploads").iterdir()}
    assert stored == {id for id in gallery.ids if id.startswith("uploads/")}
    assert not (gallery.folder.parent / "evil.html").exists()


def test_removed_and_refused_uploads_leave_no_file(gallery):
    ask = client(gallery)
    files = upload(encoded(picture("yellow", 5)))
    refused = ask.post("/api/pictures", files=files, data=dict(facts='{"shade":"x"}'))
    assert refused.status_code == 400 and not list((gallery.folder / "uploads").glob("*"))
    id = ask.post("/api/pictures", files=files).json()["id"]
    assert ask.delete("/api/picture", params=dict(id=id)).json() == dict(pictures=1)
    assert not (gallery.folder / id).exists() and id not in gallery and id not in gallery.thumbnails
    source = Path(gallery.facts(["red-00.png"])["source"].item())
    assert ask.delete("/api/picture", params=dict(id="red-00.png")).status_code == 200
    assert source.is_file()  # not an upload


# access


def status_with(ask, path="/api/gallery", method="GET", **headers) -> int:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask.request(method, path, headers=headers).status_code


HOSTS = [
    ("localhost", 200),
    ("LOCALHOST:80", 200),
    ("127.0.0.1:8000", 200),
    ("evil.example", 400),
    ("localhost.evil.example", 400),
    ("evil.example:80", 400),
    ("localhost@evil.example", 400),
    ("localhost:80@evil.example", 400),
    ("localhost:x", 400),
    ("127.0.0.1.evil.example", 400),
    ("[::1]:9", 400),
    ("", 400),
    ("[::1", 400),
    ("0.0.0.0", 400),
    ("xn--localhost", 400),
]


def test_unknown_host_names_are_refused(gallery):
    ask = client(gallery)
    for host, status in HOSTS:
        assert status_with(ask, host=host) == status, host
    assert status_with(ask, host="evil.example", x_forwarded_host="localhost") == 400


ORIGINS = [
    ("http://localhost", 200),
    ("http://localhost:81", 403),
    ("http://evil.example", 403),
    ("null", 403),
    ("x://y://localhost", 403),
    ("localhost", 403),
    ("https://evil.example/localhost", 403),
    ("http://localhost.evil.example", 403),
]


def test_requests_from_other_sites_are_refused(gallery):
    ask = client(gallery)
    for origin, status in ORIGINS:
        assert status_with(ask, origin=origin) == status, origin
    for site, status in (("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("x", 403)):
        assert status_with(ask, sec_fetch_site=site) == status, site
    assert status_with(ask, "/", sec_fetch_site="cross-site") == 200  # a link to the page
    assert status_with(ask, "/app.js", sec_fetch_site="cross-site") == 403
    assert status_with(ask, "/", "POST", sec_fetch_site="cross-site") == 403
    assert status_with(ask, "/api/picture?id=red-00.png", "DELETE", origin="http://evil.example") == 403
    assert "red-00.png" in gallery
    assert "frame-ancestors 'none'" in ask.get("/").headers["content-security-policy"]
    answer = ask.get("/api/gallery", headers=dict(origin="http://localhost"))
    assert "access-control-allow-origin" not in answer.headers


TOKEN = "a-token-of-many-letters"


@pytest.fixture
def locked(gallery):
    "Opens clients of a service that needs a token"

    def make(headers=None, **settings):
        return client(gallery, replace(WRITER, **dict(token=TOKEN) | settings), headers=headers)

    return make


NAME, VALUE = cookie_of(TOKEN)
COOKIE = f"{NAME}={VALUE}"


OTHER_COOKIES = [
    'grid={"a": [1, 2], "b": "x"}',
    "a b=c",
    'x="y',
    "[]",
    "=",
    "@=,",
    "name with blanks",
    f"{NAME}=old",
]


VALID_HEADERS = [
    {"authorization": f"Bearer {TOKEN}"},
    {"cookie": COOKIE},
    {"cookie": f"a=b; {COOKIE}; c=d"},
    {"cookie": COOKIE, "authorization": "Bearer x"},
    *({"cookie": f"{other}; {COOKIE}"} for other in OTHER_COOKIES),
]


INVALID_HEADERS = [
    {},
    {"authorization": f"Bearer {TOKEN}x"},
    {"authorization": f"Bearer {TOKEN[:-1]}"},
    {"authorization": "Bearer "},
    {"authorization": "Bearer"},
    {"authorization": f"Basic {TOKEN}"},
    {"authorization": "Bearer \xe4".encode("latin-1")},
    {"cookie": f"{NAME}="},
    {"cookie": f"other={VALUE}"},
    {"cookie": f"{NAME}x={VALUE}"},
    {"cookie": f"{NAME}={TOKEN}"},
    {"cookie": ";;=;"},
    {"x-token": TOKEN},
    {"cookie": f'{NAME}="'},
]


def test_the_token_in_headers_and_cookies(locked):
    for headers in VALID_HEADERS:
        assert locked(headers).get("/api/gallery").status_code == 200, headers
    for headers in INVALID_HEADERS:
        assert locked(headers).get("/api/gallery").status_code == 401, headers


def test_everything_but_the_page_needs_the_token(locked):
    ask = locked()
    unusual = ("/api/openapi.json", "/api/../api/gallery", "//api/gallery", "/API/gallery", "/app.js/../api/gallery")
    for path, method in (*OPERATIONS, *[(path, "GET") for path in unusual]):
        answer = ask.request(method, path, params=dict(id="red-00.png", text="rot", token=TOKEN))
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", (path, method)
    for path in PAGE_FILES:
        answer = ask.get(path)
        assert answer.status_code == 200 and "red-00" not in answer.text


def test_the_token_in_the_address_sets_a_cookie(locked):
    ask = locked()
    wrong = ask.get("/", params=dict(token=TOKEN + "x"), follow_redirects=False)
    assert wrong.status_code == 200 and "set-cookie" not in wrong.headers
    right = ask.get("/", params=dict(q="rot & grün", token=TOKEN, lang="de"), follow_redirects=False)
    location = right.headers["location"]
    cookie = right.headers["set-cookie"]
    assert right.status_code == 303 and TOKEN not in location and location.startswith("/?q=rot+%26+gr")
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie and TOKEN not in cookie
    assert ask.get("/api/gallery").status_code == 200  # with the cookie
    injected = locked().get(f"/?token={TOKEN}&q=%0d%0aset-cookie:%20x=1", follow_redirects=False)
    assert "\n" not in injected.headers["location"] and len(injected.headers.get_list("set-cookie")) == 1
    other_host = locked().get("/", params=dict(token=TOKEN), headers=dict(host="evil.example"), follow_redirects=False)
    assert other_host.status_code == 400


# the command


def test_a_run_without_embeddings_is_refused_at_the_start(gallery, monkeypatch):
    monkeypatch.setenv("DASD_LAB_BACKEND", "torch")  # graphs that were exported to the working folder are not opened
    monkeypatch.setattr(loading, "load_run", lambda run, images=True: Other() if run == "R" else Named())
    with pytest.raises(LabError, match="gallery embed --gallery .* --run .*/R") as at_the_start:
        galleries.served_gallery(str(gallery.folder), "R")
    with pytest.raises(LabError) as in_a_search:
        StoredGallery(gallery.folder, Other(), run=recorded_name("R")).search("rot", "de")
    assert str(at_the_start.value) == str(in_a_search.value)
    galleries.served_gallery(str(gallery.folder)).close()


def test_the_built_in_gallery_is_made_for_each_embedding(tmp_path, drawn, monkeypatch):
    class Corpus:
        def visuals(self, split):
            return drawn

        def picture(self, id, size):
            return Image.open(drawn / id)

    monkeypatch.setattr(loading, "load_run", lambda run, images=True: Other() if run == "R" else Named())
    monkeypatch.setattr(galleries, "open_corpus", Corpus)
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path / "data"))
    for run in (None, "R", None, "R"):
        gallery = galleries.served_gallery(None, run)
        assert ids(client(gallery).get("/api/search", params=dict(text="rot", k=1))) == ["red-00.png"]
        assert len(gallery) == 12
        gallery.close()
    assert len(list((tmp_path / "data/galleries").iterdir())) == 2


SERVE = """
import sys
from served import Named
from dasd_lab.runs import loading
loading.shipped_run = str
loading.load_run = lambda run, images=True: Named()
from dasd_lab.commands.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_originals_are_asked_for_once(gallery, drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    assert not galleries._shown_originals(gallery) and "--originals FOLDER" in capsys.readouterr().err
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: "y\n")
    assert galleries._shown_originals(gallery) == str(drawn)
    assert f"original files below {drawn}" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "readline", lambda: "n\n")  # not asked again
    assert galleries._shown_originals(gallery) == str(drawn)


def test_the_command_serves_until_ctrl_c(gallery):
    "Its link works, other addresses of this machine do not, and Ctrl-C ends it without a message"
    gallery.close()
    here = Path(__file__).parent
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", str(gallery.folder), "--port", "0", "--name", "pc.lan"],
        cwd=here,
        env=os.environ | dict(PYTHONPATH=os.pathsep.join([str(here), str(here.parent)]), DASD_LAB_BACKEND="torch"),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        link = None
        while not link:
            lines.append(child.stderr.readline())
            assert lines[-1], lines
            link = re.search(r"http://127\.0\.0\.1:(\d+)(/\?token=(\S+))", lines[-1])
        port, path, token = int(link[1]), link[2], link[3]

        def get(path, more=""):
            return raw(port, f"GET {path} HTTP/1.1\nhost: pc.lan:{port}\n{more}")

        assert get("/api/search?text=rot")[0] == 401 and len(token) >= 24
        status, headers, _ = get(path)
        assert status == 303 and headers["location"] == "/"
        cookie = "cookie: " + headers["set-cookie"].split(";")[0] + "\n"
        status, _, answer = get("/api/search?text=rot&k=1", cookie)
        assert status == 200 and json.loads(answer)["hits"][0]["id"] == "red-00.png"
        if sys.platform == "linux":
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", port), 20)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
        assert (child.returncode, out, err) == (0, "", "")
    finally:
        child.kill()
        child.wait()
