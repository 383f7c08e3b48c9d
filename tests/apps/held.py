"""A view that waits until the test lets it go on, and a record of which call began and ended when, and where.

Each call has a name, the query string. The record is one file of all workers, a line of JSON for each event, in the order in
which these came. A gate is a FIFO of the test's, and each byte in it lets one call through that waits there.
"""

import contextlib
import json
import os
import threading
import time
import warnings

FOLDER = os.environ["HELD_FOLDER"]
PLAIN = [("Content-Type", "text/plain")]

# How many threads the process had at each fork, when all that is done before it was done.
threads_at_forks = []
os.register_at_fork(before=lambda: threads_at_forks.append(len(os.listdir("/proc/self/task"))))

record = os.open(os.path.join(FOLDER, "record"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event, name):
    seen = {"event": event, "name": name, "pid": os.getpid(), "thread": threading.get_native_id()}
    line = json.dumps({**seen, "time": time.time(), "monotonic_ns": time.monotonic_ns()}) + "\n"
    os.write(record, line.encode())


@contextlib.contextmanager
def noted(name):
    note("begin", name)
    yield
    note("end", name)


def wait_at(gate):
    """Sleep until a byte is there for this call. The end of the file is the end of the test."""
    reader = os.open(os.path.join(FOLDER, gate), os.O_RDONLY)
    os.read(reader, 1)
    os.close(reader)


def fork_alone():
    """Fork and wait for the child; how many threads there were, and how many warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        child = os.fork()
        if child == 0:
            os._exit(0)
    os.waitpid(child, 0)
    return f"{threads_at_forks[-1]} threads, {len(said)} warnings"


def view(path, name):
    """The body of the answer. ``/quick`` waits for nothing, ``/held/GATE`` at a gate, and so does a child of ``/forks/GATE``;
    ``/fork-and-held/GATE`` forks a child that ends at once, and waits then.
    """
    _, kind, *rest = path.split("/")
    if kind == "fork":
        return fork_alone().encode()
    if kind == "fork-and-held":
        fork_alone()
        wait_at(rest[0])
    if kind == "forks" and os.fork() == 0:
        wait_at(rest[0])
        os._exit(0)
    if kind == "held":
        wait_at(rest[0])
    return name.encode()


class Closing:
    """A list's iterator whose ``close`` is a call that waits at a gate."""

    def __init__(self, name, gate):
        self.name = name
        self.gate = gate

    def __iter__(self):
        return iter([self.name.encode()])

    def close(self):
        with noted(f"close of {self.name}"):
            wait_at(self.gate)


def application(environ, start_response):
    path, name = environ["PATH_INFO"], environ["QUERY_STRING"]
    with noted(name):
        environ["wsgi.input"].read()
        body = view(path, name)
    start_response("200 OK", [*PLAIN, ("Content-Length", str(len(body)))])
    return Closing(name, path.split("/")[2]) if path.startswith("/closing/") else [body]
