"""Delays of `bolide.publish` to 100 listeners in each of four workers: ``python3 -m bench.services.publish BOLIDE [SECONDS]``.

The listeners get 1,000 messages a second together, for 100 seconds. The targets are a p99 of 5 ms, and no lost message. It does
not know the suite's other scenarios.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench.services.publish_listeners import LISTENERS

APPLICATIONS = Path(__file__).parent
PORT = 8632
PROCESSES = 4
DELIVERIES_A_SECOND = 1_000
SECONDS = 100
#: Seconds for the server to start, and for messages to arrive after the last one was sent.
START_SECONDS = 20
#: The targets: milliseconds of the p99, and lost messages.
MAX_MS, MAX_LOST = 5, 0

CONFIGURATION = f"""[uwsgi]
http-socket = 127.0.0.1:{PORT}
pythonpath = {APPLICATIONS}
asgi = publish_listeners:application
processes = {PROCESSES}
publish = true
disable-logging = true
"""


def measure(program, seconds):
    """Returns the delays in nanoseconds, and the number of missed messages that the listeners were told."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "bench.ini").write_text(CONFIGURATION)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([program, "bench.ini"], cwd=directory, **quiet)
        try:
            pause = PROCESSES * LISTENERS / DELIVERIES_A_SECOND
            begin(f"/{PROCESSES}/{round(seconds / pause)}/{pause}")
            until(lambda: list(Path(directory).glob("done-*.json")), seconds + START_SECONDS)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
        found = [json.loads(file.read_text()) for file in Path(directory).glob("worker-*.json")]
    return sorted(delay for one in found for delay in one["delays"]), sum(one["missed"] for one in found)


def begin(path):
    def answers():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
                return answer.read() == b"begun"
        except OSError:
            return False

    until(answers, START_SECONDS)


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.1)


def main(program, seconds=SECONDS):
    seconds = int(seconds)
    delays, missed = measure(str(Path(program).absolute()), seconds)
    pause = PROCESSES * LISTENERS / DELIVERIES_A_SECOND
    lost = round(seconds / pause) * PROCESSES * LISTENERS - len(delays)
    p50, p99 = (delays[int(len(delays) * part)] / 1e6 for part in (0.5, 0.99))
    print(f"{len(delays)} deliveries, {lost} lost (at most {MAX_LOST}), {missed} of them reported")
    print(f"p50 {p50:.2f} ms, p99 {p99:.2f} ms (at most {MAX_MS} ms), longest {delays[-1] / 1e6:.2f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
