"""Controls ``tests/apps/held.py``: starts it with each protocol, releases its calls, and reads its record."""

import json
import os

from support import fastcgi, scgi, uwsgi
from support.waiting import TIMEOUT_SECONDS, wait_until

#: Interface -> the lines that load the application.
APPLICATIONS = {
    "wsgi": "wsgi-file = {apps}/held.py",
    "asgi": "pythonpath = {apps}\nasgi = {apps}/held_asgi.py",
    "greenlets": "pythonpath = {apps}\nmodule = held_waiting:greenlets",
    "loop": "pythonpath = {apps}\nasgi = held_waiting:asgi",
}

#: More calls than any test makes, and fewer bytes than a FIFO holds.
GATE_BYTES = 4096

#: Protocol -> the line that selects it.
LISTEN = {
    "http": "http-socket = 127.0.0.1:0",
    "uwsgi": "uwsgi-socket = 127.0.0.1:0",
    "fastcgi": "fastcgi-socket = 127.0.0.1:0",
    "scgi": "scgi-socket = 127.0.0.1:0",
}


def get(target, headers=""):
    """Returns the bytes of a request that keeps its connection."""
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


class Request:
    """A request on a new connection, sent immediately if a target is given; :meth:`finish` reads its response."""

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

    def answer(self):
        """Returns the response."""
        if self.protocol == "http":
            return self.client.read_response()
        if self.protocol == "uwsgi":
            return uwsgi.Answer(self.client.read_to_end())
        if self.protocol == "fastcgi":
            return fastcgi.read_answer(self.client)
        return scgi.Answer(self.client.read_to_end())

    def finish(self):
        """Returns the body; any status other than 200 is an error."""
        answer = self.answer()
        assert answer.status == 200, answer
        return answer.body.decode()


class Held:
    """A server of ``held.py`` or ``held_asgi.py``, and the control of its calls."""

    def __init__(self, serve, configuration="", application="wsgi", protocol="http", environment=None):
        lines = [APPLICATIONS[application], "env = HELD_DIRECTORY={directory}", configuration]
        self.server = serve.prepare("\n".join(lines), listen=(LISTEN[protocol],), environment=environment)
        self.protocol = protocol
        self.directory = self.server.directory
        self._gates = {}
        self.gate("gate")

    def start(self):
        self.server.start()
        return self

    def gate(self, name):
        """Creates a gate before the first call waits at it. The test keeps both ends open, so that opening it does not
        block a process.
        """
        if name not in self._gates:
            path = self.directory / name
            os.mkfifo(path)
            self._gates[name] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return name

    def let_through(self, gate="gate", calls=1):
        """Releases ``count`` calls that wait at the gate, now or later."""
        os.write(self._gates[gate], bytes(calls))

    def hold(self, name):
        """Sends a request that is held at a separate gate of the same name; returns when its call has begun."""
        request = self.send_held(name)
        self.wait_for("begin", name)
        return request

    def send_held(self, name):
        return Request(self.server, self.protocol, f"/held/{self.gate(name)}?{name}")

    def send(self, name, path="/quick"):
        return Request(self.server, self.protocol, f"{path}?{name}")

    def connect(self):
        """A connection that has had a response and is registered in the worker's poll."""
        client = self.server.connect()
        assert client.request(target="/quick?kept").body == b"kept"
        return client

    def open_gates(self):
        """The end of the test: releases all waiting calls, and later ones."""
        for gate in self._gates.values():
            os.write(gate, bytes(GATE_BYTES))

    # The record.

    def events(self):
        """Returns all events so far, in order."""
        whole = (self.directory / "record").read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def find(self, event, name):
        """Returns the last event of this kind and name, or None."""
        found = [seen for seen in self.events() if (seen["event"], seen["name"]) == (event, name)]
        return found[-1] if found else None

    def wait_for(self, event, name):
        def described():
            return f"the {event} of {name}: {self.events()}; the log:\n{self.server.log}"

        return wait_until(lambda: self.find(event, name), described)

    def begun(self):
        """Returns the names of the calls that have begun, in order."""
        return [seen["name"] for seen in self.events() if seen["event"] == "begin"]

    def ended(self):
        """Returns the names of the calls that have ended, in order."""
        return [seen["name"] for seen in self.events() if seen["event"] == "end"]

    def wait_until_ended(self, count):
        return wait_until(lambda: len(self.ended()) >= count, lambda: f"{count} calls have ended: {self.events()}")

    def in_progress(self):
        """Returns ``{name: pid}`` of the calls that have begun and not ended."""
        going = {}
        for seen in self.events():
            if seen["event"] == "begin":
                going[seen["name"]] = seen["pid"]
            else:
                del going[seen["name"]]
        return going

    def wait_for_progress(self, count, seconds=TIMEOUT_SECONDS):
        """Waits until ``count`` calls are in progress; returns them."""

        def reached():
            going = self.in_progress()
            return (going,) if len(going) == count else None

        return wait_until(reached, lambda: f"{count} calls are in progress: {self.in_progress()}", seconds)[0]
