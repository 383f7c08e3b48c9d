"""A file that is executed instead of a worker (``pyrun``): a helper whose end ends the instance.

Must not know how the instance stops, which is the master's task. Runs in the helper of that file.
"""

import sys

from bolide import log
from bolide.helpers.helper import Helper


class Script(Helper):
    """The file by its task in the settings."""

    def __init__(self, half, name, task):
        super().__init__(half, name, task)
        # As with uWSGI, where it is the first worker that executes it.
        log.worker = 1

    def work(self):
        """Execute the file as ``__main__``, as uWSGI does. Its path is the first of its arguments."""
        import runpy

        path = self.task["file"]
        sys.argv[0] = path
        runpy.run_path(path, run_name="__main__")
