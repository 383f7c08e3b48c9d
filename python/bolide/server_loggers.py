"""The loggers of the server in whose words Bolide is started: ``gunicorn.error``, ``uvicorn.access`` and their relatives.

Applications write to them, copy their handlers, and keep health probes out of the log with filters on the access logger. They are
made when ``logging`` is imported, so applications that don't import it pay nothing. The server writes request lines itself, until
a program changes an access logger: from then on each request is a record of that logger, and its line is written if the record
reaches the handler that is there by default. Must not know where the log goes. Runs in prototypes and workers.
"""

import os
import time

from bolide import _native, log
from bolide.loading.after_import import after_import

#: gunicorn's form of a line, and those of the other servers.
GUNICORN = ("%(asctime)s [%(process)d] [%(levelname)s] %(message)s", "[%Y-%m-%d %H:%M:%S %z]")
UVICORN = ("%(levelname)s:     %(message)s", None)
GRANIAN = ("[%(levelname)s] %(message)s", None)
#: The format of gunicorn's and hypercorn's access log, and of granian's.
COMMON_LOG = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s"'
GRANIAN_LOG = '[%(time)s] %(addr)s - "%(method)s %(path)s %(protocol)s" %(status)d %(dt_ms).3f'

#: Names that `--log-level` may have and Python's `logging` has not.
TRACE = {"trace": 5}

#: Attributes of loggers and handlers that decide about a record.
DECIDING = ("disabled", "filters", "handlers", "level", "propagate", "formatter", "filter", "handle", "emit", "isEnabledFor")


def install(described):
    """Make the loggers of these servers when the application imports ``logging``. ``described`` is of the settings."""
    after_import({"logging": lambda logging: ServerLoggers(logging, described)})


#: The loggers, if `logging` has been imported.
made = None


class ServerLoggers:
    """Makes the loggers, and passes requests to access loggers that have been changed."""

    def __init__(self, logging, described):
        global made
        made = self
        self.logging = logging
        self.classes = watched_classes(logging, self.note_change)
        self.has_passed = self.has_failed = False
        #: The access loggers: name, logger, and the function that makes message and arguments of its records.
        self.access = []
        #: True while the loggers are made.
        self.is_ready = False
        self.has_access = described["has_access"]
        level = str(described["level"] or "info").lower()
        level = TRACE.get(level) or (int(level) if level.isdigit() else getattr(logging, level.upper(), logging.INFO))
        for server in described["servers"]:
            SERVERS[server](self, level)
        self.is_ready = True

    def logger(self, name, level, form=None):
        """Make a logger for an application's records; with ``form``, one with a handler."""
        logger = self.logging.getLogger(name)
        logger.setLevel(level)
        if form is not None and not logger.handlers:
            handler = self.logging.StreamHandler(log.errors)
            handler.setFormatter(self.logging.Formatter(*form))
            logger.handlers = [handler]
            logger.propagate = False
        return logger

    def access_logger(self, name, form, record):
        """Make the logger whose filters, level and handlers act on request lines."""
        if not self.has_access:
            return
        manager = self.logging.Logger.manager
        usual = manager.loggerClass
        manager.loggerClass = self.classes["Logger"]
        try:
            logger = self.logging.getLogger(name)
        finally:
            manager.loggerClass = usual
        if type(logger) is self.logging.Logger:
            # The application has asked for it before.
            logger.__class__ = self.classes["Logger"]
        logger.setLevel(self.logging.INFO)
        handler = self.classes["Handler"](log.errors)
        handler.setFormatter(self.logging.Formatter(*form))
        handler.usual_formatter = handler.formatter
        logger.handlers = [handler]
        logger.propagate = False
        self.access.append(AccessLogger(logger, handler, record))

    def note_change(self, owner):
        """An access logger or its handler has been changed: requests are passed to it from now on."""
        if not self.is_ready:
            return
        for access in self.access:
            if owner is access.logger or owner is access.handler:
                access.is_changed = True
        self.pass_requests()

    def pass_requests(self):
        if not self.has_passed:
            self.has_passed = True
            _native.judge_requests(self.judge)

    def open_for_file(self):
        """A ``log-config`` replaces the server's own configuration: loggers in it propagate unless it says otherwise."""
        self.is_ready = False
        for access in self.access:
            access.logger.propagate = True
        self.is_ready = True

    def close_after_file(self):
        """Loggers that the file leaves alone keep their handler, and don't propagate."""
        self.is_ready = False
        for access in self.access:
            if access.handler in access.logger.handlers:
                access.logger.propagate = False
        self.is_ready = True

    def note_loaded(self):
        """The application has been loaded."""
        if self.access and self.logging.root.manager.disable >= self.logging.INFO:
            self.pass_requests()

    def judge(self, request):
        """Pass a request to the access loggers. Return whether its line is to be written."""
        try:
            return self.decide(request)
        except Exception as error:
            if not self.has_failed:
                self.has_failed = True
                log.log_exception(error, "a filter or handler of an access logger (later ones are not logged)")
            return True

    def decide(self, request):
        if self.logging.root.manager.disable >= self.logging.INFO:
            return False
        changed = [access for access in self.access if access.is_changed]
        asked = [access for access in changed if not access.logger.disabled]
        if not asked:
            # The usual loggers of other servers, which the same words start, say nothing against a disabled one.
            return not changed
        # Each logger gets its record, whatever the others say.
        taken = [access.takes(self.logging, request) for access in asked]
        return False not in taken


class AccessLogger:
    def __init__(self, logger, handler, record):
        self.logger = logger
        self.handler = handler
        self.record = record
        self.is_changed = False

    def takes(self, logging, request):
        """Handle a request as a record. Return whether it has reached the usual handler."""
        if not self.logger.isEnabledFor(logging.INFO):
            return False
        message, arguments = self.record(request)
        reached = []
        record = self.logger.makeRecord(
            self.logger.name, logging.INFO, "(server)", 0, message, arguments, None, "", {"request_has_reached": reached}
        )
        self.logger.handle(record)
        return bool(reached)


def watched_classes(logging, note_change):
    """Return a logger and a handler that report each change of what decides about a record."""

    class WatchedList(list):
        def __init__(self, owner, items):
            super().__init__(items)
            self.owner = owner

    def watched(name):
        method = getattr(list, name)

        def change(self, *arguments, **named):
            result = method(self, *arguments, **named)
            note_change(self.owner)
            return self if name == "__iadd__" else result

        return change

    for name in (
        "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__setitem__", "__delitem__", "__iadd__"
    ):  # fmt: skip
        setattr(WatchedList, name, watched(name))

    class Watched:
        def __setattr__(self, name, value):
            if name in ("filters", "handlers") and type(value) is list:
                value = WatchedList(self, value)
            super().__setattr__(name, value)
            if name in DECIDING or name == "stream":
                note_change(self)

    class Logger(Watched, logging.Logger):
        """An access logger."""

    class Handler(Watched, logging.StreamHandler):
        """The usual handler of an access logger: the server writes the line of a request that reaches it."""

        usual_formatter = None

        def emit(self, record):
            reached = getattr(record, "request_has_reached", None)
            if reached is not None and self.formatter is self.usual_formatter and self.stream is log.errors:
                reached.append(True)
                return
            super().emit(record)

    return {"Logger": Logger, "Handler": Handler}


class Atoms(dict):
    """The values of an access log's format; what is not known is a dash, as in gunicorn."""

    def __missing__(self, name):
        return "-"


def common_atoms(request):
    address, method, target, protocol, status, size, microseconds = request
    path, _, query = target.partition("?")
    return Atoms(
        h=address,
        t=time.strftime("[%d/%b/%Y:%H:%M:%S %z]"),
        r=f"{method} {target} {protocol}",
        m=method,
        U=path,
        q=query,
        H=protocol,
        s=str(status),
        st="",
        S="http",
        B=size,
        b=str(size) if size else "-",
        T=microseconds // 1_000_000,
        M=microseconds // 1000,
        D=microseconds,
        L=f"{microseconds / 1_000_000:.6f}",
        p=f"<{os.getpid()}>",
    )


def common_record(request):
    return COMMON_LOG, (common_atoms(request),)


def uvicorn_record(request):
    address, method, target, protocol, status, _, _ = request
    return '%s - "%s %s HTTP/%s" %d', (address, method, target, protocol.partition("/")[2], status)


def granian_record(request):
    address, method, target, protocol, status, _, microseconds = request
    path, _, query = target.partition("?")
    values = {
        "addr": address,
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "dt_ms": microseconds / 1000,
        "status": status,
        "path": path,
        "query_string": query,
        "method": method,
        "scheme": "http",
        "protocol": protocol,
    }
    return GRANIAN_LOG, (values,)


def make_gunicorn(loggers, level):
    loggers.logger("gunicorn.error", level, GUNICORN)
    loggers.access_logger("gunicorn.access", GUNICORN, common_record)


def make_uvicorn(loggers, level):
    loggers.logger("uvicorn", level, UVICORN)
    loggers.logger("uvicorn.error", level)
    loggers.logger("uvicorn.asgi", level)
    loggers.access_logger("uvicorn.access", UVICORN, uvicorn_record)


def make_hypercorn(loggers, level):
    loggers.logger("hypercorn", level, GUNICORN)
    loggers.logger("hypercorn.error", level, GUNICORN)
    loggers.access_logger("hypercorn.access", GUNICORN, common_record)


def make_granian(loggers, level):
    loggers.logger("granian", level, GRANIAN)
    loggers.logger("_granian", level, GRANIAN)
    loggers.access_logger("granian.access", GRANIAN, granian_record)


#: By the names of the settings.
SERVERS = {"gunicorn": make_gunicorn, "uvicorn": make_uvicorn, "hypercorn": make_hypercorn, "granian": make_granian}


def note_loaded():
    if made is not None:
        made.note_loaded()


def around_file(apply):
    """Apply a ``log-config``. Its loggers exist before."""
    import logging  # noqa: F401

    if made is None:
        return apply()
    made.open_for_file()
    apply()
    made.close_after_file()
