"""A spooler: a helper that calls the application's function with each job of a directory.

The native module finds, locks and removes jobs. Must not know how a job is stored. Runs in spoolers.
"""

import os
import time

from bolide import log
from bolide.helpers.helper import Helper

#: uWSGI's results of a job's function. Every other number leaves the job for a later attempt, as SPOOL_RETRY does.
SPOOL_OK, SPOOL_RETRY, SPOOL_IGNORE = -2, -1, 0


class Spooler(Helper):
    """A spooler by its task in the settings."""

    def __init__(self, half, name, task):
        super().__init__(half, name, task)
        self.settings = half.settings["spooling"]
        #: Jobs that this process has worked on.
        self.done = 0
        self.has_told_of_no_function = False
        #: It has a job, or is about to have one.
        self.is_claiming = False

    def work(self):
        # As in uWSGI: requests come first.
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        self.half.uwsgi.is_spooler = True
        self.import_further()
        self.jobs = self.native.SpoolerWork(self.task["directory"], self.settings["is_ordered"], self.link)
        self.directory = os.fsdecode(self.jobs.path)
        master = self.half.boot["master_pid"]
        while True:
            self.work_off()
            self.end_if_told()
            if not self.link.run_signals():
                raise SystemExit(0)
            self.jobs.wait(self.jobs.frequency(master) or self.settings["frequency_s"])

    def take_orders(self, number, frame):
        """The order to end is read between two jobs. An attempt that it interrupts would count as one that killed the spooler."""
        if not self.is_claiming or self.link.is_at_work():
            super().take_orders(number, frame)

    def import_further(self):
        """Import the modules of ``spooler-import``, as uWSGI does: a failure is logged, and the spooler continues."""
        from bolide.loading.load import module_or_file, tell_failure

        for name in self.settings["imports"]:
            try:
                module_or_file(name, "spooler-import")
            except Exception as error:
                tell_failure(error)

    def work_off(self):
        """Try each job that there is."""
        if self.function() is None:
            return
        self.jobs.begin()
        while True:
            self.end_if_told()
            self.is_claiming = True
            try:
                claimed = self.jobs.next()
                if claimed is None:
                    return
                self.work_on(*claimed)
            finally:
                self.is_claiming = False
            if self.settings["max_tasks"] and self.done >= self.settings["max_tasks"]:
                self.tell(f"maximum number of tasks reached ({self.settings['max_tasks']}) recycling ...")
                raise SystemExit(self.native.EXIT_RECYCLED)

    def function(self):
        """Return `uwsgi.spooler`, or None. Without one, jobs stay where they are."""
        function = self.half.uwsgi.hook("spooler")
        if function is None and not self.has_told_of_no_function:
            self.has_told_of_no_function = True
            log.tell("unable to find the spooler function, have you loaded it into the spooler process ?")
        return function

    def tell(self, text):
        """Log a line with uWSGI's words."""
        line = f"[spooler {self.directory} pid: {self.pid}] {text}\n"
        self.native.write_log(line.encode("utf-8", "backslashreplace"))

    def work_on(self, name, task):
        """Call the application's function with a job, and remove the job if it is done."""
        if not self.settings["is_quiet"]:
            self.tell(f"managing request {name} ...")
        enter(self.settings["job_directory"] or self.directory)
        began = time.monotonic()
        self.link.begin_work(name)
        result = SPOOL_RETRY
        try:
            result = self.function()(task)
        except BaseException as error:
            # SystemExit too: uWSGI tries the job again as well.
            log.log_exception(error, f"job {name}")
        finally:
            if os.getpid() != self.pid:
                # A child that the function has forked came back from it.
                self.end_here(0)
            self.link.end_work()
        is_number = isinstance(result, int)
        if not (is_number and result == SPOOL_IGNORE):
            self.done += 1
        is_done = is_number and result == SPOOL_OK
        self.jobs.finish(is_done)
        if is_done and not self.settings["is_quiet"]:
            seconds = int(time.monotonic() - began)
            self.tell(f"done with task {name} after {seconds} seconds")


def enter(directory):
    """Change the working directory. A directory that is gone leaves it as it is."""
    try:
        os.chdir(directory)
    except OSError as error:
        log.tell(f"can't change to `{directory}`: {error}")
