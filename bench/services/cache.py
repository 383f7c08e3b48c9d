"""Calls of `uwsgi.cache_*`, Bolide beside uWSGI: ``python3 -m bench.services.cache BOLIDE UWSGI``, the paths of both programs.

One process repeats a call, then eight at the same time; the figure is the CPU time of one of them. Both servers are measured one
after the other for each line. It does not know the suite's other scenarios.
"""

import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

APPLICATION = Path(__file__).with_name("cache_calls.py")
PORT = 8631
PROCESSES = (1, 8)
OPERATIONS = ("get-100", "get-4096", "miss", "update-100", "update-4096", "inc")
#: Seconds for a server to start.
START_SECONDS = 20

CONFIGURATION = f"""[uwsgi]
http-socket = 127.0.0.1:{PORT}
wsgi-file = {APPLICATION}
master = true
disable-logging = true
cache2 = name=bench,items=1000
"""


def measure(program, operation, processes):
    """Returns nanoseconds a call in a server that runs for this alone."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "bench.ini").write_text(CONFIGURATION)
        server = subprocess.Popen(
            [program, "bench.ini"], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            return int(ask(f"/{operation}/{processes}"))
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()


def ask(path):
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=600) as answer:
                return answer.read().decode()
        except ConnectionError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def main(bolide, uwsgi):
    bolide, uwsgi = (str(Path(program).absolute()) for program in (bolide, uwsgi))
    print("| call | processes | Bolide, ns | uWSGI, ns |\n| --- | --- | --- | --- |")
    for operation in OPERATIONS:
        for processes in PROCESSES:
            figures = [measure(program, operation, processes) for program in (bolide, uwsgi)]
            print(f"| `{operation}` | {processes} | {figures[0]} | {figures[1]} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
