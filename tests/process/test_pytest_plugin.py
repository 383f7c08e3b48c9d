"""The pytest plugin of the installed package: a failed test shows the log of its servers, and others do not pay for it."""

import os
import re
import subprocess
import sys

import pytest
from support.waiting import TIMEOUT_SECONDS

SHOP = """\
def application(environ, start_response):
    if environ["PATH_INFO"] == "/boom":
        raise LookupError("no such order")
    start_response("200 OK", [])
    return [b"hi"]
"""
CASES = """\
import urllib.request

import bolide.testing
import pytest


@pytest.fixture(scope="module")
def server():
    with bolide.testing.serve("shop") as server:
        yield server


def test_that_passes(server):
    urllib.request.urlopen(server.url + "/fine")
    server.wait_for_log("GET /fine")


def test_that_fails(server):
    urllib.request.urlopen(server.url + "/boom")


def test_in_a_block():
    with bolide.testing.serve("shop"):
        assert 1 == 2


def test_whose_server_does_not_start():
    with bolide.testing.serve("no_such_shop"):
        pass
"""


@pytest.fixture
def tested(tmp_path):
    def tested(cases, *arguments):
        (tmp_path / "shop.py").write_text(SHOP)
        (tmp_path / "test_cases.py").write_text(cases)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--color=no", *arguments]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, cwd=tmp_path, env=environment, timeout=TIMEOUT_SECONDS, **streams).stdout

    return tested


def sections(said):
    """Returns the sections "Bolide log" of each failed test, by its name."""
    failures = said.split("= FAILURES =")[1].split("= short test summary")[0]
    parts = re.split(r"^_{3,} (\w+) _{3,}$", failures, flags=re.MULTILINE)
    found = {name: re.split(r"^-+ Bolide log -+$", text, flags=re.MULTILINE)[1:] for name, text in zip(parts[1::2], parts[2::2])}
    return found


def test_a_failed_test_shows_what_its_servers_have_logged_during_it(tested):
    said = tested(CASES)
    found = sections(said)
    assert set(found) == {"test_that_fails", "test_in_a_block", "test_whose_server_does_not_start"}, said
    (failed,) = found["test_that_fails"]
    assert "LookupError: no such order" in failed
    assert "GET /boom" in failed
    assert "GET /fine" not in failed
    # The server of the module runs still, and has logged nothing since.
    (in_block,) = found["test_in_a_block"]
    assert "bolide: ready" in in_block
    assert "there is no module 'no_such_shop'" in found["test_whose_server_does_not_start"][-1]


def test_the_plugin_can_be_turned_off(tested):
    said = tested(CASES, "-p", "no:bolide")
    assert "3 failed, 1 passed" in said
    assert "Bolide log" not in said


def test_a_run_without_a_server_imports_nothing_of_the_package(tested):
    said = tested("import sys\n\n\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('bolide')]\n")
    assert "1 passed" in said
    assert "bolide" in tested("", "--trace-config")
