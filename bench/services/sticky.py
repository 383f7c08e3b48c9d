"""CPU time of a request with ``sticky``, by the way to its worker: ``python3 -m bench.services.sticky BOLIDE``.

Each row compares two ways on the same kind of connection: with the option at the worker that has the session, with a connection
that moves there, and with a request that is relayed there. The targets are 1.05 and 1.4 times, and 8 µs. The CPU time is that of
all workers, of the kernel and of the program, and the cheapest of many short rounds counts. It does not know the suite's other
scenarios.
"""

import http.client
import signal
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.services.publish import until

PORT, TLS_PORT = 8633, 8634
PROCESSES = 4
ROUNDS, REQUESTS = 20, 400
START_SECONDS = 20

APPLICATION = """import os

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "13"), ("X-Pid", str(os.getpid()))])
    return [b"Hello, World!"]
"""

CONFIGURATION = f"""[uwsgi]
http-socket = 127.0.0.1:{PORT}
https = 127.0.0.1:{TLS_PORT},server.pem,server.key
module = hello
processes = {PROCESSES}
disable-logging = true
"""


class Server:
    """An instance with or without the option, and a connection of each kind."""

    def __init__(self, program, directory, sticky):
        (directory / "bench.ini").write_text(CONFIGURATION + ("sticky = header:x-session\n" if sticky else ""))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([program, "bench.ini"], cwd=directory, **quiet)
        self.trust = ssl.create_default_context(cafile=directory / "server.pem")
        self.workers = set()
        #: Each worker's session.
        self.sessions = {}
        until(self.answers, START_SECONDS)
        self.find_workers()

    def answers(self):
        try:
            self.ask(self.connect(), "probe")
        except OSError:
            return False
        return True

    def connect(self, tls=False):
        if tls:
            return http.client.HTTPSConnection("localhost", TLS_PORT, context=self.trust)
        return http.client.HTTPConnection("127.0.0.1", PORT)

    def ask(self, client, session):
        """Returns the worker that has answered."""
        client.request("GET", "/", headers={"X-Session": session})
        answer = client.getresponse()
        answer.read()
        return int(answer.headers["X-Pid"])

    def find_workers(self):
        """Workers share connections that are kept open."""
        clients = []
        while len(self.sessions) < PROCESSES:
            clients.append(self.connect())
            session = str(len(clients))
            self.sessions.setdefault(self.ask(clients[-1], session), session)
        self.workers = set(self.sessions)

    def cpu_ns(self):
        tasks = [task for worker in self.workers for task in Path(f"/proc/{worker}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def cheapest_us(self, work):
        """Returns the CPU time of a request, if `work` makes one."""
        rounds = []
        for _ in range(ROUNDS):
            before = self.cpu_ns()
            for _ in range(REQUESTS):
                work()
            rounds.append(self.cpu_ns() - before)
        return min(rounds) / REQUESTS / 1000

    def kept(self, tls, elsewhere):
        """A request on a kept connection, of a session of its own worker, or of another one."""
        client = self.connect(tls)
        own = self.ask(client, f"kept {tls} {elsewhere}")
        session = next(session for worker, session in self.sessions.items() if (worker != own) == elsewhere)
        return self.cheapest_us(lambda: self.ask(client, session))

    def fresh(self, elsewhere):
        """A request on a connection of its own. Workers are idle, so the same one accepts nearly all of them."""
        accepted = [self.ask(self.connect(), f"new {number}") for number in range(50)]
        usual = max(set(accepted), key=accepted.count)
        session = next(session for worker, session in self.sessions.items() if (worker != usual) == elsewhere)

        def work():
            client = self.connect()
            self.ask(client, session)
            client.close()

        return self.cheapest_us(work)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main(program):
    program = str(Path(program).absolute())
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "hello.py").write_text(APPLICATION)
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.pem"]
        subprocess.run(
            ["openssl", "req", "-x509", "-days", "2", *subject, *key], cwd=directory, check=True, stderr=subprocess.DEVNULL
        )
        plain = Server(program, directory, sticky=False)
        usual = [plain.kept(False, False), plain.fresh(False), plain.kept(True, False)]
        plain.stop()
        sticky = Server(program, directory, sticky=True)
        here = [sticky.kept(False, False), sticky.fresh(False), sticky.kept(True, False)]
        moved, relayed = sticky.fresh(True), sticky.kept(True, True)
        sticky.stop()
    print(f"kept: {usual[0]:.1f} µs without the option, {here[0]:.1f} µs here ({here[0] / usual[0]:.2f} ×, at most 1.05)")
    print(
        f"fresh: {usual[1]:.1f} µs without, {here[1]:.1f} µs here, {moved:.1f} µs moved ({moved / usual[1]:.2f} ×, at most 1.4)"
    )
    print(
        f"TLS: {usual[2]:.1f} µs without, {here[2]:.1f} µs here, {relayed:.1f} µs relayed (+{relayed - usual[2]:.1f}, at most 8)"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
