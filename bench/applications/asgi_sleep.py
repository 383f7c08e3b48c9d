"""Answers hello after one `asyncio.sleep(0)`: the smallest application that yields to the event loop. Runs in the servers'
workers.
"""

import asyncio

from asgi_hello import application as hello


async def application(scope, receive, send):
    if scope["type"] == "http":
        await asyncio.sleep(0)
    await hello(scope, receive, send)
