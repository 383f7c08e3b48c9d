"""The module ``uwsgidecorators`` that applications import: what of it works without the services that are not there yet.

Registered beside ``uwsgi`` (see ``uwsgi_module``). A name that is not here says where it belongs when it is asked for.
"""

import functools
import sys
import threading

# `from uwsgidecorators import *` gives programs the module `uwsgi` too, as uWSGI's file does.
__all__ = ["harakiri", "postfork", "thread", "uwsgi"]  # noqa: F822

#: Decorators of uWSGI's that need a service.
LATER = frozenset(
    {
        "cron",
        "erlang",
        "farm",
        "farm_loop",
        "filemon",
        "lock",
        "mule",
        "mule_brain",
        "mule_brainloop",
        "mulefunc",
        "muleloop",
        "mulemsg",
        "mulemsg_loop",
        "rbtimer",
        "rpc",
        "signal",
        "spool",
        "spoolforever",
        "spoolraw",
        "timer",
    }
)

#: Functions that each worker calls before it serves, in the order in which they were decorated.
postfork_chain = []


def postfork(function):
    """Have each worker call the function before it serves; ``@postfork(2)`` has worker 2 alone call it."""
    if callable(function):
        postfork_chain.append(function)
        return function
    worker = function

    def decorate(function):
        @functools.wraps(function)
        def of_one_worker():
            if sys.modules["uwsgi"].worker_id() == worker:
                function()

        postfork_chain.append(of_one_worker)
        return function

    return decorate


def thread(function):
    """Make a function that runs in a daemon thread. A call of it gives the function back, as uWSGI's does."""

    @functools.wraps(function)
    def start(*arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()
        return function

    return start


class harakiri:
    """Give a view so many seconds: ``@harakiri(30)``."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, function):
        @functools.wraps(function)
        def limited(*arguments, **named):
            uwsgi = sys.modules["uwsgi"]
            uwsgi.set_user_harakiri(self.seconds)
            try:
                return function(*arguments, **named)
            finally:
                uwsgi.set_user_harakiri(0)

        return limited


def __getattr__(name):
    if name == "uwsgi":
        return sys.modules["uwsgi"]
    if name in LATER:
        raise AttributeError(
            f"`uwsgidecorators.{name}` is not there yet: it comes with the services (spooler, mules, locks, signals)"
        )
    raise AttributeError(f"module 'uwsgidecorators' has no attribute {name!r}")
