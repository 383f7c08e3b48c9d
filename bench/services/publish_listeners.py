"""The application of ``publish.py``: listeners in each worker, which note how long messages took, and a publisher."""

import asyncio
import json
import os
import time
from pathlib import Path

import bolide

LISTENERS = 100
#: The delays of this worker in nanoseconds, and the messages that were missed.
delays = []
missed = 0
#: What runs in the background.
tasks = set()


async def listen(messages):
    global missed
    while True:
        try:
            async for message in messages:
                if message.channel == "bench":
                    delays.append(time.monotonic_ns() - int(message.data))
        except bolide.Missed as error:
            missed += error.count


async def publish(processes, count, pause):
    while bolide.publish("here", "") < processes:
        await asyncio.sleep(pause)
    for _ in range(count):
        bolide.publish("bench", str(time.monotonic_ns()))
        await asyncio.sleep(pause)
    write("done")


def write(name):
    """Leave a file of the worker, which the benchmark reads."""
    text = json.dumps({"delays": delays, "missed": missed})
    Path(f"{name}-{os.getpid()}.json").write_text(text)


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        tasks.update(asyncio.ensure_future(listen(bolide.subscribe("bench", "here"))) for _ in range(LISTENERS))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        write("worker")
        await send({"type": "lifespan.shutdown.complete"})
        return
    _, processes, count, pause = scope["path"].split("/")
    tasks.add(asyncio.ensure_future(publish(int(processes), int(count), float(pause))))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun"})
