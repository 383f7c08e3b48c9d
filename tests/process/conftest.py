"""Fixtures of the tests about processes: `start` starts the real program with the probe application."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.redis_server import Proxy, RedisServer
from support.server import TIME, program
from support_instance import APPLICATIONS, COMMAND_SECONDS, START_FAILED, Instance
from support_upgrade import pidfile
from support_upgrade import stop as stop_upgraded
from support_versions import write

#: Exit statuses of a startup with an invalid configuration.
REFUSED = (START_FAILED, 2)
#: Seconds that an instance waits for a client, because this process may be without a CPU for longer than a peer may be silent.
PATIENT_SECONDS = 600
#: Timeout of a startup that fails, in seconds.
FAILURE_SECONDS = 60


@pytest.fixture
def start(tmp_path):
    """Starts Bolide with the probe application on a free port; additional arguments go to the command line."""
    instances = []

    def start(*arguments, module="probe", socket="127.0.0.1:0", ready=True, alarms=False, logging=False, master=True, **options):
        chosen = ["--pythonpath", str(APPLICATIONS), "--socket-timeout", str(PATIENT_SECONDS)]
        # Without it a single worker would load the application itself.
        chosen += ["--master"] if master else []
        chosen += [] if logging else ["--disable-logging"]
        chosen += ["--http-socket", socket] if socket else []
        chosen += ["--module", module] if module else []
        instance = Instance(tmp_path, arguments=[*chosen, *map(str, arguments)], **options)
        instance.expects_alarms = alarms
        instances.append(instance)
        return instance.start() if ready else instance.launch()

    yield start
    for instance in instances:
        instance.finish()


@pytest.fixture
def redis():
    """A real redis-server."""
    server = RedisServer()
    yield server
    server.finish()


@pytest.fixture
def proxy(redis):
    """A way to `redis` that can be cut."""
    proxy = Proxy(redis)
    yield proxy
    proxy.finish()


def run_to_end(arguments, directory, seconds, options):
    """Runs `bolide` in a directory until it ends by itself. Returns its status and all its output."""
    command = [*program(), *map(str, arguments)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=directory, timeout=seconds, **streams, **options)
    return done.returncode, done.stdout.decode()


@pytest.fixture
def fail(tmp_path):
    """Starts Bolide with exactly these arguments, expects it to end, and returns its status and its lines."""

    def fail(*arguments, **options):
        status, said = run_to_end(arguments, tmp_path, FAILURE_SECONDS, options)
        return status, TIME.sub("", said).splitlines()

    return fail


@pytest.fixture(scope="session")
def open_directories():
    """The directory of those that every user may enter; pytest's directories are for one user only."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture
def open_directory(open_directories):
    """A directory that every user may enter. It outlives the instances of its test, which may write to it until they exit."""
    directory = Path(tempfile.mkdtemp(dir=open_directories))
    directory.chmod(0o755)
    return directory


@pytest.fixture
def call(tmp_path):
    """Runs `bolide` with these arguments. Returns its status and all its output."""

    def call(*arguments, directory=tmp_path, **options):
        return run_to_end(arguments, directory, COMMAND_SECONDS, options)

    return call


@pytest.fixture
def refuse(fail):
    """Starts Bolide with one option, and expects that it is refused with these words."""

    def refuse(option, value, words):
        status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "probe", f"--{option}", value)
        assert status in REFUSED
        assert any(words in line for line in lines), lines

    return refuse


@pytest.fixture
def upgradable(start, tmp_path):
    """Starts an instance with a pidfile; at the end the process in the pidfile is stopped."""

    def upgradable(*options, module="shop", **more):
        if module == "shop" and not (tmp_path / "shop.py").exists():
            write(tmp_path, "old")
        return start("--pidfile", pidfile(tmp_path), "--vacuum", *options, module=module, **more)

    yield upgradable
    stop_upgraded(tmp_path)
