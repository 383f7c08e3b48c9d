"""The lifespan of an application (ASGI, "Lifespan Protocol"): start-up before the worker serves, shutdown after it has drained.

Must not know requests. Runs in workers, in the event loop.
"""

import asyncio
import os

from bolide.log import log_exception, log_message, report
from bolide.stacks import stack_of

#: The versions in the scope of the lifespan.
ASGI_VERSIONS = {"version": "3.0", "spec_version": "2.0"}


class LifespanError(Exception):
    """An application that can't start; the message is for users."""


class Lifespan:
    """The lifespan task of an application, which handles startup and shutdown.

    ``state`` is the lifespan state that its requests get.
    """

    def __init__(self, application, mode, is_first_to_fail=lambda: True):
        self.application = application
        #: Returns whether this worker is the first of its generation that reports a failed start, and so has to log it.
        self.is_first_to_fail = is_first_to_fail
        self.mode = mode
        self.state = {}
        self.task = None
        self.messages = asyncio.Queue()
        self.started = None
        self.stopped = None
        self.failure = None

    async def startup(self):
        """Have the application start. Raises LifespanError if it fails."""
        if self.mode == "Off":
            return
        loop = asyncio.get_running_loop()
        self.started, self.stopped = loop.create_future(), loop.create_future()
        scope = {"type": "lifespan", "asgi": dict(ASGI_VERSIONS), "state": self.state}
        self.messages.put_nowait({"type": "lifespan.startup"})
        self.task = loop.create_task(self.live(scope), name="bolide lifespan")
        done = ()
        while not done:
            waits = asyncio.wait([self.task, self.started], timeout=STARTUP_TOLD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            done, _ = await waits
            if not done:
                say = f"the application's lifespan has not reported for {STARTUP_TOLD_SECONDS:g} s that its startup is complete"
                report([f"{say}; it is waiting here:", *stack_of(self.task)])
        if self.failure is not None:
            raise LifespanError(self.failed()) from (self.task.result() if self.task.done() else None)
        if self.started.done():
            return
        # The application ended its lifespan without a reply.
        error = self.task.result()
        if isinstance(error, SystemExit) or self.mode == "On":
            raise LifespanError(self.explained(error)) from error
        self.task = None

    async def shutdown(self):
        """Tell the application that the worker exits. The master limits how long that may take."""
        if self.task is None or self.task.done():
            return
        self.messages.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait([self.task, self.stopped], return_when=asyncio.FIRST_COMPLETED)
        if not self.task.done():
            # Work after the reply, such as closing files, may take a moment.
            await asyncio.wait([self.task], timeout=AFTER_ANSWER_SECONDS)

    async def live(self, scope):
        """Run the application's lifespan; returns its exception, if it raised one."""
        try:
            await self.application(scope, self.messages.get, self.send)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            is_told = self.started.done() or self.failure is not None or self.mode == "On" or isinstance(error, SystemExit)
            # All workers of a generation fail for the same reason, so only the first one logs it.
            if is_told and (self.has_started() or self.is_first_to_fail()):
                log_exception(error, "the application's lifespan")
            return error
        return None

    def has_started(self):
        return self.started.done() and self.failure is None

    async def send(self, message):
        kind = message["type"]
        if kind == "lifespan.startup.complete" and not self.started.done():
            self.started.set_result(None)
        elif kind == "lifespan.startup.failed" and not self.started.done():
            self.failure = str(message.get("message") or "").strip()
            self.started.set_result(None)
        elif kind == "lifespan.shutdown.complete" and not self.stopped.done():
            self.stopped.set_result(None)
        elif kind == "lifespan.shutdown.failed" and not self.stopped.done():
            log_message(f"the application's lifespan shutdown failed: {message.get('message', '')}")
            self.stopped.set_result(None)
        else:
            raise RuntimeError(f"{kind!r} is not a valid lifespan message at this point")

    def failed(self):
        """Log the application's message about its failed start, and return it in one line."""
        lines = self.failure.splitlines()
        # Frameworks send the traceback as the message and then raise the exception, which has been logged by now.
        if len(lines) > 1 and not (self.task.done() and self.task.result()) and self.is_first_to_fail():
            report(lines)
        # The last line of a traceback is the exception.
        return f"the application's lifespan startup failed: {lines[-1]}" if lines else "the application's lifespan startup failed"

    def explained(self, error):
        if error is None:
            return "the application's lifespan returned before 'lifespan.startup.complete', and lifespan = on"
        return f"the application's lifespan startup failed: {type(error).__name__}: {error}"


#: Interval at which the log shows where a startup is stuck, in seconds. Tests shorten it.
STARTUP_TOLD_SECONDS = int(os.environ.get("BOLIDE_TEST_NOTICE_MS", "30000")) / 1000

#: How long an application's lifespan may go on after it has replied to the shutdown, in seconds.
AFTER_ANSWER_SECONDS = 5
