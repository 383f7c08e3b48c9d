"""uWSGI itself, for tests that compare with it."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.server import APPS
from support.waiting import wait_until

#: The real program, if it is installed.
UWSGI = os.environ.get("BOLIDE_TEST_UWSGI") or shutil.which("uwsgi") or "/opt/uwsgi/bin/uwsgi"


@contextlib.contextmanager
def real_uwsgi(folder, port, configuration):
    """Starts uWSGI with a configuration, without its section and its socket. Yields its address."""
    if not Path(UWSGI).exists():
        pytest.skip("uWSGI is not installed")
    folder.mkdir()
    log = folder / "log"
    lines = ["[uwsgi]", f"http-socket = 127.0.0.1:{port}", "die-on-term = true", *configuration.splitlines()]
    (folder / "uwsgi.ini").write_text("\n".join(lines).replace("{apps}", str(APPS)).replace("{folder}", str(folder)))
    with open(log, "wb") as output:
        process = subprocess.Popen([UWSGI, "uwsgi.ini"], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until(lambda: "spawned uWSGI worker 1" in log.read_text() or process.poll() is not None, "uWSGI to serve")
        yield ("127.0.0.1", port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
