"""Listeners of channels (``tests/apps/listening_asgi.py`` and ``listening.py``): each is a connection on which a line for each
message comes.
"""

import json
from urllib.parse import quote, urlencode

from support.client import Closed
from support.waiting import wait_until


class Listener:
    """A connection that listens. ``pid`` is the process that serves it."""

    def __init__(self, server, channels="news", **more):
        self.client = server.connect()
        query = urlencode({"channels": channels, **more})
        self.client.send(f"GET /listen?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = self.client.read_head()
        assert (head.status, head.get("transfer-encoding")) == (200, "chunked"), head
        self.text = b""
        self.chunks = self.client.read_chunks()
        # The process listens when it says this.
        self.pid = self.next()["pid"]

    def next(self):
        """Returns what the next line says."""
        while b"\n" not in self.text:
            part = next(self.chunks, None)
            if part is None:
                raise Closed(self.text)
            self.text += part
        line, _, self.text = self.text.partition(b"\n")
        return json.loads(line)

    def take(self, count):
        return [self.next() for _ in range(count)]

    def has_ended(self):
        """Waits for the end of the answer; returns False if another line comes instead."""
        try:
            self.next()
        except Closed:
            return True
        return False

    def close(self):
        self.client.close()


def numbers(count, channel="news", first=0):
    """Returns what a listener gets of ``publish_all``."""
    return [{channel: str(number)} for number in range(first, first + count)]


def ask(server, expression):
    """Returns what an expression is in any worker."""
    return server.get("/?" + quote(expression)).text


def in_each_worker(server, count, without=(), **more):
    """Returns a listener in each of this many workers, by their pids, but for these."""
    found, others = {}, []

    def all_listen():
        listener = Listener(server, **more)
        if listener.pid in found or listener.pid in without:
            others.append(listener)
        else:
            found[listener.pid] = listener
        return len(found) == count

    wait_until(all_listen, lambda: f"a listener in each of {count} workers: {found}", look_seconds=0)
    for other in others:
        other.close()
    return found


def assert_a_slow_listener_is_told_what_it_missed(server, gate):
    """A subscription that is held until the file `gate` exists loses the oldest messages, and another one loses none."""
    slow, quick = Listener(server, hold=gate, most=10), Listener(server)
    assert ask(server, "publish_all('news', 250)") == "250"
    assert quick.take(250) == numbers(250)
    gate.touch()
    assert slow.next() == {"missed": 240, "in_all": 240}
    assert slow.take(10) == numbers(250)[240:]
