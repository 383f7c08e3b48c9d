"""A PostgreSQL server for a test, on a UNIX socket in a directory of its own."""

import glob
import os
import shutil
import subprocess
import tempfile

from support.waiting import wait_until

#: Where Debian has the programs of each version.
PROGRAMS = "/usr/lib/postgresql/*/bin"


class Postgresql:
    """Runs from its creation to :meth:`finish`, with a database `postgres`. Its settings spare the disk."""

    def __init__(self):
        programs = sorted(glob.glob(PROGRAMS))
        assert programs, "PostgreSQL is missing: apt install postgresql"
        self._programs = programs[-1]
        # The path of a UNIX socket is short, which a directory of pytest need not be.
        self.directory = tempfile.mkdtemp(prefix="pg-")
        # The server refuses to run as root.
        self._as = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        if self._as:
            shutil.chown(self.directory, "postgres", "postgres")
        data = f"{self.directory}/data"
        self.run("initdb", "--pgdata", data, "--username", "postgres", "--auth", "trust", "--no-sync", "--no-locale")
        settings = ["listen_addresses=", "fsync=off", f"unix_socket_directories={self.directory}", "shared_buffers=1MB"]
        command = [f"{self._programs}/postgres", "-D", data, *(word for setting in settings for word in ("-c", setting))]
        self.process = subprocess.Popen(command, **self.pipes(), **self._as)
        wait_until(self.is_ready, "PostgreSQL")
        self.name = f"host={self.directory} user=postgres dbname=postgres"

    def pipes(self):
        return {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.directory}

    def run(self, program, *arguments):
        subprocess.run([f"{self._programs}/{program}", *arguments], check=True, timeout=60, **self.pipes(), **self._as)

    def is_ready(self):
        assert self.process.poll() is None, f"PostgreSQL has ended with status {self.process.returncode}"
        asked = subprocess.run([f"{self._programs}/pg_isready", "--host", self.directory], **self.pipes())
        return asked.returncode == 0

    def finish(self):
        # SIGINT: it does not wait for clients.
        self.process.send_signal(2)
        self.process.wait(60)
        shutil.rmtree(self.directory)
