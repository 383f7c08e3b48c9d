"""Requests that wait, for clients that leave: each prints what happens to it.

``/go`` lets all requests of the process go on that wait for it.
"""

import asyncio
import os

from starlette.responses import StreamingResponse

going = asyncio.Event()


def say(*words):
    print(*words, flush=True)


async def answer(send, text, more=False):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode(), "more_body": more})


async def wait(scope, receive, send):
    """Waits, and cleans up with an ``await`` when it is cancelled."""
    say("wait begun")
    try:
        await going.wait()
        await answer(send, "went on")
    except asyncio.CancelledError:
        say("wait cancelled")
        raise
    finally:
        await asyncio.sleep(0)
        say("wait cleaned up:", (await receive())["type"])


async def until_disconnect(scope, receive, send):
    """Answers when it is told that the client has ended its side."""
    while (await receive())["type"] != "http.disconnect":
        pass
    say("told")
    await answer(send, "still here")


async def background(scope, receive, send):
    """Goes on after its answer."""
    await answer(send, "done")
    try:
        await going.wait()
        say("background done")
    except asyncio.CancelledError:
        say("background cancelled")
        raise


async def stubborn(scope, receive, send):
    """Suppresses that it is cancelled."""
    say("stubborn begun")
    try:
        await going.wait()
    except asyncio.CancelledError:
        say("stubborn cancelled")
    await going.wait()
    say("stubborn went on")


async def with_task(scope, receive, send):
    """Has a task of its own."""

    async def own():
        await going.wait()
        say("own task done")

    tasks.append(asyncio.create_task(own()))
    await wait(scope, receive, send)


async def stream(scope, receive, send):
    """Streams without an end, and does not wait for its client in between."""

    async def parts():
        yield b"first"
        try:
            await going.wait()
        except asyncio.CancelledError:
            say("stream cancelled")
            raise

    await StreamingResponse(parts())(scope, receive, send)


async def fails(scope, receive, send):
    """Fails while it cleans up."""
    say("fails begun")
    try:
        await going.wait()
    finally:
        raise ValueError("a mistake in the cleanup")


async def websocket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    try:
        await receive()
        say("websocket told")
        await going.wait()
        say("websocket went on")
    except asyncio.CancelledError:
        say("websocket cancelled")
        raise


async def go(scope, receive, send):
    going.set()
    await answer(send, "gone")


tasks = []
PAGES = {
    "/wait": wait,
    "/until-disconnect": until_disconnect,
    "/background": background,
    "/stubborn": stubborn,
    "/with-task": with_task,
    "/stream": stream,
    "/fails": fails,
    "/websocket": websocket,
    "/go": go,
}


async def application(scope, receive, send):
    page = PAGES.get(scope["path"].removesuffix("/off"))
    await (page(scope, receive, send) if page else answer(send, str(os.getpid()) if scope["path"] == "/pid" else "quick"))
