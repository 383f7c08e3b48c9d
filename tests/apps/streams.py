"""Long responses, for slow clients; reports its progress."""

import os
import sys
import tempfile
import threading
import time

PLAIN = [("Content-Type", "application/octet-stream")]
MEGABYTE = bytes(range(256)) * 4096

#: Bytes that generators have yielded so far.
given = 0


def parts(total, size):
    global given
    for start in range(0, total, size):
        part = MEGABYTE[: min(size, total - start)]
        given += len(part)
        yield part


class Told:
    """Logs its close()."""

    def __init__(self, iterable, name):
        self.iterable = iterable
        self.name = name

    def __iter__(self):
        return iter(self.iterable)

    def close(self):
        print(f"closed {self.name}", file=sys.stderr, flush=True)


def at_fine(total, query):
    return [b"fine"]


def at_given(total, query):
    return [str(given).encode()]


def at_pid(total, query):
    return [str(os.getpid()).encode()]


def at_large_parts(total, query):
    return Told(parts(total, 100_000), query)


def at_small_parts(total, query):
    return Told(parts(total, 1000), query)


def at_one_part(total, query):
    return [MEGABYTE * (total // len(MEGABYTE))]


def at_sleep_seconds(total, query):
    print(f"sleeps {query}", file=sys.stderr, flush=True)
    time.sleep(int(query))
    return [b"slept"]


counts = {"closed": 0}


class Counting:
    """Counts the parts that it yields, by the name of its client."""

    def __init__(self, total, name):
        self.total = total
        self.name = name
        counts[name] = 0

    def __iter__(self):
        for part in parts(self.total, 1024):
            counts[self.name] += 1
            yield part

    def close(self):
        counts["closed"] += 1


def at_counting(total, query):
    return Counting(total, query.partition("&")[2])


def at_counted(total, query):
    return [str(counts.get(query.partition("&")[2], 0)).encode()]


blocked = threading.Event()


def at_block(total, query):
    blocked.wait(60)
    return [b"unblocked"]


def at_unblock(total, query):
    blocked.set()
    return [b"fine"]


def application(environ, start_response):
    name = environ["PATH_INFO"].strip("/")
    query = environ["QUERY_STRING"]
    total = int(query.split("&")[0] or 0) * len(MEGABYTE)
    environ["wsgi.input"].read()
    if name == "file":
        file = tempfile.TemporaryFile()  # noqa: SIM115 (the sender closes it)
        for _ in range(total // len(MEGABYTE)):
            file.write(MEGABYTE)
        file.seek(0)
        start_response("200 OK", PLAIN)
        return environ["wsgi.file_wrapper"](file)
    answer = globals()["at_" + name](total, query)
    start_response("200 OK", PLAIN)
    return answer
