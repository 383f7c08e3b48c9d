"""What a worker writes to the log: ``wsgi.errors``, and exceptions of applications.

All output is written as whole lines by the log writer of the native module. So lines of several workers do not mix, and no thread
waits for a reader of the log. In JSON each event is one object (docs/json-logging.md). Must not know where the log goes. Runs in
prototypes and workers.
"""

import importlib
import os
import threading
import traceback

from bolide import _native

#: The number of this worker; set once, after the fork.
worker = 0

#: The name of this helper; set once, after the fork.
helper = ""

#: Called with each exception of the application that is logged while the worker serves, or None.
after_exception = None

#: An unfinished line is written when it has this many characters.
LONGEST_LINE = 8192


#: Maximum number of exceptions of a chain that are examined.
MAX_CHAIN = 20

#: Prefixes of files whose frames lead to an application's code and do not belong to it.
OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)


#: There is a single worker, so lines need no worker number.
is_alone = False


def is_forked():
    """Return whether this process is a worker or a helper."""
    return bool(worker or helper)


def prefix():
    if helper:
        return f"{helper}: "
    return f"worker {worker}: " if worker and not is_alone else ""


def name_process(number, name=""):
    """Say once, after the fork, which worker or helper this process is."""
    global worker, helper
    worker, helper = number, name
    _native.name_log(number, name)


def write_lines(lines):
    """Write whole lines of the application to the log, each with the worker's number."""
    _native.write_output(prefixed(lines))


def report(lines):
    """Log one event of the server, such as a message and a stack: the first line begins with the time, or all are one JSON
    object."""
    _native.report_log(prefixed(lines))


def prefixed(lines):
    start = prefix()
    return "".join(f"{start}{line}\n" for line in lines).encode("utf-8", "backslashreplace")


class Errors:
    """``wsgi.errors``: a text stream to the log. Threads may share it; each has its own unfinished line."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self):
        self.separate_lines()

    def separate_lines(self):
        """Give each thread a line of its own, or each greenlet where gevent has replaced ``threading.local``."""
        self._unfinished = threading.local()

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"wsgi.errors takes str, not {type(text).__name__}")
        *lines, rest = (getattr(self._unfinished, "text", "") + text).split("\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = ""
        self._unfinished.text = rest
        if lines:
            write_lines(lines)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        rest = getattr(self._unfinished, "text", "")
        if rest:
            self._unfinished.text = ""
            write_lines([rest])

    def isatty(self):
        return False

    def writable(self):
        return True

    def readable(self):
        return False


errors = Errors()


def strip(exception):
    """Remove the leading frames that are ours from the tracebacks of an exception and of its causes."""
    for _ in range(MAX_CHAIN):
        if exception is None:
            break
        traceback = exception.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(OURS):
            traceback = traceback.tb_next
        exception.__traceback__ = traceback
        exception = exception.__cause__ or exception.__context__


def log_exception(exception, place, is_ours=False, request=None):
    """Log an application's exception with its traceback.

    ``place`` is where it happened, as in ``GET /path``. ``request`` is the request's line and identifier, if it is one's.
    """
    if not is_ours:
        strip(exception)
    if not _native.log_is_json() or not log_exception_object(exception, place, request):
        report(lines_of_exception(exception, place))
    if after_exception is not None:
        after_exception(exception)


def lines_of_exception(exception, place):
    lines = [f"an exception in {place}"] if place else []
    for part in traceback.format_exception(type(exception), exception, exception.__traceback__):
        lines.extend(part.rstrip("\n").split("\n"))
    if lines and _native.log_is_colored():
        lines[0], lines[-1] = red(lines[0]), red(lines[-1])
    return lines


def log_exception_object(exception, place, request):
    """Log an exception as one JSON object. Return whether that was possible: its own methods may fail."""
    from bolide import log_objects

    try:
        described = log_objects.exception_of(exception)
        members = {"exception": described}
        if request is not None:
            members["request"] = log_objects.request_of(*request)
        message = f"{described['type']}: {described['message']}"
        log_objects.write("error", "exception", f"an exception in {place}: {message}" if place else message, members)
    except Exception:
        return False
    return True


def red(line):
    return f"\x1b[31m{line}\x1b[0m"


def log_message(message):
    """Log one line of the server about this process."""
    report([message])


def tell(message):
    """Log one line of the server itself, in the same form as those of other processes: ``bolide: worker 1: …``."""
    # Rust's strings can't hold a lone surrogate.
    _native.tell_log(f"{prefix()}{message}".encode("utf-8", "backslashreplace").decode())
