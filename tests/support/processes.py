"""The processes of a session, as /proc shows them."""

import os
import signal
from pathlib import Path


class Process:
    """A snapshot of one process."""

    def __init__(self, pid, name, state, parent, session):
        self.pid = pid
        self.name = name
        self.state = state
        self.parent = parent
        self.session = session

    def __repr__(self):
        return f"<{self.pid} {self.name} ({self.state}), child of {self.parent}>"


def look(pid):
    """Returns the :class:`Process`, or None if it is gone.

    A zombie counts as gone, unless only its main thread has ended: the others hold its descriptors until they end as well.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name is in parentheses and may contain any character: proc(5).
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
    fields = rest.split()
    state, parent, _, session = fields[:4]
    threads = int(fields[17])
    return None if state in "ZX" and threads <= 1 else Process(pid, name, state, int(parent), int(session))


def of_session(session):
    """Returns all processes of a session that have not ended. Tests poll this, so it reads only files of that session."""
    members = (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and session_of(int(entry)) == session)
    return [process for process in map(look, members) if process is not None and process.session == session]


def of_others_with_log_below(directory):
    """Returns the processes of other users whose standard error is a file below this directory, in whatever session they are."""
    beginning = f"{directory}/"

    def is_one(pid):
        try:
            return os.stat(f"/proc/{pid}").st_uid != os.getuid() and os.readlink(f"/proc/{pid}/fd/2").startswith(beginning)
        except OSError:
            return False

    found = (look(int(entry)) for entry in os.listdir("/proc") if entry.isdigit() and is_one(entry))
    return [process for process in found if process is not None]


def session_of(pid):
    """Returns the session of a process, or None if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def kill(pid, number=signal.SIGKILL):
    """Sends a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def resident_bytes(pid):
    """Returns the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no VmRSS")
