"""Many clients and large files in little memory: whether every byte arrives, and how much memory is used.

Runs in the suite's own process; the clients are `transfer_client.py`, in a separate process.
"""

import contextlib
import json
import os
import time
from pathlib import Path

from .. import load
from ..places import BENCH
from ..processes import run_client
from ..servers import NGINX, OURS
from ..session import NotStarted, Running
from ..transfer_client import mark
from ..workloads import HELLO, Workload
from .static_files import MB, serve_directory

CLIENTS = 200
LIMIT_MB = 256
# File sizes, which the clients use in turn. The files are sparse except for marks, so they need no disk space.
FILES_MB = (20, 35, 50, 75, 100, 150)
# Paced clients read this many bytes a second each, and stop after enough bytes to fill every buffer.
PACE_BYTES = 4 * MB
PACED_SECONDS = 15
MAX_SECONDS = 300
MEMORY = Path("/sys/fs/cgroup/memory")


def transfers(session, scenario):
    """Returns {server: {"unpaced" | "paced": counts}}."""
    results = {}
    files = _make_files(session)
    for name in [NGINX, *[name for name in session.chosen("static") if name == OURS]]:
        try:
            results[name] = {how: _run(session, scenario, name, files, how) for how in ("unpaced", "paced")}
        except (NotStarted, load.LoadFailed) as error:
            session.leave_out(name, scenario, error)
    return results


def _make_files(session):
    directory = session.directory / "files"
    directory.mkdir(exist_ok=True)
    session.directory.chmod(0o755)
    for size in FILES_MB:
        with open(directory / f"large-{size}.bin", "wb") as file:
            for place in range(size):
                file.write(mark(size, place))
                file.seek((place + 1) * MB)
            file.truncate(size * MB)
    return directory


def _forget(files):
    """Drop the page cache: cached pages are charged to the process that read them first, not to the server."""
    for path in files.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _run(session, scenario, name, files, how):
    with _cgroup(f"bolide-bench-{os.getpid()}-{session.started}") as group:
        _forget(files)
        program, launch = serve_directory(session, name, files)
        # Workers, which start later, inherit the group.
        (group / "cgroup.procs").write_text(str(program.pid))
        workload = Workload(
            HELLO.module, f"/static/large-{FILES_MB[0]}.bin", lambda body: None if len(body) == FILES_MB[0] * MB else "cut"
        )
        running = Running(name, program, launch.port, workload, launch)
        session.check(running)
        try:
            command = [str(word) for word in ("python3", BENCH / "transfer_client.py", launch.port, files, CLIENTS)]
            command += [str(PACE_BYTES), str(PACED_SECONDS)] if how == "paced" else ["0", "0"]
            began, own = time.monotonic(), [0]
            try:
                status, output, errors = run_client(
                    command,
                    cpus=session.cpus.client,
                    seconds=MAX_SECONDS,
                    directory=session.directory,
                    meanwhile=lambda: own.append(_own_bytes(group)),
                )
            except TimeoutError as error:
                raise load.LoadFailed(str(error)) from None
            if status != 0:
                raise load.LoadFailed(f"the clients ended with status {status}: {errors.strip()[-300:]}")
            counts = json.loads(output)
            counts["seconds"] = time.monotonic() - began
            counts["peak_mb"] = int((group / "memory.max_usage_in_bytes").read_text()) / MB
            counts["own_mb"] = max(own) / MB
            if program.process.poll() is not None:
                counts["problem"] = f"the server exited with status {program.process.returncode}"
        finally:
            running.stop()
    session.say(
        f"  {scenario} {how}: {name:<10} {counts['failed']} of {counts['wanted']} failed, {counts['megabytes']:.0f} MB in"
        f" {counts['seconds']:.0f} s, at most {counts['peak_mb']:.0f} MB, {counts['own_mb']:.0f} MB of it its own"
    )
    return counts


def _own_bytes(group):
    """Returns the memory of the group's processes themselves, without the page cache."""
    lines = (group / "memory.stat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("total_rss ")), 0)


@contextlib.contextmanager
def _cgroup(name):
    """Creates a memory cgroup with the limit. Raises NotStarted if that is not possible."""
    group = MEMORY / name
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_MB * MB))
    except OSError as error:
        raise NotStarted(f"there is no memory cgroup to be had: {error.strerror}") from None
    try:
        yield group
    finally:
        deadline = time.monotonic() + 5
        # Its last process may still be exiting.
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.05)
