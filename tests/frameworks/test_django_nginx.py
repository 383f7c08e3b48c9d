"""Django behind a real nginx, over every protocol between the two: the features of a site, and its environ."""

import json
import os

import pytest
from support.nginx import LISTEN, in_front_of

#: nginx's location, and whether it contains SCGI's own variables.
ROUTES = ["tcp", "http", "fastcgi", "fastcgi-kept", "fastcgi-unbuffered", "scgi"]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "pythonpath = {apps}\nmodule = django_behind\nprocesses = 2\npost-buffering = 65536",
        listen=LISTEN,
    )


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    front = in_front_of(server, tmp_path_factory.mktemp("nginx"))
    yield front
    front.finish()


@pytest.mark.parametrize("route", ROUTES)
def test_the_environ_is_that_of_nginxs_client(nginx, route):
    with nginx.connect() as client:
        port = str(client.socket.getsockname()[1])
        told = json.loads(client.request(target=f"/{route}/environ/caf%C3%A9?q=1&q=2", headers=[("X-Own", "yes")]).body)
    assert told["path"] == f"/{route}/environ/caf\xe9"
    assert told["query"] == ["1", "2"]
    assert told["own"] == "yes"
    if route != "http":
        # nginx sends these as parameters; over HTTP it would need headers and a setting of Django's.
        assert (told["address"], told["port"], told["uri"]) == ("127.0.0.1", port, f"/{route}/environ/caf%C3%A9?q=1&q=2")
        assert told["environ"] == {"SCRIPT_NAME": "", "SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_SCHEME": "http"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_form_with_a_file_is_uploaded(nginx, route, size):
    content = os.urandom(size)
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="field"\r\n\r\nvalue\r\n',
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="f.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--edge--\r\n",
    ]
    kind = [("Content-Type", "multipart/form-data; boundary=edge")]
    with nginx.connect() as client:
        told = json.loads(client.request("POST", f"/{route}/upload", headers=kind, body=b"".join(parts)).body)
    assert told == {"name": "f.bin", "size": size, "total": sum(content), "field": "value"}


@pytest.mark.parametrize("route", ROUTES)
def test_pages_heads_conditions_streams_and_failures_come_through(server, nginx, route):
    with nginx.connect() as client:
        page = client.request(target=f"/{route}/page")
        assert (page.status, page.text) == (200, "a page")
        head = client.request("HEAD", f"/{route}/page")
        assert (head.status, head.body, head.get("content-length")) == (200, b"", str(len("a page")))
        again = client.request(target=f"/{route}/page", headers=[("If-None-Match", page.get("etag"))])
        assert (again.status, again.body) == (304, b"")
        stream = client.request(target=f"/{route}/stream")
        assert stream.text == "".join(f"{number}\n" for number in range(1000))
        large = client.request(target=f"/{route}/large")
        assert large.body == b"x" * 5_000_000
        assert client.request(target=f"/{route}/missing").status == 404
        assert client.request(target=f"/{route}/error").status == 500
        moved = client.request(target=f"/{route}/redirect")
        assert (moved.status, moved.get("location")) == (302, "/elsewhere")
    server.wait_for_log("RuntimeError: as the test asked")
