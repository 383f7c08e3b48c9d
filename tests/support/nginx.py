"""A real nginx in front of a server under test."""

import os
import shutil
import socket
import subprocess

from support.client import Client
from support.waiting import wait_until

#: ``{http}`` stands for what is in the test's own ``http`` block.
CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    uwsgi_temp_path {folder}/uwsgi;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    {http}
}}
"""

#: nginx binds its port itself, so another process may take it in between: then another is tried.
PORT_TRIES = 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nginx:
    """Serves at ``port`` when it is made. ``http`` is a block in which ``{port}`` stands for that port."""

    def __init__(self, folder, http):
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        assert program, "nginx is not installed: apt-get install nginx"
        self.folder = folder
        for _ in range(PORT_TRIES):
            self.port = free_port()
            text = CONFIGURATION.format(folder=folder, http=http.replace("{port}", str(self.port)))
            (folder / "nginx.conf").write_text(text)
            command = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            if wait_until(self._answers, lambda: f"nginx serves: {self.errors()}") is True:
                return
        raise AssertionError(f"nginx does not start: {self.errors()}")

    def _answers(self):
        if self.process.poll() is not None:
            return "ended"
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def errors(self):
        log = self.folder / "error.log"
        return log.read_text() if log.exists() else "no log"

    def connect(self, **options):
        return Client(("127.0.0.1", self.port), **options)

    def finish(self):
        self.process.terminate()
        self.process.wait(timeout=20)
