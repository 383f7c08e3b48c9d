"""WSGI applications that hand ``write`` to threads of their own. PEP 3333 has no such thing: nothing may break by it."""

import os
import threading
import time

PLAIN = [("Content-Type", "application/octet-stream")]

#: Bytes of one write: more than the server keeps for a slow client, less than one call of the kernel takes.
PART_BYTES = 60_000
THREADS = 4
WRITES = 30

#: What writes were refused with, since the start.
refusals = set()


def part(number):
    return bytes([ord("a") + number]) * PART_BYTES


def write_whole(write, data):
    """Write, again and again while another thread is at it."""
    while True:
        try:
            return write(data)
        except RuntimeError as error:
            refusals.add(str(error))
            time.sleep(0.001)


def at_threads(start_response):
    write = start_response("200 OK", PLAIN)

    def work(number):
        for _ in range(WRITES):
            write_whole(write, part(number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [b"end"]


def at_left_behind(start_response):
    """The application returns while a thread of it is still writing."""
    write = start_response("200 OK", PLAIN)
    threading.Thread(target=write, args=(part(0) * 100,)).start()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            write(b"")
            time.sleep(0.001)
        except RuntimeError:
            # The thread is inside its call.
            break
    return [b"end"]


def at_refusals(start_response):
    start_response("200 OK", PLAIN)
    return [";".join(sorted(refusals)).encode()]


def at_pid(start_response):
    start_response("200 OK", PLAIN)
    return [str(os.getpid()).encode()]


def application(environ, start_response):
    return globals()["at_" + environ["PATH_INFO"].strip("/")](start_response)
