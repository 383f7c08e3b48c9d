"""As takes_time.py, in the event loop: it serves nobody meanwhile, as with a view that computes. Runs in the servers' workers."""

import time

from asgi_hello import application as hello


async def application(scope, receive, send):
    if scope["type"] == "http":
        time.sleep(int(scope["path"].rpartition("/")[2]) / 1e6)
    await hello(scope, receive, send)
