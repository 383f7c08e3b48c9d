"""Responses after which application code still runs, and which wait until the client confirms that it has the response.

The client confirms by creating a file with the name in its query. The log contains what was waited for, and whether it came.
"""

import os
import sys
import time
from pathlib import Path

DIRECTORY = Path(os.environ["AFTERWARDS_DIRECTORY"])
TEXT = b"one two three"
LENGTH = [("Content-Length", str(len(TEXT)))]

#: Timeout of the confirmation, and polling interval, in seconds.
TIMEOUT_SECONDS = 20
LOOK_SECONDS = 0.01


def wait(name):
    """Waits until the client has its response."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not (DIRECTORY / name).exists():
        if time.monotonic() > end:
            print(f"{name}: the client has not said that it has its answer", file=sys.stderr, flush=True)
            return
        time.sleep(LOOK_SECONDS)
    print(f"{name}: the client had its answer", file=sys.stderr, flush=True)


class Parts:
    """A custom iterable; ``make`` creates its iterator."""

    def __init__(self, make):
        self._make = make

    def __iter__(self):
        return self._make()


class Closing(Parts):
    def __init__(self, name, make):
        super().__init__(make)
        self._name = name

    def close(self):
        wait(self._name)


class Failing(Closing):
    """Its ``close()`` waits and then fails."""

    def close(self):
        super().close()
        raise OSError("this close() fails")


class Freed(Parts):
    """It has no ``close()``, and waits in its finalizer."""

    def __init__(self, name, make=None):
        super().__init__(make)
        self._name = name

    def __del__(self):
        wait(self._name)


class File:
    """A file whose ``close()`` waits."""

    def __init__(self, name):
        path = DIRECTORY / f"file-{name}"
        path.write_bytes(TEXT)
        self._file = path.open("rb")
        self._name = name
        self.read = self._file.read
        self.fileno = self._file.fileno

    def close(self):
        wait(self._name)
        self._file.close()


def parts():
    yield from (b"one ", b"two ", b"three")


def at_list(name, environ, start_response):
    start_response("200 OK", [])
    return Closing(name, lambda: iter([b"one ", b"two ", b"three"]))


def at_nothing(name, environ, start_response):
    start_response("204 No Content", [])
    return Closing(name, lambda: iter([]))


def at_failing(name, environ, start_response):
    start_response("200 OK", [])
    return Failing(name, lambda: iter([TEXT]))


def at_generator(name, environ, start_response):
    start_response("200 OK", [])
    return Closing(name, parts)


def at_told(name, environ, start_response):
    """The body is complete by its length, and the generator goes on."""
    start_response("200 OK", LENGTH)
    yield TEXT
    wait(name)


def at_freed(name, environ, start_response):
    start_response("200 OK", [])
    return Freed(name, parts)


def at_environ(name, environ, start_response):
    environ["afterwards.freed"] = Freed(name)
    start_response("200 OK", [])
    return [TEXT]


def at_file(name, environ, start_response):
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](File(name))


def at_write(name, environ, start_response):
    start_response("200 OK", [])(b"one ")
    return Closing(name, lambda: iter([b"two three"]))


def at_written(name, environ, start_response):
    """The body is complete by its length, and the call goes on."""
    start_response("200 OK", LENGTH)(TEXT)
    wait(name)
    return []


def at_raising(name, environ, start_response):
    """The server generates its response."""
    start_response("200 OK", [])
    return Closing(name, lambda: (1 // 0 for _ in range(1)))


def at_slow(name, environ, start_response):
    """The call itself waits until other requests are answered."""
    wait(name)
    start_response("200 OK", [])
    return [TEXT]


def at_plain(name, environ, start_response):
    start_response("200 OK", [])
    return [TEXT]


def application(environ, start_response):
    global last
    last = environ["QUERY_STRING"]
    return globals()["at_" + environ["PATH_INFO"].strip("/")](last, environ, start_response)


if "AFTERWARDS_HOOK" in os.environ:
    import uwsgi

    uwsgi.after_req_hook = lambda: wait(last)
