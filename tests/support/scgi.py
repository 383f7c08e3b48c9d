"""A client of SCGI (https://python.ca/scgi/protocol.txt)."""

from support import uwsgi
from support.cgi import Answer
from support.client import Client


def netstring(block):
    return b"%d:%s," % (len(block), block)


def block(pairs):
    """Encodes each name and value, terminated by NUL."""
    texts = [text.encode("latin-1") if isinstance(text, str) else text for pair in pairs for text in pair]
    return b"".join(text + b"\0" for text in texts)


def request_variables(method="GET", target="/", body=b"", extra=()):
    """Encodes a request as a reverse proxy does: the length first, and the version."""
    others = [pair for pair in uwsgi.request_variables(method, target, body) if pair[0] != "CONTENT_LENGTH"]
    return [("CONTENT_LENGTH", str(len(body))), ("SCGI", "1"), *others, *extra]


def request(method="GET", target="/", body=b"", extra=()):
    return netstring(block(request_variables(method, target, body, extra))) + body


def ask(address, method="GET", target="/", body=b"", extra=()):
    """One request on a new connection."""
    with Client(address) as client:
        client.send(request(method, target, body, extra))
        return Answer(client.read_to_end())
