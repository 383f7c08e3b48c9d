"""The compared servers: how each is started, and its abilities.

Runs in the suite's own process. The options are those that each server's own documentation recommends for speed; request logs are
off unless a scenario needs them, and backlogs are large enough for every scenario.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .interpreters import OWN, Interpreter, parts
from .places import APPLICATIONS, LAUNCHERS, LIMIT_PROGRAM, WAITING_LIMIT_PROGRAM

HOST = "127.0.0.1"
BACKLOG = 2048
# More than any scenario opens.
MAX_CONNECTIONS = 16384
# For servers that close idle connections sooner than a scenario does.
KEEP_ALIVE_SECONDS = 150
REFERENCE = "limit"
OURS = "bolide"
# Not an application server: the baseline for static files.
NGINX = "nginx"
WSGI, ASGI, BOTH = frozenset(["wsgi"]), frozenset(["asgi"]), frozenset(["wsgi", "asgi"])


@dataclass(frozen=True)
class Behind:
    """How a reverse proxy reaches a server: `protocol` is uwsgi, fastcgi or http; `socket` a UNIX socket, or None for `host`."""

    protocol: str
    socket: Path | None = None
    host: str = HOST


@dataclass(frozen=True)
class Wire:
    """How clients connect: with or without TLS (with this certificate and key), and HTTP/2 or HTTP/1.1."""

    certificate: Path | None = None
    key: Path | None = None
    http2: bool = False

    @property
    def is_tls(self):
        return self.certificate is not None

    @property
    def scheme(self):
        return "https" if self.is_tls else "http"

    @property
    def words(self):
        """Returns its name in a report; empty for HTTP/1.1 without TLS."""
        return " ".join(word for word, there in (("HTTP/2", self.http2), ("TLS", self.is_tls)) if there)


PLAIN = Wire()


@dataclass(frozen=True)
class Launch:
    """The requirements of a scenario for a server. With `behind` it serves a reverse proxy only; with `static` it serves the
    files of that directory below /static. `cached`: a route answers with an item of a cache. `waiting`: views sleep, and the
    limit program is one queue in front of workers x threads.
    """

    module: str
    port: int
    workers: int = 1
    threads: int = 1
    request_log: bool = False
    behind: Behind | None = None
    static: Path | None = None
    cached: bool = False
    interface: str = "wsgi"
    websocket: bool = False
    waiting: bool = False
    interpreter: Interpreter = OWN
    wire: Wire = PLAIN

    def program(self, name):
        """A console script of the virtualenv that the server runs in."""
        return self.interpreter.programs / name


@dataclass(frozen=True)
class Server:
    """`package` is the argument of pip, with a version if it is pinned; `abilities` are the words that scenarios ask for,
    `interfaces` the interfaces it serves, `oldest_python` the oldest version that it runs on, if it does not run on all. `title`
    is its name in pages, if it differs, and `lacks` says there what Bolide does and it does not.
    """

    name: str
    package: str | None
    command: Callable
    abilities: frozenset = frozenset()
    interfaces: frozenset = WSGI
    oldest_python: str = ""
    title: str = ""
    lacks: str = ""

    def runs_on(self, interpreter):
        return not self.oldest_python or parts(interpreter.version) >= parts(self.oldest_python)


def _limit(launch):
    if launch.waiting:
        return [WAITING_LIMIT_PROGRAM, launch.port, launch.workers * launch.threads]
    return [LIMIT_PROGRAM, str(launch.port), *(["websocket"] if launch.websocket else [])]


def _bolide(launch):
    wire = launch.wire
    if wire.is_tls:
        socket = ["--https", f"{_address(launch)},{wire.certificate},{wire.key}", f"--http-keepalive={KEEP_ALIVE_SECONDS}"]
    else:
        socket = _socket_words(launch, "--http-socket")
    return [launch.program("bolide"), *socket, *(["--http2", "h2c"] if wire.http2 else []), *_uwsgi_words(launch)]


def _uwsgi(socket_option):
    def command(launch):
        own = ["--master", "--die-on-term", "--no-orphans", "--listen", str(BACKLOG)]
        own += ["--virtualenv", launch.interpreter.virtualenv]
        return [launch.program("uwsgi"), *_socket_words(launch, socket_option), *_uwsgi_words(launch), *own]

    return command


def _socket_words(launch, http_option):
    if launch.behind is None:
        return [http_option, _address(launch)]
    option = {"uwsgi": "--uwsgi-socket", "fastcgi": "--fastcgi-socket", "http": "--http-socket"}[launch.behind.protocol]
    return [option, launch.behind.socket or f"{launch.behind.host}:{launch.port}", "--chmod-socket=666"]


def _uwsgi_words(launch):
    """The options that uWSGI and Bolide share."""
    words = ["--pythonpath", APPLICATIONS]
    if launch.interface == "asgi":
        words += ["--asgi", f"{launch.module}:application"]
    else:
        words += ["--wsgi-file", APPLICATIONS / f"{launch.module}.py"]
    words += ["--processes", str(launch.workers)]
    # uWSGI enables the GIL if threads are mentioned at all, so a single thread is not mentioned.
    words += ["--threads", str(launch.threads)] if launch.threads > 1 else []
    words += ["--static-map", f"/static={launch.static}"] if launch.static else []
    if launch.cached:
        words += ["--cache2", "name=pages,items=100", "--add-cache-item", "pages /=Hello, World!"]
        words += ["--route-run", "cache:key=${REQUEST_URI},name=pages,content_type=text/plain"]
    return words if launch.request_log else [*words, "--disable-logging"]


def _gunicorn(*own):
    def command(launch):
        socket = launch.behind.socket if launch.behind else None
        words = ["--bind", f"unix:{socket}" if socket else _address(launch)]
        words += ["--workers", str(launch.workers), "--threads", str(launch.threads)]
        words += ["--backlog", str(BACKLOG), "--worker-connections", str(BACKLOG), "--log-level", "warning"]
        words += ["--access-logfile", "-"] if launch.request_log else []
        words += _files(launch, "--certfile", "--keyfile")
        return [launch.program("gunicorn"), *words, *own, f"{launch.module}:application"]

    return command


def _granian(launch):
    words = ["--interface", launch.interface, "--host", HOST, "--port", str(launch.port)]
    words += ["--http", "2" if launch.wire.http2 else "1", *_files(launch, "--ssl-certificate", "--ssl-keyfile")]
    words += ["--ws" if launch.websocket else "--no-ws", "--workers", str(launch.workers), "--runtime-threads", "1"]
    # Its threads are for WSGI alone: with ASGI it accepts only one.
    words += ["--loop", "uvloop"] if launch.interface == "asgi" else ["--blocking-threads", str(launch.threads)]
    # By default it holds as many connections as its backlog, and leaves others waiting.
    words += ["--backlog", str(BACKLOG), "--backpressure", str(MAX_CONNECTIONS)]
    words += ["--access-log" if launch.request_log else "--no-access-log"]
    words += ["--static-path-mount", launch.static, "--static-path-route", "/static"] if launch.static else []
    return [launch.program("granian"), *words, f"{launch.module}:application"]


def _waitress(launch):
    words = [f"--host={HOST}", f"--port={launch.port}", f"--threads={launch.threads}", f"--backlog={BACKLOG}"]
    words += [f"--connection-limit={BACKLOG}", "--asyncore-use-poll"]
    return [launch.program("waitress-serve"), *words, f"{launch.module}:application"]


def _uvicorn(launch):
    words = ["--host", HOST, "--port", str(launch.port), "--workers", str(launch.workers), "--backlog", str(BACKLOG)]
    words += ["--timeout-keep-alive", KEEP_ALIVE_SECONDS]
    words += ["--loop", "uvloop", "--http", "httptools", "--log-level", "info" if launch.request_log else "warning"]
    words += ["--access-log" if launch.request_log else "--no-access-log", *_files(launch, "--ssl-certfile", "--ssl-keyfile")]
    return [launch.program("uvicorn"), *words, f"{launch.module}:application"]


def _hypercorn(launch):
    words = ["--bind", _address(launch), "--workers", str(launch.workers), "--worker-class", "uvloop"]
    words += ["--backlog", str(BACKLOG), "--log-level", "warning", *(["--access-logfile", "-"] if launch.request_log else [])]
    words += ["--keep-alive", KEEP_ALIVE_SECONDS, *_files(launch, "--certfile", "--keyfile")]
    return [launch.program("hypercorn"), *words, f"{launch.interface}:{launch.module}:application"]


def _peregrine(launch):
    # It uses uvloop by default if the virtualenv has it.
    words = ["--host", HOST, "--port", launch.port, "--protocol", launch.interface, "--workers", launch.workers]
    words += ["--keep-alive", KEEP_ALIVE_SECONDS * 1000, *_like_peregrine(launch)]
    return [launch.program("peregrine"), *words, "--log-level", "warning", f"{launch.module}:application"]


def _weft(launch):
    words = ["--host", HOST, "--port", launch.port, "--protocol", launch.interface, "--workers", launch.workers]
    words += ["--keep-alive", KEEP_ALIVE_SECONDS, *_like_peregrine(launch)]
    return [launch.program("weft"), *words, "--log-level", "warning", f"{launch.module}:application"]


def _like_peregrine(launch):
    """The options that Peregrine and Weft share."""
    words = ["--backlog", BACKLOG, "--max-connections", MAX_CONNECTIONS]
    words += ["--wsgi-threads", launch.threads] if launch.threads > 1 else []
    words += [] if launch.websocket else ["--no-websockets"]
    words += ["--http2-only"] if launch.wire.http2 and not launch.wire.is_tls else []
    words += _files(launch, "--tls-cert", "--tls-key")
    words += ["--static-dir", f"/static={launch.static}"] if launch.static else []
    return [*words, "--access-log"] if launch.request_log else words


def _embedded(name):
    def command(launch):
        words = [name, launch.interface, launch.module, launch.port, launch.workers, launch.threads]
        words += [launch.wire.certificate, launch.wire.key] if launch.wire.is_tls else []
        return [launch.interpreter.python, LAUNCHERS / "embedded.py", *words]

    return command


def _files(launch, certificate, key):
    """The options for a certificate and its key, if TLS is used."""
    return [certificate, launch.wire.certificate, key, launch.wire.key] if launch.wire.is_tls else []


def _address(launch):
    return f"{HOST}:{launch.port}"


def _abilities(words):
    return frozenset(words.split())


# What a replacement of uWSGI needs, and the servers that are level with Bolide in speed do not have.
LACKS_UWSGI = "uwsgi.ini, the uwsgi protocol, gevent"
# keep-alive: keeps many connections open at the same time. many: holds 10,000 connections. websocket: supports WebSocket. static:
# serves files itself. cache: a route can answer from a cache. front: takes part in the comparison behind nginx; with
# uwsgi-protocol over uwsgi and FastCGI too, else over HTTP only. tls, h2: supports them itself. http2-only: takes part in the
# HTTP/2 comparison only. newest-python: too slow to be measured on a second Python as well.
SERVERS = {
    server.name: server
    for server in [
        Server(REFERENCE, None, _limit, _abilities("keep-alive many websocket"), BOTH, title="kernel alone (a C program)"),
        Server(
            OURS,
            "bolide",
            _bolide,
            _abilities("keep-alive many workers threads log front uwsgi-protocol websocket static tls h2 cache"),
            BOTH,
            title="Bolide",
        ),
        Server(
            "fastpysgi",
            "fastpysgi",
            _embedded("fastpysgi"),
            _abilities("keep-alive many"),
            BOTH,
            lacks="WebSocket, event streams, request log",
        ),
        Server(
            "freastal",
            "freastal==0.0.3",
            _embedded("freastal"),
            _abilities("keep-alive many workers tls"),
            BOTH,
            lacks="WebSocket, HTTP/2, chunked streams, threads, request log",
        ),
        Server(
            "peregrine",
            "peregrine-server==1.2.0",
            _peregrine,
            _abilities("keep-alive many workers threads log websocket static tls h2"),
            BOTH,
            lacks=LACKS_UWSGI,
        ),
        Server(
            "weft",
            "weft-server==0.1.0",
            _weft,
            _abilities("keep-alive many workers threads log websocket static tls h2"),
            BOTH,
            # Its module needs `_PyVectorcall_Call`, which 3.11 does not export: the import fails with "undefined symbol".
            oldest_python="3.12",
            lacks=LACKS_UWSGI,
        ),
        Server("bjoern", "bjoern", _embedded("bjoern"), _abilities("keep-alive many")),
        Server("granian", "granian", _granian, _abilities("keep-alive many workers threads log websocket static tls h2"), BOTH),
        Server("uvicorn", "uvicorn[standard]", _uvicorn, _abilities("keep-alive many workers log websocket tls"), ASGI),
        Server(
            "hypercorn", "hypercorn", _hypercorn, _abilities("keep-alive many workers log websocket newest-python tls h2"), ASGI
        ),
        Server("hypercorn-wsgi", "hypercorn", _hypercorn, _abilities("http2-only keep-alive tls h2"), title="hypercorn"),
        Server(
            "uwsgi",
            "uwsgi",
            _uwsgi("--http11-socket"),
            _abilities("workers threads log front uwsgi-protocol static cache"),
            title="uWSGI, `http11-socket`",
        ),
        Server(
            "uwsgi-http-socket",
            "uwsgi",
            _uwsgi("--http-socket"),
            _abilities("closes workers threads log"),
            title="uWSGI, `http-socket`",
        ),
        Server(
            "gunicorn",
            "gunicorn",
            _gunicorn("--worker-class", "sync"),
            _abilities("closes workers front"),
            title="gunicorn, sync",
        ),
        Server(
            "gunicorn-gthread",
            "gunicorn",
            _gunicorn("--worker-class", "gthread", "--keep-alive", KEEP_ALIVE_SECONDS),
            _abilities("keep-alive workers threads log tls"),
            title="gunicorn, gthread",
        ),
        Server(
            "gunicorn-preload",
            "gunicorn",
            _gunicorn("--worker-class", "sync", "--preload"),
            _abilities("memory-only workers"),
            title="gunicorn, `--preload`",
        ),
        Server("cheroot", "cheroot", _embedded("cheroot"), _abilities("keep-alive")),
        Server("waitress", "waitress", _waitress, _abilities("keep-alive")),
    ]
}
# A variant is compared as a separate server, but it is the same competitor.
COMPETITORS = [name for name in SERVERS if name not in (REFERENCE, OURS)]
