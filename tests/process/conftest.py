"""Fixtures of the tests about processes: `start` starts the real program with the probe application."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.server import TIME, program
from support_instance import APPLICATIONS, Instance

#: How long a start that is to fail may take, in seconds.
FAILURE_SECONDS = 20


@pytest.fixture
def start(tmp_path):
    """Starts Bolide with the probe application on a free port; further arguments are those of the command line."""
    instances = []

    def start(*arguments, module="probe", socket="127.0.0.1:0", ready=True, alarms=False, logging=False, master=True, **options):
        chosen = ["--pythonpath", str(APPLICATIONS)]
        # Without it a single worker would load the application itself.
        chosen += ["--master"] if master else []
        chosen += [] if logging else ["--disable-logging"]
        chosen += ["--http-socket", socket] if socket else []
        chosen += ["--module", module] if module else []
        instance = Instance(tmp_path, arguments=[*chosen, *map(str, arguments)], **options)
        instance.expects_alarms = alarms
        instances.append(instance)
        return instance.start() if ready else instance.launch()

    yield start
    for instance in instances:
        instance.finish()


@pytest.fixture
def fail(tmp_path):
    """Starts Bolide with exactly these arguments, expects it to end, and gives its status and the lines it wrote."""

    def fail(*arguments, **options):
        done = subprocess.run(
            [*program(), *map(str, arguments)],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FAILURE_SECONDS,
            **options,
        )
        return done.returncode, TIME.sub("", done.stdout.decode()).splitlines()

    return fail


@pytest.fixture
def open_folder():
    """A folder that every user may enter; those of pytest are for one user only."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
