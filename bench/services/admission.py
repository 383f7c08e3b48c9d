"""Goodput in overload with and without ``admission = auto``: ``python3 -m bench.services.admission BOLIDE [SERVER ...]``.

Each view is first asked by as many clients as there are threads, which measures its capacity. Then requests come at three times
that rate, each on a new connection and at its own time, whether or not others have been answered. A client leaves after a second.
The goodput is the share of the capacity that arrives as responses with 200 in that time. The target is 90 %. The other programs
of the command line (``uwsgi``, ``gunicorn``) are measured the same way. It does not know the suite's other scenarios.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.services.publish import until

PORT = 8635
THREADS = 4
#: The client's patience, and how long each measurement lasts, in seconds.
TIMEOUT_SECONDS, WARM_SECONDS, LOAD_SECONDS, START_SECONDS = 1.0, 3.0, 10.0, 20
OVERLOAD = 3

APPLICATION = """import time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

VIEWS = {"/sleep": lambda: time.sleep(0.02), "/cpu": lambda: burn(0.005)}

def application(environ, start_response):
    VIEWS.get(environ["PATH_INFO"], lambda: None)()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
"""

UWSGI = f"""[uwsgi]
http-socket = 127.0.0.1:{PORT}
module = views
threads = {THREADS}
enable-threads = true
master = true
listen = 1024
need-app = true
disable-logging = true
"""

#: Views, and the number of requests that a process can work on at the same time.
VIEWS = [("/sleep", THREADS), ("/cpu", 1)]


class Server:
    """A program that serves the views."""

    def __init__(self, arguments, directory):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(arguments, cwd=directory, **quiet)
        until(lambda: asyncio.run(ask("/")) == 200, START_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


async def ask(path):
    """Asks on a new connection. Returns the status, or None if the client has left before it."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else None


async def capacity(path, clients):
    """Returns the responses in a second to clients that ask again when they are answered."""
    end = time.monotonic() + WARM_SECONDS
    counts = [0] * clients

    async def client(number):
        while time.monotonic() < end:
            counts[number] += await ask(path) == 200

    await asyncio.gather(*map(client, range(clients)))
    return sum(counts) / WARM_SECONDS


async def overload(path, rate):
    """Returns the numbers of responses by status, and the median time of those with 200."""
    statuses, times, tasks = {}, [], set()

    async def client():
        began = time.monotonic()
        status = await ask(path)
        statuses[status] = statuses.get(status, 0) + 1
        if status == 200:
            times.append(time.monotonic() - began)

    began = time.monotonic()
    sent = 0
    while (now := time.monotonic()) < began + LOAD_SECONDS:
        while sent < (now - began) * rate:
            tasks.add(asyncio.create_task(client()))
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)
    return statuses, sorted(times)[len(times) // 2] if times else 0


def measure(name, arguments, directory):
    for path, clients in VIEWS:
        with Server(arguments, directory):
            most = asyncio.run(capacity(path, clients))
            statuses, median = asyncio.run(overload(path, OVERLOAD * most))
        goodput = statuses.get(200, 0) / LOAD_SECONDS / most
        others = ", ".join(f"{count} × {status or 'left'}" for status, count in statuses.items() if status != 200)
        print(f"{name} {path}: {most:.0f}/s, goodput {goodput:.0%} (at least 90 %), median {median * 1000:.0f} ms; {others}")


def main(bolide, *others):
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "views.py").write_text(APPLICATION)
        (directory / "bench.ini").write_text(UWSGI)
        (directory / "admitting.ini").write_text(UWSGI + "admission = auto\n")
        program = str(Path(bolide).absolute())
        measure("bolide with admission", [program, "admitting.ini"], directory)
        measure("bolide without", [program, "bench.ini"], directory)
        for other in others:
            listen = ["-b", f"127.0.0.1:{PORT}", "--threads", str(THREADS), "--backlog", "1024", "views"]
            arguments = [other, *listen] if Path(other).name == "gunicorn" else [other, "bench.ini", "--die-on-term"]
            measure(Path(other).name, arguments, directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
