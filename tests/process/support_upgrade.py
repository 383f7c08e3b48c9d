"""An instance whose master is replaced by another: the pidfile names the current one."""

import os
import signal

from support.waiting import wait_until
from support_processes import children_of, is_alive

UPGRADE = signal.SIGRTMIN + 2
SERVES = r"^bolide: upgrade: the new master \(pid (\d+)\) is ready, and this one exits when its requests are answered$"
#: Code at the beginning of an application whose loading is to be delayed.
HELD = "import os, time\nwhile os.path.exists({path!r}): time.sleep(0.01)\n"


def pidfile(directory):
    return directory / "shop.pid"


def pid_of(directory):
    """Returns the pid of the current master."""
    file = pidfile(directory)
    text = file.read_text() if file.exists() else ""
    return int(text) if text else None


def upgrade(directory):
    """Requests an upgrade, and waits until another master has taken over. Returns its pid."""
    before = pid_of(directory)
    os.kill(before, UPGRADE)
    return wait_for_another(directory, before)


def wait_for_another(directory, before):
    return wait_until(lambda: (pid := pid_of(directory)) not in (None, before) and pid, "the pidfile of the new master")


def stop(directory):
    """Stops the current master, if there is one."""
    pid = pid_of(directory)
    if pid and is_alive(pid):
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not is_alive(pid), "the end of the master that took over")


def workers_of(master):
    return [worker for prototype in children_of(master) for worker in children_of(prototype)]
