"""A WebSocket client that sends the given frames and parses strictly: an error of the server raises an exception.

Frames are encoded by hand (RFC 6455 section 5.2), so that invalid ones can be sent too.
"""

import ast
import base64
import hashlib
import itertools
import os
import struct
import zlib
from urllib.parse import quote

from support.waiting import wait_until

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

#: RFC 6455 section 1.3.
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

#: The end of a compressed message, which is removed (RFC 7692 section 7.2.1).
FLUSH_TAIL = b"\0\0\xff\xff"

_names = itertools.count()


class Frame:
    def __init__(self, opcode, payload, final, compressed):
        self.opcode = opcode
        self.payload = payload
        self.final = final
        self.compressed = compressed

    def __repr__(self):
        return f"<frame {self.opcode} {self.payload[:200]!r} final={self.final} compressed={self.compressed}>"


def frame(opcode, payload=b"", final=True, rsv=0, mask=b"\x01\x02\x03\x04", length=None):
    """Encodes a client's frame. ``length`` overrides the payload's length; a frame without a mask is only valid from servers."""
    payload = payload.encode() if isinstance(payload, str) else payload
    length = len(payload) if length is None else length
    head = bytes([final << 7 | rsv << 4 | opcode])
    flag = 0x80 if mask else 0
    if length < 126:
        head += bytes([flag | length])
    elif length < 65536:
        head += bytes([flag | 126]) + struct.pack(">H", length)
    else:
        head += bytes([flag | 127]) + struct.pack(">Q", length)
    return head + mask + masked(payload, mask)


def masked(payload, mask):
    if not mask or not payload:
        return payload
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return number.to_bytes(len(payload), "big")


def close_payload(code, reason=""):
    return struct.pack(">H", code) + reason.encode()


def deflated(payload):
    """Compresses a message with permessage-deflate, without context takeover."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return data[: -len(FLUSH_TAIL)]


def inflated(payload):
    return zlib.decompressobj(-15).decompress(payload + FLUSH_TAIL)


def handshake(target="/", headers=(), without=(), key=None, method="GET", version="HTTP/1.1"):
    """Returns the request, and its key. A header of the same name replaces the default one."""
    key = base64.b64encode(os.urandom(16)).decode() if key is None else key
    usual = [
        ("Host", "localhost"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key),
        ("Sec-WebSocket-Version", "13"),
    ]
    given = {name.lower() for name, _ in headers} | {name.lower() for name in without}
    fields = [pair for pair in usual if pair[0].lower() not in given] + list(headers)
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1"), key


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


class WebSocket:
    """A connection after its handshake, or with the response that refused it."""

    def __init__(self, client, target="/", headers=(), early=b"", compression=False, send=None):
        self.client = client
        if compression:
            headers = [*headers, ("Sec-WebSocket-Extensions", "permessage-deflate")]
        request, self.key = handshake(target, headers)
        (send or client.send)(request + early)
        self.compression = compression
        self.response = None
        #: Messages are read; pongs, which may come anywhere between them, are skipped.
        self.skips_pongs = False

    def open(self):
        """Reads the server's response, which must be a valid 101."""
        self.response = self.client.read_head()
        assert self.response.status == 101, self.response
        assert self.response.get("upgrade").lower() == "websocket", self.response
        assert self.response.get("connection").lower() == "upgrade", self.response
        assert self.response.get("sec-websocket-accept") == accept_of(self.key), self.response
        assert self.response.all("content-length") == self.response.all("transfer-encoding") == [], self.response
        return self

    # Sending.

    def send(self, opcode, payload=b"", **options):
        return self.client.send(frame(opcode, payload, **options))

    def send_text(self, text, **options):
        return self.send(TEXT, text, **options)

    # Receiving.

    def read(self):
        """Reads the next frame."""
        first, second = self.client.read_exactly(2)
        length = second & 0x7F
        assert not second & 0x80, "a server's frame is masked (section 5.1)"
        if length == 126:
            (length,) = struct.unpack(">H", self.client.read_exactly(2))
            assert length > 125, "a length in a longer form than needed"
        elif length == 127:
            (length,) = struct.unpack(">Q", self.client.read_exactly(8))
            assert 65535 < length < 1 << 63, "a length in a longer form than needed"
        opcode, rsv = first & 0x0F, first >> 4 & 7
        assert rsv in ((0, 4) if self.compression and opcode in (TEXT, BINARY) else (0,)), f"RSV bits {rsv} of frame {opcode}"
        assert opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG), opcode
        payload = self.client.read_exactly(length)
        if opcode == PONG and self.skips_pongs:
            return self.read()
        return Frame(opcode, payload, bool(first & 0x80), rsv == 4)

    def read_message(self):
        """Reads the next message: a str or bytes. Nothing else may come before it."""
        first = self.read()
        assert first.opcode in (TEXT, BINARY), first
        payload, last = first.payload, first
        while not last.final:
            last = self.read()
            assert last.opcode == CONTINUATION, last
            payload += last.payload
        if first.compressed:
            payload = inflated(payload)
        return payload.decode() if first.opcode == TEXT else payload

    def read_close(self):
        """Reads the next frame, a close frame: ``(code, reason)``, with None for a missing code."""
        last = self.read()
        assert last.opcode == CLOSE, last
        assert len(last.payload) in {0, *range(2, 126)}, last
        if not last.payload:
            return None, ""
        return struct.unpack(">H", last.payload[:2])[0], last.payload[2:].decode()

    def answer_close(self):
        """Reads the server's close frame, echoes it, and waits for the end of the connection."""
        code, reason = self.read_close()
        self.send(CLOSE, b"" if code is None else close_payload(code))
        assert self.client.is_closed(), "something follows a close frame"
        return code, reason

    def close(self, code=1000, reason=""):
        """Closes first; returns the server's close frame."""
        self.send(CLOSE, b"" if code is None else close_payload(code, reason))
        answer = self.read_close()
        assert self.client.is_closed(), "something follows a close frame"
        return answer


class Scripted(WebSocket):
    """A WebSocket whose application does the given steps: ``tests/apps/asgi_socket.py``."""

    def __init__(self, server, *steps, client=None, path="/", name=None, **options):
        self.server = server
        self.name = name or f"script-{next(_names)}"
        target = f"{path}?{self.query(self.name, steps)}"
        super().__init__(client or server.connect(), target, **options)

    @staticmethod
    def query(name, steps):
        """Returns the target that contains the application's steps."""
        return quote(repr((name, list(steps))))

    def seen(self):
        """Returns the application's notes so far."""
        return ast.literal_eval(self.server.get(f"/seen/{self.name}").text)

    def ended(self):
        """The application has ended: returns all earlier notes, and the name of its exception."""
        return wait_until(lambda: self._end(self.seen()), lambda: f"the application has ended: {self.seen()}")

    @staticmethod
    def _end(events):
        return (events[:-1], events[-1][1]) if events and events[-1][0] == "ended" else None

    def wait_for(self, condition, what):
        """Waits until a condition on the application's notes holds."""
        return wait_until(lambda: condition(self.seen()), lambda: f"{what}: {self.seen()[-5:]}")

    def go(self, name):
        """Lets a step ``("wait", name)`` continue."""
        self.server.get(f"/go/{name}")


def received(events):
    """Returns the messages among the notes, without the connect."""
    messages = [event[1] for event in events if event[0] == "received"]
    return [message for message in messages if message["type"] != "websocket.connect"]


def failures(events):
    """Returns ``(kinds, text)`` of the ``send()`` that failed."""
    return [event[1:] for event in events if event[0] == "failed"]
