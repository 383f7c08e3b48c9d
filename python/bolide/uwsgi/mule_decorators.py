"""The decorators of ``uwsgidecorators`` for mules and for calls by name.

Must not know how messages travel. Runs in every process that loads an application.
"""

import functools
import pickle
import sys

from bolide import log
from bolide.uwsgi.postfork import postfork_chain

#: The functions that other processes call in a mule, by their names.
mule_functions = {}

#: The mark of a message that calls one of them, as in uWSGI.
SERVICE = "uwsgi_mulefunc"


def module():
    """Return the module ``uwsgi`` of the application."""
    return sys.modules["uwsgi"]


class mulefunc:
    """Have calls of a function run in a mule: ``@mulefunc`` in any, ``@mulefunc(2)`` in one, ``@mulefunc("farm")`` in a farm's.

    A call returns whether the message is in the queue.
    """

    def __init__(self, function):
        # Without a function of the application's own.
        if "mule_msg_hook" not in vars(module()):
            module().mule_msg_hook = mule_msg_dispatcher
        self.fname, self.mule = None, 0
        if callable(function):
            self.register(function)
        else:
            self.mule = function

    def register(self, function):
        self.fname = function.__name__
        mule_functions[self.fname] = function
        functools.update_wrapper(self, function)

    def real_call(self, *arguments, **named):
        call = {"service": SERVICE, "func": self.fname, "args": arguments, "kwargs": named}
        return module().mule_msg(pickle.dumps(call), self.mule)

    def __call__(self, *arguments, **named):
        if self.fname is None:
            self.register(arguments[0])
            return self.real_call
        return self.real_call(*arguments, **named)


def mule_msg_dispatcher(message):
    """In a mule: call the function whose name is in a message."""
    call = pickle.loads(message)
    if call["service"] == SERVICE:
        return mule_functions[call["func"]](*call["args"], **call["kwargs"])
    return None


class mule_brain:
    """Calls a function in the mule of a number. An exception ends the mule, which is started again."""

    def __init__(self, function, number):
        self.f = function
        self.num = number
        functools.update_wrapper(self, function)

    def __call__(self):
        if module().mule_id() == self.num:
            self.run()

    def run(self):
        try:
            self.f()
        except Exception as error:
            log.log_exception(error, f"@mule ({self.f.__qualname__})")
            raise SystemExit(1) from None


class mule_brainloop(mule_brain):
    """Calls it again and again."""

    def __call__(self):
        if module().mule_id() == self.num:
            while True:
                self.run()


class mulemsg_loop(mule_brain):
    """Calls a function with each message to the mule of a number."""

    def __call__(self):
        if module().mule_id() == self.num:
            while True:
                take(self.f, module().mule_get_msg())


class farm_loop:
    """Calls a function with each message to a farm."""

    def __init__(self, function, farm):
        self.f = function
        self.farm = farm
        functools.update_wrapper(self, function)

    def __call__(self):
        if module().mule_id() and module().in_farm(self.farm):
            while True:
                take(self.f, module().farm_get_msg())


def take(function, message):
    """Call a function with a message. Its exception concerns this message alone."""
    if message:
        try:
            function(message)
        except Exception as error:
            log.log_exception(error, f"a message for {function.__qualname__}")


class mule:
    """Have the mule of a number run a function: ``@mule(1)``."""

    brain = mule_brain

    def __init__(self, number):
        self.num = number

    def __call__(self, function):
        postfork_chain.append(self.brain(function, self.num))
        return function


class muleloop(mule):
    """Have the mule of a number run a function again and again."""

    brain = mule_brainloop


class mulemsg(mule):
    """Have the mule of a number run a function with each message to it."""

    brain = mulemsg_loop


class farm:
    """Have the mules of a farm run a function with each message to it: ``@farm("mail")``."""

    def __init__(self, name=None, **_):
        self.name = name

    def __call__(self, function):
        postfork_chain.append(farm_loop(function, self.name))
        return function


class rpc:
    """Register a function by a name, for ``uwsgi.rpc`` and ``uwsgi.call``."""

    def __init__(self, name):
        self.name = name

    def __call__(self, function):
        module().register_rpc(self.name, function)
        return function
