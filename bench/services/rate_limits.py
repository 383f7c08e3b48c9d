"""The cost and the exactness of a rate limit: ``python3 -m bench.services.rate_limits BOLIDE [INSTANCES]``.

A request that is counted may cost 60 ns of CPU time more (`bench.services.request_cost` says how that is measured). Then clients
of four workers ask until a limit of 10,000 requests has refused a thousand, while one worker after the other is killed. The
application writes a byte into a file for each call, so a call counts even if its worker is killed before it answers. The target
is 10,000 ± 2 calls. It does not know the suite's other scenarios.
"""

import concurrent.futures
import http.client
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from bench.accounting import connections_by_process
from bench.load import HOST, free_port, wait_until_served
from bench.machine import plan_cpus
from bench.processes import Program, take_charge
from bench.services import request_cost

MAX_NS = 60
#: One client asks faster than the highest rate, so the burst is larger than the number of its requests.
RATE = "rate=10000/s,burst=1000000"
CONFIGURATIONS = {
    "without a limit": [],
    "rate-limit of all paths": [f"rate-limit = {RATE}"],
    "rate-limit of the path": [f"rate-limit = {RATE},route=^{request_cost.PATH}"],
    "route = … ratelimit of the path": [f"route = ^{request_cost.PATH} ratelimit:{RATE},name=all"],
}

#: The next request passes after 216 s, which the measurement does not last.
LIMIT, PASSES, MAX_DIFFERENCE = "rate=400/d,burst=10000", 10_000, 2
PROCESSES, CLIENTS, REFUSED_PER_CLIENT = 4, 8, 125
REPETITIONS = 5
#: Between the kills, in seconds.
PAUSE_SECONDS = 0.02

APPLICATION = """import os
import time

calls = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def application(environ, start_response):
    os.write(calls, b".")
    time.sleep(0.0005)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
"""


class Killer:
    """Kills the worker that has most connections, again and again."""

    def __init__(self, program, port):
        self.program, self.port = program, port
        self.kills = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over.wait(PAUSE_SECONDS):
            counts = connections_by_process(self.program, self.port)
            # The master may hold connections of a worker that was killed.
            counts.pop(self.program.pid, None)
            if counts:
                os.kill(max(counts, key=counts.get), signal.SIGKILL)
                self.kills += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def ask_until_refused(port):
    """Returns the statuses of a client that goes on until enough requests were refused; None is one without an answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    statuses = []
    while statuses.count(429) < REFUSED_PER_CLIENT:
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        except (OSError, http.client.HTTPException):
            # Its worker was killed. The next request opens a connection.
            connection.close()
            statuses.append(None)
    connection.close()
    return statuses


def count_with_kills(bolide):
    """Returns the statuses of all requests, the calls of the application, and the kills."""
    with tempfile.TemporaryDirectory() as name:
        directory, port = Path(name), free_port()
        (directory / "counting.py").write_text(APPLICATION)
        common = [f"http-socket = {HOST}:{port}", "module = counting", f"processes = {PROCESSES}", "disable-logging = true"]
        (directory / "bench.ini").write_text("\n".join(["[uwsgi]", *common, f"rate-limit = {LIMIT},route=^/$", ""]))
        cpus = plan_cpus().any
        program = Program("bolide", [bolide, "bench.ini"], cpus=cpus, log=directory / "log", directory=directory)
        try:
            # A request of another path is not counted.
            wait_until_served(port, "/ready", [program])
            os.truncate(directory / "calls", 0)
            with Killer(program, port) as killer, concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                statuses = [status for found in pool.map(ask_until_refused, [port] * CLIENTS) for status in found]
            return statuses, (directory / "calls").stat().st_size, killer.kills
        finally:
            program.stop()


def main(bolide, instances=request_cost.INSTANCES):
    take_charge()
    request_cost.tell(request_cost.compare(bolide, CONFIGURATIONS, int(instances)), CONFIGURATIONS, MAX_NS)
    for _ in range(REPETITIONS):
        statuses, calls, kills = count_with_kills(str(Path(bolide).absolute()))
        passed, refused, broken = (statuses.count(status) for status in (200, 429, None))
        print(f"{kills} killed workers, {calls} calls, {calls - PASSES:+d} (at most ± {MAX_DIFFERENCE}): ", end="")
        print(f"{passed} × 200, {refused} × 429, {broken} without an answer", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
