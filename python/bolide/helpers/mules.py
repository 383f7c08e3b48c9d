"""Calls of objects that mules keep (the option ``mule-app``), with their results, from any process of the instance::

    from bolide.helpers import mules

    answer = mules.call("shop.models:Model", "predict", picture, timeout=30)
    for part in mules.stream("shop.models:Model", "explain", picture):
        ...
    answer = await mules.call_async("shop.models:Model", "predict", picture)

Arguments and results travel as pickles. Runs in every process that loads an application.
"""

import asyncio
import os
import pickle
import socket
import struct
import time

from bolide import _native

#: Seconds that a call may take if it does not say otherwise.
TIMEOUT_SECONDS = 30.0
#: Seconds between two looks at a full queue.
FULL_SECONDS = 0.005
#: The length before a pickle.
LENGTH = struct.Struct("=Q")
#: Maximum number of bytes that are read at a time.
PART_BYTES = 1024 * 1024

#: The kinds of answers.
RESULT, PART, END, FAILURE = "result", "part", "end", "failure"


class CallError(Exception):
    """A call has failed."""


class CallTimeoutError(CallError):
    """It has taken longer than its time. The mule goes on with it, and its answer goes nowhere."""


class MuleDiedError(CallError):
    """The mule exited before it answered."""


class UnknownAppError(CallError):
    """No option ``mule-app`` names this object."""


class AppError(CallError):
    """The object has raised an exception. ``traceback`` is its text."""

    def __init__(self, message, app=None, method=None, traceback=None):
        super().__init__(message)
        self.app = app
        self.method = method
        self.traceback = traceback


def call(app, method, /, *arguments, timeout=TIMEOUT_SECONDS, **named):
    """Call a method of an object in a mule, and return its result."""
    return Call(app, method, timeout).run(arguments, named)


def stream(app, method, /, *arguments, timeout=TIMEOUT_SECONDS, **named):
    """Call a generator of an object in a mule, and yield what it yields. The timeout is for all of it."""
    return Call(app, method, timeout).parts(arguments, named)


async def call_async(app, method, /, *arguments, timeout=TIMEOUT_SECONDS, **named):
    """As :func:`call`, for code in an event loop."""
    return await Call(app, method, timeout).run_async(arguments, named)


async def stream_async(app, method, /, *arguments, timeout=TIMEOUT_SECONDS, **named):
    """As :func:`stream`, for code in an event loop."""
    async for part in Call(app, method, timeout).parts_async(arguments, named):
        yield part


class Call:
    """One call, from its place in the queue to its result."""

    def __init__(self, app, method, seconds):
        self.app = app
        self.method = method
        self.seconds = seconds
        self.until = time.monotonic() + seconds
        names = _native.message_queues()
        if f"app {app}" not in names:
            raise UnknownAppError(f"no mule runs {app}: write `mule-app = {app}`")
        self.place = names.index(f"app {app}")

    def run(self, arguments, named):
        with self.connected() as connection:
            try:
                self.send(connection, arguments, named)
                return self.result(self.receive(connection))
            except socket.timeout:
                raise self.late() from None

    def parts(self, arguments, named):
        with self.connected() as connection:
            try:
                self.send(connection, arguments, named)
                while (answer := self.receive(connection))[0] == PART:
                    yield answer[1]
                self.result(answer)
            except socket.timeout:
                raise self.late() from None

    async def run_async(self, arguments, named):
        with await self.connected_async() as connection:
            try:
                return self.result(await asyncio.wait_for(self.exchange(connection, arguments, named), self.left()))
            except asyncio.TimeoutError:
                raise self.late() from None

    async def parts_async(self, arguments, named):
        with await self.connected_async() as connection:
            try:
                answer = await asyncio.wait_for(self.exchange(connection, arguments, named), self.left())
                while answer[0] == PART:
                    yield answer[1]
                    answer = await asyncio.wait_for(self.receive_async(connection), self.left())
                self.result(answer)
            except asyncio.TimeoutError:
                raise self.late() from None

    def connected(self):
        """Return a connection to the mule that will take the call."""
        while (descriptor := _native.send_call(self.place)) is None:
            if self.left() <= 0:
                raise self.late()
            time.sleep(FULL_SECONDS)
        return socket.socket(fileno=descriptor)

    async def connected_async(self):
        while (descriptor := _native.send_call(self.place)) is None:
            if self.left() <= 0:
                raise self.late()
            await asyncio.sleep(FULL_SECONDS)
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        return connection

    def left(self):
        return self.until - time.monotonic()

    def late(self):
        return CallTimeoutError(f"{self.app}.{self.method} has not answered within {self.seconds:g} s")

    def send(self, connection, arguments, named):
        connection.settimeout(max(self.left(), 0.001))
        try:
            connection.sendall(framed((self.method, arguments, named)))
        except (BrokenPipeError, ConnectionResetError):
            raise self.dead() from None

    def receive(self, connection):
        """Return the next answer."""
        connection.settimeout(max(self.left(), 0.001))
        try:
            return received(connection)
        except (EOFError, ConnectionResetError):
            raise self.dead() from None

    async def exchange(self, connection, arguments, named):
        try:
            await asyncio.get_running_loop().sock_sendall(connection, framed((self.method, arguments, named)))
        except (BrokenPipeError, ConnectionResetError):
            raise self.dead() from None
        return await self.receive_async(connection)

    async def receive_async(self, connection):
        loop = asyncio.get_running_loop()
        reader = Frame()
        while (wanted := reader.wanted()) > 0:
            try:
                part = await loop.sock_recv(connection, wanted)
            except ConnectionResetError:
                part = b""
            if not part:
                raise self.dead()
            reader.take(part)
        return reader.value()

    def dead(self):
        return MuleDiedError(f"the mule exited before {self.app}.{self.method} answered")

    def result(self, answer):
        kind, *rest = answer
        if kind == FAILURE:
            message, traceback = rest
            raise AppError(message, self.app, self.method, traceback)
        return rest[0] if kind == RESULT else None


class Frame:
    """A pickle behind its length, as its bytes arrive."""

    def __init__(self):
        self.bytes = bytearray()
        self.length = None

    def wanted(self):
        """Return how many bytes are read next; 0 at the end."""
        whole = LENGTH.size if self.length is None else self.length
        return min(whole - len(self.bytes), PART_BYTES)

    def take(self, part):
        self.bytes += part
        if self.length is None and len(self.bytes) == LENGTH.size:
            self.length = LENGTH.unpack(self.bytes)[0]
            self.bytes = bytearray()

    def value(self):
        return pickle.loads(self.bytes)


def received(connection):
    """Return the next pickle of a connection. EOFError: the other side is gone."""
    reader = Frame()
    while (wanted := reader.wanted()) > 0:
        part = connection.recv(wanted)
        if not part:
            raise EOFError(f"the other side of {os.getpid()} is gone")
        reader.take(part)
    return reader.value()


def framed(value):
    text = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(text)) + text
