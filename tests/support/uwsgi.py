"""A client of the uwsgi protocol."""

import struct

from support.client import Client


def variables(pairs):
    """Encodes the block of variables: a length of two bytes, little-endian, before each name and value."""
    block = b""
    for name, value in pairs:
        for text in (name, value):
            data = text.encode("latin-1") if isinstance(text, str) else text
            block += struct.pack("<H", len(data)) + data
    return block


def packet(pairs, modifier1=0, modifier2=0):
    block = variables(pairs)
    return struct.pack("<BHB", modifier1, len(block), modifier2) + block


def request_variables(method="GET", target="/", body=b"", extra=()):
    """Encodes a request as a reverse proxy does."""
    path, _, query = target.partition("?")
    return [
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", method),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", str(len(body)) if body else ""),
        ("REQUEST_URI", target),
        ("PATH_INFO", path),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REMOTE_ADDR", "192.0.2.7"),
        ("REMOTE_PORT", "4711"),
        ("SERVER_NAME", "www.example.com"),
        ("SERVER_PORT", "80"),
        ("HTTP_HOST", "www.example.com"),
        *extra,
    ]


class Answer:
    """The response up to the end of the connection, split at the empty line."""

    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.status_line, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(self.status_line.split(" ")[1])
        self.headers = [tuple(field.split(": ", 1)) for field in fields]

    def all(self, name):
        return [value for known, value in self.headers if known.lower() == name.lower()]


def ask(address, method="GET", target="/", body=b"", extra=()):
    """One request on a new connection."""
    with Client(address) as client:
        client.send(packet(request_variables(method, target, body, extra)) + body)
        return Answer(client.read_to_end())
