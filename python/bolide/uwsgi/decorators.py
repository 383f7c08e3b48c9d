"""The module ``uwsgidecorators`` that applications import, with the decorators that need no service.

It is registered beside ``uwsgi`` (see ``bolide.uwsgi.module``). Access to a missing name raises an error that explains it.
Runs in every process that loads an application.
"""

import functools
import sys
import threading

from bolide.uwsgi.mule_decorators import (
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
from bolide.uwsgi.postfork import postfork_chain
from bolide.uwsgi.spool import spool, spoolforever, spoolraw

# `from uwsgidecorators import *` imports the module `uwsgi` too, as with uWSGI's file.
__all__ = [
    "cron",
    "farm",
    "farm_loop",
    "filemon",
    "get_free_signal",
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
    "rbtimer",
    "rpc",
    "signal",
    "spool",
    "spoolforever",
    "spoolraw",
    "thread",
    "timer",
    "uwsgi",  # noqa: F822
]

#: Decorators of uWSGI that need a service.
LATER = frozenset(
    {
        "erlang",
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


def get_free_signal():
    """Return the lowest number of a signal that has no handler."""
    uwsgi = sys.modules["uwsgi"]
    for number in range(256):
        if not uwsgi.signal_registered(number):
            return number
    raise Exception("No free uwsgi signal available")


def signal(number, **named):
    """Have a function run at this signal, in the processes of ``target``."""

    def decorate(function):
        sys.modules["uwsgi"].register_signal(number, named.get("target", ""), function)
        return function

    return decorate


def raised_by(register, named):
    """Return a decorator for a function whose signal the master raises. ``register`` tells the master when."""

    def decorate(function):
        number = named["signum"] if "signum" in named else get_free_signal()
        sys.modules["uwsgi"].register_signal(number, named.get("target", ""), function)
        register(sys.modules["uwsgi"], number)
        return function

    return decorate


def timer(seconds, **named):
    """Have a function run again and again, after this number of seconds, in one worker or in the processes of ``target``."""
    return raised_by(lambda uwsgi, number: uwsgi.add_timer(number, seconds), named)


def rbtimer(seconds, **named):
    """Like ``timer``; the seconds count from each time that it fires."""
    return raised_by(lambda uwsgi, number: uwsgi.add_rb_timer(number, seconds), named)


def cron(minute, hour, day, month, dayweek, **named):
    """Have a function run at these times of the day; -1 means every."""
    return raised_by(lambda uwsgi, number: uwsgi.add_cron(number, minute, hour, day, month, dayweek), named)


def filemon(path, **named):
    """Have a function run when this file, or a file in this directory, changes."""
    return raised_by(lambda uwsgi, number: uwsgi.add_file_monitor(number, path), named)


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
