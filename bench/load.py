"""The load clients: wrk, ab, and single requests. Runs in the suite's own process; the programs run on the client's CPU."""

import http.client
import json
import os
import re
import select
import socket
import ssl
import statistics
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from .machine import find_program
from .places import BENCH
from .processes import Program, run_client
from .servers import PLAIN

HOST = "127.0.0.1"
FETCH_SECONDS = 10
START_SECONDS = 30
POLL_SECONDS = 0.001
# Beyond the duration of the load itself: connecting, closing, and wrk's wait for late answers.
CLIENT_GRACE_SECONDS = 20
AB_SECONDS = 60
WRK_TIMEOUT = "5s"
SUMMARY = re.compile(r"^SUMMARY (\{.*\})$", re.MULTILINE)


class LoadFailed(Exception):
    """A client did not measure anything; the text says why."""


def free_port():
    """Returns a TCP port that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count):
    """Returns distinct TCP ports that were free a moment ago."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def fetch(port, path, seconds=FETCH_SECONDS, posted=b"", wire=PLAIN):
    """Sends one request on a separate connection. Returns (status, body). Raises OSError or http.client.HTTPException."""
    if wire.http2:
        return _fetch_with_curl(port, path, seconds, wire)
    if wire.is_tls:
        connection = http.client.HTTPSConnection(HOST, port, timeout=seconds, context=_trusting())
    else:
        connection = http.client.HTTPConnection(HOST, port, timeout=seconds)
    try:
        if posted:
            connection.request("POST", path, posted, {"Content-Type": "application/json"})
        else:
            connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _trusting():
    """Verification is off: the certificates are the suite's own, and the server's side is measured."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _fetch_with_curl(port, path, seconds, wire):
    """Like `fetch`, over HTTP/2 only."""
    words = ["--http2" if wire.is_tls else "--http2-prior-knowledge", "--insecure", "--silent", "--max-time", str(seconds)]
    command = [
        find_program("curl"),
        *words,
        "--write-out",
        "%{http_version} %{http_code}",
        f"{wire.scheme}://{HOST}:{port}{path}",
    ]
    if command[0] is None:
        raise LoadFailed("there is no curl on this system; install the package curl")
    done = subprocess.run(command, capture_output=True, timeout=seconds + CLIENT_GRACE_SECONDS)
    if done.returncode != 0:
        raise ConnectionError(f"curl ended with status {done.returncode}")
    version, status = done.stdout[-len("2 200") :].decode().split()
    if version != "2":
        raise LoadFailed(f"it speaks HTTP/{version}")
    return int(status), done.stdout[: -len("2 200")]


def wait_for_answer(port, path, program, seconds, posted=b"", wire=PLAIN):
    """Sends requests until there is an answer. Returns (status, body). Raises LoadFailed if the program exits, or on timeout."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fetch(port, path, max(deadline - time.monotonic(), POLL_SECONDS), posted, wire)
        except (OSError, http.client.HTTPException) as error:
            if program.process.poll() is not None:
                raise LoadFailed(f"it ended with status {program.process.returncode} before it answered") from None
            if time.monotonic() >= deadline:
                raise LoadFailed(f"no answer within {seconds} s ({error})") from None
        time.sleep(POLL_SECONDS)


def wait_until_served(port, path, programs, seconds=START_SECONDS):
    """Sends requests until the status is 200: a proxy has another status until its backend is up. Raises LoadFailed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            status = fetch(port, path)[0]
            if status == 200:
                return
        except (OSError, http.client.HTTPException) as error:
            status = error
        for program in programs:
            if program.process.poll() is not None:
                raise LoadFailed(f"{program.name} ended with status {program.process.returncode} before there was an answer")
        if time.monotonic() >= deadline:
            raise LoadFailed(f"no good answer within {seconds} s ({status})")
        time.sleep(POLL_SECONDS)


def wrk(port, path, *, connections, seconds, cpus, directory, posted=b"", meanwhile=None, fields=(), wire=PLAIN):
    """Runs wrk. Returns its counts: requests, microseconds, bytes, errors by kind, latency percentiles in microseconds.

    With `posted` it POSTs these bytes; `fields` are additional header lines of each request; `meanwhile` is called repeatedly
    while wrk runs. Raises LoadFailed.
    """
    command = [find_program("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", WRK_TIMEOUT]
    command += [word for field in fields for word in ("-H", field)]
    command += ["-s", BENCH / "wrk_summary.lua", f"{wire.scheme}://{HOST}:{port}{path}"]
    if posted:
        body = Path(directory) / "posted.json"
        body.write_bytes(posted)
        command += ["--", body]
    try:
        status, output, errors = run_client(
            command, cpus=cpus, seconds=seconds + CLIENT_GRACE_SECONDS, directory=directory, meanwhile=meanwhile
        )
    except TimeoutError as error:
        raise LoadFailed(str(error)) from None
    found = SUMMARY.search(output)
    if status != 0 or not found:
        raise LoadFailed(f"wrk ended with status {status}: {(errors or output).strip()[-300:]}")
    return json.loads(found.group(1))


def h2load(port, path, *, connections, streams, seconds, cpus, directory, wire):
    """Runs h2load. Returns its counts in wrk's format: requests, microseconds, errors by kind, latency percentiles in
    microseconds.

    Each of `connections` has `streams` requests open at any time. Raises LoadFailed.
    """
    log = Path(directory) / "h2load.log"
    log.unlink(missing_ok=True)
    command = [find_program("h2load"), f"--clients={connections}", f"--max-concurrent-streams={streams}", f"--duration={seconds}"]
    command += ["--threads=1", f"--log-file={log}", f"{wire.scheme}://{HOST}:{port}{path}"]
    if command[0] is None:
        raise LoadFailed("there is no h2load on this system; install the package nghttp2-client")
    try:
        status, output, errors = run_client(command, cpus=cpus, seconds=seconds + CLIENT_GRACE_SECONDS, directory=directory)
    except TimeoutError as error:
        raise LoadFailed(str(error)) from None
    took = re.search(r"^finished in ([\d.]+)(us|ms|s), ", output, re.MULTILINE)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", output)
    statuses = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    if status != 0 or not (took and counts and statuses):
        raise LoadFailed(f"h2load ended with status {status}: {(errors or output).strip()[-300:]}")
    succeeded, failed, errored, timeouts = map(int, counts.groups())
    others = map(int, statuses.groups()[1:])
    return {
        "requests": succeeded,
        "microseconds": float(took[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[took[2]],
        "errors": {"failed": failed, "errored": errored, "status": sum(others), "timeout": timeouts},
        "latency_us": _percentiles(log),
    }


def _percentiles(log):
    """Parses h2load's log, which contains the beginning, the status and the microseconds of each request."""
    took = [int(line.split("\t")[2]) for line in log.read_text().splitlines()]
    if len(took) < 2:
        raise LoadFailed("h2load has logged no request")
    cuts = statistics.quantiles(took, n=1000)
    return {"p50": cuts[499], "p90": cuts[899], "p99": cuts[989], "p99.9": cuts[998], "max": max(took)}


def apache_bench(port, path, *, connections, requests, cpus, directory):
    """Runs ab. Returns its counts: complete, failed, non-2xx; `stopped` is ab's last line if it gave up."""
    command = [find_program("ab"), "-q", "-c", str(connections), "-n", str(requests), f"http://{HOST}:{port}{path}"]
    try:
        status, output, errors = run_client(command, cpus=cpus, seconds=AB_SECONDS, directory=directory)
    except TimeoutError as error:
        return {"complete": 0, "failed": requests, "non_2xx": 0, "stopped": str(error)}
    counts = {key: int(value) for key, value in re.findall(r"^(Complete|Failed|Non-2xx)[\w ]*:\s+(\d+)", output, re.MULTILINE)}
    complete = counts.get("Complete", 0)
    return {
        "complete": complete,
        # Requests that ab did not count as complete are not served either.
        "failed": counts.get("Failed", 0) + requests - complete,
        "non_2xx": counts.get("Non-2xx", 0),
        "stopped": errors.strip().splitlines()[-1] if status != 0 and errors.strip() else None,
    }


class TalkingClient:
    """One of the suite's own clients as a process: it reads commands as lines of text and answers with lines of JSON."""

    def __init__(self, name, command, *, cpus, directory):
        self.program = Program(
            name,
            command,
            cpus=cpus,
            log=Path(directory) / f"{name}.log",
            directory=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._heard = b""

    def tell(self, word):
        """Raises LoadFailed if the client has ended."""
        try:
            self.program.process.stdin.write(f"{word}\n".encode())
            self.program.process.stdin.flush()
        except BrokenPipeError:
            raise LoadFailed(f"{self.program.name} ended before it was told `{word}`") from None

    def hear(self, seconds):
        """Returns the next line, parsed from JSON. Raises LoadFailed on timeout."""
        deadline = time.monotonic() + seconds
        # The pipe is read without Python's buffer, whose content `select` would not see.
        descriptor = self.program.process.stdout.fileno()
        while b"\n" not in self._heard:
            ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
            data = os.read(descriptor, 65536) if ready else b""
            if not data:
                raise LoadFailed(f"{self.program.name} said nothing within {seconds} s: {self.program.last_lines()[-1:]}")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def stop(self):
        self.program.stop()
