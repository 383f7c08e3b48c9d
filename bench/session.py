"""One run of the suite: what was asked for, what it runs on, and how a server is started and checked in it.

Runs in the suite's own process; the scenarios get a Session and nothing else.
"""

import os
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from . import load, places
from .machine import CpuPlan
from .processes import Program
from .servers import REFERENCE, SERVERS, Launch
from .workloads import HELLO, Workload


@dataclass(frozen=True)
class Effort:
    """How much is measured. Times are in whole seconds, because wrk takes no others."""

    rounds: int
    seconds: int
    warm_seconds: int
    # A fresh start for every round evens out the luck of memory layout; a quick run can't afford it.
    fresh_start: bool
    memory_repeats: int
    startup_repeats: int


FULL = Effort(rounds=5, seconds=3, warm_seconds=1, fresh_start=True, memory_repeats=3, startup_repeats=9)
QUICK = Effort(rounds=3, seconds=1, warm_seconds=1, fresh_start=False, memory_repeats=1, startup_repeats=3)


class NotStarted(Exception):
    """A server does not serve; the text says why, `lines` are the end of its log."""

    def __init__(self, reason, lines=()):
        super().__init__(reason)
        self.lines = list(lines)


@dataclass
class Running:
    """A server that has given the right answer."""

    name: str
    program: Program
    port: int
    path: str
    launch: Launch
    # Further lines of each request's head.
    fields: tuple = ()

    def stop(self):
        self.program.stop()


@dataclass
class Session:
    effort: Effort
    cpus: CpuPlan
    folder: Path
    servers: list
    say: object
    left_out: list = field(default_factory=list)
    launch_lines: dict = field(default_factory=dict)
    started: int = 0

    def chosen(self, *abilities, without=()):
        """Names of the servers of this run that have all these abilities and none of those."""
        return [
            name
            for name in self.servers
            if SERVERS[name].abilities.issuperset(abilities) and not SERVERS[name].abilities.intersection(without)
        ]

    def start(self, name, workload: Workload, *, cpus=None, workers=1, threads=1, request_log=False) -> Running:
        """Starts a server with an application over HTTP and checks its answer. Raises NotStarted."""
        launch = Launch(workload.module, load.free_port(), workers=workers, threads=threads, request_log=request_log)
        program = self.spawn(name, launch, cpus=cpus)
        running = Running(name, program, launch.port, workload.path, launch)
        self.check(running, workload)
        return running

    def spawn(self, name, launch, *, cpus=None) -> Program:
        """Starts a server and does not wait for it."""
        command = [str(word) for word in SERVERS[name].command(launch)]
        line = places.for_report(" ".join(command), self.folder).replace(str(launch.port), "PORT")
        self.launch_lines.setdefault(name, line)
        self.started += 1
        log = self.folder / f"{self.started:04}-{name}.log"
        try:
            return Program(
                name, command, cpus=cpus or self.cpus.server, log=log, folder=places.APPLICATIONS, environment=self.environment()
            )
        except OSError as error:
            raise NotStarted(f"it can't be started: {error.strerror}") from None

    def environment(self):
        """What every server and every import finds in its environment."""
        # Some servers leave files in the user's home. Python's switches of this shell are not the servers' business.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "HOME": str(self.folder)}

    def check(self, running, workload):
        """Waits for the first answer and compares it with what is right; stops the server when it is not."""
        try:
            status, body = load.wait_for_answer(running.port, workload.path, running.program, load.START_SECONDS)
            # The limit program has one answer, whatever it is asked.
            right = HELLO if running.name == REFERENCE else workload
            problem = f"the status is {status}" if status != 200 else right.check(body)
        except (load.LoadFailed, OSError, HTTPException) as error:
            problem = str(error)
        if problem is not None:
            lines = running.program.last_lines()
            running.stop()
            raise NotStarted(problem, lines)

    def wrk(self, running, *, connections, seconds, meanwhile=None):
        """wrk's counts (see load.wrk), from the client's CPU. Raises LoadFailed."""
        return load.wrk(
            running.port,
            running.path,
            connections=connections,
            seconds=seconds,
            cpus=self.cpus.client,
            folder=self.folder,
            meanwhile=meanwhile,
            fields=running.fields,
        )

    def leave_out(self, name, scenario, error):
        """Notes that a server takes no part in a scenario, and why; the run goes on."""
        lines = [places.for_report(line, self.folder) for line in getattr(error, "lines", [])]
        reason = places.for_report(str(error), self.folder)
        self.left_out.append({"server": name, "scenario": scenario, "reason": reason, "log": lines})
        self.say(f"  {name} is left out of {scenario}: {reason}")
        for line in lines:
            self.say(f"    | {line}")
