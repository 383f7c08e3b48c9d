"""Jobs of uWSGI's spooler as files, and an application that notes what it does with them."""

import itertools
import os
import time
from urllib.parse import urlencode

from support.uwsgi import packet
from support.waiting import wait_until

#: The modifier1 of a job's packet.
MODIFIER = 17

SHOP = """\
import os, time, uwsgi
from urllib.parse import parse_qsl
NOTES = os.path.abspath("notes")
def note(what):
    # One write is one line, whatever other processes write.
    with open(NOTES, "ab", buffering=0) as file:
        file.write(f"{what} {os.getpid()} {time.time()}\\n".encode())
def application(environ, start_response):
    start_response("200 OK", [])
    pairs = parse_qsl(environ["QUERY_STRING"], keep_blank_values=True)
    job = {name.encode(): value.encode() for name, value in pairs}
    try:
        return [uwsgi.spool(job)]
    except ValueError as error:
        return [b"ValueError: " + str(error).encode()]
def work(job):
    note(job[b"name"].decode())
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""

_numbers = itertools.count(1)


def write_job(directory, at=None, **pairs):
    """Writes a job as uWSGI does, and renames it into its directory. Returns its name."""
    name = f"uwsgi_spoolfile_on_test_{os.getpid()}_{next(_numbers)}_1_{int(time.time())}_0"
    return put(directory, name, packet(pairs.items(), MODIFIER), at)


def put(directory, name, data, at=None):
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_bytes(data)
    if at is not None:
        os.utime(hidden, (at, at))
    hidden.rename(directory / name)
    return name


def jobs_in(directory):
    """The names of the jobs in a directory."""
    return sorted(name for name in os.listdir(directory) if name.startswith("uwsgi_spoolfile_on_"))


class Shop:
    """The application under a server with a spooler."""

    def __init__(self, serve, directory, options, spooler="spooler = {directory}/jobs", source="", **keywords):
        self.directory = directory
        (directory / "shop.py").write_text(SHOP + source)
        lines = [f"chdir = {directory}", "module = shop:application", "master = true", spooler, *options]
        self.server = serve("\n".join(lines), **keywords)
        self.jobs = self.server.directory / "jobs"

    def spool(self, **pairs):
        return self.server.get(f"/?{urlencode(pairs)}").text

    def noted(self):
        """What jobs have noted: words, pids and times."""
        file = self.directory / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(word, int(pid), float(at)) for word, pid, at in (line.split(" ") for line in lines)]

    def words(self):
        return [word for word, _, _ in self.noted()]

    def wait_for_notes(self, *expected):
        wait_until(lambda: self.words() == list(expected), lambda: f"{expected}: {self.words()}; {self.server.log}")

    def wait_for_count(self, count):
        wait_until(lambda: len(self.noted()) >= count, lambda: f"{count} notes: {self.words()}; {self.server.log}")

    def wait_until_empty(self):
        wait_until(lambda: jobs_in(self.jobs) == [], lambda: f"{os.listdir(self.jobs)}; {self.server.log}")
