"""A connection for each request, as nginx opens them without `keepalive`: HTTP and the uwsgi protocol, over TCP and UNIX sockets,
with one client and with many, and with one worker and with several.

Runs in the suite's own process; fresh_load.c is the client.
"""

import time
from dataclasses import dataclass

from .. import accounting, load, workloads
from ..places import FRESH_LOAD_PROGRAM
from ..servers import HOST, REFERENCE, Behind, Launch
from ..session import NotStarted, Running
from .cpu import Entry, compare

MANY_CLIENTS = 64
MANY_WORKERS = 4
OPEN_SECONDS = 15
# Beyond the duration of the load itself.
GRACE_SECONDS = 30
POLL_SECONDS = 0.05
# The ways to a server, as (protocol, whether it is a UNIX socket, the host that it listens on otherwise).
WAYS = {
    "HTTP TCP": ("http", False, HOST),
    "HTTP dual-stack": ("http", False, "[::]"),
    "HTTP UNIX": ("http", True, None),
    "uwsgi TCP": ("uwsgi", False, HOST),
    "uwsgi UNIX": ("uwsgi", True, None),
}


@dataclass
class Fresh(Running):
    """A server, and the place where fresh_load.c connects."""

    protocol: str = "http"
    place: str = ""
    clients: int = 1


def http(session, name):
    """Every server over HTTP and TCP, with one client and with many."""
    # The limit program does not close a connection.
    names = [server for server in session.chosen(without=["memory-only"]) if server != REFERENCE]
    return _compare(session, name, [_entry(server, "HTTP TCP", clients, 1) for server in names for clients in (1, MANY_CLIENTS)])


def ways(session, name):
    """The servers with the uwsgi protocol, in every way that they can be reached."""
    names = session.chosen("uwsgi-protocol")
    shapes = [(clients, workers) for clients in (1, MANY_CLIENTS) for workers in (1, MANY_WORKERS)]
    return _compare(session, name, [_entry(server, way, *shape) for way in WAYS for shape in shapes for server in names])


def _entry(server, way, clients, workers):
    shape = f"{clients} client{'s' * (clients > 1)}, {workers} worker{'s' * (workers > 1)}"
    return Entry(f"{server} {way}, {shape}", server, {"way": way, "clients": clients, "workers": workers})


def _compare(session, name, entries):
    return compare(session, name, workloads.HELLO, entries, start=_start, ask=_ask)


def _start(session, entry, workload):
    """Starts the server and waits until it answers on a fresh connection. Raises NotStarted."""
    protocol, is_unix, host = WAYS[entry.options["way"]]
    socket = session.directory / f"{entry.server}-{session.started}.sock" if is_unix else None
    behind = Behind(protocol, socket, host or HOST) if is_unix or entry.options["way"] != "HTTP TCP" else None
    launch = Launch(workload.module, load.free_port(), workers=entry.options["workers"], behind=behind)
    program = session.spawn(entry.server, launch)
    place = str(socket or launch.port)
    running = Fresh(
        entry.server, program, launch.port, workload, launch, protocol=protocol, place=place, clients=entry.options["clients"]
    )
    deadline = time.monotonic() + load.START_SECONDS
    while True:
        client = _client(session, running)
        problem = client.hear(OPEN_SECONDS)["problem"]
        client.stop()
        if problem is None:
            return running
        if program.process.poll() is not None or time.monotonic() >= deadline:
            lines = program.last_lines()
            running.stop()
            raise NotStarted(problem, lines)
        time.sleep(POLL_SECONDS)


def _client(session, running):
    return session.client("fresh_load", FRESH_LOAD_PROGRAM, running.protocol, running.place, running.path, running.clients)


def _ask(session, running, connections, seconds):
    client = _client(session, running)
    try:
        _must_be_well(running, client.hear(OPEN_SECONDS))
        before = accounting.cpu_of_tree(running.program)
        client.tell(seconds)
        said = _must_be_well(running, client.hear(seconds + GRACE_SECONDS))
        after = accounting.cpu_of_tree(running.program)
    finally:
        client.stop()
    # The client stops at the first error, so there are no errors to count.
    return {**said, "errors": {}}, before, after


def _must_be_well(running, said):
    if said["problem"]:
        raise NotStarted(said["problem"], running.program.last_lines())
    return said
