"""An application whose import takes long, while it is developed: the log and the browser say where it stands.

It must not know how the application is loaded. Runs in the process that loads it, with ``develop``.
"""

import contextlib
import sys
import threading
import time
import traceback

from bolide import log, threads, traceback_page

#: Seconds after which the log says where the import stands.
TOLD_SECONDS = 5
#: Seconds after which browsers are told: just before the master lets the requests go that wait for the new code (10 s).
SHOWN_SECONDS = 9.5
#: Seconds between two pages.
RENEWED_SECONDS = 1

#: The page asks again by itself.
REFRESH = "<script>setTimeout(() => location.reload(), 1000)</script>\n"
BUSY = "503 Service Unavailable"


@contextlib.contextmanager
def watched(error_report, shows_tracebacks):
    """Watch the import in the block, which the calling thread runs."""
    over = threads.allocate_lock()
    over.acquire()
    ended = threads.allocate_lock()
    ended.acquire()
    importing = threading.get_ident()

    def watch():
        try:
            follow(over, importing, error_report if shows_tracebacks else None)
        finally:
            ended.release()

    threads.start("bolide slow import", watch)
    try:
        yield
    finally:
        over.release()
        # A page that is written now must not come after the one of a failure.
        ended.acquire()


def follow(over, importing, error_report):
    began = time.monotonic()
    if over.acquire(timeout=TOLD_SECONDS):
        return
    log.tell(f"loading the application takes longer than {TOLD_SECONDS} s; it stands {position(stack_of(importing))}")
    if over.acquire(timeout=SHOWN_SECONDS - TOLD_SECONDS) or error_report is None:
        return
    while True:
        stack = stack_of(importing)
        title = f"The new code is being loaded, for {time.monotonic() - began:.0f} s"
        what = f"The import stands {position(stack)}. This page asks again every second."
        page = traceback_page.page_of_stack(title, what, stack, REFRESH)
        error_report.write(page, f"{title}. {what}\n", BUSY)
        if over.acquire(timeout=RENEWED_SECONDS):
            error_report.clear()
            return


def stack_of(thread):
    """Return the stack of a thread from the application's first frame on, the outermost frame first."""
    frame = sys._current_frames().get(thread)
    stack = traceback.StackSummary.extract(reversed(list(traceback.walk_stack(frame))), lookup_lines=False)
    own = [number for number, entry in enumerate(stack) if not traceback_page.is_library(entry.filename)]
    return traceback.StackSummary.from_list(stack[own[0] :] if own else stack)


def position(stack):
    """Return the application's innermost line in words."""
    own = [entry for entry in stack if not traceback_page.is_library(entry.filename)]
    for entry in reversed(own or stack):
        return f"at {traceback_page.shown_path(entry.filename)}:{entry.lineno} in {entry.name}"
    return "outside of Python"
