"""An application whose import takes long: the log says where the import is, and in development the browser too.

It must not know how the application is loaded. Runs in the process that loads it. Its thread has ended before any fork.
"""

import contextlib
import os
import sys
import threading
import time
import traceback

from bolide import log, threads

#: Seconds after which the log says where the import is, and the share of a shorter `load-timeout`.
TOLD_SECONDS = 5
TOLD_SHARE = 0.5
#: Seconds after which browsers are told: just before the master lets the requests go that wait for the new code (10 s).
SHOWN_SECONDS = 9.5
#: Seconds between two pages.
RENEWED_SECONDS = 1
#: Maximum time in seconds that the import waits for the thread's own end, and between two looks.
END_SECONDS = 0.1
END_LOOK_SECONDS = 0.0005

#: Modules in which servers wait for requests: an application that runs one while it is imported is never loaded.
SERVERS = (
    "aiohttp.web",
    "cheroot.server",
    "eventlet.wsgi",
    "gevent.baseserver",
    "gunicorn.arbiter",
    "hypercorn.run",
    "socketserver",
    "uvicorn.server",
    "waitress.server",
    "werkzeug._reloader",
    "werkzeug.serving",
)

#: The page asks again by itself.
REFRESH = "<script>setTimeout(() => location.reload(), 1000)</script>\n"
BUSY = "503 Service Unavailable"


@contextlib.contextmanager
def watched(error_report=None, timeout_ms=None):
    """Watch the import in the block, which the calling thread runs. `timeout_ms` is `load-timeout`.

    The thread is not one of `threading`'s: the application does not see threads other than its own.
    """
    over = threads.allocate_lock()
    over.acquire()
    ended = threads.allocate_lock()
    ended.acquire()
    # The interpreter's own number, by which it knows the frames: gevent replaces `threading.get_ident` by a greenlet's.
    importing, process = threads.get_ident(), os.getpid()
    told_seconds = min(TOLD_SECONDS, timeout_ms / 1000 * TOLD_SHARE) if timeout_ms else TOLD_SECONDS
    task = None

    def watch():
        nonlocal task
        try:
            task = threading.get_native_id()
            follow(over, importing, told_seconds, error_report)
        finally:
            ended.release()

    try:
        threads.start_native(watch, ())
    except RuntimeError:
        # A limit of the process forbids it (`limit-nproc`, `limit-as`). The import does not need a watcher.
        yield
        return
    try:
        yield
    finally:
        # A fork that the application made in the meantime has no such thread.
        if os.getpid() == process:
            over.release()
            # A page that is written now must not come after the one of a failure.
            ended.acquire()
            wait_for_end(task)


def wait_for_end(task):
    """Wait until the kernel has ended a thread that has nothing left to do: a fork must not copy a process with two threads."""
    until = time.monotonic() + END_SECONDS
    while os.path.exists(f"/proc/self/task/{task}") and time.monotonic() < until:
        time.sleep(END_LOOK_SECONDS)


def follow(over, importing, told_seconds, error_report):
    began = time.monotonic()
    if over.acquire(timeout=told_seconds):
        return
    # Imported late: no other code needs it.
    from bolide.development import traceback_page

    place = position(stack_of(importing), module_of(importing))
    log.tell(f"loading the application takes longer than {told_seconds:g} s; it is {place}{advice(importing)}")
    if error_report is None or over.acquire(timeout=SHOWN_SECONDS - told_seconds):
        return
    while True:
        stack = stack_of(importing)
        title = f"The new code has been loading for {time.monotonic() - began:.0f} s"
        what = f"The import is {position(stack, module_of(importing))}. This page reloads every second."
        page = traceback_page.page_of_stack(title, what, stack, REFRESH)
        error_report.write(page, f"{title}. {what}\n", BUSY)
        if over.acquire(timeout=RENEWED_SECONDS):
            error_report.clear()
            return


def advice(thread):
    """Return what to do if the import runs a server of its own, such as `app.run()`, or an empty string."""
    for frame, _ in traceback.walk_stack(sys._current_frames().get(thread)):
        module = frame.f_globals.get("__name__")
        if module in SERVERS:
            return (
                f", where the module runs a server of its own ({module.partition('.')[0]}) and never returns: "
                'write that call below `if __name__ == "__main__":`'
            )
    return ""


def stack_of(thread):
    """Return the stack of a thread from the application's first frame on, the outermost frame first."""
    from bolide.development import traceback_page

    frame = sys._current_frames().get(thread)
    stack = traceback.StackSummary.extract(reversed(list(traceback.walk_stack(frame))), lookup_lines=False)
    own = [number for number, entry in enumerate(stack) if not traceback_page.is_library(entry.filename)]
    return traceback.StackSummary.from_list(stack[own[0] :] if own else stack)


def module_of(thread):
    """Return the name of the module that the innermost frames of a thread are importing, or None if other code runs there."""
    name = None
    for frame, _ in traceback.walk_stack(sys._current_frames().get(thread)):
        if not is_importlib(frame.f_code.co_filename):
            return name
        if name is None and frame.f_code.co_name in ("_find_and_load", "_find_and_load_unlocked"):
            name = frame.f_locals.get("name")
    return name


def is_importlib(path):
    return path.startswith("<frozen importlib")


def position(stack, module=None):
    """Return the application's innermost line in words, or a library's if all are. `module`: what that line is importing."""
    from bolide.development import traceback_page

    own = [entry for entry in stack if not traceback_page.is_library(entry.filename)]
    entries = own or [entry for entry in stack if not is_importlib(entry.filename)] or stack
    for entry in reversed(entries):
        importing = f", which imports {module}" if module is not None and entry is last_but_importlib(stack) else ""
        return f"at {traceback_page.shown_path(entry.filename)}:{entry.lineno} in {entry.name}{importing}"
    return "outside of Python"


def last_but_importlib(stack):
    return next((entry for entry in reversed(stack) if not is_importlib(entry.filename)), None)
