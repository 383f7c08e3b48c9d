"""The end of a process: code of the application that still runs gets a few seconds and is named in the log, then the process
exits.

A Python interpreter that ends waits without a limit for its threads, those of executors, and ``atexit`` functions. Must not know
applications. Runs in prototypes and workers.
"""

import _thread
import contextlib
import os
import sys
import threading
import time

from bolide import _native, log, threads

#: How long a process that has nothing more to serve waits for code of its application, in seconds. It is less than the time after
#: which the master kills the process (INTERPRETER_END_MS).
SHUTDOWN_SECONDS = 4

#: The same if the master waits for this end before workers can load the application, in seconds.
AWAITED_SECONDS = 1

#: The log lists what the process waits for after this time, in seconds.
WARN_AFTER_SECONDS = 0.5

#: Maximum number of threads that the log lists.
MAX_NAMES = 10

# The interpreter's own functions: the application may replace them (gevent does).
start_thread = _thread.start_new_thread
make_lock = _thread.allocate_lock
sleep = time.sleep

#: The application's function that runs at the worker's end, by its name for the log; None if none runs.
running_hook = None

#: The exit status of the process; None as long as it has work to do.
exit_status = None


def begin(status, is_awaited=False):
    """Begin the end of the process. The caller returns, and so do its callers, while the time runs.

    If the end is awaited, the process has served nothing: it exits soon, and logs nothing about code that still runs.
    """
    global exit_status
    has_begun = exit_status is not None
    exit_status = status
    if not has_begun:
        # An interpreter that ends frees the state of a thread that has not begun to run, and CPython's own start of the thread
        # then writes to it.
        runs = make_lock()
        runs.acquire()
        start_thread(leave_soon if is_awaited else watch, (runs,))
        runs.acquire(timeout=SHUTDOWN_SECONDS)


def watch(runs):
    """Enforce the time limit, in a thread that the interpreter does not wait for."""
    runs.release()
    sleep(WARN_AFTER_SECONDS)
    names = waited_for()
    if names:
        log.report([f"{subject()} has finished serving, waiting {SHUTDOWN_SECONDS} s for {names}"])
    sleep(SHUTDOWN_SECONDS - WARN_AFTER_SECONDS)
    left = waited_for() or "the application's work at the interpreter's end"
    log.report([f"{subject()} stops waiting for {left}"])
    leave()


def leave_soon(runs):
    runs.release()
    sleep(AWAITED_SECONDS)
    leave()


def leave():
    # If the application has closed or removed it, there is nothing to flush.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    _native.finish_log()
    os._exit(exit_status)


def subject():
    return "the process" if log.is_forked() else "the prototype"


def waited_for():
    """Return a description of what the interpreter waits for, or an empty string."""
    if running_hook:
        return running_hook
    own = {threading.main_thread(), *threads.OWN}
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread not in own]
    names = ", ".join(repr(thread.name) for thread in left[:MAX_NAMES])
    more = f" and {len(left) - MAX_NAMES} more" if len(left) > MAX_NAMES else ""
    return f"the application's threads: {names}{more}" if left else ""
