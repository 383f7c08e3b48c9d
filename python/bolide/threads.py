"""The further threads of a worker: Python's own, so that names, ``threading.enumerate()``, thread-local data and debuggers are as
an application expects.

Must not know what they run. Imported before the application, which may put something else in the place of threads.
"""

import _thread
import threading
import weakref


def starters():
    """Return the functions that ``threading`` starts threads with, whatever their names are in this Python."""
    return [getattr(threading, name, None) for name in ("_start_new_thread", "_start_joinable_thread")]


#: Those of the interpreter itself.
NATIVE = starters()
start_native = _thread.start_new_thread

#: The worker's own further threads, for which the interpreter does not wait.
OWN = weakref.WeakSet()


#: Bytes of the stack of each of them; 0 is the system's (``thread-stack-size``).
stack_bytes = 0


def start(name, body):
    """Start a thread that calls ``body``."""
    usual = threading.stack_size(stack_bytes)
    try:
        start_one(name, body)
    finally:
        # Threads of the application have the stack that it asks for itself.
        threading.stack_size(usual)


def start_one(name, body):
    if starters() == NATIVE:
        # The interpreter's end does not wait for it: the worker has waited already, for as long as it will.
        threading.Thread(name=name, target=run_as_parent, args=(name, body), daemon=True).start()
    else:
        # A library has replaced threads (gevent.monkey does): one of its own would only run when this one waits in it.
        start_native(run, (name, body))


def run(name, body):
    """What a thread does that a library takes for one of its own."""
    thread = threading.current_thread()
    thread.name = name
    OWN.add(thread)
    body()


def run_as_parent(name, body):
    # What the application starts here inherits this. It is waited for at the end, as what is started in the first thread.
    threading.current_thread()._daemonic = False
    run(name, body)
