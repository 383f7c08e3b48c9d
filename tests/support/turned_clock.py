"""A clock that a test advances by hand: hours pass in milliseconds for a server under test, and for all of its processes.

``turned_clock.c`` is compiled into the test's directory and loaded with LD_PRELOAD. It adds an offset from a small shared file,
which :meth:`TurnedClock.turn` writes, to the wall clocks and to the monotonic ones. The server's waits in the kernel (the timeout
of its poll) last as long as ever: the server sees the new time when it next reads a clock, so a test that advances it must wake
the server afterwards. No clock goes back, and none stands still.
"""

import os
import struct
from pathlib import Path

from support.preloaded import compiled

NANOSECONDS = 1_000_000_000
#: The format that the C side reads.
AHEAD = struct.Struct("=q")
SOURCE = Path(__file__).with_suffix(".c")


class TurnedClock:
    """``environment`` is for :class:`support.server.Server`; ``directory`` contains the file and the library."""

    def __init__(self, directory):
        self._path = Path(directory) / "turned-clock"
        self._path.write_bytes(AHEAD.pack(0))
        self._seconds = 0
        self.environment = {"LD_PRELOAD": compiled(SOURCE, directory), "TURNED_CLOCK": str(self._path)}

    def turn(self, seconds):
        """Advances the server's clocks by ``seconds`` in one step."""
        assert seconds >= 0, "no clock of the kernel goes back"
        self._seconds += seconds
        with self._path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), AHEAD.pack(int(self._seconds * NANOSECONDS)), 0)
