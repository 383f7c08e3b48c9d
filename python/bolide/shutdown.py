"""The end of a process: what the application has left running in it gets a few seconds, by name, and then the process leaves.

An interpreter that ends waits for its threads, for those of executors, and for ``atexit`` functions, however long they take.
Must not know applications. Runs in prototypes and workers.
"""

import _thread
import contextlib
import os
import sys
import threading
import time

from bolide import _native, log, threads

#: How long a process that has nothing more to serve waits for what its application has left running, in seconds. Less than the
#: time after which the master kills it (INTERPRETER_END_MS).
SHUTDOWN_SECONDS = 4

#: The same where the master waits for this end before workers can load the application.
AWAITED_SECONDS = 1

#: It says who it waits for when it has waited for so long, in seconds.
WARN_AFTER_SECONDS = 0.5

#: Threads that the log names.
NAMES_MOST = 10

# Those of the interpreter itself: the application may put its own in their place (gevent does).
start_thread = _thread.start_new_thread
make_lock = _thread.allocate_lock
sleep = time.sleep

#: The function of the application's that runs at the worker's end, in words; None as long as there is none.
running_hook = None

#: With which the process leaves; None as long as it has something to do.
exit_status = None


def begin(status, is_awaited=False):
    """Begin the process' end: the caller returns, and so does whoever called it, while the time runs.

    One that is awaited has served nothing and leaves soon, without a word of what goes on in it.
    """
    global exit_status
    has_begun = exit_status is not None
    exit_status = status
    if not has_begun:
        # An interpreter that ends frees the state of a thread that has not begun to run, and CPython's own start of the thread
        # then writes there.
        runs = make_lock()
        runs.acquire()
        start_thread(leave_soon if is_awaited else watch, (runs,))
        runs.acquire(timeout=SHUTDOWN_SECONDS)


def watch(runs):
    """Look at the clock, in a thread for which nobody waits."""
    runs.release()
    sleep(WARN_AFTER_SECONDS)
    names = waited_for()
    if names:
        log.write_lines([f"{subject()} has nothing more to serve, and waits {SHUTDOWN_SECONDS} s for {names}"])
    sleep(SHUTDOWN_SECONDS - WARN_AFTER_SECONDS)
    left = waited_for() or "what the application does at the interpreter's end"
    log.write_lines([f"{subject()} does not wait any longer, and leaves {left} behind"])
    leave()


def leave_soon(runs):
    runs.release()
    sleep(AWAITED_SECONDS)
    leave()


def leave():
    # Closed, or taken away by the application: then there is nothing to flush.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    _native.finish_log()
    os._exit(exit_status)


def subject():
    return "the process" if log.worker else "bolide: the prototype"


def waited_for():
    """Return who the interpreter waits for, in words; nothing if there is nobody."""
    if running_hook:
        return running_hook
    own = {threading.main_thread(), *threads.OWN}
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread not in own]
    names = ", ".join(repr(thread.name) for thread in left[:NAMES_MOST])
    more = f" and {len(left) - NAMES_MOST} more" if len(left) > NAMES_MOST else ""
    return f"the application's threads: {names}{more}" if left else ""
