"""A WebSocket on an HTTP/2 stream (RFC 8441): the frames of ``support.websocket`` in the DATA frames of ``support.http2``."""

import itertools

from support.client import Closed
from support.websocket import Scripted

_names = itertools.count()


class Tunnel:
    """One stream with the interface of a client's socket."""

    def __init__(self, connection, answer):
        self.connection = connection
        self.answer = answer
        self._taken = 0

    def send(self, data):
        return self.connection.send_body(self.answer, data, ends=False)

    def end_sending(self):
        return self.connection.send_body(self.answer, b"")

    def reset(self):
        self.connection.reset(self.answer)

    def close(self):
        self.connection.close()

    def read_exactly(self, count):
        self.connection.read_until(lambda: self._left() >= count or self.answer.is_over, f"{count} bytes of the stream are there")
        if self._left() < count:
            raise Closed(b"".join(self.answer.parts)[self._taken :])
        data = b"".join(self.answer.parts)[self._taken : self._taken + count]
        # Consumed data is dropped, so that long streams stay small.
        self.answer.parts = [b"".join(self.answer.parts)[self._taken + count :]]
        self._taken = 0
        return data

    def _left(self):
        return self.answer.received - self._taken

    def is_closed(self):
        """Waits for END_STREAM; returns False if something else comes."""
        self.connection.read_until(lambda: self._left() or self.answer.is_over, "the stream ends")
        return not self._left() and self.answer.is_whole


class StreamSocket(Scripted):
    """A WebSocket on a stream of ``connection``, whose application does the given steps."""

    def __init__(self, connection, server, *steps, path="/", name=None, headers=(), compression=False, fields=None):
        self.server = server
        self.name = name or f"stream-{next(_names)}"
        self.connection = connection
        self.compression = compression
        self.response = None
        self.skips_pongs = False
        if compression:
            headers = [*headers, ("sec-websocket-extensions", "permessage-deflate")]
        target = f"{path}?{self.query(self.name, steps)}"
        self.answer = connection.begin_with(
            fields or [*connect(target, connection.scheme), *headers], ends=False, method="CONNECT"
        )
        self.client = Tunnel(connection, self.answer)

    def open(self):
        """Reads the server's response, which must be a valid 200."""
        self.refused()
        assert self.response.status == 200, self.response
        for name in ("sec-websocket-accept", "content-length"):
            assert self.response.all(name) == [], self.response
        assert not self.answer.is_whole, "the stream has ended with its head"
        return self

    def refused(self):
        """Reads the head of the response, whatever it is."""
        self.connection.read_until(lambda: self.answer.status is not None or self.answer.is_over, "the handshake is answered")
        self.response = self.answer
        return self.answer


def connect(target, scheme="http", protocol="websocket"):
    """Returns the header fields of a handshake: an extended CONNECT (RFC 8441 section 4)."""
    fields = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", scheme),
        (":path", target),
        (":authority", "localhost"),
    ]
    return [*fields, ("sec-websocket-version", "13")]
