"""ASGI: the CPU per request and per WebSocket message, idle WebSockets, and streams of server-sent events.

All servers are measured on each of the suite's ASGI Pythons, in the same rounds, with the limit program among them.
Runs in the suite's own process.
"""

from .. import accounting, workloads
from ..figures import labeled
from ..places import BENCH, PYTHON, WEBSOCKET_LOAD_PROGRAM
from ..servers import REFERENCE, SERVERS
from ..session import NotStarted
from . import connections
from .cpu import Entry, compare

ECHO_SOCKETS = 64
ECHO_BYTES = 100
ECHO_OPEN_SECONDS = 30
# Beyond the measured time: the last echoes, and the client's wait for missing ones.
ECHO_GRACE_SECONDS = 20
STREAMS = 1000
STREAM_INTERVAL_MS = 100
# Events of each stream before memory is first read: by then all streams are open and stable.
STREAM_WARM_EVENTS = 10
# A server that can't keep the pace delivers later, which is not a loss; after this time the events count as lost.
MAX_STREAM_SECONDS = 90
STREAM_GRACE_SECONDS = 5
# One stream must work before a thousand are opened.
TRIED_EVENTS = 5
MAX_TRIED_SECONDS = 10


def against_limit(workload):
    """A scenario that compares the CPU per request."""

    def run(session, name):
        return compare(session, name, workload, entries_of_all(session, "keep-alive"))

    return run


def echo(session, name):
    """CPU per message and echo, of ECHO_BYTES on each of ECHO_SOCKETS sockets."""
    entries = entries_of_all(session, "websocket")
    return compare(session, name, workloads.ASGI_ECHO, entries, connections=ECHO_SOCKETS, ask=_exchange_messages)


def idle_websockets(session, name):
    """Growth of PSS per idle WebSocket, and the time of an echo on a new socket and on an old one."""
    count = connections.most_connections(session, name)

    def measure(entry):
        running = session.start(entry.server, workloads.ASGI_ECHO, **entry.options)
        try:
            # Allocations for the first sockets are not part of the cost of idle ones.
            _exchange_messages(session, running, ECHO_SOCKETS, 1)
            return {"python": entry.python, **connections.hold(session, name, entry.label, running, count)}
        finally:
            running.stop()

    return _each(session, name, entries_of_all(session, "websocket", "many"), measure)


def streams(session, name):
    """Whether STREAMS event streams all get all of their events, and the growth of the server's memory in the meantime."""

    def measure(entry):
        running = session.start(entry.server, workloads.ASGI_STREAM, **entry.options)
        try:
            _try_one_stream(session, running)
            return {"python": entry.python, **_follow_streams(session, name, entry, running)}
        finally:
            running.stop()

    entries = [entry for entry in entries_of_all(session, "keep-alive") if entry.server != REFERENCE]
    return _each(session, name, entries, measure)


def entries_of_all(session, *abilities):
    """All servers with the abilities: the limit program once, the others on each Python, newest first."""
    rows = [Entry(REFERENCE, REFERENCE)]
    newest = next(iter(session.servers))
    for interpreter in session.servers:
        for name in session.chosen(*abilities, interface="asgi", interpreter=interpreter):
            if name == REFERENCE or (interpreter != newest and "newest-python" in SERVERS[name].abilities):
                continue
            label = labeled(name, interpreter.version)
            rows.append(Entry(label, name, {"interpreter": interpreter}, interpreter.version))
    return rows


def _each(session, name, entries, measure):
    by_label = {entry.label: entry for entry in entries}
    return connections.each(session, name, by_label, lambda label: measure(by_label[label]))


def _exchange_messages(session, running, sockets, seconds):
    """Returns (counts in wrk's format, the tree's CPU before, and after): neither includes a handshake or a close."""
    words = [WEBSOCKET_LOAD_PROGRAM, running.port, running.path, sockets, ECHO_BYTES]
    client = session.client("websocket_load", *words)
    try:
        _must_be_well(running, client.hear(ECHO_OPEN_SECONDS))
        before = accounting.cpu_of_tree(running.program)
        client.tell(seconds)
        said = _must_be_well(running, client.hear(seconds + ECHO_GRACE_SECONDS))
        after = accounting.cpu_of_tree(running.program)
    finally:
        client.stop()
    # The client stops at the first error, so there are no errors to count.
    return {**said, "requests": said["messages"], "errors": {}}, before, after


def _must_be_well(running, said):
    if said["problem"]:
        raise NotStarted(said["problem"], running.program.last_lines())
    return said


def _try_one_stream(session, running):
    client = _stream_client(session, running, 1, 1, TRIED_EVENTS, MAX_TRIED_SECONDS)
    try:
        for _ in ("its first event", "all of them"):
            _must_be_well(running, client.hear(MAX_TRIED_SECONDS + STREAM_GRACE_SECONDS))
    finally:
        client.stop()


def _stream_client(session, running, streams, warm, events, seconds):
    path = f"/events/{events}/{STREAM_INTERVAL_MS}"
    return session.client("stream_client", PYTHON, BENCH / "stream_client.py", running.port, path, streams, warm, events, seconds)


def _follow_streams(session, name, entry, running):
    events = session.effort.stream_events
    client = _stream_client(session, running, STREAMS, STREAM_WARM_EVENTS, events, MAX_STREAM_SECONDS)
    try:
        warm = _must_be_well(running, client.hear(MAX_STREAM_SECONDS + STREAM_GRACE_SECONDS))
        at_start, _ = accounting.pss_bytes(running.program)
        cpu_at_start = accounting.cpu_of_tree(running.program)
        done = client.hear(MAX_STREAM_SECONDS + STREAM_GRACE_SECONDS)
        cpu_at_end = accounting.cpu_of_tree(running.program)
        at_end, _ = accounting.pss_bytes(running.program)
    finally:
        client.stop()
    used, _ = accounting.cpu_between(cpu_at_start, cpu_at_end)
    between = done["delivered"] - warm["delivered"]
    result = {
        "expected": STREAMS * events,
        "delivered": done["delivered"],
        "problem": done["problem"],
        "seconds": done["seconds"],
        "events_between": between,
        "bytes_at_start": at_start,
        "bytes_at_end": at_end,
        "cpu_us_per_event": used / 1000 / between if between else None,
    }
    session.say(
        f"  {name}: {entry.label:<20} {result['delivered']} of {result['expected']} events in {result['seconds']:.1f} s,"
        f" memory {at_start / 2**20:.1f} to {at_end / 2**20:.1f} MB" + (f" ({done['problem']})" if done["problem"] else "")
    )
    return result
