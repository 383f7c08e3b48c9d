"""Responses of every form, each of which says which worker has made it: WSGI, and ASGI with WebSockets. `/facts` says what the
application knows of its client."""

import asyncio
import json
import os
import pathlib
import time
from urllib.parse import parse_qs

#: Bytes of `/large`, which the parameter `times` multiplies.
LARGE = 3_000_000

#: Parts of `/small`, each of which is a chunk of ten bytes.
SMALL = 3_000


def pid_field():
    return ("X-Pid", str(os.getpid()))


def application(environ, start_response):
    path, query = environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", ""))
    status, fields, body = "200 OK", [pid_field()], [b"fine"]
    if path == "/facts":
        wanted = ("REMOTE_ADDR", "SERVER_PROTOCOL", "SERVER_PORT", "HTTP_HOST", "wsgi.url_scheme", "REQUEST_METHOD")
        tls = {name: environ[name] for name in environ if name.startswith(("SSL_", "HTTPS"))}
        body = [json.dumps({name: environ.get(name) for name in wanted} | tls).encode()]
    elif path == "/nothing":
        status, body = "204 No Content", []
    elif path == "/unchanged":
        status, body = "304 Not Modified", []
        fields.append(("ETag", '"a"'))
    elif path == "/large":
        size = LARGE * int(query.get("times", ["1"])[0])
        fields.append(("Content-Length", str(size)))
        body = (b"x" * 100_000 for _ in range(size // 100_000))
    elif path == "/parts":
        body = parts(query["gate"][0])
    elif path == "/small":
        body = (b"%09d\n" % number for number in range(SMALL))
    elif path == "/junk":
        taken = environ["gunicorn.socket"]
        taken.sendall(b"This is not HTTP.\r\n")
        taken.close()
    elif path == "/echo":
        body = [environ["wsgi.input"].read()]
    elif path == "/fails":
        raise RuntimeError("on purpose")
    elif path == "/cut":
        fields.append(("Content-Length", "10"))
        body = [b"short"]
    start_response(status, fields)
    return body


def parts(gate):
    """The second part comes when the file `gate` is there."""
    yield b"first"
    while not pathlib.Path(gate).exists():
        time.sleep(0.002)
    yield b"second"


def seen(query, what):
    """Appends a line to the file of the parameter `seen`."""
    for file in query.get("seen", ()):
        with open(file, "a") as opened:
            opened.write(f"{what}\n")


async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        raise NotImplementedError
    path, query = scope["path"], parse_qs(scope["query_string"].decode())
    if scope["type"] == "websocket":
        return await websocket(query, receive, send)
    headers = [(b"x-pid", str(os.getpid()).encode())]
    if path == "/wait":
        seen(query, "begun")
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        seen(query, "disconnected")
        return None
    if path == "/late":
        seen(query, "begun")
        await asyncio.sleep(600)
    if path == "/trailers":
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
        await send({"type": "http.response.body", "body": b"fine"})
        return await send({"type": "http.response.trailers", "headers": [(b"checksum", b"a1")]})
    if path == "/hints":
        await send({"type": "http.response.informational", "status": 103, "headers": [(b"link", b"</a>; rel=preload")]})
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    facts = json.dumps({"scheme": scope["scheme"], "version": scope["http_version"], "client": scope["client"][0]}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": facts if path == "/facts" else body or b"fine"})


async def websocket(query, receive, send):
    """Says its pid, and then what it hears, until it hears `end`."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": str(os.getpid())})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return seen(query, f"disconnected {message.get('code')}")
        if message.get("text") == "end":
            return await send({"type": "websocket.close", "code": 4000})
        await send({"type": "websocket.send", "text": message["text"]})
