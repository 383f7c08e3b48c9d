"""A real HAProxy in front of a server under test."""

import os
import shutil
import subprocess

from support.client import Client
from support.ports import reserve
from support.waiting import TIMEOUT_SECONDS, wait_until

CONFIGURATION = """
global
    maxconn 200
defaults
    mode tcp
    timeout connect 20s
    timeout client 60s
    timeout server 60s
"""

SECTION = """
listen {name}
    bind 127.0.0.1:{port} {bind}
    server only {server}
"""


class HAProxy:
    """Serves at ``ports`` when it is created: one port for each of ``ways``, ``{name: (options of bind, options of server)}``."""

    def __init__(self, directory, ways):
        program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "HAProxy is not installed: apt-get install haproxy"
        self.log = directory / "haproxy.log"
        self._held = {name: reserve() for name in ways}
        self.ports = {name: held.getsockname()[1] for name, held in self._held.items()}
        sections = [
            SECTION.format(name=name, port=self.ports[name], bind=bind, server=server) for name, (bind, server) in ways.items()
        ]
        (directory / "haproxy.cfg").write_text(CONFIGURATION + "".join(sections))
        with self.log.open("wb") as log:
            command = [program, "-db", "-f", str(directory / "haproxy.cfg")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, lambda: f"HAProxy serves: {self.log.read_text()}")

    def _answers(self):
        assert self.process.poll() is None, f"HAProxy does not start: {self.log.read_text()}"
        try:
            for name in self.ports:
                self.connect(name).close()
        except OSError:
            return False
        return True

    def connect(self, name, **options):
        return Client(("127.0.0.1", self.ports[name]), **options)

    def finish(self):
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_SECONDS)
        for held in self._held.values():
            held.close()
