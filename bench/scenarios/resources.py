"""Memory of the process tree by number of workers, and the time from exec to the first answer.

Runs in the suite's own process.
"""

import statistics
import time

from .. import accounting, load
from ..places import APPLICATIONS, PYTHON
from ..processes import Program, wait_for_end
from ..servers import Launch
from ..session import NotStarted, Running
from ..workloads import DJANGO, HELLO

MEMORY_WORKERS = (1, 5, 10)
CONNECTIONS_PER_WORKER = 8
WARM_SECONDS = 2
# Memory is stable when two readings this far apart differ by less than this fraction.
SETTLE_STEP_SECONDS = 0.25
SETTLE_PART = 0.005
MAX_SETTLE_SECONDS = 4.0
STARTUP_SECONDS = 30
STARTUP_WORKLOADS = (HELLO, DJANGO)


def memory(session, scenario):
    """Returns {server: {workers: {"pss": [bytes], "pages": [bytes or None], "processes": count}}}, each after a warm-up."""
    results = {}
    for name in session.chosen("workers", without=["closes"]) + [n for n in session.chosen("closes") if n == "gunicorn"]:
        try:
            results[name] = {str(workers): _memory_of(session, scenario, name, workers) for workers in MEMORY_WORKERS}
        except (NotStarted, load.LoadFailed) as error:
            session.leave_out(name, scenario, error)
    return results


def _memory_of(session, scenario, name, workers):
    pss, pages, processes = [], [], 0
    for _ in range(session.effort.memory_repeats):
        running = session.start(name, DJANGO, cpus=session.cpus.any, workers=workers)
        try:
            session.wrk(running, connections=workers * CONNECTIONS_PER_WORKER, seconds=WARM_SECONDS)
            used, processes = _settled_pss(running)
            pss.append(used)
            pages.append(accounting.page_bytes(running.program))
        finally:
            running.stop()
    session.say(
        f"  {scenario}: {name:<20} {workers:2} workers: {statistics.median(pss) / 2**20:6.1f} MB in {processes} processes"
    )
    return {"pss": pss, "pages": pages, "processes": processes}


def _settled_pss(running):
    deadline = time.monotonic() + MAX_SETTLE_SECONDS
    last, _ = accounting.pss_bytes(running.program)
    while True:
        time.sleep(SETTLE_STEP_SECONDS)
        now, processes = accounting.pss_bytes(running.program)
        if abs(now - last) <= SETTLE_PART * last or time.monotonic() > deadline:
            return now, processes
        last = now


def startup(session, scenario):
    """Returns {application: {"import": [seconds], "servers": {name: [seconds]}}}, measured alternately."""
    results = {}
    for workload in STARTUP_WORKLOADS:
        imports = []
        servers = {name: [] for name in session.chosen(without=["memory-only"]) if name != "limit"}
        for _ in range(session.effort.startup_repeats):
            imports.append(_time_import(session, workload))
            for name in list(servers):
                try:
                    servers[name].append(_time_first_answer(session, name, workload))
                except (NotStarted, load.LoadFailed) as error:
                    session.leave_out(name, f"{scenario} ({workload.module})", error)
                    del servers[name]
        results[workload.module] = {"import": imports, "servers": servers}
        for name, seconds in servers.items():
            beyond = statistics.median(seconds) - statistics.median(imports)
            session.say(f"  {scenario} {workload.module}: {name:<20} import + {beyond * 1000:.0f} ms")
    return results


def _time_import(session, workload):
    began = time.monotonic()
    program = Program(
        "import",
        # No server waits for the clean-up at interpreter exit, so the baseline excludes it too.
        [PYTHON, "-c", f"import os, {workload.module}; os._exit(0)"],
        cpus=session.cpus.server,
        log=session.directory / "import.log",
        directory=APPLICATIONS,
        environment=session.environment(),
    )
    try:
        status = wait_for_end(program, STARTUP_SECONDS)
        took = time.monotonic() - began
    finally:
        program.stop()
    if status != 0:
        raise load.LoadFailed(f"importing {workload.module} ended with status {status}: {program.last_lines()[-1:]}")
    return took


def _time_first_answer(session, name, workload):
    launch = Launch(workload.module, load.free_port())
    began = time.monotonic()
    running = Running(name, session.spawn(name, launch), launch.port, workload, launch)
    session.check(running)
    took = time.monotonic() - began
    running.stop()
    return took
