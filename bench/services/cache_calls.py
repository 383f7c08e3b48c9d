"""The application that measures: CPU time of calls of `uwsgi.cache_*`, in a worker of Bolide or of uWSGI.

Each path is an operation and the number of processes that repeat it at the same time. It answers with nanoseconds a call, without
those of the empty loop. It must run unchanged in both servers.
"""

import os
import time

import uwsgi

CALLS = 200_000
ROUNDS = 5
SMALL, LARGE = b"x" * 100, b"x" * 4096
KEYS = [f"key {number}" for number in range(64)]

for _key in KEYS:
    uwsgi.cache_set(f"small {_key}", SMALL)
    uwsgi.cache_set(f"large {_key}", LARGE)
SMALL_KEYS, LARGE_KEYS = [f"small {key}" for key in KEYS], [f"large {key}" for key in KEYS]


def loop(function, keys, *arguments):
    """Returns nanoseconds of CPU time a call."""
    rounds = CALLS // len(keys)
    began = time.thread_time_ns()
    for _ in range(rounds):
        for key in keys:
            function(key, *arguments)
    return (time.thread_time_ns() - began) / (rounds * len(keys))


def nothing(keys):
    rounds = CALLS // len(keys)
    began = time.thread_time_ns()
    for _ in range(rounds):
        for _key in keys:
            pass
    return (time.thread_time_ns() - began) / (rounds * len(keys))


OPERATIONS = {
    "get-100": lambda: loop(uwsgi.cache_get, SMALL_KEYS),
    "get-4096": lambda: loop(uwsgi.cache_get, LARGE_KEYS),
    "miss": lambda: loop(uwsgi.cache_get, KEYS),
    "update-100": lambda: loop(uwsgi.cache_update, SMALL_KEYS, SMALL),
    "update-4096": lambda: loop(uwsgi.cache_update, LARGE_KEYS, LARGE),
    "inc": lambda: loop(uwsgi.cache_inc, ["counter"]),
}


def beside(operation, others):
    """Returns the median of an operation while other processes repeat it."""
    children = []
    for _ in range(others):
        child = os.fork()
        if child == 0:
            while True:
                operation()
        children.append(child)
    try:
        return sorted(operation() for _ in range(ROUNDS))[ROUNDS // 2]
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)


def application(environ, start_response):
    _, name, processes = environ["PATH_INFO"].split("/")
    empty = min(nothing(KEYS) for _ in range(ROUNDS))
    measured = beside(OPERATIONS[name], int(processes) - 1) - empty
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{measured:.0f}".encode()]
