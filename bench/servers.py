"""The servers that are compared: how each is started, and what each can do.

Runs in the suite's own process. The options are those that each server's own documentation names for speed;
request logs are off unless a scenario asks for them, and backlogs are large enough for every scenario.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .places import APPLICATIONS, LAUNCHERS, LIMIT_PROGRAM, PROGRAMS, PYTHON, VIRTUALENV

HOST = "127.0.0.1"
BACKLOG = 2048
# More than any scenario opens.
MOST_CONNECTIONS = 16384
REFERENCE = "limit"
OURS = "bolide"
# Not an application server: static files are compared with it.
NGINX = "nginx"


@dataclass(frozen=True)
class Launch:
    """What a scenario asks of a server. With `uwsgi_socket` it speaks the uwsgi protocol there, and no HTTP; with `static` it
    serves the files of that folder below /static.
    """

    module: str
    port: int
    workers: int = 1
    threads: int = 1
    request_log: bool = False
    uwsgi_socket: Path | None = None
    static: Path | None = None


@dataclass(frozen=True)
class Server:
    """`package` is the distribution whose version is stated; `abilities` are the words that scenarios ask for."""

    name: str
    package: str | None
    command: Callable
    abilities: frozenset = frozenset()


def _bolide(launch):
    return [PROGRAMS / "bolide", *_socket_words(launch, "--http-socket"), *_uwsgi_words(launch)]


def _uwsgi(socket_option):
    def command(launch):
        own = ["--master", "--die-on-term", "--no-orphans", "--virtualenv", VIRTUALENV, "--listen", str(BACKLOG)]
        return [PROGRAMS / "uwsgi", *_socket_words(launch, socket_option), *_uwsgi_words(launch), *own]

    return command


def _socket_words(launch, http_option):
    if launch.uwsgi_socket is not None:
        return ["--socket", launch.uwsgi_socket, "--chmod-socket=666"]
    return [http_option, _address(launch)]


def _uwsgi_words(launch):
    """The words that uWSGI and Bolide share."""
    words = ["--pythonpath", APPLICATIONS, "--wsgi-file", APPLICATIONS / f"{launch.module}.py"]
    words += ["--processes", str(launch.workers)]
    # uWSGI takes any mention of threads as a wish for the GIL's machinery, so one thread is not mentioned.
    words += ["--threads", str(launch.threads)] if launch.threads > 1 else []
    words += ["--static-map", f"/static={launch.static}"] if launch.static else []
    return words if launch.request_log else [*words, "--disable-logging"]


def _gunicorn(*own):
    def command(launch):
        words = ["--bind", _address(launch), "--workers", str(launch.workers), "--threads", str(launch.threads)]
        words += ["--backlog", str(BACKLOG), "--worker-connections", str(BACKLOG), "--log-level", "warning"]
        words += ["--access-logfile", "-"] if launch.request_log else []
        return [PROGRAMS / "gunicorn", *words, *own, f"{launch.module}:application"]

    return command


def _granian(launch):
    words = ["--interface", "wsgi", "--host", HOST, "--port", str(launch.port), "--http", "1", "--no-ws"]
    words += ["--workers", str(launch.workers), "--blocking-threads", str(launch.threads), "--runtime-threads", "1"]
    # By default it holds as many connections as its backlog, and lets the others wait.
    words += ["--backlog", str(BACKLOG), "--backpressure", str(MOST_CONNECTIONS)]
    words += ["--access-log" if launch.request_log else "--no-access-log"]
    words += ["--static-path-mount", launch.static, "--static-path-route", "/static"] if launch.static else []
    return [PROGRAMS / "granian", *words, f"{launch.module}:application"]


def _waitress(launch):
    words = [f"--host={HOST}", f"--port={launch.port}", f"--threads={launch.threads}", f"--backlog={BACKLOG}"]
    words += [f"--connection-limit={BACKLOG}", "--asyncore-use-poll"]
    return [PROGRAMS / "waitress-serve", *words, f"{launch.module}:application"]


def _embedded(launch, name):
    return [PYTHON, LAUNCHERS / "embedded.py", name, launch.module, str(launch.port), str(launch.threads)]


def _address(launch):
    return f"{HOST}:{launch.port}"


def _abilities(words):
    return frozenset(words.split())


# keep-alive: keeps many connections open at once. many: holds 10,000 of them. static: serves files by itself.
SERVERS = {
    server.name: server
    for server in [
        Server(REFERENCE, None, lambda launch: [LIMIT_PROGRAM, str(launch.port)], _abilities("keep-alive many")),
        Server(OURS, "bolide", _bolide, _abilities("keep-alive many workers threads log uwsgi-protocol static")),
        Server("fastpysgi", "fastpysgi", lambda launch: _embedded(launch, "fastpysgi"), _abilities("keep-alive many")),
        Server("bjoern", "bjoern", lambda launch: _embedded(launch, "bjoern"), _abilities("keep-alive many")),
        Server("granian", "granian", _granian, _abilities("keep-alive many workers threads log static")),
        Server("uwsgi", "uwsgi", _uwsgi("--http11-socket"), _abilities("workers threads log uwsgi-protocol static")),
        Server("uwsgi-http-socket", "uwsgi", _uwsgi("--http-socket"), _abilities("closes workers threads log")),
        Server("gunicorn", "gunicorn", _gunicorn("--worker-class", "sync"), _abilities("closes workers")),
        Server(
            "gunicorn-gthread", "gunicorn", _gunicorn("--worker-class", "gthread"), _abilities("keep-alive workers threads log")
        ),
        Server(
            "gunicorn-preload", "gunicorn", _gunicorn("--worker-class", "sync", "--preload"), _abilities("memory-only workers")
        ),
        Server("cheroot", "cheroot", lambda launch: _embedded(launch, "cheroot"), _abilities("keep-alive")),
        Server("waitress", "waitress", _waitress, _abilities("keep-alive")),
    ]
}
# A variant is compared as a server of its own, but it is the same competitor.
COMPETITORS = [name for name in SERVERS if name not in (REFERENCE, OURS)]
