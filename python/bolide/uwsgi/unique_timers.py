"""Timers that fire once for the instances of all machines (``timer-engine``): whether this process calls the handler of a timer.

Each instance raises the signals of its timers, and the engine names one process for each period. How often an instance asks is
decided by its master (``crates/master/src/signaling/table.rs``). It must not know how a handler is called. Runs in every process
that loads an application.
"""

import time

from bolide import log

#: Seconds of a period of cron: each of its times is a minute.
CRON_SECONDS = 60
#: The targets whose handlers run in several processes of an instance, and so in each instance.
FOR_ALL = ("workers", "active-workers", "mules")


class UniqueTimers:
    """The timers of this process by the numbers of their signals. Those that are added while it serves are not among them."""

    def __init__(self, native, settings):
        self.native = native
        self.is_used = native.has_timer_engine()
        #: The seconds of a timer; None for cron.
        self.seconds = {}
        #: Signals whose handlers run in several processes.
        self.for_all = set()
        #: Timers whose names were refused.
        self.refused = set()
        if self.is_used:
            for timer in settings["signals"]["timers"]:
                self.seconds[timer["number"]] = timer["seconds"]

    def note_target(self, number, target):
        if target in FOR_ALL:
            self.for_all.add(number)
        else:
            self.for_all.discard(number)

    def note_timer(self, number, seconds):
        if self.is_used and self.native.is_loading():
            self.seconds[number] = seconds

    def note_cron(self, number):
        self.note_timer(number, None)

    def has(self, number):
        return number in self.seconds and number not in self.for_all

    def claim(self, number, handler):
        """Return the firing if this process is to call the handler, or None. `finish` of the firing says that it is done."""
        seconds = self.seconds[number]
        try:
            if seconds is None:
                return self.native.claim_timer(name_of(number, handler, "cron"), CRON_SECONDS, int(time.time()) // CRON_SECONDS)
            return self.native.claim_timer(name_of(number, handler, seconds), seconds, None)
        except ValueError as error:
            if number not in self.refused:
                self.refused.add(number)
                log.tell(f"the timer of signal {number} does not fire: {error}")
            return None
        except RuntimeError:
            # The engine has refused a command, and has its line in the log.
            return None


def name_of(number, handler, period):
    """Return the name by which all instances know a timer. The same function may have several timers."""
    # Numbers of signals differ between versions of an application.
    function = getattr(handler, "__wrapped__", handler)
    module = getattr(function, "__module__", None) or ""
    # The name of a module that was loaded from a file contains the file's path, which differs between machines.
    module = "" if module.startswith("uwsgi_file_") else module
    name = f"{module}.{getattr(function, '__qualname__', number)}:{period}"
    # Names with braces would have another meaning at the server.
    return name.replace("{", "(").replace("}", ")")
