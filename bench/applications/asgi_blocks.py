"""Like takes_time.py, but blocks the event loop as a view that computes does. Runs in the servers' workers."""

import time

from asgi_hello import application as hello


async def application(scope, receive, send):
    if scope["type"] == "http":
        time.sleep(int(scope["path"].rpartition("/")[2]) / 1e6)
    await hello(scope, receive, send)
