"""Creates the virtualenvs of competitors, installs Bolide from this repository, and builds the C programs.

Runs in the suite's own process, before anything is pinned to a CPU. Packages that can't be installed are reported and skipped;
the run goes on without them.
"""

import json
import shutil
import socket
import subprocess
import time

from .interpreters import OWN
from .machine import find_program
from .places import (
    FRESH_LOAD_PROGRAM,
    FRESH_LOAD_SOURCE,
    LIMIT_PROGRAM,
    LIMIT_SOURCE,
    REPOSITORY,
    TLS_LOAD_PROGRAM,
    TLS_LOAD_SOURCE,
    WAITING_LIMIT_PROGRAM,
    WAITING_LIMIT_SOURCE,
    WAITING_LOAD_PROGRAM,
    WAITING_LOAD_SOURCE,
    WEBSOCKET_LOAD_PROGRAM,
    WEBSOCKET_LOAD_SOURCE,
)
from .servers import OURS, SERVERS

# Dependencies of the served applications.
APPLICATION_PACKAGES = {"wsgi": ["flask", "django"], "asgi": ["starlette", "fastapi"]}
# Dependencies of `uvicorn[standard]`; their versions are reported too.
PARTS_OF_SERVERS = ["uvloop", "httptools", "websockets"]
# The C programs that every run builds, and the one that needs OpenSSL's headers: it is skipped without them.
C_PROGRAMS = {
    LIMIT_PROGRAM: (LIMIT_SOURCE, []),
    WEBSOCKET_LOAD_PROGRAM: (WEBSOCKET_LOAD_SOURCE, []),
    WAITING_LOAD_PROGRAM: (WAITING_LOAD_SOURCE, []),
    FRESH_LOAD_PROGRAM: (FRESH_LOAD_SOURCE, []),
    WAITING_LIMIT_PROGRAM: (WAITING_LIMIT_SOURCE, []),
}
TLS_PROGRAMS = {TLS_LOAD_PROGRAM: (TLS_LOAD_SOURCE, ["-lssl", "-lcrypto", "-lpthread"])}
INSTALL_TIMEOUT_SECONDS = 900
# Bolide is built with whole-program link-time optimization.
BUILD_TIMEOUT_SECONDS = 1800
QUERY_TIMEOUT_SECONDS = 60
LIMIT_START_SECONDS = 5
ERROR_LINES_SHOWN = 8

VERSION_PROGRAM = "import platform; print(platform.python_version())"
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


def packages_of(interpreter):
    """Returns the packages of its virtualenv. WSGI is measured on the suite's own Python only."""
    interfaces = {"wsgi", "asgi"} if interpreter == OWN else {"asgi"}
    rows = [row for row in SERVERS.values() if row.package and row.name != OURS]
    here = [row.package for row in rows if row.interfaces & interfaces and row.runs_on(interpreter)]
    return list(dict.fromkeys(here)) + [name for one in sorted(interfaces) for name in APPLICATION_PACKAGES[one]]


def make_virtualenv(interpreter, say):
    """Creates the interpreter's virtualenv; replaces it if it belongs to another Python. Raises CannotRun."""
    wanted = _ask([interpreter.executable, "-c", VERSION_PROGRAM])
    if wanted is not None and _query(interpreter, VERSION_PROGRAM) == wanted:
        return
    directory = interpreter.virtualenv.name
    if interpreter.virtualenv.exists():
        shutil.rmtree(interpreter.virtualenv)
    say(f"Making the competitors' virtualenv for Python {wanted}")
    # Copies, not links: pages of an interpreter shared with the suite's own would count only in part.
    command = [str(interpreter.executable), "-m", "venv", "--copies", str(interpreter.virtualenv)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS)
        problem = (done.stdout + done.stderr).strip().splitlines()[-1:] if done.returncode != 0 else None
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = [str(error)]
    if problem is not None:
        raise CannotRun(f"no virtualenv at bench/{directory}: {problem}. Debian and Ubuntu have it in python3-venv")


def install_competitors(interpreter, say):
    """Installs the missing packages one by one. Returns {package: why it could not be installed}."""
    present = versions(interpreter)
    return install_packages(interpreter, [one for one in packages_of(interpreter) if not _is_present(one, present)], say)


def install_packages(interpreter, packages, say):
    """Installs packages one by one. Returns {package: why it could not be installed}."""
    failed = {}
    for package in packages:
        say(f"Installing {package} for Python {interpreter.version}")
        problem = _pip(interpreter, INSTALL_TIMEOUT_SECONDS, "--prefer-binary", package)
        if problem:
            failed[package] = problem
            say(f"  {package} is left out: {problem[-1]}")
    return failed


def distribution(package):
    """Returns the name of a package without its extras and its version."""
    return package.partition("==")[0].partition("[")[0]


def _is_present(package, present):
    """Returns whether `present`, {distribution: version}, contains a package in the requested version."""
    version = package.partition("==")[2]
    return distribution(package) in present and version in ("", present[distribution(package)])


def install_bolide(interpreter, say):
    """Builds and installs Bolide from this repository. Returns the last lines of pip's output on failure, else None."""
    if not (REPOSITORY / "pyproject.toml").exists():
        return ["the repository has no pyproject.toml, so there is nothing to install"]
    say(f"Building and installing Bolide for Python {interpreter.version} (optimized: this takes a while)")
    problem = _pip(interpreter, BUILD_TIMEOUT_SECONDS, str(REPOSITORY))
    if problem is None and not (interpreter.programs / "bolide").exists():
        return ["pip installed Bolide, but there is no console script `bolide`"]
    return problem


def python_version(interpreter):
    """Returns its full version, such as `3.13.0`."""
    return _query(interpreter, VERSION_PROGRAM) or "unknown"


def commit():
    """Returns the commit of this repository, with a `+` if files differ from it; empty where git does not know one."""
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS)
    return done.stdout.strip() if done.returncode == 0 else ""


def versions(interpreter):
    """Returns {package: version} of the interpreter's virtualenv."""
    names = [distribution(package) for package in packages_of(interpreter)]
    return json.loads(_query(interpreter, VERSIONS_PROGRAM, *names, *PARTS_OF_SERVERS, "bolide") or "{}")


def tool_versions():
    """Returns the versions of the system programs that take part."""
    questions = {
        "wrk": ["-v"],
        "ab": ["-V"],
        "nginx": ["-v"],
        "gcc": ["--version"],
        "h2load": ["--version"],
        "openssl": ["version"],
    }
    return {name: _version_line(name, words) for name, words in questions.items() if find_program(name)}


def _version_line(name, words):
    try:
        done = subprocess.run([find_program(name), *words], capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].partition(" Copyright")[0].removeprefix("This is ") if lines else "unknown"


def build_programs(programs=None):
    """Compiles the suite's C programs that are older than their sources. Raises CannotRun."""
    compiler = find_program("cc") or find_program("gcc")
    if compiler is None:
        raise CannotRun("there is no C compiler for the limit program; install gcc")
    for program, (source, libraries) in (programs or C_PROGRAMS).items():
        if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
            continue
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), *libraries]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS)
        if done.returncode != 0:
            raise CannotRun(f"{source.name} does not compile: {done.stderr.strip()}")


def check_limit(port):
    """Checks the limit program that listens on this port. Returns the error, or None."""
    head = b"GET / HTTP/1.1\r\nHost: limit\r\n\r\n"
    cases = [([head], 1), ([head * 3], 3), ([head[:-1], head[-1:]], 1), ([head + head[:-3], head[-3:] + head], 3)]
    cases += [([head[:cut], head[cut:] + head], 2) for cut in range(1, len(head))]
    for parts, expected in cases:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_START_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts:
                connection.sendall(part)
                # Lets the part arrive separately. If it does not, this tests pipelining, which has the same answer.
                time.sleep(0.001)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        if answer.count(b"HTTP/1.1 200 OK\r\n") != expected or answer.count(b"\r\n\r\nHello, World!") != expected:
            return f"{expected} answers expected for {parts!r}, got {answer!r}"
    return None


def _pip(interpreter, seconds, *words):
    command = [str(interpreter.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=interpreter.virtualenv)
    except subprocess.TimeoutExpired:
        return [f"pip took more than {seconds} s"]
    if done.returncode == 0:
        return None
    return (done.stdout + done.stderr).strip().splitlines()[-ERROR_LINES_SHOWN:] or [f"pip ended with status {done.returncode}"]


def _query(interpreter, program, *words):
    """Returns a program's output in the interpreter's virtualenv; None if it fails or there is no virtualenv."""
    return _ask([interpreter.python, "-c", program, *words])


def _ask(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
