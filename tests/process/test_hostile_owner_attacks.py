"""Other attacks of the application's user on root's privileges: directories, pidfiles of daemons, access lists, and
blocking reads.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from support import processes
from support.server import program
from support.waiting import wait_until
from support_hostile import Ground, identity_options
from support_instance import START_FAILED
from support_processes import is_alive
from support_users import NOBODY, may

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def ground(open_directory):
    return Ground(open_directory)


@pytest.fixture
def begin(start, ground):
    def begin(*options, ready=True, **more):
        identity, command = identity_options(ground.directory)
        return start(*identity, *options, ready=ready, command=command, logging=True, **more)

    return begin


def test_relative_files_of_hooks_lie_in_the_directory_that_is_written(begin, ground):
    old = ground.outside / "open" / "old"
    old.write_text("of root's\n")
    old.chmod(0o600)
    ground.before = ground.look()
    ground.act("ln -s $OUTSIDE/open current")
    for hook in ("write:flag x", "chown:old nobody nogroup", "unlink:old"):
        instance = begin_again(begin, ground, "--chdir", ground.theirs / "current", "--hook-as-root", hook)
        assert instance.wait_for_exit() == START_FAILED
        ground.is_untouched()


def begin_again(begin, ground, *options):
    shutil.rmtree(ground.directory / "everybody", ignore_errors=True)
    return begin(*options, ready=False)


def test_relative_files_of_hooks_lie_where_a_hook_went_before(begin, ground):
    (ground.directory / "one").mkdir()
    hooks = ("--hook-asap", "write:first yes", "--hook-pre-jail", "cd:one", "--hook-pre-jail", "write:here yes")
    instance = begin(*hooks, "--hook-as-root", "append:here no")
    assert instance.stop() == 0
    assert (ground.directory / "one" / "here").read_text() == "yesno"


@pytest.mark.parametrize("when", ["start", "reload"])
def test_chdir_leads_into_no_directory_that_the_user_can_not_enter(when, begin, ground):
    inner = ground.outside / "closed" / "inner"
    inner.mkdir(mode=0o755)
    ground.before = ground.look()
    ground.act("mkdir own; cp $OUTSIDE/../probe.py own; ln -s own current")
    if when == "start":
        ground.act("ln -sfn $OUTSIDE/closed/inner current")
    instance = begin("--chdir", ground.theirs / "current", ready=when == "reload")
    if when == "start":
        assert instance.wait_for_exit() == START_FAILED
        assert "chdir = " in instance.log.splitlines()[-1]
        return
    ground.act("ln -sfn $OUTSIDE/closed/inner current")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"chdir = .*Permission denied|chdir = .*is a link")
    assert os.readlink(f"/proc/{instance.workers()[0]}/cwd") == str(ground.theirs / "own")
    assert instance.stop() == 0


def test_a_daemon_begins_in_no_directory_that_its_user_can_not_enter(begin, ground):
    instance = begin("--attach-daemon2", f"cmd=echo in `pwd`; exec sleep 1000,chdir={ground.outside}/closed")
    instance.wait_for_log("daemon .*Permission denied")
    assert "[daemon echo] in" not in instance.log
    assert instance.stop() == 0


def kill_daemon(instance):
    """One with a pidfile would live on."""
    instance.wait_for_log("daemon sleep: started")
    pid = int(re.search(r"daemon sleep: started \(pid (\d+)\)", instance.log)[1])
    processes.kill(pid)
    wait_until(lambda: not is_alive(pid), "the end of the daemon")


@pytest.mark.parametrize("user", ["root", "games"])
def test_a_daemons_pidfile_that_the_applications_user_has_written_names_no_process_of_others(user, begin, ground):
    victim = subprocess.Popen(["sleep", "1000"], user=user, group=0, extra_groups=[])
    try:
        ground.act(f"echo {victim.pid} >d.pid")
        daemon = f"cmd=exec sleep 1001,pidfile={ground.theirs}/d.pid,uid={user},stopsignal=9,notifypid=1"
        instance = begin("--attach-daemon2", daemon, alarms=True)
        kill_daemon(instance)
        assert instance.stop() == 0
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_the_pidfile_of_a_daemon_of_roots_is_written_to_no_other_directory(begin, ground):
    ground.act("ln -s $OUTSIDE/open run")
    daemon = f"cmd=exec sleep 1001,pidfile={ground.theirs}/run/d.pid,uid=0,daemonize=1,notifypid=1"
    instance = begin("--attach-daemon2", daemon, alarms=True)
    instance.wait_for_log("daemon sleep: started .*can't be written")
    kill_daemon(instance)
    assert instance.stop() == 0
    ground.is_untouched()


def test_an_access_control_list_that_lets_the_user_write_is_warned_of(begin, ground):
    configuration = ground.directory / "app.ini"
    configuration.write_text("[uwsgi]\nharakiri = 60\n")
    if shutil.which("setfacl") is None or not may("setfacl", "-m", "u:nobody:rw", configuration):
        pytest.skip("access control lists are not there")
    instance = begin("--ini", configuration)
    instance.wait_for_log(rf"WARNING: the user `nobody` \(uid\) may change {configuration}")
    assert instance.stop() == 0


@pytest.mark.parametrize("option", ["include", "for-readline", "env-file"])
def test_a_fifo_of_the_user_holds_up_no_start(option, begin, ground):
    ground.act("mkfifo part.ini")
    configuration = ground.directory / "app.ini"
    part = ground.theirs / "part.ini"
    lines = {"for-readline": f"for-readline = {part}\nenv = A=%(_)\nendfor =\n"}
    configuration.write_text(f"[uwsgi]\n{lines.get(option, f'{option} = {part}')}\n")
    instance = begin("--ini", configuration, ready=False)
    assert instance.wait_for_exit() == START_FAILED
    assert "named pipe of another user" in instance.log


def test_a_pipe_of_the_shell_is_read_as_a_configuration(ground):
    reader, writer = os.pipe()
    os.write(writer, b"[uwsgi]\nenv = FROM=pipe\n")
    os.close(writer)
    os.set_inheritable(reader, True)
    command = [*program(), "config", "--ini", f"/dev/fd/{reader}", "--http-socket", ":8000", "--module", "app"]
    done = subprocess.run(
        command, pass_fds=[reader], capture_output=True, text=True, cwd=ground.directory, check=False, timeout=60
    )
    os.close(reader)
    assert "FROM=pipe" in done.stdout, done.stderr


def test_a_signal_ends_the_wait_for_a_configuration_of_the_user_that_hangs(begin, ground):
    part = ground.theirs / "part.ini"
    ground.act("echo '[uwsgi]' >app.ini; mkfifo part.ini")
    instance = begin("--ini", ground.theirs / "app.ini")
    ground.act(f"echo 'include = {part}' >>app.ini")
    instance.send_signal(signal.SIGHUP)

    def is_read():
        try:
            return os.open(part, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    writer = wait_until(is_read, "the configuration to be read")
    assert instance.stop() == 0
    os.close(writer)
    assert "a signal ended it" in instance.log


def test_a_listener_of_the_user_that_accepts_nothing_holds_up_no_hook(begin, ground):
    path = ground.theirs / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        held = []
        for _ in range(16):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            held.append(client)
            if client.connect_ex(str(path)):
                break
        instance = begin("--hook-asap", f"wait_for_socket:{path}")
        assert instance.stop() == 0
        for client in held:
            client.close()


def test_a_failed_hook_within_name_spaces_leaves_no_control_socket_and_no_fifo(begin, ground):
    if not may("unshare", "--ipc", "true"):
        pytest.skip("name spaces are not supported")
    run = ground.directory / "run"
    run.mkdir()
    options = ("--control-socket", run / "ctl", "--master-fifo", run / "fifo", "--pidfile", run / "pid")
    instance = begin(*options, "--unshare", "ipc", "--hook-post-jail", "exec:false", ready=False)
    assert instance.wait_for_exit() == START_FAILED
    assert list(run.iterdir()) == []


def test_a_link_to_a_pipe_of_roots_takes_nothing_out_of_it(begin, ground):
    pipe = ground.outside / "closed" / "pipe"
    os.mkfifo(pipe, 0o600)
    ground.before = ground.look()
    ground.act("echo 'text/x-own own' >types")
    instance = begin("--mimefile", ground.theirs / "types", "--static-map", f"/s={ground.theirs}")
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write('x' * 100000)"])
    try:
        ground.act("ln -sf $OUTSIDE/closed/pipe types")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("types.*is not a file")
        # It still waits for a reader.
        assert os.read(os.open(pipe, os.O_RDONLY), 1) == b"x"
        assert instance.stop() == 0
    finally:
        writer.kill()
        writer.wait()
        os.chown(ground.theirs, NOBODY.pw_uid, NOBODY.pw_gid)
