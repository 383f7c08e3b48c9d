"""An instance that tests pause: the requests that its application has begun, and a client that detects loop iterations."""

import contextlib
import json

from support.client import TIMEOUT_SECONDS, Client
from support.http2 import Http2
from support.server import APPS
from support.waiting import wait_until

#: The application: module, and options.
KINDS = {"WSGI": ("pausing:wsgi", ()), "threads": ("pausing:wsgi", ("--threads", "4")), "ASGI": ("pausing:asgi", ())}


class Pausable:
    """An instance of one worker that also serves HTTP/2: the answer to a PING shows that everything before it was read."""

    def __init__(self, start, call, directory, kind="WSGI", options=()):
        self.begun_file = directory / "begun"
        self.begun_file.touch()
        module, more = KINDS[kind]
        self.call = call
        more = ("--http2", "h2c", "--pythonpath", APPS, *more)
        self.instance = start(*more, *options, module=module, environment={"BEGUN": str(self.begun_file)})
        self.observer = Http2(self.connect())
        self.observer.read_settings()

    def connect(self):
        return self.instance.connect()

    def begun(self):
        """Returns the paths of the requests that the application has begun."""
        return self.begun_file.read_text().split()

    def state(self):
        status, said = self.call("status", "--json", self.instance.pid)
        assert status == 0, said
        return json.loads(said)

    def worker_states(self):
        return [worker["state"] for worker in self.state()["workers"]]

    def wait_until_paused(self, workers=1):
        """Waits until every worker has received the order."""
        wait_until(lambda: self.worker_states() == ["paused"] * workers, lambda: f"the workers pause: {self.worker_states()}")
        assert self.state()["phase"] == "paused"

    def pause(self, workers=1):
        status, said = self.call("pause", self.instance.pid)
        assert (status, said) == (0, f"master {self.instance.pid}: pausing: new requests wait until it is resumed\n")
        self.wait_until_paused(workers)

    def resume(self):
        assert self.call("resume", self.instance.pid)[0] == 0

    @contextlib.contextmanager
    def with_two_who_wait(self):
        """A pause in which one client sends a request on a kept connection and one on a new one. Both are answered after the
        block.
        """
        kept = self.connect()
        assert kept.request("GET", "/before").text == "/before"
        self.pause()
        ask(kept, "/kept")
        with self.connect() as fresh:
            ask(fresh, "/fresh", "Connection: close\r\n")
            yield
            assert kept.read_response().text == "/kept"
            assert fresh.read_response().text == "/fresh"

    def turn(self):
        """Waits until the worker has processed everything sent so far."""
        self.observer.ping()


def ask(client: Client, path, more=""):
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())


def has_answer(client: Client):
    """Returns whether anything has arrived, either a response or the end of the connection."""
    client.socket.setblocking(False)
    try:
        client.buffer += client.socket.recv(65536) or b"(the end)"
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(TIMEOUT_SECONDS)
    return True
