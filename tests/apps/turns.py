"""Requests with which one client could monopolize a worker: slow views, endless responses; and counters of other work
in the meantime.
"""

import contextvars
import os
import sys
import threading
import time

PLAIN = [("Content-Type", "application/octet-stream")]
PART = bytes(100_000)
#: Longer than any client waits.
TIMEOUT_SECONDS = 100

calls = 0
given = 0
released = threading.Event()
variable = contextvars.ContextVar("variable")


def at_fine(query):
    return b"fine"


def at_view(query):
    """A view that takes 5 ms, and blocks its thread in the meantime."""
    global calls
    calls += 1
    time.sleep(0.005)
    return b"seen"


def at_calls(query):
    return str(calls).encode()


def at_given(query):
    """Bytes that iterators have yielded so far."""
    return str(given).encode()


def at_wait(query):
    print(f"waits in {os.getpid()}", file=sys.stderr, flush=True)
    return b"released" if released.wait(TIMEOUT_SECONDS) else b"waited in vain"


def at_release(query):
    released.set()
    return b"fine"


def at_quick_parts(query):
    global given
    for _ in range(int(query)):
        given += len(PART)
        yield PART


def at_steady_parts(query):
    """Slower than any client reads: its socket never fills up."""
    for _ in range(int(query)):
        time.sleep(0.001)
        yield PART


def at_context(query):
    """Parts with the value of this request's context variable, while its generator runs."""
    token = variable.set(query)
    for _ in range(50):
        yield variable.get().encode() * len(PART)
    variable.reset(token)


def at_variable(query):
    return variable.get("none").encode()


def at_one_part(query):
    return PART * int(query)


def answer(path, query):
    """Returns the response of a path: bytes, or an iterator of parts."""
    return globals()["at_" + path.strip("/")](query)


def application(environ, start_response):
    body = answer(environ["PATH_INFO"], environ["QUERY_STRING"])
    environ["wsgi.input"].read()
    start_response("200 OK", PLAIN)
    return [body] if isinstance(body, bytes) else body
