"""Applications of both interfaces whose requests wait forever, and which end their process on request."""

import asyncio
import os

WAITING = []


async def asynchronous(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/wait/"):
        WAITING.append(scope["path"])
        await asyncio.Event().wait()
    body = answer(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def greenlets(environ, start_response):
    import gevent

    if environ["PATH_INFO"].startswith("/wait/"):
        WAITING.append(environ["PATH_INFO"])
        while True:
            gevent.sleep(600)
    body = answer(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def answer(path):
    if path == "/exit":
        os._exit(3)
    return b"%d" % len(WAITING)
