"""Requests in greenlets: ``python3 -m bench.greenlets NAME=ENVIRONMENT …`` measures CPU time, and 10,000 that wait a second.

A name is `bolide`, `gunicorn`, `pywsgi` or `uwsgi`, or one of these with a suffix (`bolide-before`); an environment is a virtual
environment that has the server and gevent. The servers run at the same time and are measured in turn: the server on one CPU, the
load (wrk) on the other. uWSGI gets a connection for each request, because its plugin for gevent ends its worker on kept ones.

It does not know the suite's other scenarios. Runs in the suite's own process.
"""

import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from ..accounting import cpu_nanoseconds

HERE = Path(__file__).parent
ROUNDS = 12
ROUND_SECONDS = 2
CONNECTIONS = 64
#: Requests that wait at the same time, and the seconds of that round.
WAITING = 10_000
WAITING_SECONDS = 6
#: When all of them wait and none has been answered.
LOOK_SECONDS = 0.95
#: Greenlets of each server: more than any round has connections.
GREENLETS = 12_000
START_SECONDS = 20
SERVER_CPU, LOAD_CPU = "0", "1"


def command(name, environment, port):
    """Returns the command line of a server."""
    python = f"{environment}/bin/python"
    patched = ["--gevent", str(GREENLETS), "--gevent-monkey-patch"]
    common = ["--master", "--processes", "1", "--listen", "4096", "--disable-logging", "--wsgi-file", "views.py"]
    return {
        "bolide": [python, "-m", "bolide", f"--http-socket=127.0.0.1:{port}", *common, *patched],
        "gunicorn": [
            *[python, "-m", "gunicorn", "-k", "gevent", "-b", f"127.0.0.1:{port}", "--backlog", "4096"],
            *["--worker-connections", str(GREENLETS), "views:application"],
        ],
        "pywsgi": [python, str(HERE / "pywsgi_server.py"), str(port)],
        "uwsgi": [f"{environment}/bin/uwsgi", "--http-socket", f"127.0.0.1:{port}", "-H", environment, *common, *patched],
    }[name.partition("-")[0]]


class Server:
    """A server that runs, and its figures by path."""

    def __init__(self, name, environment):
        self.name = name
        self.port = free_port()
        self.figures = {}
        line = ["taskset", "-c", SERVER_CPU, *command(name, environment, self.port)]
        self.process = subprocess.Popen(line, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not answers(self.port):
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                sys.exit(f"{name} does not start: {' '.join(line)}")
            time.sleep(0.05)

    def pids(self):
        found = [self.process.pid]
        for pid in found:
            try:
                found.extend(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
            except OSError:
                continue
        return found

    def cpu(self):
        return sum(cpu_nanoseconds(pid) or 0 for pid in self.pids())

    def resident_bytes(self):
        """Returns the memory of the largest process: the worker."""
        return max(int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024 for pid in self.pids())

    def load(self, path, connections, seconds, *more):
        """Returns the output of wrk, and the microseconds of CPU of a request."""
        before = self.cpu()
        line = ["taskset", "-c", LOAD_CPU, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20", *more]
        if self.name.startswith("uwsgi"):
            line += ["-H", "Connection: close"]
        said = subprocess.run([*line, f"http://127.0.0.1:{self.port}{path}"], capture_output=True, text=True).stdout
        requests = int(re.search(r"(\d+) requests in", said)[1])
        return said, (self.cpu() - before) / max(requests, 1) / 1000

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            for pid in reversed(self.pids()):
                subprocess.run(["kill", "-9", str(pid)], check=False)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b"200" in client.recv(1000)
    except OSError:
        return False


def main(arguments):
    servers = []
    try:
        for argument in arguments:
            servers.append(Server(*argument.split("=", 1)))
        for path in ("/", "/once"):
            for number in range(ROUNDS + 1):
                for server in servers:
                    _, microseconds = server.load(path, CONNECTIONS, ROUND_SECONDS)
                    # The first round warms up.
                    if number > 0:
                        server.figures.setdefault(path, []).append(microseconds)
        print("CPU time of a request in microseconds, cheapest / median of", ROUNDS, "rounds")
        for server in servers:
            shown = (f"{path} {min(of):6.2f} / {statistics.median(of):6.2f}" for path, of in server.figures.items())
            print(f"  {server.name:16}", "   ".join(shown))
        print(f"{WAITING} requests that wait a second each, on as many connections")
        for server in servers:
            before, waiting = server.resident_bytes(), []
            look = threading.Timer(LOOK_SECONDS, lambda seen=waiting, server=server: seen.append(server.resident_bytes()))
            look.start()
            said, _ = server.load("/second", WAITING, WAITING_SECONDS, "--latency")
            look.join()
            longest = re.search(r"Latency\s+\S+\s+\S+\s+(\S+)", said)[1]
            rate = re.search(r"Requests/sec:\s+(\S+)", said)[1]
            kilobytes = (waiting[0] - before) / WAITING / 1000
            print(f"  {server.name:16} {rate} a second, longest {longest}, {kilobytes:.1f} kB each while all wait")
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
