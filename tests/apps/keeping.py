"""Threads that keep the GIL: calls of C code that do not release it, until the test writes to the pipe with a name."""

import ctypes
import os
import signal
import sys
import threading

PLAIN = [("Content-Type", "text/plain")]

#: Its functions are called with the GIL held, unlike those of ``ctypes.CDLL``.
greedy = ctypes.PyDLL(None)
released = threading.Event()
meeting = threading.Barrier(2, timeout=60)
meeting_of_three = threading.Barrier(3, timeout=60)


def tell(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def keep():
    pipe = os.open("pipe", os.O_RDWR)
    tell("keeps the interpreter")
    greedy.read(pipe, ctypes.create_string_buffer(1), 1)
    os.close(pipe)


def at_keep():
    keep()
    return "kept"


def keep_when_told():
    pipe = os.open("pipe", os.O_RDWR)
    os.read(pipe, 1)
    os.close(pipe)
    keep()


def at_thread():
    threading.Thread(target=keep_when_told, daemon=True).start()
    return "started"


def at_meet():
    """Waits until two requests are inside at the same time."""
    meeting.wait()
    return "met"


def at_meet_three():
    meeting_of_three.wait()
    return "met"


def at_fine():
    return "fine"


def at_wait():
    tell("waits")
    return "released" if released.wait(60) else "waited in vain"


def at_release():
    released.set()
    return "fine"


signal.signal(signal.SIGWINCH, lambda number, frame: tell("the handler has run"))


def application(environ, start_response):
    answer = globals()["at_" + environ["PATH_INFO"].strip("/")]()
    start_response("200 OK", PLAIN)
    return [answer.encode()]
