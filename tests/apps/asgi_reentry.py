"""ASGI applications whose code runs where the server does not expect it: in a `__bool__`, in a loop's own methods."""

import asyncio
import gc
import os

START = {"type": "http.response.start", "status": 200, "headers": [(b"x-first", b"yes"), (b"x-second", b"yes")]}


class Changing:
    """A flag whose `__bool__` changes the message that contains it."""

    def __init__(self, change):
        self.change = change

    def __bool__(self):
        self.change()
        gc.collect()
        return False


async def at_headers(receive, send):
    headers = [(b"x-first", b"yes"), (b"x-second", b"yes")]

    def change():
        headers[:] = [1, 2]

    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": Changing(change)})


async def at_trailers(receive, send):
    await send({**START, "headers": [], "trailers": True})
    await send({"type": "http.response.body", "body": b"body"})
    trailers = [(b"x-a", b"b")]
    more = Changing(lambda: trailers.__setitem__(slice(None), [None]))
    await send({"type": "http.response.trailers", "headers": trailers, "more_trailers": more})


async def at_flag_that_goes(receive, send):
    """Its `__bool__` removes the flag from the message, and with it the last reference to itself."""
    await send(START)
    message = {"type": "http.response.body", "body": b"body"}
    message["more_body"] = Changing(message.clear)
    await send(message)


async def at_call_soon(receive, send):
    """The loop's call_soon sends, and the server calls it when it delivers the next part of the body."""
    loop = asyncio.get_running_loop()
    said = []

    def hook(*arguments, **keywords):
        del loop.call_soon
        try:
            send({"type": "http.response.body", "body": b"from within ", "more_body": True})
            said.append("sent")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        return loop.call_soon(*arguments, **keywords)

    await send({**START, "headers": []})
    await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
    message = await receive()
    received = message["body"]
    while message["more_body"]:
        loop.call_soon = hook
        message = await receive()
        received += message["body"]
    await send({"type": "http.response.body", "body": received + b" " + ";".join(said).encode()})


async def at_pid(receive, send):
    await send({**START, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


async def application(scope, receive, send):
    assert scope["type"] == "http"
    await globals()["at_" + scope["path"].strip("/")](receive, send)
