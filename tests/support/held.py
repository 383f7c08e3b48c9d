"""Turns the handle of ``tests/apps/held.py``: starts it under each protocol, lets its calls through, and reads its record."""

import json
import os

from support import fastcgi, scgi, uwsgi
from support.waiting import PATIENCE_SECONDS, wait_until

#: Interface -> the lines that load the application.
APPLICATIONS = {"wsgi": "wsgi-file = {apps}/held.py", "asgi": "pythonpath = {apps}\nasgi = {apps}/held_asgi.py"}

#: More than any test has calls, and fewer than a FIFO holds.
GATE_BYTES = 4096

#: Protocol -> the line that has it spoken.
LISTEN = {
    "http": "http-socket = 127.0.0.1:0",
    "uwsgi": "uwsgi-socket = 127.0.0.1:0",
    "fastcgi": "fastcgi-socket = 127.0.0.1:0",
    "scgi": "scgi-socket = 127.0.0.1:0",
}


def get(target, headers=""):
    """The bytes of a request whose connection is kept."""
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


class Request:
    """A request on a connection of its own, sent at once where it has a target; :meth:`finish` reads its answer."""

    def __init__(self, server, protocol, target=None):
        self.protocol = protocol
        self.client = server.connect(server.address(protocol))
        if target is not None:
            self.send(target)

    def send(self, target):
        sent = {
            "http": lambda: get(target, "Connection: close\r\n"),
            "uwsgi": lambda: uwsgi.packet(uwsgi.request_variables(target=target)),
            "fastcgi": lambda: fastcgi.request(target=target),
            "scgi": lambda: scgi.request(target=target),
        }
        self.client.send(sent[self.protocol]())

    def finish(self):
        """The body; anything else than an answer 200 is an error."""
        if self.protocol == "http":
            answer = self.client.read_response()
        elif self.protocol == "uwsgi":
            answer = uwsgi.Answer(self.client.read_to_end())
        elif self.protocol == "fastcgi":
            answer = fastcgi.read_answer(self.client)
        else:
            answer = scgi.Answer(self.client.read_to_end())
        assert answer.status == 200, answer
        return answer.body.decode()


class Held:
    """A server of ``held.py`` or ``held_asgi.py``, and its handle."""

    def __init__(self, serve, configuration="", application="wsgi", protocol="http", environment=None):
        lines = [APPLICATIONS[application], "env = HELD_FOLDER={folder}", configuration]
        self.server = serve.prepare("\n".join(lines), listen=(LISTEN[protocol],), environment=environment)
        self.protocol = protocol
        self.folder = self.server.folder
        self._gates = {}
        self.gate("gate")

    def start(self):
        self.server.start()
        return self

    def gate(self, name):
        """Make a gate before somebody comes to it. The test has both of its ends, so nobody waits for opening it."""
        if name not in self._gates:
            path = self.folder / name
            os.mkfifo(path)
            self._gates[name] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return name

    def let_through(self, gate="gate", calls=1):
        """Let so many calls through that wait at the gate, or will."""
        os.write(self._gates[gate], bytes(calls))

    def hold(self, name):
        """Send a request that is held at a gate of its own, by its name; returned when its call has begun."""
        request = self.send_held(name)
        self.wait_for("begin", name)
        return request

    def send_held(self, name):
        return Request(self.server, self.protocol, f"/held/{self.gate(name)}?{name}")

    def send(self, name, path="/quick"):
        return Request(self.server, self.protocol, f"{path}?{name}")

    def connect(self):
        """A connection of HTTP that has had an answer, and is known to the worker's poll."""
        client = self.server.connect()
        assert client.request(target="/quick?kept").body == b"kept"
        return client

    def open_gates(self):
        """The end of the test: whoever waits goes on, and whoever comes later."""
        for gate in self._gates.values():
            os.write(gate, bytes(GATE_BYTES))

    # The record.

    def events(self):
        """What has happened so far, in order."""
        whole = (self.folder / "record").read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def find(self, event, name):
        """The last event of this kind and name, or None."""
        found = [seen for seen in self.events() if (seen["event"], seen["name"]) == (event, name)]
        return found[-1] if found else None

    def wait_for(self, event, name):
        return wait_until(lambda: self.find(event, name), lambda: f"the {event} of {name}: {self.events()}")

    def begun(self):
        """Names of the calls that have begun, in order."""
        return [seen["name"] for seen in self.events() if seen["event"] == "begin"]

    def ended(self):
        """Names of the calls that have ended, in order."""
        return [seen["name"] for seen in self.events() if seen["event"] == "end"]

    def wait_until_ended(self, count):
        return wait_until(lambda: len(self.ended()) >= count, lambda: f"{count} calls have ended: {self.events()}")

    def in_progress(self):
        """``{name: pid}`` of the calls that have begun and not ended."""
        going = {}
        for seen in self.events():
            if seen["event"] == "begin":
                going[seen["name"]] = seen["pid"]
            else:
                del going[seen["name"]]
        return going

    def wait_for_progress(self, count, seconds=PATIENCE_SECONDS):
        """Wait until so many calls are in progress; returns them."""

        def reached():
            going = self.in_progress()
            return (going,) if len(going) == count else None

        return wait_until(reached, lambda: f"{count} calls are in progress: {self.in_progress()}", seconds)[0]
