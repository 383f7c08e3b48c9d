"""The decorators ``spool``, ``spoolraw`` and ``spoolforever`` of ``uwsgidecorators``, and the function that spoolers call.

A job names its function and has pickled arguments, as in uWSGI, so either server works on the jobs of the other. Must not know
how a job is stored. Runs in every process that loads an application.
"""

import functools
import pickle
import sys

#: The decorated functions, by their names: a spooler finds them in its own application.
functions = {}

#: Arguments that `uwsgi.spool` gets even if all others go to the function.
OF_THE_JOB = ("message_dict", "spooler", "priority", "at", "body")


class SpoolRaw:
    """A decorated function: a call writes a job. The function's result decides whether the job is done."""

    result = None

    def __init__(self, function, pass_arguments):
        uwsgi = sys.modules["uwsgi"]
        name = type(self).__name__.lower()
        if not {"spooler", "spooler-external"} & set(uwsgi.opt):
            raise Exception(f"you have to enable the uWSGI spooler to use @{name} decorator")
        functools.update_wrapper(self, function)
        self.f = function
        self.pass_arguments = pass_arguments
        if not functions:
            uwsgi.spooler = work_on
        functions[function.__name__] = function
        # Programs for old versions of uWSGI call this.
        function.spool = self.__call__

    def __call__(self, *arguments, **named):
        job = {"ud_spool_func": self.f.__name__}
        if self.result is not None:
            job["ud_spool_ret"] = str(getattr(sys.modules["uwsgi"], self.result))
        if self.pass_arguments:
            job.update({name: named.pop(name) for name in OF_THE_JOB if name in named})
            job.update({"args": pickle.dumps(arguments), "kwargs": pickle.dumps(named)})
        else:
            job.update(arguments[0] if arguments else {})
            job.update(named)
        return sys.modules["uwsgi"].spool({encoded(name): encoded(value) for name, value in job.items()})

    def spool(self, *arguments, **named):
        return self(*arguments, **named)


class Spool(SpoolRaw):
    """The job is done when the function returns, whatever its result."""

    result = "SPOOL_OK"


class SpoolForever(SpoolRaw):
    """The job is repeated each time that the spooler looks for jobs."""

    result = "SPOOL_RETRY"


def decorator(kind):
    def decorate(f=None, pass_arguments=False):
        if f is None:
            return functools.partial(kind, pass_arguments=pass_arguments)
        return kind(f, pass_arguments)

    return decorate


spool, spoolraw, spoolforever = decorator(Spool), decorator(SpoolRaw), decorator(SpoolForever)


def work_on(job):
    """Call the decorated function of a job. This is `uwsgi.spooler` of an application with decorated functions."""
    job = {decoded(name): value for name, value in job.items()}
    has_arguments = "args" in job
    arguments, named = (pickle.loads(job.pop("args")), pickle.loads(job.pop("kwargs"))) if has_arguments else ((), {})
    job = {name: decoded(value) for name, value in job.items()}
    function = functions[job["ud_spool_func"]]
    result = function(*arguments, **named) if has_arguments else function(job)
    return int(job.get("ud_spool_ret", result))


def encoded(value):
    return value.encode() if isinstance(value, str) else value


def decoded(value):
    """Return bytes as text. Bytes that are not text stay bytes."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value
