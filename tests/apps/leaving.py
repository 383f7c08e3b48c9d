"""A view that holds its thread or greenlet until the file ``go`` is in the working directory; each call prints its path."""

import os
import time

LOOK_SECONDS = 0.01


def application(environ, start_response):
    path = environ["PATH_INFO"]
    print(f"{path} begun", flush=True)
    while path.startswith("/hold") and not os.path.exists("go"):
        time.sleep(LOOK_SECONDS)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [path.encode()]


async def asynchronous(scope, receive, send):
    """The same in an event loop, which it blocks."""
    body = application({"PATH_INFO": scope["path"]}, lambda *head: None)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"".join(body)})
