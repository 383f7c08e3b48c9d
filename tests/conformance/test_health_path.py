"""``health-path``: the server itself answers GET and HEAD of one path, on every protocol and before everything else."""

import contextlib
import json
import re

import pytest
from support import fastcgi, scgi, uwsgi
from support.client import Client
from support.http2 import Http2, secured
from support.statistics import worker_of
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until

KINDS = {
    "WSGI": "wsgi-file = {apps}/held.py",
    "threads": "wsgi-file = {apps}/held.py\nthreads = 4",
    "ASGI": "pythonpath = {apps}\nasgi = {apps}/held_asgi.py",
    "gevent": "wsgi-file = {apps}/held.py\ngevent = 10\ngevent-monkey-patch = true",
}
PATH = "/healthz"
#: Everything that could answer the path before the application does, or refuse the request.
HIDDEN = r"""
health-path = /healthz
route = ^/healthz$ return:410
route-run = addheader:X-Route: yes
add-header = X-Added: yes
static-map = /healthz={directory}/uwsgi.ini
server-names = shop.example
env = HELD_DIRECTORY={directory}
stats = {directory}/stats.sock
"""


class Healthy:
    """A server with a health path, at a socket of each protocol."""

    def __init__(self, serve, directory, kind):
        authority = Authority(directory)
        shown = authority.server()
        self.context = context_of(authority)
        self.context_of_http2 = context_of(authority, alpn=["h2"])
        self.server = serve(
            KINDS[kind] + HIDDEN,
            listen=(
                *(f"{protocol}-socket = 127.0.0.1:0" for protocol in ("http", "uwsgi", "fastcgi", "scgi")),
                f"https = 127.0.0.1:0,{shown.chain},{shown.key}",
                "http2 = h2c",
            ),
        )

    def tls(self):
        return TlsClient(self.server.address("https"), self.context)

    def http2(self):
        return Http2(self.server.connect())

    def http2_over_tls(self):
        client = Http2(secured(self.server.connect(self.server.address("https")), self.context_of_http2))
        client.scheme = "https"
        return client

    def called(self):
        """Returns the queries of the requests that have reached the application."""
        record = (self.server.directory / "record").read_bytes().splitlines()
        seen = [json.loads(line) for line in record]
        return [one["name"] for one in seen if one["event"] == "begin"]

    def ask(self, name):
        with self.server.connect() as client:
            client.send(f"GET /quick?{name} HTTP/1.1\r\nHost: shop.example\r\n\r\n".encode())
            assert client.read_response().text == name

    def counted(self):
        return worker_of(str(self.server.directory / "stats.sock"))["requests"]

    def wait_for_count(self, count):
        """Waits until exactly this many requests are counted: a request is counted when its answer has left."""
        wait_until(lambda: self.counted() == count, lambda: f"{count} requests: {self.counted()}; the log:\n{self.server.log}")


@pytest.fixture(scope="module", params=KINDS)
def healthy(request, serve_module, tmp_path_factory):
    return Healthy(serve_module, tmp_path_factory.mktemp("certificates"), request.param)


@pytest.fixture(params=KINDS)
def unasked(request, serve, tmp_path):
    """A server of its own, which has had no request."""
    return Healthy(serve, tmp_path, request.param)


def assert_serves(answer, body=b"ok"):
    assert (answer.status, answer.body) == (200, body)
    assert answer.get("cache-control") == "no-store"
    assert answer.get("content-type") == "text/plain; charset=utf-8"
    assert answer.get("content-length") == "2"
    assert {answer.get("x-route"), answer.get("x-added")} == {None}


@pytest.mark.parametrize("way", ["tls", "http2", "http2_over_tls"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("query", ["", "?", "?from=balancer"])
def test_it_is_answered_over_each_way_of_http(healthy, way, method, query):
    before = healthy.called()
    with getattr(healthy, way)() as client:
        for _ in range(2):
            assert_serves(client.request(method, PATH + query), b"" if method == "HEAD" else b"ok")
    assert healthy.called() == before


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("host", ["Host: 10.0.0.7:8000\r\n", "Host: shop.example\r\n"])
def test_any_host_may_ask_and_the_connection_is_kept(healthy, method, host):
    with healthy.server.connect() as client:
        for _ in range(3):
            client.send(f"{method} {PATH} HTTP/1.1\r\n{host}\r\n".encode())
            assert_serves(client.read_response(method), b"" if method == "HEAD" else b"ok")
        client.send(b"GET /quick?behind HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert client.read_response().status == 421, "the other paths are checked as before"


def test_a_client_of_http_1_0_needs_no_host_and_its_connection_ends(healthy):
    with healthy.server.connect() as client:
        client.send(f"GET {PATH} HTTP/1.0\r\n\r\n".encode())
        assert_serves(client.read_response())
        assert client.is_closed()


def test_a_target_in_absolute_form_is_the_same_path(healthy):
    with healthy.server.connect() as client:
        client.send(f"GET http://other.example{PATH}?a HTTP/1.1\r\nHost: other.example\r\n\r\n".encode())
        assert_serves(client.read_response())


@pytest.mark.parametrize(
    ("protocol", "ask"), [("uwsgi", uwsgi.ask), ("fastcgi", fastcgi.ask), ("scgi", scgi.ask)], ids=["uwsgi", "fastcgi", "scgi"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_it_is_answered_over_the_protocols_of_reverse_proxies(healthy, protocol, ask, method):
    before = healthy.called()
    answer = ask(healthy.server.address(protocol), method, f"{PATH}?a=b")
    assert (answer.status, answer.body) == (200, b"" if method == "HEAD" else b"ok")
    assert dict(answer.headers)["Cache-Control"] == "no-store"
    other = ask(healthy.server.address(protocol), "GET", "/quick?of_a_proxy", extra=[("HTTP_HOST", "shop.example")])
    assert other.body == b"of_a_proxy"
    assert healthy.called() == [*before, "of_a_proxy"]


def test_without_path_info_the_target_of_a_reverse_proxy_counts(healthy):
    extra = [("PATH_INFO", "")]
    assert uwsgi.ask(healthy.server.address("uwsgi"), "GET", f"{PATH}?a", extra=extra).body == b"ok"


@pytest.mark.parametrize("target", ["/healthz/", "/healthz2", "/health", "/HEALTHZ", "/%68ealthz", "//healthz", "/quick/healthz"])
def test_another_path_is_not_a_health_check(healthy, target):
    with healthy.server.connect() as client:
        client.send(f"GET {target}?other HTTP/1.1\r\nHost: other.example\r\n\r\n".encode())
        assert client.read_response().status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "DELETE", "get"])
def test_other_methods_take_the_usual_way(healthy, method):
    with healthy.server.connect() as client:
        client.send(f"{method} {PATH} HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n".encode())
        assert client.read_response().status == 410, "a route answers"


def test_pipelined_requests_are_answered_in_order(healthy):
    head = "HTTP/1.1\r\nHost: shop.example\r\n\r\n"
    with healthy.server.connect() as client:
        client.send(f"GET {PATH} {head}HEAD {PATH} {head}GET /quick?one {head}GET {PATH} {head}GET /quick?two {head}".encode())
        assert_serves(client.read_response())
        assert_serves(client.read_response("HEAD"), b"")
        assert client.read_response().text == "one"
        assert_serves(client.read_response())
        assert client.read_response().text == "two"


def test_a_body_of_a_health_check_is_read_and_ignored(healthy):
    with healthy.server.connect() as client:
        for _ in range(2):
            client.send(f"GET {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nHello".encode())
            assert_serves(client.read_response())
        client.send(b"GET /quick?after HTTP/1.1\r\nHost: shop.example\r\n\r\n")
        assert client.read_response().text == "after"


def test_it_is_neither_logged_nor_counted(unasked):
    unasked.ask("first")
    with unasked.server.connect() as client:
        for _ in range(5):
            client.send(f"GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert_serves(client.read_response())
    unasked.ask("last")
    unasked.wait_for_count(2)
    unasked.server.wait_for_text("/quick?last")
    logged = [line for line in unasked.server.log.splitlines() if re.search(r"\b(GET|HEAD) /healthz(\?[a-z=]*)?( |$)", line)]
    assert logged == []


def test_a_client_that_asks_without_reading_is_neither_counted_nor_logged_later(unasked):
    asked = f"GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 2_000
    with unasked.server.connect(receive_bytes=1) as client:
        fill(client, asked)
        assert_serves(client.read_response())
    unasked.ask("last")
    unasked.wait_for_count(1)
    unasked.server.wait_for_text("/quick?last")
    assert "GET /healthz =" not in unasked.server.log


def fill(client, data):
    """Sends until neither side's buffers have room: the server has stopped reading."""
    patience = client.socket.gettimeout()
    client.socket.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while True:
            client.socket.sendall(data)
    client.socket.settimeout(patience)


def test_a_redirect_to_https_does_not_redirect_health_checks(serve):
    server = serve(
        "wsgi-file = {apps}/hello.py\nhealth-path = /healthz\nhttp-to-https = 127.0.0.1:0,8443",
        listen=("http-socket = 127.0.0.1:0",),
    )
    addresses = [place[1:] for place in server.places()]
    statuses = set()
    for address in addresses:
        with Client(address) as client:
            assert_serves(client.request(target=PATH))
            statuses.add(client.request(target="/").status)
    assert 301 in statuses, "one of the addresses redirects"


def test_without_the_option_the_path_is_the_application_s(serve):
    server = serve("wsgi-file = {apps}/echo.py")
    assert json.loads(server.get(PATH).text)["environ"]["PATH_INFO"] == PATH
