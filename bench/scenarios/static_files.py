"""Static files: CPU per request against nginx and against the servers that serve files themselves; the same for 304.

Runs in the suite's own process.
"""

import hashlib
import http.client
import os
from dataclasses import dataclass

from .. import load
from ..machine import find_program
from ..processes import Program
from ..servers import NGINX, OURS, PLAIN, Launch
from ..session import NotStarted, Running
from ..workloads import HELLO, Workload
from .cpu import CONNECTIONS, Entry, ask_with_wrk, compare, entries_of

KB, MB = 1024, 1024 * 1024
# A file of many megabytes occupies a connection for a long time.
LARGE_CONNECTIONS = 8

CONFIGURATION = """
daemon off;
master_process off;
worker_processes 1;
pid {directory}/static-nginx.pid;
error_log {directory}/static-nginx-error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    types {{ application/octet-stream bin; }}
    client_body_temp_path {directory}/nginx-body;
    proxy_temp_path {directory}/nginx-proxy;
    fastcgi_temp_path {directory}/nginx-fastcgi;
    scgi_temp_path {directory}/nginx-scgi;
    uwsgi_temp_path {directory}/nginx-uwsgi;
    keepalive_requests 1000000000;
    keepalive_timeout 150s;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=1024 inactive=60s;
    open_file_cache_valid 1s;
    server {{
        listen 127.0.0.1:{port} backlog=2048{listen};
        {tls}
        default_type text/plain;
        location = / {{ return 200 "Hello, World!"; }}
        location /static/ {{ alias {files}/; }}
    }}
}}
"""


@dataclass(frozen=True)
class Size:
    words: str
    bytes: int


SIZES = {
    "static-1k": Size("1 KB", KB),
    "static-30k": Size("30 KB", 30 * KB),
    "static-100k": Size("100 KB", 100 * KB),
    "static-20m": Size("20 MB", 20 * MB),
    "static-100m": Size("100 MB", 100 * MB),
}


def whole(size):
    """The scenario of one size."""

    def run(session, name):
        workload = file_of(session, name, size.bytes)
        connections = LARGE_CONNECTIONS if size.bytes >= MB else CONNECTIONS
        entries = entries_of([*nginx(), *session.chosen("static")])
        ask = by_bytes(size.bytes) if size.bytes >= MB else None
        return compare(session, name, workload, entries, connections=connections, start=start_with_files, ask=ask)

    return run


def by_bytes(size):
    """A client that counts files by their bytes: most large files are still in transfer when the time is over."""

    def ask(session, running, connections, seconds):
        counts, before, after = ask_with_wrk(session, running, connections, seconds)
        return {**counts, "requests": counts["bytes"] / size}, before, after

    return ask


def not_modified(session, name):
    """A client that has the file already, compared with hello world: neither has a significant body."""
    workload = file_of(session, name, 30 * KB)
    names = session.chosen("static", "keep-alive")
    entries = entries_of([*nginx(), *names])
    entries += [Entry(f"{OURS} hello", OURS)] if OURS in names else []

    def start(session, entry, workload):
        if entry.label != entry.server:
            return session.start(entry.server, HELLO)
        running = start_with_files(session, entry, workload)
        running.fields = (f"If-Modified-Since: {_last_modified(running)}",)
        return running

    # wrk counts every status below 400 as success.
    return compare(session, name, workload, entries, start=start)


def serve_directory(session, server, files, *, cpus=None, wire=PLAIN):
    """Starts a server with a directory below /static. Returns (program, launch). Raises NotStarted. It has not answered yet.

    nginx also answers / from its memory: no server does less work than that.
    """
    launch = Launch(HELLO.module, load.free_port(), static=files, wire=wire)
    if server != NGINX:
        return session.spawn(server, launch, cpus=cpus), launch
    program = find_program("nginx")
    if program is None:
        raise NotStarted("there is no nginx on this system")
    configuration = session.directory / f"static-nginx-{launch.port}.conf"
    words = {
        "listen": (" ssl" if wire.is_tls else "") + (" http2" if wire.http2 else ""),
        "tls": f"ssl_certificate {wire.certificate}; ssl_certificate_key {wire.key};" if wire.is_tls else "",
    }
    configuration.write_text(CONFIGURATION.format(directory=session.directory, files=files, port=launch.port, **words))
    command = [program, "-p", session.directory, "-c", configuration, "-e", "stderr"]
    log = session.directory / f"static-nginx-{launch.port}.log"
    made = Program(
        NGINX, command, cpus=cpus or session.cpus.server, log=log, directory=session.directory, environment=dict(os.environ)
    )
    return made, launch


def nginx():
    """Returns nginx, if it is installed."""
    return [NGINX] if find_program("nginx") else []


def start_with_files(session, entry, workload):
    """Starts a server with the directory of files; `entry.options` may name the wire."""
    program, launch = serve_directory(session, entry.server, session.directory / "files", **entry.options)
    running = Running(entry.server, program, launch.port, workload, launch)
    session.check(running)
    return running


def file_of(session, name, size):
    """Creates the file, and returns the request for it."""
    directory = session.directory / "files"
    directory.mkdir(exist_ok=True)
    # World-readable: the servers may run as any user.
    session.directory.chmod(0o755)
    path = directory / f"{name}.bin"
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        left = size
        while left:
            piece = os.urandom(min(left, MB))
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
    expected = digest.digest()

    def check(body):
        return None if hashlib.sha256(body).digest() == expected else f"{len(body)} bytes that are not those of the file"

    return Workload(HELLO.module, f"/static/{path.name}", check)


def _last_modified(running):
    connection = http.client.HTTPConnection(load.HOST, running.port, timeout=load.FETCH_SECONDS)
    try:
        connection.request("GET", running.path)
        answer = connection.getresponse()
        answer.read()
        changed = answer.getheader("Last-Modified")
        if changed is None:
            raise NotStarted("it does not send Last-Modified")
        connection.request("GET", running.path, headers={"If-Modified-Since": changed})
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.NOT_MODIFIED:
            raise NotStarted(f"it answers {answer.status} to If-Modified-Since")
        return changed
    except (OSError, http.client.HTTPException) as error:
        raise NotStarted(str(error)) from None
    finally:
        connection.close()
