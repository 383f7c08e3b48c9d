"""The two programs that the compatibility tests compare: real uWSGI, in a separate virtualenv, and Bolide."""

import fcntl
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.server import program

REPOSITORY = Path(__file__).resolve().parents[2]
UWSGI_VERSION = "2.0.31"
#: uWSGI is built here once and kept; BOLIDE_UWSGI names an existing program instead.
UWSGI_ENVIRONMENT = REPOSITORY / "build" / f"uwsgi-{UWSGI_VERSION}"
#: Its source distribution, which has its own tests.
UWSGI_SOURCES = REPOSITORY / "build" / f"uwsgi-{UWSGI_VERSION}-sources"
#: Libraries that it is built without, even if the machine has them: with them it has additional option names.
UWSGI_FEATURES = {"UWSGI_PROFILE_OVERRIDE": "json=false"}
BUILD_SECONDS = 900
#: A test that needs uWSGI may be the one that builds it, or wait for that one, on a busy machine.
TEST_SECONDS = 2 * BUILD_SECONDS


def pytest_collection_modifyitems(items):
    for item in items:
        if "uwsgi" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def run_or_fail(what, command, **variables):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, **pipes, timeout=BUILD_SECONDS, env={**os.environ, **variables})
    if done.returncode != 0:
        pytest.fail(f"{what} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def build_once():
    """Returns the path of the uWSGI that is built here, by the first of the parallel test processes."""
    found = UWSGI_ENVIRONMENT / "bin" / "uwsgi"
    UWSGI_ENVIRONMENT.parent.mkdir(exist_ok=True)
    with open(f"{UWSGI_ENVIRONMENT}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            # Remove an incomplete build.
            run_or_fail("making a virtualenv", [sys.executable, "-m", "venv", "--clear", str(UWSGI_ENVIRONMENT)])
            pip = str(UWSGI_ENVIRONMENT / "bin" / "pip")
            # A cached wheel may have been built on a machine with fewer libraries.
            install = [pip, "install", "--quiet", "--no-cache-dir", f"uwsgi=={UWSGI_VERSION}"]
            run_or_fail("installing uWSGI", install, **UWSGI_FEATURES)
    return found


@pytest.fixture(scope="session")
def uwsgi():
    """Path of uWSGI in exactly the version that Bolide is compatible with."""
    found = os.environ.get("BOLIDE_UWSGI") or build_once()
    version = run_or_fail("asking uWSGI for its version", [str(found), "--version"]).strip()
    assert version == UWSGI_VERSION, f"{found} is uWSGI {version}"
    options = run_or_fail("asking uWSGI for its options", [str(found), "--help"])
    assert "--log-route" in options, f"{found} has no regular expressions: install libpcre2-dev, and remove it to build it anew"
    return str(found)


@pytest.fixture(scope="session")
def bolide():
    """Path of the installed `bolide`; BOLIDE_PROGRAM names another one, such as the example `reading`."""
    return os.environ.get("BOLIDE_PROGRAM") or program()[0]


@pytest.fixture(scope="session")
def uwsgi_sources():
    """The directory of uWSGI's source distribution, which the first of the parallel test processes downloads."""
    directory = UWSGI_SOURCES / f"uwsgi-{UWSGI_VERSION}"
    UWSGI_SOURCES.mkdir(parents=True, exist_ok=True)
    with open(f"{UWSGI_SOURCES}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "t" / "cachebitmap.py").exists():
            only_sources = ["--no-deps", "--no-binary", ":all:", "--dest", str(UWSGI_SOURCES), f"uwsgi=={UWSGI_VERSION}"]
            run_or_fail("downloading uWSGI", [sys.executable, "-m", "pip", "--quiet", "download", *only_sources])
            with tarfile.open(UWSGI_SOURCES / f"uwsgi-{UWSGI_VERSION}.tar.gz") as archive:
                archive.extractall(UWSGI_SOURCES, filter="data")
    return directory


@pytest.fixture(scope="session")
def plain_program():
    """The program `bolide` as Cargo builds it, without Python: BOLIDE_BINARY, or built here."""
    named = os.environ.get("BOLIDE_BINARY")
    if named:
        return named
    done = subprocess.run(["cargo", "build", "--quiet", "-p", "bolide-master"], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return str(Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug" / "bolide")
