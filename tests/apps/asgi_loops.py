"""ASGI applications that inspect their event loop: the loop itself, tasks, contexts, timeouts, other tasks."""

import asyncio
import contextvars
import json
import os
import sys
import threading
import time

import anyio
import sniffio

variable = contextvars.ContextVar("variable", default="unset")
#: Data that one request leaves for another, by name.
told = {}
gates = {}
tasks = set()


def say(text):
    print(text, file=sys.stderr, flush=True)


def gate(name):
    return gates.setdefault(name, asyncio.Event())


async def answer(send, value):
    body = json.dumps(value).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


async def at_loop(scope, receive, send):
    loop = asyncio.get_running_loop()
    own = asyncio.get_event_loop_policy().get_event_loop() is loop
    kind = type(loop)
    await answer(send, {"loop": f"{kind.__module__}.{kind.__name__}", "own": own, "debug": loop.get_debug(), "pid": os.getpid()})


async def at_current_task(scope, receive, send):
    """It is one and the same task from the first line on, after messages, and after waiting."""
    loop = asyncio.get_running_loop()
    found = [asyncio.current_task()]
    await receive()
    found.append(asyncio.current_task())
    await asyncio.sleep(0)
    found.append(asyncio.current_task(loop))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    found.append(asyncio.current_task())
    same = all(task is found[0] for task in found)
    known = found[0] in asyncio.all_tasks()
    body = json.dumps({"is task": isinstance(found[0], asyncio.Task), "same": same, "known": known}).encode()
    await send({"type": "http.response.body", "body": body})


def at_current_task_in_plain_code(scope, receive, send):
    """A plain function runs before there is a task; the coroutine that it returns runs in one."""

    async def coroutine():
        await answer(send, isinstance(asyncio.current_task(), asyncio.Task))

    return coroutine()


async def at_task_is_done(scope, receive, send):
    """A task ends with its request: earlier ones no longer exist."""
    earlier = told.setdefault("tasks", [])
    leftover = [task.done() for task in earlier]
    earlier.append(asyncio.current_task())
    await answer(send, leftover)


async def at_contextvar(scope, receive, send):
    """A request only sees its own values, before and after it waits."""
    found = [variable.get()]
    variable.set(scope["query_string"].decode())
    found.append(variable.get())
    await asyncio.sleep(0.001)
    found.append(variable.get())
    await receive()
    await asyncio.create_task(asyncio.sleep(0))
    found.append(variable.get())
    await answer(send, found)


async def at_contextvar_held(scope, receive, send):
    name = scope["query_string"].decode()
    variable.set(name)
    say(f"holds {name}")
    await gate(name).wait()
    await answer(send, variable.get())


async def at_contextvar_in_helpers(scope, receive, send):
    """Tasks, callbacks and threads of a request have its context."""
    variable.set("request")
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_soon(lambda: later.set_result(variable.get()))

    async def task():
        return variable.get()

    context = contextvars.copy_context()
    in_thread = await loop.run_in_executor(None, context.run, variable.get)
    await answer(send, [await asyncio.create_task(task()), await later, in_thread])


async def at_open(scope, receive, send):
    gate(scope["query_string"].decode()).set()
    await answer(send, "open")


async def at_told(scope, receive, send):
    await answer(send, told.get(scope["query_string"].decode()))


async def at_sniffio(scope, receive, send):
    first = sniffio.current_async_library()
    await asyncio.sleep(0)
    await answer(send, [first, sniffio.current_async_library()])


async def at_anyio(scope, receive, send):
    """A task group, a timeout, a thread and a lock of anyio, from the first line on."""
    results = []
    async with anyio.create_task_group() as group:

        async def child(number):
            await anyio.sleep(0.001 * number)
            results.append(number)

        for number in (3, 1, 2):
            group.start_soon(child, number)
    with anyio.move_on_after(0.01) as limit:
        await anyio.sleep(30)
    thread = await anyio.to_thread.run_sync(threading.current_thread)
    async with anyio.Lock():
        await answer(send, [sorted(results), limit.cancel_called, thread is threading.main_thread()])


async def at_anyio_cancel_at_once(scope, receive, send):
    """A scope that is cancelled in the very first step of the application."""
    with anyio.CancelScope() as cancelled:
        cancelled.cancel()
        await anyio.sleep(30)
    with anyio.fail_after(30):
        await anyio.sleep(0)
    await answer(send, cancelled.cancel_called)


async def at_timeout(scope, receive, send):
    """asyncio.timeout (3.11) and wait_for, in the first step and later."""
    found = []
    for _ in range(2):
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except asyncio.TimeoutError:
            found.append("wait_for")
        if sys.version_info >= (3, 11):
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                found.append("timeout")
    await answer(send, found)


async def at_receive_with_a_limit(scope, receive, send):
    """A cancelled receive() does not lose parts of the body."""
    name = scope["query_string"].decode()
    for _ in range(5):
        try:
            await asyncio.wait_for(receive(), 0.01)
        except asyncio.TimeoutError:
            continue
        raise AssertionError("nobody has sent anything yet")
    say(f"waits {name}")
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    await answer(send, body.decode())


async def at_task_group(scope, receive, send):
    """asyncio.TaskGroup cancels its children with the one that fails (3.11)."""
    if sys.version_info < (3, 11):
        await answer(send, ["cancelled", "ValueError"])
        return
    found = []

    async def waits():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            found.append("cancelled")
            raise

    async def fails():
        await asyncio.sleep(0)
        raise ValueError("of a child")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(fails())
    except BaseException as error:
        found.extend(type(child).__name__ for child in error.exceptions)
    await answer(send, found)


async def at_leave_a_task(scope, receive, send):
    """A task that outlives its request."""
    name = scope["query_string"].decode()

    async def work():
        await gate(name).wait()
        told[name] = "done"

    task = asyncio.get_running_loop().create_task(work())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    await answer(send, "left")


async def at_wait_until_left(scope, receive, send):
    """Waits without receiving: the disconnect cancels nothing."""
    name = scope["query_string"].decode()
    say(f"waits {name}")
    try:
        await gate(name).wait()
        told[name] = (await receive())["type"], (await receive())["type"]
    except asyncio.CancelledError:
        told[name] = "cancelled"
        raise


async def at_threads(scope, receive, send):
    """Work in threads, and a thread that calls back."""
    loop = asyncio.get_running_loop()
    names = await asyncio.gather(*(loop.run_in_executor(None, time.sleep, 0.001) for _ in range(20)))
    future = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, "called")).start()
    await answer(send, [len(names), await future])


async def at_subprocess(scope, receive, send):
    process = await asyncio.create_subprocess_exec("echo", "from a child", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    await answer(send, [output.decode().strip(), process.returncode])


async def at_connection(scope, receive, send):
    """The application is a client of this same server, in the same loop."""
    host, port = scope["server"]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /sniffio HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    data = await reader.read()
    writer.close()
    await answer(send, data.split(b"\r\n")[0].decode())


async def at_many_steps(scope, receive, send):
    for _ in range(1000):
        await asyncio.sleep(0)
    await answer(send, "done")


async def at_call_soon(scope, receive, send):
    """The loop's own method is unchanged: callbacks of the first step run in order."""
    loop = asyncio.get_running_loop()
    order = []
    loop.call_soon(order.append, 1)
    inner = asyncio.ensure_future(asyncio.sleep(0))
    loop.call_soon(order.append, 2)
    await inner
    await asyncio.sleep(0)
    await answer(send, [order, "call_soon" in getattr(loop, "__dict__", {})])


async def at_task_factory(scope, receive, send):
    """An application may set a task factory; later requests are served all the same."""
    loop = asyncio.get_running_loop()
    made = []

    def factory(loop, coroutine, **options):
        made.append(1)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)
    await asyncio.create_task(asyncio.sleep(0))
    await answer(send, len(made))


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    await globals()["at_" + scope["path"].strip("/")](scope, receive, send)
