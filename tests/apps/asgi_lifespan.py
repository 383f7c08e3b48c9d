"""ASGI applications that differ in their lifespan. Over HTTP each returns what it knows of its state."""

import asyncio
import json
import os
import sys
import time

#: Events that requests wait for, by name.
gates = {}


def say(text):
    print(text, file=sys.stderr, flush=True)


async def answer(send, body):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


async def http(scope, receive, send):
    path, query = scope["path"], scope["query_string"].decode()
    if path == "/state":
        await answer(send, json.dumps({key: str(value) for key, value in scope.get("state", {}).items()}).encode())
    elif path == "/hold":
        say(f"holds {query}")
        await gates.setdefault(query, asyncio.Event()).wait()
        await answer(send, b"held")
    elif path == "/open":
        # It opens when all of its body has come, so a client can open it while the worker drains.
        while (await receive()).get("more_body"):
            pass
        gates.setdefault(query, asyncio.Event()).set()
        await answer(send, b"open")
    elif path == "/left":
        await answer(send, b"left")
        await gates.setdefault(query, asyncio.Event()).wait()
        say(f"after the response of {query}")
    else:
        await answer(send, str(os.getpid()).encode())


def with_lifespan(lifespan):
    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            await lifespan(scope, receive, send)
        else:
            await http(scope, receive, send)

    return application


async def expect(receive, kind):
    message = await receive()
    assert message == {"type": kind}, message


@with_lifespan
async def well_behaved(scope, receive, send):
    assert set(scope) == {"type", "asgi", "state"}, scope
    assert scope["asgi"]["version"] == "3.0"
    assert scope["asgi"]["spec_version"] in ("1.0", "2.0")
    assert scope["state"] == {}
    await expect(receive, "lifespan.startup")
    say(f"startup begins in {os.getpid()}")
    await asyncio.sleep(0.05)
    scope["state"]["made in"] = os.getpid()
    say(f"startup ends in {os.getpid()}")
    await send({"type": "lifespan.startup.complete"})
    await expect(receive, "lifespan.shutdown")
    say(f"shutdown begins in {os.getpid()}")
    await asyncio.sleep(0.05)
    say(f"shutdown ends in {os.getpid()}")
    await send({"type": "lifespan.shutdown.complete"})
    await asyncio.sleep(0.05)
    say(f"lifespan returns in {os.getpid()}")


@with_lifespan
async def says_failed(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "the database is away"})


@with_lifespan
async def says_failed_without_a_message(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed"})


@with_lifespan
async def says_failed_as_starlette_does(scope, receive, send):
    import traceback

    await receive()
    try:
        connect()
    except BaseException:
        await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})
        raise


@with_lifespan
async def says_failed_and_takes_long_to_log(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "the database is away"})
    raise SlowToDescribeError()


class SlowToDescribeError(RuntimeError):
    def __str__(self):
        time.sleep(0.3)
        return "no database"


def connect():
    raise RuntimeError("no database")


@with_lifespan
async def raises(scope, receive, send):
    await receive()
    connect()


@with_lifespan
async def exits(scope, receive, send):
    await receive()
    sys.exit("this machine will not do")


@with_lifespan
async def refuses_the_scope(scope, receive, send):
    raise NotImplementedError("no lifespan here")


@with_lifespan
async def returns_at_once(scope, receive, send):
    return


@with_lifespan
async def answers_as_if_it_was_http(scope, receive, send):
    await http({**scope, "path": "/", "query_string": b""}, receive, send)


@with_lifespan
async def never_starts(scope, receive, send):
    await receive()
    say("startup hangs")
    await asyncio.Event().wait()


@with_lifespan
async def never_stops(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    say("shutdown hangs")
    await asyncio.Event().wait()


@with_lifespan
async def shutdown_raises(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    connect()


@with_lifespan
async def shutdown_says_failed(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.failed", "message": "the queue is full"})


@with_lifespan
async def ends_while_it_serves(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await asyncio.sleep(0)
    connect()


@with_lifespan
async def sends_nonsense(scope, receive, send):
    await receive()
    try:
        await send({"type": "lifespan.startup.done"})
    except Exception as error:
        say(f"refused: {type(error).__name__}: {error}")
    await send({"type": "lifespan.startup.complete"})
    try:
        await send({"type": "lifespan.startup.complete"})
    except Exception as error:
        say(f"refused again: {type(error).__name__}")
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


@with_lifespan
async def fails_where_told(scope, receive, send):
    """Starts unless there is a file ``broken`` in the working directory."""
    await receive()
    if os.path.exists("broken"):
        await send({"type": "lifespan.startup.failed", "message": "the database is away"})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    say(f"shutdown of {os.getpid()}")
    await send({"type": "lifespan.shutdown.complete"})


@with_lifespan
async def works_beside(scope, receive, send):
    """A task of the lifespan runs while requests are served, and shares its state with them."""
    await receive()
    scope["state"]["ticks"] = ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    ticking.cancel()
    await send({"type": "lifespan.shutdown.complete"})
