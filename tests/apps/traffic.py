"""The application of ``tests/support/traffic.py``, as WSGI and as ASGI."""

import asyncio
import contextlib
import hashlib
import os
import time

import asgi_socket_echo

#: Timeout of a response that waits for its file, in seconds.
STREAM_SECONDS = 20
#: The pause between its parts, in seconds.
PART_SECONDS = 0.01

#: Load time of the module, in seconds.
time.sleep(float(os.environ.get("TRAFFIC_LOAD_SECONDS", "0")))

_long = {}


def long_body(count):
    if count not in _long:
        _long[count] = b"".join(b"%15d\n" % number for number in range(count // 16))
    return _long[count]


def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path == "/echo":
        return echo_waiting(environ)
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return stream(query)
    if path == "/digest":
        digest = hashlib.sha1()
        while data := environ["wsgi.input"].read(1 << 16):
            digest.update(data)
        body = digest.hexdigest().encode()
    else:
        body = long_body(int(query)) if path == "/long" else b"answer " + query.encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def echo_waiting(environ):
    """A WebSocket inside a call, until it ends: then the module raises."""
    import uwsgi

    uwsgi.websocket_handshake(environ["HTTP_SEC_WEBSOCKET_KEY"])
    with contextlib.suppress(OSError):
        while True:
            uwsgi.websocket_send(uwsgi.websocket_recv())
    return []


def stream(gate):
    end = time.monotonic() + STREAM_SECONDS
    while not os.path.exists(gate) and time.monotonic() < end:
        yield b"part\n"
        time.sleep(PART_SECONDS)
    yield b"end\n"


async def asynchronous(scope, receive, send):
    if scope["type"] == "websocket":
        return await asgi_socket_echo.application(scope, receive, send)
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    path, query = scope["path"], scope["query_string"]
    await send_head(send, path, query, await receive_digest(receive) if path == "/digest" else None)
    return None


async def send_head(send, path, query, digest):
    if path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        end = time.monotonic() + STREAM_SECONDS
        while not os.path.exists(query.decode()) and time.monotonic() < end:
            await send({"type": "http.response.body", "body": b"part\n", "more_body": True})
            await asyncio.sleep(PART_SECONDS)
        return await send({"type": "http.response.body", "body": b"end\n"})
    body = digest or (long_body(int(query)) if path == "/long" else b"answer " + query)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    return await send({"type": "http.response.body", "body": body})


async def receive_digest(receive):
    digest = hashlib.sha1()
    while True:
        message = await receive()
        digest.update(message.get("body", b""))
        if not message.get("more_body"):
            return digest.hexdigest().encode()
