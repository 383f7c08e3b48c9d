"""A helper: a process beside the request workers that has the application loaded (a mule, a spooler).

It begins and ends here, whatever its code does: the master's order to end reaches it as a signal, which a loop without an end
can't ignore. Must not know what a helper works on, which files such as ``mule`` do. Runs in helpers.
"""

import os
import signal

from bolide import log

#: Exit status of a helper whose code has raised an exception.
FAILED = 1

#: The signals by which uWSGI ends a helper, for code that handles them: at a reload, and at shutdown.
SIGNALS_OF_UWSGI = {"reload": signal.SIGHUP, "stop": signal.SIGINT}


class Helper:
    """A helper's life. A kind of helper implements :meth:`work`."""

    def __init__(self, half, name, task):
        self.half = half
        self.native = half.native
        self.name = name
        self.task = task
        self.pid = os.getpid()
        #: The link to the master, once the helper works.
        self.link = None
        #: The handlers that code of the application has set before this process was a helper.
        self.handlers_before = {number: signal.getsignal(number) for number in SIGNALS_OF_UWSGI.values()}
        self.is_interrupted = False
        log.name_process(0, name)
        # From here on no moment is left in which the signal would end the process.
        signal.signal(self.native.HELPER_SIGNAL, self.take_orders)

    def run(self, link):
        """Work until the end. Return the exit status."""
        self.link = link
        # As in uWSGI, in whose helpers the functions that register fail.
        self.half.uwsgi.signals.may_register = False
        try:
            # An order that came before the link has raised no signal.
            if self.why_to_end() is None:
                self.begin()
                self.work()
            status = 0
        except SystemExit as error:
            status = status_of(error)
        except BaseException as error:
            log.log_exception(error, self.name)
            status = FAILED
        if os.getpid() != self.pid:
            # A child that the helper's code has forked came back from it.
            self.end_here(status)
        # Nothing may interrupt the end of the interpreter.
        signal.signal(self.native.HELPER_SIGNAL, signal.SIG_IGN)
        return status

    def begin(self):
        """Call the functions of the application for a new process. One of them may be the helper's whole work (``@mule``)."""
        for name, function in self.half.hooks.functions_of_fork():
            try:
                function()
            except Exception as error:
                log.log_exception(error, name)

    def work(self):
        raise NotImplementedError

    def end_here(self, status):
        """End the process without its code."""
        self.native.finish_log()
        os._exit(status)

    def why_to_end(self):
        """Return why the helper must end, or None. Reads the pending orders."""
        return self.link.end() if self.link is not None else None

    def end_if_told(self):
        """Leave the code of the application if the helper must end. Between two pieces of work."""
        if self.why_to_end() is not None:
            raise SystemExit(0)

    def limit(self, seconds):
        """Limit the time of the message or job in progress, or else of the code up to the limit 0 (`set_user_harakiri`)."""
        # The order to end may have come in the meantime.
        if self.link is not None and self.link.limit_work(seconds):
            self.end_if_told()

    def take_orders(self, number, frame):
        """The master has sent an order. A piece of work in progress is not interrupted, other code is."""
        if os.getpid() != self.pid or (why := self.why_to_end()) is None:
            return
        handler = self.own_handler(why)
        if handler is not None:
            # As with uWSGI, whose helpers get this signal.
            if not self.is_interrupted:
                self.is_interrupted = True
                handler(SIGNALS_OF_UWSGI[why], frame)
        elif not self.link.is_at_work() and not self.is_interrupted:
            # The signal may come twice, and what the code does at its end is not interrupted.
            self.is_interrupted = True
            raise SystemExit(0)

    def own_handler(self, why):
        """Return the handler that the helper's code has set for the signal that uWSGI would send, or None."""
        number = SIGNALS_OF_UWSGI[why]
        handler = signal.getsignal(number)
        return handler if callable(handler) and handler is not self.handlers_before[number] else None


def status_of(error):
    """Return the exit status of a SystemExit, as the interpreter does."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    log.tell(str(error.code))
    return FAILED
