"""CPU time that an option adds to a request, in nanoseconds. Benchmarks of single options call it.

An option that costs tens of nanoseconds disappears in a request that costs tens of microseconds, most of them the kernel's. So
requests are pipelined, which divides the kernel's part among them, and one at a time is measured too. The cheapest of many short
rounds counts, in which all take turns.

Two instances with the same configuration differ by where their memory is, often by a hundred nanoseconds. So each configuration
is started many times, and the median of the differences counts. The first configuration runs twice, which shows how exact the
others are. Where an option is for one path, the same instance is asked for another one too, and that difference is exact. It does
not know the suite's other scenarios.
"""

import itertools
import os
import random
import socket
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.accounting import cpu_nanoseconds
from bench.load import HOST, free_ports, wait_until_served
from bench.machine import plan_cpus
from bench.processes import Program

#: How often each configuration is started, and how often each instance is measured.
INSTANCES, ROUNDS = 30, 40
#: Requests that are sent together, and the batches of a round.
BATCHES = {32: 30, 1: 300}
#: The path that options are for, and one that they are not for. They are equally long.
PATH, OTHER_PATH = "/reports", "/article"
RECEIVE_BYTES = 65536
CONTROL = "the same again"

APPLICATION = """def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13")])
    return [b"Hello, World!"]
"""


class Instance:
    """A server with one configuration, and a connection to it."""

    def __init__(self, program, directory, number, port, lines):
        file = directory / f"{number}.ini"
        common = [f"http-socket = {HOST}:{port}", "module = hello", "processes = 4", "disable-logging = true"]
        file.write_text("\n".join(["[uwsgi]", *common, *lines, ""]))
        cpus = plan_cpus().server
        self.program = Program("bolide", [program, file], cpus=cpus, log=directory / f"{number}.log", directory=directory)
        self.port = port

    def connect(self):
        wait_until_served(self.port, PATH, [self.program])
        self.processes = list(self.program.tree())
        self.connection = socket.create_connection((HOST, self.port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sendall(request(PATH))
        # Every answer is as long as the first one.
        self.bytes = len(self.connection.recv(RECEIVE_BYTES))

    def ask(self, path, count):
        """Sends requests together, and reads their answers."""
        self.connection.sendall(request(path) * count)
        answers = bytearray()
        while len(answers) < self.bytes * count:
            received = self.connection.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionError(f"the server closed the connection: {self.program.last_lines()}")
            answers += received
        if answers.count(b"HTTP/1.1 200 ") != count:
            raise ConnectionError(f"an answer is not 200: {bytes(answers[-200:])!r}")

    def cpu_ns(self):
        return sum(cpu_nanoseconds(pid) or 0 for pid in self.processes)

    def round_ns(self, path, together):
        """Returns the CPU time of a request in one round, of all processes of the instance."""
        before = self.cpu_ns()
        for _ in range(BATCHES[together]):
            self.ask(path, together)
        return (self.cpu_ns() - before) / BATCHES[together] / together


def request(path):
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def compare(program, configurations, instances=INSTANCES):
    """Returns {requests sent together: {(name, path): [nanoseconds in each instance]}}. `configurations` are {name: lines}, and
    the first one is measured again as CONTROL.
    """
    program = str(Path(program).absolute())
    configurations = {**configurations, CONTROL: next(iter(configurations.values()))}
    found = {together: {} for together in BATCHES}
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, plan_cpus().client)
    try:
        for number in range(instances):
            _measure(program, configurations, random.Random(number), found)
    finally:
        os.sched_setaffinity(0, usual)
    return found


def _measure(program, configurations, chance, found):
    """Adds the figures of one instance of each configuration."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as at_end:
        directory = Path(name)
        (directory / "hello.py").write_text(APPLICATION)
        names = chance.sample(list(configurations), len(configurations))
        running = {}
        for number, (key, port) in enumerate(zip(names, free_ports(len(names)), strict=True)):
            running[key] = Instance(program, directory, number, port, configurations[key])
            at_end.callback(running[key].program.stop)
        for instance in running.values():
            instance.connect()
            at_end.callback(instance.connection.close)
        ways = list(itertools.product(running, (PATH, OTHER_PATH)))
        for together in BATCHES:
            rounds = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for key, path in chance.sample(ways, len(ways)):
                    rounds[key, path].append(running[key].round_ns(path, together))
            for way, times in rounds.items():
                found[together].setdefault(way, []).append(min(times))


def tell(found, configurations, max_ns):
    """Prints what each configuration costs, beside the first one and beside another path."""
    base = next(iter(configurations))
    for together, costs in found.items():
        usual = costs[base, PATH]
        how = "one at a time" if together == 1 else f"{together} together"
        print(f"{how}: a request {base} costs {statistics.median(usual):.0f} ns of CPU time")
        mark = f" (at most {max_ns})" if together > 1 else ""
        for name in [*list(configurations)[1:], CONTROL]:
            print(f"  {name}: {_added(costs[name, PATH], usual)}{'' if name == CONTROL else mark}")
            print(f"    beside another path of the instance: {_added(costs[name, PATH], costs[name, OTHER_PATH])}", flush=True)


def _added(times, usual):
    added = sorted(time - before for time, before in zip(times, usual, strict=True))
    quarter = len(added) // 4
    return f"{statistics.median(added):+.0f} ns, in half of the instances {added[quarter]:+.0f} to {added[-1 - quarter]:+.0f}"
