"""What clients lose when instances leave: ``python3 -m bench.leaving ENVIRONMENT [restarts|closes]``.

* ``restarts``: two instances of each server behind HAProxy (checks each second, `retries 0`), which are restarted one after the
  other, as a deployment does, while clients send requests on kept and on fresh connections. The row says how many were lost, and
  how long an instance took to exit. The mark for Bolide with `drain-delay` is that none is.
* ``closes``: WebSockets and event streams of two workers with `drain-spread = 10`. The row says how long after SIGTERM the first
  and the last one of each were closed, and the most in 0.1 s. The mark is 3 % in 0.1 s, over at least 9 s.

The environment is a virtual environment with Bolide and the other servers. The rows count, and do not measure time, so other
programs may run beside them. A mark that is not met is a word in the table, no failure. Runs in the suite's own process.
"""

import bisect
import contextlib
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

APPLICATIONS = Path(__file__).parent.parent / "applications"
RESTARTS = 20
REQUESTS = 10_000
CLIENTS = 8
#: Between two requests of a client, in seconds.
PAUSE_SECONDS = 0.05
START_SECONDS = 20
#: HAProxy's checks until a server that has come back gets requests, and some more, in seconds.
UP_SECONDS = 4
CONNECTIONS = 5000
SPREAD_SECONDS = 10

HAPROXY = """
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    retries 0
listen balanced
    bind 127.0.0.1:{port}
    balance roundrobin
    option httpchk GET /healthz
    server one 127.0.0.1:{one} check inter 1s
    server two 127.0.0.1:{two} check inter 1s
"""

BOLIDE = ["bolide", "--http-socket", "127.0.0.1:{port}", "--processes", "2", "--disable-logging", "--master"]
WSGI = ["--module", "hello:application"]
LEAVES = ["--health-path", "/healthz", "--drain-delay", "30", "--drain-quiet", "2"]
UVICORN = ["uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--workers", "2", "--no-access-log"]
PEREGRINE = ["peregrine", "--host", "127.0.0.1", "--port", "{port}", "--protocol", "wsgi", "--workers", "2"]

#: Each row of the table: how an instance is started.
SERVERS = {
    "Bolide, drain-delay = 30": [*BOLIDE, *WSGI, *LEAVES],
    "Bolide": [*BOLIDE, *WSGI],
    "gunicorn": ["gunicorn", "--bind", "127.0.0.1:{port}", "--workers", "2", "hello:application"],
    "uvicorn": [*UVICORN, "asgi_hello:application"],
    "peregrine": [*PEREGRINE, "hello:application"],
    "peregrine, --drain-delay 10000": [
        *PEREGRINE,
        "--drain-delay",
        "10000",
        "--health-check-path",
        "/healthz",
        "hello:application",
    ],
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Instance:
    def __init__(self, environment, words, port, directory):
        program, *rest = [word.format(port=port) for word in words]
        log = open(directory / f"{port}.log", "ab")  # noqa: SIM115
        self.port = port
        self.process = subprocess.Popen(
            [Path(environment, "bin", program), *rest], cwd=APPLICATIONS, stdout=log, stderr=subprocess.STDOUT
        )
        log.close()
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.05)
        raise SystemExit(f"{program} does not listen at port {port}: {(directory / f'{port}.log').read_text()}")

    def stop(self):
        """Returns how long it took, in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)
        return time.monotonic() - began


def request(connection):
    """Sends a request on a connection and returns whether it was answered, and whether the connection stays open."""
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65536)
        if not part:
            return False, False
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", 0)):
        part = connection.recv(65536)
        if not part:
            return False, False
        body += part
    return head.split()[1] == b"200", fields.get(b"connection") != b"close"


class Traffic:
    def __init__(self, port):
        self.port = port
        self.done = self.lost = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, is_kept):
        connection = None
        while not self._is_over.wait(PAUSE_SECONDS):
            try:
                connection = connection or socket.create_connection(("127.0.0.1", self.port), timeout=30)
                is_answered, stays = request(connection)
            except OSError:
                is_answered, stays = False, False
            with self._lock:
                self.done += 1
                self.lost += not is_answered
            if connection and not (is_kept and stays):
                connection.close()
                connection = None

    def finish(self):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def restarts(environment):
    print(f"\n{RESTARTS} rolling restarts of two instances behind HAProxy, at least {REQUESTS} requests\n")
    print("| server | requests | lost | exit after SIGTERM, longest |\n| --- | --: | --: | --: |", flush=True)
    for name, words in SERVERS.items():
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            ports = [free_port(), free_port(), free_port()]
            (directory / "haproxy.cfg").write_text(HAPROXY.format(port=ports[0], one=ports[1], two=ports[2]))
            instances = [Instance(environment, words, port, directory) for port in ports[1:]]
            log = (directory / "haproxy.log").open("wb")
            balancer = subprocess.Popen(["haproxy", "-db", "-f", directory / "haproxy.cfg"], stdout=log, stderr=log)
            log.close()
            time.sleep(UP_SECONDS)
            traffic = Traffic(ports[0])
            longest = 0
            for number in range(RESTARTS):
                place_of = number % 2
                longest = max(longest, instances[place_of].stop())
                instances[place_of] = Instance(environment, words, ports[1 + place_of], directory)
                time.sleep(UP_SECONDS)
            while traffic.done < REQUESTS:
                time.sleep(0.1)
            traffic.finish()
            balancer.terminate()
            balancer.wait()
            for instance in instances:
                instance.stop()
            mark = "" if name != next(iter(SERVERS)) or traffic.lost == 0 else " (the mark is 0)"
            print(f"| {name} | {traffic.done} | {traffic.lost}{mark} | {longest:.1f} s |", flush=True)


def open_one(port, head, ready):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(head)
    while ready not in connection.recv(4096):
        pass
    connection.setblocking(False)
    return connection


KINDS = {
    "WebSockets": (
        b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"101",
    ),
    "event streams": (b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b"data: 1"),
}


def closes(environment):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    print(f"\n{CONNECTIONS} of each at two workers, `drain-spread = {SPREAD_SECONDS}`\n")
    print("| | first | last | most in 0.1 s |\n| --- | --: | --: | --: |", flush=True)
    with tempfile.TemporaryDirectory() as place, selectors.DefaultSelector() as selector:
        port = free_port()
        words = [*BOLIDE, "--asgi", "asgi_lasting:application", "--drain-spread", str(SPREAD_SECONDS)]
        instance = Instance(environment, words, port, Path(place))
        for kind, (head, ready) in KINDS.items():
            for _ in range(CONNECTIONS):
                selector.register(open_one(port, head, ready), selectors.EVENT_READ, kind)
        began = time.monotonic()
        instance.process.send_signal(signal.SIGTERM)
        times = {kind: [] for kind in KINDS}
        while selector.get_map():
            for key, _ in selector.select(60):
                with contextlib.suppress(OSError):
                    key.fileobj.recv(4096)
                times[key.data].append(time.monotonic() - began)
                selector.unregister(key.fileobj)
                key.fileobj.close()
        instance.process.wait(60)
        times["both"] = [end for ends in times.values() for end in ends]
        for kind, ends in times.items():
            ends.sort()
            # The next 0.1 s of each close.
            most = max(bisect.bisect_left(ends, end + 0.1) - first for first, end in enumerate(ends))
            is_met = ends[-1] - ends[0] >= SPREAD_SECONDS * 0.9 and most <= len(ends) * 0.03
            mark = "" if is_met else " (missed)"
            print(f"| {kind} | {ends[0]:.2f} s | {ends[-1]:.2f} s | {100 * most / len(ends):.2f} %{mark} |", flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


MEASUREMENTS = {"restarts": restarts, "closes": closes}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(MEASUREMENTS):
        raise SystemExit("usage: python3 -m bench.leaving ENVIRONMENT [restarts|closes]")
    for chosen in sys.argv[2:] or MEASUREMENTS:
        MEASUREMENTS[chosen](Path(sys.argv[1]).resolve())
