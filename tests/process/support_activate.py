"""Passes listening sockets as a service manager does: descriptors from 3 on, and variables with their number and the pid.

Run as a program, with the numbers of the descriptors, and then the command to exec.
"""

import fcntl
import os
import sys
from pathlib import Path

FIRST = 3
#: Descriptors are first copied above this number, so that none is overwritten before it is moved.
ABOVE = 100


def activated(*sockets):
    """Returns the options of a startup that receives these sockets."""
    # Not at the top: this file also runs as a program, which does not find the module.
    from support.server import program

    numbers = ",".join(str(one.fileno()) for one in sockets)
    return {
        "command": [sys.executable, str(Path(__file__).resolve()), numbers, *program()],
        "kept": [one.fileno() for one in sockets],
    }


def main(numbers, command):
    copies = [fcntl.fcntl(int(number), fcntl.F_DUPFD, ABOVE) for number in numbers.split(",")]
    for place, copy in enumerate(copies, FIRST):
        os.dup2(copy, place, inheritable=True)
        os.close(copy)
    os.environ.setdefault("LISTEN_FDNAMES", ":".join("app" for _ in copies))
    os.environ.update(LISTEN_FDS=str(len(copies)), LISTEN_PID=str(os.getpid()))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
