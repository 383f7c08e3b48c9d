"""A mule: a helper that executes code of its own, or waits for messages.

Must not know how messages travel. Runs in mules.
"""

import select

from bolide.helpers import Helper


class Mule(Helper):
    """A mule by its task in the settings."""

    def __init__(self, half, name, task):
        super().__init__(half, name, task)
        self.number = task["number"]

    def work(self):
        code = self.task["code"]
        if code is None:
            self.serve()
        elif "File" in code:
            self.execute(code["File"])
        else:
            self.call(code["Function"])

    def execute(self, path):
        """Execute a file as ``__main__``, as uWSGI does."""
        import runpy

        runpy.run_path(path, run_name="__main__")

    def call(self, name):
        """Call ``module:function``."""
        from bolide.hooks import find

        find({"name": name, "origin": f"mule = {name}"})()

    def serve(self):
        """Wait for the order to end."""
        while True:
            select.select([self.link.descriptor], [], [])
            self.end_if_told()
