"""A quick page beside a slow route: ``python3 -m bench.services.bulkheads BOLIDE [SERVER ...] [--rounds N] [--instances N]``.

The slow route sleeps for half a second, and two of its requests may be in progress. They come at three times that capacity,
whether or not others have been answered. At the beginning come as many as are in progress and wait in the steady state. The quick
page is asked on other connections at random times. Both clients are `waiting_load.c`, which measures from the time at which a
request was due. The quick page's p99 is to be at most 1.05 times what it is without the slow route. The same without the bulkhead
and other programs of the command line (``uwsgi``, ``gunicorn``) are measured the same way, in fewer rounds.

Each round starts a server. Within a round all servers get the same requests, in a random order of servers. The figures are
medians of the rounds. The server has one CPU and the clients have another one.

Then comes the CPU time that a bulkhead adds to a request (`bench.services.request_cost`), at most 80 ns. It does not know the
suite's other scenarios.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.installation import build_programs
from bench.load import HOST, free_port, wait_until_served
from bench.machine import plan_cpus, raise_descriptor_limit
from bench.places import WAITING_LOAD_SOURCE
from bench.processes import STOP_SECONDS, Program, take_charge
from bench.queueing import KEPT_CONNECTIONS
from bench.services import request_cost

MAX_RATIO, MAX_NS = 1.05, 80
ROUNDS, REFERENCE_ROUNDS = 25, 3

MICROSECONDS = 1_000_000
SLOW_US = MICROSECONDS // 2
PERMITS, QUEUE, OVERLOAD = 2, 20, 3
#: Requests in a second.
QUICK_RATE = 500
SLOW_RATE = OVERLOAD * PERMITS * MICROSECONDS / SLOW_US
#: The slow requests begin earlier than the quick ones, and end with them.
WARM_SECONDS, LEAD_SECONDS, QUICK_SECONDS = 0.5, 0.5, 3
#: A server without a bulkhead answers the last quick request when it has answered the slow ones before it.
GRACE_SECONDS = 60

BULKHEAD = f"bulkhead = name=slow,route=^/view/{SLOW_US}$,max={PERMITS},queue={QUEUE},wait=5s"

#: Each call of the slow route appends a byte, which shows how many have begun.
APPLICATION = """import os
import time

calls = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def application(environ, start_response):
    microseconds = int(environ["PATH_INFO"].rpartition("/")[2])
    if microseconds:
        os.write(calls, b".")
        time.sleep(microseconds / 1e6)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
"""

#: uWSGI reads the same lines.
CONFIGURATION = """[uwsgi]
http-socket = {address}
module = views
master = true
enable-threads = true
need-app = true
processes = {processes}
threads = {threads}
listen = 1024
disable-logging = true
"""

COSTS = {
    "without a bulkhead": [],
    "bulkhead of a prefix": [f"bulkhead = name=slow,route=^{request_cost.PATH},max={PERMITS}"],
    "bulkhead of an expression": [f"bulkhead = name=slow,route=^{request_cost.PATH}(/|$),max={PERMITS}"],
}


@dataclass(frozen=True)
class Way:
    """A server, its workers, and how clients connect."""

    name: str
    #: Another program's path; None is Bolide.
    other: str | None
    has_bulkhead: bool
    processes: int
    threads: int
    is_kept: bool

    def __str__(self):
        connections = "kept" if self.is_kept else "fresh"
        return f"{self.name}, {self.processes} × {self.threads}, {connections} connections"


@dataclass(frozen=True)
class Told:
    """What a round has shown. Times are in milliseconds."""

    p50: float
    p99: float
    failed: int
    #: Calls of the slow route in a second.
    slow_rate: float
    #: The client's own delay, at most.
    late: float


def ways_of(others):
    shapes = [(4, 1, False), (4, 1, True), (2, 2, True)]
    ours = [Way("bulkhead", None, True, *shape) for shape in shapes]
    references = [Way("without", None, False, *shape) for shape in shapes]
    # gunicorn and uWSGI's http-socket close each connection after its answer.
    return ours, references + [Way(Path(other).name, other, False, 4, 1, False) for other in others]


class Bench:
    """The programs and the directory of a run."""

    def __init__(self, bolide, directory):
        self.bolide, self.directory, self.cpus = bolide, directory, plan_cpus()
        self.client = directory / "waiting-load"
        (directory / "views.py").write_text(APPLICATION)
        build_programs({self.client: (WAITING_LOAD_SOURCE, [])})

    def arguments(self, way, port):
        if way.other and way.name == "gunicorn":
            shape = ["--workers", way.processes, "--threads", way.threads, "--backlog", "1024"]
            return [way.other, "--bind", f"{HOST}:{port}", *shape, "views"]
        text = CONFIGURATION.format(address=f"{HOST}:{port}", processes=way.processes, threads=way.threads)
        (self.directory / "bench.ini").write_text(text + (BULKHEAD + "\n" if way.has_bulkhead else ""))
        return [way.other or self.bolide, "bench.ini"]

    @contextmanager
    def server(self, way):
        """Gives the port of a server that has answered."""
        port = free_port()
        program = Program(
            "server",
            self.arguments(way, port),
            cpus=self.cpus.server,
            log=self.directory / "server.log",
            directory=self.directory,
        )
        try:
            wait_until_served(port, "/view/0", [program])
            yield port
        finally:
            # It is the end without waiting for requests.
            program.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                program.process.wait(STOP_SECONDS)
            program.stop()

    @contextmanager
    def load(self, port, requests, is_kept):
        """Gives a client that sends [(arrival, service)], in microseconds."""
        schedule = self.directory / f"schedule-{requests[-1][1]}"
        schedule.write_text("".join(f"{arrival} {service}\n" for arrival, service in requests))
        client = Program(
            "waiting-load",
            [self.client, port, schedule, KEPT_CONNECTIONS if is_kept else 0],
            cpus=self.cpus.client,
            log=self.directory / "client.log",
            directory=self.directory,
            stdout=subprocess.PIPE,
        )
        # Other programs on the client's CPU do not delay it, if this user may forbid that.
        with suppress(PermissionError):
            os.sched_setscheduler(client.pid, os.SCHED_FIFO, os.sched_param(1))
        try:
            yield client
        finally:
            client.process.kill()
            client.stop()

    def ask(self, port, requests, is_kept):
        """Returns the client's report when all requests are answered."""
        with self.load(port, requests, is_kept) as client:
            output, _ = client.process.communicate(timeout=requests[-1][0] / MICROSECONDS + GRACE_SECONDS)
        return json.loads(output)

    def measure(self, way, number, is_quiet):
        """Returns what a round shows."""
        quick = at_random(QUICK_RATE, QUICK_SECONDS, 0, f"quick {number}")
        calls = self.directory / "calls"
        with self.server(way) as port:
            self.ask(port, at_random(QUICK_RATE, WARM_SECONDS, 0, "warm"), way.is_kept)
            if is_quiet:
                return told_of(self.ask(port, quick, way.is_kept), 0)
            seconds = LEAD_SECONDS + QUICK_SECONDS
            slow = [(0, SLOW_US)] * (PERMITS + QUEUE) + at_random(SLOW_RATE, seconds, SLOW_US, f"slow {number}")
            with self.load(port, slow, way.is_kept):
                time.sleep(LEAD_SECONDS)
                before, began = calls.stat().st_size, time.monotonic()
                report = self.ask(port, quick, way.is_kept)
                slow_rate = (calls.stat().st_size - before) / (time.monotonic() - began)
        return told_of(report, slow_rate)


def at_random(rate, seconds, service_us, seed):
    """Returns [(arrival, service)] of a Poisson process."""
    chance = random.Random(seed)
    arrivals, now = [], 0.0
    while (now := now + chance.expovariate(rate)) < seconds:
        arrivals.append((int(now * MICROSECONDS), service_us))
    return arrivals


def told_of(report, slow_rate):
    times = sorted(us / 1000 for us in report["took_us"] if us >= 0)
    p50, p99 = (times[int(len(times) * part)] for part in (0.5, 0.99))
    return Told(p50, p99, report["failed"], slow_rate, report["late_most_us"] / 1000)


def tell(way, quiet, beside):
    """Prints the medians of the rounds, and half of the ratios."""
    p50, p99, late = (
        [statistics.median(getattr(one, name) for one in rounds) for rounds in (quiet, beside)] for name in ("p50", "p99", "late")
    )
    ratios = sorted(one.p99 / usual.p99 for one, usual in zip(beside, quiet, strict=True))
    quarter = len(ratios) // 4
    half = f"half of the rounds {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f}"
    mark = f", at most {MAX_RATIO}" if way.has_bulkhead else ""
    slow_rate = statistics.median(one.slow_rate for one in beside)
    failed = sum(one.failed for one in quiet + beside)
    print(f"{way}, {len(quiet)} rounds:")
    print(f"  quick page alone: p50 {p50[0]:.3f} ms, p99 {p99[0]:.3f} ms")
    print(f"  beside {slow_rate:.1f} slow calls/s: p50 {p50[1]:.3f} ms, p99 {p99[1]:.3f} ms, {failed} failed")
    print(f"  p99 {statistics.median(ratios):.3f} × ({half}{mark})")
    print(f"  delay of the client itself: at most {late[0]:.3f} ms alone, {late[1]:.3f} ms beside")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bolide")
    parser.add_argument("servers", nargs="*")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--instances", type=int, default=request_cost.INSTANCES)
    options = parser.parse_args()
    take_charge()
    raise_descriptor_limit()
    bolide, *others = (str(Path(program).absolute()) for program in (options.bolide, *options.servers))
    ours, references = ways_of(others)
    found = {(way, is_quiet): [] for way in ours + references for is_quiet in (True, False)}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(bolide, Path(name))
        for number in range(options.rounds):
            here = [key for key in found if key[0] in ours or number < REFERENCE_ROUNDS]
            for way, is_quiet in random.Random(number).sample(here, len(here)):
                told = bench.measure(way, number, is_quiet)
                print(f"round {number}: {way}, {'alone' if is_quiet else 'beside'}: p99 {told.p99:.3f} ms", flush=True)
                found[way, is_quiet].append(told)
    for way in ours + references:
        tell(way, found[way, True], found[way, False])
    request_cost.tell(request_cost.compare(bolide, COSTS, options.instances), COSTS, MAX_NS)


if __name__ == "__main__":
    main()
