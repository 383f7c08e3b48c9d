"""Connections cache heads: the meaning of a request does not depend on earlier requests on its connection."""

import json
import random

import pytest
from support import fastcgi, http2, uwsgi
from support.client import Client
from support.http2 import END_HEADERS, END_STREAM, HEADERS, Both, frame

#: Fields that a reverse proxy sets, or that HTTP/1 drops: a client that could send them could impersonate others.
FORGED = [("x_forwarded_for", "6.6.6.6"), ("remote_user", "root"), ("x_forwarded_proto", "https"), ("x-forwarded_host", "evil")]

REQUESTS = 40

#: These differ between requests by nature.
OF_THE_CONNECTION = ("REMOTE_PORT", "wsgi.errors")


APPLICATIONS = ["wsgi-file = {apps}/echo.py\nthreads = 2", "asgi = {apps}/asgi_scope.py"]


@pytest.fixture(scope="module", params=APPLICATIONS, ids=["wsgi", "asgi"])
def both(request, serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), request.param)


def names_of(answer):
    """Returns the names of the header fields that the application sees."""
    assert answer.status == 200, answer
    told = json.loads(answer.body)
    if "environ" in told:
        return sorted(name for name in told["environ"] if name.startswith(("HTTP_", "REMOTE_U", "wsgi.url")))
    return sorted(name["bytes"] for name, _ in told["headers"])


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_names_with_underscores_are_dropped_each_time(both, way):
    connection = both.connect(way)
    first = names_of(connection.request(headers=[*FORGED, ("x-good", "1")]))
    assert not [name for name in first if name.lower().replace("_", "-").startswith(("http-x-forw", "x-forw", "remote-u"))], first
    for _ in range(3):
        assert names_of(connection.request(headers=[*FORGED, ("x-good", "1")])) == first


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_the_same_bytes_thrice_mean_the_same(both, way):
    """Encodes a header block as literals, byte for byte the same each time, so that the cached one is used."""
    connection = both.connect(way)
    pairs = [(":method", "GET"), (":scheme", connection.scheme), (":path", "/"), (":authority", "x"), *FORGED, ("x", "y")]
    block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in pairs)
    seen = []
    for stream in (1, 3, 5):
        answer = connection.expect(stream)
        connection.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
        seen.append(names_of(connection.finish(answer)))
    assert seen[0] == seen[1] == seen[2]
    assert not [name for name in seen[0] if "forwarded" in name.lower() or "user" in name.lower()]


def test_a_malformed_name_in_the_table_of_fields_stays_malformed(both):
    connection = both.connect("plain")
    assert names_of(connection.request(headers=[("x", "a: b")]))
    for _ in range(3):
        answer = connection.begin(headers=[("x: a", "b")])
        assert connection.read_reset(answer) == http2.PROTOCOL_ERROR


# A property test: random requests on a kept connection, and the same requests each on a new one.


def random_fields(chance):
    names = ["X-A", "X_A", "X-Forwarded-For", "X_Forwarded_For", "Proxy", "Cookie", "Accept", "Remote_User", "Range"]
    values = ["", "1", "6.6.6.6", "a: b", "caf\xe9", "v" * chance.choice([1, 90])]
    return [(chance.choice(names), chance.choice(values)) for _ in range(chance.randrange(4))]


def random_requests(seed):
    """Few distinct heads, so that most repeat; and responses of routes and files between those of the application."""
    chance = random.Random(seed)
    pool = [random_fields(chance) for _ in range(3)]
    targets = ["/", "/a?b=c", "/files/a.txt", "/gone", "/files/none", "/%41"]
    methods = ["GET", "GET", "GET", "HEAD", "POST"]
    return [(chance.choice(methods), chance.choice(targets), chance.choice(pool)) for _ in range(REQUESTS)]


@pytest.fixture(scope="module", params=APPLICATIONS, ids=["wsgi", "asgi"])
def mixed(request, serve_module, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    (files / "a.txt").write_text("a file")
    listen = ("http-socket = 127.0.0.1:0", "puwsgi-socket = 127.0.0.1:0", "fastcgi-socket = 127.0.0.1:0", "http2 = h2c")
    more = f"static-map = /files={files}\nroute = ^/gone redirect:/elsewhere"
    return serve_module(f"{request.param}\n{more}", listen=listen)


def meaning(status, body):
    if status != 200 or not body.startswith(b"{"):
        return status, body
    told = json.loads(body)
    if "headers" in told:
        return status, {name: value for name, value in told.items() if name not in ("client", "pid")}
    environ = {name: value for name, value in told["environ"].items() if name not in OF_THE_CONNECTION}
    return status, environ, told["types"], told["body"]


class Http1Way:
    def __init__(self, server):
        self.client = Client(server.address("http"))

    def ask(self, method, target, fields):
        body = b"body" if method == "POST" else None
        answer = self.client.request(method, target, fields, body)
        return meaning(answer.status, answer.body or b"")

    def close(self):
        self.client.close()


class Http2Way:
    def __init__(self, server):
        self.client = http2.Http2(Client(server.address("http")))

    def ask(self, method, target, fields):
        body = b"body" if method == "POST" else None
        answer = self.client.request(method, target, [(name.lower(), value) for name, value in fields], body)
        return meaning(answer.status, answer.body or b"")

    def close(self):
        self.client.close()


def variables_of(fields):
    return [(f"HTTP_{name.upper().replace('-', '_')}", value) for name, value in fields]


class UwsgiWay:
    def __init__(self, server):
        self.client = Client(server.address("puwsgi"))

    def ask(self, method, target, fields):
        body = b"body" if method == "POST" else b""
        self.client.send(uwsgi.packet(uwsgi.request_variables(method, target, body, variables_of(fields))) + body)
        answer = self.client.read_response(method)
        return meaning(answer.status, answer.body or b"")

    def close(self):
        self.client.close()


class FastCgiWay:
    def __init__(self, server):
        self.client = Client(server.address("fastcgi"))

    def ask(self, method, target, fields):
        body = b"body" if method == "POST" else b""
        self.client.send(fastcgi.request(method, target, body, variables_of(fields), keep=True))
        answer = fastcgi.read_answer(self.client)
        return meaning(answer.status, answer.body or b"")

    def close(self):
        self.client.close()


@pytest.mark.parametrize("way", [Http1Way, Http2Way, UwsgiWay, FastCgiWay])
@pytest.mark.parametrize("seed", range(3))
def test_a_request_means_what_it_would_as_the_first_of_its_connection(mixed, way, seed):
    kept = way(mixed)
    for number, (method, target, fields) in enumerate(random_requests(seed)):
        alone = way(mixed)
        expected = alone.ask(method, target, fields)
        alone.close()
        assert kept.ask(method, target, fields) == expected, f"request {number}: {method} {target} {fields}"
    kept.close()
