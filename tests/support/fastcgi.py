"""A FastCGI 1.0 client like a reverse proxy: it parses records strictly, and an error of the server raises an exception."""

import struct

from support import uwsgi
from support.cgi import Answer
from support.client import Client, Closed

BEGIN_REQUEST, ABORT_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT = 1, 2, 3, 4, 5, 6
GET_VALUES, GET_VALUES_RESULT, UNKNOWN_TYPE = 9, 10, 11
RESPONDER, AUTHORIZER = 1, 2
REQUEST_COMPLETE, CANT_MPX_CONN, UNKNOWN_ROLE = 0, 1, 3
HEAD_BYTES = 8
#: Maximum length of a record's content: the length field has two bytes.
MAX_CONTENT_BYTES = 65535

request_variables = uwsgi.request_variables


def record(kind, number, content=b"", padding=0):
    return struct.pack(">BBHHBB", 1, kind, number, len(content), padding, 0) + content + bytes(padding)


def begin(number=1, keep=False, role=RESPONDER):
    return record(BEGIN_REQUEST, number, struct.pack(">HB5x", role, int(keep)))


def pairs(variables):
    """Encodes names and values, with lengths of one byte if possible, else of four."""
    text = b""
    for pair in variables:
        name, value = (part.encode("latin-1") if isinstance(part, str) else part for part in pair)
        for length in (len(name), len(value)):
            text += struct.pack(">B", length) if length < 128 else struct.pack(">I", length | 1 << 31)
        text += name + value
    return text


def stream(kind, number, data, piece=MAX_CONTENT_BYTES, padding=0):
    """Encodes a stream in records of ``piece`` bytes, and the empty record that ends it."""
    parts = [data[place : place + piece] for place in range(0, len(data), piece)]
    return b"".join(record(kind, number, part, padding) for part in parts) + record(kind, number)


def opened(variables, number=1, keep=False):
    """Encodes the beginning of a request and its parameters."""
    return begin(number, keep) + stream(PARAMS, number, pairs(variables))


def request(method="GET", target="/", body=b"", extra=(), number=1, keep=False):
    variables = request_variables(method, target, body, extra)
    return opened(variables, number, keep) + stream(STDIN, number, body)


def read_record(client):
    """Reads the next record. Returns type, request and content."""
    version, kind, number, length, padding, _ = struct.unpack(">BBHHBB", client.read_exactly(HEAD_BYTES))
    assert version == 1
    return kind, number, client.read_exactly(length + padding)[:length]


def read_stream(client, number=1):
    """Reads the whole stream of a response, up to the records that end it; the request must be complete then."""
    parts, is_ended = [], False
    while True:
        kind, found, content = read_record(client)
        assert found == number
        if kind == END_REQUEST:
            assert is_ended, "the request has ended before its stream"
            assert content == struct.pack(">IB3x", 0, REQUEST_COMPLETE)
            return b"".join(parts)
        assert kind == STDOUT, f"a record of type {kind}"
        assert not is_ended, "the stream goes on behind its end"
        is_ended = not content
        parts.append(content)


def read_answer(client, number=1):
    return Answer(read_stream(client, number))


def read_cut_stream(client, number=1):
    """Returns the received part of a stream that ends with the connection."""
    parts = []
    while True:
        try:
            kind, found, content = read_record(client)
        except Closed:
            return b"".join(parts)
        assert (kind, found) == (STDOUT, number)
        parts.append(content)


def ask(address, method="GET", target="/", body=b"", extra=()):
    """One request on a new connection, which the server closes."""
    with Client(address) as client:
        client.send(request(method, target, body, extra))
        answer = read_answer(client)
        assert client.is_closed()
        return answer
