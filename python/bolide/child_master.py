"""The master as a child of a Python process: ``python -m bolide.child_master PARENT ARGUMENT…``, where PARENT is the parent's
pid.

The kernel sends it SIGTERM when its parent ends, for whatever reason. It must not know what the server serves. :mod:`bolide._run`
starts it.
"""

import signal
import sys

from bolide import _native, become_master


def begin():
    parent = int(sys.argv.pop(1))
    # The parent may have blocked signals that the master needs from its terminal.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if not _native.end_with_parent(parent):
        sys.exit("bolide: the process that started this server has exited")
    # A debugger that is in each process is here too; the process that it launched waits already.
    become_master()


if __name__ == "__main__":
    begin()
