"""A server under test: `bolide` of the running environment, with a private directory, configuration and log."""

import array
import codecs
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from support import processes
from support.client import Client
from support.waiting import TIMEOUT_SECONDS, wait_until

TESTS = Path(__file__).resolve().parents[1]
APPS = TESTS / "apps"

#: The timestamp of the server's own lines, which tests do not see.
TIME = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?=bolide: |worker \d+: |mule \d+: |spooler \d+: |an exception in )", re.MULTILINE
)
#: The line of the master when workers serve.
READY = re.compile(r'^bolide: ready: |"message":"ready: ', re.MULTILINE)
#: The lines with its addresses.
PLACE = re.compile(
    r'^(?:bolide: |\{.*"message":")listening on (?:(?P<scheme>[a-z-]+)://(?P<address>[^\s"]+)|[a-z-]+ unix:(?P<path>[^\s"]+))'
)
#: Lines that a log must not contain unless the test expects them.
ALARMS = ("panicked at", "was killed by", "Segmentation fault", "exited with status", "internal error")

#: Number of log lines that a failure shows.
SHOWN_LINES = 40

#: Between two looks of the reader into a pipe that is never empty, so that the test gets its turn.
READER_PAUSE_SECONDS = 0.001

#: Variables of our environment that the server must not inherit.
REMOVED_PREFIXES = ("UWSGI_", "BOLIDE_", "PYTHON", "VIRTUAL_ENV")


def program():
    """Returns the command of the console script beside the running interpreter."""
    script = Path(sys.executable).parent / "bolide"
    if not script.exists():
        raise AssertionError(f"there is no {script}: install Bolide into the environment that runs the tests")
    return [str(script)]


def is_readable(file, milliseconds):
    """Waits this long until a file can be read or has ended, or without a limit (None)."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(milliseconds))


def waiting_bytes(file):
    """Returns how many bytes a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(file, termios.FIONREAD, count)
    return count[0]


class Server:
    """Starts in :meth:`start`; :meth:`finish` ends it and fails if anything is left of it.

    ``configuration`` is the text of ``uwsgi.ini`` without its section; ``{directory}`` and ``{apps}`` in it are replaced by the
    server's directory and by ``tests/apps``. Unless ``listen`` says otherwise it serves HTTP on a free port of 127.0.0.1. With
    ``arguments`` the command line is exactly these, and no file is written.
    """

    def __init__(
        self,
        directory,
        configuration="",
        listen=("http-socket = 127.0.0.1:0",),
        arguments=None,
        environment=None,
        kept=(),
        command=None,
    ):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ini = self.directory / "uwsgi.ini"
        self.process = None
        #: Deaths of workers and similar lines are the subject of this test.
        self.expects_alarms = False
        #: The parts of the log that :attr:`raw_log` has not joined yet, the joined one first.
        self._parts = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        #: The pipe has ended.
        self._is_whole = False
        self._changed = threading.Condition()
        self._reader = None
        #: Cleared while the log must not be read.
        self._is_read = threading.Event()
        self._is_read.set()
        self._is_left = threading.Event()
        self._clients = []
        self._kept = tuple(kept)
        #: The executable instead of the console script.
        self._command = command
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
        self._environment.update({"PYTHONDONTWRITEBYTECODE": "1", **(environment or {})})
        if arguments is None:
            self.configure(configuration, listen)
            arguments = [str(self.ini)]
        self.arguments = [self.filled(argument) for argument in arguments]

    def filled(self, text):
        return text.replace("{directory}", str(self.directory)).replace("{apps}", str(APPS))

    def configure(self, configuration, listen=("http-socket = 127.0.0.1:0",)):
        """Writes uwsgi.ini, or rewrites it."""
        lines = ["[uwsgi]", *listen, *(line.strip() for line in configuration.strip().splitlines())]
        self.ini.write_text(self.filled("\n".join(lines)) + "\n")

    # Starting and ending.

    def launch(self):
        """Starts the program without waiting."""
        self.process = subprocess.Popen(
            [*(self._command or program()), *self.arguments],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self._kept,
        )
        self._reader = threading.Thread(target=self._read, name="log reader", daemon=True)
        self._reader.start()
        return self

    def start(self):
        """Starts it and waits until it serves."""
        self.launch()
        self.wait_for(lambda: READY.search(self.everything()) or self.process.poll() is not None, "it is ready")
        if not READY.search(self.everything()):
            raise AssertionError(f"it ended with status {self.process.wait()} instead of serving:\n{self.everything()}")
        return self

    def wait_for_exit(self, seconds=TIMEOUT_SECONDS):
        """Waits for the master's end and the end of its log; returns the exit status."""
        status = self.process.wait(timeout=seconds)
        self._reader.join(seconds)
        assert not self._reader.is_alive(), f"a process has kept the log open: {self.processes()}"
        return status

    def send_signal(self, number):
        os.kill(self.process.pid, number)

    def stop(self, number=signal.SIGTERM, seconds=TIMEOUT_SECONDS):
        """Sends a signal and returns the exit status."""
        self.send_signal(number)
        return self.wait_for_exit(seconds)

    def finish(self):
        """The end of the test: checks that no process of the server is left, and that its log does not contain alarms."""
        for client in self._clients:
            client.close()
        self.read_log()
        if self.process is None:
            return
        try:
            if self.process.poll() is None:
                self.send_signal(signal.SIGQUIT)
                self.process.wait(timeout=TIMEOUT_SECONDS)
            wait_until(lambda: not self.processes(), lambda: f"these processes are left: {self.processes()}")
            self._reader.join(TIMEOUT_SECONDS)
        finally:
            for left in self.processes():
                processes.kill(left.pid)
            self.process.wait()
            self._reader.join(TIMEOUT_SECONDS)
            self.process.stdout.close()
        if not self.expects_alarms:
            log = self.log
            alarms = [line for line in log.splitlines() if any(alarm in line for alarm in ALARMS)]
            assert not alarms, f"the log contains alarms: {alarms}\n{log}"

    def processes(self):
        """Returns all living processes of the server, the master first."""
        return sorted(processes.of_session(self.process.pid), key=lambda process: (process.pid != self.process.pid, process.pid))

    def workers(self):
        """Returns the pids of the workers: children of the prototype, which is a child of the master."""
        all_of_them = self.processes()
        prototypes = [process.pid for process in all_of_them if process.parent == self.process.pid]
        return [process.pid for process in all_of_them if process.parent in prototypes]

    def worker(self):
        """Returns the pid of the only worker."""
        (worker,) = self.workers()
        return worker

    # The log.

    @property
    def log(self):
        """Returns all output so far, of standard output and standard error, without the timestamps of its own lines."""
        return TIME.sub("", self.raw_log)

    @property
    def raw_log(self):
        """Returns the same with timestamps. What the server has written before is in it, even if the reader is late."""
        with self._changed:
            if self._is_read.is_set():
                self._take_waiting()
            self._parts = ["".join(self._parts)]
            return self._parts[0]

    def whole_log(self):
        """Ends the server and returns its complete log, so that a test can check that a line is missing.

        Requests in flight are finished, because a worker logs a request after its client has the response.
        """
        self.read_log()
        if self.process.poll() is None:
            self.send_signal(signal.SIGTERM)
        self.wait_for_exit()
        return self.log

    def log_until_now(self):
        """Returns the log of a running server that other tests use too, complete up to now: it waits for the master's
        next line.
        """
        known = len(self.raw_log)
        self.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: "\n" in self.raw_log[known:], "the master's line")
        return self.log

    @property
    def lines(self):
        return self.log.splitlines()

    def everything(self):
        """Returns the log, and the content of the file of ``logto`` if that is ``{directory}/log``."""
        file = self.directory / "log"
        return self.log + (TIME.sub("", file.read_text(errors="replace")) if file.is_file() else "")

    def leave_log(self):
        """Stops reading the log until :meth:`read_log`."""
        self._is_read.clear()

    def read_log(self):
        self._is_read.set()

    def close_log(self):
        """Closes the reader's end of the log while the server writes it."""
        self.leave_log()
        # The reader, which waits for a line, gets one more and then ends.
        self.send_signal(signal.SIGUSR1)
        assert self._is_left.wait(TIMEOUT_SECONDS)
        self.process.stdout.close()
        self.read_log()

    def _read(self):
        while True:
            if not self._is_read.is_set():
                self._is_left.set()
                self._is_read.wait()
            if self.process.stdout.closed:
                return
            is_readable(self.process.stdout, None)
            with self._changed:
                self._take_waiting()
                self._changed.notify_all()
                if self._is_whole:
                    return
            time.sleep(READER_PAUSE_SECONDS)

    def _take_waiting(self):
        """Takes what the pipe holds now and nothing that comes later: a server may write without end. The caller has the
        lock.
        """
        output = self.process and self.process.stdout
        if self._is_whole or not output or output.closed or not is_readable(output, 0):
            return
        # A pipe that can be read and holds nothing has ended.
        data = os.read(output.fileno(), waiting_bytes(output) or 1)
        self._parts.append(self._decoder.decode(data, final=not data))
        self._is_whole = not data

    def wait_for(self, condition, what, seconds=TIMEOUT_SECONDS):
        """Waits until a condition on the log or the process holds; returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                end_of_log = "\n".join(self.everything().splitlines()[-SHOWN_LINES:])
                raise AssertionError(f"not within {seconds} s: {what}; the end of the log:\n{end_of_log}")
            with self._changed:
                # The end of the process is not signaled, so the wait is a short one.
                self._changed.wait(0.02)

    def wait_for_log(self, pattern, count=1, seconds=TIMEOUT_SECONDS):
        """Waits until ``count`` places of the log match; returns the last match."""
        compiled = re.compile(pattern, re.MULTILINE)

        def found():
            matches = list(compiled.finditer(self.everything()))
            return matches[-1] if len(matches) >= count else None

        return self.wait_for(found, f"{pattern!r} is in the log {count} times", seconds)

    def wait_for_text(self, text):
        """Waits until this is in the log: a line may come after its event, and on a different channel."""
        self.wait_for(lambda: text in self.log, f"{text!r} is in the log")

    # Where it listens, and talking to it.

    def places(self):
        """Returns ``[(scheme, host, port) or path]`` in the order in which they are logged at startup."""
        found = []
        for line in self.everything().splitlines():
            match = PLACE.match(line)
            if match is None:
                continue
            if match["path"]:
                found.append(match["path"])
            else:
                host, _, port = match["address"].rpartition(":")
                found.append((match["scheme"], host.strip("[]"), int(port)))
        return found

    def address(self, scheme="http"):
        """Returns ``(host, port)`` of the first TCP socket with ``scheme``."""
        for place in self.places():
            if place[0] == scheme:
                return place[1:]
        raise AssertionError(f"it has no TCP socket for {scheme}: {self.places()}")

    @property
    def port(self):
        return self.address()[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self, address=None, **options):
        """Returns a new :class:`Client`, closed with the server at the latest."""
        client = Client(address or self.address(), **options)
        self._clients.append(client)
        return client

    def get(self, target="/", headers=(), method="GET", body=None):
        """Sends one request on a new connection; returns its :class:`Response`."""
        with Client(self.address()) as client:
            return client.request(method, target, [*headers, ("Connection", "close")], body)
