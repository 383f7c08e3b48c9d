"""WSGI mounts of an ASGI worker: they run in its threads, with the same environment and abilities as in a WSGI worker."""

import json

import pytest

MOUNTS = """
pythonpath = {apps}
mount = /wsgi=echo:application
mount = /streams=streams:application
mount = /failures=failures:application
mount = /answers=answers:application
manage-script-name = true
"""

#: Keys that differ from run to run.
CHANGING = ("REMOTE_PORT", "SERVER_PORT")

REQUESTS = {
    "get": b"GET /wsgi/a/b?c=d HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-A: 2\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
    "encoded path": b"GET /wsgi/a%20b%2Fc/%E2%82%AC HTTP/1.1\r\nHost: a\r\n\r\n",
    "path that is not UTF-8": b"GET /wsgi/%FF%FE HTTP/1.1\r\nHost: a\r\n\r\n",
    "mount alone": b"GET /wsgi HTTP/1.1\r\nHost: a\r\n\r\n",
    "post": b"POST /wsgi/form HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
    "chunked": b"POST /wsgi/form HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "empty post": b"POST /wsgi/form HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "version 1.0": b"GET /wsgi/old HTTP/1.0\r\n\r\n",
    "https in front": b"GET /wsgi/a HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n",
    "proxy header": b"GET /wsgi/a HTTP/1.1\r\nHost: a\r\nProxy: http://evil\r\n\r\n",
    "underscores": b"GET /wsgi/a HTTP/1.1\r\nHost: a\r\nX_A: 1\r\nX-A: 2\r\n\r\n",
    "absolute target": b"GET http://shop.example/wsgi/a HTTP/1.1\r\nHost: a\r\n\r\n",
    "content type twice": b"GET /wsgi/a HTTP/1.1\r\nHost: a\r\nContent-Type: a\r\nContent-Type: b\r\n\r\n",
    "bytes beyond ASCII": b"GET /wsgi/a HTTP/1.1\r\nHost: a\r\nX-A: \xe4\r\n\r\n",
}


@pytest.fixture(scope="module")
def bridged(serve_module):
    return serve_module(MOUNTS + "mount = /async=asgi_scope:application\nthreads = 4")


@pytest.fixture(scope="module")
def plain(serve_module):
    """The same without the ASGI application."""
    return serve_module(MOUNTS + "threads = 4")


def told(server, data):
    with server.connect() as client:
        client.send(data)
        return json.loads(client.read_response().body)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_environ_is_that_of_a_worker_of_wsgi_applications(bridged, plain, request_name):
    found, expected = (told(server, REQUESTS[request_name]) for server in (bridged, plain))
    assert found["body"] == expected["body"]
    for told_by in (found, expected):
        for key in CHANGING:
            told_by["environ"].pop(key, None)
    assert found["environ"] == expected["environ"]
    ignored = ("wsgi.input",)
    kinds = [{key: kind for key, kind in told_by["types"].items() if key not in ignored} for told_by in (found, expected)]
    assert kinds[0] == kinds[1]


BESIDE = """
pythonpath = {apps}
mount = /async=asgi_http:application
mount = /wsgi=blocking:application
manage-script-name = true
threads = 3
"""


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def beside(request, serve_module):
    return serve_module(BESIDE + f"loop = {request.param}")


def test_wsgi_requests_that_block_do_not_hold_up_asgi_ones(beside):
    waiting = [beside.connect() for _ in range(3)]
    for client in waiting:
        client.send(b"GET /wsgi/meet?4 HTTP/1.1\r\nHost: a\r\n\r\n")
    # Three threads wait for a fourth, which does not exist; the event loop is not blocked.
    with beside.connect() as client:
        for _ in range(20):
            assert client.request(target="/async/fine").body == b"fine"
    for client in waiting:
        client.reset()


def test_a_worker_of_both_interfaces_stops_and_is_logged_as_one(serve):
    server = serve(BESIDE)
    assert server.get("/async/fine").body == b"fine"
    assert server.get("/wsgi/fine").body == b"fine"
    server.wait_for_log("GET /wsgi/fine => generated 4 bytes")
    server.wait_for_log("GET /async/fine => generated 4 bytes")
    assert server.stop() == 0


def test_bodies_have_a_bound_on_the_disk_here_too(serve):
    server = serve(MOUNTS + "mount = /async=asgi_scope:application\npost-buffering = 1000\nlimit-post-disk = 50000")
    for _ in range(3):
        assert server.get("/streams/fine", method="POST", body=b"x" * 50_000).status == 200
        assert server.get("/streams/fine", method="POST", body=b"x" * 50_001).status == 507
