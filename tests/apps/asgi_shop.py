"""The application of the tests about reloads and stops of ASGI applications; a test appends ``VERSION``."""

import asyncio
import contextlib
import os
import sys

VERSION = "version-1"

gates = {}


def say(text):
    print(text, file=sys.stderr, flush=True)


async def answer(send, text):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        say(f"shutdown of {os.getpid()}")
        await send({"type": "lifespan.shutdown.complete"})
        return
    path = scope["path"]
    if path == "/":
        await answer(send, VERSION)
    elif path == "/sleep":
        await asyncio.sleep(0.01)
        await answer(send, VERSION)
    elif path == "/parts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in VERSION:
            await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
    elif path == "/pid":
        await answer(send, str(os.getpid()))
    elif path == "/events":
        await events(scope["query_string"].decode(), receive, send)
    elif path == "/deaf":
        await deaf(send)
    elif path == "/file":
        name = scope["query_string"].decode()
        say(f"waits for {name}")
        while not os.path.exists(name):
            await asyncio.sleep(0.01)
        await answer(send, "waited")


async def deaf(send):
    """A stream that ignores its client's disconnect."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    while True:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.sleep(0.05)
            await send({"type": "http.response.body", "body": b"data: tick\n\n", "more_body": True})


async def events(name, receive, send):
    """An event stream that ends only when its client disconnects."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})

    async def ticks():
        while True:
            await send({"type": "http.response.body", "body": b"data: tick\n\n", "more_body": True})
            await asyncio.sleep(0.05)

    ticking = asyncio.ensure_future(ticks())
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
        say(f"events of {name} end")
    finally:
        ticking.cancel()
