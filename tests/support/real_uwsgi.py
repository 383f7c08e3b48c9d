"""uWSGI itself, for tests that compare with it. The fixture `uwsgi` of tests/compat/conftest.py has the path of the program."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from support.server import APPS
from support.waiting import wait_until


@contextlib.contextmanager
def real_uwsgi(program, directory, port, configuration, serves="spawned uWSGI worker 1"):
    """Starts uWSGI with a configuration, without its section and its socket. `serves` is the log line to wait for. Yields its
    address.
    """
    directory.mkdir(exist_ok=True)
    log = directory / "log"
    lines = ["[uwsgi]", f"http-socket = 127.0.0.1:{port}", "die-on-term = true", *configuration.splitlines()]
    (directory / "uwsgi.ini").write_text("\n".join(lines).replace("{apps}", str(APPS)).replace("{directory}", str(directory)))
    # The program runs the Python that it was built with. The module uwsgidecorators is in its own environment.
    packages = os.pathsep.join(map(str, Path(program).parents[1].glob("lib/python*/site-packages")))
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [program, "uwsgi.ini"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": packages},
        )
    try:
        wait_until(lambda: serves in log.read_text() or process.poll() is not None, lambda: f"uWSGI to serve:\n{log.read_text()}")
        yield ("127.0.0.1", port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def prepared(directory, configuration, **files):
    """Makes a directory with these files, whose names have no `.py`. Returns it and its configuration."""
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return directory, configuration.replace("{directory}", str(directory))
