"The door of `dasd-lab serve` and of `dasd-lab app`: the same questions, the same answers"

import asyncio
import http.client
import threading
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from served import serving
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from dasd_lab.serve.limits import Door, Limits, ServiceSettings, cookie_of
from dasd_lab.serve.web_page import put_behind_door

TOKEN = "a-token-of-many-letters"
COOKIE = "=".join(cookie_of(TOKEN))


async def inside(scope, receive, send):
    "An application that anybody who enters is told about"
    await send(dict(type="http.response.start", status=200, headers=[]))
    await send(dict(type="http.response.body", body=b"inside"))


class Inside(RequestHandler):
    def get(self, *path):
        self.write("inside")

    post = get


class Channels(WebSocketHandler):
    "Stands for the socket of a kernel; leaves all checks to the door"

    def check_origin(self, origin):
        return True

    def open(self, *path):
        self.write_message("inside")


@contextmanager
def service():
    "What `dasd-lab serve` runs"
    with serving(Limits(inside, ServiceSettings(token=TOKEN), open=())) as port:
        yield port


@contextmanager
def web_page():
    "What `dasd-lab app` runs, without Voilà's own pages"
    ready = threading.Event()
    found = {}

    async def run():
        application = Application([("/api/kernels/(.*)/channels", Channels), ("(.*)", Inside)])
        put_behind_door(application, Door(TOKEN))
        sockets = bind_sockets(0, "127.0.0.1")
        HTTPServer(application).add_sockets(sockets)
        found.update(port=sockets[0].getsockname()[1], loop=asyncio.get_running_loop(), stop=asyncio.Event())
        ready.set()
        await found["stop"].wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield found["port"]
    found["loop"].call_soon_threadsafe(found["stop"].set)
    thread.join(60)


@pytest.fixture(params=[service, web_page], scope="module", ids=["serve", "app"])
def port(request):
    with request.param() as port:
        yield port


def ask(port: int, method: str = "GET", path: str = "/api/x", **headers: str) -> http.client.HTTPResponse:
    "The answer to a request of this machine"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = dict(host=f"localhost:{port}") | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.text = answer.read().decode()
    connection.close()
    return answer


PATHS = "/", "/api/kernels", "/voila/static/x.js", "//", "/../", "/%2e%2e/"


def test_nobody_enters_without_the_token(port):
    wrong = dict(authorization="Bearer wrong"), dict(cookie=COOKIE[:-1]), dict(cookie=f"token={TOKEN}"), {}
    for path in (*PATHS, "/?token=wrong", f"/api/x?token={TOKEN}"):
        for headers in wrong:
            answer = ask(port, path=path, **headers)
            assert answer.status == 401 and "inside" not in answer.text, (path, headers)
    for headers in (dict(authorization=f"Bearer {TOKEN}"), dict(cookie=COOKIE), dict(cookie=f"a=b; {COOKIE}")):
        assert ask(port, **headers).text == "inside", headers


def test_names_of_other_machines_are_refused(port):
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", ""):
        assert ask(port, host=host, cookie=COOKIE).status == 421, host
    for host in ("localhost", f"127.0.0.1:{port}", "[::1]", "LOCALHOST"):
        assert ask(port, host=host, cookie=COOKIE).status == 200, host


def test_other_sites_are_refused(port):
    for method in ("GET", "POST"):
        for headers in (
            dict(origin="http://evil.example"),
            dict(origin="null"),
            dict(origin=f"http://localhost:{port + 1}"),  # another service of this machine
            dict(sec_fetch_site="cross-site"),
            dict(sec_fetch_site="same-site"),
        ):
            assert ask(port, method, cookie=COOKIE, **headers).status == 403, headers
        here = dict(origin=f"http://localhost:{port}", sec_fetch_site="same-origin")
        assert ask(port, method, cookie=COOKIE, **here).status == 200
    assert ask(port, path="/", cookie=COOKIE, sec_fetch_site="cross-site").status == 200  # a link to the page


def test_the_link_signs_in_and_keeps_the_rest_of_the_address(port):
    answer = ask(port, path=f"/?token={TOKEN}&q={quote('Hund im Schnee')}&tab=Styles")
    assert (answer.status, answer.headers["location"]) == (303, "/?q=Hund+im+Schnee&tab=Styles")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert ask(port, cookie=cookie.split(";")[0]).text == "inside"
    assert ask(port, path=f"/?token={TOKEN}", host="evil.example").status == 421


SOCKET = dict(
    upgrade="websocket", connection="Upgrade", sec_websocket_version="13", sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ=="
)


def test_the_socket_of_a_kernel_is_behind_the_door():
    with web_page() as port:

        def opened(**headers):
            return ask(port, path="/api/kernels/0/channels", **SOCKET, **headers).status

        assert opened(origin=f"http://localhost:{port}") == 401
        assert opened(origin="http://evil.example", cookie=COOKIE) == 403
        assert opened(origin="http://evil.example", cookie=COOKIE, host="evil.example") == 421
        assert opened(origin=f"http://localhost:{port}", cookie=COOKIE) == 101
