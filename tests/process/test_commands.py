"""Options that are commands: they send something to a running instance, and start nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import START_FAILED

#: Exit statuses of uWSGI: the pidfile can't be read; no signal was sent.
NO_FILE = 1
NOT_SENT = 255


@pytest.mark.parametrize(
    "names", [(), ("--procname", "shop"), ("--procname-master", "shop")], ids=["plain", "named", "master-named"]
)
def test_stop_and_reload_signal_the_instance_of_a_pidfile(names, start, fail, tmp_path):
    instance = start("--pidfile", tmp_path / "shop.pid", *names)
    status, lines = fail("--reload", "shop.pid")
    assert (status, len(lines)) == (0, 1)
    assert f"to the instance with pid {instance.pid} (reload)" in lines[0]
    instance.wait_for_generation(2)
    assert fail("--stop", "shop.pid")[0] == 0
    assert instance.wait_for_exit() == 0


def test_nothing_is_started_beside_an_ini_file(start, fail, tmp_path):
    instance = start("--pidfile", tmp_path / "shop.pid")
    (tmp_path / "second.ini").write_text("[uwsgi]\nmodule = probe\nhttp-socket = second.sock\npidfile = second.pid\n")
    status, lines = fail("--ini", "second.ini", "--stop", "shop.pid")
    assert status == 0, lines
    assert instance.wait_for_exit() == 0
    assert not (tmp_path / "second.pid").exists()
    assert not (tmp_path / "second.sock").exists()


def test_a_pidfile_that_is_missing_or_stale_or_of_another_program_is_reported(fail, tmp_path):
    status, lines = fail("--stop", "missing.pid")
    assert status == NO_FILE
    assert "missing.pid: the pidfile can't be read" in lines[-1]
    status, lines = fail("--reload", "missing.pid")
    assert status == NO_FILE
    assert "missing.pid: the pidfile can't be read" in lines[-1]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for text, reason in [
        ("", "it does not contain a pid"),
        ("0", "not contain a pid"),
        ("-1", "not contain a pid"),
        (str(ended.pid), "does not exist: the instance has exited"),
    ]:
        (tmp_path / "shop.pid").write_text(text)
        status, lines = fail("--stop", "shop.pid")
        assert status == NOT_SENT
        assert reason in lines[-1]
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "shop.pid").write_text(f"{other.pid}\n")
        status, lines = fail("--reload", "shop.pid")
        assert status == NOT_SENT
        assert "is `sleep`, not Bolide" in lines[-1]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_commands_work_with_uwsgi_itself_as_well(fail, tmp_path):
    # During a migration an installation has instances of both.
    (tmp_path / "uwsgi").symlink_to("/bin/sleep")
    # In a background job of a shell SIGINT is ignored, and its children inherit that.
    other = subprocess.Popen(["env", "--default-signal=INT", str(tmp_path / "uwsgi"), "60"])
    try:
        wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "uwsgi\n", "the program to be executed")
        (tmp_path / "shop.pid").write_text(f"{other.pid}\n")
        assert fail("--stop", "shop.pid")[0] == 0
        assert other.wait(TIMEOUT_SECONDS) != 0
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    "command",
    [
        ("--connect-and-read", "x"),
        ("--extract", "x"),
        ("--signal", "x,1"),
    ],
    ids=lambda command: command[0],
)
def test_commands_of_uwsgi_that_are_not_there_start_nothing(command, fail, tmp_path):
    assert not os.listdir(tmp_path)
    status, lines = fail("--http-socket", "app.sock", "--module", "probe", *command)
    assert status == START_FAILED
    assert f"`{command[0][2:]}` is not supported" in lines[-1]
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pivot-root", "/srv /old"),
        ("unshare2", "ipc"),
        ("ns-net", "shop"),
    ],
)
def test_an_option_that_protects_and_is_missing_is_an_error_unless_it_is_allowed(name, value, start, fail, tmp_path):
    text = f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\n{name} = {value}\n"
    (tmp_path / "app.ini").write_text(text)
    for command in [("app.ini",), ("check", "app.ini")]:
        status, lines = fail(*command)
        assert status != 0
        told = "\n".join(lines)
        assert f"`{name}` is not supported yet" in told
        assert f"`allow-missing = {name}` starts without it" in told
    (tmp_path / "app.ini").write_text(text + f"allow-missing = cache2,{name}\n")
    instance = start("app.ini", socket=None, module=None)
    instance.wait_for_text(f"`{name}` is not supported yet, and `allow-missing` permits that")
    assert instance.body() == str(instance.worker())
