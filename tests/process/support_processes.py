"""Information about processes from /proc: their descendants, and their descriptors."""

import os
import time
from pathlib import Path

from support import processes
from support.waiting import wait_until


def children_of(pid):
    """Returns the pids of living children of a process."""
    found = (processes.look(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [process.pid for process in found if process is not None and process.parent == pid]


def is_alive(pid):
    return processes.look(pid) is not None


def descriptors_of(pid):
    """Returns the descriptors of a process: number to target, as in `socket:[123]`."""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
        except FileNotFoundError:
            continue
    return found


def command_line_of(pid):
    """Returns the command line that `ps` shows."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()


def status_field(pid, name):
    """Returns a line of /proc/PID/status, as in `SigIgn` or `Uid`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    raise KeyError(name)


def established_sockets(port):
    """Returns the server's ends of the connections to a TCP port, as `/proc/PID/fd` names them."""
    return {f"socket:[{fields[9]}]" for fields in tcp_table() if fields[3] == "01" and fields[1].endswith(f":{port:04X}")}


def listening_sockets():
    """Returns all listening TCP sockets of this machine, as `/proc/PID/fd` names them."""
    return {f"socket:[{fields[9]}]" for fields in tcp_table() if fields[3] == "0A"}


def tcp_table():
    """Returns the fields of each line of the kernel's tables: 1 is the local address, 3 the state, 9 the inode (proc(5))."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:] + Path("/proc/net/tcp6").read_text().splitlines()[1:]
    return [line.split() for line in lines]


def sleeps_mostly(pid, seconds=2):
    """Returns whether a process sleeps for most of these seconds. With a timer that stays due it wakes hundreds of times per
    second.
    """
    before, began = int(status_field(pid, "voluntary_ctxt_switches")), time.monotonic()
    wait_until(lambda: time.monotonic() > began + seconds, f"{seconds} seconds")
    return int(status_field(pid, "voluntary_ctxt_switches")) - before < 25 * (time.monotonic() - began)
