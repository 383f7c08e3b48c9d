"""A WebSocket application that is scripted by its client: the query is ``(name, steps)`` as a Python literal, each step a tuple
of its verb and arguments. Its notes are kept under the name and returned over HTTP at ``/seen/<name>``; without a name they are
dropped.

``/go/<name>`` lets a step ``("wait", name)`` continue.
"""

import ast
import asyncio
import os
import time
from pathlib import Path
from urllib.parse import unquote_to_bytes

#: Notes of scripts, by name.
seen = {}
#: Maximum time that a step may block the loop, in seconds.
MAX_BLOCKED_SECONDS = 10
#: Events by name.
gates = {}


def gate(name):
    return gates.setdefault(name, asyncio.Event())


async def application(scope, receive, send):
    if scope["type"] == "http":
        return await answer(scope, send)
    name, steps = ast.literal_eval(unquote_to_bytes(scope["query_string"]).decode())
    events = seen.setdefault(name, []) if name else []
    script = Script(scope, receive, send, events)
    try:
        for verb, *arguments in steps:
            await getattr(script, verb)(*arguments)
    except BaseException as error:
        events.append(("ended", type(error).__name__))
        raise
    events.append(("ended", None))


async def answer(scope, send):
    _, verb, name = scope["path"].split("/")
    if verb == "go":
        gate(name).set()
    body = repr(seen.get(name, [])).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


class Script:
    """The verbs of the steps. Notes are appended to ``events``."""

    def __init__(self, scope, receive, send, events):
        self.scope = scope
        self._receive = receive
        self._send = send
        self.events = events

    def note(self, *event):
        self.events.append(event)

    async def receive(self, times=1):
        for _ in range(times):
            self.note("received", await self._receive())

    async def receive_all(self):
        """Reads up to and including the end."""
        while True:
            message = await self._receive()
            self.note("received", message)
            if message["type"] == "websocket.disconnect":
                return

    async def send(self, message):
        """Notes a failure, without the consequences that it has for an application that does not catch it."""
        try:
            await self._send(message)
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__[:-3]]
            self.note("failed", kinds, str(error))
        else:
            self.note("sent", message["type"])

    async def accept(self, **keys):
        self.note("received", await self._receive())
        await self.send({"type": "websocket.accept", **keys})

    async def echo(self, times):
        for _ in range(times):
            message = await self._receive()
            await self._send({**message, "type": "websocket.send"})

    async def tell_scope(self, *names):
        await self._send({"type": "websocket.send", "text": repr({name: self.scope.get(name) for name in names})})

    async def tell_pid(self):
        await self._send({"type": "websocket.send", "text": str(os.getpid())})

    async def say(self, text):
        await self._send({"type": "websocket.send", "text": text})

    async def say_buffers(self):
        for payload in (b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview")):
            await self._send({"type": "websocket.send", "bytes": payload})

    async def say_zeros(self, size, times=1):
        """Sends messages and notes each, until the client has disconnected."""
        payload = bytes(size)
        for number in range(times):
            try:
                await self._send({"type": "websocket.send", "bytes": payload})
            except OSError as error:
                return self.note("failed", [type(error).__name__], str(error))
            self.note("sent", number)

    async def say_at_once(self, tasks, times):
        """``tasks`` tasks send ``times`` messages each, without yielding to the loop in between."""

        async def sender(number):
            for place in range(times):
                await self._send({"type": "websocket.send", "text": f"{number} {place} " + "x" * 2000})

        await asyncio.gather(*(sender(number) for number in range(tasks)))

    async def say_for_ever(self, size):
        """Sends from a separate task, as a broadcaster does, without checking for disconnects."""
        text = "x" * size

        async def sender():
            try:
                while True:
                    await self._send({"type": "websocket.send", "text": text})
                    await asyncio.sleep(0)
            except OSError as error:
                self.note("failed", [type(error).__name__], str(error))

        self.sender = asyncio.get_running_loop().create_task(sender())

    async def end_saying(self):
        await self.sender

    async def receive_with_timeout(self, seconds):
        try:
            self.note("received", await asyncio.wait_for(self._receive(), seconds))
        except asyncio.TimeoutError:
            self.note("nothing came")

    async def refuse_with(self, size):
        """The body of a refusing response, in parts."""
        for start in range(0, size, 50_000):
            part = b"no" * (min(50_000, size - start) // 2)
            message = {"type": "websocket.http.response.body", "body": part, "more_body": start + len(part) < size}
            await self._send(message)

    async def keep_notes(self, path):
        """Writes the notes to a file, for events after which the worker cannot be asked any more."""
        with open(path + ".new", "w") as file:
            file.write(repr(self.events))
        os.replace(path + ".new", path)

    async def wait(self, name):
        self.note("waits", name)
        await gate(name).wait()

    async def turn(self):
        """Yields to the loop."""
        await asyncio.sleep(0)

    async def block(self, path):
        """Blocks the loop until the file exists; another file shows that it is blocked."""
        Path(path + ".waiting").touch()
        end = time.monotonic() + MAX_BLOCKED_SECONDS
        while not Path(path).exists() and time.monotonic() < end:
            time.sleep(0.01)

    async def fail(self, text="as the test asked"):
        raise RuntimeError(text)

    async def cancel(self):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)
