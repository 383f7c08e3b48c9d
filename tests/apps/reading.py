"""Reads its body with the method that the path names, and returns the result as JSON."""

import json


def at_read(stream):
    return [stream.read()]


def at_read_minus_one(stream):
    return [stream.read(-1)]


def at_read_sizes(stream):
    parts = []
    for size in (0, 1, 10, 1000, 100_000):
        parts.append(stream.read(size))
    while True:
        part = stream.read(65536)
        if not part:
            return parts
        parts.append(part)


def at_readline(stream):
    parts = []
    while True:
        line = stream.readline()
        if not line:
            return parts
        parts.append(line)


def at_readline_sizes(stream):
    parts = [stream.readline(0), stream.readline(1), stream.readline(5), stream.readline(-1)]
    return parts + at_readline(stream)


def at_readlines(stream):
    return stream.readlines()


def at_readlines_hint(stream):
    first = stream.readlines(10)
    return [b"".join(first), b"", *stream.readlines(0)] if first else []


def at_iteration(stream):
    return list(stream)


def at_mixed(stream):
    return [stream.read(3), stream.readline(), *stream.readlines(1), next(iter(stream), b""), stream.read()]


def at_nothing(stream):
    return []


def at_beyond_the_end(stream):
    parts = [stream.read(), stream.read(), stream.read(10), stream.readline(), *stream.readlines(), *stream]
    return parts


def at_closed(stream):
    part = stream.read()
    stream.close()
    return [part]


def application(environ, start_response):
    parts = globals()["at_" + environ["PATH_INFO"].strip("/")](environ["wsgi.input"])
    told = {
        "parts": [part.decode("latin-1") for part in parts],
        "length": environ.get("CONTENT_LENGTH"),
        "terminated": environ["wsgi.input_terminated"],
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(told).encode()]
