"A service over a gallery, against what anybody may send: fuzzed by its own OpenAPI document, and asked by hand what a fuzzer does not think of"

import asyncio
import http.client
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import torch
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from PIL import Image
from served import COLOURS, Named, draw, make, picture, serving

from dasd_lab.commands.galleries import service_settings
from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve import limits
from dasd_lab.serve.limits import ServiceSettings, cookie_of
from dasd_lab.serve.server import OF_ONE, Watched, link
from dasd_lab.serve.service import gallery_app

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

OFTEN = dict(requests_per_minute=10**6, uploads_per_minute=10**6)
WRITER = ServiceSettings(may_write=True, timeout_s=120.0, hosts=("127.0.0.1", "localhost", "testserver"), **OFTEN)


def encoded(picture: Image.Image, kind: str = "PNG", **more) -> bytes:
    to = io.BytesIO()
    picture.save(to, kind, **more)
    return to.getvalue()


def sent(data: bytes, name="x.png", kind="image/png") -> dict:
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


# ---- the document


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


def holds(case):
    # a text is allowed that asks for nothing
    case.call_and_validate(excluded_checks=[CHECKS.get_one("positive_data_acceptance")])


@pytest.mark.parametrize("path,method", OPERATIONS, ids=lambda p: p.strip("/").replace("/", "-"))
def test_whatever_the_document_allows_or_forbids_is_answered_as_it_says(document, path, method):
    "No 5xx; statuses, kinds and bodies as documented; what the document forbids is refused"
    operation = document[path][method]
    for mode in GenerationMode:
        if path == "/api/gallery" and mode.is_negative:
            continue  # there is nothing that it forbids
        FUZZ(given(operation.as_strategy(generation_mode=mode))(holds))()


@pytest.mark.parametrize("path", ["/api/picture", "/api/thumbnail", "/api/original"])
def test_what_is_there_is_answered_as_the_document_says(document, path):
    "Ids that the fuzzer would not guess; whatever part of a file is asked for, it is sent whole"
    operation = document[path]["GET"]
    seen = set()
    there = st.tuples(
        st.sampled_from(["red-01.png", "green-02.png", "yellow-00.png"]),
        st.sampled_from([None, "bytes=0-3", "bytes=99999-", "bytes=0-1,4-5", "bytes=x"]),
    )

    @given(operation.as_strategy(), there)
    def one(case, known):
        case.query = dict(id=known[0])
        case.headers = {k: v for k, v in (case.headers or {}).items() if k.lower() != "range"}
        if known[1]:
            case.headers["range"] = known[1]
        r = case.call()
        seen.add(r.status_code)
        case.validate_response(r)

    FUZZ(one)()
    assert 200 in seen and 206 not in seen


@pytest.mark.parametrize("path,method", OPERATIONS, ids=lambda p: p.strip("/").replace("/", "-"))
def test_the_edges_of_the_document(document, path, method):
    "Shortest, longest, just too long, of another kind, twice, missing"
    operation = document[path][method]
    cases = list(
        document.iter_coverage_cases(
            operation, generation_modes=list(GenerationMode), generation_config=document.config.generation
        )
    )
    assert cases
    for case in cases:
        holds(case)


ODD = [
    None,
    True,
    0,
    -1,
    2**63 - 1,
    -(2**63) + 1,
    2**63,
    -(2**63),
    10**400,
    -0.0,
    0.1,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "red",
    "' OR 1=1 --",
    "\\",
    '"',
    "%_",
    "\x00",
    "\ud800",
    "\U0001f415",
    "x" * 5000,
    [],
    {},
    [[1]],
]
COLUMNS = [
    "shade",
    "colour",
    "light",
    "weight",
    "width",
    "modified",
    "digest",
    "description",
    "source",
    "id",
    "no such",
    "x' OR 'x",
]
values = st.one_of(
    st.sampled_from(ODD), st.integers(), st.floats(), st.text(st.characters(exclude_categories=()), max_size=9)
)
columns = st.sampled_from(COLUMNS)
conditions = st.one_of(
    values,
    st.lists(values, max_size=3),
    st.dictionaries(
        st.sampled_from(["from", "to", "starts", "not", "other"]),
        st.one_of(values, st.lists(values, max_size=3)),
        max_size=3,
    ),
)
letters = st.one_of(
    st.sampled_from(["rot", "蓝", "أزرق", "🐕", "  ", "\ud800", "\x00", "x" * 4000]),
    st.text(st.characters(exclude_categories=()), max_size=30),
)
known = st.sampled_from(["red-00.png", "yellow-02.png", "gone", "red' OR 'x", "\x00", "\ud800"])


class Asker:
    "Sends what a well-behaved client would not, and holds the answer against the document"

    def __init__(self, document):
        self.document = document
        self.raw = document.raw_schema
        self.client = TestClient(document.app, base_url="http://localhost", raise_server_exceptions=False)
        self.seen = set()

    def __call__(self, method, path, query=None, **more):
        r = self.client.request(method, f"{path}?{urlencode(query or {}, errors='surrogatepass')}", **more)
        self.seen.add(r.status_code)
        assert r.status_code < 500 and str(r.status_code) in self.raw["paths"][path][method.lower()]["responses"], (
            r.status_code,
            query,
            more,
            r.text,
        )
        if r.headers["content-type"] == "application/json":
            self.document[path][method].validate_response(r)
        return r.status_code


@pytest.mark.parametrize("column", ["shade", "colour", "light", "weight", "source"])
def test_every_odd_value(document, column):
    ask = Asker(document)
    for v in ODD:
        for condition in (v, {"from": v}, {"starts": v}):
            ask("GET", "/api/search", dict(text="rot", k=3, where=json.dumps({column: condition})))
        ask(
            "PATCH",
            "/api/picture",
            dict(id="red-00.png"),
            content=json.dumps(dict(facts={column: v})),
            headers={"content-type": "application/json"},
        )
    assert ask.seen == ({400, 422} if column == "source" else {200, 400, 422})


@pytest.mark.parametrize("what", ["search", "change", "add"])
def test_what_is_nearly_right(document, what):
    "Filters, facts and texts of every kind, put together: refused or taken, and the answer is as documented"
    ask = Asker(document)
    if what == "search":

        @given(
            st.fixed_dictionaries(
                {},
                optional=dict(
                    text=letters,
                    like=known,
                    where=st.dictionaries(columns, conditions, max_size=2).map(json.dumps),
                    share=st.floats(),
                    language=st.sampled_from(["", "de", "ar", "fr", "DE"]),
                    k=st.integers(-1, 1100),
                    skip=st.integers(-1, 9100),
                ),
            )
        )
        def one(query):
            ask("GET", "/api/search", query)
    elif what == "change":

        @given(
            known,
            st.one_of(
                st.dictionaries(columns, values, max_size=2).map(lambda f: dict(facts=f)),
                st.dictionaries(st.text(max_size=5), values, max_size=2),
                values,
            ),
        )
        def one(id, body):
            ask(
                "PATCH",
                "/api/picture",
                dict(id=id),
                content=json.dumps(body),
                headers={"content-type": "application/json"},
            )
    else:

        @given(
            st.sampled_from([encoded(picture("red", 1)), encoded(picture("red", 1), "JPEG")[:-40], b""]),
            st.one_of(
                st.dictionaries(columns, values, max_size=2).map(json.dumps), st.text(st.characters(codec="utf-8"))
            ),
            st.text(st.characters(codec="utf-8"), max_size=20),
        )
        def one(data, facts, name):
            ask("POST", "/api/pictures", files=sent(data, name or "x", "text/html"), data=dict(facts=facts))

    settings(FUZZ, max_examples=100)(one)()
    assert {400} < ask.seen and ask.seen & {200, 201}, ask.seen  # some were taken, some were refused


def test_lists_within_lists(gallery):
    "However deep, they are refused, in an address as in a form"
    ask = client(gallery)
    png = encoded(picture("red", 1))
    for n in (50, *range(975, 995), 9000):  # where the reader takes them in, and what comes after it does not
        deep = "[" * n + "]" * n
        not_in = '{"not":' * (n // 8) + "1" + "}" * (n // 8)
        for v in (deep, not_in):
            assert ask.get("/api/search", params=dict(text="rot", where=f'{{"shade":{v}}}')).status_code == 400, n
        assert ask.post("/api/pictures", files=sent(png), data=dict(facts=f'{{"shade":{deep}}}')).status_code == 400, n
    assert (
        ask.patch("/api/picture", params=dict(id="red-00.png"), json=dict(facts=dict(ids=1))).status_code == 400
        and len(gallery) == 12
    )


def test_the_document_lists_every_route(document, gallery):
    app = gallery_app(gallery, WRITER).app
    document.validate()
    routes = {(r.path, m) for r in app.routes if isinstance(r, APIRoute) for m in r.methods}
    raw = app.openapi()
    assert routes == {(p, m.upper()) for p, ops in raw["paths"].items() for m in ops} and len(routes) >= 9
    said = {o["operationId"]: set(o["responses"]) for ops in raw["paths"].values() for o in ops.values()}
    assert all({"400", "401", "403", "413", "421", "422", "429", "504"} <= s for s in said.values()), said
    assert raw["info"]["title"] == "Gallery" and not re.search(re.escape(str(gallery.folder)), json.dumps(raw))


# ---- sizes and times


def raw(port: int, head: str, *parts: bytes) -> tuple[int, dict, bytes]:  # status, headers, body
    "One request as it is written here, over a socket"
    with socket.create_connection(("127.0.0.1", port), 120) as s:
        s.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n")
        try:
            for p in parts:
                s.sendall(p)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the end
        got = http.client.HTTPResponse(s)
        got.begin()
        return got.status, {k.lower(): v for k, v in got.getheaders()}, got.read()


START = b'--b\r\ncontent-disposition: form-data; name="picture"; filename="x.png"\r\n\r\n'


def multipart(data: bytes) -> bytes:
    return START + data + b"\r\n--b--\r\n"


POST = "POST /api/search HTTP/1.1\nhost: localhost\ncontent-type: multipart/form-data; boundary=b\n"


def test_more_than_allowed_is_refused_however_it_comes(gallery):
    good = multipart(encoded(picture("red")))
    small = replace(WRITER, most_bytes=len(good))
    with serving(gallery_app(gallery, small)) as port:
        for said in (len(good) + 1, 10**12):
            assert raw(port, POST + f"content-length: {said}\n")[0] == 413  # unread

        def chunks(data):
            return [b"%x\r\n%s\r\n" % (len(data[i : i + 50]), data[i : i + 50]) for i in range(0, len(data), 50)]

        assert raw(port, POST + f"content-length: {len(good)}\n", good)[0] == 200
        assert raw(port, POST + "transfer-encoding: chunked\n", *chunks(good), b"0\r\n\r\n")[0] == 200
        status, _, body = raw(
            port,
            POST + "transfer-encoding: chunked\n",
            *chunks(good.replace(b"--b--", b"\r\n" * 30 + b"--b--")),
            b"0\r\n\r\n",
        )
        assert status == 413 and json.loads(body)["error"].startswith("More than")
        assert (
            raw(
                port,
                "PATCH /api/picture?id=red-00.png HTTP/1.1\nhost: localhost\ncontent-type: application/json\ntransfer-encoding: chunked\n",
                *chunks(b" " * (len(good) + 1)),
                b"0\r\n\r\n",
            )[0]
            == 413
        )
        assert raw(port, "GET /api/gallery HTTP/1.1\nhost: localhost\n")[0] == 200


def test_what_is_too_much_is_not_taken_in(gallery):
    "An endless body is left where it is"
    taken = 0
    said = []

    async def receive():
        nonlocal taken
        taken += 1
        return dict(type="http.request", body=(START if taken == 1 else b"") + b"x" * 1000, more_body=taken < 1000)

    async def send(m):
        said.append(m)

    for path, kind in {
        "/api/search": "multipart/form-data; boundary=b",
        "/api/picture": "application/json",
        "/app.js": "text/plain",
    }.items():
        taken = 0
        said = []
        head = [(b"host", b"localhost"), (b"content-type", kind.encode())]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(
                asyncio.run,
                gallery_app(gallery, replace(WRITER, most_bytes=5000))(
                    dict(
                        type="http",
                        http_version="1.1",
                        scheme="http",
                        method="PATCH" if "picture" in path else "POST",
                        path=path,
                        raw_path=path.encode(),
                        root_path="",
                        query_string=b"id=red-00.png",
                        client=("1.2.3.4", 1),
                        server=("localhost", 80),
                        headers=head,
                    ),
                    receive,
                    send,
                ),
            ).result()
        assert (
            taken <= 5
            and said[0]["status"] == (405 if path == "/app.js" else 413)
            and len([m for m in said if m["type"] == "http.response.start"]) == 1
        ), (path, taken, said)


class Slow(Named):
    "Waits for a sign before it reads a text"

    def __init__(self):
        super().__init__()
        self.go = threading.Event()
        self.count = threading.Lock()
        self.now = 0
        self.most = 0

    def encode_captions(self, captions, language):
        with self.count:
            self.now += 1
            self.most = max(self.most, self.now)
        self.go.wait(300)
        with self.count:
            self.now -= 1
        return super().encode_captions(captions, language)


def test_slow_senders_and_slow_answers_end(gallery):
    "Those that wait are told so; no more work is begun than allowed, even when those who asked have gone; afterwards all is as before"
    slow = Slow()
    app = gallery_app(gallery.with_method(slow), replace(WRITER, timeout_s=1.0, at_once=2))
    with serving(app) as port, ThreadPoolExecutor(12) as pool:

        def ask(_):
            return raw(port, "GET /api/search?text=rot HTTP/1.1\nhost: localhost\n")

        def said(r):
            return (r[0], json.loads(r[2])["error"])

        half = pool.submit(raw, port, POST + "content-length: 500\n", b"--b\r\n")
        for _ in range(2):
            assert {said(r) for r in pool.map(ask, range(6))} == {(504, "No answer within 1 s.")}
        while slow.now < 2:
            ask(0)  # a thread may take longer to begin than those who asked had patience
        assert (
            said(half.result()) == (504, "No answer within 1 s. The change may still be made.")
            and slow.most == 2
            and slow.now == 2
        )
        slow.go.set()
        for _ in range(50):
            if (last := ask(0))[0] == 200:
                break
        assert last[0] == 200 and json.loads(last[2])["hits"][0]["id"] == "red-00.png" and slow.most == 2


def test_how_often(gallery, monkeypatch):
    now = 5000.0
    monkeypatch.setattr(limits, "monotonic", lambda: now)
    ask = client(gallery, replace(WRITER, requests_per_minute=5, uploads_per_minute=2))
    small = dict(id="red-00.png")
    assert [ask.get("/api/gallery").status_code for _ in range(7)] == [200] * 5 + [429] * 2
    over = ask.get("/api/gallery")
    assert over.status_code == 429 and int(over.headers["retry-after"]) == 12 and over.json()["error"]
    assert [ask.post("/api/search", files=sent(encoded(picture("red")))).status_code for _ in range(3)] == [
        200,
        200,
        429,
    ] and ask.delete("/api/picture", params=small).status_code == 429
    assert [ask.get("/api/thumbnail", params=small).status_code for _ in range(51)] == [200] * 50 + [429]
    now += 11.9
    assert ask.get("/api/gallery").status_code == 429
    now += 0.1
    assert [ask.get("/api/gallery").status_code for _ in range(2)] == [200, 429]


def test_who_asks_is_no_matter_of_what_they_say(gallery, monkeypatch):
    "X-Forwarded-For is believed of a proxy that was named, and of nobody else"
    monkeypatch.setattr(limits, "monotonic", lambda: 0.0)
    few = gallery_app(gallery, replace(WRITER, requests_per_minute=3))

    def ask(port, who):
        return raw(port, f"GET /api/gallery HTTP/1.1\nhost: localhost\nx-forwarded-for: {who}\n")[0]

    with serving(few) as port:
        assert [ask(port, f"9.9.9.{i}") for i in range(5)] == [200] * 3 + [429] * 2
    few = gallery_app(gallery, replace(WRITER, requests_per_minute=3, token=TOKEN))

    def enter(port, kind):
        return raw(
            port,
            f"GET /?token={TOKEN} HTTP/1.1\nhost: localhost\nx-forwarded-for: 8.8.8.8\nx-forwarded-proto: {kind}\n",
        )

    with serving(few, proxies=["10.0.0.0/8"]) as port:
        assert [ask(port, f"9.9.9.{i}") for i in range(4)] == [401] * 3 + [429]  # another proxy than this one
    with serving(few, proxies=["127.0.0.1"]) as port:
        assert [
            ask(port, w)
            for w in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:9::", "2001:db8::3", "2001:db8:0:1::1", "9.9.9.77"]
        ] == [401] * 3 + [429, 401, 401]
        assert ["Secure" in enter(port, k)[1]["set-cookie"] for k in ("https", "http")] == [True, False]


# ---- connections


def ended(s) -> bool:
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


def test_nobody_keeps_connections_for_nothing(gallery, monkeypatch):
    "As many as there are, silent, or in the middle of a head: they end by themselves, and the service goes on"
    monkeypatch.setattr(Watched, "check_s", 0.3)
    with serving(gallery_app(gallery, WRITER)) as port:
        idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(OF_ONE - 1)]
        for i, s in enumerate(idle):
            try:
                # the last: no blank line
                s.sendall(
                    [b"", b"G", b"GET /api/gallery HTTP/1.1\r\nhost: loc", POST.replace("\n", "\r\n").encode()][i % 4]
                )
            except OSError:
                pass  # ended already
        assert all(map(ended, idle))
        monkeypatch.setattr(Watched, "check_s", 3.0)
        assert raw(port, "GET /api/gallery HTTP/1.1\nhost: localhost\n")[0] == 200
        # one that was answered and begins another head, byte by byte
        with socket.create_connection(("127.0.0.1", port), 60) as s:
            s.sendall(b"GET /icon.svg HTTP/1.1\r\nhost: localhost\r\n\r\n")
            got = http.client.HTTPResponse(s)
            got.begin()
            assert got.status == 200 and got.read()
            s.sendall(b"GET")
            s.settimeout(0.05)
            for _ in range(1200):
                try:
                    s.sendall(b"x")
                    over = ended(s)
                except TimeoutError:
                    continue
                except OSError:
                    over = True
                break
            assert over


def test_one_sender_has_a_share_of_the_connections(gallery, monkeypatch):
    monkeypatch.setattr(Watched, "check_s", 60.0)  # nobody is left for saying nothing
    with serving(gallery_app(gallery, WRITER)) as port:
        mine = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(OF_ONE)]
        mine[-1].sendall(b"GET /icon.svg HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert mine[-1].recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        with socket.create_connection(("127.0.0.1", port), 60) as more:
            assert ended(more)
        mine[0].close()
        mine[1].sendall(b"GET /icon.svg HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert mine[1].makefile("rb").read()
        assert raw(port, "GET /api/gallery HTTP/1.1\nhost: localhost\n")[0] == 200
        [m.close() for m in mine]
    with serving(gallery_app(gallery, WRITER), proxies=["127.0.0.1"]) as port:
        many = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(OF_ONE)]
        assert raw(port, "GET /api/gallery HTTP/1.1\nhost: localhost\n")[0] == 200
        [m.close() for m in many]  # a proxy speaks for many


class Ahead(asyncio.SelectorEventLoop):
    "Its time can be put forward"

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


def test_a_large_file_takes_the_time_that_it_takes():
    "The timeout is for computing and for silence: not for all of a request"

    def asked(
        received: list[tuple[int, int]], computing: int = 0, taken: tuple[int, ...] = (0,)
    ) -> tuple[
        int, bool
    ]:  # (seconds, bytes) of each part of a body, seconds, seconds for each part of the answer → status, whole
        said = []
        taken = list(taken)

        async def later(seconds):
            asyncio.get_running_loop().ahead += seconds
            await asyncio.sleep(0.001)

        async def app(scope, receive, send):
            while (await receive()).get("more_body"):
                pass
            await later(computing)
            await send(dict(type="http.response.start", status=200, headers=[]))
            for more in range(len(taken), 0, -1):
                await send(dict(type="http.response.body", body=b"x", more_body=more > 1))

        async def receive():
            seconds, n = received.pop(0)
            await later(seconds)
            return dict(type="http.request", body=b"x" * n, more_body=bool(received))

        async def send(m):
            if m["type"] == "http.response.body" and m.get("body") == b"x":
                await later(taken.pop(0))
            said.append(m)

        scope = dict(
            type="http",
            http_version="1.1",
            scheme="http",
            method="POST",
            path="/x",
            query_string=b"",
            client=("1.2.3.4", 1),
            headers=[(b"host", b"localhost")],
        )
        with asyncio.Runner(loop_factory=Ahead) as runner, ThreadPoolExecutor(1) as pool:
            pool.submit(runner.run, limits.Limits(app, replace(WRITER, timeout_s=20.0))(scope, receive, send)).result()
        return said[0]["status"], said[-1].get("more_body") is False or said[0]["status"] != 200

    # 300 seconds
    assert (
        asked([(0, 9)]) == (200, True)
        and asked([(15, 200_000)] * 20) == (200, True)
        and asked([(0, 9)], 15, (15,) * 20) == (200, True)
    )
    # a body that trickles, and one that stops
    assert asked([(15, 100)] * 20)[0] == 504 and asked([(0, 200_000), (25, 200_000)])[0] == 504
    # too long to compute; nobody reads any more
    assert asked([(0, 9)], 25)[0] == 504 and asked([(0, 9)], 0, (15, 25, 0)) == (200, False)


def test_one_who_does_not_read_is_left(tmp_path, drawn, gallery, monkeypatch):
    large = tmp_path / "large.png"
    large.write_bytes((drawn / "red-00.png").read_bytes() + bytes(30_000_000))
    gallery.engine.change(["red-00.png"], dict(source=str(large)))
    monkeypatch.setattr(Watched, "check_s", 2.0)
    gone = threading.Event()
    lost = Watched.connection_lost
    monkeypatch.setattr(Watched, "connection_lost", lambda self, e: (lost(self, e), gone.set()))
    with (
        serving(gallery_app(gallery, replace(WRITER, originals=str(tmp_path), timeout_s=4.0))) as port,
        socket.create_connection(("127.0.0.1", port), 60) as s,
    ):
        s.sendall(b"GET /api/original?id=red-00.png HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert s.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200" and gone.wait(120)


def test_what_is_sent_waits_on_the_disk(gallery, monkeypatch):
    "It is read into memory by the thread that looks at it, not before there is one, and never by the one that writes"
    import tempfile

    from dasd_lab.serve import service, uploads

    by = set()

    def watch(of, name, call):
        monkeypatch.setattr(
            of, name, lambda *a: (by.add((name, threading.current_thread().name.split("_")[0])), call(*a))[1]
        )

    watch(tempfile.SpooledTemporaryFile, "read", tempfile.SpooledTemporaryFile.read)
    watch(uploads, "read_picture", uploads.read_picture)
    watch(service, "reencoded", uploads.reencoded)
    data = encoded(picture("red", 1))
    ask = client(gallery)
    assert (
        ask.post("/api/search", files=sent(data)).status_code == 200
        and ask.post("/api/pictures", files=sent(data)).status_code == 201
        and by == {("read", "reads"), ("read_picture", "reads"), ("reencoded", "reads")}
    )


def test_writers_that_wait_hold_up_no_search(gallery, monkeypatch):
    "Such as for an import that has the lock"
    began = threading.Event()
    go = threading.Event()
    change = gallery.engine.change

    def slow(*a):
        began.set()
        go.wait(300)
        return change(*a)

    monkeypatch.setattr(gallery.engine, "change", slow)
    with (
        serving(gallery_app(gallery, replace(WRITER, at_once=2, timeout_s=60.0))) as port,
        ThreadPoolExecutor(6) as pool,
    ):
        try:
            patches = [
                pool.submit(
                    raw,
                    port,
                    "PATCH /api/picture?id=red-00.png HTTP/1.1\nhost: localhost\ncontent-type: application/json\ncontent-length: 23\n",
                    b'{"facts": {"shade": 5}}',
                )
                for _ in range(6)
            ]
            assert began.wait(60)
            while sum(p.running() for p in patches) < 6:
                time.sleep(0.01)
            assert [raw(port, "GET /api/search?text=rot&k=3 HTTP/1.1\nhost: localhost\n")[0] for _ in range(3)] == [
                200
            ] * 3
        finally:
            go.set()
        assert 200 in [p.result()[0] for p in patches]


# ---- places

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


def test_no_way_out_of_the_gallery(tmp_path):
    drawn = draw(tmp_path / "drawn", 1)
    secret = tmp_path / "secret.png"
    picture("blue", 9, (31, 17)).save(secret)
    (tmp_path / "secret.txt").write_text("secret words")
    gallery = make(tmp_path / "gallery", drawn)
    (drawn / "notes.txt").write_text("secret words")
    gallery.engine.change(["blue-00.png"], dict(source=str(drawn / "notes.txt")))
    gallery.add([secret], ["outside"])
    (drawn / "link.png").symlink_to(secret)
    gallery.add([drawn / "link.png"], ["a link"])
    later = drawn / "green-00.png"
    later.unlink()
    later.symlink_to(secret)
    forbidden = [secret.read_bytes(), b"secret words", b"root:", b'"stored gallery"']
    ask = client(gallery, replace(WRITER, originals=str(drawn)))
    try:
        assert ask.get("/api/original", params=dict(id="red-00.png")).content == (drawn / "red-00.png").read_bytes()
        assert ask.get("/api/picture", params=dict(id="red-00.png")).json()["original"] is True
        new = ask.post("/api/pictures", files=sent(encoded(picture("red", 3)))).json()
        kept = ask.get("/api/original", params=dict(id=new["id"]))
        assert (
            new["original"]
            and kept.headers["content-type"] == "image/webp"
            and kept.content == (tmp_path / "gallery" / new["id"]).read_bytes()
        )
        assert client(gallery, WRITER).get("/api/original", params=dict(id=new["id"])).status_code == 404
        for id in ("outside", "a link", "green-00.png", "blue-00.png"):
            assert (
                ask.get("/api/original", params=dict(id=id)).status_code == 404
                and ask.get("/api/picture", params=dict(id=id)).json()["original"] is False
            )
        for place in ELSEWHERE:
            for path in ("original", "thumbnail", "picture"):
                r = ask.get(f"/api/{path}", params=dict(id=place))
                assert r.status_code == 404 and not any(f in r.content for f in forbidden), (path, place)
            assert (
                ask.get("/api/search", params=dict(like=place)).status_code == 404
                and ask.delete("/api/picture", params=dict(id=place)).status_code == 404
            )
        assert (
            (tmp_path / "secret.txt").is_file()
            and (tmp_path / "gallery" / "gallery.json").is_file()
            and len(gallery) == 7
        )
        with serving(gallery_app(gallery, replace(WRITER, originals=str(drawn)))) as port:
            for path in (
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
            ):
                status, _, body = raw(port, f"GET {path} HTTP/1.1\nhost: localhost\n")
                assert (
                    status in (400, 404) and b"import" not in body and b"[DEFAULT]" not in body and b"root:" not in body
                ), (path, status)
            for path, kind in {
                "/": "text/html",
                "/app.js": "javascript",
                "/style.css": "text/css",
                "/icon.svg": "image/svg+xml",
            }.items():
                status, head, body = raw(port, f"GET {path} HTTP/1.1\nhost: localhost\n")
                assert (
                    status == 200
                    and kind in head["content-type"]
                    and body
                    and head["x-content-type-options"] == "nosniff"
                )
    finally:
        gallery.close()


class Other(Named):
    "Sees as `Named` does, by another name"

    def __init__(self):
        super().__init__()
        self.backbone.register_buffer("other", torch.ones(1))


def test_an_id_is_never_opened_as_a_file(tmp_path, monkeypatch):
    "Not even that of a picture which the method has not looked at, where a file of that name lies before the service"
    drawn = draw(tmp_path / "drawn", 1)
    gallery = make(tmp_path / "gallery", drawn)
    other = gallery.with_method(Other())
    assert other.embedding != gallery.embedding
    monkeypatch.chdir(tmp_path)
    picture("blue", 0).save("red-00.png")
    assert client(other).get("/api/search", params=dict(like="red-00.png")).status_code == 400
    (drawn / "red-00.png").unlink()
    with pytest.warns(UserWarning, match="could not be read"):
        assert other.embed() == 3
    ask = client(other)
    assert ids(ask.get("/api/search", params=dict(text="rot")))[-1] != "red-00.png" and len(other) == 4
    for q in (dict(like="red-00.png"), dict(like="red-00.png", text="rot")):
        r = ask.get("/api/search", params=q)
        assert r.status_code == 400 and "gallery embed" in r.json()["next_step"], r.text
    assert ids(ask.get("/api/search", params=dict(like="green-00.png")))[0] == "green-00.png"
    gallery.close()


def test_no_answer_tells_a_folder_as_it_was_typed(tmp_path, drawn, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gallery = make(Path("our-secret/gallery"), drawn)
    (gallery.folder / "uploads").write_text("in the way")
    r = client(gallery).post("/api/pictures", files=sent(encoded(picture("red", 2))))
    assert r.status_code == 400 and "could not be written" in r.json()["error"] and "our-secret" not in r.text
    gallery.close()


def test_no_answer_tells_where_it_runs(tmp_path):
    "Neither those that succeed nor those that fail, also where the disk fails; and no filter finds it out letter by letter"
    drawn = draw(tmp_path / "drawn", 1)
    gallery = make(tmp_path / "gallery", drawn)
    ask = client(gallery, replace(WRITER, originals=str(drawn)))
    png = encoded(picture("red", 2))
    answers = []

    def get(path, **q):
        return answers.append(ask.get(path, params=q)) or answers[-1]

    for q in (
        dict(text="rot"),
        dict(text="rot", where='{"source":{"starts":"/"}}'),
        dict(text="rot", where='{"no":1}'),
        dict(text=""),
        dict(like="red-00.png"),
        dict(text="rot", k="x"),
        dict(text="rot", language="fr"),
    ):
        get("/api/search", **q)
    assert answers[1].status_code == 400 and "source" not in answers[2].json()["expected"]
    for path in ("/api/gallery", "/api/openapi.json", "/api/picture", "/api/thumbnail", "/api/original", "/nothing"):
        get(path, id="red-00.png")
    answers += [
        ask.post("/api/pictures", files=sent(png)),
        ask.post("/api/pictures", files=sent(b"x")),
        ask.post("/api/pictures", files=sent(png), data=dict(facts='{"year":1}')),
        ask.patch("/api/picture", params=dict(id="red-00.png"), json=dict(facts=dict(source="x"))),
    ]
    for f in (tmp_path / "gallery" / "uploads").iterdir():
        f.unlink()
    (tmp_path / "gallery" / "uploads").rmdir()
    (tmp_path / "gallery" / "uploads").write_text("in the way")
    answers.append(ask.post("/api/pictures", files=sent(encoded(picture("red", 3)))))
    assert answers[-1].status_code == 400 and "could not be written" in answers[-1].json()["error"]
    (drawn / "red-00.png").unlink()
    get("/api/original", id="red-00.png")
    gallery.close()
    broken = get("/api/search", text="rot")
    assert broken.status_code == 500
    told = [r.text + str(r.headers) for r in answers]
    assert len(told) > 18
    for t in told:
        assert (
            str(tmp_path) not in t
            and str(Path(__file__).parents[1]) not in t
            and "Traceback" not in t
            and "site-packages" not in t
        ), t


# ---- what is sent


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def png(width: int, height: int, *chunks: bytes) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0")
        + b"".join(chunks)
        + chunk(b"IEND", b"")
    )


def zipped() -> bytes:
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w") as z:
        z.writestr("evil.html", "<script>alert(1)</script>")
    return to.getvalue()


def bombs():
    empty = zlib.compressobj(9)
    # 52 million pixels in a hundred thousand bytes
    rows = b"".join(empty.compress(bytes(1 + 3 * 20_000)) for _ in range(2600)) + empty.flush()
    yield "many pixels, whole", png(20_000, 2_600, chunk(b"IDAT", rows))
    yield "very many pixels, only said", png(2**31 - 1, 2**31 - 1, chunk(b"IDAT", zlib.compress(b"")))
    yield "a large GIF", b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;"
    yield (
        "a small GIF with a large frame",
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;",
    )
    yield (
        "a large JPEG, only said",
        encoded(picture("red"), "JPEG").replace(
            b"\xff\xc0\x00\x11\x08\x00\x10\x00\x18", b"\xff\xc0\x00\x11\x08\xff\xff\xff\xff"
        ),
    )
    yield (
        "a TIFF with a large tile",
        b"II*\0\x08\0\0\0\x0b\0"
        + b"".join(
            struct.pack("<HHII", *e)
            for e in (
                (256, 4, 1, 16),
                (257, 4, 1, 16),
                (258, 3, 1, 8),
                (259, 3, 1, 8),
                (262, 3, 1, 2),
                (277, 3, 1, 3),
                (284, 3, 1, 1),
                (322, 4, 1, 9000),
                (323, 4, 1, 9000),
                (324, 4, 1, 200),
                (325, 4, 1, 40),
            )
        )
        + bytes(4)
        + bytes(46)
        + zlib.compress(bytes(4000))
        + bytes(99),
    )
    yield (
        "a WebP with a large canvas",
        b"RIFF\x80\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\x3f\0\xff\x3f\0ANIM\x06\0\0\0\0\0\0\0\0\0" + bytes(90),
    )
    yield (
        "a large BMP, only said",
        encoded(picture("red"), "BMP").replace(
            (24).to_bytes(4, "little") + (16).to_bytes(4, "little"), (60_000).to_bytes(4, "little") * 2
        ),
    )
    yield (
        "a large TIFF",
        encoded(picture("red"), "TIFF").replace(
            b"\x00\x01\x04\x00\x01\x00\x00\x00\x18\x00", b"\x00\x01\x04\x00\x01\x00\x00\x00\x18\xff"
        ),
    )


@pytest.mark.parametrize("data", [pytest.param(d, id=n.replace(" ", "-")) for n, d in bombs()])
def test_bombs_are_refused(gallery, data, monkeypatch):
    "Unread: nothing is decoded, and no memory taken for it"
    from dasd_lab.serve import uploads

    decoded = []
    monkeypatch.setattr(uploads, "read_picture", lambda *a: decoded.append(a))
    ask = client(gallery)
    size, most = memory()
    assert len(data) < 300_000
    r = ask.post("/api/search", files=sent(data))
    assert r.status_code == 400 and r.json()["error"], r.text
    assert not decoded and memory()[1] - size < 80e6


def memory() -> tuple[int, int]:  # now, and the most since this was asked the last time
    "Of this process, in bytes; 0 where the system does not say"
    try:
        now, most = (
            int(re.search(rf"{n}:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1000
            for n in ("VmRSS", "VmHWM")
        )
        Path("/proc/self/clear_refs").write_text("5")
        return now, most
    except OSError:
        return 0, 0


def test_a_bomb_in_words_does_no_harm(gallery):
    words = png(
        24,
        16,
        chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * 100_000_000)),
        chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * 24) * 16)),
    )
    r = client(gallery).post("/api/search", files=sent(words))
    assert r.status_code == 400 or ids(r)[0].startswith("red")


def test_large_pictures_are_decoded_one_after_the_other(gallery, monkeypatch):
    "A small file can take a gigabyte while it is decoded"
    from dasd_lab.serve import uploads

    now = 0
    most = 0
    count = threading.Lock()
    real = uploads.read_picture

    def watched(*a):
        nonlocal now, most
        with count:
            now += 1
            most = max(most, now)
        try:
            return real(*a)
        finally:
            with count:
                now -= 1

    monkeypatch.setattr(uploads, "read_picture", watched)
    data = encoded(Image.new("RGB", (4100, 3000), (250, 5, 5)), compress_level=1)
    with serving(gallery_app(gallery, replace(WRITER, timeout_s=120.0))) as port, ThreadPoolExecutor(4) as pool:
        for _, answer in pool.map(
            lambda _: raw(port, POST + f"content-length: {len(multipart(data))}\n", multipart(data))[::2], range(4)
        ):
            assert json.loads(answer)["hits"][0]["id"].startswith("red")
    assert most == 1


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


@pytest.mark.parametrize("name", NO_PICTURES)
def test_what_is_no_picture_is_refused_and_not_kept(gallery, name):
    data, kind = NO_PICTURES[name]
    ask = client(gallery)
    before = len(gallery)
    for path in ("/api/search", "/api/pictures"):
        r = ask.post(path, files=sent(data, name, kind))
        assert r.status_code == 400 and r.json()["error"], (path, r.text)
    assert len(gallery) == before and not [*(gallery.folder / "uploads").glob("*")]


def test_half_a_picture_and_noise(gallery):
    "Cut anywhere, or with bytes changed, a file is a picture or is refused"
    ask = client(gallery)
    seen = set()
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP"):
        whole = encoded(picture("green", 1, (40, 30)), kind)
        assert ask.post("/api/search", files=sent(whole)).status_code == 200
        for i in range(0, len(whole), max(1, len(whole) // 12)):
            for data in (whole[:i], whole[:i] + b"\xff\0" * 3 + whole[i + 6 :]):
                seen.add(s := ask.post("/api/search", files=sent(data)).status_code)
                assert s in (200, 400), (kind, i, s)
    assert seen == {200, 400}


def test_polyglots_leave_only_their_pixels(gallery):
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    both = {
        "JPEG": encoded(picture("red", 1), "JPEG", exif=exif) + zipped(),
        "PNG": encoded(picture("green", 1)) + b"<script>alert(1)</script>",
        "GIF": encoded(picture("blue", 1), "GIF") + zipped(),
        "WEBP": encoded(picture("red", 2), "WEBP", exif=exif) + b"%PDF-1.4",
    }
    ask = client(gallery)
    for kind, data in both.items():
        r = ask.post("/api/pictures", files=sent(data, "../../evil.html", "text/html"))
        assert r.status_code == 201, r.text
        id = r.json()["id"]
        assert re.fullmatch(r"uploads/[0-9a-f]{20}\.webp", id)
        kept = [(gallery.folder / id).read_bytes(), ask.get("/api/thumbnail", params=dict(id=id)).content]
        for k in kept:
            assert (
                not any(w in k for w in (b"script", b"where I live", b"PK\x03\x04", b"%PDF", b"Exif"))
                and Image.open(io.BytesIO(k)).format == "WEBP"
            ), kind
        small = ask.get("/api/thumbnail", params=dict(id=id))
        assert (
            small.headers["content-type"] == "image/webp"
            and small.headers["x-content-type-options"] == "nosniff"
            and "default-src 'none'" in small.headers["content-security-policy"]
        )
    assert {p.name for p in (gallery.folder / "uploads").iterdir()} == {
        i.removeprefix("uploads/") for i in gallery.thumbnails if i.startswith("uploads/")
    } and not (gallery.folder.parent / "evil.html").exists()


def test_what_is_removed_or_refused_leaves_no_file(gallery):
    ask = client(gallery)
    data = encoded(picture("yellow", 5))
    assert ask.post("/api/pictures", files=sent(data), data=dict(facts='{"shade":"x"}')).status_code == 400 and not [
        *(gallery.folder / "uploads").glob("*")
    ]
    id = ask.post("/api/pictures", files=sent(data), data=dict(facts='{"shade":5}')).json()["id"]
    # the one that is there stays
    assert (
        ask.post("/api/pictures", files=sent(data), data=dict(facts='{"shade":"x"}')).status_code == 400
        and (gallery.folder / id).is_file()
    )
    assert (
        ask.delete("/api/picture", params=dict(id=id)).json() == dict(pictures=1)
        and not (gallery.folder / id).exists()
        and id not in gallery
        and ask.get("/api/thumbnail", params=dict(id=id)).status_code == 404
    )
    drawn = Path(gallery.facts(["red-00.png"])["source"].item())
    # a file of somebody else's is left
    assert ask.delete("/api/picture", params=dict(id="red-00.png")).status_code == 200 and drawn.is_file()


def test_a_picture_that_is_sent_again_keeps_what_people_wrote(gallery):
    ask = client(gallery)
    data = sent(encoded(picture("yellow", 6)))
    first = ask.post("/api/pictures", files=data, data=dict(facts='{"shade":5,"colour":"amber"}')).json()
    id = first["id"]
    assert (
        ask.patch(
            "/api/picture", params=dict(id=id), json=dict(facts=dict(description="a field of wheat", light=True))
        ).status_code
        == 200
    )
    again = ask.post("/api/pictures", files=data).json()
    more = ask.post("/api/pictures", files=data, data=dict(facts='{"shade":7}')).json()

    def known(r):
        return [r["facts"][n] for n in ("shade", "colour", "light", "description")]

    assert (
        again["id"] == more["id"] == id
        and known(again) == [5, "amber", True, "a field of wheat"]
        and known(more) == [7, "amber", True, "a field of wheat"]
        and len(gallery) == 13
        and again["facts"]["added"] == first["facts"]["added"]
    )


def test_what_fails_after_a_picture_was_kept_leaves_its_file(gallery, monkeypatch):
    "Whatever it is; sent again it is whole, also where a file was lost"
    ask = client(gallery)
    data = sent(encoded(picture("green", 7)))

    def failing(call):
        def called(*given, **more):
            call(*given, **more)
            raise OSError(28, "No space left on device")

        return called

    with monkeypatch.context() as m:
        m.setattr(gallery.engine, "put", failing(gallery.engine.put))
        assert ask.post("/api/pictures", files=data).status_code == 500
    (file,) = (gallery.folder / "uploads").iterdir()
    id = f"uploads/{file.name}"
    assert id in gallery
    kept = file.read_bytes()
    for lost in (False, True):
        if lost:
            file.unlink()
        again = ask.post("/api/pictures", files=data)
        assert (again.status_code, again.json()["id"]) == (201, id) and file.read_bytes() == kept and len(gallery) == 13
    with monkeypatch.context() as m:
        m.setattr(gallery.engine, "remove", failing(gallery.engine.remove))
        assert ask.delete("/api/picture", params=dict(id=id)).status_code == 500
    assert id not in gallery and not file.exists()


def test_two_services_get_the_same_picture(gallery, monkeypatch):
    "What one has taken in, the other sees a moment later; it is kept once, with its file and with what both were told"
    other = StoredGallery(gallery.folder, Named())
    first = client(gallery)
    second = client(other)
    data = sent(encoded(picture("blue", 7)))
    id = first.post("/api/pictures", files=data, data=dict(facts='{"shade":7,"colour":"navy"}')).json()["id"]
    other.engine._columns_with(["of the newest version"])

    def late(*_):
        monkeypatch.undo()
        return False  # as it was before

    monkeypatch.setattr(StoredGallery, "__contains__", late)
    r = second.post("/api/pictures", files=data, data=dict(facts='{"shade":8}'))
    monkeypatch.undo()
    assert (
        r.status_code == 201
        and r.json()["id"] == id
        and (r.json()["facts"]["shade"], r.json()["facts"]["colour"]) == (8, "navy")
        and len(other) == 13
        and (gallery.folder / id).is_file()
    )
    assert (
        second.post("/api/pictures", files=data, data=dict(facts='{"shade":"x"}')).status_code == 400
        and (gallery.folder / id).is_file()
    )
    assert first.delete("/api/picture", params=dict(id=id)).status_code == 200 and not (gallery.folder / id).exists()
    assert (
        second.post("/api/pictures", files=data).status_code == 201 and id in other and (gallery.folder / id).is_file()
    )
    other.close()


# ---- who asks


def test_other_names_and_other_sites(gallery):
    ask = client(gallery)

    def get(path="/api/gallery", method="GET", **h):
        return ask.request(method, path, headers={k.replace("_", "-"): v for k, v in h.items()}).status_code

    assert [
        get(host=h)
        for h in (
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8000",
            "evil.example",
            "localhost.evil.example",
            "evil.example:80",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
            "[::1]:9",
            "",
            "[::1",
            "0.0.0.0",
            "xn--localhost",
        )
    ] == [200, 200, 200, 421, 421, 421, 421, 421, 421, 421, 421, 421, 421]
    assert get(host="evil.example", x_forwarded_host="localhost") == 421 and get(x_forwarded_host="evil.example") == 200
    assert [
        get(origin=o)
        for o in (
            "http://localhost",
            "http://localhost:81",
            "http://evil.example",
            "null",
            "https://evil.example/localhost",
            "http://localhost.evil.example",
        )
    ] == [200, 403, 403, 403, 403, 403]
    assert [get(sec_fetch_site=s) for s in ("same-origin", "none", "same-site", "cross-site", "x")] == [
        200,
        200,
        403,
        403,
        403,
    ]
    assert [
        get("/", sec_fetch_site="cross-site"),
        get("/app.js", sec_fetch_site="cross-site"),
        get("/", "POST", sec_fetch_site="cross-site"),
        get("/api/picture?id=red-00.png", "DELETE", origin="http://evil.example"),
    ] == [200, 403, 403, 403]
    assert "red-00.png" in gallery
    with serving(gallery_app(gallery, WRITER)) as port:
        assert (
            raw(port, "GET /api/gallery HTTP/1.0\n")[0] == 421
            and raw(port, "GET http://evil.example/api/gallery HTTP/1.1\nhost: evil.example\n")[0] == 421
        )
        for head in (
            "host: localhost\ncontent-length: -1\n",
            "host: localhost\ncontent-length: \xb2\n",
            "host: localhost\ncontent-length: 3, 4\n",
        ):
            assert raw(port, f"POST /api/search HTTP/1.1\n{head}")[0] in (400, 421, 422)
    assert (
        "frame-ancestors 'none'" in ask.get("/").headers["content-security-policy"]
        and "access-control-allow-origin"
        not in ask.get("/api/gallery", headers=dict(origin="http://localhost")).headers
    )


TOKEN = "a-token-of-many-letters"


def test_who_knows_the_token(gallery, monkeypatch):
    monkeypatch.setattr(limits, "monotonic", lambda: 0.0)
    locked = replace(WRITER, token=TOKEN)

    def ask(**h):
        return client(gallery, locked, headers=h)

    name, value = cookie_of(TOKEN)
    cookie = f"{name}={value}"
    knows = [
        {"authorization": f"Bearer {TOKEN}"},
        {"cookie": cookie},
        {"cookie": f"a=b; {cookie}; c=d"},
        {"cookie": f"{cookie}", "authorization": "Bearer x"},
    ] + [
        {"cookie": f"{odd}; {cookie}"}
        for odd in (
            'grid={"a": [1, 2], "b": "x"}',
            "a b=c",
            'x="y',
            "[]",
            "=",
            "@=,",
            "name with blanks",
            f"{name}=old",
        )
    ]
    guesses = [
        {},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer \xe4".encode("latin-1")},
        {"cookie": f"{name}="},
        {"cookie": f"other={value}"},
        {"cookie": f"{name}x={value}"},
        {"cookie": f"{name}={TOKEN}"},
        {"cookie": ";;=;"},
        {"x-token": TOKEN},
        {"cookie": f'{name}="'},
    ]
    assert [[ask(**h).get("/api/gallery").status_code for h in some] for some in (knows, guesses)] == [
        [200] * len(knows),
        [401] * len(guesses),
    ]
    nobody = ask()
    paths = [
        (r.path, m)
        for r in gallery_app(gallery, locked).app.routes
        for m in r.methods or ()
        if r.path.startswith("/api")
    ]
    assert len(paths) >= 10
    for path, method in [
        *paths,
        ("/api/../api/gallery", "GET"),
        ("//api/gallery", "GET"),
        ("/API/gallery", "GET"),
        ("/app.js/../api/gallery", "GET"),
        ("/anything", "GET"),
    ]:
        r = nobody.request(method, path, params=dict(id="red-00.png", text="rot", token=TOKEN))
        assert r.status_code == 401 and r.headers["www-authenticate"] == "Bearer", (path, method)
    for path in ("/", "/app.js", "/style.css", "/icon.svg"):
        r = nobody.get(path)
        assert r.status_code == 200 and "red-00" not in r.text
    wrong = nobody.get("/", params=dict(token=TOKEN + "x"), follow_redirects=False)
    assert wrong.status_code == 200 and "set-cookie" not in wrong.headers
    right = nobody.get("/", params=dict(q="rot & grün", token=TOKEN, lang="de"), follow_redirects=False)
    assert (
        right.status_code == 303
        and TOKEN not in right.headers["location"]
        and right.headers["location"].startswith("/?q=rot+%26+gr")
        and "HttpOnly" in right.headers["set-cookie"]
        and "SameSite=Strict" in right.headers["set-cookie"]
    )
    # the cookie came with the answer
    assert (
        nobody.get("/api/gallery").status_code == 200
        and TOKEN not in right.headers["set-cookie"]
        and "Secure" not in right.headers["set-cookie"]
    )
    other = client(gallery, replace(locked, token="another-token-of-many"))
    other.cookies = nobody.cookies
    assert other.get("/api/gallery").status_code == 401
    other.get("/", params=dict(token="another-token-of-many"))
    # another port of this machine; both stay known
    assert other.get("/api/gallery").status_code == 200 and len(other.cookies) == 2
    nobody.cookies = other.cookies
    assert nobody.get("/api/gallery").status_code == 200
    nobody.cookies.clear()
    nobody.get("/", params=dict(token=TOKEN))
    odd = nobody.get(f"/?token={TOKEN}&q=%0d%0aset-cookie:%20x=1", follow_redirects=False)
    assert "\n" not in odd.headers["location"] and len(odd.headers.get_list("set-cookie")) == 1
    away = client(gallery, replace(locked, requests_per_minute=3))
    # guessing is slow
    assert [away.get("/", params=dict(token=f"guess{i}")).status_code for i in range(4)] == [200, 200, 200, 429]
    assert (
        client(gallery, locked)
        .get("/", params=dict(token=TOKEN), headers=dict(host="evil.example"), follow_redirects=False)
        .status_code
        == 421
    )


def test_a_reader_changes_nothing(gallery):
    ask = client(gallery, replace(WRITER, may_write=False))
    data = sent(encoded(picture("red", 1)))
    assert [
        ask.post("/api/pictures", files=data).status_code,
        ask.patch("/api/picture", params=dict(id="red-00.png"), json=dict(facts={})).status_code,
        ask.delete("/api/picture", params=dict(id="red-00.png")).status_code,
    ] == [403] * 3 and len(gallery) == 12


# ---- many at once


def test_sixteen_people_at_once_lose_nothing(tmp_path):
    "Each adds pictures of their own, finds them, changes one and removes one, all at the same time, in a gallery that was empty"
    gallery = StoredGallery(tmp_path / "new", Named(), dict(shade="integer", colour="text"))

    def person(n: int) -> tuple[list[str], str]:
        web = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        mine = []

        def ask(method, path, body=None, kind="application/json"):
            web.request(method, path, body, {"content-type": kind} if body else {})
            r = web.getresponse()
            return r.status, json.loads(r.read())

        for i in range(3):
            colour = [*COLOURS][n % 4]
            status, told = ask(
                "POST",
                "/api/pictures",
                multipart(encoded(picture(colour, 10 + n, (20 + n, 20 + i)))),
                "multipart/form-data; boundary=b",
            )
            assert status == 201, told
            mine.append(told["id"])
            status, told = ask(
                "GET", f"/api/search?text={['rot', 'gr%C3%BCn', 'blau', 'rot'][n % 4]}&language=de&k=100"
            )
            assert status == 200 and {*mine} <= {h["id"] for h in told["hits"]}
        status, told = ask("PATCH", f"/api/picture?id={mine[1]}", json.dumps(dict(facts=dict(shade=n, colour="mine"))))
        assert (status, told) == (200, dict(pictures=1))
        status, told = ask("DELETE", f"/api/picture?id={mine[0]}")
        assert (status, told) == (200, dict(pictures=1))
        web.close()
        return mine, mine[0]

    with serving(gallery_app(gallery, replace(WRITER, timeout_s=120.0))) as port, ThreadPoolExecutor(16) as pool:
        people = list(pool.map(person, range(16)))
    removed = {r for _, r in people}
    kept = {i for mine, _ in people for i in mine} - removed
    assert len(kept) == 32 and len(removed) == 16
    gallery.close()
    again = StoredGallery(gallery.folder, Named())
    there = {i for rows in again.engine.walk([]) for i in rows["id"]}
    assert (
        there == kept == {*again.thumbnails} == {f"uploads/{p.name}" for p in (gallery.folder / "uploads").iterdir()}
        and len(again) == 32
    )
    assert (
        again.facts([m[1] for m, _ in people])["shade"].tolist() == [*range(16)]
        and {*again.search("rot", "de", k=100).ids} == kept
    )
    again.close()


def test_a_picture_that_comes_and_goes(gallery):
    "Two add the same picture again and again, two remove it: every answer is true, and in the end there is a file where there is a row"
    ask = client(gallery)
    data = encoded(picture("red", 7))
    id = ask.post("/api/pictures", files=sent(data)).json()["id"]
    start = threading.Barrier(4)

    def again(adds: bool) -> set[int]:
        start.wait()
        return {
            (
                ask.post("/api/pictures", files=sent(data)) if adds else ask.delete("/api/picture", params=dict(id=id))
            ).status_code
            for _ in range(15)
        }

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(again, [True, False] * 2))
    assert (
        seen[0] | seen[2] == {201}
        and seen[1] | seen[3] <= {200, 404}
        and (gallery.folder / id).is_file() == (id in gallery) == (id in gallery.thumbnails)
    )


# ---- the command


@pytest.mark.parametrize(
    "host,names",
    [
        ("127.0.0.1", []),
        ("localhost", []),
        ("::1", []),
        ("0.0.0.0", ["pc.lan"]),
        ("::", ["2001:DB8::1"]),
        ("192.168.1.5", ["PC.lan", "other.lan"]),
        ("127.0.0.1", ["pictures.example.org"]),
    ],
)
def test_the_link_leads_to_the_service(host, names):
    settings = service_settings(host=host, name=names)
    address = urlsplit(link(host, 8765, names, settings.token))
    name, port = address.netloc.rsplit(":", 1)
    assert name in settings.hosts and port == "8765"
    assert parse_qs(address.query).get("token", [""]) == [settings.token]
    assert bool(settings.token) == bool(names)


def test_a_run_that_has_not_looked_is_refused_at_the_start(tmp_path, drawn, gallery, monkeypatch):
    from dasd_lab.commands import galleries
    from dasd_lab.contracts import LabError
    from dasd_lab.training import recipes

    monkeypatch.setattr(recipes, "shipped_run", lambda: "shipped")
    monkeypatch.setattr(recipes, "load_run", lambda run: Other() if run == "R" else Named())
    with pytest.raises(LabError, match="gallery embed --gallery .* --run R"):
        galleries.served_gallery(str(gallery.folder), "R")
    (there := galleries.served_gallery(str(gallery.folder))).close()

    class Corpus:
        def visuals(self, split):
            return drawn

        def picture(self, id, size):
            return Image.open(drawn / id)

    monkeypatch.setattr(galleries, "open_corpus", Corpus)
    # the built-in gallery is made for each way of seeing
    monkeypatch.setattr(galleries, "in_lab", lambda *parts: tmp_path.joinpath(*parts))
    for run in (None, "R", None, "R"):
        own = galleries.served_gallery(None, run)
        assert ids(client(own).get("/api/search", params=dict(text="rot", k=1))) == ["red-00.png"] and len(own) == 12
        own.close()


def test_the_command_serves_until_it_is_stopped(gallery):
    "Its link is followed, the gallery is searched, and Ctrl-C ends it without a word; nobody but this machine is listened to"
    gallery.close()
    code = "import sys; from served import Named; from dasd_lab.training import recipes; recipes.shipped_run = str; recipes.load_run = lambda run: Named(); from dasd_lab.cli import main; sys.exit(main(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "serve", str(gallery.folder), "--port", "0", "--name", "pc.lan"],
        cwd=Path(__file__).parent,
        env=os.environ | dict(PYTHONPATH=str(Path(__file__).parent)),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = []
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)(/\?token=(\S+))", told[-1] if told else "")):
            told.append(child.stderr.readline())
            assert told[-1], told
        port = int(found[1])
        path = found[2]
        token = found[3]

        def get(path, more=""):
            return raw(port, f"GET {path} HTTP/1.1\nhost: pc.lan:{port}\n{more}")

        assert get("/api/search?text=rot")[0] == 401 and len(token) >= 24
        status, head, _ = get(path)
        assert status == 303 and head["location"] == "/"
        status, _, answer = get("/api/search?text=rot&k=1", "cookie: " + head["set-cookie"].split(";")[0] + "\n")
        assert status == 200 and json.loads(answer)["hits"][0]["id"] == "red-00.png"
        if sys.platform == "linux":
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", port), 20)  # another address of this machine
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
        assert (child.returncode, out, err) == (0, "", ""), (child.returncode, out, err)
    finally:
        child.kill()
        child.wait()
