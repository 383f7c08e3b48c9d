"""uWSGI's signals for applications: the functions of the module ``uwsgi`` that register and raise them, and the handlers.

The master has the timers and decides which process runs a handler (``crates/master/src/signaling``). It must not know how
signals travel. Runs in every process that loads an application.
"""

import json
import operator
import os
import threading
import time
import types

from bolide import log
from bolide.uwsgi.unique_timers import UniqueTimers

#: As in uWSGI: the longest target and path, in bytes, and the most timers of each kind.
TARGET_BYTES = 63
PATH_BYTES = 254
MAX_EACH = 64

#: The bounds of C's int, in which uWSGI takes seconds and times of cron.
MIN_INT, MAX_INT = -(2**31), 2**31 - 1

#: A signal without a handler is logged once in this time, in seconds.
UNHANDLED_SECONDS = 60


class Signals:
    """The handlers of this process, and its registrations that are not reported yet."""

    def __init__(self, native, log_settings, settings):
        self.native = native
        self.unique = UniqueTimers(native, settings)
        self.log_settings = log_settings
        #: The handler of each signal. Forks of the prototype share those of the application.
        self.handlers = {}
        #: Registrations and raised signals of a process that loads the application, until they are reported.
        self.list = []
        self.raised = []
        #: How many timers of each kind were registered while the application was loaded.
        self.counts = {}
        self.is_reported = False
        #: False in helpers, in which uWSGI refuses to register handlers.
        self.may_register = True
        self.received = threading.local()
        self.told = {}
        #: The tasks of coroutines that handlers have returned, while they run.
        self.tasks = set()
        native.set_signal_runner(self.run)

    def report(self):
        """Return the registrations while the application was loaded, for the master, or None."""
        if self.is_reported or not (self.list or self.raised):
            self.is_reported = True
            return None
        self.is_reported = True
        described, raised, self.list, self.raised = json.dumps(self.list), self.raised, [], []
        return self.native.signals_report(described, raised)

    def run(self, number):
        """Run the handler of a signal that this process takes. Return one of the native module's results."""
        handler = self.handlers.get(number)
        if handler is None:
            self.tell_unhandled(number)
            return self.native.SIGNAL_HANDLED
        firing = None
        if self.unique.has(number):
            firing = self.unique.claim(number, handler)
            if firing is None:
                return self.native.SIGNAL_HANDLED
        try:
            result = handler(number)
            if isinstance(result, types.CoroutineType):
                self.run_coroutine(number, result, firing)
                firing = None
        except SystemExit as error:
            log.log_exception(error, f"signal {number}")
            return self.native.SIGNAL_FAILED_FATALLY
        except BaseException as error:
            log.log_exception(error, f"signal {number}")
            return self.native.SIGNAL_FAILED
        finally:
            if firing is not None:
                firing.finish()
        return self.native.SIGNAL_HANDLED

    def run_coroutine(self, number, coroutine, firing):
        """Run a handler that is a coroutine function: as a task where a loop runs, else to its end."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            try:
                asyncio.run(coroutine)
            finally:
                if firing is not None:
                    firing.finish()
            return
        task = loop.create_task(coroutine, name=f"signal {number}")
        self.tasks.add(task)
        if firing is not None:
            task.add_done_callback(lambda task: firing.finish())
        task.add_done_callback(self.note_task)

    def note_task(self, task):
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.log_exception(error, task.get_name())

    def tell_unhandled(self, number):
        now = time.monotonic()
        if now - self.told.get(number, -UNHANDLED_SECONDS) >= UNHANDLED_SECONDS:
            self.told[number] = now
            log.tell(f"signal {number} has no handler here: register it while the application is loaded")

    # The module's functions. Their names, results and errors are uWSGI's.

    def register_signal(self, number, target, handler):
        number, target = number_of(number), text_of(target)
        is_taken = not self.log_settings.worker and number in self.handlers
        if not self.may_register or is_taken or len(target.encode("utf-8", "surrogateescape")) > TARGET_BYTES:
            raise ValueError("unable to register signal")
        self.handlers[number] = handler
        self.unique.note_target(number, target)
        self.register({"Handler": {"number": number, "target": target}})

    def signal_registered(self, number):
        return True if number_of(number) in self.handlers else None

    def signal(self, number, remote=None):
        number = number_of(number)
        if remote is not None:
            raise OSError(f"unable to deliver signal {number} to node {text_of(remote)}: it is another instance")
        if self.native.raise_signal(number):
            return
        if self.is_reported:
            log.tell(f"signal {number} is dropped: it was raised in the process that forks the workers")
        elif len(self.raised) < MAX_EACH:
            self.raised.append(number)
        else:
            log.tell(f"signal {number} is dropped: {MAX_EACH} were raised while the application was loaded")

    def signal_wait(self, *number):
        self.received.number = -1
        wanted = number_of(*number) if number else None
        while True:
            found = self.native.wait_for_signal()
            if found is None:
                raise SystemError("error waiting for signal")
            if found in self.handlers:
                self.run(found)
            if wanted is None or found == wanted:
                self.received.number = found
                return ""

    def signal_received(self):
        return getattr(self.received, "number", 0)

    def add_timer(self, number, seconds):
        seconds = seconds_of(seconds)
        self.add("timer", "Timer", number, seconds=seconds)
        self.unique.note_timer(number_of(number), seconds)

    def add_rb_timer(self, number, seconds, iterations=0):
        seconds, iterations = seconds_of(seconds), max(0, int_of(iterations))
        self.add("rb_timer", "RbTimer", number, seconds=seconds, iterations=iterations)
        if iterations == 0:
            self.unique.note_timer(number_of(number), seconds)

    def add_cron(self, number, minute, hour, day, month, week):
        schedule = {"minute": minute, "hour": hour, "day": day, "month": month, "weekday": week}
        schedule = {name: int_of(value) for name, value in schedule.items()}
        self.add("cron", "Cron", number, schedule=schedule)
        self.unique.note_cron(number_of(number))
        return True

    def add_file_monitor(self, number, path):
        path = text_of(path)
        if len(path.encode("utf-8", "surrogateescape")) > PATH_BYTES:
            raise ValueError("unable to add file monitor")
        self.add("file monitor", "File", number, path=os.path.abspath(path))

    # Their parts.

    def add(self, what, kind, number, **described):
        number = number_of(number)
        if not self.is_reported:
            count = self.counts[kind] = self.counts.get(kind, 0) + 1
            if count > MAX_EACH:
                raise ValueError(f"unable to add {what}: the maximum is {MAX_EACH}")
        self.register({kind: {"number": number, **described}})

    def register(self, registration):
        if self.native.register_signals(json.dumps([registration])):
            return
        if self.is_reported:
            log.tell(f"a registration is ignored, as the application is loaded: {registration}")
        else:
            self.list.append(registration)


def number_of(number):
    """Return the number of a signal. uWSGI takes the lowest eight bits of any whole number."""
    return operator.index(number) & 0xFF


def int_of(value):
    value = operator.index(value)
    if not MIN_INT <= value <= MAX_INT:
        raise OverflowError("signed integer is out of C int's range")
    return value


def seconds_of(seconds):
    seconds = int_of(seconds)
    if seconds < 1:
        raise ValueError(f"a timer of {seconds} seconds would never fire, or always: the minimum is 1")
    return seconds


def text_of(text):
    if not isinstance(text, str):
        raise TypeError(f"argument must be str, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError("embedded null character")
    return text
