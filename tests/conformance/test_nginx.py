"""A real nginx in front: the uwsgi protocol over TCP and UNIX sockets, HTTP, FastCGI and SCGI."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from support.nginx import LISTEN, in_front_of

#: The state of a connected socket in /proc/net/unix (SS_CONNECTED, linux/net.h).
CONNECTED = "03"

ROUTES = ["tcp", "unix", "unbuffered", "http", "kept", "fastcgi", "fastcgi-kept", "fastcgi-unbuffered", "scgi", "scgi-unbuffered"]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/front.py\nprocesses = 2\npost-buffering = 65536",
        listen=LISTEN,
    )


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    front = in_front_of(server, tmp_path_factory.mktemp("nginx"))
    yield front
    front.finish()


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_get_is_served(nginx, route):
    with nginx.connect() as client:
        for number in range(5):
            response = client.request("GET", f"/{route}/echo?n={number}", headers=[("X-Real", "yes")])
            assert response.status == 200
            seen = json.loads(response.body)["environ"]
            assert seen["PATH_INFO"] == f"/{route}/echo"
            assert seen["QUERY_STRING"] == f"n={number}"
            assert seen["HTTP_X_REAL"] == "yes"
            assert seen["REMOTE_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_post_of_a_megabyte_comes_whole(nginx, route):
    body = os.urandom(1 << 20)
    with nginx.connect() as client:
        response = client.request("POST", f"/{route}/digest", body=body)
        assert (response.status, response.text) == (200, f"{len(body)} {hashlib.sha256(body).hexdigest()}")
        assert client.request("GET", f"/{route}/echo").status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("path", ["echo", "stream"])
def test_behind_nginx_head_has_no_body(nginx, route, path):
    with nginx.connect() as client:
        assert client.request("HEAD", f"/{route}/{path}").status == 200
        assert client.request("GET", f"/{route}/echo").status == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("path", ["stream", "file"])
def test_behind_nginx_a_large_download_comes_whole(nginx, route, path):
    with nginx.connect() as client:
        response = client.request("GET", f"/{route}/{path}?20000000")
        assert response.status == 200
        assert len(response.body) == 20_000_000
        assert response.body == (b"0123456789abcdef" * 1_250_000)


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_errors_and_empty_answers_are_passed_on(server, nginx, route):
    with nginx.connect() as client:
        assert client.request("GET", f"/{route}/error").status == 500
        response = client.request("GET", f"/{route}/none")
        assert (response.status, response.body) == (204, b"")
        assert client.request("GET", f"/{route}/echo").status == 200
    server.wait_for_log(rf"an exception in GET /{route}/error")


@pytest.mark.parametrize("route", ROUTES)
def test_behind_nginx_a_client_that_vanishes_ends_the_answer_and_no_more(server, nginx, route):
    client = nginx.connect()
    client.send(f"GET /{route}/endless HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert client.read_head().status == 200
    client.reset()
    server.wait_for_log(rf"closed /{route}/endless$")
    with nginx.connect() as client:
        assert client.request("GET", f"/{route}/echo").status == 200


def connections_at(path):
    """Returns the inodes of the server's ends of connections to a UNIX socket, from /proc/net/unix."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {row[6] for row in rows if row[-1] == str(path) and row[5] == CONNECTED}


def test_behind_nginx_a_kept_connection_is_used_again(server, nginx):
    path = server.directory / "fastcgi.sock"
    with nginx.connect() as client:
        assert client.request("GET", "/fastcgi-kept/echo").status == 200
        kept = connections_at(path)
        assert kept
        for _ in range(20):
            assert client.request("GET", "/fastcgi-kept/echo").status == 200
    # No other one was opened; those that are not kept may have ended in the meantime.
    after = connections_at(path)
    assert after
    assert after <= kept
