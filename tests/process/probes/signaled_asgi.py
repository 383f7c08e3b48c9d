"""An ASGI application whose handlers of uWSGI's signals note on which loop they run. A path names signals to raise."""

import asyncio

import uwsgi
from signaled import note

loops = []


def plain(number):
    note(f"plain{number}-{asyncio.get_running_loop() is loops[0]}")


async def waiting(number):
    await asyncio.sleep(0)
    note(f"waiting{number}-{asyncio.get_running_loop() is loops[0]}")


async def failing(number):
    await asyncio.sleep(0)
    raise RuntimeError(f"signal {number}")


uwsgi.register_signal(70, "", plain)
uwsgi.register_signal(71, "", waiting)
uwsgi.register_signal(72, "", failing)


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        loops.append(asyncio.get_running_loop())
        uwsgi.add_timer(70, 1)
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    for number in scope["path"].strip("/").split("/"):
        uwsgi.signal(int(number))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
