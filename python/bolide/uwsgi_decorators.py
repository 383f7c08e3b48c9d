"""The module ``uwsgidecorators`` that applications import, with the decorators that need no service.

It is registered beside ``uwsgi`` (see ``uwsgi_module``). Access to a missing name raises an error that explains it. Runs in every
process that loads an application.
"""

import functools
import sys
import threading

from bolide.mule_decorators import (
    farm,
    farm_loop,
    mule,
    mule_brain,
    mule_brainloop,
    mule_functions,
    mule_msg_dispatcher,
    mulefunc,
    muleloop,
    mulemsg,
    mulemsg_loop,
    rpc,
)
from bolide.postfork import postfork_chain
from bolide.uwsgi_spool import spool, spoolforever, spoolraw

# `from uwsgidecorators import *` imports the module `uwsgi` too, as with uWSGI's file.
__all__ = [
    "farm",
    "farm_loop",
    "harakiri",
    "lock",
    "mule",
    "mule_brain",
    "mule_brainloop",
    "mule_functions",
    "mule_msg_dispatcher",
    "mulefunc",
    "muleloop",
    "mulemsg",
    "mulemsg_loop",
    "postfork",
    "postfork_chain",
    "rpc",
    "spool",
    "spoolforever",
    "spoolraw",
    "thread",
    "uwsgi",  # noqa: F822
]

#: Decorators of uWSGI that need a service.
LATER = frozenset(
    {
        "cron",
        "erlang",
        "filemon",
        "rbtimer",
        "signal",
        "timer",
    }
)


def lock(function):
    """Have one thread of the instance run the function at a time, under lock 0."""

    @functools.wraps(function)
    def locked(*arguments, **keywords):
        uwsgi = sys.modules["uwsgi"]
        uwsgi.lock()
        try:
            return function(*arguments, **keywords)
        finally:
            uwsgi.unlock()

    return locked


def postfork(function):
    """Have each worker call the function before it serves; with ``@postfork(2)``, worker 2 alone."""
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
    """Make a function run in a daemon thread. A call returns the function, as with uWSGI."""

    @functools.wraps(function)
    def start(*arguments):
        threading.Thread(target=function, args=arguments, daemon=True).start()
        return function

    return start


class harakiri:
    """Limit the time of a view, in seconds: ``@harakiri(30)``."""

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
            f"`uwsgidecorators.{name}` is not supported yet: it belongs to the services (spooler, mules, locks, signals)"
        )
    raise AttributeError(f"module 'uwsgidecorators' has no attribute {name!r}")
