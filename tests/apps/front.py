"""The application of the tests with a reverse proxy: the last path segment selects the response."""

import hashlib
import json
import os
import sys

UNIT = b"0123456789abcdef"
#: An unnamed file of 20 MB, created by the first request for it.
PART = UNIT * 4096


def at_echo(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"environ": {key: value for key, value in environ.items() if isinstance(value, str)}}).encode()]


def at_digest(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode()]


def parts(size):
    for start in range(0, size, len(PART)):
        yield PART[: size - start]


def at_stream(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return parts(int(environ["QUERY_STRING"] or 100_000))


def at_file(environ, start_response):
    size = int(environ["QUERY_STRING"])
    file = os.fdopen(os.memfd_create("large"), "w+b")
    for part in parts(size):
        file.write(part)
    file.seek(0)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
    return environ["wsgi.file_wrapper"](file)


class Endless:
    """Runs until it is closed, and logs that."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        return self

    def __next__(self):
        return PART

    def close(self):
        print(f"closed {self.path}", file=sys.stderr, flush=True)


def at_endless(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return Endless(environ["PATH_INFO"])


def at_error(environ, start_response):
    raise RuntimeError("as the test asked")


def at_none(environ, start_response):
    start_response("204 No Content", [])
    return []


def application(environ, start_response):
    return globals()["at_" + environ["PATH_INFO"].rsplit("/", 1)[1]](environ, start_response)
