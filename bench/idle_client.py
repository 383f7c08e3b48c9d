"""Opens many connections, sends one request on each, and then holds them: `idle_client.py http|https|websocket PORT PATH COUNT`.

`http`: keep-alive connections and a GET. `https`: the same over TLS. `websocket`: a handshake, and a message to a server that
echoes.

Runs as a separate process, so that its memory and files do not count as the suite's. It prints one line of JSON when all
connections are open, then another one for each line that it reads (`probe`), and ends with its standard input.
"""

import json
import select
import socket
import ssl
import sys
import time

HOST = "127.0.0.1"
ANSWER_SECONDS = 5.0
MAX_HEAD_BYTES = 65536
# Time limit for all connections together; with TLS each one has a handshake.
OPEN_SECONDS = {"http": 40.0, "https": 100.0, "websocket": 40.0}
# After more consecutive failures than this, the server accepts no more connections.
MAX_FAILURES = 3


class Http:
    """A keep-alive connection."""

    def __init__(self, port, path):
        self.connection = connect(port)
        self.path = path

    def ask(self):
        """Sends one request and reads its whole answer. Raises OSError if it is not a 200 with a Content-Length."""
        self.connection.sendall(f"GET {self.path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        status, headers, body = read_head(self.connection)
        if b" 200 " not in status:
            raise OSError(f"the answer is {status.decode('latin-1')}")
        if b"content-length" not in headers:
            raise OSError("the answer has no Content-Length")
        missing = int(headers[b"content-length"]) - len(body)
        while missing > 0:
            missing -= len(receive(self.connection))

    def was_closed(self):
        """An idle connection has nothing to read, so a readable one was closed."""
        return True


class Https(Http):
    """A keep-alive connection over TLS."""

    CONTEXT = ssl.create_default_context()
    # Verification is off: the certificate is the suite's own, and the server's side is measured.
    CONTEXT.check_hostname = False
    CONTEXT.verify_mode = ssl.CERT_NONE

    def __init__(self, port, path):
        super().__init__(port, path)
        self.connection = self.CONTEXT.wrap_socket(self.connection, server_hostname="localhost")


class WebSocket:
    """A connection on which short messages are echoed."""

    # The sample key of RFC 6455, section 1.3: the limit program does not support any other.
    KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    MESSAGE = b"is anybody there?"
    # RFC 6455, section 5.2: the final frame of a text, of a close, of a ping; the MASK bit.
    TEXT, CLOSE, PING, MASKED = 0x81, 0x88, 0x89, 0x80
    FRAME_HEAD_BYTES = 2

    def __init__(self, port, path):
        self.connection = connect(port)
        words = [f"GET {path} HTTP/1.1", f"Host: {HOST}", "Upgrade: websocket", "Connection: Upgrade"]
        words += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {self.KEY}", "", ""]
        self.connection.sendall("\r\n".join(words).encode())
        status, headers, self.pending = read_head(self.connection)
        if b" 101 " not in status or headers.get(b"sec-websocket-accept") != self.ACCEPT:
            raise OSError(f"the answer to the handshake is {status.decode('latin-1')}")

    def ask(self):
        """Sends one message and reads its echo. Raises OSError if the echo differs."""
        mask = b"\x00\x00\x00\x00"
        self.connection.sendall(bytes([self.TEXT, self.MASKED | len(self.MESSAGE)]) + mask + self.MESSAGE)
        while (frame := self._frame())[0] == self.PING:
            pass
        if frame[0] != self.TEXT or frame[self.FRAME_HEAD_BYTES :] != self.MESSAGE:
            raise OSError(f"the echo is {frame[:40]!r}")

    def _frame(self):
        """Reads the next short frame with its head."""
        while len(self.pending) < self.FRAME_HEAD_BYTES or len(self.pending) < self.FRAME_HEAD_BYTES + self.pending[1]:
            self.pending += receive(self.connection)
        length = self.FRAME_HEAD_BYTES + self.pending[1]
        frame, self.pending = self.pending[:length], self.pending[length:]
        return frame

    def was_closed(self):
        """A readable connection was closed, unless the server has sent a ping."""
        data = self.connection.recv(1, socket.MSG_PEEK)
        return not data or data[0] == self.CLOSE


KINDS = {"http": Http, "https": Https, "websocket": WebSocket}


def read_head(connection):
    """Returns (first line, {header: value}, the bytes after the head). Names are in lower case."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
        if len(data) > MAX_HEAD_BYTES:
            raise OSError("the head of the answer is too long")
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    return lines[0], headers, rest


def receive(connection):
    data = connection.recv(65536)
    if not data:
        raise OSError("the server closed the connection")
    return data


def connect(port):
    connection = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def open_all(kind, port, path, count, seconds):
    held, failures, problem = [], 0, None
    began = time.monotonic()
    while len(held) < count and failures < MAX_FAILURES:
        if time.monotonic() - began > seconds:
            problem = problem or f"opening took more than {seconds} s"
            break
        try:
            one = kind(port, path)
            one.ask()
        except OSError as error:
            failures, problem = failures + 1, str(error)
            continue
        failures = 0
        held.append(one)
    return held, {"opened": len(held), "problem": problem, "seconds": time.monotonic() - began}


def count_open(held):
    """Returns the number of connections that the server has not closed."""
    poller = select.poll()
    by_descriptor = {one.connection.fileno(): one for one in held}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    return len(held) - sum(by_descriptor[descriptor].was_closed() for descriptor, _ in poller.poll(0))


def timed(action):
    began = time.monotonic()
    try:
        action()
    except OSError as error:
        return {"problem": str(error), "milliseconds": None}
    return {"problem": None, "milliseconds": (time.monotonic() - began) * 1000}


def ask_on_new_connection(kind, port, path):
    one = kind(port, path)
    try:
        one.ask()
    finally:
        one.connection.close()


def probe(held, kind, port, path):
    return {
        "still_open": count_open(held),
        "new_connection": timed(lambda: ask_on_new_connection(kind, port, path)),
        "old_connection": timed(held[0].ask) if held else None,
    }


def main():
    kind, port, path, count = KINDS[sys.argv[1]], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    held, opened = open_all(kind, port, path, count, OPEN_SECONDS[sys.argv[1]])
    print(json.dumps(opened), flush=True)
    for _ in sys.stdin:
        print(json.dumps(probe(held, kind, port, path)), flush=True)


if __name__ == "__main__":
    main()
