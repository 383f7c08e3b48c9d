"""A request does not leave references behind in the interpreter, however it ends.

One worker gets the same request repeatedly, and reports the number of references: a debug build of Python counts them.
"""

import sys

import pytest
from support.client import Client
from support.waiting import wait_until
from support.websocket import BINARY, CLOSE, TEXT, WebSocket, close_payload

#: asyncio is part of the debug build; uvloop is not, and its references are not counted.
LOADED = {
    "wsgi": "wsgi-file = {apps}/references.py",
    "asgi": "pythonpath = {apps}\nasgi = references:asgi\nlifespan = off\nloop = asyncio",
}

#: Requests before the first count: caches are full then, and lists have their final size.
FIRST_REQUESTS = 30

#: Requests between the two counts, and their tolerance. One leaked reference per request is twice as much.
REQUESTS = 60
MAX = REQUESTS // 2

#: Bytes of a body that goes to a file.
LARGE_BYTES = 20_000

METHODS = {"head": ("HEAD", "/whole"), "posted": ("POST", "/posted"), "posted_small": ("POST", "/posted")}
BODIES = {"posted": b"line\n" * (LARGE_BYTES // 5), "posted_small": b"line\n"}
#: Clients that disconnect while the application runs: it notes its end.
GOING = ("gone", "left", "websocket", "websocket_reset")
KINDS = {
    "wsgi": [
        "whole", "head", "failing", "failing_late", "misused", "corrected", "streamed", "written", "posted", "posted_small",
        "named_file", "wrapped_file", "gone",
    ],
    "asgi": [
        "whole", "waiting", "head", "failing", "failing_late", "misused", "streamed", "posted", "posted_small", "named_file",
        "pathsend", "gone", "left", "websocket", "websocket_reset", "refused_websocket",
    ],
}  # fmt: skip


pytestmark = pytest.mark.skipif(not hasattr(sys, "gettotalrefcount"), reason="only a debug build of Python counts references")


@pytest.fixture(scope="module", params=LOADED)
def server(request, serve_module):
    server = serve_module(f"{LOADED[request.param]}\npost-buffering = 1000\nx-sendfile = {{apps}}\ndisable-logging = true")
    server.interface = request.param
    return server


def ask(server, kind):
    """One request of a kind, from its connection to its end."""
    with Client(server.address()) as client:
        if kind.startswith("websocket"):
            socket = WebSocket(client, "/websocket").open()
            socket.send_text("text")
            assert socket.read().opcode == TEXT
            socket.send(BINARY, b"bytes")
            assert socket.read().payload == b"bytes"
            if kind == "websocket":
                socket.send(CLOSE, close_payload(1000))
                assert socket.read().opcode == CLOSE
            else:
                client.reset()
        elif kind == "refused_websocket":
            WebSocket(client, "/refused_websocket")
            assert client.read_head().status == 403
        elif kind in ("gone", "left"):
            client.send(f"GET /{kind} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            if kind == "gone":
                client.read_exactly(100_000)
            client.reset()
        else:
            method, target = METHODS.get(kind, ("GET", f"/{kind}"))
            body = BODIES.get(kind)
            length = "" if body is None else f"Content-Length: {len(body)}\r\n"
            client.send(f"{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{length}\r\n".encode() + (body or b""))
            answer = client.read_to_end()
            assert answer.startswith(b"HTTP/1.1 500" if kind in ("failing", "misused", "corrected") else b"HTTP/1.1 200"), answer


def ended(server):
    return int(server.get("/ended").body)


def ask_again_and_again(server, kind, times):
    before = ended(server)
    for _ in range(times):
        ask(server, kind)
    if kind in GOING:
        wait_until(lambda: ended(server) == before + times, lambda: f"{ended(server) - before} of {times} have ended")


@pytest.mark.timeout(300)
def test_no_request_leaves_a_reference_behind(server):
    grown = {}
    for kind in KINDS[server.interface]:
        ask_again_and_again(server, kind, FIRST_REQUESTS)
        before = int(server.get("/total").body)
        ask_again_and_again(server, kind, REQUESTS)
        grown[kind] = int(server.get("/total").body) - before
    assert max(grown.values()) < MAX, f"after {REQUESTS} requests of each kind there are more references: {grown}"
