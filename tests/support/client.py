"""A client that sends the given bytes and parses responses strictly: an error of the server raises an exception."""

import errno
import re
import socket
import ssl
import sys

from support.waiting import TIMEOUT_SECONDS

#: Offset of `tcpi_data_segs_in` (4 bytes) in `struct tcp_info` (linux/tcp.h).
DATA_SEGMENTS_IN = 152

#: The exception of a socket timeout. Python 3.9 has a separate class for it.
TIMEOUTS = (TimeoutError, socket.timeout)

#: Bytes of a response that a failure shows.
SHOWN_BYTES = 400

STATUS_LINE = re.compile(rb"HTTP/1\.1 (?P<status>\d{3}) (?P<reason>[ -~\x80-\xff]*)")
FIELD = re.compile(rb"(?P<name>[!#$%&'*+\-.^_`|~0-9A-Za-z]+): ?(?P<value>[\t -~\x80-\xff]*)")
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")


class Closed(Exception):
    """The server has closed the connection before the end of the expected data; ``data`` is the part that came."""

    def __init__(self, data=b"", was_reset=False):
        shown = data if len(data) <= SHOWN_BYTES else data[:SHOWN_BYTES] + b"..."
        super().__init__(f"the connection {'was reset' if was_reset else 'has ended'} after {len(data)} bytes: {shown!r}")
        self.data = data
        self.was_reset = was_reset


class Response:
    """One response. Header names are in lower case; ``headers`` keeps order and duplicates."""

    def __init__(self, status, reason, headers):
        self.status = status
        self.reason = reason
        self.headers = headers
        self.body = b""
        #: The chunks of a chunked body; None for other bodies.
        self.chunks = None

    def all(self, name):
        return [value for known, value in self.headers if known == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        assert len(values) < 2, f"{name} is there {len(values)} times: {values}"
        return values[0] if values else default

    @property
    def text(self):
        return self.body.decode()

    @property
    def says_close(self):
        return "close" in self.get("connection", "").lower()

    def __repr__(self):
        return f"<{self.status} {self.reason} {self.headers} {self.body[:200]!r}>"


class Client:
    """A TCP or UNIX connection. ``receive_bytes`` limits the kernel's buffer, for a reader that stops. ``source`` is the local
    address.
    """

    def __init__(self, address, patience=TIMEOUT_SECONDS, receive_bytes=None, source=None):
        family = socket.AF_UNIX if isinstance(address, (str, bytes)) else socket.AF_INET
        if family == socket.AF_INET and ":" in address[0]:
            family = socket.AF_INET6
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(patience)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        if source is not None:
            self.socket.bind((source, 0))
        self.socket.connect(address)
        self.buffer = b""
        #: Whether the connection ended with a reset.
        self.was_reset = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Disconnects with a reset instead of an orderly close."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()

    def end_sending(self):
        """Ends the sending side. If the server has already reset the connection, the following read reports it."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            # Python does not define an exception class for ENOTCONN.
            if error.errno != errno.ENOTCONN:
                raise

    # Sending.

    def send(self, data):
        """Sends everything. If the server has already closed the connection, the following read reports it."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            return False
        return True

    def send_byte_by_byte(self, data):
        """Sends each byte in a separate packet."""
        return all(self.send(data[place : place + 1]) for place in range(len(data)))

    def request(self, method="GET", target="/", headers=(), body=None):
        """Sends a well-formed request and reads its response."""
        fields = [("Host", "localhost"), *headers]
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
        self.send(head.encode("latin-1") + (body or b""))
        return self.read_response(method)

    # Receiving.

    def segments_received(self):
        """Returns the number of TCP segments with data so far: it distinguishes writes of the server that did not leave
        together.
        """
        information = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, DATA_SEGMENTS_IN + 4)
        return int.from_bytes(information[DATA_SEGMENTS_IN:], sys.byteorder)

    def receive(self):
        """Waits for more bytes; returns False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            self.was_reset = True
            data = b""
        self.buffer += data
        return bool(data)

    def read_until(self, mark):
        """Reads up to and including ``mark``."""
        start = 0
        while True:
            place = self.buffer.find(mark, start)
            if place >= 0:
                return self.read_exactly(place + len(mark))
            start = max(0, len(self.buffer) - len(mark) + 1)
            if not self.receive():
                raise Closed(self.buffer, self.was_reset)

    def read_exactly(self, count):
        if len(self.buffer) < count:
            parts = [self.buffer]
            missing = count - len(self.buffer)
            while missing > 0:
                try:
                    data = self.socket.recv(min(missing, 1 << 20))
                except ConnectionResetError:
                    self.was_reset = True
                    data = b""
                if not data:
                    self.buffer = b"".join(parts)
                    raise Closed(self.buffer, self.was_reset)
                parts.append(data)
                missing -= len(data)
            self.buffer = b"".join(parts)
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def read_to_end(self):
        """Reads up to the end of the connection."""
        while self.receive():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def is_closed(self):
        """Waits for the end of the connection; returns False if data comes instead."""
        return not self.buffer and not self.receive()

    def read_head(self):
        """Reads a status line and header fields."""
        lines = self.read_until(b"\r\n\r\n")[:-4].split(b"\r\n")
        status = STATUS_LINE.fullmatch(lines[0])
        assert status, f"malformed status line: {lines[0]!r}"
        headers = []
        for line in lines[1:]:
            field = FIELD.fullmatch(line)
            assert field, f"malformed header: {line!r}"
            headers.append((field["name"].decode().lower(), field["value"].decode("latin-1").strip(" \t")))
        return Response(int(status["status"]), status["reason"].decode("latin-1"), headers)

    def read_response(self, method="GET"):
        """Reads one response with its body, as RFC 9112 section 6.3 delimits it."""
        response = self.read_head()
        length = response.get("content-length")
        coding = response.get("transfer-encoding")
        if method == "HEAD" or response.status < 200 or response.status in (204, 304):
            assert coding is None or method == "HEAD", f"{response} has no body, but a transfer coding"
        elif coding is not None:
            assert (coding, length) == ("chunked", None), f"{response} has a strange framing"
            response.chunks = list(self.read_chunks())
            response.body = b"".join(response.chunks)
        elif length is not None:
            response.body = self.read_exactly(int(length))
        else:
            assert response.says_close, f"{response} has no framing and does not close"
            response.body = self.read_to_end()
        return response

    def read_chunks(self):
        while True:
            size = self.read_until(b"\r\n")[:-2]
            assert CHUNK_SIZE.fullmatch(size), f"malformed chunk size {size!r}"
            data = self.read_exactly(int(size, 16))
            assert self.read_exactly(2) == b"\r\n", "a chunk without its end"
            if not data:
                return
            yield data
