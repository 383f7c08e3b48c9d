"""A program in a pseudo-terminal, as a person uses it: its output is read, and keys are typed."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time

from support.server import REMOVED_PREFIXES, program
from support.waiting import TIMEOUT_SECONDS

#: Variables of a person's shell that would change the output.
CHANGES_WHAT_IS_SHOWN = ("NO_COLOR", "FORCE_COLOR", "PORT", "WEB_CONCURRENCY")
#: Colors and other escape sequences, which are not part of the text.
COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """``bolide`` in a terminal whose input and output are ours."""

    def __init__(self, directory, *arguments, **environment):
        self.directory = directory
        self.ours, theirs = pty.openpty()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(REMOVED_PREFIXES) and name not in CHANGES_WHAT_IS_SHOWN
        }

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*program(), *map(str, arguments)],
            cwd=directory,
            env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        #: All output.
        self.text = ""
        self._is_shown_to_the_end = False

    @property
    def words(self):
        """Returns the output without colors."""
        return COLOR.sub("", self.text).replace("\r\n", "\n")

    def wait_for(self, pattern):
        """Returns the first match of ``pattern`` in the output, without colors or with them."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = re.search(pattern, self.words) or re.search(pattern, self.text)
            if found:
                return found
            assert not self._is_shown_to_the_end, f"it ended before {pattern!r}: {self.words!r}"
            assert time.monotonic() < end, f"{pattern!r} is not in {self.words!r}"
            self._read()

    def wait_for_end(self):
        """Returns the exit status when all output is read and no process has the terminal open."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while not self._is_shown_to_the_end:
            assert time.monotonic() < end, f"it does not end: {self.words!r}"
            self._read()
        return self.process.wait(TIMEOUT_SECONDS)

    def type(self, text):
        os.write(self.ours, text.encode())

    def interrupt(self):
        """Ctrl-C."""
        self.type("\x03")

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(TIMEOUT_SECONDS)
        os.close(self.ours)

    def _read(self):
        if select.select([self.ours], [], [], 0.1)[0]:
            try:
                self.text += os.read(self.ours, 4096).decode(errors="replace")
            except OSError:
                # No process has the terminal open any more.
                self._is_shown_to_the_end = True
