"""An HTTP/2 client that sends the given frames and parses strictly: an error of the server raises an exception.

Frames are encoded by hand (RFC 9113 section 4.1), so that invalid ones can be sent too. The ``hpack`` package encodes header
blocks.
"""

import base64
import re
import struct
import time

import hpack

from support.client import TIMEOUT_SECONDS, Closed, Response
from support.tls import Authority, context_of

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
PRIORITY_UPDATE = 0x10

#: These belong to no stream.
OF_THE_CONNECTION = (SETTINGS, PING, GOAWAY)

END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(1, 7)
ENABLE_CONNECT_PROTOCOL = 8

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR = range(7)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED = range(7, 14)

#: Initial settings of both sides (RFC 9113 section 6.5.2), in bytes.
USUAL_WINDOW_BYTES = 65535
USUAL_FRAME_BYTES = 16384
MAX_WINDOW_BYTES = (1 << 31) - 1

#: Header fields that are specific to HTTP/1 connections (RFC 9113 section 8.2.2).
CONNECTION_FIELDS = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")

#: A field's value: no surrounding blanks, and no delimiters (section 8.2.1).
WELL_FORMED = re.compile(r"([^ \t\r\n\0]([^\r\n\0]*[^ \t\r\n\0])?)?")

#: Maximum size of a response's header list, in bytes: above any response of the tests.
HEADER_LIST_BYTES = 1 << 20


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.payload = payload

    def __repr__(self):
        return f"<frame {self.kind} flags={self.flags:#x} stream={self.stream} {self.payload[:60]!r}>"

    @property
    def content(self):
        """Returns the payload without padding and priority."""
        payload = self.payload
        if self.kind in (DATA, HEADERS) and self.flags & PADDED:
            assert payload[0] < len(payload), f"the padding is as long as its frame: {self}"
            payload = payload[1 : len(payload) - payload[0]]
        return payload[5:] if self.kind == HEADERS and self.flags & HAS_PRIORITY else payload


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    """Encodes a frame. ``length`` overrides the payload's length."""
    length = len(payload) if length is None else length
    return struct.pack(">I", length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(values=(), flags=0):
    """``values`` is a dict, or pairs if a setting is to occur twice."""
    pairs = values.items() if isinstance(values, dict) else values
    return frame(SETTINGS, flags, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def rst_stream(stream, code=CANCEL):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway(last=0, code=NO_ERROR, text=b""):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text)


def priority_update(stream, text):
    """RFC 9218 section 7.1."""
    return frame(PRIORITY_UPDATE, 0, 0, struct.pack(">I", stream) + text)


def pseudo(method="GET", target="/", authority="localhost", scheme="http"):
    """Returns the pseudo-header fields of a request."""
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", target)]


class Reset(Exception):
    """The server has reset the stream."""

    def __init__(self, answer):
        super().__init__(f"reset with code {answer.reset}: {answer!r}")
        self.code = answer.reset
        self.answer = answer


class Ended(Exception):
    """The connection has ended before the expected data."""

    def __init__(self, went_away, left):
        super().__init__(f"the connection has ended; GOAWAY (last stream, code): {went_away}; {left}")
        self.went_away = went_away


class Answer(Response):
    """The received part of a stream's response."""

    def __init__(self, stream, method="GET"):
        super().__init__(None, "", [])
        self.stream = stream
        self.method = method
        #: Preceding 1xx responses.
        self.interim = []
        self.trailers = None
        #: The content of each DATA frame.
        self.parts = []
        #: The code of a RST_STREAM.
        self.reset = None
        #: Whether END_STREAM was received.
        self.is_whole = False
        #: We have reset it ourselves: frames still in transit are dropped.
        self.is_left = False

    @property
    def is_over(self):
        return self.is_whole or self.reset is not None

    @property
    def received(self):
        """Returns the bytes of the body so far."""
        return sum(map(len, self.parts))

    def take_head(self, fields, ends):
        names = [name for name, _ in fields]
        assert not self.is_whole, f"stream {self.stream} had ended: {fields}"
        if self.status is not None:
            assert ends, f"trailers without END_STREAM: {fields}"
            assert not any(name.startswith(":") for name in names), f"trailers with pseudo-header fields: {fields}"
            self.trailers = fields
        else:
            assert [name for name in names if name.startswith(":")] == [":status"], f"other pseudo-header fields: {fields}"
            assert names[0] == ":status", f"a pseudo-header field behind others: {fields}"
            status = int(fields[0][1])
            if status < 200:
                assert (ends, status == 101) == (False, False), f"an interim answer that is none: {fields}"
                self.interim.append((status, fields[1:]))
                return
            self.status, self.headers = status, fields[1:]
        if ends:
            self.end()

    def take_data(self, data, ends):
        assert self.status is not None, "DATA before HEADERS"
        assert not self.is_whole, f"DATA after the end of stream {self.stream}"
        self.parts.append(data)
        if ends:
            self.end()

    def end(self):
        self.is_whole = True
        self.body = b"".join(self.parts)
        length = self.get("content-length")
        if self.method == "HEAD" or self.status in (204, 304):
            assert not self.body, f"a body where there is none: {self}"
        elif length is not None:
            assert len(self.body) == int(length), f"Content-Length is wrong: {self}"


class Http2:
    """An HTTP/2 connection over ``client``, which has a socket.

    ``values`` are our settings. Received frames are acknowledged as required, and windows are updated immediately while
    ``gives_back``.
    """

    def __init__(self, client, values=None, preface=PREFACE, gives_back=True):
        self.client = client
        self.values = {ENABLE_PUSH: 0, **(values or {})}
        self.gives_back = gives_back
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder(max_header_list_size=HEADER_LIST_BYTES)
        self.decoder.max_allowed_table_size = self.values.get(HEADER_TABLE_SIZE, 4096)
        self.scheme = "http"
        self.answers = {}
        self.next_stream = 1
        #: The server's settings, from its first SETTINGS frame on.
        self.server_settings = None
        self.settings_acknowledged = 0
        self.pings = []
        #: ``(last stream, code)`` of each GOAWAY, and the debug data of the last one.
        self.went_away = []
        self.farewell = b""
        #: Flow-control windows for sending and for receiving: stream 0 is the connection.
        self.send_windows = {0: USUAL_WINDOW_BYTES}
        self.receive_windows = {0: USUAL_WINDOW_BYTES}
        self.send(preface + settings(self.values))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.client.close()

    # Sending.

    def send(self, data):
        """Sends raw bytes."""
        return self.client.send(data)

    def block(self, fields):
        """Encodes a header block. Its strings may contain invalid characters."""
        return self.encoder.encode([(name.encode(), value.encode("latin-1")) for name, value in fields])

    def expect(self, stream, method="GET"):
        """Registers this stream as one with a response to read."""
        self.next_stream = max(self.next_stream, stream + 2)
        self.send_windows.setdefault(stream, (self.server_settings or {}).get(INITIAL_WINDOW_SIZE, USUAL_WINDOW_BYTES))
        self.receive_windows.setdefault(stream, self.values.get(INITIAL_WINDOW_SIZE, USUAL_WINDOW_BYTES))
        return self.answers.setdefault(stream, Answer(stream, method))

    def heads(self, stream, fields, ends=True, most=USUAL_FRAME_BYTES):
        """Returns the frames of a header list, no longer than ``most`` bytes each."""
        block = self.block(fields)
        pieces = [block[place : place + most] for place in range(0, len(block), most)] or [b""]
        wire = b""
        for number, piece in enumerate(pieces):
            flags = END_HEADERS if number == len(pieces) - 1 else 0
            wire += frame(CONTINUATION, flags, stream, piece) if number else frame(HEADERS, flags | ends, stream, piece)
        return wire

    def begin(self, method="GET", target="/", headers=(), ends=True, **more):
        """Sends a request's head; :meth:`finish` reads its response."""
        fields = [*pseudo(method, target, scheme=more.pop("scheme", self.scheme), **more), *headers]
        return self.begin_with(fields, ends, method)

    def begin_with(self, fields, ends=True, method="GET"):
        stream = self.next_stream
        answer = self.expect(stream, method)
        self.send(self.heads(stream, fields, ends))
        return answer

    def send_body(self, answer, data, ends=True):
        """Sends DATA frames as far as the server's windows allow. An early response does not stop it; a reset does."""
        data = memoryview(data)
        while len(data) or ends:
            room = min(self.send_windows[0], self.send_windows[answer.stream], USUAL_FRAME_BYTES)
            if room <= 0 and len(data):
                self.read()
                if answer.is_over:
                    return False
                continue
            part, data = data[:room], data[room:]
            last = ends and not len(data)
            self.send_data(answer, part, last)
            if last:
                return True
        return True

    def send_data(self, answer, data=b"", ends=False):
        """Sends one DATA frame, whatever the windows are."""
        self.send_windows[0] -= len(data)
        self.send_windows[answer.stream] -= len(data)
        return self.send(frame(DATA, END_STREAM if ends else 0, answer.stream, bytes(data)))

    def send_trailers(self, answer, fields):
        return self.send(self.heads(answer.stream, fields))

    def open_window(self, stream, increment):
        """Increases a window of the server."""
        if stream in self.receive_windows:
            self.receive_windows[stream] += increment
        return self.send(window_update(stream, increment))

    def reset(self, answer, code=CANCEL):
        answer.is_left = True
        return self.send(rst_stream(answer.stream, code))

    def request(self, method="GET", target="/", headers=(), body=None, **more):
        """Sends a well-formed request and reads its whole response."""
        fields = list(headers) if body is None else [*headers, ("content-length", str(len(body)))]
        answer = self.begin(method, target, fields, ends=body is None, **more)
        if body is not None:
            self.send_body(answer, body)
        return self.finish(answer)

    # Receiving.

    def finish(self, *answers):
        """Reads until these responses have ended; returns the first one."""
        self.read_until(lambda: all(answer.is_over for answer in answers), lambda: f"these answers end: {answers}")
        for answer in answers:
            if answer.reset is not None and not answer.is_whole:
                raise Reset(answer)
        return answers[0] if answers else None

    def read_reset(self, answer):
        """Returns the code with which the server resets a stream."""
        self.read_until(lambda: answer.reset is not None, lambda: f"the stream is reset: {answer}")
        return answer.reset

    def read_until(self, condition, what, seconds=TIMEOUT_SECONDS):
        """Read frames until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what() if callable(what) else what}"
            self.read()

    def ping(self, text=b"are you?"):
        """Sends a PING and reads its acknowledgment: the server has processed everything sent before."""
        count = len(self.pings)
        self.send(frame(PING, 0, 0, text))
        self.read_until(lambda: text in self.pings[count:], "the PING is answered")
        return self

    def read_settings(self):
        """Returns the server's settings; ours are acknowledged."""
        self.read_until(lambda: self.settings_acknowledged and self.server_settings is not None, "settings are exchanged")
        return self.server_settings

    def read_end(self):
        """Reads up to the end of the connection. Returns the code of the GOAWAY before it, or None."""
        while True:
            try:
                self.read()
            except Ended:
                return self.went_away[-1][1] if self.went_away else None

    def read(self):
        """Reads the next frame and handles it."""
        read = self._read_frame()
        if self.server_settings is None:
            assert (read.kind, read.flags) == (SETTINGS, 0), f"the server's preface is SETTINGS (section 3.4), and not {read}"
            self.server_settings = {}
        if read.kind != WINDOW_UPDATE:
            assert (read.stream == 0) == (read.kind in OF_THE_CONNECTION), f"a frame on the wrong stream: {read}"
        takers = {
            DATA: self._take_data,
            HEADERS: self._take_headers,
            RST_STREAM: self._take_reset,
            SETTINGS: self._take_settings,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window_update,
        }
        assert read.kind in takers, f"a frame that a server does not send: {read}"
        takers[read.kind](read)
        return read

    def _read_frame(self):
        try:
            head = self.client.read_exactly(9)
            length = int.from_bytes(head[:3], "big")
            assert length <= self.values.get(MAX_FRAME_SIZE, USUAL_FRAME_BYTES), f"a frame of {length} bytes"
            payload = self.client.read_exactly(length)
        except Closed as closed:
            if closed.data:
                raise AssertionError(f"the connection ends within a frame: {closed}") from None
            raise Ended(self.went_away, [answer for answer in self.answers.values() if not answer.is_over]) from None
        return Frame(head[3], head[4], int.from_bytes(head[5:], "big") & MAX_WINDOW_BYTES, payload)

    def _take_headers(self, read):
        block, last = read.content, read
        while not last.flags & END_HEADERS:
            last = self._read_frame()
            assert (last.kind, last.stream) == (CONTINUATION, read.stream), f"{last} within the header block of {read}"
            block += last.payload
        fields = [tuple(part.decode("latin-1") for part in pair) for pair in self.decoder.decode(block, raw=True)]
        for name, value in fields:
            assert name == name.lower(), f"a name in upper case: {name}"
            assert name not in CONNECTION_FIELDS, f"a field that HTTP/2 does not have: {name}: {value}"
            assert WELL_FORMED.fullmatch(value), f"a malformed value: {name}: {value!r}"
        answer = self._answer(read)
        if not answer.is_left:
            answer.take_head(fields, bool(read.flags & END_STREAM))

    def _take_data(self, read):
        answer = self._answer(read)
        for stream in (0, read.stream):
            self.receive_windows[stream] -= len(read.payload)
            assert self.receive_windows[stream] >= 0, f"more than the window of stream {stream} takes: {read}"
        if not answer.is_left:
            answer.take_data(read.content, bool(read.flags & END_STREAM))
        if self.gives_back and read.payload:
            self.open_window(0, len(read.payload))
            if not answer.is_over:
                self.open_window(read.stream, len(read.payload))

    def _take_reset(self, read):
        answer = self._answer(read)
        assert len(read.payload) == 4, read
        (answer.reset,) = struct.unpack(">I", read.payload)
        assert not answer.is_whole or answer.is_left or answer.reset == NO_ERROR, f"an answer that was whole is reset: {answer}"

    def _answer(self, read):
        assert read.stream in self.answers, f"a frame on a stream that we have not opened: {read}"
        answer = self.answers[read.stream]
        assert answer.reset is None, f"a frame after RST_STREAM: {read}"
        return answer

    def _take_settings(self, read):
        if read.flags & ACK:
            assert not read.payload, read
            self.settings_acknowledged += 1
            return
        assert len(read.payload) % 6 == 0, read
        for name, value in struct.iter_unpack(">HI", read.payload):
            if name == INITIAL_WINDOW_SIZE:
                change = value - self.server_settings.get(name, USUAL_WINDOW_BYTES)
                self.send_windows = {stream: size + change if stream else size for stream, size in self.send_windows.items()}
            if name == HEADER_TABLE_SIZE:
                self.encoder.header_table_size = min(value, 4096)
            self.server_settings[name] = value
        self.send(settings((), ACK))

    def _take_ping(self, read):
        assert len(read.payload) == 8, read
        if read.flags & ACK:
            self.pings.append(read.payload)
        else:
            self.send(frame(PING, ACK, 0, read.payload))

    def _take_goaway(self, read):
        assert len(read.payload) >= 8, read
        last, code = struct.unpack(">II", read.payload[:8])
        before = self.went_away[-1][0] if self.went_away else last
        assert last <= before, f"a GOAWAY may not name a higher stream: {last} after {before}"
        self.went_away.append((last, code))
        self.farewell = read.payload[8:]

    def _take_window_update(self, read):
        (increment,) = struct.unpack(">I", read.payload)
        assert 0 < increment <= MAX_WINDOW_BYTES, read
        if read.stream in self.send_windows:
            self.send_windows[read.stream] += increment
            assert self.send_windows[read.stream] <= MAX_WINDOW_BYTES, f"the window of stream {read.stream} overflows"


def upgraded(client, method="GET", target="/", headers=(), body=b"", values=None, **more):
    """Upgrades from HTTP/1 (RFC 7540 section 3.2). Returns ``(connection, response to the request)``."""
    payload = settings(values or {})[9:]
    coded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    fields = [("Host", "localhost"), ("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", coded)]
    fields += [*headers, *([("Content-Length", str(len(body)))] if body else [])]
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
    client.send(head.encode("latin-1") + body)
    switched = client.read_head()
    assert (switched.status, switched.get("upgrade")) == (101, "h2c"), switched
    connection = Http2(client, values, **more)
    return connection, connection.expect(1, method)


def secured(client, context, name="localhost", protocol="h2"):
    """Returns the client after the TLS handshake in which both sides have negotiated this protocol."""
    client.socket = context.wrap_socket(client.socket, server_hostname=name)
    assert client.socket.selected_alpn_protocol() == protocol
    return client


class Both:
    """A server at two sockets: HTTP/2 without TLS at one, and over TLS at the other.

    ``serve`` starts it from a configuration; certificates are created in ``directory``.
    """

    def __init__(self, serve, directory, configuration):
        self.authority = Authority(directory / "certificates")
        shown = self.authority.server()
        self.context = context_of(self.authority, alpn=["h2"])
        listen = ("http-socket = 127.0.0.1:0", f"https = 127.0.0.1:0,{shown.chain},{shown.key}", "http2 = h2c")
        self.server = serve(configuration, listen=listen)

    def connect(self, way, values=None, **options):
        """Returns a :class:`Http2` over ``plain`` or ``tls``; more arguments go to the client."""
        own = {name: options.pop(name) for name in ("gives_back", "preface") if name in options}
        if way == "plain":
            return Http2(self.server.connect(**options), values, **own)
        client = secured(self.server.connect(self.server.address("https"), **options), self.context)
        connection = Http2(client, values, **own)
        connection.scheme = "https"
        return connection
