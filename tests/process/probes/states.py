"""An application whose requests keep their thread in one state until a gate opens: in C code, in a loop, in a deadlock."""

import ctypes
import threading
import time
from pathlib import Path

import uwsgi


class Gate:
    """A file that the test makes. Another one says that the request is there."""

    def __init__(self, path):
        self.path = Path(path)

    def arrive(self):
        self.path.with_suffix(".waiting").touch()

    def is_open(self):
        return self.path.exists()


def hold(gate):
    """Waits in C code that keeps the GIL."""
    with open(f"{gate.path}.fifo", "rb", buffering=0) as pipe:
        place = ctypes.create_string_buffer(1)
        gate.arrive()
        assert ctypes.PyDLL(None).read(pipe.fileno(), place, 1) == 1


def spin(gate, number=7, name="spinner"):
    gate.arrive()
    steps = 0
    while steps % 20000 or not gate.is_open():
        steps += 1


def lock_up(gate):
    """Two threads, each of which has the lock that the other one wants."""
    first, second = threading.Lock(), threading.Lock()
    first.acquire()
    partner_waits = threading.Event()

    def partner():
        second.acquire()
        partner_waits.set()
        wait_for(first)
        second.release()

    def wait_for(lock):
        while not lock.acquire(timeout=30):
            pass

    threading.Thread(target=partner, name="Partner", daemon=True).start()
    partner_waits.wait()
    gate.arrive()
    watcher = threading.Thread(target=release, args=(gate, first), name="Watcher", daemon=True)
    watcher.start()
    wait_for(second)


def release(gate, lock):
    pause = threading.Event()
    while not gate.is_open():
        pause.wait(0.05)
    lock.release()


def work(seconds):
    """Computes, and then waits."""
    end = time.monotonic() + seconds / 2
    while time.monotonic() < end:
        sum(range(200))
    time.sleep(seconds / 2)


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path.startswith("/orders/"):
        work(float(environ["QUERY_STRING"]))
    gate = Gate(environ["QUERY_STRING"])
    {"/hold": hold, "/spin": spin, "/lock-up": lock_up}.get(path, lambda gate: None)(gate)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]


def mule():
    uwsgi.mule_get_msg()
