"""Applications whose view ``/wait?PATH`` blocks its thread until the file at this path exists, as WSGI and as ASGI. It creates
``PATH.waiting`` before. Any other view answers its pid.
"""

import asyncio
import os
import time

#: Timeout of a wait, in seconds.
WAIT_SECONDS = 120


def wait_for(path):
    with open(path + ".waiting", "w") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + WAIT_SECONDS
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)


def application(environ, start_response):
    if environ["PATH_INFO"] == "/wait":
        wait_for(environ["QUERY_STRING"])
    if environ["PATH_INFO"] == "/short":
        time.sleep(0.1)
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError(scope["type"])
    if scope["path"] == "/wait":
        # From here on the loop runs this task, and not the server.
        await asyncio.sleep(0)
        wait_for(scope["query_string"].decode())
    body = str(os.getpid()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
