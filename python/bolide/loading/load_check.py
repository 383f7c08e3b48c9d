"""The load check of ``bolide check --load``: imports the applications as a prototype does, and serves nothing.

It reads what to load from standard input, and writes the result as one line of JSON to the descriptor that was standard output.
It must not know sockets, or a master. A child of the command runs it.
"""

import faulthandler
import json
import linecache
import os
import sys
import sysconfig
import traceback

#: Maximum number of characters of a failure's description: the reader accepts lines of bounded length.
MAX_REASON_CHARACTERS = 4000


def main(half):
    """Load the applications and report. Return the exit status."""
    order = json.load(sys.stdin)
    report = take_over()
    failures = []
    # For an exception that is logged with a traceback, the report contains its place too.
    half.log.after_exception = failures.append
    # A load that hangs writes its stack and exits.
    faulthandler.dump_traceback_later(order["limit_ms"] / 1000, exit=True)
    half.prepare(order["boot"])
    reloading = half.settings["reloading"]
    # They are made when the application is loaded, and show what a worker opens.
    warmup, reloading["warmup"] = reloading["warmup"], []
    directory = os.getcwd()
    reason = half.load() or half.load_urlconf()
    said = {"reason": reason and reason[:MAX_REASON_CHARACTERS]}
    if not reason and half.settings["recycling"]["refork_after"]:
        reloading["warmup"] = warmup
        said["held"] = [line[:MAX_REASON_CHARACTERS] for line in half.rehearse_fork()]
    faulthandler.cancel_dump_traceback_later()
    if reason and failures:
        said.update(place(failures[-1], directory))
    os.write(report, json.dumps(said).encode() + b"\n")
    os.close(report)
    return 1 if reason else 0


def take_over():
    """Reserve standard output for the report, and return its descriptor. Output of the application goes to standard error, and
    its input is empty.
    """
    report = os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return report


def place(error, directory):
    """Return the file and line of an exception, and the source line: the last frame outside of libraries, or else the first
    frame.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return described(error.filename, error.lineno or 1, directory)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)]
    if not frames:
        return {}
    frame = own[-1] if own else frames[0]
    return described(frame.filename, frame.lineno, directory)


def described(filename, line, directory):
    text = linecache.getline(filename, line).rstrip("\n")
    path = os.path.abspath(os.path.join(directory, filename))
    below = os.path.relpath(path, directory)
    return {"file": path if below.startswith("..") else below, "line": line, "text": text}


def is_library(filename):
    """Return whether a file belongs to Python or to an installed package."""
    if filename.startswith("<"):
        return True
    directories = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    path = os.path.abspath(filename)
    return any(directory and path.startswith(directory + os.sep) for directory in directories)
