"""A program at a terminal of its own, as somebody sits before it: what is typed goes in, what is shown comes out."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time

from support.server import program
from support.waiting import PATIENCE_SECONDS

#: Variables that a start of somebody else's may have left.
FOREIGN = ("PYTHON", "UWSGI_", "BOLIDE_", "NO_COLOR", "FORCE_COLOR")


class Terminal:
    """A program with a terminal of its own, whose input and output are ours."""

    def __init__(self, folder, *arguments, **environment):
        self.ours, theirs = pty.openpty()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*program(), *map(str, arguments)],
            cwd=folder,
            env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.search(pattern, self.text)
            if found:
                return found
            assert time.monotonic() < end, f"{pattern!r} is not in {self.text!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:
                    # Nobody has the terminal any more.
                    raise AssertionError(f"it ended before {pattern!r}: {self.text!r}") from None

    def type(self, text):
        os.write(self.ours, text.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)
        os.close(self.ours)
