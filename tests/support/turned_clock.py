"""A clock that a test turns by hand: hours pass in milliseconds for a server under test, and for all of its processes.

``turned_clock.c`` is compiled into the test's own folder and put before libc by LD_PRELOAD. It adds to the clocks of the time of
day and to the monotonic ones what a small shared file says, which :meth:`TurnedClock.turn` writes. What the server waits for in
the kernel (the timeout of its poll) is as long as ever: it sees a turned clock when it next looks at one, so a test that turns it
has the server wake up behind that. No clock goes back, and none stands still.
"""

import os
import struct
import subprocess
from pathlib import Path

NANOSECONDS = 1_000_000_000
#: As the C side reads it.
AHEAD = struct.Struct("=q")
SOURCE = Path(__file__).with_suffix(".c")


class TurnedClock:
    """``environment`` is for :class:`support.server.Server`; ``folder`` takes the file and the library."""

    def __init__(self, folder):
        self._path = Path(folder) / "turned-clock"
        self._path.write_bytes(AHEAD.pack(0))
        self._seconds = 0
        library = Path(folder) / "turned-clock.so"
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
        self.environment = {"LD_PRELOAD": str(library), "TURNED_CLOCK": str(self._path)}

    def turn(self, seconds):
        """So much time passes for the server at once."""
        assert seconds >= 0, "no clock of the kernel goes back"
        self._seconds += seconds
        with self._path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), AHEAD.pack(int(self._seconds * NANOSECONDS)), 0)
