"""Many connections: ab with 500, wrk with 1,000, the balance between two workers, and 10,000 idle ones.

Runs in the suite's own process.
"""

import resource
import time

from .. import accounting, load
from ..places import BENCH, PYTHON
from ..servers import REFERENCE
from ..session import NotStarted
from ..workloads import HELLO

AB_CONNECTIONS = 500
AB_REQUESTS = 5000
WRK_CONNECTIONS = 1000
BALANCE_WORKERS = 2
BALANCE_CONNECTIONS = 64
IDLE_CONNECTIONS = 10_000
# Descriptors that client and server need besides the connections.
DESCRIPTORS_KEPT_FREE = 500
# Longer than the client's own timeout.
IDLE_OPEN_SECONDS = 120
PROBE_SECONDS = 15
SETTLE_SECONDS = 0.5


def each(session, scenario, names, measure):
    """Returns {name: result of `measure(name)`} for the servers that start; the others are noted as left out."""
    results = {}
    for name in names:
        try:
            results[name] = measure(name)
        except (NotStarted, load.LoadFailed) as error:
            session.leave_out(name, scenario, error)
    return results


def apache_bench(session, scenario):
    def measure(name):
        running = session.start(name, HELLO)
        try:
            counts = load.apache_bench(
                running.port,
                running.path,
                connections=AB_CONNECTIONS,
                requests=AB_REQUESTS,
                cpus=session.cpus.client,
                directory=session.directory,
            )
        finally:
            running.stop()
        session.say(f"  {scenario}: {name:<20} {counts['complete']} complete, {counts['failed']} failed")
        return counts

    # ab speaks HTTP/1.0 and waits for a close, which the limit program does not support.
    names = [name for name in session.chosen(without=["memory-only"]) if name != REFERENCE]
    return each(session, scenario, names, measure)


def wrk_1000(session, scenario):
    def measure(name):
        running = session.start(name, HELLO)
        try:
            counts = session.wrk(running, connections=WRK_CONNECTIONS, seconds=max(session.effort.seconds, 2))
        finally:
            running.stop()
        session.say(f"  {scenario}: {name:<20} {counts['requests']} requests, errors {counts['errors']}")
        return counts

    # wrk counts an orderly close as a read error, so it can't judge servers that close after each answer.
    return each(session, scenario, session.chosen(without=["memory-only", "closes"]), measure)


def balance(session, scenario):
    """Returns the largest share of the open connections that one of two workers held, in any sample."""

    def measure(name):
        samples = []
        for _ in range(session.effort.rounds):
            running = session.start(name, HELLO, cpus=session.cpus.any, workers=BALANCE_WORKERS)
            try:
                samples += _shares_at_once(session, running) + _shares_one_by_one(session, running)
            finally:
                running.stop()
        if not samples:
            raise NotStarted(f"there never were {BALANCE_CONNECTIONS} open connections to count")
        worst = max(samples, key=lambda sample: sample["largest_share"])
        session.say(f"  {scenario}: {name:<20} at worst {worst['counts']} ({len(samples)} samples)")
        return {"worst": worst, "samples": samples}

    return each(session, scenario, session.chosen("workers", "keep-alive"), measure)


def _shares_at_once(session, running):
    """Samples while wrk holds all connections, which it opens at the same time."""
    samples = []
    seconds = max(session.effort.seconds, 1)
    session.wrk(
        running, connections=BALANCE_CONNECTIONS, seconds=seconds, meanwhile=lambda: samples.append(_share(running, "wrk"))
    )
    return [sample for sample in samples if sample is not None]


def _shares_one_by_one(session, running):
    """A sample after a client has opened the connections one after the other."""
    client = holding_client(session, running, BALANCE_CONNECTIONS)
    try:
        opened = client.hear(IDLE_OPEN_SECONDS)
        if opened["opened"] < BALANCE_CONNECTIONS:
            raise NotStarted(f"it took {opened['opened']} of {BALANCE_CONNECTIONS} connections ({opened['problem']})")
        sample = _share(running, "one by one")
    finally:
        client.stop()
    return [sample] if sample is not None else []


def _share(running, how):
    counts = sorted(accounting.connections_by_process(running.program, running.port).values(), reverse=True)
    # A worker without any connection has no entry. Fewer connections in total: some are not open yet, or already closed.
    if sum(counts) < BALANCE_CONNECTIONS:
        return None
    return {"how": how, "counts": counts + [0] * (BALANCE_WORKERS - len(counts)), "largest_share": counts[0] / sum(counts)}


def idle_connections(session, scenario):
    """Growth of the server's PSS per idle connection, and the time to answer a new request."""
    count = most_connections(session, scenario)

    def measure(name):
        running = session.start(name, HELLO)
        try:
            # Allocations for the first connections are not part of the cost of idle ones.
            session.wrk(running, connections=BALANCE_CONNECTIONS, seconds=1)
            return hold(session, scenario, name, running, count)
        finally:
            running.stop()

    return each(session, scenario, session.chosen("many"), measure)


def most_connections(session, scenario):
    """Returns IDLE_CONNECTIONS, or the number that the limit of open files allows."""
    available = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_KEPT_FREE
    if available < IDLE_CONNECTIONS:
        session.say(f"  {scenario}: only {available} connections, because of the limit on open files (ulimit -n)")
    return min(IDLE_CONNECTIONS, available)


def holding_client(session, running, count):
    """Starts idle_client.py, which opens its connections immediately and prints a line when it is done."""
    kind = "websocket" if running.workload.websocket else running.launch.wire.scheme
    return session.client("idle_client", PYTHON, BENCH / "idle_client.py", kind, running.port, running.path, count)


def hold(session, scenario, label, running, count):
    """Returns the report of idle_client.py about `count` idle connections, and the growth of the server's PSS per connection."""
    before, _ = accounting.pss_bytes(running.program)
    client = holding_client(session, running, count)
    try:
        opened = client.hear(IDLE_OPEN_SECONDS)
        time.sleep(SETTLE_SECONDS)
        after, _ = accounting.pss_bytes(running.program)
        client.tell("probe")
        probed = client.hear(PROBE_SECONDS)
    finally:
        client.stop()
    if not opened["opened"]:
        raise NotStarted(f"it holds no connection ({opened['problem']})", running.program.last_lines())
    result = {**opened, **probed, "wanted": count, "bytes_per_connection": (after - before) / opened["opened"]}
    session.say(
        f"  {scenario}: {label:<20} {result['bytes_per_connection']:.0f} bytes each,"
        f" {result['still_open']} of {result['wanted']} still open, new request: {milliseconds(result['new_connection'])}"
    )
    return result


def milliseconds(probe):
    """Returns the outcome of one probe as text: its time, or the error."""
    if probe is None:
        return "none was open"
    return probe["problem"] or f"{probe['milliseconds']:.1f} ms"
