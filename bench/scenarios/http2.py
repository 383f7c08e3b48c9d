"""HTTP/2: the CPU per request with many streams on few connections, with and without TLS, of the servers that support it
natively.

nginx, which answers from its memory, is the limit. Runs in the suite's own process.
"""

from .. import accounting, load, workloads
from . import tls as within_tls
from .cpu import compare

CONNECTIONS = 8
# Concurrent requests on each of them.
STREAMS = 32
WORDS = f"HTTP/2 with {STREAMS} streams on each of {CONNECTIONS} connections"


def hello(*, tls):
    """A scenario that compares the WSGI servers."""

    def run(session, name):
        entries = within_tls.wsgi_entries(session, within_tls.wire_of(session, tls=tls, http2=True), "keep-alive")
        return _compare(session, name, workloads.HELLO, entries)

    return run


def asgi_hello(*, tls):
    """A scenario that compares the ASGI servers, on each Python."""

    def run(session, name):
        entries = within_tls.asgi_entries(session, within_tls.wire_of(session, tls=tls, http2=True), "keep-alive")
        return _compare(session, name, workloads.ASGI_HELLO, entries)

    return run


def _compare(session, name, workload, entries):
    return compare(session, name, workload, entries, connections=CONNECTIONS, start=within_tls.start, ask=_ask_with_h2load)


def _ask_with_h2load(session, running, connections, seconds):
    """Returns (h2load's counts, the tree's CPU before, and after)."""
    before = accounting.cpu_of_tree(running.program)
    counts = load.h2load(
        running.port,
        running.path,
        connections=connections,
        streams=STREAMS,
        seconds=seconds,
        cpus=session.cpus.client,
        directory=session.directory,
        wire=running.launch.wire,
    )
    return counts, before, accounting.cpu_of_tree(running.program)
