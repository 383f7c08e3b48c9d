"""Follows many streams of server-sent events: `stream_client.py PORT PATH STREAMS WARM EVENTS SECONDS`.

Runs as a separate process, on the client's CPU. It prints one line of JSON when every stream has received WARM events, and
another when every stream has received all EVENTS, after SECONDS, or on an error; each event is compared with the one that the
application should have sent. Then it holds the streams open until its standard input ends.
"""

import json
import select
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "applications"))

from asgi_stream import event

HOST = "127.0.0.1"
CONNECT_SECONDS = 10.0
READ_BYTES = 65536
MAX_PENDING_BYTES = 1 << 20
TICK_SECONDS = 0.5


class Broken(Exception):
    """A stream is wrong; the text says in what way."""


class Stream:
    """One response: its head, its chunks, and the received events."""

    def __init__(self, port, path):
        self.connection = socket.create_connection((HOST, port), timeout=CONNECT_SECONDS)
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n".encode())
        self.connection.setblocking(False)
        self.has_head = False
        self.pending = b""
        self.text = b""
        self.events = 0

    def read(self, expected):
        """Parses received bytes. Raises Broken."""
        try:
            data = self.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise Broken(f"a stream was lost after {self.events} events: {error}") from None
        if not data:
            raise Broken(f"a stream ended after {self.events} events")
        self.pending += data
        if not self.has_head:
            self._take_head()
        if self.has_head:
            self._take_chunks()
            self._take_events(expected)
        if len(self.pending) + len(self.text) > MAX_PENDING_BYTES:
            raise Broken("a stream sends what are not chunks of events")

    def _take_head(self):
        head, end, rest = self.pending.partition(b"\r\n\r\n")
        if not end:
            return
        lines = head.lower().split(b"\r\n")
        if not lines[0].startswith(b"http/1.1 200"):
            raise Broken(f"an answer begins with {lines[0].decode('latin-1')}")
        if b"transfer-encoding: chunked" not in lines:
            raise Broken("an answer does not come in chunks")
        self.has_head, self.pending = True, rest

    def _take_chunks(self):
        """Moves the payload of whole chunks from `pending` to `text`."""
        while True:
            line, end, rest = self.pending.partition(b"\r\n")
            if not end:
                return
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise Broken(f"{line[:20]!r} is not a chunk's size") from None
            if size == 0:
                raise Broken(f"a stream ended after {self.events} events")
            if len(rest) < size + 2:
                return
            self.text += rest[:size]
            self.pending = rest[size + 2 :]

    def _take_events(self, expected):
        while self.events < len(expected) and self.text.startswith(expected[self.events]):
            self.text = self.text[len(expected[self.events]) :]
            self.events += 1
        right = expected[self.events] if self.events < len(expected) else b""
        if not right.startswith(self.text):
            raise Broken(f"after {self.events} events comes {self.text[:40]!r}")


class Followed:
    """All streams, and the number of those that have received enough events."""

    def __init__(self, port, path, count, events):
        self.expected = [event(number) for number in range(events)]
        self.poller = select.epoll()
        self.streams = {}
        self.began = time.monotonic()
        for _ in range(count):
            stream = Stream(port, path)
            self.streams[stream.connection.fileno()] = stream
            self.poller.register(stream.connection, select.EPOLLIN)

    def until(self, least, deadline):
        """Reads until every stream has received this many events, or until the time is over. Returns the report."""
        behind = {descriptor for descriptor, stream in self.streams.items() if stream.events < least}
        problem = None
        try:
            while behind and time.monotonic() < deadline:
                for descriptor, _ in self.poller.poll(TICK_SECONDS):
                    stream = self.streams[descriptor]
                    stream.read(self.expected)
                    if stream.events >= least:
                        behind.discard(descriptor)
        except Broken as error:
            problem = str(error)
        if behind and problem is None:
            problem = f"{len(behind)} of {len(self.streams)} streams were behind when the time was over"
        delivered = sum(stream.events for stream in self.streams.values())
        return {"delivered": delivered, "seconds": time.monotonic() - self.began, "problem": problem}


def say(line):
    print(json.dumps(line), flush=True)


def main():
    port, path = int(sys.argv[1]), sys.argv[2]
    count, warm, events, seconds = (int(word) for word in sys.argv[3:])
    deadline = time.monotonic() + seconds
    try:
        followed = Followed(port, path, count, events)
    except OSError as error:
        say({"delivered": 0, "seconds": 0, "problem": f"the streams could not be opened: {error}"})
        return
    said = followed.until(warm, deadline)
    say(said)
    if said["problem"] is None:
        say(followed.until(events, deadline))
    sys.stdin.read()


if __name__ == "__main__":
    main()
