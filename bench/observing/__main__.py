"""What observers cost the requests: ``python3 -m bench.observing ENVIRONMENT`` sends requests at a fixed rate in an open loop
(`waiting_load.c`) to two workers, and compares their latencies with nothing beside them, with `bolide trace` each 0.2 s, and with
`bolide profile`.

The environment is a virtual environment with Bolide. Rounds of the three alternate; a row has the medians of the rounds. The mark
is a p99 that is at most 5 ms above that of the rounds with nothing beside them; one that is not met is a word in the table, no
failure. Runs in the suite's own process; server, load and commands share the CPUs.
"""

import contextlib
import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
LOAD_SOURCE = HERE.parent / "waiting_load.c"
APPLICATIONS = HERE.parent / "applications"
#: Requests a second, and for how long; each sleeps for this many microseconds.
RATE, SECONDS, VIEW_US = 200, 10, 2000
ROUNDS = 3
CONNECTIONS = 64
#: Interval between the starts of two traces, in seconds.
TRACE_SECONDS = 0.2
SHARES = (0.5, 0.99, 0.999)
MARK_MS = 5
START_SECONDS = 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def exact(times, share):
    """Returns the time that this share of the sorted times does not exceed."""
    return times[max(math.ceil(share * len(times)) - 1, 0)]


@contextlib.contextmanager
def nothing(bolide, pid, directory):
    yield


@contextlib.contextmanager
def traces(bolide, pid, directory):
    """Runs `bolide trace` again and again until the round ends."""
    done = threading.Event()
    failures = []

    def trace():
        due = time.monotonic()
        while not done.is_set():
            command = [bolide, "trace", "--json", "all", str(pid)]
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=directory)
            if ended.returncode:
                failures.append(ended.stderr.decode())
                return
            due = max(due + TRACE_SECONDS, time.monotonic())
            done.wait(due - time.monotonic())

    thread = threading.Thread(target=trace)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise SystemExit(f"bolide trace: {failures[0]}")


@contextlib.contextmanager
def profile(bolide, pid, directory):
    """Runs `bolide profile` for the time of the round."""
    command = [bolide, "profile", str(SECONDS), str(pid)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=directory) as reader:
        yield
        said = reader.communicate()[1]
    if reader.returncode:
        raise SystemExit(f"bolide profile: {said.decode()}")


BESIDE = {"nothing": nothing, f"`bolide trace` each {TRACE_SECONDS} s": traces, f"`bolide profile {SECONDS}`": profile}


def measure(environment, directory):
    """Returns for each row the sorted latencies of each round, in milliseconds."""
    load, log, schedule = directory / "waiting_load", directory / "log", directory / "schedule"
    subprocess.run(["cc", "-O2", "-o", load, LOAD_SOURCE], check=True)
    schedule.write_text("".join(f"{place * 1_000_000 // RATE} {VIEW_US}\n" for place in range(RATE * SECONDS)))
    bolide, port = Path(environment).resolve() / "bin" / "bolide", free_port()
    command = [bolide, "--http-socket", f"127.0.0.1:{port}", "--master", "--processes", "2", "--threads", "2"]
    command += ["--module", "takes_time", "--disable-logging"]
    with log.open("wb") as lines:
        server = subprocess.Popen(command, cwd=APPLICATIONS, stdout=lines, stderr=lines)
    rounds = {name: [] for name in BESIDE}
    try:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and b"bolide: ready" not in log.read_bytes():
            time.sleep(0.05)
        run = [load, str(port), schedule, str(CONNECTIONS)]
        for _ in range(ROUNDS):
            for name, beside in BESIDE.items():
                with beside(bolide, server.pid, directory):
                    took = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)["took_us"]
                if min(took) < 0:
                    raise SystemExit("a request had no right answer")
                rounds[name].append(sorted(time_us / 1000 for time_us in took))
    finally:
        server.terminate()
        server.wait()
    return rounds


def main(environment):
    with tempfile.TemporaryDirectory() as directory:
        rounds = measure(environment, Path(directory))
    print(f"{ROUNDS} rounds of {SECONDS} s, {RATE} requests/s of {VIEW_US / 1000:g} ms each; medians of the rounds, in ms\n")
    print("| beside the requests | " + " | ".join(f"p{share * 100:g}" for share in SHARES) + " |\n|---|" + "--:|" * len(SHARES))
    base = None
    for name, found in rounds.items():
        values = [statistics.median(exact(times, share) for times in found) for share in SHARES]
        base = base or values
        cells = []
        for share, value, before in zip(SHARES, values, base, strict=True):
            missed = " missed" if share == 0.99 and value - before > MARK_MS else ""
            cells.append(f"{value:.2f}" if values is base else f"{value:.2f} ({value - before:+.2f}{missed})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
