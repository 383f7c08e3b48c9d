"""Each kind of request to an application, as WSGI and as ASGI, and the number of references in the interpreter.

`/total` returns the number of references, `/ended` the number of responses of `/gone` that have ended.
"""

import asyncio
import gc
import sys

PART = b"p" * 50_000
#: Parts of a response whose client disconnects: more than the kernel buffers.
PARTS = 400
PLAIN = [("Content-Type", "text/plain")]

ended = 0


def note_end():
    global ended
    ended += 1


def measured():
    gc.collect()
    return b"%d" % sys.gettotalrefcount()


# WSGI.


def at_total(environ, start_response):
    start_response("200 OK", PLAIN)
    return [measured()]


def at_ended(environ, start_response):
    start_response("200 OK", PLAIN)
    return [b"%d" % ended]


def at_whole(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "2")])
    return [b"ok"]


def at_failing(environ, start_response):
    raise LookupError("on purpose")


def at_failing_late(environ, start_response):
    start_response("200 OK", PLAIN)
    yield b"a part"
    raise LookupError("on purpose")


def at_misused(environ, start_response):
    start_response("200 OK", [("Content-Type", 5)])
    return [b"never"]


def at_corrected(environ, start_response):
    start_response("200 OK", PLAIN)
    try:
        raise LookupError("on purpose")
    except LookupError:
        start_response("500 Corrected", PLAIN, sys.exc_info())
    return [b"corrected"]


def at_streamed(environ, start_response):
    start_response("200 OK", PLAIN)
    for number in range(5):
        yield b"%d" % number * 1000


def at_written(environ, start_response):
    write = start_response("200 OK", PLAIN)
    write(b"one")
    write(b"two")
    return [b"three"]


def at_posted(environ, start_response):
    body = environ["wsgi.input"]
    content = body.readline() + b"".join(body)
    start_response("200 OK", PLAIN)
    return [b"%d" % len(content)]


def at_named_file(environ, start_response):
    start_response("200 OK", [("X-Sendfile", __file__)])
    return [b"never"]


def at_wrapped_file(environ, start_response):
    start_response("200 OK", PLAIN)
    return environ["wsgi.file_wrapper"](open(__file__, "rb"), 1000)


class Endless:
    """A response that notes its end."""

    def __iter__(self):
        return iter([PART] * PARTS)

    def close(self):
        note_end()


def at_gone(environ, start_response):
    start_response("200 OK", PLAIN)
    return Endless()


def application(environ, start_response):
    return globals()["at_" + environ["PATH_INFO"].strip("/")](environ, start_response)


# ASGI.


async def begin(send, headers=()):
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})


async def part(send, body, more=False):
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def on_total(scope, receive, send):
    await begin(send)
    await part(send, measured())


async def on_ended(scope, receive, send):
    await begin(send)
    await part(send, b"%d" % ended)


async def on_whole(scope, receive, send):
    await begin(send, [(b"content-length", b"2")])
    await part(send, b"ok")


async def on_waiting(scope, receive, send):
    """Its task continues in the loop, after the iteration in which it was called."""
    await asyncio.sleep(0)
    await begin(send)
    await asyncio.sleep(0)
    await part(send, b"ok")


async def on_failing(scope, receive, send):
    raise LookupError("on purpose")


async def on_failing_late(scope, receive, send):
    await begin(send)
    await part(send, b"a part", more=True)
    await asyncio.sleep(0)
    raise LookupError("on purpose")


async def on_misused(scope, receive, send):
    try:
        await send({"type": "http.response.start", "status": "no number"})
    finally:
        await part(send, b"never")


async def on_streamed(scope, receive, send):
    await begin(send)
    for number in range(5):
        await part(send, b"%d" % number * 1000, more=True)
    await part(send, b"")


async def on_posted(scope, receive, send):
    length = 0
    while True:
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await begin(send)
    await part(send, b"%d" % length)


async def on_named_file(scope, receive, send):
    await begin(send, [(b"x-sendfile", __file__.encode())])
    await part(send, b"never")


async def on_pathsend(scope, receive, send):
    await begin(send)
    await send({"type": "http.response.pathsend", "path": __file__})


async def on_gone(scope, receive, send):
    try:
        await begin(send)
        for _ in range(PARTS):
            await part(send, PART, more=True)
    finally:
        note_end()


async def on_left(scope, receive, send):
    """Waits for a client that disconnects silently."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        note_end()


async def on_websocket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            note_end()
            return
        await send({**message, "type": "websocket.send"})


async def on_refused_websocket(scope, receive, send):
    await receive()
    await send({"type": "websocket.close"})


async def asgi(scope, receive, send):
    await globals()["on_" + scope["path"].strip("/")](scope, receive, send)
