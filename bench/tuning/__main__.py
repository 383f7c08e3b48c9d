"""What tuning brings: ``python3 -m bench.tuning ENVIRONMENT`` measures the usual hand tuning of a small Flask API here,
lets `bolide tune` propose settings from that load, and measures those in alternating rounds.

The environment is a virtual environment with Bolide and Flask. The throughput is that of 64 keep-alive connections (wrk).
Response times are those of requests at random times (`waiting_load.c`), at shares of the throughput by hand.

It does not know the suite's other scenarios. Runs in the suite's own process; server and load share the CPUs.
"""

import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
LOAD_SOURCE = HERE.parent / "waiting_load.c"
HAND = "processes = 4\nthreads = 2\nenable-threads = true\ndisable-logging = true\n"
#: The mean wait of a view for another machine, in microseconds.
WAIT_US = 5000
CONNECTIONS = 64
ROUNDS = 5
ROUND_SECONDS = 4
#: Loads at which response times are measured, as shares of the throughput by hand.
LOADS = (0.3, 0.6, 0.9)
START_SECONDS = 20


class Instance:
    """A running instance with its configuration."""

    def __init__(self, environment, directory, settings):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment, self.directory = Path(environment).resolve(), directory
        directory.mkdir()
        shutil.copy(HERE / "api.py", directory)
        own = f"http-socket = 127.0.0.1:{self.port}\nmodule = api:app\nmaster = true\nstats = {directory}/stats.sock\n"
        self.configuration = directory / "uwsgi.ini"
        self.configuration.write_text(f"[uwsgi]\n{own}{settings}")
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen([self._bolide(), self.configuration], cwd=self.directory, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise SystemExit("the instance does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def _bolide(self):
        return f"{self.environment}/bin/bolide"

    def tune(self):
        """Returns what `bolide tune` says, and writes its proposal."""
        command = [self._bolide(), "tune", "--write", self.configuration]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.directory).stdout


def throughput(instance):
    """Returns requests a second of connections that ask again immediately."""
    url = f"http://127.0.0.1:{instance.port}/view/{WAIT_US}"
    line = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", str(ROUND_SECONDS), url]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"Requests/sec: +([\d.]+)", said)[1])


def response_times(instance, load, rate, seed):
    """Returns the sorted response times of requests at random times, in milliseconds."""
    chance = random.Random(seed)
    arrival, lines = 0.0, []
    for _ in range(int(rate * ROUND_SECONDS)):
        arrival += chance.expovariate(rate) * 1e6
        lines.append(f"{int(arrival)} {int(chance.expovariate(1) * WAIT_US)}\n")
    schedule = instance.directory / "schedule"
    schedule.write_text("".join(lines))
    line = [load, str(instance.port), schedule, str(CONNECTIONS)]
    took = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)["took_us"]
    if min(took) < 0:
        raise SystemExit("a request had no right answer")
    return sorted(time / 1000 for time in took)


def main(environment):
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        load = directory / "waiting_load"
        subprocess.run(["cc", "-O2", "-o", load, LOAD_SOURCE], check=True)
        with Instance(environment, directory / "hand", HAND) as hand:
            throughput(hand)
            by_hand = throughput(hand)
            response_times(hand, load, by_hand * LOADS[1], 0)
            print(hand.tune())
            settings = "".join(hand.configuration.read_text().partition("/stats.sock\n")[2:])
            hand.configuration.write_text("")
            with Instance(environment, directory / "tuned", settings) as tuned:
                measure({"by hand": hand, "tuned": tuned}, load, by_hand)


def measure(instances, load, by_hand):
    """Measures the instances in turn, and prints the median of the rounds."""
    served = {name: [] for name in instances}
    took = {(name, share): [] for name in instances for share in LOADS}
    for each in range(ROUNDS):
        for name, instance in instances.items():
            served[name].append(throughput(instance))
            for share in LOADS:
                took[name, share].append(response_times(instance, load, by_hand * share, each))
    loads = [f"{by_hand * share:.0f}/s: p50, p99" for share in LOADS]
    print("| | requests a second | " + " | ".join(loads) + " |\n|---|--:|" + "--:|" * len(LOADS))
    for name in instances:
        cells = []
        for share in LOADS:
            half, most = (
                statistics.median(times[int((len(times) - 1) * part)] for times in took[name, share]) for part in (0.5, 0.99)
            )
            cells.append(f"{half:.1f}, {most:.1f} ms")
        print(f"| {name} | {statistics.median(served[name]):.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
