"""An asynchronous application whose request waits for a task, which waits for a gate."""

import asyncio
from pathlib import Path


async def pass_gate(path):
    path.with_suffix(".waiting").touch()
    while not path.exists():
        await asyncio.sleep(0.02)


async def view(path):
    task = asyncio.create_task(pass_gate(path), name="the gate")
    await task


def work(gate):
    """Keeps the thread until the gate opens."""
    gate.with_suffix(".waiting").touch()
    while not gate.exists():
        pass


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/busy/"):
        work(Path(scope["query_string"].decode()))
    else:
        await view(Path(scope["query_string"].decode()))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
