"""WSGI applications that call ``write`` from their own threads. PEP 3333 does not provide for that: nothing may break."""

import os
import threading
import time

PLAIN = [("Content-Type", "application/octet-stream")]

#: Bytes of one write: more than the server buffers for a slow client, less than one system call accepts.
PART_BYTES = 60_000
THREADS = 4
WRITES = 30

#: Exceptions of refused writes since startup.
refusals = set()


def part(number):
    return bytes([ord("a") + number]) * PART_BYTES


def write_whole(write, data):
    """Writes repeatedly while another thread does the same."""
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
    """The application returns while one of its threads is still writing."""
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
