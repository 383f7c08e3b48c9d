"""The clients: wrk, ab, and single requests. Runs in the suite's own process, and the programs on the client's CPU."""

import http.client
import json
import os
import re
import select
import socket
import subprocess
import time
from pathlib import Path

from .machine import find_program
from .places import BENCH
from .processes import Program, run_client

HOST = "127.0.0.1"
FETCH_SECONDS = 10
START_SECONDS = 30
POLL_SECONDS = 0.001
# Beyond the time that the load itself takes: connecting, closing, and what wrk waits for late answers.
CLIENT_GRACE_SECONDS = 20
AB_SECONDS = 60
WRK_TIMEOUT = "5s"
SUMMARY = re.compile(r"^SUMMARY (\{.*\})$", re.MULTILINE)


class LoadFailed(Exception):
    """A client did not measure anything; the text says why."""


def free_port():
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def fetch(port, path, seconds=FETCH_SECONDS, posted=b""):
    """One request on a connection of its own: (status, body). Raises OSError or http.client.HTTPException."""
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


def wait_for_answer(port, path, program, seconds, posted=b""):
    """Asks until there is an answer: (status, body). Raises LoadFailed when the program ends or the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fetch(port, path, max(deadline - time.monotonic(), POLL_SECONDS), posted)
        except (OSError, http.client.HTTPException) as error:
            if program.process.poll() is not None:
                raise LoadFailed(f"it ended with status {program.process.returncode} before it answered") from None
            if time.monotonic() >= deadline:
                raise LoadFailed(f"no answer within {seconds} s ({error})") from None
        time.sleep(POLL_SECONDS)


def wait_until_served(port, path, programs, seconds=START_SECONDS):
    """Asks until the status is 200, as a proxy's becomes when its backend is up. Raises LoadFailed."""
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


def wrk(port, path, *, connections, seconds, cpus, folder, posted=b"", meanwhile=None, fields=()):
    """wrk's counts: requests, microseconds, bytes, errors by kind, latency percentiles in microseconds.

    With `posted` it posts these bytes; `fields` are further lines of each request's head; `meanwhile` is called again
    and again while wrk runs. Raises LoadFailed.
    """
    command = [find_program("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", WRK_TIMEOUT]
    command += [word for field in fields for word in ("-H", field)]
    command += ["-s", BENCH / "wrk_summary.lua", f"http://{HOST}:{port}{path}"]
    if posted:
        body = Path(folder) / "posted.json"
        body.write_bytes(posted)
        command += ["--", body]
    try:
        status, output, errors = run_client(
            command, cpus=cpus, seconds=seconds + CLIENT_GRACE_SECONDS, folder=folder, meanwhile=meanwhile
        )
    except TimeoutError as error:
        raise LoadFailed(str(error)) from None
    found = SUMMARY.search(output)
    if status != 0 or not found:
        raise LoadFailed(f"wrk ended with status {status}: {(errors or output).strip()[-300:]}")
    return json.loads(found.group(1))


def apache_bench(port, path, *, connections, requests, cpus, folder):
    """ab's counts: complete, failed, non-2xx; `stopped` is ab's last line when it gave up."""
    command = [find_program("ab"), "-q", "-c", str(connections), "-n", str(requests), f"http://{HOST}:{port}{path}"]
    try:
        status, output, errors = run_client(command, cpus=cpus, seconds=AB_SECONDS, folder=folder)
    except TimeoutError as error:
        return {"complete": 0, "failed": requests, "non_2xx": 0, "stopped": str(error)}
    counts = {key: int(value) for key, value in re.findall(r"^(Complete|Failed|Non-2xx)[\w ]*:\s+(\d+)", output, re.MULTILINE)}
    complete = counts.get("Complete", 0)
    return {
        "complete": complete,
        # What ab did not get to count as complete is not served either.
        "failed": counts.get("Failed", 0) + requests - complete,
        "non_2xx": counts.get("Non-2xx", 0),
        "stopped": errors.strip().splitlines()[-1] if status != 0 and errors.strip() else None,
    }


class TalkingClient:
    """A client of the suite's own as a process: told what to do in lines of text, it answers with lines of JSON."""

    def __init__(self, name, command, *, cpus, folder):
        self.program = Program(
            name,
            command,
            cpus=cpus,
            log=Path(folder) / f"{name}.log",
            folder=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._heard = b""

    def tell(self, word):
        """Raises LoadFailed when the client is gone."""
        try:
            self.program.process.stdin.write(f"{word}\n".encode())
            self.program.process.stdin.flush()
        except BrokenPipeError:
            raise LoadFailed(f"{self.program.name} ended before it was told `{word}`") from None

    def hear(self, seconds):
        """The next line, as what the JSON says. Raises LoadFailed when there is none within this time."""
        deadline = time.monotonic() + seconds
        # The pipe is read past Python's own buffer, which `select` would know nothing of.
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
