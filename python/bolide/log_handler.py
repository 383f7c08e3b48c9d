"""A handler of Python's ``logging`` for applications: ``bolide.LogHandler``.

Must not know where the log goes. Runs in prototypes and workers.
"""

import logging

from bolide import _native, log, log_objects

#: Maximum number of additional fields of a record.
MAX_FIELDS = 50

#: The levels of ``logging``, the highest first.
LEVELS = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"))

#: Attributes that every record has.
OF_RECORDS = frozenset([*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"])


class LogHandler(logging.Handler):
    """A handler of ``logging`` that writes each record as one event: an object with ``log-json``, otherwise formatted lines."""

    def emit(self, record):
        try:
            if _native.log_is_json():
                log_objects.write(level_of(record.levelno), "log", record.getMessage(), members_of(record))
            else:
                log.write_lines(self.format(record).split("\n"))
        except Exception:
            self.handleError(record)


def level_of(number):
    return next((name for least, name in LEVELS if number >= least), "debug")


def members_of(record):
    members = {"logger": record.name}
    if record.exc_info and isinstance(record.exc_info[1], BaseException):
        members["exception"] = log_objects.exception_of(record.exc_info[1])
    if record.stack_info:
        members["lines"] = record.stack_info.split("\n")
    fields = {name: value for name, value in vars(record).items() if name not in OF_RECORDS}
    if fields:
        members["fields"] = {name: log_objects.plain(value) for name, value in list(fields.items())[:MAX_FIELDS]}
    return members
