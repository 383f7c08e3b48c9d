"""``wsgi.input``: the same in memory and from the temporary file to which a large body goes."""

import json
import os

import pytest
from support import processes
from support.waiting import wait_until

#: With this limit for bodies in memory, the larger ones below come from a file.
MEMORY = 1000

BODIES = {
    "none": b"",
    "one byte": b"x",
    "one line": b"line\n",
    "lines": b"first\nsecond\n\nfourth without an end",
    "only newlines": b"\n" * 5,
    "at the limit": b"0123456789abcd\n" * 66 + b"0123456789",
    "beyond the limit": b"0123456789abcd\n" * 66 + b"0123456789a",
    "long line": b"x" * 70_000 + b"\n" + b"y" * 10,
    "many lines": b"".join(b"line %d\n" % number for number in range(20_000)),
    "binary": bytes(range(256)) * 500,
}

WAYS = [
    "read",
    "read_minus_one",
    "read_sizes",
    "readline",
    "readline_sizes",
    "readlines",
    "iteration",
    "mixed",
    "closed",
]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(f"wsgi-file = {{apps}}/reading.py\npost-buffering = {MEMORY}")


def ask(client, way, body, chunked):
    if chunked:
        head = f"POST /{way} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        chunk = b"%x\r\n" % len(body) + body + b"\r\n" if body else b""
        client.send(head + chunk + b"0\r\n\r\n")
        response = client.read_response()
    else:
        response = client.request("POST", f"/{way}", body=body)
    assert response.status == 200
    return json.loads(response.body)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_every_way_of_reading_gives_the_whole_body(server, name, chunked):
    body = BODIES[name]
    client = server.connect()
    for way in WAYS:
        told = ask(client, way, body, chunked)
        assert "".join(told["parts"]).encode("latin-1") == body, way
        # PEP 3333 leaves the end of a chunked body undefined; this key says that reading to the end is safe.
        assert told["terminated"] is True
        assert told["length"] == str(len(body))


@pytest.mark.parametrize("name", BODIES)
def test_lines_are_lines(server, name):
    body = BODIES[name]
    client = server.connect()
    lines = [line.decode("latin-1") for line in body.split(b"\n")]
    expected = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    for way in ("readline", "readlines", "iteration"):
        assert ask(client, way, body, False)["parts"] == expected


@pytest.mark.parametrize("name", BODIES)
def test_reading_beyond_the_end_gives_nothing(server, name):
    told = ask(server.connect(), "beyond_the_end", BODIES[name], False)
    assert told["parts"][1:] == ["", "", ""]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_read_is_not_taken_for_the_next_request(server, name):
    client = server.connect()
    for _ in range(3):
        assert ask(client, "nothing", BODIES[name], False)["parts"] == []
        assert ask(client, "nothing", BODIES[name], True)["parts"] == []


def test_a_request_without_a_body_has_an_empty_input(server):
    client = server.connect()
    for way in [*WAYS, "beyond_the_end", "readlines_hint"]:
        response = client.request("GET", f"/{way}")
        assert response.status == 200
        assert "".join(json.loads(response.body)["parts"]) == ""


def test_temporary_files_end_with_their_request(server):
    client = server.connect()
    worker = server.worker()
    ask(client, "read", BODIES["many lines"], False)
    # The client has its response before the worker has released the request; the next request is read after that.
    ask(client, "read", BODIES["one byte"], False)
    before = len(os.listdir(f"/proc/{worker}/fd"))
    for _ in range(20):
        ask(client, "nothing", BODIES["many lines"], False)
        ask(client, "read", BODIES["many lines"], True)
    wait_until(lambda: len(os.listdir(f"/proc/{worker}/fd")) == before, "the last file to be closed")
    assert processes.look(worker) is not None
