"""CPU per request: servers take turns within a round, several rounds, the client on a separate CPU.

Runs in the suite's own process.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException

from .. import accounting, load, workloads
from ..servers import REFERENCE
from ..session import NotStarted

CONNECTIONS = 64
# A server may close an answer after its client has received it completely: number of times to ask whether it did.
CLOSING_TRIES = 5
NOT_CLOSED = "does not call close() of an answer, as PEP 3333 wants: it does less than the others"


@dataclass(frozen=True)
class Entry:
    """One line of a table: a server, and its variant.

    `python` is the version it runs on if servers on several Pythons are compared, else None.
    """

    label: str
    server: str
    options: dict = field(default_factory=dict)
    python: str | None = None


def entries_of(names):
    return [Entry(name, name) for name in names]


def compare(session, scenario, workload, entries, *, connections=CONNECTIONS, start=None, ask=None):
    """Compares the entries. Returns {label: {"server", "python", "samples": […]}} with one sample for each round.

    `start(session, entry, workload)` returns a Running; by default the entry's server with its options. `ask(session, running,
    connections, seconds)` returns a client's counts and the CPU of the tree before and after; by default it runs wrk.
    """
    ask = ask or ask_with_wrk
    start = start or _start
    results = {entry.label: {"server": entry.server, "python": entry.python, "samples": []} for entry in entries}
    if workload.closing:
        for entry in entries:
            results[entry.label]["undone"] = _undone(session, entry, workloads.closing(workload.closing), start)
    alive = list(entries)
    running = {}
    with ExitStack() as at_end:
        at_end.callback(lambda: [one.stop() for one in running.values()])
        for number in range(session.effort.rounds):
            # Rotate the order, so that each entry is first in some round and follows another entry in the others.
            turn = alive[number % len(alive) :] + alive[: number % len(alive)] if alive else []
            for entry in turn:
                try:
                    if entry.label not in running:
                        running[entry.label] = start(session, entry, workload)
                        ask(session, running[entry.label], connections, session.effort.warm_seconds)
                    sample = {"round": number + 1, **_measure(session, running[entry.label], connections, ask)}
                except (NotStarted, load.LoadFailed) as error:
                    session.leave_out(entry.label, scenario, error)
                    alive.remove(entry)
                    sample = None
                if sample is not None:
                    results[entry.label]["samples"].append(sample)
                    _say_sample(session, scenario, number, entry, sample)
                if (session.effort.fresh_start or sample is None) and entry.label in running:
                    running.pop(entry.label).stop()
    return {label: result for label, result in results.items() if result["samples"]}


def _start(session, entry, workload):
    return session.start(entry.server, workload, **entry.options)


def _undone(session, entry, workload, start):
    """Returns the part of a request that a server omits, or None. The limit program omits everything, and declares it."""
    if entry.server == REFERENCE:
        return None
    try:
        running = start(session, entry, workload)
    except NotStarted:
        # It won't start for the measurement either, which reports the reason.
        return None
    try:
        for _ in range(CLOSING_TRIES):
            _, body = load.wait_for_answer(running.port, workload.path, running.program, load.START_SECONDS)
            if int(body) > 0:
                return None
    except (load.LoadFailed, OSError, HTTPException, ValueError):
        return None
    finally:
        running.stop()
    return NOT_CLOSED


def ask_with_wrk(session, running, connections, seconds):
    """Returns (wrk's counts, the tree's CPU before, and after)."""
    before = accounting.cpu_of_tree(running.program)
    counts = session.wrk(running, connections=connections, seconds=seconds)
    return counts, before, accounting.cpu_of_tree(running.program)


def _measure(session, running, connections, ask):
    counts, before, after = ask(session, running, connections, session.effort.seconds)
    used, ended = accounting.cpu_between(before, after)
    if counts["requests"] == 0:
        raise NotStarted("it answered no request under load", running.program.last_lines())
    problems = []
    if ended:
        problems.append(f"{ended} of its processes exited while measured, and took their CPU time with them")
    if counts["errors"].get("status"):
        problems.append(f"{counts['errors']['status']} answers were not 2xx")
    return {
        "cpu_us_per_request": used / 1000 / counts["requests"],
        "requests": counts["requests"],
        "requests_per_second": counts["requests"] * 1e6 / counts["microseconds"],
        "latency_us": counts["latency_us"],
        "errors": counts["errors"],
        "problems": problems,
    }


def _say_sample(session, scenario, number, entry, sample):
    session.say(
        f"  {scenario} round {number + 1}: {entry.label:<20} {sample['cpu_us_per_request']:8.2f} µs each"
        f" {sample['requests_per_second']:10.0f} a second" + "".join(f" ({problem})" for problem in sample["problems"])
    )
