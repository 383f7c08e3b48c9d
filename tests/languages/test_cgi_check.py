"""CGI: a wrong configuration is told with its place, by `bolide check` and at startup, and a right one is described."""

import os
import subprocess

import pytest
from support.server import REMOVED_PREFIXES, program
from support.waiting import TIMEOUT_SECONDS


def bolide(directory, *arguments):
    command = [os.environ["BOLIDE_BINARY"]] if os.environ.get("BOLIDE_BINARY") else program()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
    done = subprocess.run(
        [*command, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def configured(tmp_path):
    """Writes ``uwsgi.ini``. Returns its directory."""

    def configured(*lines):
        (tmp_path / "uwsgi.ini").write_text("\n".join(["[uwsgi]", "http-socket = 127.0.0.1:0", *lines]) + "\n")
        return tmp_path

    return configured


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["cgi = /no/such/directory"], "uwsgi.ini:3: error: `cgi`: there is no file or directory `/no/such/directory`"),
        (
            ["cgi = /", "cgi-helper = .pl=no-such-program"],
            "uwsgi.ini:4: error: `cgi-helper`: there is no program `no-such-program`",
        ),
        (["cgi = /", "cgi-helper = perl"], "uwsgi.ini:4: error: `cgi-helper = perl` lacks its program"),
        (["cgi = /", "cgi-helper = .x=sym://f"], "functions of libraries are not supported"),
        (["cgi = /", "http-socket-modifier1 = 5"], "uwsgi.ini:4"),
        (["cgi = /", "cgi-from-docroot = true"], "a request must not choose what is executed"),
        (["cgi = /", "cgi-loadlib = x.so:f"], "`cgi-loadlib` is not supported"),
        (["cgi = /", "module = shop"], "an instance has applications of one language"),
    ],
)
def test_a_wrong_configuration_is_an_error_with_its_place(configured, lines, message):
    status, said = bolide(configured(*lines), "check", "uwsgi.ini")
    assert status != 0, said
    assert message in said, said


def test_an_instance_without_its_directory_does_not_start(configured):
    status, said = bolide(configured("cgi = /no/such/directory"), "uwsgi.ini")
    assert status != 0, said
    for part in ("uwsgi.ini:3", "/no/such/directory"):
        assert part in said, said


def test_the_options_of_uwsgi_that_need_nothing_are_accepted(configured):
    directory = configured(
        "plugins = cgi",
        "http-socket-modifier1 = 9",
        "cgi = /",
        "cgi-buffer-size = 65536",
        "cgi-close-stdin-on-eof = true",
        "cgi-async-max-attempts = 5",
        "cgi-optimize = true",
        "cgi-path-info = true",
        "if-plugin = cgi",
        "cgi-index = index.cgi",
        "endif =",
    )
    status, said = bolide(directory, "check", "uwsgi.ini")
    assert (status, said.strip()) == (0, "nothing to report")


def test_the_plan_names_the_programs(configured, tmp_path):
    status, said = bolide(configured(f"cgi = /cgi-bin={tmp_path}"), "config", "uwsgi.ini")
    assert status == 0, said
    for part in (f"{tmp_path} at /cgi-bin, executed for each request (CGI)", "16 programs (CGI)"):
        assert part in said, said


def test_a_check_of_loading_has_nothing_to_load(configured, tmp_path):
    directory = configured(f"cgi = {tmp_path}", "uid = nobody")
    status, said = bolide(directory, "check", "--load", "uwsgi.ini")
    assert status == 0, said
    assert "can't be loaded" not in said, said
