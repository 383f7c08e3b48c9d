"""One run of the suite: its arguments, its machine, and starting and checking a server in it.

Runs in the suite's own process; scenarios receive a Session and nothing else.
"""

import os
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from . import load, places
from .interpreters import OWN
from .machine import CpuPlan
from .processes import Program
from .servers import REFERENCE, SERVERS, Launch
from .workloads import HELLO, Workload


@dataclass(frozen=True)
class Effort:
    """How much is measured. Times are in whole seconds, because wrk does not accept fractions."""

    rounds: int
    seconds: int
    warm_seconds: int
    # A new start for every round averages out the effects of memory layout; a quick run has no time for it.
    fresh_start: bool
    memory_repeats: int
    startup_repeats: int
    # Events of each stream of server-sent events.
    stream_events: int
    # Requests of each server at each point of the waiting scenarios, and the number of rounds.
    waiting_requests: int
    waiting_rounds: int


FULL = Effort(
    rounds=5,
    seconds=3,
    warm_seconds=1,
    fresh_start=True,
    memory_repeats=3,
    startup_repeats=9,
    stream_events=100,
    waiting_requests=2000,
    waiting_rounds=3,
)
QUICK = Effort(
    rounds=3,
    seconds=1,
    warm_seconds=1,
    fresh_start=False,
    memory_repeats=1,
    startup_repeats=3,
    stream_events=40,
    waiting_requests=1000,
    waiting_rounds=1,
)


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
    workload: Workload
    launch: Launch
    # Additional header lines of each request.
    fields: tuple = ()

    @property
    def path(self):
        return self.workload.path

    def stop(self):
        self.program.stop()


@dataclass
class Session:
    effort: Effort
    cpus: CpuPlan
    directory: Path
    # {interpreter: names of the servers that can run on it}, newest first; the suite's own is always included.
    servers: dict
    say: object
    left_out: list = field(default_factory=list)
    launch_lines: dict = field(default_factory=dict)
    started: int = 0

    def chosen(self, *abilities, without=(), interface="wsgi", interpreter=OWN):
        """Returns the names of the servers of this run on an interpreter that have all of the first abilities and none of the
        second.
        """
        without = {*without, *([] if "h2" in abilities else ["http2-only"])}
        rows = [SERVERS[name] for name in self.servers[interpreter]]
        return [
            row.name
            for row in rows
            if interface in row.interfaces and row.abilities.issuperset(abilities) and not row.abilities.intersection(without)
        ]

    def start(self, name, workload: Workload, *, cpus=None, **wishes) -> Running:
        """Starts a server with an application over HTTP and checks its answer. Raises NotStarted.

        `wishes` are fields of Launch: workers, threads, request_log, interpreter, wire.
        """
        launch = Launch(workload.module, load.free_port(), interface=workload.interface, websocket=workload.websocket, **wishes)
        running = Running(name, self.spawn(name, launch, cpus=cpus), launch.port, workload, launch)
        self.check(running)
        return running

    def spawn(self, name, launch, *, cpus=None) -> Program:
        """Starts a server and does not wait for it."""
        command = [str(word) for word in SERVERS[name].command(launch)]
        line = places.for_report(" ".join(command), self.directory).replace(str(launch.port), "PORT")
        kind = f" ({launch.wire.words})" if launch.wire.words else ""
        kind += " (ASGI)" if launch.interface == "asgi" and "wsgi" in SERVERS[name].interfaces and name != REFERENCE else ""
        kind += " (waiting)" if launch.waiting and name == REFERENCE else ""
        self.launch_lines.setdefault(f"{name}{kind}", line)
        self.started += 1
        log = self.directory / f"{self.started:04}-{name}.log"
        try:
            return Program(
                name,
                command,
                cpus=cpus or self.cpus.server,
                log=log,
                directory=places.APPLICATIONS,
                environment=self.environment(),
            )
        except OSError as error:
            raise NotStarted(f"it can't be started: {error.strerror}") from None

    def environment(self):
        """Returns the environment of every server and every import."""
        # Some servers leave files in the user's home. Python's variables of this shell do not apply to the servers.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "HOME": str(self.directory)}

    def check(self, running):
        """Waits for the first answer and checks it; stops the server if it is wrong."""
        workload = running.workload
        try:
            status, body = load.wait_for_answer(
                running.port,
                workload.path,
                running.program,
                load.START_SECONDS,
                posted=workload.body,
                wire=running.launch.wire,
            )
            # The limit program has one answer for every request.
            right = HELLO if running.name == REFERENCE else workload
            problem = f"the status is {status}" if status != 200 else right.check(body)
        except (load.LoadFailed, OSError, HTTPException) as error:
            problem = str(error)
        if problem is not None:
            lines = running.program.last_lines()
            running.stop()
            raise NotStarted(problem, lines)

    def client(self, name, *command):
        """Starts one of the suite's own clients on the client's CPU."""
        return load.TalkingClient(name, command, cpus=self.cpus.client, directory=self.directory)

    def wrk(self, running, *, connections, seconds, meanwhile=None):
        """Returns wrk's counts (see load.wrk), from the client's CPU. Raises LoadFailed."""
        return load.wrk(
            running.port,
            running.path,
            connections=connections,
            seconds=seconds,
            cpus=self.cpus.client,
            directory=self.directory,
            posted=running.workload.body,
            meanwhile=meanwhile,
            fields=running.fields,
            wire=running.launch.wire,
        )

    def leave_out(self, name, scenario, error):
        """Notes that a server is left out of a scenario, and why; the run goes on."""
        lines = [places.for_report(line, self.directory) for line in getattr(error, "lines", [])]
        reason = places.for_report(str(error), self.directory)
        self.left_out.append({"server": name, "scenario": scenario, "reason": reason, "log": lines})
        self.say(f"  {name} is left out of {scenario}: {reason}")
        for line in lines:
            self.say(f"    | {line}")
