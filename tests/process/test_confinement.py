"""What an instance gives up for good: root in the master itself."""

import json
import os
import shutil
import signal

import pytest
from support.waiting import wait_until
from support_instance import APPLICATIONS, START_FAILED
from support_processes import status_field
from support_users import NOBODY, python_for_everybody

SERVE = ("--http-socket", "127.0.0.1:0", "--module", "probe")
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root has something to give up")


@pytest.fixture
def everybody(open_folder):
    """The Python that other users may run, with the probe application beside it."""
    python = python_for_everybody(open_folder)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", open_folder)
    return ["env", "-C", str(open_folder), python, "-m", "bolide"]


@root_only
@pytest.mark.parametrize(
    ("options", "user", "group"),
    [
        (("--immediate-uid", "nobody"), NOBODY.pw_uid, NOBODY.pw_gid),
        (("--immediate-uid", str(NOBODY.pw_uid), "--immediate-gid", "12345"), NOBODY.pw_uid, 12345),
        (("--immediate-gid", "12345"), 0, 12345),
    ],
    ids=["user", "numbers", "group"],
)
def test_the_master_itself_gives_root_up_before_it_makes_anything(options, user, group, start, open_folder, everybody):
    shared = open_folder / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    instance = start(
        *options, "--socket", shared / "app.sock", "--pidfile", shared / "pid",
        "--chdir", open_folder, "--hook-asap", f"exec:touch {shared}/hook", "--processes", "2",
        command=everybody,
    )  # fmt: skip
    wait_until(lambda: len(instance.workers()) == 2, "two workers")
    for pid in [instance.pid, instance.prototype(), *instance.workers()]:
        assert status_field(pid, "Uid").split() == [str(user)] * 4
        assert status_field(pid, "Gid").split() == [str(group)] * 4
    for name in ("app.sock", "pid", "hook"):
        found = (shared / name).stat()
        assert (found.st_uid, found.st_gid) == (user, group), name
    facts = json.loads(instance.body("/facts"))
    assert facts["user"] == [user, group]
    assert 0 not in facts["groups"]
    instance.reload(2)
    assert json.loads(instance.body("/facts"))["user"] == [user, group]


@root_only
def test_a_configuration_that_no_reload_could_read_is_told_at_the_start(start, open_folder, everybody):
    configuration = open_folder / "secret.ini"
    configuration.write_text(
        f"[uwsgi]\nhttp-socket = 127.0.0.1:0\nchdir = {open_folder}\nmodule = probe\nimmediate-uid = nobody\n"
    )
    configuration.chmod(0o600)
    options = {"socket": None, "module": None, "command": everybody}
    instance = start(configuration, **options)
    assert "WARNING: no reload will do: the user of immediate-uid can't read all of the configuration: " in instance.log
    assert f"{configuration}" in instance.log
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 1 goes on serving")
    assert instance.body()


@root_only
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--immediate-uid", "root"), "immediate-uid = root gives nothing up"),
        (("--immediate-gid", "0"), "immediate-gid = root gives nothing up"),
        (("--immediate-uid", "no-such-user"), "no user is called `no-such-user` (immediate-uid)"),
        (("--immediate-gid", "no-such-group"), "no group is called `no-such-group` (immediate-gid)"),
        (("--immediate-uid", "54321"), "set immediate-gid too"),
        (("--immediate-uid", "nobody", "--uid", "12345"), "uid = 12345 needs root, and Bolide was started as nobody"),
        (("--immediate-uid", "nobody", "--pidfile", "/root/app.pid"), "/root/app.pid"),
    ],
)
def test_what_can_not_be_given_up_ends_the_start(options, words, fail):
    status, lines = fail(*SERVE, "--chdir", "/", *options)
    assert status == START_FAILED
    assert words in lines[-1], lines
