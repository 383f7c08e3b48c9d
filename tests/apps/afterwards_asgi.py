"""The same for ASGI: applications that block the event loop after their responses, until the client confirms them."""

import asyncio

from afterwards import TEXT, wait


async def answer(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": TEXT})


async def at_at_once(name, send):
    """Blocks in the first step of its task, in which a request starts."""
    await answer(send)
    wait(name)


async def at_later(name, send):
    """Blocks in a later step, which the event loop runs by itself."""
    await asyncio.sleep(0)
    await answer(send)
    wait(name)


async def at_slow(name, send):
    """The first step waits until other requests are answered."""
    wait(name)
    await answer(send)


async def at_next(name, send):
    """A step after the loop iteration in which its request started waits until other requests are answered."""
    await asyncio.sleep(0)
    wait(name)
    await answer(send)


async def at_plain(name, send):
    await answer(send)


async def application(scope, receive, send):
    await globals()["at_" + scope["path"].strip("/")](scope["query_string"].decode(), send)
