"""A server of the process tests: it finds its prototypes and workers, and can be stopped."""

import contextlib
import signal
import socket
import subprocess
from pathlib import Path

from support.server import Server, program
from support.waiting import wait_until
from support_processes import children_of, command_line_of

APPLICATIONS = Path(__file__).parent / "probes"
#: Exit statuses of a failed start: before an application could be loaded, and because it could not be loaded.
START_FAILED = 1
LOAD_FAILED = 22
#: Exit statuses of the commands for a running instance, as in docs/reference/processes.md.
DONE, REFUSED, MISUSED, NO_INSTANCE, NO_ANSWER = range(5)
#: Timeout of a command for a running instance, in seconds.
COMMAND_SECONDS = 60


class Instance(Server):
    """Serves the probe application of this directory by default."""

    @property
    def pid(self):
        return self.process.pid

    def body(self, target="/", connection=None):
        """Returns the body of the response, on a new connection by default; any status other than 200 is an error."""
        answer = connection.request("GET", target) if connection else self.get(target)
        assert answer.status == 200, answer
        return answer.text

    def prototypes(self):
        """Returns the pids of living prototypes, oldest first."""
        return sorted(child for child in children_of(self.pid) if not is_daemon_helper(child))

    def prototype(self):
        (only,) = self.prototypes()
        return only

    def workers(self):
        """Returns the pids of living workers of all generations."""
        return [worker for prototype in self.prototypes() for worker in children_of(prototype)]

    def worker(self):
        (only,) = self.workers()
        return only

    def wait_for_replacement(self, *gone, count=1):
        """Waits until there are this many workers, and none of these. A single look decides: workers exit between two."""

        def are_replaced():
            found = self.workers()
            return len(found) == count and not set(gone) & set(found)

        wait_until(are_replaced, lambda: f"{count} workers and none of {gone}: {self.workers()}; the log:\n{self.log}")

    def wait_for_generation(self, number):
        """Waits until the generation with this number serves, and is the only one."""
        self.wait_for_log(rf"^bolide: ready: .* of generation {number} in")
        return wait_until(lambda: len(self.prototypes()) == 1, "the end of the old generation")

    def reload(self, number):
        """Requests the reload that creates this generation, and waits until it is the only one."""
        self.send_signal(signal.SIGHUP)
        return self.wait_for_generation(number)

    @contextlib.contextmanager
    def looks_away(self):
        """Stops the master within the block: changes of files are a single change to it, however long they take."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def wait_until_gone(self):
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}; the log:\n{self.log}")


def reload_by_command(server):
    """Requests a reload, and waits until all workers and helpers of before have the order to end."""
    # "ready" in the log does not show that: the orders follow it.
    command = [*program(), "reload", "--wait", str(server.process.pid)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == DONE, done.stdout


def is_daemon_helper(pid):
    """Returns whether this child of the master supervises daemons or sends spans, and is not a prototype."""
    try:
        return command_line_of(pid).startswith(("bolide: attendant", "bolide attendant", "bolide: exporter"))
    except (FileNotFoundError, ProcessLookupError):
        # It has ended in the meantime, so it is not a prototype either.
        return True


def port_is_free(port, host="127.0.0.1"):
    """Returns whether a server that takes over could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
    return True
