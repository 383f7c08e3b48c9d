"""Selects the Pythons that the suite runs servers on: its own, and for ASGI also one from the other side of 3.12 if installed.

From 3.12 on asyncio can begin a task immediately (`eager_start`), before that it can't: an asynchronous server has two
paths, and both are measured. Runs in the suite's own process.
"""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .machine import find_program
from .places import BENCH, VIRTUALENV

# The first version with eager tasks.
EAGER_SINCE = (3, 12)
# Versions to look for besides the suite's own Python, in order of preference.
EAGER_VERSIONS = ("3.14", "3.13", "3.12")
LAZY_VERSIONS = ("3.11",)
QUERY_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Interpreter:
    """A Python that servers run on. `version` is for example `3.13`; its virtualenv need not exist yet."""

    version: str
    executable: Path
    virtualenv: Path

    @property
    def programs(self):
        return self.virtualenv / "bin"

    @property
    def python(self):
        return self.programs / "python"


def is_eager(version):
    """Returns whether asyncio has eager tasks in this version of Python."""
    return parts(version) >= EAGER_SINCE


def parts(version):
    """Returns `3.13` as numbers that can be compared."""
    return tuple(int(part) for part in version.split("."))


OWN = Interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}", Path(sys.executable), VIRTUALENV)


@functools.cache
def for_asgi():
    """Returns the interpreters of the ASGI scenarios, newest first: the suite's own, and one from the other side of 3.12."""
    wanted = LAZY_VERSIONS if is_eager(OWN.version) else EAGER_VERSIONS
    other = next((found for version in wanted if (found := _find(version))), None)
    return sorted(filter(None, [OWN, other]), key=lambda one: parts(one.version), reverse=True)


def _find(version):
    for executable in _candidates(version):
        if _version_of(executable) == version:
            return Interpreter(version, executable, BENCH / f".venv-{version}")
    return None


def _candidates(version):
    """Returns candidate paths of a Python of this version: on the PATH, or where pyenv and uv keep theirs, newest patch first."""
    on_path = find_program(f"python{version}")
    kept = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    kept.append(Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "uv" / "python")
    found = [path for directory in kept for path in directory.glob(f"*{version}.*/bin/python{version}")]
    found.sort(key=_patch_number, reverse=True)
    return [Path(on_path), *found] if on_path else found


def _patch_number(executable):
    digits = executable.parents[1].name.rpartition(".")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else -1


def _version_of(executable):
    """Returns for example `3.13`; None for anything but CPython with a GIL, or if it does not run (a pyenv shim, for example)."""
    program = "import sys; print(sys.implementation.name, getattr(sys, '_is_gil_enabled', bool)() or sys.version_info < (3, 13))"
    program += "; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([executable, "-c", program], capture_output=True, text=True, timeout=QUERY_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split("\n")
    return lines[1] if done.returncode == 0 and lines[0] == "cpython True" else None
