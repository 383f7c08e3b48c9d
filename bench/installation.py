"""Makes the virtualenv of competitors, installs Bolide from this repository, and builds the limit program.

Runs in the suite's own process, before anything is pinned to a CPU. What can't be installed is reported and left
out; it does not stop the rest.
"""

import json
import shutil
import socket
import subprocess
import sys
import time
import venv

from .machine import find_program
from .places import LIMIT_PROGRAM, LIMIT_SOURCE, PROGRAMS, PYTHON, REPOSITORY, VIRTUALENV

PACKAGES = ["uwsgi", "gunicorn", "granian", "bjoern", "fastpysgi", "cheroot", "waitress", "flask", "django"]
INSTALL_TIMEOUT_SECONDS = 900
# Bolide is built with link-time optimisation of the whole program.
BUILD_TIMEOUT_SECONDS = 1800
QUERY_TIMEOUT_SECONDS = 60
LIMIT_START_SECONDS = 5
ERROR_LINES_SHOWN = 8

VERSIONS_PROGRAM = """
import importlib.metadata, json, sys
versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(versions))
"""


class CannotRun(Exception):
    """The suite can't measure anything; the text says why and what to do."""


def make_virtualenv(say):
    """Makes bench/.venv, or makes it anew when it belongs to another Python."""
    wanted = ".".join(str(part) for part in sys.version_info[:3])
    if PYTHON.exists() and _query("import platform; print(platform.python_version())") == wanted:
        return
    if VIRTUALENV.exists():
        shutil.rmtree(VIRTUALENV)
    say(f"Making the competitors' virtualenv for Python {wanted}")
    # Copies, not links: memory that the servers' interpreter shares with the suite's own would be counted at a discount.
    try:
        venv.create(VIRTUALENV, with_pip=True, symlinks=False)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotRun(f"no virtualenv at bench/.venv: {error}. Debian and Ubuntu have it in python3-venv") from error


def install_competitors(say):
    """Installs the packages that are missing, one by one; {package: why it could not be installed}."""
    failed = {}
    present = versions()
    for package in PACKAGES:
        if package in present:
            continue
        say(f"Installing {package}")
        problem = _pip(INSTALL_TIMEOUT_SECONDS, "--prefer-binary", package)
        if problem:
            failed[package] = problem
            say(f"  {package} is left out: {problem[-1]}")
    return failed


def install_bolide(say):
    """Builds and installs this repository's Bolide; the last lines of pip when that fails, else None."""
    if not (REPOSITORY / "pyproject.toml").exists():
        return ["the repository has no pyproject.toml, so there is nothing to install"]
    say("Building and installing Bolide (optimised: this takes a while)")
    problem = _pip(BUILD_TIMEOUT_SECONDS, str(REPOSITORY))
    if problem is None and not (PROGRAMS / "bolide").exists():
        return ["pip installed Bolide, but there is no console script `bolide`"]
    return problem


def versions():
    """{package: version} of what the virtualenv has."""
    return json.loads(_query(VERSIONS_PROGRAM, *PACKAGES, "bolide") or "{}")


def tool_versions():
    """Versions of the programs of the system that take part."""
    questions = {"wrk": ["-v"], "ab": ["-V"], "nginx": ["-v"], "gcc": ["--version"]}
    return {name: _version_line(name, words) for name, words in questions.items() if find_program(name)}


def _version_line(name, words):
    try:
        done = subprocess.run([find_program(name), *words], capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].partition(" Copyright")[0].removeprefix("This is ") if lines else "unknown"


def build_limit():
    """Compiles the limit program and checks that it answers heads that are whole, pipelined, or in parts."""
    compiler = find_program("cc") or find_program("gcc")
    if compiler is None:
        raise CannotRun("there is no C compiler for the limit program; install gcc")
    if not LIMIT_PROGRAM.exists() or LIMIT_PROGRAM.stat().st_mtime < LIMIT_SOURCE.stat().st_mtime:
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(LIMIT_PROGRAM), str(LIMIT_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS)
        if done.returncode != 0:
            raise CannotRun(f"the limit program does not compile: {done.stderr.strip()}")


def check_limit(port):
    """Says what is wrong with the limit program that listens on this port, or None."""
    head = b"GET / HTTP/1.1\r\nHost: limit\r\n\r\n"
    cases = [([head], 1), ([head * 3], 3), ([head[:-1], head[-1:]], 1), ([head + head[:-3], head[-3:] + head], 3)]
    cases += [([head[:cut], head[cut:] + head], 2) for cut in range(1, len(head))]
    for parts, expected in cases:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_START_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                connection.sendall(part)
                # Lets the part arrive by itself; should it not, the case is a pipelined one and the answer is the same.
                time.sleep(0.001)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        if answer.count(b"HTTP/1.1 200 OK\r\n") != expected or answer.count(b"\r\n\r\nHello, World!") != expected:
            return f"{expected} answers expected for {parts!r}, got {answer!r}"
    return None


def _pip(seconds, *words):
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=VIRTUALENV)
    except subprocess.TimeoutExpired:
        return [f"pip took more than {seconds} s"]
    if done.returncode == 0:
        return None
    return (done.stdout + done.stderr).strip().splitlines()[-ERROR_LINES_SHOWN:] or [f"pip ended with status {done.returncode}"]


def _query(program, *words):
    try:
        done = subprocess.run(
            [str(PYTHON), "-c", program, *words], capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS, cwd=VIRTUALENV
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
