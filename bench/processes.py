"""Starts servers and clients, each in a separate session, and makes sure that none outlives the suite.

Runs in the suite's own process. It does not know what the programs do.
"""

import atexit
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from .places import BENCH

STOP_SECONDS = 3.0
KILL_SECONDS = 5.0
CLIENT_TICK_SECONDS = 0.1
LOG_LINES_SHOWN = 12
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_running = []
_guardian = None


class Stopped(SystemExit):
    """A signal asked the suite to end."""


def take_charge():
    """Makes this process a subreaper, and makes every exit of the suite go through stop_all or the guardian."""
    global _guardian
    _guardian = subprocess.Popen(["/bin/sh", BENCH / "guardian.sh"], stdin=subprocess.PIPE, start_new_session=True)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    atexit.register(stop_all)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _on_signal)


def _on_signal(number, _frame):
    raise Stopped(128 + number)


def _tell_guardian(event, group):
    if _guardian is not None:
        # Without a guardian there is still stop_all.
        with contextlib.suppress(BrokenPipeError):
            _guardian.stdin.write(f"{event} {group}\n".encode())
            _guardian.stdin.flush()


def read_stat(pid):
    """Returns (parent, session, start time) of a process, or None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[3]), int(fields[19]))


def tree_of(root):
    """Returns {pid: start time} of a process, all its descendants, and all remaining members of its session."""
    table = {int(name): read_stat(name) for name in os.listdir("/proc") if name.isdigit()}
    members = {pid for pid, entry in table.items() if entry and (pid == root or entry[1] == root)}
    grown = True
    while grown:
        found = {pid for pid, entry in table.items() if entry and entry[0] in members} - members
        members |= found
        grown = bool(found)
    return {pid: table[pid][2] for pid in members}


class Program:
    """A running program: its process, its CPUs, its log."""

    def __init__(self, name, command, *, cpus, log, directory, environment=None, stdin=None, stdout=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.log = Path(log)

        def prepare():
            os.sched_setaffinity(0, cpus)

        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=directory,
                env=environment,
                stdin=stdin if stdin is not None else subprocess.DEVNULL,
                stdout=stdout if stdout is not None else output,
                stderr=output,
                start_new_session=True,
                preexec_fn=prepare,
            )
        self.pid = self.process.pid
        self._known = {}
        _running.append(self)
        _tell_guardian("start", self.pid)

    def tree(self):
        members = tree_of(self.pid)
        self._known.update(members)
        return members

    def last_lines(self):
        """Returns the end of the program's log, to show why it failed."""
        try:
            text = self.log.read_bytes()[-8192:].decode("utf-8", "replace")
        except OSError:
            return []
        return text.splitlines()[-LOG_LINES_SHOWN:]

    def stop(self):
        """Sends SIGTERM to the program, then SIGKILL to the rest of its tree."""
        if self not in _running:
            return
        self.tree()
        if self.process.poll() is None:
            self.process.terminate()
            # A process that takes longer is killed below.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        self._kill_rest()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        _running.remove(self)
        _tell_guardian("stop", self.pid)

    def _kill_rest(self):
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            self._known.update(tree_of(self.pid))
            # The start time distinguishes our process from a later one with the same pid.
            left = [pid for pid, started in self._known.items() if (entry := read_stat(pid)) and entry[2] == started]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            _reap_orphans(self._known)
            if not left:
                return
            time.sleep(0.01)


def _reap_orphans(pids):
    own = {program.pid for program in _running}
    for pid in pids:
        if pid not in own:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def stop_all():
    """Stops everything that is still running."""
    for program in list(_running):
        program.stop()


def run_client(command, *, cpus, seconds, directory, meanwhile=None):
    """Runs a client to its end. Returns (exit status, standard output, standard error). It is killed on timeout.

    `meanwhile` is called every CLIENT_TICK_SECONDS while the client runs. Raises TimeoutError if the client does not end within
    `seconds`.
    """
    program = Program(
        Path(str(command[0])).name,
        command,
        cpus=cpus,
        log=Path(directory) / "client.log",
        directory=directory,
        stdout=subprocess.PIPE,
    )
    offset = program.log.stat().st_size
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                output, _ = program.process.communicate(timeout=CLIENT_TICK_SECONDS if meanwhile else seconds)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{program.name} did not end within {seconds} s") from None
                if meanwhile:
                    meanwhile()
    finally:
        program.stop()
    errors = program.log.read_bytes()[offset:].decode("utf-8", "replace")
    return program.process.returncode, output.decode("utf-8", "replace"), errors


def wait_for_end(program, seconds):
    """Returns the exit status of a program without the delay of polling; None if it does not end in time."""
    descriptor = os.pidfd_open(program.pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    return program.process.wait() if ready else None
