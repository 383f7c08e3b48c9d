"""Users and names of processes."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import APPLICATIONS, START_FAILED
from support_processes import children_of, command_line_of, descriptors_of, status_field
from support_users import NOBODY, python_for_everybody

SERVE = ("--http-socket", "127.0.0.1:0", "--module", "probe")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user; see the refusal below")
@pytest.mark.parametrize(
    "options", [("--uid", "nobody"), ("--uid", str(NOBODY.pw_uid), "--gid", "12345")], ids=["name", "number"]
)
def test_root_drops_to_uid_and_gid_and_the_master_keeps_its_own(options, start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        # The case of a user whose Python is in root's home: startup fails with a message.
        instance = start(*options, ready=False)
        assert instance.wait_for_exit() == START_FAILED
        assert "the user of uid may not use it" in instance.lines[-1]
        return
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    instance = start(
        "--processes", "2", "--socket", open_directory / "app.sock", "--chdir", open_directory, *options,
        command=[python, "-m", "bolide"],
    )  # fmt: skip
    group = 12345 if "--gid" in options else NOBODY.pw_gid
    facts = json.loads(instance.body("/facts"))
    assert facts["user"] == [NOBODY.pw_uid, group]
    assert 0 not in facts["groups"]
    for pid in [instance.prototype(), *instance.workers()]:
        assert status_field(pid, "Uid").split() == [str(NOBODY.pw_uid)] * 4
        assert status_field(pid, "Gid").split() == [str(group)] * 4
    assert status_field(instance.pid, "Uid").split()[0] == "0"
    found = (open_directory / "app.sock").stat()
    assert (found.st_uid, found.st_gid) == (NOBODY.pw_uid, group)
    assert "the application runs as root" not in instance.log
    # The master keeps its privileges: a reload and the replacement of a worker work as before.
    instance.expects_alarms = True
    instance.reload(2)
    dead = instance.workers()[0]
    os.kill(dead, 9)
    instance.wait_for_replacement(dead, count=2)
    assert json.loads(instance.body("/facts"))["user"] == [NOBODY.pw_uid, group]


def test_an_ordinary_user_can_not_become_another(tmp_path):
    # Root becomes an ordinary user after all imports, because that user may not be allowed to read the modules.
    become = f"os.setgroups([]); os.setgid({NOBODY.pw_gid}); os.setuid({NOBODY.pw_uid}); " if os.getuid() == 0 else ""
    done = subprocess.run(
        [sys.executable, "-c", f"import os, bolide; {become}bolide.main()", "--uid", "12345", *SERVE],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == START_FAILED
    assert "uid = 12345 needs root, and Bolide was started as" in done.stdout.decode().splitlines()[-1]


def test_a_user_that_does_not_exist_ends_the_start(fail):
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "probe", "--uid", "no-such-user")
    assert status == START_FAILED
    assert "no-such-user" in lines[-1], lines


@pytest.mark.skipif(os.getuid() != 0, reason="only root is warned")
def test_an_application_that_runs_as_root_is_warned_of(start):
    assert "WARNING: the application runs as root: set uid (and gid) to an ordinary user" in start().log


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        (("--auto-procname",), ""),
        (("--procname-prefix", "shop-"), "shop-"),
        (("--procname-prefix-spaced", "shop"), "shop "),
    ],
    ids=["auto", "prefix", "spaced"],
)
def test_processes_say_in_ps_what_they_are(options, prefix, start):
    instance = start("--processes", "2", *options)
    assert command_line_of(instance.prototype()) == f"{prefix}bolide prototype"
    assert {command_line_of(worker) for worker in instance.workers()} == {f"{prefix}bolide worker {n}" for n in (1, 2)}
    assert command_line_of(instance.pid) == f"{prefix}bolide master"
    assert status_field(instance.pid, "Name") == f"{prefix}bolide master"[:15]
    assert status_field(instance.prototype(), "Name") == f"{prefix}bolide prototype"[:15]


@pytest.mark.parametrize(
    ("options", "master", "worker"),
    [
        (("--procname", "shop"), "shop", "shop"),
        (("--procname-master", "boss"), "boss", "bolide worker 1"),
        (("--procname", "shop", "--procname-master", "boss"), "boss", "shop"),
        (("--procname-prefix", "a-", "--procname-append", "-z"), "a-bolide master-z", "a-bolide worker 1-z"),
    ],
    ids=["procname", "master", "both", "append"],
)
def test_processes_have_the_names_that_are_chosen(options, master, worker, start):
    instance = start(*options)
    assert command_line_of(instance.pid) == master
    assert command_line_of(instance.worker()) == worker


@pytest.mark.parametrize(
    ("mask", "file_mode", "socket_mode"), [("027", 0o640, 0o750), ("0077", 0o600, 0o700), ("000", 0o666, 0o777)]
)
def test_umask_is_that_of_everything_that_is_made(mask, file_mode, socket_mode, start, tmp_path):
    (tmp_path / "shop.py").write_text("open('loaded', 'w').close()\nfrom probe import application\n")
    start("--umask", mask, "--socket", "app.sock", "--pidfile", "shop.pid", "--logto", "log", module="shop")
    assert (tmp_path / "loaded").stat().st_mode & 0o777 == file_mode
    # A user with write access to a pidfile could have any process signaled.
    assert (tmp_path / "shop.pid").stat().st_mode & 0o777 == file_mode & 0o644
    # Owner and group at most may read a log, as in uWSGI.
    assert (tmp_path / "log").stat().st_mode & 0o777 == file_mode & 0o640
    assert (tmp_path / "app.sock").stat().st_mode & 0o777 == socket_mode


@pytest.mark.parametrize("mask", ["rwx", "0999", "7777"])
def test_an_invalid_umask_fails_the_start(mask, fail):
    status, lines = fail(*SERVE, "--umask", mask)
    assert status == START_FAILED
    assert f"`umask = {mask}` is not a mask of a mode" in lines[-1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take on a group")
def test_no_initgroups_leaves_the_further_groups_out(start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    options = ("--uid", "nobody", "--gid", "12345", "--no-initgroups", "--chdir", open_directory)
    instance = start(*options, command=[python, "-m", "bolide"])
    assert json.loads(instance.body("/facts"))["groups"] == [12345]


def test_processes_have_names_in_ps_by_themselves_and_the_master_keeps_its_command_line(start, tmp_path):
    (tmp_path / "second.py").write_text("from probe import application\n")
    instance = start("--processes", "10", "--mule", "--attach-daemon", "sleep 1000", "--mount", "/second=second.py")
    assert "--processes 10" in command_line_of(instance.pid)

    def children():
        return sorted(command_line_of(pid) for pid in children_of(instance.pid))

    # The server is ready without its mules and daemons. Without its name, the attendant looks like a prototype.
    instance.wait_for(lambda: children() == ["bolide: attendant", "bolide: prototype [probe +1]"], "the attendant has its name")

    def names():
        return [(command_line_of(pid), status_field(pid, "Name")) for pid in instance.workers()]

    assert ("bolide: worker 1 [probe +1]", "bolide worker 1") in names()
    assert ("bolide: worker 10 [probe +1]", "bolide worke 10") in names()
    instance.wait_for(lambda: ("bolide: mule 1 [probe +1]", "bolide mule 1") in names(), "the mule has its name")


def test_logto_takes_everything_that_is_written(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import subprocess\nprint('printed while loading', flush=True)\n"
        "subprocess.run(['echo', 'from a program'])\nfrom probe import application\n"
    )
    instance = start("--logto", "log", module="shop", logging=True)
    instance.body("/pid")
    text = wait_until(lambda: "GET /pid" in instance.everything() and (tmp_path / "log").read_text(), "the line of the request")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d bolide: version ", text)
    assert "printed while loading" in text
    assert "from a program" in text
    assert instance.log == ""
    assert descriptors_of(instance.worker())[2] == str(tmp_path / "log")
