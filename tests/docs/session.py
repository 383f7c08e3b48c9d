"""A reader who follows a page in an empty directory: writes its files, types its commands, keeps its server running.

Ports are replaced by free ones, and directories of servers (/srv, /run, /var/log) by some inside the private one, wherever they
occur. A command that serves runs until the next one that serves, or until the end of the page; the commands after it run when it
is ready. On a page that installs Bolide, environment.py is the reader's Python; on other pages it is the Python of the tests.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import environment
from support.ports import reserve
from support.waiting import TIMEOUT_SECONDS, wait_until

#: Ports as pages write them: after a colon, or as an option's value.
PORT = re.compile(r"(?P<before>:|--?p(?:ort)?[ =]|_port |port=)(?P<port>[5-9]\d{3})\b")
DIRECTORY = re.compile(
    r"(?<![\w./~%-])(?P<directory>/srv|/run|/var/log|/var/lib|/etc/bolide|/etc/systemd|/etc/nginx|/etc/ssl)(?=/|\b)"
)
#: The log line of a startup that succeeds.
READY = re.compile(r"^(?:\S+ \S+ )?(?:bolide: )?(?:ready\b|\S* ?ready on )", re.MULTILINE)
COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PROGRAMS = {
    "bolide": 'exec "{python}" -m bolide "$@"',
    "pip": 'exec "{python}" "{environment}" pip "{python}" "$@"',
    "python": '[ "$1 $2" = "-m pip" ] && shift 2 && exec pip "$@"\nexec "{python}" "$@"',
    "django-admin": 'exec "{python}" -m django "$@"',
    "pytest": 'exec "{python}" -m pytest -p no:cacheprovider "$@"',
}
ACTIVATE = re.compile(r"\. (?P<path>\S+)/bin/activate")


class Session:
    def __init__(self, directory, words, installs=False):
        self.directory = directory / "reader"
        self.directory.mkdir()
        self.at = self.directory
        self.words = words
        self._tools = directory / "bin"
        self._tools.mkdir()
        self._root = directory / "root"
        self._held = contextlib.ExitStack()
        self._ports = {}
        self._server = None
        self.log = directory / "server.log"
        self._begun = 0
        self._make_tools(PROGRAMS if not installs else {"python3": 'exec "{python}" "{environment}" python "$@"'})
        self.environment = {
            "PATH": f"{self._tools}:{_without_bolide() if installs else os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
        }
        if installs:
            own = directory / "own"
            environment.create(own)
            self.environment["PATH"] = self.environment["PATH"].replace(":", f":{own}/bin:", 1)

    def _make_tools(self, programs):
        for name, text in programs.items():
            environment.tool(self._tools / name, text)

    def _activate(self, directory):
        """Like `. venv/bin/activate` in the shell that the reader keeps open."""
        place = (self.at / directory / "bin").resolve()
        assert (place / "activate").exists(), f"there is no environment in {directory}"
        self.environment["PATH"] = f"{place}:{self.environment['PATH']}"

    def port(self, number):
        if number not in self._ports:
            self._ports[number] = str(self._held.enter_context(reserve()).getsockname()[1])
        return self._ports[number]

    def here(self, text):
        """Returns a page's text with the ports and directories of this session."""
        text = PORT.sub(lambda match: match["before"] + self.port(match["port"]), text)
        return DIRECTORY.sub(lambda match: self._made(match["directory"]), text)

    def _made(self, directory):
        own = self._root / directory.lstrip("/")
        own.mkdir(parents=True, exist_ok=True)
        return str(own)

    def write(self, name, text):
        path = self.at / self.here(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text))

    def type(self, command, shown, status, place):
        """Runs a command, and compares its output with the page."""
        if command == "^C":
            self.stop()
            return
        command = self.here(command)
        if activated := ACTIVATE.fullmatch(command):
            self._activate(activated["path"])
        elif self._serves(command):
            self._serve(command, status, place)
            self._wait_for_shown(shown, lambda: self._said(), place)
        elif shown and command.startswith("curl "):
            self._wait_for_shown(shown, lambda: self._run(command, status, place), place)
        else:
            said = self._run(command, status, place)
            lacking = missing(self.here("\n".join(shown)).splitlines(), said)
            assert lacking is None, f"{place}: `{command}` does not print {lacking!r}, but:\n{said}"

    def _serves(self, command):
        words = shlex.split(command, comments=True)
        while words and "=" in words[0] and not words[0].startswith("-"):
            words.pop(0)
        if words[:1] == ["python"] and words[1:2] == ["serve.py"]:
            return True
        if words[:1] != ["bolide"] or len(words) < 2 or words[1] in self.words:
            return False
        asked = {"--version", "--help", "-h", "-V", "--show-config", "--stop", "--no-server", "help", "version"}
        return not asked & set(words)

    def _run(self, command, status, place):
        noted = self.directory.parent / "at"
        script = f"cd {shlex.quote(str(self.at))}\n{command}\nstatus=$?\npwd >{shlex.quote(str(noted))}\nexit $status\n"
        done = subprocess.run(
            ["sh", "-c", script],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
        )
        said = COLOR.sub("", done.stdout.decode(errors="replace"))
        log = self._said() if self._server else ""
        assert done.returncode == status, f"{place}: `{command}` ended with {done.returncode}:\n{said}\n{log}"
        self.at = Path(noted.read_text().strip()) if noted.exists() else self.at
        return said

    def _serve(self, command, status, place):
        self.stop()
        words = shlex.split(command, comments=True)
        if not any(
            word.endswith((".ini", ".toml", ".yaml", ".json", ".conf.py")) or re.search("http|bind|^--port", word)
            for word in words
        ):
            words += ["--http", f"127.0.0.1:{self.port('8000')}"]
        line = " ".join(shlex.quote(word) if "=" not in word or word.startswith("-") else word for word in words)
        self._begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                ["sh", "-c", f"cd {shlex.quote(str(self.at))}\nexec env {line}"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(
            lambda: READY.search(self._said()) or self._server.poll() is not None,
            lambda: f"{place}: `{line}` does not say that it is ready:\n{self._said()}",
        )
        if self._server.poll() is not None:
            ended, self._server = self._server.returncode, None
            assert ended == status, f"{place}: `{line}` ended with {ended}:\n{self._said()}"
        else:
            assert status == 0, f"{place}: `{line}` serves"

    def _said(self):
        with self.log.open("rb") as log:
            log.seek(self._begun)
            return COLOR.sub("", log.read().decode(errors="replace"))

    def _wait_for_shown(self, shown, said, place):
        shown = self.here("\n".join(shown)).splitlines()
        wait_until(
            lambda: missing(shown, said()) is None,
            lambda: f"{place}: there is no {missing(shown, said())!r} in:\n{said()}",
        )

    def stop(self):
        if self._server is None:
            return
        server, self._server = self._server, None
        with contextlib.suppress(ProcessLookupError):
            server.send_signal(signal.SIGINT)
        try:
            server.wait(TIMEOUT_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)

    def finish(self):
        try:
            self.stop()
        finally:
            self._held.close()


def _without_bolide():
    """Returns the path of commands without the environment of the tests, in which Bolide is installed."""
    return ":".join(path for path in os.environ["PATH"].split(":") if not (Path(path) / "bolide").exists())


def missing(shown, said):
    """Returns the first line of ``shown`` that does not follow in ``said``; … matches anything, and digits may differ."""
    lines = iter([_plain(line) for line in said.splitlines()])
    for line in shown:
        if not line.strip() or line.strip() == "…":
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in _plain(line).split("…")))
        if not any(pattern.fullmatch(one) for one in lines):
            return line
    return None


def _plain(line):
    return re.sub(r"\d+(?:\.\d+)*", "0", re.sub(r"\s+", " ", line.strip()))
