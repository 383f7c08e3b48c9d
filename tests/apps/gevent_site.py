"""Views that wait in greenlets, each until another request opens its gate; the path selects the view.

Gates are events of this process: a request that waits at one while another one opens it shows that both are served at the same
time.
"""

import collections
import contextvars
import hashlib
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time

import gevent
from gevent.event import Event

PLAIN = [("Content-Type", "text/plain")]
MEGABYTE = bytes(range(256)) * 4096
#: Bytes that a view reads from a body at a time.
READ_BYTES = 65536

gates = collections.defaultdict(Event)
#: What views and their greenlets have done, for later requests.
notes = []
#: Requests and greenlets that wait, by gate.
waiting = collections.Counter()
running = most = 0
#: Bytes that generators have yielded.
given = 0

user = contextvars.ContextVar("user", default="no user")
local = threading.local()


def wait_at(name):
    waiting[name] += 1
    try:
        gates[name].wait()
    finally:
        waiting[name] -= 1


def application(environ, start_response):
    _, kind, *rest = environ["PATH_INFO"].split("/")
    return globals()["at_" + (kind or "fine")](environ, start_response, *rest)


def plain(start_response, text, status="200 OK"):
    start_response(status, [*PLAIN, ("Content-Length", str(len(text.encode())))])
    return [text.encode()]


# What tests ask and order.


def at_fine(environ, start_response):
    return plain(start_response, "fine")


def at_open(environ, start_response, name):
    gates[name].set()
    return plain(start_response, "open")


def at_waiting(environ, start_response):
    return plain(start_response, json.dumps(waiting))


def at_notes(environ, start_response):
    return plain(start_response, json.dumps(notes))


def at_given(environ, start_response):
    return plain(start_response, str(given))


def at_most(environ, start_response):
    """The most calls of `counted` that ran at the same time."""
    return plain(start_response, str(most))


# Waiting in the call, and in the iterator.


def at_wait(environ, start_response, name):
    wait_at(name)
    return plain(start_response, name)


def at_counted(environ, start_response, seconds):
    global running, most
    running += 1
    most = max(most, running)
    time.sleep(float(seconds))
    running -= 1
    return plain(start_response, "counted")


def at_slept(environ, start_response):
    began = time.monotonic()
    time.sleep(0.1)
    return plain(start_response, f"{time.monotonic() - began:.3f}")


class Told:
    """An iterable that notes its close(), with what the request's context and greenlet have there."""

    def __init__(self, iterable, name):
        self.iterable = iterable
        self.name = name

    def __iter__(self):
        return iter(self.iterable)

    def close(self):
        time.sleep(0.01)
        notes.append(f"closed {self.name} as {user.get()}")


def at_stream(environ, start_response, name):
    """A part, a wait, and another part."""
    user.set(name)
    start_response("200 OK", PLAIN)

    def parts():
        yield f"first of {user.get()}\n".encode()
        wait_at(name)
        yield f"second of {user.get()}\n".encode()

    return Told(parts(), name)


def at_sleepy(environ, start_response):
    start_response("200 OK", PLAIN)
    for part in (b"one,", b"two,", b"three"):
        gevent.sleep(0.05)
        yield part


def at_late(environ, start_response):
    """Calls start_response when the first part is asked for, after a wait."""
    gevent.sleep(0.05)
    start_response("201 Created", PLAIN)
    yield b"late"


def at_write(environ, start_response, name):
    write = start_response("200 OK", PLAIN)
    write(b"written,")
    wait_at(name)
    write(b"again,")
    return [b"returned"]


def at_large(environ, start_response, megabytes):
    start_response("200 OK", PLAIN)
    return Told(large(int(megabytes)), f"large {megabytes}")


def large(megabytes):
    global given
    for _ in range(megabytes * 10):
        given += len(MEGABYTE) // 10
        yield MEGABYTE[: len(MEGABYTE) // 10]


def at_written(environ, start_response, megabytes):
    """The same by write()."""
    write = start_response("200 OK", PLAIN)
    for part in large(int(megabytes)):
        write(part)
    return []


def at_file(environ, start_response, megabytes):
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(MEGABYTE * int(megabytes))
    file.seek(0)
    start_response("200 OK", [*PLAIN, ("Content-Length", str(int(megabytes) * len(MEGABYTE)))])
    return environ["wsgi.file_wrapper"](file)


def at_unchanged(environ, start_response):
    time.sleep(0.01)
    start_response("304 Not Modified", [("ETag", '"1"')])
    return []


def at_body(environ, start_response):
    """Waits while it reads the body."""
    digest, total = hashlib.sha256(), 0
    while part := environ["wsgi.input"].read(READ_BYTES):
        digest.update(part)
        total += len(part)
        gevent.sleep(0)
    return plain(start_response, f"{environ['REQUEST_METHOD']} {total} {digest.hexdigest()}")


# Failures.


def at_fails_before(environ, start_response):
    time.sleep(0.01)
    raise ValueError("before the head")


def at_fails_after(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "10")])
    yield b"12345"
    time.sleep(0.01)
    raise ValueError("after the head")


def at_short(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "10")])
    return [b"12345"]


def at_long(environ, start_response):
    start_response("200 OK", [*PLAIN, ("Content-Length", "5")])
    yield b"12345"
    time.sleep(0.01)
    yield b"67890"


def at_exits(environ, start_response):
    time.sleep(0.01)
    sys.exit(3)


def at_killed(environ, start_response, name):
    """Killed by another greenlet while it waits."""
    gevent.spawn_later(0.05, gevent.getcurrent().kill, block=False)
    wait_at(name)
    return plain(start_response, "survived")


def at_timeout(environ, start_response, name):
    try:
        with gevent.Timeout(0.05):
            wait_at(name)
    except gevent.Timeout:
        return plain(start_response, "timed out", "504 Gateway Timeout")


def at_uncaught_timeout(environ, start_response, name):
    with gevent.Timeout(0.05):
        wait_at(name)


def at_stuck_in_the_database(environ, start_response, name):
    """The function whose name a stack in the log shows."""
    wait_at(name)
    return plain(start_response, "late")


def at_stubborn(environ, start_response, name):
    """Catches the exception of its time limit, and answers."""
    try:
        wait_at(name)
    except gevent.Timeout:
        return plain(start_response, "gave up", "503 Service Unavailable")


def at_blocks(environ, start_response, seconds):
    """Blocks the hub: a call that gevent knows nothing about."""
    signal.sigtimedwait([signal.SIGRTMAX], float(seconds))
    return plain(start_response, "blocked")


# State of a request, and of a greenlet.


def at_context(environ, start_response, name, gate):
    """Sets a context variable and a thread-local value, waits, and tells both, before and after."""
    before = f"{user.get()} {getattr(local, 'request', 'nothing')}"
    user.set(name)
    local.request = name
    wait_at(gate)
    after = f"{user.get()} {local.request}"
    del local.request
    return plain(start_response, f"{before}, {after}")


def at_greenlet(environ, start_response):
    current = gevent.getcurrent()
    return plain(start_response, f"{isinstance(current, gevent.Greenlet)} {id(current)} {threading.current_thread().name}")


def at_spawned(environ, start_response, name):
    """Its greenlet goes on after the answer, in an empty context, as gevent's greenlets do."""
    user.set(name)

    def afterwards():
        wait_at(name)
        notes.append(f"afterwards {name} as {user.get()}")

    gevent.spawn(afterwards)
    return plain(start_response, "spawned")


def at_threads(environ, start_response):
    """Threads are greenlets: each of them sleeps while the others do."""
    done = []
    threads = [threading.Thread(target=lambda number=number: (time.sleep(0.05), done.append(number))) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return plain(start_response, str(len(done)))


def at_pid(environ, start_response):
    return plain(start_response, str(os.getpid()))


def at_multithread(environ, start_response):
    return plain(start_response, f"{environ['wsgi.multithread']} {environ['wsgi.multiprocess']}")


# Calls of the module uwsgi.

pipes = {}


def at_feed(environ, start_response, name):
    """Makes a pipe readable."""
    os.write(pipes[name][1], b"fed")
    return plain(start_response, "fed")


def result(environ):
    import uwsgi

    return f"{environ['x-wsgiorg.fdevent.timeout']} {environ['uwsgi.ready_fd']} {uwsgi.ready_fd()}"


def at_uwsgi_suspend(environ, start_response, name, seconds):
    """Waits in the call."""
    import uwsgi

    reader, _ = pipes[name] = os.pipe()
    waiting[name] += 1
    uwsgi.wait_fd_read(reader, int(seconds))
    uwsgi.suspend()
    waiting[name] -= 1
    return plain(start_response, result(environ).replace(str(reader), "reader"))


def at_uwsgi_yield(environ, start_response, name, seconds):
    """Waits between two parts."""
    import uwsgi

    reader, _ = pipes[name] = os.pipe()
    start_response("200 OK", PLAIN)
    waiting[name] += 1
    yield environ["x-wsgiorg.fdevent.readable"](reader, int(seconds))
    waiting[name] -= 1
    yield result(environ).replace(str(reader), "reader").encode()
    yield uwsgi.wait_fd_write(pipes[name][1])
    yield b", " + result(environ).replace(str(pipes[name][1]), "writer").encode()
    yield uwsgi.async_sleep(1)
    yield b", " + result(environ).encode()


def at_uwsgi_fetch(environ, start_response, port):
    """Asks a server as uWSGI's example iobound_async.py does."""
    import uwsgi

    connection = uwsgi.async_connect(f"127.0.0.1:{port}")
    yield uwsgi.wait_fd_write(connection, 5)
    if environ["x-wsgiorg.fdevent.timeout"] or not uwsgi.is_connected(connection):
        start_response("504 Gateway Timeout", PLAIN)
        yield b"no connection"
        return
    uwsgi.send(connection, b"GET /wait/fetched HTTP/1.1\r\n")
    uwsgi.suspend()
    uwsgi.send(connection, b"Host: localhost\r\nConnection: close\r\n\r\n")
    start_response("200 OK", PLAIN)
    while True:
        yield uwsgi.wait_fd_read(connection, 5)
        if environ["x-wsgiorg.fdevent.timeout"]:
            break
        part = uwsgi.recv(connection, 4096)
        if not part:
            break
        yield part
    uwsgi.close(connection)


def at_uwsgi_connect(environ, start_response, port):
    """Waits for a connection and an answer in calls."""
    import uwsgi

    connection = uwsgi.connect(f"127.0.0.1:{port}", 5)
    uwsgi.send(connection, b"GET /wait/connected HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    parts = []
    while part := uwsgi.recv(connection):
        parts.append(part)
    uwsgi.close(connection)
    return plain(start_response, b"".join(parts).decode())


def at_uwsgi_mixed(environ, start_response):
    """Two greenlets of a request wait for descriptors of their own."""
    import uwsgi

    ours, theirs = socket.socketpair(), socket.socketpair()

    def other():
        uwsgi.wait_fd_read(theirs[0].fileno(), 5)
        uwsgi.suspend()
        return uwsgi.ready_fd() == theirs[0].fileno()

    uwsgi.wait_fd_read(ours[0].fileno(), 5)
    greenlet = gevent.spawn(other)
    gevent.sleep(0)
    theirs[1].sendall(b"x")
    is_theirs = greenlet.get()
    ours[1].sendall(b"x")
    uwsgi.suspend()
    return plain(start_response, f"{is_theirs} {uwsgi.ready_fd() == ours[0].fileno()}")


def at_uwsgi_many(environ, start_response):
    """The bound of descriptors."""
    import uwsgi

    descriptors = [os.dup(0) for _ in range(1025)]
    try:
        for count in itertools.count():
            uwsgi.wait_fd_read(descriptors[count])
    except OSError as error:
        told = str(error)
    for descriptor in descriptors:
        os.close(descriptor)
    return plain(start_response, f"{count}: {told}")
