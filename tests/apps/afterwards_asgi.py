"""The same for ASGI: applications that hold up the event loop behind their answers, until the client says that it has them."""

import asyncio

from afterwards import TEXT, wait


async def answer(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": TEXT})


async def at_at_once(name, send):
    """In the first step of its task, in which a request is taken."""
    await answer(send)
    wait(name)


async def at_later(name, send):
    """In a later one, which the event loop makes by itself."""
    await asyncio.sleep(0)
    await answer(send)
    wait(name)


async def at_slow(name, send):
    """The first step waits, for answers to others."""
    wait(name)
    await answer(send)


async def at_next(name, send):
    """A step that comes behind the turn in which its request was taken waits, for answers to others."""
    await asyncio.sleep(0)
    wait(name)
    await answer(send)


async def at_plain(name, send):
    await answer(send)


async def application(scope, receive, send):
    await globals()["at_" + scope["path"].strip("/")](scope["query_string"].decode(), send)
