"""ASGI applications behind a real nginx, over the uwsgi protocol and over HTTP."""

import hashlib
import json
import os

import pytest
from support.nginx import in_front_of
from support.waiting import wait_until

ROUTES = ["tcp", "unix", "unbuffered", "http", "kept"]

MEGABYTE = bytes(range(256)) * 4096

SOCKETS = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", "socket = {directory}/app.sock")


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request, serve_module):
    return serve_module(f"asgi = {{apps}}/asgi_http.py\nloop = {request.param}", listen=SOCKETS)


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    front = in_front_of(server, tmp_path_factory.mktemp("nginx"))
    yield front
    front.finish()


@pytest.mark.parametrize("route", ROUTES)
def test_answers_of_every_framing_come_through(nginx, route):
    with nginx.connect() as client:
        for path, body in [
            ("fine", b"fine"),
            ("parts", b"one two three"),
            ("parts_declared", b"one two three"),
            ("defaults", b""),
        ]:
            response = client.request(target=f"/{route}/{path}")
            assert (response.status, response.body) == (200, body)
            assert client.request("HEAD", f"/{route}/{path}").status == 200
        assert client.request(target=f"/{route}/status?404").status == 404
        assert client.request(target=f"/{route}/status?204").status == 204


@pytest.mark.parametrize("route", ROUTES)
def test_an_upload_of_some_megabytes_comes_whole(nginx, route):
    body = os.urandom(5 << 20)
    with nginx.connect() as client:
        told = json.loads(client.request("POST", f"/{route}/digest", body=body).body)
        assert (told["bytes"], told["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert client.request(target=f"/{route}/fine").body == b"fine"


@pytest.mark.parametrize("route", ROUTES)
def test_a_stream_and_a_file_come_whole(nginx, route):
    with nginx.connect() as client:
        for path in ("stream", "pathsend"):
            response = client.request(target=f"/{route}/{path}?8")
            assert response.status == 200
            assert response.body == MEGABYTE * 8


@pytest.mark.parametrize("route", ["unbuffered"])
def test_an_unbuffered_body_is_answered_while_it_comes(nginx, route):
    with nginx.connect() as client:
        client.send(f"POST /{route}/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello".encode())
        response = client.read_head()
        assert response.status == 200
        chunks = client.read_chunks()
        assert next(chunks) == b"hello"
        client.send(b"world")
        assert b"".join(chunks) == b"world"


@pytest.mark.parametrize("route", ["tcp", "unix", "http"])
def test_a_client_that_leaves_nginx_is_an_http_disconnect(server, nginx, route):
    name = f"left-{route}"
    client = nginx.connect()
    client.send(f"GET /{route}/wait_for_end?{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    server.wait_for_log(f"^waits {name}$")
    client.reset()
    server.wait_for_log(f"^ended {name}$")


@pytest.mark.parametrize("route", ROUTES)
def test_a_failure_is_500_and_nginx_is_told(server, nginx, route):
    with nginx.connect() as client:
        assert client.request(target=f"/{route}/no_such_path").status == 500
        assert client.request(target=f"/{route}/fine").status == 200
    server.wait_for_log("KeyError: 'at_no_such_path'")


def test_the_scope_is_that_of_nginxs_client(serve, tmp_path):
    server = serve("asgi = {apps}/asgi_scope.py", listen=SOCKETS)
    front = in_front_of(server, tmp_path)
    try:
        with front.connect() as client:
            own = list(client.socket.getsockname())
            scope = json.loads(client.request(target="/tcp/a%20b?c=d", headers=[("X-Own", "yes")]).body)
    finally:
        front.finish()
    assert scope["client"] == own
    assert (scope["path"], scope["raw_path"]["bytes"], scope["query_string"]["bytes"]) == ("/tcp/a b", "/tcp/a%20b", "c=d")
    assert scope["http_version"] == "1.1"
    headers = {name["bytes"]: value["bytes"] for name, value in scope["headers"]}
    assert headers["x-own"] == "yes"
    assert headers["host"] == "localhost"


def test_many_requests_at_once_are_all_answered(server, nginx):
    clients = [nginx.connect() for _ in range(30)]
    for number, client in enumerate(clients):
        client.send(f"GET /tcp/slow?many HTTP/1.1\r\nHost: a\r\nX-Number: {number}\r\n\r\n".encode())
    wait_until(lambda: server.log.count("slow many has begun") == len(clients), "all of them are with the application")
    with nginx.connect() as other:
        assert other.request(target="/unix/open?many").body == b"open"
    assert [client.read_response().body for client in clients] == [b"slow many"] * len(clients)
