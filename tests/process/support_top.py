"""`bolide top` in a pseudo-terminal of its own, as a person sees it."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from support.screen import EmulatedScreen
from support.server import program
from support.waiting import wait_until

#: Longest wait for a text on the screen, in seconds.
SCREEN_SECONDS = 30
#: Escape sequences of a terminal (ECMA-48).
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[()].|[=>])")


class Screen:
    """The pseudo-terminal is the controlling one, so that the kernel sends a signal at each change of its size."""

    def __init__(self, *arguments, columns=110, lines=30):
        self.master, self.terminal = pty.openpty()
        #: What is on the screen now.
        self.emulated = EmulatedScreen(columns, lines)
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.terminal)
        self.process = subprocess.Popen(
            [*program(), "top", *map(str, arguments)],
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        self.said = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def resize(self, columns, lines):
        self.emulated.resize(columns, lines)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        """Reads the pending output. Returns whether there was any."""
        if not select.select([self.master], [], [], 0.05)[0]:
            return False
        try:
            read = self.decoder.decode(os.read(self.master, 65536))
        except OSError:
            return False
        self.said += read
        self.emulated.feed(read)
        return True

    def wait_until_shown(self, is_shown, what):
        """Waits until `is_shown` of the lines on the screen. Returns them."""

        def found():
            self.read()
            lines = self.emulated.lines()
            return lines if is_shown(lines) else None

        return wait_until(found, lambda: f"{what} on the screen, which is:\n{self.emulated.text()}")

    def wait_for(self, pattern):
        """Waits until the screen's new text matches, and forgets it. Neither has spaces: unchanged cells are not drawn again."""

        def found():
            self.read()
            return re.search(re.sub(r"\s", "", pattern), re.sub(r"\s", "", ESCAPES.sub("", self.said)))

        match = wait_until(found, lambda: f"{pattern} on the screen, which has {ESCAPES.sub('', self.said)!r}")
        self.said = ""
        return match

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Returns the exit status, and all that was written in the meantime."""
        until = time.monotonic() + SCREEN_SECONDS
        while self.process.poll() is None and time.monotonic() < until:
            self.read()
        while self.read():
            pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.terminal)


def take_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
