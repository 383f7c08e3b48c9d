"""ASGI applications that block their event loop, or wait without end."""

import asyncio
import os
import re
import sys
import time

gates = {}
tasks = set()

#: Longer than the ``loop-stall`` of the tests.
BLOCKED_SECONDS = 0.8


def say(text):
    print(text, file=sys.stderr, flush=True)


def gate(name):
    return gates.setdefault(name, asyncio.Event())


async def answer(send, text):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


async def at_pid(name, send):
    await answer(send, str(os.getpid()))


async def at_sleep(name, send):
    await asyncio.sleep(0.01)
    await answer(send, "slept")


async def at_open(name, send):
    gate(name).set()
    await answer(send, "open")


async def at_block(name, send):
    block_here()
    await answer(send, "blocked")


def block_here():
    time.sleep(BLOCKED_SECONDS)


async def at_hold_the_interpreter(name, send):
    hold_the_interpreter_here()
    await answer(send, "blocked")


def hold_the_interpreter_here():
    # C code that holds the GIL: no other Python thread could watch the loop in the meantime.
    end = time.monotonic() + BLOCKED_SECONDS
    while time.monotonic() < end:
        re.match("(a+)+$", "a" * 22 + "b")


async def at_wait(name, send):
    await wait_at_gate(name)
    await answer(send, "waited")


async def wait_at_gate(name):
    say(f"waits {name}")
    try:
        await gate(name).wait()
    except asyncio.CancelledError:
        say(f"cancelled {name}")
        raise


async def at_wait_deep(name, send):
    await outer(name)


async def outer(name):
    async def inner():
        await asyncio.Event().wait()

    await inner()


async def at_begin_and_wait(name, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await wait_at_gate(name)
    await send({"type": "http.response.body", "body": b"ended"})


async def at_answer_and_wait(name, send):
    await answer(send, "answered")
    await gate(name).wait()
    say(f"finished {name}")


async def at_ignore_cancellation(name, send):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        say(f"{name} goes on")
    try:
        await answer(send, "too late")
    except OSError as error:
        say(f"{name} could not answer: {type(error).__name__}")


async def at_make_tasks(name, send):
    tasks.update(asyncio.ensure_future(asyncio.Event().wait()) for _ in range(int(name)))
    await asyncio.sleep(0)
    await answer(send, "made")


async def at_hang(name, send):
    hang_here()


def hang_here():
    while True:
        time.sleep(300)


async def at_hang_later(name, send):
    asyncio.get_running_loop().call_later(0.05, hang_here)
    await answer(send, "soon")


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await globals()["at_" + scope["path"].strip("/")](scope["query_string"].decode(), send)
