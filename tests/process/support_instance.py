"""A server of the tests about processes: it knows its prototypes and workers, and ends when told to."""

import contextlib
import signal
import socket
from pathlib import Path

from support.server import Server
from support.waiting import wait_until
from support_processes import children_of, command_line_of

APPLICATIONS = Path(__file__).parent / "probes"
#: Exit statuses of a start that failed: before an application could be loaded, and because it could not.
START_FAILED = 1
LOAD_FAILED = 22
#: Those of the commands for a running instance, as docs/reference/processes.md has them.
DONE, REFUSED, MISUSED, NO_INSTANCE, NO_ANSWER = range(5)


class Instance(Server):
    """Serves the probe application of this folder, unless its arguments say otherwise."""

    @property
    def pid(self):
        return self.process.pid

    def body(self, target="/", connection=None):
        """The body of the answer, on a fresh connection if none is given; any other status than 200 is an error."""
        answer = connection.request("GET", target) if connection else self.get(target)
        assert answer.status == 200, answer
        return answer.text

    def prototypes(self):
        """Pids of the prototypes that live, the oldest first."""
        return sorted(child for child in children_of(self.pid) if not is_attendant(child))

    def prototype(self):
        (only,) = self.prototypes()
        return only

    def workers(self):
        """Pids of the workers that live, of all generations."""
        return [worker for prototype in self.prototypes() for worker in children_of(prototype)]

    def worker(self):
        (only,) = self.workers()
        return only

    def wait_for_generation(self, number):
        """Wait until the generation of this number serves, and is the only one left."""
        self.wait_for_log(rf"^bolide: ready: .* of generation {number} in")
        return wait_until(lambda: len(self.prototypes()) == 1, "the end of the old generation")

    def reload(self, number):
        """Order the reload that makes this generation, and wait until it alone is left."""
        self.send_signal(signal.SIGHUP)
        return self.wait_for_generation(number)

    @contextlib.contextmanager
    def looks_away(self):
        """Within, the master sees nothing: what is done there to files is one change to it, however long it takes."""
        self.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def wait_until_gone(self):
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}; the log:\n{self.log}")


def is_attendant(pid):
    """Whether this child of the master looks after daemons, and is no prototype."""
    try:
        return command_line_of(pid).startswith("bolide attendant")
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile, so it is no prototype either.
        return True


def port_is_free(port, host="127.0.0.1"):
    """Whether a server that takes over could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
    return True
