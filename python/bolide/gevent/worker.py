"""Serving WSGI applications in greenlets: gevent's hub with the engine inside it, and the callbacks of the native module.

A worker's process runs it, and only if the configuration asks for gevent. None of it is on the path of a plain request.
"""

import os
import signal
import sys
import traceback
import weakref

import gevent
from gevent.event import Event
from gevent.monkey import is_object_patched

from bolide.gevent import calls as gevent_calls
from bolide.gevent.websocket import offer
from bolide.log import log_exception, report

__all__ = ["Event", "RequestGreenlet", "live_as_child", "offer", "overdue", "report_stall", "serve", "settle"]

#: Maximum number of greenlets in the report of a blocked hub.
GREENLETS_TOLD = 20
#: Interval at which a drained worker checks whether requests still run, in seconds.
BACKGROUND_LOOK_SECONDS = 0.02
#: How long requests whose clients have left may run after the order to stop, in seconds: as long as a stream.
LEFT_SECONDS = 3
#: libev's number of "readable".
READ = 1

#: Waits for what the calls of ``uwsgi.wait_fd_read`` and similar calls have registered.
settle = gevent_calls.settle


class RequestGreenlet(gevent.Greenlet):
    """A greenlet that serves one request after another."""

    #: Those that have not ended.
    every = weakref.WeakSet()

    def __init__(self, serve, number):
        super().__init__(serve)
        self.name = f"request greenlet {number}"
        self.every.add(self)


class HubLoop:
    """gevent's hub, with the methods of asyncio's loop that the native worker needs."""

    def __init__(self, hub):
        self.hub = hub
        self.loop = hub.loop
        self.reader = None
        #: Runs a function in the hub, after the callbacks that are ready.
        self.call_soon = hub.loop.run_callback

    def add_reader(self, descriptor, callback):
        self.reader = self.loop.io(descriptor, READ)
        self.reader.start(callback)

    def remove_reader(self, descriptor):
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.stop()
            reader.close()

    def call_later(self, seconds, callback):
        timer = Timer(self.loop.timer(seconds), callback)
        timer.start()
        return timer

    def leave_behind(self):
        """Become the loop of a child that a request has forked. The engine watches for the parent."""
        global forking
        forking = gevent.getcurrent()
        if self.reader is not None:
            self.reader.stop()
        if not is_object_patched("os", "fork"):
            # Otherwise gevent's own fork does it next.
            gevent.reinit()


#: In a child that a request has forked, the greenlet of that request.
forking = None


def live_as_child():
    """Go on in a child that a request has forked. Return in the greenlet that has forked it, whose code must not go on."""
    current, hub = gevent.getcurrent(), gevent.get_hub()
    if current is hub:
        # The engine's turn is below this call, and is never returned to.
        hub.loop.run()
    while current is not forking and current is not hub:
        # The parent answers this request.
        hub.switch()


class Timer:
    """A timer of the hub that calls a function once."""

    def __init__(self, timer, callback):
        self.timer = timer
        self.callback = callback

    def start(self):
        self.timer.start(self.fire)

    def fire(self):
        self.cancel()
        self.callback()

    def cancel(self):
        self.timer.stop()
        self.timer.close()


def serve(native, assignment, applications, after_request, settings):
    """Serve until the order to stop has been carried out."""
    drained = Event()
    loop = HubLoop(gevent.get_hub())
    os.register_at_fork(after_in_child=loop.leave_behind)
    worker = native.gevent_worker(assignment, applications, loop, sys.modules[__name__], after_request, drained.set)
    worker.start()
    wait(worker, drained.wait)
    worker.stop()
    # Requests whose answers are complete may still run: their `close()`. The master bounds it: `reload-mercy`.
    wait(worker, lambda: wait_for_requests(worker))
    if settings["language"]["python"]["gevent"]["waits_for_hub"]:
        wait(worker, gevent.wait)
    worker.report_leaving()


def wait(worker, until):
    """Run the hub until a function returns. Exceptions that gevent passes to the main greenlet don't end the worker."""
    while True:
        try:
            until()
            return
        except SystemExit as error:
            log_exception(error, "gevent's hub")
            worker.leave()
        except KeyboardInterrupt:
            # Ctrl-C interrupts the master too, which gives its workers their orders.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def wait_for_requests(worker):
    """Wait for requests that go on after their answers, or after their clients have left. At shutdown, the latter are ended after
    the seconds that streams have.
    """
    while worker.running:
        gevent.sleep(BACKGROUND_LOOK_SECONDS)
        seconds = worker.seconds_of_stop
        left = worker.left() if seconds is not None and seconds >= LEFT_SECONDS else []
        if left:
            report(
                [
                    f"{len(left)} requests of disconnected clients still run {LEFT_SECONDS} s after the order to stop; "
                    "killing their greenlets"
                ]
            )
            gevent.killall(left)


def place_of(greenlet):
    """Return where a greenlet waits, as one line."""
    frame = getattr(greenlet, "gr_frame", None)
    if frame is None:
        return "it has not begun, or runs"
    for summary in reversed(traceback.extract_stack(frame)):
        if "/gevent/" not in summary.filename:
            return f"{summary.filename}:{summary.lineno} in {summary.name}"
    return "in gevent itself"


def overdue(greenlet, seconds, request):
    """Log that a request has exceeded its time limit, with its stack. Return the exception for it."""
    lines = [f"harakiri: {request} took {seconds:.1f} s; ending its greenlet; it is waiting here:"]
    frame = getattr(greenlet, "gr_frame", None)
    if frame is not None:
        for line in traceback.format_stack(frame):
            lines.extend(line.rstrip().splitlines())
    report(lines)
    return gevent.Timeout(seconds)


def report_stall(seconds):
    """Log the requests that wait while the hub is blocked. Runs in the watcher's thread."""
    try:
        greenlets = [greenlet for greenlet in RequestGreenlet.every if getattr(greenlet, "gr_frame", None) is not None]
    except RuntimeError:
        # The set of greenlets changed during the iteration: the hub runs again.
        return
    count = "1 request waits" if len(greenlets) == 1 else f"{len(greenlets)} requests wait"
    lines = [f"{count} for gevent's hub, which has been blocked for {seconds:.1f} s"]
    lines.extend(f"  {greenlet.name}: {place_of(greenlet)}" for greenlet in greenlets[:GREENLETS_TOLD])
    if len(greenlets) > GREENLETS_TOLD:
        lines.append(f"  and {len(greenlets) - GREENLETS_TOLD} more")
    report(lines)
