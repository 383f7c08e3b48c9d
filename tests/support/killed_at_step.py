"""A spooler that dies by SIGKILL before a chosen step of a job: the lock, the note of the attempt, the removal of the files.

``killed_at_step.c`` is compiled into the test's directory and loaded with LD_PRELOAD. It counts the steps down in a small
shared file.
"""

import os
import struct
from pathlib import Path

from support.preloaded import compiled

#: The format that the C side reads and writes.
LEFT = struct.Struct("=q")
NEVER = -1


class KilledAtStep:
    """``environment`` is for :class:`support.server.Server`; ``directory`` contains the file and the library."""

    def __init__(self, directory):
        self._path = Path(directory) / "killed-at-step"
        self._path.write_bytes(LEFT.pack(NEVER))
        library = compiled(Path(__file__).with_suffix(".c"), directory)
        self.environment = {"LD_PRELOAD": library, "KILLED_AT_STEP": str(self._path)}

    def arm(self, step):
        """Kills the spooler before this step of the next job, counted from zero; once."""
        with self._path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), LEFT.pack(step), 0)

    def disarm(self):
        """No spooler is killed any more."""
        self.arm(NEVER)

    def has_killed(self):
        """Returns whether the kill took place."""
        return LEFT.unpack(self._path.read_bytes())[0] == NEVER
