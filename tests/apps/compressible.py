"""Responses that may be compressed, or must not be, by path; the same as WSGI (`application`) and ASGI (`asgi`).

The query contains additional header fields of the response: `?ETag="x"&Vary=Cookie`.
"""

import os
import threading
from urllib.parse import parse_qsl

TEXT = b"".join(b"line %d of a text that repeats itself\n" % number for number in range(3000))
NOISE = os.urandom(5000)
PARTS = [TEXT[start : start + 7000] for start in range(0, len(TEXT), 7000)]

#: A stream continues after a request for `/go`.
go = threading.Event()

#: Path: status, media type, body, and whether its length is sent.
SHAPES = {
    "/text": ("200 OK", "text/plain; charset=utf-8", TEXT, True),
    "/json": ("200 OK", "application/problem+json", TEXT, True),
    "/short": ("200 OK", "text/html", b"short", True),
    "/noise": ("200 OK", "text/plain", NOISE, True),
    "/image": ("200 OK", "image/png", TEXT, True),
    "/untyped": ("200 OK", None, TEXT, True),
    "/partial": ("206 Partial Content", "text/plain", TEXT, True),
    "/error": ("404 Not Found", "text/html", TEXT, True),
    "/untold": ("200 OK", "text/plain", TEXT, False),
    "/unchanged": ("304 Not Modified", None, b"", False),
    "/nothing": ("204 No Content", None, b"", False),
    "/parts": ("200 OK", "text/plain", TEXT, False),
    "/large": ("200 OK", "text/css", TEXT * 20, True),
    "/endless": ("200 OK", "text/plain", None, False),
    "/events": ("200 OK", "text/event-stream", None, False),
}


def fields(path, query):
    status, media_type, body, has_length = SHAPES[path]
    made = [(name, value) for name, value in parse_qsl(query)]
    if media_type:
        made.append(("Content-Type", media_type))
    if has_length:
        made.append(("Content-Length", str(len(body))))
    return status, made, body


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/go":
        go.set()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"gone"]
    status, made, body = fields(path, environ["QUERY_STRING"])
    start_response(status, made)
    if body is None:
        return stream()
    if path == "/parts":
        return iter(PARTS)
    return [body] if body else []


def stream():
    go.clear()
    yield b"data: first\n\n"
    go.wait(30)
    yield b"data: second\n\n"


async def asgi(scope, receive, send):
    import asyncio

    if scope["type"] != "http":
        raise NotImplementedError
    path = scope["path"]
    if path == "/go":
        go.set()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"gone"})
        return
    status, made, body = fields(path, scope["query_string"].decode())
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in made]
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
    if body is None:
        go.clear()
        await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
        while not go.is_set():
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"data: second\n\n"})
    elif path == "/parts":
        for part in PARTS:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})
    else:
        await send({"type": "http.response.body", "body": body})
