"""Functions of the application that a worker calls at its start and at its end.

They come from the options ``post-fork`` and ``worker-exit``, from ``uwsgidecorators``, and from attributes that the application
has set on the module ``uwsgi``. They are looked up where the application is loaded, and run in workers.
"""

import importlib

from bolide import log, shutdown
from bolide.loading.load import LoadError
from bolide.uwsgi.postfork import postfork_chain


class Hooks:
    """The functions. :meth:`look_up` finds them."""

    def __init__(self, described, uwsgi):
        self.described = described
        self.uwsgi = uwsgi
        self.post_fork = []
        self.worker_exit = []

    def look_up(self):
        """Import the functions that the options name. Raises LoadError."""
        self.post_fork = [(f"post-fork = {named['name']}", find(named)) for named in self.described["post_fork"]]
        self.worker_exit = [(f"worker-exit = {named['name']}", find(named)) for named in self.described["worker_exit"]]

    def begin_worker(self):
        """The worker has the application and is about to serve."""
        for name, function in self.functions_of_fork():
            call(name, function)

    def functions_of_fork(self):
        """Return the functions for a new process, each with its name."""
        functions = list(self.post_fork)
        functions += [(f"uwsgidecorators.postfork ({name_of(function)})", function) for function in postfork_chain]
        return functions + self.of_module("post_fork_hook")

    def end_worker(self):
        """Every request is answered. The end of the process has begun, and ``shutdown`` bounds its time."""
        for name, function in self.worker_exit + self.of_module("atexit"):
            shutdown.running_hook = name
            call(name, function)
        shutdown.running_hook = None

    def of_module(self, name):
        function = self.uwsgi.hook(name)
        return [(f"uwsgi.{name}", function)] if function else []


def call(name, function):
    """Call one function. Its exception is logged and has no other effect."""
    try:
        function()
    except BaseException as error:
        # Also SystemExit: such a function does not decide when the worker exits.
        log.log_exception(error, name)


def call_named(name, argument, counts_answer):
    """Call the function of a hook, ``module:name`` or ``module.name``. Return the reason of its failure, or None. A traceback is
    logged.

    With ``counts_answer`` a returned number other than 0 is a failure too, as with uWSGI's ``callret``.
    """
    if ":" not in name:
        name = ":".join(name.rsplit(".", 1))
    try:
        answer = find({"name": name, "origin": "the hook"})(*([] if argument is None else [argument]))
    except LoadError as error:
        return str(error)
    except BaseException as error:
        # Also SystemExit: the caller decides whether the process goes on.
        log.log_exception(error, f"the hook {name}")
        return f"{type(error).__name__}: {error}"
    if counts_answer and isinstance(answer, int) and answer != 0:
        return f"{name} returned {answer}"
    return None


def name_of(function):
    return getattr(function, "__qualname__", repr(function))


def find(named):
    """Import the function that an option names."""
    module_name, _, path = named["name"].partition(":")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise LoadError(f"{named['origin']}: there is no module {module_name!r} for the function {named['name']!r}") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise LoadError(f"{named['origin']}: {module_name!r} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise LoadError(f"{named['origin']}: {named['name']!r} is a {type(found).__name__}, which can't be called")
    return found
