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

BALANCED = """
listen {name}
    mode http
    bind 127.0.0.1:{port}
    balance roundrobin
    retries 0
    option httpchk
    # Otherwise a server that answers later than the interval is down, and a busy machine has none left.
    timeout check 20s
    http-check send meth GET uri {check} ver HTTP/1.1 hdr Host localhost
    default-server check inter {interval} fall 2 rise 1
{servers}
"""


class HAProxy:
    """Serves at ``ports`` when it is created: one port for each of ``ways``, ``{name: (options of bind, options of server)}``."""

    def __init__(self, directory, ways):
        program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "HAProxy is not installed: apt-get install haproxy"
        self.log = directory / "haproxy.log"
        self._held = {name: reserve() for name in ways}
        self.ports = {name: held.getsockname()[1] for name, held in self._held.items()}
        sections = [self.section(name, bind, server) for name, (bind, server) in ways.items()]
        (directory / "haproxy.cfg").write_text(CONFIGURATION + "".join(sections))
        with self.log.open("wb") as log:
            command = [program, "-db", "-f", str(directory / "haproxy.cfg")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, lambda: f"HAProxy serves: {self.log.read_text()}")

    def section(self, name, bind, server):
        return SECTION.format(name=name, port=self.ports[name], bind=bind, server=server)

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


class Balancer(HAProxy):
    """Distributes requests over HTTP servers, ``{name: address}``, and checks each of them at an interval. A request that one
    server refuses is lost.
    """

    def __init__(self, directory, servers, check, interval="100ms"):
        self._servers, self._check, self._interval = servers, check, interval
        super().__init__(directory, {"balanced": ("", "")})

    def section(self, name, bind, server):
        servers = "\n".join(f"    server {server} {host}:{port}" for server, (host, port) in self._servers.items())
        port = self.ports[name]
        return BALANCED.format(name=name, port=port, check=self._check, interval=self._interval, servers=servers)
