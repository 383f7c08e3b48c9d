"""ASGI applications that set a context variable, each in a different way, and return the value that they found before."""

import asyncio
import contextvars
import functools

visitor = contextvars.ContextVar("visitor", default="nobody")


async def answer(send, text):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(text)).encode())]})
    await send({"type": "http.response.body", "body": text.encode()})


async def at_once(scope, receive, send):
    found = visitor.get()
    visitor.set("somebody")
    await answer(send, found)


async def after_waiting(scope, receive, send):
    """It sends outside of the server's call."""
    found = visitor.get()
    visitor.set("somebody")
    await asyncio.sleep(0)
    await answer(send, found)


async def by_another_task(scope, receive, send):
    found = visitor.get()

    async def other():
        visitor.set("somebody")
        await asyncio.sleep(0)
        await answer(send, found)

    await asyncio.ensure_future(other())


async def from_a_thread(scope, receive, send):
    found = visitor.get()
    visitor.set("somebody")
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()

    def work():
        asyncio.run_coroutine_threadsafe(answer(send, found), loop).result()

    await loop.run_in_executor(None, context.run, work)


async def after_its_response(scope, receive, send):
    found = visitor.get()
    await answer(send, found)
    visitor.set("somebody")
    await asyncio.sleep(0)


async def with_a_body(scope, receive, send):
    found = visitor.get()
    visitor.set("somebody")
    while (await receive())["more_body"]:
        pass
    await answer(send, found)


async def socket(scope, receive, send):
    found = visitor.get()
    visitor.set("somebody")
    await receive()
    await send({"type": "websocket.accept"})
    await asyncio.sleep(0)
    await send({"type": "websocket.send", "text": found})
    await receive()


def plain(scope, receive, send):
    """A plain function with some setup that returns the coroutine of another application."""
    found = visitor.get()
    visitor.set("somebody")
    task = asyncio.current_task()
    return answer(send, found if task is not None and task.get_loop() is asyncio.get_running_loop() else "no task")


@functools.wraps(at_once)
def wrapped(scope, receive, send):
    """The same, in a wrapper that looks like the wrapped function."""
    return plain(scope, receive, send)


class Plain:
    def __call__(self, scope, receive, send):
        return plain(scope, receive, send)


plain_object = Plain()


class Future:
    """An awaitable that is not a coroutine."""

    def __init__(self, coroutine):
        self.coroutine = coroutine

    def __await__(self):
        return self.coroutine.__await__()


def awaitable(scope, receive, send):
    return Future(plain(scope, receive, send))


ways = {
    function.__name__: function
    for function in (at_once, after_waiting, by_another_task, from_a_thread, after_its_response, with_a_body, socket)
}


async def app(scope, receive, send):
    assert scope["type"] != "lifespan"
    await ways[scope["path"][1:]](scope, receive, send)
