"""Django's ASGI application behind a real nginx, over every protocol between the two: forms, files and JSON."""

import json
import os
import urllib.parse

import pytest
from support.nginx import LISTEN, in_front_of

ROUTES = ["tcp", "unix", "unbuffered", "http", "kept", "fastcgi", "fastcgi-kept", "fastcgi-unbuffered", "scgi"]


@pytest.fixture(scope="module")
def nginx(serve_module, tmp_path_factory):
    server = serve_module("pythonpath = {apps}\nasgi = django_posts_asgi:application", listen=LISTEN)
    front = in_front_of(server, tmp_path_factory.mktemp("nginx"))
    yield front
    front.finish()


@pytest.fixture(scope="module")
def scopes(serve_module, tmp_path_factory):
    server = serve_module("asgi = {apps}/asgi_scope.py", listen=LISTEN)
    front = in_front_of(server, tmp_path_factory.mktemp("nginx"))
    yield front
    front.finish()


def post(nginx, target, kind, body):
    with nginx.connect() as client:
        answer = client.request("POST", target, [("Content-Type", kind)], body)
    assert answer.status == 200, answer.text[:2000]
    return json.loads(answer.body)


@pytest.mark.parametrize("route", ROUTES)
def test_a_form_is_read(nginx, route):
    form = {"name": "caf\xe9", "a": "1"}
    body = urllib.parse.urlencode(form).encode()
    told = post(nginx, f"/{route}/form", "application/x-www-form-urlencoded", body)
    assert told == {"form": form, "length": str(len(body)), "kind": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("route", ROUTES)
def test_json_is_read(nginx, route):
    body = json.dumps({"numbers": list(range(20_000))}).encode()
    told = post(nginx, f"/{route}/json", "application/json", body)
    assert told == {"numbers": 20_000, "length": str(len(body)), "kind": "application/json"}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_form_with_a_file_is_uploaded(nginx, route, size):
    content = os.urandom(size)
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="field"\r\n\r\nvalue\r\n',
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="f.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--edge--\r\n",
    ]
    told = post(nginx, f"/{route}/upload", "multipart/form-data; boundary=edge", b"".join(parts))
    assert told == {"name": "f.bin", "size": size, "total": sum(content), "field": "value"}


@pytest.mark.parametrize("route", ROUTES)
def test_the_fields_of_a_body_stand_once_in_the_scope(scopes, route):
    with scopes.connect() as client:
        answer = client.request("POST", f"/{route}/", [("Content-Type", "text/x-a"), ("X-Own", "1")], b"hello")
        bare = client.request("GET", f"/{route}/")
    headers = [(name["bytes"], value["bytes"]) for name, value in json.loads(answer.body)["headers"]]
    assert [pair for pair in headers if pair[0].startswith("content-")] in (
        [("content-type", "text/x-a"), ("content-length", "5")],
        [("content-length", "5"), ("content-type", "text/x-a")],
    )
    assert ("x-own", "1") in headers
    names = [name["bytes"] for name, _ in json.loads(bare.body)["headers"]]
    # SCGI reverse proxies always send the length.
    assert [name for name in names if name.startswith("content-")] == (["content-length"] if route == "scgi" else [])
