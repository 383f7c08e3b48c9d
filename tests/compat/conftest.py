"""The two programs that the compatibility tests compare: real uWSGI, in its own virtualenv, and Bolide's reading."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
UWSGI_VERSION = "2.0.31"
#: Where uWSGI is built once and kept; BOLIDE_UWSGI names a program that is already there.
UWSGI_ENVIRONMENT = REPOSITORY / ".tools" / f"uwsgi-{UWSGI_VERSION}"
BUILD_SECONDS = 900


def run_or_fail(what, command, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, **pipes, timeout=BUILD_SECONDS, **options)
    if done.returncode != 0:
        pytest.fail(f"{what} failed:\n{done.stdout[-4000:]}")
    return done.stdout


@pytest.fixture(scope="session")
def uwsgi():
    """Path of uWSGI in exactly the version whose language we speak."""
    program = os.environ.get("BOLIDE_UWSGI")
    if program is None:
        program = UWSGI_ENVIRONMENT / "bin" / "uwsgi"
        if not program.exists():
            run_or_fail("making a virtualenv", [sys.executable, "-m", "venv", str(UWSGI_ENVIRONMENT)])
            pip = str(UWSGI_ENVIRONMENT / "bin" / "pip")
            run_or_fail("installing uWSGI", [pip, "install", f"uwsgi=={UWSGI_VERSION}"])
    version = run_or_fail("asking uWSGI for its version", [str(program), "--version"]).strip()
    assert version == UWSGI_VERSION, f"{program} is uWSGI {version}"
    return str(program)


@pytest.fixture(scope="session")
def bolide():
    """Path of the program that reads a configuration as `bolide` does: BOLIDE_PROGRAM, or one that is built here."""
    program = os.environ.get("BOLIDE_PROGRAM")
    if program is not None:
        return program
    if shutil.which("cargo") is None:
        pytest.fail("cargo is not installed: see https://rustup.rs, or name a built program with BOLIDE_PROGRAM")
    build = ["cargo", "build", "--quiet", "-p", "bolide-options", "--example", "reading"]
    run_or_fail("building", build, cwd=REPOSITORY)
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return str(target / "debug" / "examples" / "reading")
