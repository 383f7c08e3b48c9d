"""Work for clients who have left, with and without ``cancel-on-disconnect``: ``python3 -m bench.services.cancelling BOLIDE``.

A request works for a second, in steps of a millisecond, and awaits in between. Its client resets its connection after 100 ms.
The time from there to the end of its task is wasted work, which is to be at most 50 ms. The CPU time of a
request whose client stays shows what the option costs others. It does not know the suite's other scenarios.
"""

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.services.publish import until

PORT = 8635
START_SECONDS = 20
CLIENTS = 20
STAY_SECONDS = 0.1
ROUNDS, REQUESTS = 20, 400
TARGET_MS = 50

APPLICATION = """import asyncio
import json
import os
import time

ends = {}

async def work(name):
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            step = time.monotonic() + 0.001
            while time.monotonic() < step:
                pass
            await asyncio.sleep(0)
    finally:
        ends[name] = time.monotonic()

async def application(scope, receive, send):
    if scope["path"] == "/work":
        await work(scope["query_string"].decode())
    if scope["path"] == "/wait":
        await asyncio.sleep(0)
    body = json.dumps({"pid": os.getpid(), "ends": ends}).encode() if scope["path"] == "/ends" else b"done"
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
"""

CONFIGURATION = f"""[uwsgi]
http-socket = 127.0.0.1:{PORT}
asgi = left:application
lifespan = off
disable-logging = true
"""


class Server:
    """An instance with or without the option."""

    def __init__(self, program, directory, cancels):
        (directory / "bench.ini").write_text(CONFIGURATION + ("cancel-on-disconnect = true\n" if cancels else ""))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([program, "bench.ini"], cwd=directory, **quiet)
        until(self.answers, START_SECONDS)

    def answers(self):
        try:
            self.ends()
        except OSError:
            return False
        return True

    def ends(self):
        client = http.client.HTTPConnection("127.0.0.1", PORT)
        client.request("GET", "/ends")
        told = json.loads(client.getresponse().read())
        client.close()
        self.worker = told["pid"]
        return told["ends"]

    def wasted_ms(self):
        """Returns the time from each client's leaving to the end of its task, one client after the other."""
        left = {}
        for number in range(CLIENTS):
            client = socket.create_connection(("127.0.0.1", PORT))
            client.sendall(f"GET /work?{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            time.sleep(STAY_SECONDS)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.close()
            left[str(number)] = time.monotonic()
            until(lambda name=str(number): name in self.ends(), START_SECONDS)
        ends = self.ends()
        return [(ends[name] - when) * 1000 for name, when in left.items()]

    def cheapest_us(self):
        """Returns the CPU time of a request whose client stays."""
        client = http.client.HTTPConnection("127.0.0.1", PORT)
        rounds = []
        for _ in range(ROUNDS):
            before = self.cpu_ns()
            for _ in range(REQUESTS):
                client.request("GET", "/wait")
                client.getresponse().read()
            rounds.append(self.cpu_ns() - before)
        client.close()
        return min(rounds) / REQUESTS / 1000

    def cpu_ns(self):
        tasks = Path(f"/proc/{self.worker}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main(program):
    program = os.path.abspath(program)
    costs_us = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "left.py").write_text(APPLICATION)
        for cancels, words in ((False, "without the option"), (True, "with it")):
            server = Server(program, directory, cancels)
            times = server.wasted_ms()
            worked = f"{statistics.median(times):.1f} ms of work after the client left, at most {max(times):.1f} ms"
            print(f"{words}: {worked}", flush=True)
            costs_us[cancels] = server.cheapest_us()
            server.stop()
    print(f"the target is at most {TARGET_MS} ms with the option")
    print(f"a request whose client stays: {costs_us[False]:.1f} µs without the option, {costs_us[True]:.1f} µs with it")


if __name__ == "__main__":
    main(*sys.argv[1:])
