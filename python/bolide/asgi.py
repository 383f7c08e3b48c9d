"""Serving ASGI applications: the event loop, the worker inside it, and the callbacks of the native module.

A worker's process runs it. None of it is on the path of a plain request, except :func:`plain_headers` for applications that pass
their headers in an unusual type.
"""

import asyncio
import functools
import inspect
import signal
import sys
import types
import weakref

from bolide import shutdown
from bolide._native import ClientDisconnected
from bolide.lifespan import Lifespan, LifespanError
from bolide.log import log_exception, log_message, report, tell
from bolide.loops import event_loop_factory
from bolide.stacks import place_of, stack_of

__all__ = [
    "ClientDisconnected",
    "is_client_disconnect",
    "log_exception",
    "log_message",
    "log_overdue",
    "note_left",
    "pause",
    "plain_headers",
    "report_stall",
    "serve",
]

#: Maximum number of tasks in the report of a blocked loop.
TASKS_TOLD = 20

#: Maximum number of exceptions of a chain that are examined.
MAX_CHAIN = 100

#: Exceptions that frameworks raise when the client has disconnected, and that applications may let through.
FRAMEWORK_DISCONNECTS = {"ClientDisconnect", "RequestAborted", "WebSocketDisconnect", "WebSocketDisconnected"}

#: Tasks whose clients disconnected in the middle of an answer, while they run.
left = weakref.WeakSet()
#: Tasks whose clients disconnected before the answer began, with a description of each request.
unanswered = weakref.WeakKeyDictionary()


def note_left(task, has_begun, request):
    """Note that the client of this task has disconnected: everything that the task sends is dropped."""
    if has_begun:
        left.add(task)
    else:
        unanswered[task] = request


async def pause():
    """Yield to other tasks once."""
    await asyncio.sleep(0)


def is_client_disconnect(error, has_left=False, known=None):
    """Return whether an application ended because its client had disconnected.

    That is so for our exception, for any that frameworks raise instead of it or around it, and, if the client has in fact left
    (`has_left`), for the frameworks' own exceptions of that meaning. An exception group counts only if all of its members do.
    `known` has the results of exceptions by their identity, False for those that are being examined: a member that a framework
    raises again has its group as its context.
    """
    known = {} if known is None else known
    examined = []
    result = False
    for _ in range(MAX_CHAIN):
        if error is None:
            break
        if isinstance(error, ClientDisconnected) or (has_left and type(error).__name__ in FRAMEWORK_DISCONNECTS):
            result = True
            break
        if id(error) in known:
            result = known[id(error)]
            break
        known[id(error)] = False
        examined.append(id(error))
        parts = getattr(error, "exceptions", None)
        if isinstance(error, Exception) and isinstance(parts, (tuple, list)) and parts:
            result = all(is_client_disconnect(part, has_left, known) for part in parts)
            break
        error = error.__cause__ or error.__context__
    known.update(dict.fromkeys(examined, result))
    return result


def serve(native, assignment, applications, settings, trial=None, development=None):
    """Serve until the order to stop has been carried out. Return the exit status of this process.

    `trial` runs before serving; `development` is notified of an application that does not start.
    """
    loop = event_loop_factory(settings["asynchronous"]["event_loop"])()
    asyncio.set_event_loop(loop)
    global current_loop
    current_loop = loop
    try:
        return run(loop, Service(native, assignment, applications, settings, loop, trial, development))
    finally:
        close(loop)
        asyncio.set_event_loop(None)


def run(loop, service):
    """Run the service as the loop's main task. If the application exits, tasks that others wait for may finish."""
    main = loop.create_task(service.live(), name="bolide")
    while True:
        try:
            return loop.run_until_complete(main)
        except SystemExit as error:
            log_exception(error, "the event loop")
            service.leave()
        except KeyboardInterrupt:
            # Ctrl-C interrupts the master too, which gives its workers their orders.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


class Service:
    """The life of a worker within its loop: lifespan startup, serving, draining, lifespan shutdown."""

    def __init__(self, native, assignment, applications, settings, loop, trial, development):
        self.native = native
        self.assignment = assignment
        self.applications = applications
        self.settings = settings
        self.loop = loop
        self.trial = trial
        self.development = development
        self.worker = None
        self.drained = None

    async def live(self):
        asynchronous = [callable for _, callable, interface in self.applications if interface == "asgi"]
        mode = self.settings["asynchronous"]["lifespan"]
        lifespans = [Lifespan(application, mode, self.assignment.is_first_to_fail) for application in asynchronous]
        try:
            for lifespan in lifespans:
                await lifespan.startup()
        except LifespanError as error:
            # At startup the master logs the reason too. A worker may also fail to start long after that.
            if self.assignment.is_first_to_fail():
                tell(str(error))
            if self.development is not None:
                self.development.note_failure(error.__cause__ or error)
            # Workers that fail for the same reason wait for this note. The first one that exits ends the generation.
            self.assignment.note_failure(str(error))
            return self.native.EXIT_LOAD_FAILED
        if self.trial is not None:
            asked = [callable for _, callable, _ in self.applications]
            states = [next((one.state for one in lifespans if one.application is callable), {}) for callable in asked]
            if not await self.trial.passes_in_loop(states):
                for lifespan in reversed(lifespans):
                    await lifespan.shutdown()
                return self.native.EXIT_LOAD_FAILED
        self.drained = self.loop.create_future()
        states = iter(lifespans)
        mounts = [
            (mount, self.asynchronous(callable, interface), next(states).state if interface == "asgi" else None)
            for mount, callable, interface in self.applications
        ]
        self.worker = self.native.asgi_worker(self.assignment, mounts, self.loop, sys.modules[__name__], self.note_drained)
        self.worker.start()
        await self.drained
        self.worker.stop()
        await self.background_work()
        for lifespan in reversed(lifespans):
            await lifespan.shutdown()
        self.worker.report_leaving()
        return 0

    def asynchronous(self, callable, interface):
        if interface == "asgi":
            return callable if only_makes_a_coroutine(callable) else within_a_task(callable)
        from bolide.bridge import WsgiApplication

        return WsgiApplication(callable, self.settings, self.loop)

    def note_drained(self):
        if not self.drained.done():
            self.drained.set_result(None)

    def leave(self):
        if self.worker is not None:
            self.worker.leave()

    async def background_work(self):
        """Wait for background work of applications after their responses. The master bounds it: ``reload-mercy``.

        A task whose client disconnected in the middle of its answer, and that waits for an event of that client, is cancelled. At
        shutdown, tasks whose clients disconnected before the answer are cancelled too, after the seconds that streams have.
        """
        patience_ends = self.loop.time() + LEFT_SECONDS
        while self.worker.running:
            await asyncio.sleep(BACKGROUND_LOOK_SECONDS)
            if left and self.loop.time() >= patience_ends:
                for task in tuple(left):
                    left.discard(task)
                    task.cancel()
            seconds = self.worker.seconds_of_stop
            if unanswered and seconds is not None and seconds >= UNANSWERED_SECONDS:
                cancel_unanswered()


def cancel_unanswered():
    """Cancel tasks that no other task awaits, except those that wait for a thread: the thread would go on without them."""
    bridge = sys.modules.get("bolide.bridge")
    cancelled = []
    for task, request in tuple(unanswered.items()):
        del unanswered[task]
        if bridge is None or not bridge.is_bridge(task.get_coro()):
            task.cancel()
            cancelled.append(request)
    if cancelled:
        more = f" and {len(cancelled) - REQUESTS_TOLD} more" if len(cancelled) > REQUESTS_TOLD else ""
        requests = ", ".join(cancelled[:REQUESTS_TOLD]) + more
        seconds = UNANSWERED_SECONDS
        report([f"tasks of disconnected clients, still running {seconds} s after the order to stop, cancelling them: {requests}"])


#: How long a task may take to notice by itself that its client has disconnected when its worker exits, in seconds.
LEFT_SECONDS = 0.5
#: How long such a task may run after the order to stop if its client left before the answer began, in seconds: as long as a
#: stream.
UNANSWERED_SECONDS = 3
#: Maximum number of requests in the log line about them.
REQUESTS_TOLD = 3
#: Interval at which a drained worker checks whether background work has ended, in seconds.
BACKGROUND_LOOK_SECONDS = 0.02


def close(loop):
    """Shut down what is left in the loop, as asyncio.run() does."""
    try:
        tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        # From here on only threads of the application are awaited, and for a bounded time.
        shutdown.begin(0)
        loop.run_until_complete(loop.shutdown_default_executor())
    except BaseException as error:
        log_exception(error, "the event loop's end")
    finally:
        loop.close()


def only_makes_a_coroutine(application):
    """Return whether calling the application runs none of its code: an async function, a method or partial of one, or an object
    with an async ``__call__``.
    """
    while isinstance(application, (functools.partial, types.MethodType)):
        application = application.func if isinstance(application, functools.partial) else application.__func__
    if not inspect.isfunction(application):
        application = type(application).__call__
    return inspect.isfunction(application) and bool(application.__code__.co_flags & inspect.CO_COROUTINE)


def within_a_task(application):
    """Return an application whose call is a coroutine function too.

    The code that a plain function runs before it returns its awaitable then belongs to the task of its request, with the context
    variables that it sets.
    """

    async def application_in_task(scope, receive, send):
        awaitable = application(scope, receive, send)
        if not inspect.isawaitable(awaitable):
            kind = type(awaitable).__name__
            raise TypeError(f"an ASGI application must return an awaitable, not {kind}; is it a WSGI application?")
        await awaitable

    return application_in_task


def plain_headers(headers):
    """Return the headers of a message as a list of pairs of bytes. TypeError names the part that is not a pair."""
    plain = []
    for pair in headers:
        try:
            name, value = pair
        except (TypeError, ValueError):
            raise TypeError(f"a header must be a pair of a name and a value, not {pair!r}") from None
        for part in (name, value):
            if not isinstance(part, (bytes, bytearray, memoryview)):
                raise TypeError(f"the header {pair!r}: name and value must be bytes, not {type(part).__name__}")
        plain.append((bytes(name), bytes(value)))
    return plain


def log_overdue(task, seconds, place):
    """Log that a task has exceeded its time limit, with its stack."""
    lines = [f"harakiri: {place} took {seconds:.1f} s; cancelling its task; it is waiting here:"]
    report(lines + stack_of(task))


def report_stall(seconds):
    """Log the tasks that wait while the loop is blocked. Runs in the watcher's thread."""
    try:
        tasks = [task for task in asyncio.all_tasks(current_loop) if not task.done()]
    except RuntimeError:
        # The set of tasks changed during the iteration: the loop runs again.
        return
    lines = [f"{len(tasks)} tasks wait for the event loop, which has been blocked for {seconds:.1f} s"]
    for task in tasks[:TASKS_TOLD]:
        name = task.get_name()
        lines.append(f"  {name}: {place_of(task)}")
    if len(tasks) > TASKS_TOLD:
        lines.append(f"  and {len(tasks) - TASKS_TOLD} more")
    report(lines)


#: The loop of this worker, for the watcher.
current_loop = None
