"""The additional threads of a worker. They are Python's own, so names, ``threading.enumerate()``, thread-local data and
debuggers work as an application expects.

Must not know what they run. It is imported before the application, which may replace Python's threads. Runs in workers.
"""

import _thread
import threading
import weakref


def starters():
    """Return the functions by which ``threading`` starts threads, whatever this version of Python calls them."""
    return [getattr(threading, name, None) for name in ("_start_new_thread", "_start_joinable_thread")]


#: The interpreter's own functions, before any replacement.
NATIVE = starters()
start_native = _thread.start_new_thread
allocate_lock = _thread.allocate_lock
get_ident = _thread.get_ident

#: The worker's additional threads, which the interpreter does not wait for.
OWN = weakref.WeakSet()


#: Stack size of each of them in bytes; 0 is the system's default (``thread-stack-size``).
stack_bytes = 0


def start(name, body):
    """Start a thread that calls ``body``."""
    usual = threading.stack_size(stack_bytes)
    try:
        start_one(name, body)
    finally:
        # Threads of the application keep the stack size that the application sets.
        threading.stack_size(usual)


def start_one(name, body):
    if starters() == NATIVE:
        # A daemon thread: the worker has waited for it already, for a bounded time, when the interpreter ends.
        threading.Thread(name=name, target=run_as_parent, args=(name, body), daemon=True).start()
    else:
        # A library has replaced threads (gevent.monkey does). Its threads would run only while this thread waits in that library.
        start_native(run, (name, body))


def run(name, body):
    """The body of a thread that the library takes for one of its own."""
    thread = threading.current_thread()
    thread.name = name
    OWN.add(thread)
    body()


def run_as_parent(name, body):
    # Threads that the application starts here inherit this flag. The end waits for them as for threads started in the main
    # thread.
    threading.current_thread()._daemonic = False
    run(name, body)
