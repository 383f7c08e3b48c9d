"""How long requests wait for a worker: arrivals at a fixed rate, views of a given duration, compared with one ideal queue.

Runs in the suite's own process. Views sleep, therefore many servers are measured at the same time on few CPUs: their influence
on each other is included in what the limit program, which is one of them, adds to the ideal.
"""

import dataclasses
import json
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass

from .. import load, queueing, workloads
from ..places import WAITING_LOAD_PROGRAM
from ..processes import Program
from ..servers import OURS, REFERENCE, Launch
from ..session import NotStarted, Running
from ..workloads import Workload

WORKERS, THREADS = 4, 1
SHAPES = ((4, 1), (2, 4), (1, 8))
LOADS = (50, 70, 80, 90, 95)
VIEWS_MS = (5, 20, 100)
# Number of servers that are measured together, by the length of the view: shorter views need more CPU time.
MAX_TOGETHER = {5: 1, 20: 4, 100: 80}
WARM_SECONDS = 3
# Beyond the schedule: connecting, the queue left at its end, and the client's own timeout for an answer.
GRACE_SECONDS = 90
# Labels of ASGI say how the view waits: by blocking the event loop, or with asyncio.
BLOCKING, ASYNCIO = "async, blocks", "asyncio.sleep"
EVENT_LOOPS = (OURS, "uvicorn", "granian", "freastal", "peregrine", "weft")
BASE = queueing.Point(WORKERS, THREADS, queueing.VIEW_MS, queueing.LOAD, kept=False)


@dataclass(frozen=True)
class Cell:
    """A server at a point."""

    point: queueing.Point
    label: str
    server: str
    workload: Workload

    def __str__(self):
        return f"{self.label}, {self.point.name}"


def shapes(session, scenario):
    points = [dataclasses.replace(BASE, workers=workers, threads=threads) for workers, threads in SHAPES]
    return _measure(session, scenario, [cell for point in _both_ways(points) for cell in _everybody(session, point)])


def loads(session, scenario):
    points = [dataclasses.replace(BASE, load=percent) for percent in LOADS]
    return _measure(session, scenario, [cell for point in _both_ways(points) for cell in _in_short(session, point)])


def views(session, scenario):
    points = [dataclasses.replace(BASE, view_ms=view_ms) for view_ms in VIEWS_MS]
    return _measure(session, scenario, [cell for point in _both_ways(points) for cell in _in_short(session, point)])


def _both_ways(points):
    return [dataclasses.replace(point, kept=kept) for kept in (False, True) for point in points]


def _in_short(session, point):
    """Returns the servers with workers of this shape; each gunicorn with the worker class that its documentation recommends."""
    gunicorn = "gunicorn" if point.threads == 1 else "gunicorn-gthread"
    names = [REFERENCE, OURS, "uwsgi-http-socket", gunicorn, "granian", "freastal", "peregrine", "weft"]
    chosen = session.chosen() if point.threads == 1 else [REFERENCE, *session.chosen("threads")]
    return [Cell(point, name, name, workloads.TAKES_TIME) for name in names if name in chosen]


def _everybody(session, point):
    """The same, and the event loops if a worker has one thread."""
    loops = session.chosen(interface="asgi") if point.threads == 1 else []
    chosen = [name for name in EVENT_LOOPS if name in loops]
    views = {BLOCKING: workloads.ASGI_BLOCKS, ASYNCIO: workloads.ASGI_TAKES_TIME}
    asynchronous = [Cell(point, f"{name} ({how})", name, view) for how, view in views.items() for name in chosen]
    return _in_short(session, point) + asynchronous


def _measure(session, scenario, cells):
    """Returns {name of a point: {"point", "servers": {label: …}}} for the cells, in rounds with different seeds."""
    rounds = {cell: [] for cell in cells}
    for number in range(session.effort.waiting_rounds):
        for together in _batches(cells):
            for cell, requests, told in _measure_together(session, scenario, together, number):
                rounds[cell].append((requests, told))
                _say_round(session, scenario, number, cell, requests, told)
    results = {}
    for cell, found in rounds.items():
        if found:
            here = results.setdefault(cell.point.name, {"point": dataclasses.asdict(cell.point), "servers": {}})
            here["servers"][cell.label] = _summary(cell, found)
    return results


def _batches(cells):
    """Returns the cells in groups that are measured at the same time; cells of equal duration are in the same group."""
    batches = []
    for cell in sorted(cells, key=lambda cell: (cell.point.view_ms, -cell.point.rate)):
        view_ms = cell.point.view_ms
        if not batches or len(batches[-1]) >= MAX_TOGETHER[view_ms] or batches[-1][0].point.view_ms != view_ms:
            batches.append([])
        batches[-1].append(cell)
    return batches


def _measure_together(session, scenario, cells, number):
    """Returns [(cell, requests, the client's report)] for the cells that served to the end of the schedule."""
    running = {}
    try:
        _start(session, scenario, cells, running)
        schedules = {cell: queueing.schedule(cell.point, int(cell.point.rate * WARM_SECONDS), "warm") for cell in running}
        _ask(session, scenario, running, schedules)
        schedules = {cell: queueing.schedule(cell.point, session.effort.waiting_requests, number) for cell in running}
        return [(cell, schedules[cell], told) for cell, told in _ask(session, scenario, running, schedules)]
    finally:
        # Stop all in parallel: some take a second to end.
        for server in running.values():
            server.program.process.terminate()
        for server in running.values():
            server.stop()


def _start(session, scenario, cells, running):
    """Fills `running` with {cell: Running} of those that give the right answer."""
    # Ports are allocated together: one by one, two servers that have not bound yet could get the same port, and one would answer
    # for both.
    for cell, port in zip(cells, load.free_ports(len(cells)), strict=True):
        point, workload = cell.point, cell.workload
        launch = Launch(
            workload.module,
            port,
            workers=point.workers,
            threads=point.threads,
            interface=workload.interface,
            waiting=True,
        )
        try:
            program = session.spawn(cell.server, launch, cpus=session.cpus.any)
            running[cell] = Running(cell.server, program, launch.port, workload, launch)
        except NotStarted as error:
            session.leave_out(str(cell), scenario, error)
    for cell, server in list(running.items()):
        try:
            session.check(server)
        except NotStarted as error:
            session.leave_out(str(cell), scenario, error)
            del running[cell]


def _ask(session, scenario, running, schedules):
    """Returns [(cell, its client's report)]: one client for each, all at the same time. A server that fails in the meantime
    is stopped.
    """
    told, clients = [], {}
    with ExitStack() as at_end:
        for number, (cell, server) in enumerate(running.items()):
            schedule = session.directory / f"schedule-{number}"
            schedule.write_text("".join(f"{arrival} {service}\n" for arrival, service in schedules[cell]))
            connections = queueing.KEPT_CONNECTIONS if cell.point.kept else 0
            clients[cell] = Program(
                "waiting-load",
                [WAITING_LOAD_PROGRAM, server.port, schedule, connections],
                cpus=session.cpus.any,
                log=session.directory / f"waiting-load-{number}.log",
                directory=session.directory,
                stdout=subprocess.PIPE,
            )
            at_end.callback(clients[cell].stop)
        for cell, client in clients.items():
            try:
                told.append((cell, _hear(client, schedules[cell][-1][0] / 1e6 + GRACE_SECONDS)))
            except load.LoadFailed as error:
                session.leave_out(str(cell), scenario, error)
                running.pop(cell).stop()
    return told


def _hear(client, seconds):
    try:
        output, _ = client.process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise load.LoadFailed(f"the client did not end within {seconds:.0f} s") from None
    if client.process.returncode != 0:
        raise load.LoadFailed(f"the client ended with status {client.process.returncode}: {client.last_lines()[-1:]}")
    return json.loads(output)


def _summary(cell, rounds):
    """One line of a table: each round, and the combined ideal."""
    requests = [request for requests, _ in rounds for request in requests]
    ideals = [time for requests, _ in rounds for time in queueing.ideal(requests, cell.point.servers)]
    return {
        "server": cell.server,
        "python": None,
        "ideal": queueing.figures_of(requests, ideals),
        "rounds": [_figures(cell.point, requests, told["took_us"]) for requests, told in rounds],
        "requests": len(requests),
        **{name: sum(told[name] for _, told in rounds) for name in ("failed", "resent", "opened")},
        "problem": next((told["problem"] for _, told in rounds if told["problem"]), None),
        "late_mean_us": sum(told["late_mean_us"] for _, told in rounds) / len(rounds),
        "late_most_us": max(told["late_most_us"] for _, told in rounds),
    }


def _figures(point, requests, took):
    return {
        "measured": queueing.figures_of(requests, took),
        "ideal": queueing.figures_of(requests, queueing.ideal(requests, point.servers)),
    }


def _say_round(session, scenario, number, cell, requests, told):
    found = {"rounds": [_figures(cell.point, requests, told["took_us"])]}
    ratios = {name: queueing.ratio(found, "response", name) for name in ("mean", *queueing.PARTS)}
    parts = [f"{name} {ratio.median:.2f}" for name, ratio in ratios.items() if ratio]
    failed = f", {told['failed']} failed ({told['problem']})" if told["failed"] else ""
    session.say(f"  {scenario} round {number + 1}: {cell.point.name:<22} {cell.label:<23} {', '.join(parts)} x ideal{failed}")
