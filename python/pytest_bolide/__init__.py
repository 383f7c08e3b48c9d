"""The pytest plugin: a failed test shows what the servers of ``bolide.testing.serve`` have logged during it.

pytest loads it at startup, so it imports nothing of the package `bolide`: ``bolide.testing`` registers each server here. The
process of the tests runs it.
"""

import pytest

#: The title of the section in the report of a failed test.
TITLE = "Bolide log"
#: A report contains at most this many lines of each server, the last ones.
MAX_LINES = 200

#: The servers that have run during the current test, each with the position in its log at which the test began.
servers = []


def note(server):
    """Register a server that starts now."""
    servers.append((server, 0))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    servers[:] = [(server, server._position()) for server, _ in servers if server._is_running()]
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.extend((TITLE, text) for text in map(written, servers) if text)


def written(noted):
    """Return the last lines that a server has logged since a position."""
    server, position = noted
    lines = server._log_since(position).splitlines()
    left_out = len(lines) - MAX_LINES
    if left_out > 0:
        lines[:left_out] = [f"({left_out} earlier lines are left out)"]
    return "\n".join(lines)
