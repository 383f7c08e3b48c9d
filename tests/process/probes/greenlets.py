"""A WSGI application in greenlets of gevent: its requests wait in ways that gevent knows, or keep the thread for themselves."""

from pathlib import Path

import gevent
from gevent.event import Event
from gevent.socket import socketpair

GATE = Event()


def wait_in_time():
    while not GATE.is_set():
        gevent.sleep(0.05)


def wait_for_socket():
    ours, theirs = socketpair()
    gevent.spawn(pass_on, theirs)
    assert ours.recv(1) == b"x"


def pass_on(sender):
    GATE.wait()
    sender.sendall(b"x")


def work(gate):
    """Keeps the thread until the gate opens."""
    gate.with_suffix(".waiting").touch()
    while not gate.exists():
        pass


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path.startswith("/socket/"):
        wait_for_socket()
    elif path.startswith("/event/"):
        GATE.wait()
    elif path.startswith("/busy/"):
        work(Path(environ["QUERY_STRING"]))
    elif path.startswith("/time/"):
        wait_in_time()
    elif path == "/open":
        GATE.set()
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
