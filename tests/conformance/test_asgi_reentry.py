"""ASGI application code that runs in the middle of server code can at most break its own response."""

import pytest


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("asgi = {apps}/asgi_reentry.py\nloop = asyncio\nlifespan = off")


@pytest.fixture
def pid(server):
    """The pid of the worker, which is the same after the test."""
    before = server.get("/pid").text
    yield before
    assert server.get("/pid").text == before


@pytest.mark.parametrize("path", ["headers", "trailers"])
def test_a_list_of_headers_that_changes_while_its_message_is_read(server, pid, path):
    client = server.connect()
    client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n".encode())
    client.read_to_end()
    server.wait_for_log("^worker 1: TypeError: a header must be a pair of a name and a value, not (1|None)$")


def test_a_flag_that_goes_while_it_is_asked(server, pid):
    assert server.get("/flag_that_goes").text == "body"


def test_a_send_from_within_the_server_does_not_lose_the_connection(server, pid):
    client = server.connect()
    client.send(b"POST /call_soon HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst")
    assert client.read_head().status == 200
    client.read_until(b"begun \r\n")
    client.send(b"later")
    assert client.read_until(b"0\r\n\r\n").endswith(
        b"firstlater RuntimeError: send() was called while the server is handling this connection, "
        b"as from a `__del__`; nothing was sent\r\n0\r\n\r\n"
    )
    assert client.request(target="/pid").text == pid
