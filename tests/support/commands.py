"""A command that exits by itself, without the variables of our environment that would be options."""

import os
import subprocess

from support.waiting import TIMEOUT_SECONDS

#: Beginnings of variables that Bolide and Flask read.
READ = ("BOLIDE_", "UWSGI_", "FLASK_")


def completed(command, directory, variables):
    """Runs a command in a directory, with these variables added. Returns a ``subprocess.CompletedProcess`` with texts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(READ)}
    return subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
