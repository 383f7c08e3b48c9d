"""Clients that abandon a stream: whatever a framework does, it is one line in the log and no traceback."""

import re
import signal

import pytest
from support import websocket

APPLICATION = """
import asyncio
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.requests import ClientDisconnect
from sse_starlette.sse import EventSourceResponse

async def ticks():
    while True:
        yield "data: tick\\n\\n"
        await asyncio.sleep(0.01)

async def stream(request):
    return StreamingResponse(ticks(), media_type="text/event-stream")

async def events(request):
    return EventSourceResponse(ticks())

async def mistake(request):
    async def body():
        yield "begun"
        raise ValueError("a mistake of the application")
    return StreamingResponse(body())

async def silent(request):
    async def body():
        yield "begun"
        await asyncio.Event().wait()
    return StreamingResponse(body())

async def upload(request):
    try:
        async for part in request.stream():
            print("a part", flush=True)
    except ClientDisconnect:
        print("it has left", flush=True)
        raise

async def listens(websocket):
    await websocket.accept()
    await websocket.send_text("begun")
    while True:
        await websocket.receive_text()

async def speaks(websocket):
    await websocket.accept()
    while True:
        await websocket.send_text("tick")
        await asyncio.sleep(0.01)

async def passed_on(request, call_next):
    return await call_next(request)

routes = [Route("/stream", stream), Route("/events", events), Route("/mistake", mistake), Route("/silent", silent),
    Route("/upload", upload, methods=["POST"]), WebSocketRoute("/listens", listens), WebSocketRoute("/speaks", speaks)]
plain = Starlette(routes=routes)
wrapped = Starlette(routes=routes)
wrapped.add_middleware(BaseHTTPMiddleware, dispatch=passed_on)
fast = FastAPI()
fast.router.routes.extend(routes)

class Group(Exception):
    def __init__(self, *exceptions):
        super().__init__("several")
        self.exceptions = exceptions

async def group(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while True:
            await send({"type": "http.response.body", "body": b"tick", "more_body": True})
            await asyncio.sleep(0.01)
    except OSError as error:
        both = (error, ValueError("a mistake of the application")) if scope["path"] == "/mistake" else (error, Group(error))
        raise Group(*both)
"""


@pytest.fixture
def shop(serve):
    def shop(name, more=""):
        server = serve.prepare(f"asgi = shop:{name}\npythonpath = {{directory}}\nlifespan = off\n{more}")
        (server.directory / "shop.py").write_text(APPLICATION)
        return server.start()

    return shop


def leave(server, path, way="reset"):
    client = server.connect()
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert client.read_head().status == 200
    next(client.read_chunks())
    getattr(client, way)()
    # The request's own line comes when everything is over.
    server.wait_for_log(f"GET {path} => generated")


@pytest.mark.parametrize("way", ["reset", "close"])
@pytest.mark.parametrize("path", ["/stream", "/events"])
@pytest.mark.parametrize("name", ["plain", "wrapped", "fast", "group"])
def test_a_client_that_leaves_a_stream_is_no_traceback(shop, name, path, way):
    server = shop(name)
    leave(server, path, way)
    lines = [line for line in server.lines if line.startswith("bolide: worker 1: ")]
    assert len(lines) <= 1, server.log
    assert all(re.fullmatch(rf"bolide: worker 1: GET {path}: the client disconnected after \d+\.\d s", line) for line in lines), (
        lines
    )


def test_a_client_that_leaves_is_no_line_where_write_errors_are_ignored(shop):
    server = shop("group", "ignore-write-errors = true")
    leave(server, "/stream")
    assert "worker 1: " not in server.whole_log()


@pytest.mark.parametrize(("name", "how"), [("plain", "whole"), ("group", "left")])
def test_an_error_of_the_application_is_logged_all_the_same(shop, name, how):
    server = shop(name)
    if how == "left":
        leave(server, "/mistake")
    else:
        server.connect().send(b"GET /mistake HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for_log("^worker 1: .*ValueError: a mistake of the application|^worker 1: .*Group: several")
    server.wait_for_text("Traceback")


def told_of(server):
    # On a busy machine the import of a framework takes longer than 5 s, which the log says too.
    begins = "bolide: worker 1: "
    return [line for line in server.lines if line.startswith(begins) and "loading the application takes" not in line]


@pytest.mark.parametrize("way", ["reset", "close"])
@pytest.mark.parametrize("path", ["/listens", "/speaks"])
@pytest.mark.parametrize("name", ["plain", "fast"])
def test_a_client_that_leaves_a_websocket_is_no_traceback(shop, name, path, way):
    server = shop(name)
    client = server.connect()
    websocket.WebSocket(client, path).open()
    getattr(client, way)()
    server.wait_for_log(f"GET {path} => generated")
    assert server.stop() == 0
    assert len(told_of(server)) <= 1, server.log
    assert all(
        re.fullmatch(rf"bolide: worker 1: GET {path}: the client disconnected after \d+\.\d s", line) for line in told_of(server)
    )


def test_a_client_that_leaves_its_own_body_is_no_traceback(shop):
    server = shop("plain")
    client = server.connect()
    client.send(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nbegun")
    server.wait_for_log("^a part$")
    client.close()
    server.wait_for_log("^it has left$")
    assert server.stop() == 0
    assert len(told_of(server)) <= 1, server.log
    assert "Traceback" not in server.whole_log()


def test_a_client_that_leaves_a_wsgi_iterator_is_no_traceback(serve):
    server = serve.prepare("module = shop\npythonpath = {directory}")
    (server.directory / "shop.py").write_text(
        "import time\ndef application(environ, start_response):\n    start_response('200 OK', [])\n"
        "    def ticks():\n        while True:\n            yield b'tick'\n            time.sleep(0.01)\n    return ticks()\n"
    )
    leave(server.start(), "/ticks")
    assert "Traceback" not in server.log
    assert len(told_of(server)) <= 1, server.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_stream_that_says_nothing_does_not_hold_up_a_stop(shop, number):
    server = shop("plain", "reload-mercy = 30")
    client = server.connect()
    client.send(b"GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_head()
    assert next(client.read_chunks()) == b"begun"
    assert server.stop(number) == 0
    server.wait_for_log("streams still open 3 s after the order to stop, closing them: 1$")
    assert "killing " not in server.log
    assert "Traceback" not in server.log
