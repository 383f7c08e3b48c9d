"""How close quantiles are to the truth: ``python3 -m bench.quantiles ENVIRONMENT`` sends requests at a fixed rate in an open
loop (`waiting_load.c`) to views of known random durations, and compares what the instance tells with two truths: the times of
its request lines, which are exact, and those of the client, which have the way there and back in them.

The environment is a virtual environment with Bolide. The mark is 5 % for `/-/status` and for the native histogram. The bounds
of the text are doublings, so its quantiles are coarse: the row is there to show it. A mark that is not met is a word in the
table, no failure. Runs in the suite's own process; server and load share the CPUs.
"""

import json
import math
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
LOAD_SOURCE = HERE.parent / "waiting_load.c"
APPLICATIONS = HERE.parent / "applications"
#: Requests a second, and for how long.
RATE, SECONDS = 200, 20
#: Threads of the only worker: more than are ever needed, so that a request does not wait for one.
THREADS = 64
CONNECTIONS = 64
SHARES = (0.5, 0.9, 0.99)
MARK = 0.05
START_SECONDS = 20
ACCEPT_PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
FAMILY = "bolide_request_duration_seconds"


def durations():
    """Returns the durations of the views, in microseconds: most are short, a few are long, as usual."""
    chance = random.Random(1)
    return [int(1000 + min(chance.lognormvariate(math.log(6000), 0.9), 400_000)) for _ in range(RATE * SECONDS)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(port, path, accept="*/*"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        return answer.read()


def exact(times, share):
    """Returns the time that this share of the sorted times does not exceed."""
    return times[max(math.ceil(share * len(times)) - 1, 0)]


def of_bounds(buckets, share, lower_of):
    """Returns a quantile as Prometheus computes it, of buckets ``(lower, upper, count)``."""
    rank = share * sum(count for _, _, count in buckets)
    below = 0
    for lower, upper, count in buckets:
        if count and below + count >= rank:
            return lower_of(lower, upper, (rank - below) / count)
        below += count
    return math.nan


def classic(text):
    """Returns the buckets of the text."""
    found = re.findall(rf'^{FAMILY}_bucket{{le="([^"]+)"}} (\d+)$', text, re.MULTILINE)
    buckets, before, lower = [], 0, 0.0
    for bound, count in found:
        upper = math.inf if bound == "+Inf" else float(bound)
        buckets.append((lower, upper, int(count) - before))
        before, lower = int(count), upper
    return buckets


def varint(message, place):
    """Returns the number at this place, and the place after it."""
    number, shift = 0, 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


def fields(message):
    """Yields the fields of a protobuf message: their numbers, and the values of those that are whole numbers or messages."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        if key & 7 == 1:
            place += 8
            continue
        number, place = varint(message, place)
        if key & 7 == 2:
            yield key >> 3, message[place : place + number]
            place += number
        else:
            yield key >> 3, number


def signed(number):
    return number >> 1 ^ -(number & 1)


def native(page):
    """Returns the buckets of the native histogram in the protobuf form."""
    place = 0
    while place < len(page):
        length, place = varint(page, place)
        family = list(fields(page[place : place + length]))
        place += length
        if (1, FAMILY.encode()) in family:
            metric = dict(fields(dict(family)[4]))
            return of_message(list(fields(metric[7])))
    raise SystemExit(f"{FAMILY} is missing")


def of_message(histogram):
    values = dict(histogram)
    base = 2**2 ** -signed(values[5])
    buckets = [(0.0, 2.0**-16, values[7])]
    deltas = iter([signed(value) for number, value in histogram if number == 13])
    index, count = 0, 0
    for span in (dict(fields(value)) for number, value in histogram if number == 12):
        index += signed(span.get(1, 0))
        for _ in range(span.get(2, 0)):
            count += next(deltas)
            buckets.append((base ** (index - 1), base**index, count))
            index += 1
    return buckets


def linear(lower, upper, share):
    return lower if math.isinf(upper) else lower + (upper - lower) * share


def exponential(lower, upper, share):
    return upper * share if lower == 0 else lower * (upper / lower) ** share


def measure(environment, directory):
    """Runs the load. Returns the two truths and what the instance tells, each as a function of the share."""
    load, log = directory / "waiting_load", directory / "log"
    subprocess.run(["cc", "-O2", "-o", load, LOAD_SOURCE], check=True)
    web, metrics = free_port(), free_port()
    command = [Path(environment).resolve() / "bin" / "bolide", "--http-socket", f"127.0.0.1:{web}", "--metrics"]
    command += [f"127.0.0.1:{metrics}", "--threads", str(THREADS), "--module", "takes_time", "--log-format", "took %(micros)"]
    views = durations()
    schedule = directory / "schedule"
    schedule.write_text("".join(f"{place * 1_000_000 // RATE} {took}\n" for place, took in enumerate(views)))
    with log.open("wb") as lines:
        server = subprocess.Popen(command, cwd=APPLICATIONS, stdout=lines, stderr=lines)
    try:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and b"bolide: ready:" not in log.read_bytes():
            time.sleep(0.05)
        run = [load, str(web), schedule, str(CONNECTIONS)]
        client = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)["took_us"]
        # A scrape is at most a second old.
        time.sleep(1.5)
        status = json.loads(fetch(metrics, "/-/status"))["latency_seconds"]
        text = fetch(metrics, "/metrics").decode()
        page = fetch(metrics, "/metrics", ACCEPT_PROTOBUF)
    finally:
        server.terminate()
        server.wait()
    if min(client) < 0:
        raise SystemExit("a request had no right answer")
    logged = sorted(int(took) / 1e6 for took in re.findall(r"took (\d+)", log.read_text()))
    client = sorted(took / 1e6 for took in client)
    of_text, of_native = classic(text), native(page)
    told = {
        "`/-/status`": lambda share: status[f"p{share * 100:.0f}"],
        "native histogram": lambda share: of_bounds(of_native, share, exponential),
        "bounds of the text": lambda share: of_bounds(of_text, share, linear),
    }
    return logged, client, told


def main(environment):
    with tempfile.TemporaryDirectory() as directory:
        logged, client, told = measure(environment, Path(directory))
    print(f"{len(logged)} requests at {RATE}/s, quantiles in ms (difference from the request lines)\n")
    print("| | " + " | ".join(f"p{share * 100:.0f}" for share in SHARES) + " |\n|---|" + "--:|" * len(SHARES))
    rows = {"request lines": lambda share: exact(logged, share), "the client": lambda share: exact(client, share), **told}
    for name, quantile in rows.items():
        cells = []
        for share in SHARES:
            truth, found = exact(logged, share), quantile(share)
            missed = " missed" if "text" not in name and name in told and abs(found / truth - 1) > MARK else ""
            cells.append(f"{found * 1000:.2f} ({(found / truth - 1) * 100:+.1f} %{missed})")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
