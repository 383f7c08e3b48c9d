"""TLS: the CPU of a request, a file and a handshake against nginx and the servers that have TLS themselves; idle connections.

Runs in the suite's own process. All servers use the same certificate with a P-256 key, and select from the client's offer
themselves.
"""

import subprocess
from dataclasses import replace

from .. import accounting, installation, load, workloads
from ..machine import find_program
from ..places import TLS_LOAD_PROGRAM
from ..servers import NGINX, REFERENCE, Wire
from ..session import NotStarted, Running
from . import asgi, connections, static_files
from .cpu import Entry, compare

FILE = static_files.SIZES["static-20m"]
# Concurrent connections of the handshake client.
HANDSHAKE_THREADS = 8
HANDSHAKE_OPEN_SECONDS = 30
# Beyond the measured time: the last connections.
HANDSHAKE_GRACE_SECONDS = 20
CERTIFICATE_DAYS = 30
CERTIFICATE_SECONDS = 60


def hello(session, name):
    """CPU of a constant answer on keep-alive connections over TLS."""
    return compare(session, name, workloads.HELLO, wsgi_entries(session, wire_of(session), "keep-alive"), start=start)


def asgi_hello(session, name):
    """The same with ASGI, on each Python."""
    return compare(session, name, workloads.ASGI_HELLO, asgi_entries(session, wire_of(session), "keep-alive"), start=start)


def file(session, name):
    """CPU of a large file, for the servers that serve files themselves."""
    workload = static_files.file_of(session, name, FILE.bytes)
    entries = wsgi_entries(session, wire_of(session), "static")
    count, ask = static_files.LARGE_CONNECTIONS, static_files.by_bytes(FILE.bytes)
    return compare(session, name, workload, entries, connections=count, start=static_files.start_with_files, ask=ask)


def full_handshakes(session, name):
    """CPU of a connection with a full handshake and one request."""
    return _handshakes(session, name, "full")


def resumed_handshakes(session, name):
    """CPU of a connection with a resumed session and one request."""
    return _handshakes(session, name, "resumed")


def idle_connections(session, name):
    """Growth of the server's PSS per idle TLS connection, and the time to answer a new request."""
    count = connections.most_connections(session, name)

    def measure(entry):
        running = start(session, entry, workloads.ASGI_HELLO)
        try:
            # Allocations for the first connections are not part of the cost of idle ones.
            session.wrk(running, connections=connections.BALANCE_CONNECTIONS, seconds=1)
            return {"python": entry.python, **connections.hold(session, name, entry.label, running, count)}
        finally:
            running.stop()

    entries = {entry.label: entry for entry in asgi_entries(session, wire_of(session), "many")}
    return connections.each(session, name, entries, lambda label: measure(entries[label]))


def wire_of(session, *, tls=True, http2=False):
    """Returns the wire of the clients; the certificate is created on first use. Raises LoadFailed."""
    if not tls:
        return Wire(http2=http2)
    certificate, key = session.directory / "localhost.pem", session.directory / "localhost.key"
    if not certificate.exists():
        words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", "/CN=localhost"]
        words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", CERTIFICATE_DAYS]
        command = [find_program("openssl"), "req", "-x509", *words, "-keyout", key, "-out", certificate]
        if command[0] is None:
            raise load.LoadFailed("there is no openssl on this system to make a certificate with")
        # World-readable: the servers may run as any user.
        session.directory.chmod(0o755)
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=CERTIFICATE_SECONDS)
        if done.returncode != 0:
            raise load.LoadFailed(f"openssl makes no certificate: {done.stderr.strip()[-300:]}")
        key.chmod(0o644)
    return Wire(certificate, key, http2)


def wsgi_entries(session, wire, *abilities):
    """Returns nginx, and the servers that have the abilities and support this wire."""
    names = session.chosen("h2" if wire.http2 else "tls", *abilities)
    return [Entry(name, name, {"wire": wire}) for name in [*static_files.nginx(), *names]]


def asgi_entries(session, wire, *abilities):
    """The same on each of the suite's ASGI Pythons."""
    found = asgi.entries_of_all(session, "h2" if wire.http2 else "tls", *abilities)
    rows = [replace(entry, options={**entry.options, "wire": wire}) for entry in found if entry.server != REFERENCE]
    return [*(Entry(name, name, {"wire": wire}) for name in static_files.nginx()), *rows]


def start(session, entry, workload):
    """A server that answers the workload. nginx answers by itself."""
    if entry.server != NGINX:
        return session.start(entry.server, workload, **entry.options)
    program, launch = static_files.serve_directory(session, NGINX, session.directory, **entry.options)
    running = Running(NGINX, program, launch.port, workload, launch)
    session.check(running)
    return running


def _handshakes(session, name, kind):
    try:
        installation.build_programs(installation.TLS_PROGRAMS)
    except installation.CannotRun as error:
        raise load.LoadFailed(str(error)) from None

    def ask(session, running, threads, seconds):
        client = session.client("tls_load", TLS_LOAD_PROGRAM, running.port, running.path, threads, kind)
        try:
            _must_be_well(running, client.hear(HANDSHAKE_OPEN_SECONDS))
            before = accounting.cpu_of_tree(running.program)
            client.tell(seconds)
            said = _must_be_well(running, client.hear(seconds + HANDSHAKE_GRACE_SECONDS))
            after = accounting.cpu_of_tree(running.program)
        finally:
            client.stop()
        # The client stops at the first error, so there are no errors to count.
        return {**said, "requests": said["handshakes"], "errors": {}}, before, after

    entries = wsgi_entries(session, wire_of(session))
    return compare(session, name, workloads.HELLO, entries, connections=HANDSHAKE_THREADS, start=start, ask=ask)


def _must_be_well(running, said):
    if said["problem"]:
        raise NotStarted(said["problem"], running.program.last_lines())
    return said
