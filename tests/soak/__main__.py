"""Serves a great many requests while the instance is reloaded, workers are killed and clients misbehave, and says what has grown.

``make soak`` calls this; no test of ``make test`` does. What it promises: no request fails but those that a killed worker had in
its hands, and when it is over the instance has as many processes, threads and descriptors as before, and about as much memory.
After it each cell of ``tests/support/cells.py`` is reloaded many times under clients of every kind, of which none may fail.
"""

import argparse
import contextlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import processes
from support.cells import CELLS
from support.server import Server
from support.waiting import wait_until

#: Two kinds of applications; each serves half of the requests.
APPLICATIONS = {
    "WSGI, 2 processes, 2 threads": "wsgi-file = {apps}/hello.py\nprocesses = 2\nthreads = 2\nmaster = true",
    "ASGI, 2 processes": "asgi = hello_asgi.py\nprocesses = 2\nmaster = true",
}

HELLO_ASGI = """\
async def application(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})
"""

#: Clients that send one request after the other on a kept connection.
CLIENTS = 4
#: Requests per connection, before a client opens another.
CONNECTION_REQUESTS = 500
#: Requests before the first count of resources.
WARM_UP_REQUESTS = 5_000
#: Pause between two disturbances, in seconds.
PAUSE_SECONDS = 1.0
#: Clients that stop sending, each time.
ABANDONED = 20
#: Factor by which memory may have grown at the end, over all processes: an allocator keeps its peak.
MAX_GROWTH = 1.25
#: Timeout of a client for an answer, in seconds.
ANSWER_SECONDS = 60

REQUEST = b"GET / HTTP/1.1\r\nHost: soak\r\n\r\n"


class Load(threading.Thread):
    """A client; counts answers, and requests without one."""

    def __init__(self, port, requests):
        super().__init__(daemon=True)
        self.port = port
        self.left = requests
        self.answered = 0
        self.failures = []

    def run(self):
        while self.left > 0:
            try:
                self.use_connection()
            except OSError as error:
                self.left -= 1
                self.failures.append(f"{type(error).__name__}: {error}")

    def use_connection(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answers = connection.makefile("rb")
            for _ in range(min(CONNECTION_REQUESTS, self.left)):
                connection.sendall(REQUEST)
                is_last = take_answer(answers)
                self.left -= 1
                self.answered += 1
                if is_last:
                    return


def take_answer(answers):
    """Reads one answer. Returns whether the server closes the connection after it."""
    line = answers.readline()
    if not line.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"no answer but {line!r}")
    length, is_last = 0, False
    while (field := answers.readline()) not in (b"\r\n", b""):
        name, _, value = field.lower().partition(b":")
        if name == b"content-length":
            length = int(value)
        is_last |= name == b"connection" and value.strip() == b"close"
    if len(answers.read(length)) != length:
        raise ConnectionError("an answer was cut off")
    return is_last


class Trouble(threading.Thread):
    """Reloads, kills and disconnecting clients, in turn, until it is told to end."""

    def __init__(self, server, port, seed):
        super().__init__(daemon=True)
        self.server = server
        self.port = port
        self.random = random.Random(seed)
        self.is_over = threading.Event()
        self.reloads = self.kills = 0
        self.abandoned = []

    def run(self):
        while not self.is_over.wait(PAUSE_SECONDS):
            self.random.choice([self.reload, self.reload, self.kill, self.abandon])()
        for connection in self.abandoned:
            connection.close()

    def reload(self):
        self.reloads += 1
        before = self.server.log.count("bolide: ready: ")
        self.server.send_signal(signal.SIGHUP)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.server.log.count("bolide: ready: ") > before, lambda: "the reload is over")

    def kill(self):
        family = self.server.processes()
        prototypes = {process.pid for process in family if process.parent == self.server.process.pid}
        workers = [process.pid for process in family if process.parent in prototypes]
        if workers:
            self.kills += 1
            processes.kill(self.random.choice(workers))

    def abandon(self):
        """Clients that stop in the middle of a head or of a body, or do not read."""
        for part in (b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc", REQUEST * 50):
            for _ in range(ABANDONED // 3):
                with contextlib.suppress(OSError):
                    connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)
                    connection.sendall(part)
                    self.abandoned.append(connection)
        for connection in self.abandoned[: -2 * ABANDONED]:
            connection.close()
        del self.abandoned[: -2 * ABANDONED]


def count(server):
    """Returns processes, threads, descriptors and memory (in kB) of an instance."""
    total = {"processes": 0, "threads": 0, "descriptors": 0, "memory": 0}
    for process in server.processes():
        directory = Path("/proc") / str(process.pid)
        total["processes"] += 1
        total["threads"] += len(list((directory / "task").iterdir()))
        total["descriptors"] += len(list((directory / "fd").iterdir()))
        rollup = (directory / "smaps_rollup").read_text().splitlines()
        total["memory"] += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return total


def run_load(port, requests):
    clients = [Load(port, requests // CLIENTS) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return sum(client.answered for client in clients), [failure for client in clients for failure in client.failures]


def settled(server):
    """Returns the resources of the instance once old generations are gone."""
    wait_until(lambda: count(server)["processes"] == 4, lambda: f"these processes are there: {server.processes()}")
    return count(server)


def soak(name, configuration, requests, seed):
    """Returns the problems found, as text."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory, configuration + "\ndisable-logging = true\nsocket-timeout = 5")
        server.expects_alarms = True
        (server.directory / "hello_asgi.py").write_text(HELLO_ASGI)
        server.start()
        try:
            port = server.port
            run_load(port, WARM_UP_REQUESTS)
            server.send_signal(signal.SIGHUP)
            wait_until(lambda: server.log.count("bolide: ready: ") > 1, lambda: "the reload is over")
            run_load(port, WARM_UP_REQUESTS)
            before = settled(server)
            trouble = Trouble(server, port, seed)
            trouble.start()
            began = time.monotonic()
            answered, failures = run_load(port, requests)
            took = time.monotonic() - began
            trouble.is_over.set()
            trouble.join()
            after = settled(server)
        finally:
            server.finish()
    told = f"{trouble.reloads} reloads, {trouble.kills} workers killed"
    print(f"{name}: {answered} requests in {took:.0f} s, {len(failures)} failed; {told}")
    print(f"  before {before}\n  after  {after}")
    problems = []
    # A killed worker loses the requests that the clients had in flight with it.
    if len(failures) > trouble.kills * CLIENTS:
        problems.append(f"{len(failures)} requests failed, and {trouble.kills} workers were killed: {failures[:5]}")
    problems += [
        f"{what}: {before[what]} before, {after[what]} after" for what in ("processes", "threads") if after[what] != before[what]
    ]
    # Abandoned clients may still be within their time limit.
    if after["descriptors"] > before["descriptors"] + 2 * ABANDONED:
        problems.append(f"descriptors: {before['descriptors']} before, {after['descriptors']} after")
    if after["memory"] > before["memory"] * MAX_GROWTH:
        problems.append(f"memory: {before['memory']} kB before, {after['memory']} kB after")
    return [f"{name}: {problem}" for problem in problems]


def reload_cell(name, reloads):
    """Returns the problems found, as text."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        try:
            problems, trial = CELLS[name].run(directory, reloads)
        except AssertionError as error:
            return [f"{name}: {error}"]
        told = f"{reloads} reloads in {time.monotonic() - began:.0f} s, {sum(trial.answers.values())} requests"
        print(f"{name}: {told}, {len(trial.failures)} failed; under way at a reload: {dict(trial.spanned)}", flush=True)
    return [f"{name}: {problem}" for problem in problems]


def main():
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="how many requests in all; 0 leaves them out (1,000,000)")
    parser.add_argument("--reloads", type=int, default=50, help="how many reloads in each cell; 0 leaves them out (50)")
    parser.add_argument("--cell", action="append", choices=CELLS, help="only this cell; it can be given several times")
    parser.add_argument("--seed", type=int, default=1, help="which disturbances come when")
    arguments = parser.parse_args()
    problems = []
    for name, configuration in APPLICATIONS.items() if arguments.requests else ():
        problems += soak(name, configuration, arguments.requests // len(APPLICATIONS), arguments.seed)
    for name in arguments.cell or CELLS if arguments.reloads else ():
        problems += reload_cell(name, arguments.reloads)
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
