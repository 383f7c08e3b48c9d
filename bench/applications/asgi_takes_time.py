"""Like takes_time.py, with `asyncio.sleep`: the event loop serves other requests in the meantime. Runs in the servers'
workers.
"""

import asyncio

from asgi_hello import application as hello


async def application(scope, receive, send):
    if scope["type"] == "http":
        await asyncio.sleep(int(scope["path"].rpartition("/")[2]) / 1e6)
    await hello(scope, receive, send)
