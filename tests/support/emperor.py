"""An emperor, of uWSGI or of Bolide, with a directory of vassals."""

import os
import re
import signal
import subprocess
from pathlib import Path

from support import processes
from support.client import Client, Closed
from support.server import REMOVED_PREFIXES
from support.waiting import TIMEOUT_SECONDS, wait_until

#: A site that answers with its name, its pid, and what its configuration says.
SITE = """\
import os
def application(environ, start_response):
    said = f"{os.environ.get('NAME')} {os.getpid()} {os.getppid()} {os.getuid()} {os.getgid()}".encode()
    start_response("200 OK", [("Content-Length", str(len(said)))])
    return [said]
"""


class Emperor:
    """Runs `program` with the lines of a configuration; `{directory}` in them is replaced. Its vassals are in `vassals`."""

    def __init__(self, program, directory, *lines, environment=None):
        self.directory = Path(directory)
        self.vassals = self.directory / "vassals"
        self.vassals.mkdir(parents=True, exist_ok=True)
        (self.directory / "hosted.py").write_text(SITE)
        self.program = [program] if isinstance(program, str) else list(program)
        self.lines = [line.replace("{directory}", str(self.directory)) for line in lines]
        self.log_file = self.directory / "log"
        self.process = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
        self.environment = {**kept, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}

    @property
    def log(self):
        return self.log_file.read_text(errors="replace")

    def write(self, name, *lines):
        """Writes a vassal in one step. A later one is newer by more than a second, which is what uWSGI notices."""
        path = self.vassals / name
        text = "\n".join(["[uwsgi]", f"pythonpath = {self.directory}", "module = hosted", *lines]) + "\n"
        before = path.stat().st_mtime if path.exists() else None
        temporary = self.vassals / f".{name}.new"
        temporary.write_text(text)
        if before is not None:
            os.utime(temporary, (before + 2, before + 2))
        temporary.rename(path)
        return path

    def touch(self, name):
        path = self.vassals / name
        later = path.stat().st_mtime + 2
        os.utime(path, (later, later))

    def start(self):
        configuration = self.directory / "emperor.ini"
        configuration.write_text("\n".join(["[uwsgi]", *self.lines]) + "\n")
        with open(self.log_file, "ab") as output:
            self.process = subprocess.Popen(
                [*self.program, str(configuration)],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self

    def wait_for_log(self, text):
        wait_until(lambda: text in self.log or self.process.poll() is not None, lambda: f"{text!r} in:\n{self.log}")
        assert text in self.log, self.log

    def answer(self, port):
        """Returns the words of a site's answer, once it serves."""

        def answered():
            try:
                with Client(("127.0.0.1", port)) as client:
                    response = client.request("GET", "/")
                    return response.status == 200 and response.text.split()
            except (OSError, Closed):
                return None

        return wait_until(answered, lambda: f"an answer at port {port}; the log:\n{self.log}")

    def is_gone(self, port):
        """Waits until nothing listens there."""

        def refused():
            try:
                Client(("127.0.0.1", port)).close()
                return False
            except OSError:
                return True

        wait_until(refused, lambda: f"the end of the site at port {port}; the log:\n{self.log}")

    def processes(self):
        """Returns the processes of the emperor, and of vassals of other users, which have sessions of their own."""
        found = {process.pid: process for process in processes.of_session(self.process.pid)}
        found.update((process.pid, process) for process in processes.of_others_with_log_below(self.directory))
        return list(found.values())

    def expects(self, number):
        """Returns whether the emperor handles a signal, or has ended. A uWSGI dies of one that comes before it has a handler."""
        if self.process.poll() is not None:
            return True
        masks = re.findall(r"^Sig(?:Blk|Ign|Cgt):\t(\w+)$", Path(f"/proc/{self.process.pid}/status").read_text(), re.M)
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

    def stop(self, number=signal.SIGTERM):
        wait_until(lambda: self.expects(number), lambda: f"a handler of {number!r}; the log:\n{self.log}")
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def finish(self):
        if self.process is None:
            return
        try:
            if self.process.poll() is None:
                self.stop(signal.SIGINT)
            wait_until(lambda: not self.processes(), lambda: f"these processes are left: {self.processes()}\n{self.log}")
        finally:
            for left in self.processes():
                processes.kill(left.pid)
            self.process.wait()
