"""What a worker says in the log: ``wsgi.errors``, and applications' exceptions.

Everything is written as whole lines, by the one writer of the log that Rust has too: the lines of several workers don't mix,
and nobody waits for a reader of the log.
"""

import importlib
import os
import threading
import traceback

from bolide import _native

#: The number of this worker; set once, after the fork.
worker = 0

#: Called with each exception of the application's that was logged while it serves; None where nobody wants to know.
after_exception = None

#: A line without an end is written when it has this many characters.
LONGEST_LINE = 8192


#: Exceptions of a chain that are looked at, at the most.
CHAIN_MOST = 20

#: Beginnings of the names of files that lead to an application's code, and are none of it.
OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)


#: There is no other worker whose lines could be meant.
is_alone = False


def prefix():
    return f"worker {worker}: " if worker and not is_alone else ""


def write_lines(lines):
    """Write complete lines to the log, each with the worker's number."""
    start = prefix()
    text = "".join(f"{start}{line}\n" for line in lines)
    _native.write_log(text.encode("utf-8", "backslashreplace"))


class Errors:
    """``wsgi.errors``: a text stream to the log. Threads may share it; each has its own unfinished line."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self):
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
    """Have the tracebacks of an exception, and of those that led to it, begin in the application: the way there is ours."""
    for _ in range(CHAIN_MOST):
        if exception is None:
            break
        traceback = exception.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(OURS):
            traceback = traceback.tb_next
        exception.__traceback__ = traceback
        exception = exception.__cause__ or exception.__context__


def log_exception(exception, place, is_ours=False):
    """Log an application's exception with its traceback; ``place`` is the request, as in ``GET /path``."""
    if not is_ours:
        strip(exception)
    lines = [f"an exception in {place}"] if place else []
    for part in traceback.format_exception(type(exception), exception, exception.__traceback__):
        lines.extend(part.rstrip("\n").split("\n"))
    if lines and _native.log_is_coloured():
        lines[0], lines[-1] = red(lines[0]), red(lines[-1])
    write_lines(lines)
    if after_exception is not None:
        after_exception(exception)


def red(line):
    return f"\x1b[31m{line}\x1b[0m"


def log_message(message):
    """Log one line."""
    write_lines([message])


def tell(message):
    """Log one line of the server's own, in the form that such lines have wherever they come from: ``bolide: worker 1: …``."""
    # Text with a half of a surrogate pair is none for Rust.
    _native.tell_log(f"{prefix()}{message}".encode("utf-8", "backslashreplace").decode())
