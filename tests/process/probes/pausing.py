"""WSGI and ASGI applications that log each request in a file, so that a test sees which requests have begun."""

import asyncio
import os
import time
from pathlib import Path

import asgi_socket_echo

BEGUN = Path(os.environ["BEGUN"])
#: Timeout of a gate, in seconds.
WAIT_SECONDS = 30


def note(path):
    with open(BEGUN, "a") as file:
        file.write(f"{path}\n")


def gate_of(query):
    """Returns the file that a request waits for, and creates one beside it that shows the wait."""
    Path(query + ".waiting").touch()
    end = time.monotonic() + WAIT_SECONDS
    return lambda: not os.path.exists(query) and time.monotonic() < end


def wsgi(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    note(path)
    if path == "/wait":
        waits = gate_of(query)
        while waits():
            time.sleep(0.01)
    body = environ["wsgi.input"].read() or path.encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] == "websocket":
        return await asgi_socket_echo.application(scope, receive, send)
    if scope["type"] != "http":
        return None
    note(scope["path"])
    if scope["path"] == "/wait":
        waits = gate_of(scope["query_string"].decode())
        while waits():
            await asyncio.sleep(0.01)
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    body = body or scope["path"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
    return None
