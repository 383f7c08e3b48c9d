"""Applications from asgiref and the ASGI documentation, and asgiref's helpers."""

import asyncio
import functools
import json
import threading

import flask_site
from asgiref.compatibility import guarantee_single_callable
from asgiref.local import Local
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.wsgi import WsgiToAsgi

#: Flask with asgiref's adapter instead of Bolide's own.
flask = WsgiToAsgi(flask_site.app)

local = Local()


async def answer(send, text, status=200):
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})


async def echo(scope, receive, send):
    """The introduction's loop over events, for both protocols."""
    if scope["type"] == "lifespan":
        raise NotImplementedError("this application has no lifespan")
    if scope["type"] == "http":
        body = b""
        while True:
            event = await receive()
            assert event["type"] == "http.request"
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
        await answer(send, f"{scope['method']} {scope['path']} {len(body)}")
        return
    while True:
        event = await receive()
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        elif event["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"]})
        elif event["type"] == "websocket.disconnect":
            return


class Lifespan:
    """The example of the lifespan's specification, as an object with an asynchronous ``__call__``."""

    def __init__(self):
        self.said = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                self.said.append(message["type"])
                if message["type"] == "lifespan.startup":
                    scope["state"]["message"] = "from startup"
                    await send({"type": "lifespan.startup.complete"})
                elif message["type"] == "lifespan.shutdown":
                    print("the application closes", flush=True)
                    await send({"type": "lifespan.shutdown.complete"})
                    return
        else:
            await answer(send, json.dumps([self.said, scope["state"]["message"], scope["asgi"]["version"]]))


lifespan = Lifespan()


class Double:
    """ASGI 2: one object for each connection."""

    def __init__(self, scope):
        self.scope = scope

    async def __call__(self, receive, send):
        if self.scope["type"] != "http":
            raise ValueError("only http here")
        await answer(send, f"double {self.scope['path']}")


double_made_single = guarantee_single_callable(Double)


def double_function(scope):
    return functools.partial(answer_double, scope)


async def answer_double(scope, receive, send):
    await answer(send, f"double function {scope['path']}")


double_function_made_single = guarantee_single_callable(double_function)


async def with_argument(text, scope, receive, send):
    await answer(send, text)


#: A partial counts as asynchronous if the wrapped function is.
partial = functools.partial(with_argument, "by a partial")


def create_app():
    return partial


async def syncs(scope, receive, send):
    """sync_to_async and async_to_sync, nested, with context-local data."""
    assert scope["type"] == "http"
    local.value = scope["path"]

    def blocking():
        # One thread serves all of these: "thread-sensitive" code may use data that only one thread may touch.
        return threading.current_thread().ident, local.value, async_to_sync(inner)()

    async def inner():
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is loop and local.value

    loop = asyncio.get_running_loop()
    first = await sync_to_async(blocking)()
    second = await sync_to_async(blocking, thread_sensitive=False)()
    third = await sync_to_async(blocking)()
    await answer(
        send,
        json.dumps([first[1:], second[1:], first[0] == third[0], first[0] == threading.get_ident(), local.value]),
    )


async def awaits_by_hand(scope, receive, send):
    """Patterns of hand-written applications with receive() and send(): tasks, timeouts, waiting for either."""
    assert scope["type"] == "http"
    told = []
    task = asyncio.create_task(receive())
    done, _ = await asyncio.wait([task], timeout=10)
    told.append(task.result()["type"])
    try:
        await asyncio.wait_for(receive(), 0.01)
    except asyncio.TimeoutError:
        told.append("timeout")
    listening = asyncio.ensure_future(receive())
    sleeping = asyncio.create_task(asyncio.sleep(0.01, "slept"))
    done, pending = await asyncio.wait([listening, sleeping], return_when=asyncio.FIRST_COMPLETED)
    told.extend(task.result() for task in done)
    for task in pending:
        task.cancel()
    told.append((await asyncio.gather(*pending, return_exceptions=True))[0].__class__.__name__)
    await asyncio.gather(
        send({"type": "http.response.start", "status": 200, "headers": []}),
        asyncio.shield(send({"type": "http.response.body", "body": json.dumps(told).encode(), "more_body": True})),
    )
    await asyncio.create_task(send({"type": "http.response.body"}))
