"""A view that waits until the test releases it, and a record of the begin and end of each call, with process and thread.

The name of a call is its query string. All workers write one record file, a line of JSON for each event, in the order of the
events. A gate is a FIFO of the test, and each byte in it releases one waiting call.
"""

import contextlib
import json
import os
import threading
import time
import warnings

DIRECTORY = os.environ["HELD_DIRECTORY"]
PLAIN = [("Content-Type", "text/plain")]
LARGE_BYTES = 64 << 20

# The number of threads of the process at each fork, after all preparation for it.
threads_at_forks = []
os.register_at_fork(before=lambda: threads_at_forks.append(len(os.listdir("/proc/self/task"))))

record = os.open(os.path.join(DIRECTORY, "record"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


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
    """Sleeps until a byte is available for this call. The end of the file is the end of the test."""
    reader = os.open(os.path.join(DIRECTORY, gate), os.O_RDONLY)
    os.read(reader, 1)
    os.close(reader)


def fork_alone():
    """Forks and waits for the child. Returns the number of threads, and of warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        child = os.fork()
        if child == 0:
            os._exit(0)
    os.waitpid(child, 0)
    return f"{threads_at_forks[-1]} threads, {len(said)} warnings"


def view(path, name):
    """Returns the body. ``/quick`` does not wait, ``/slow/MS`` takes at least MS milliseconds, ``/held/GATE`` waits at a
    gate, and so does a child of ``/forks/GATE``; ``/fork-and-held/GATE`` forks a child that exits immediately, and waits then.
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
    if kind == "slow":
        time.sleep(int(rest[0]) / 1000)
    return name.encode()


def large_file():
    """The path of a file that is larger than the buffers of a socket."""
    path = os.path.join(DIRECTORY, "large")
    with open(path, "wb") as file:
        file.truncate(LARGE_BYTES)
    return path


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
    if path == "/held-file":
        with noted(name):
            start_response("200 OK", [*PLAIN, ("X-Sendfile", large_file())])
            return []
    with noted(name):
        environ["wsgi.input"].read()
        body = view(path, name)
    start_response("200 OK", [*PLAIN, ("Content-Length", str(len(body)))])
    return Closing(name, path.split("/")[2]) if path.startswith("/closing/") else [body]
