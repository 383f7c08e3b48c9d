"""An editor's half of the Debug Adapter Protocol, for debugpy: it sets breakpoints and attaches to each reported process.

https://microsoft.github.io/debug-adapter-protocol/specification
"""

import contextlib
import json
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from support.waiting import TIMEOUT_SECONDS, wait_until


def connected(port):
    """Waits until an adapter listens on the port, and connects to it."""

    def connect():
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)

    return wait_until(connect, "the adapter listens")


class Session:
    """A session with one process. ``breakpoints`` are pairs of a path and the numbers of lines."""

    def __init__(self, port, kind, configuration, breakpoints):
        self.breakpoints = breakpoints
        self._socket = connected(port)
        self._number = 0
        self._answers = {}
        self._changed = threading.Condition()
        self._events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ask("initialize", adapterID="debugpy", pathFormat="path")
        begun = self._send(kind, **configuration)
        self.event("initialized")
        for path, lines in breakpoints:
            self.ask("setBreakpoints", source={"path": str(path)}, breakpoints=[{"line": line} for line in lines])
        self.ask("configurationDone")
        self._answer(begun)

    def ask(self, command, **arguments):
        return self._answer(self._send(command, **arguments)).get("body")

    def event(self, name):
        """Waits for an event of this name and returns its body."""
        while True:
            message = self._events.get(timeout=TIMEOUT_SECONDS)
            assert message is not None, f"the session has ended instead of {name}"
            if message["event"] == name:
                return message.get("body")

    def has_event(self, name):
        """Returns whether an event of this name has arrived that :meth:`event` has not returned yet."""
        return any(message is not None and message["event"] == name for message in list(self._events.queue))

    def subprocess(self):
        """Waits for a process to debug and attaches to it."""
        told = self.event("debugpyAttach")
        return Session(told["connect"]["port"], told.pop("request"), told, self.breakpoints)

    def stop(self):
        """Waits until a breakpoint has stopped a thread. Returns the thread and the stopped line."""
        thread = self.event("stopped")["threadId"]
        return thread, self.ask("stackTrace", threadId=thread)["stackFrames"][0]["line"]

    def pass_breakpoint(self):
        """Waits until a breakpoint has stopped a thread and lets it continue. Returns the line."""
        thread, line = self.stop()
        self.ask("continue", threadId=thread)
        return line

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, command, **arguments):
        self._number += 1
        message = json.dumps({"seq": self._number, "type": "request", "command": command, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(message), message))
        return self._number

    def _answer(self, number):
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, TIMEOUT_SECONDS), "the adapter has not answered"
        answer = self._answers[number]
        assert answer["success"], answer
        return answer

    def _read(self):
        with contextlib.suppress(OSError, ValueError), self._socket.makefile("rb") as file:
            while True:
                fields = dict(line.decode().split(": ") for line in iter(lambda: file.readline().strip(), b""))
                if not fields:
                    break
                message = json.loads(file.read(int(fields["Content-Length"])))
                if message["type"] == "response":
                    with self._changed:
                        self._answers[message["request_seq"]] = message
                        self._changed.notify_all()
                else:
                    self._events.put(message)
        self._events.put(None)


@contextlib.contextmanager
def launched(port, configuration, breakpoints, environment):
    """Lets an adapter launch a program, as an editor's "Run and Debug" does. Yields the session."""
    directory = tempfile.TemporaryDirectory()
    endpoints = Path(directory.name) / "endpoints.json"
    adapter = subprocess.Popen(
        [sys.executable, "-m", "debugpy.adapter", "--port", str(port)],
        env={**environment, "DEBUGPY_ADAPTER_ENDPOINTS": str(endpoints)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    session = None
    try:
        # debugpy 1.8.22 listens before it can serve, and then writes the file: a client that comes too early does not get an
        # answer.
        wait_until(endpoints.exists, "the adapter serves")
        shared = {"console": "internalConsole", "subProcess": True, "python": [sys.executable], "env": environment}
        session = Session(port, "launch", {**shared, **configuration}, breakpoints)
        yield session
        session.ask("disconnect", terminateDebuggee=True)
    finally:
        if session is not None:
            session.close()
        adapter.kill()
        adapter.wait()
        directory.cleanup()
