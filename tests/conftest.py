"""Fixtures of every test on the real program: the path of the shared helpers, and servers that exit with the test."""

import contextlib
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.held import Held
from support.ports import reserve
from support.server import Server

#: `make languages` installs what these tests need, and names their directory, which makes pytest collect it.
collect_ignore = ["applications"]

#: Time limit of one test, in seconds: longer than any single wait may take, so that a failure names the condition that was waited
#: for.
TEST_SECONDS = 240


def pytest_configure(config):
    """An exception in a thread of a test fails the test: pytest would only warn of it."""
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")


def pytest_collection_modifyitems(items):
    """A hanging test fails. (The command line or a mark of the test may set another limit.)"""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


# A shell ignores these signals for a background job, and child processes inherit that. Reset them: a signal with a Python handler
# gets its default disposition after an exec.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)


class Servers:
    """Creates servers, and ends them all."""

    def __init__(self, make_directory):
        self._make_directory = make_directory
        self._servers = []

    def prepare(self, configuration="", **options):
        """A server that has not been started; its directory exists."""
        server = Server(self._make_directory(), configuration, **options)
        self._servers.append(server)
        return server

    def __call__(self, configuration="", **options):
        """A running server."""
        return self.prepare(configuration, **options).start()

    def finish(self):
        problems = []
        for server in self._servers:
            try:
                server.finish()
            except AssertionError as error:
                problems.append(str(error))
        assert not problems, "\n".join(problems)


@pytest.fixture
def serve(tmp_path_factory):
    """``serve("wsgi-file = {apps}/hello.py")`` starts a server that exits with the test."""
    servers = Servers(lambda: tmp_path_factory.mktemp("server"))
    yield servers
    servers.finish()


@pytest.fixture(scope="module")
def serve_module(tmp_path_factory):
    """The same for a server that the tests of a module share."""
    servers = Servers(lambda: tmp_path_factory.mktemp("server"))
    yield servers
    servers.finish()


@pytest.fixture
def hold(serve):
    """``hold("processes = 2")`` serves ``tests/apps/held.py``; held calls are released when the test ends."""
    held = []

    def hold(configuration="", application="wsgi", **options):
        held.append(Held(serve, configuration, application, **options))
        return held[-1].start()

    yield hold
    for one in held:
        one.open_gates()


@pytest.fixture
def free_port():
    """``free_port()`` returns a port of 127.0.0.1 without a listener. It is reserved for this test until the test ends."""
    with contextlib.ExitStack() as held:
        yield lambda: held.enter_context(reserve()).getsockname()[1]
