"""Daemons attached to the application: started with it, restarted on exit and at a reload, and stopped with it."""

import os
import signal
from pathlib import Path

import pytest
from support import processes
from support.server import program
from support.waiting import wait_until
from support_processes import command_line_of, descriptors_of, is_alive, status_field


def written(path):
    """Returns the numbers in a file, one a line, without an incomplete last line."""
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.fixture
def daemon(tmp_path):
    """Returns a command that writes its pid to a file with this name and runs on, and the file; remaining processes are killed
    with the test.
    """
    files = []

    def daemon(name="daemon", before="", after="exec sleep 1000"):
        path = tmp_path / f"{name}.pids"
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{before}\necho $$ >> {path}\necho {name} is there\n{after}\n")
        script.chmod(0o755)
        files.append(path)
        return script, path

    yield daemon
    for pid in (pid for file in files for pid in written(file)):
        if is_alive(pid):
            processes.kill(pid)


def first_pid(path):
    return wait_until(lambda: written(path), f"a pid in {path}")[0]


def wait_until_gone(pid):
    wait_until(lambda: not is_alive(pid), f"the end of {pid}")


def test_a_daemon_runs_beside_the_application_writes_to_the_log_and_ends_with_it(start, daemon):
    script, pids = daemon()
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    pid = first_pid(pids)
    instance.wait_for_log(r"^\[daemon daemon\] daemon is there$")
    instance.wait_for_log(rf"^bolide: daemon daemon: started \(pid {pid}\)")
    assert instance.body()
    # Until then the shell has its script open.
    wait_until(lambda: command_line_of(pid) == "sleep 1000", "the daemon's program")
    # It has its own session, and no descriptor of the master: besides its streams there is the pipe that ties its life to the
    # master's.
    assert os.getsid(pid) == pid
    (leash,) = [target for number, target in descriptors_of(pid).items() if number > 2]
    assert leash.startswith("pipe:")
    assert not {leash} & {target for process in (instance.pid, instance.worker()) for target in descriptors_of(process).values()}
    assert status_field(pid, "SigBlk") == "0" * 16
    assert instance.stop() == 0
    assert not is_alive(pid)
    # A requested end is not a fault.
    instance.wait_for_text(f"daemon daemon (pid {pid}) ended on SIGTERM")
    assert "was killed by" not in instance.log


def test_daemons_of_the_same_program_are_told_apart_by_their_arguments(start, daemon):
    script, pids = daemon()
    instance = start("--attach-daemon", f"exec {script} reports", "--attach-daemon", f"{script} --word=secret mails", alarms=True)
    wait_until(lambda: len(written(pids)) == 2, lambda: instance.log)
    for name in ("daemon reports", "daemon mails"):
        instance.wait_for_log(rf"^bolide: daemon {name}: started \(pid \d+\)")
        instance.wait_for_log(rf"^\[daemon {name}\] daemon is there$")
    assert "secret" not in instance.log


def test_requests_in_flight_are_answered_before_daemons_are_stopped(start, daemon, tmp_path):
    script, pids = daemon()
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    pid = first_pid(pids)
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    assert is_alive(pid)
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.wait_for_exit() == 0
    assert not is_alive(pid)


def test_a_daemon_that_dies_is_started_again_and_one_that_dies_at_birth_after_a_pause(start, daemon):
    script, pids = daemon(after="exit 3")
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    instance.wait_for_log(r"^bolide: daemon daemon \(pid \d+\) exited with status 3; restarting in 1 s")
    instance.wait_for_log(r"^bolide: daemon daemon \(pid \d+\) exited with status 3; restarting in 2 s")
    assert len(written(pids)) >= 2
    assert instance.body()
    assert instance.stop() == 0


def test_a_daemon_that_another_process_kills_is_logged_as_killed(start, daemon):
    script, pids = daemon()
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    pid = first_pid(pids)
    processes.kill(pid, signal.SIGTERM)
    # It restarts without a pause if the daemon has lived for three seconds, as on a busy machine.
    instance.wait_for_log(rf"^bolide: daemon daemon \(pid {pid}\) was killed by SIGTERM; restarting (in 1 s|immediately)")


def test_a_daemon_that_ends_on_request_has_its_status_in_the_log(start, daemon):
    script, pids = daemon(before="trap 'exit 3' TERM", after="while :; do sleep 0.05; done")
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    pid = first_pid(pids)
    assert instance.stop() == 0
    instance.wait_for_text(f"daemon daemon (pid {pid}) ended with status 3")


def test_a_daemon_that_ignores_its_signal_is_killed_and_so_is_what_it_has_started(start, daemon):
    script, pids = daemon(before="trap '' TERM\nsleep 1000 &\necho $! > $0.child", after="while :; do sleep 1000; done")
    instance = start("--attach-daemon", f"exec {script}", "--reload-mercy", "1", alarms=True)
    pid = first_pid(pids)
    child = int(Path(f"{script}.child").read_text())
    assert instance.stop() == 0
    assert not is_alive(pid)
    wait_until_gone(child)
    instance.wait_for_log(r"^bolide: daemon daemon \(pid \d+\) has not exited after SIGTERM: killing it$")
    instance.wait_for_text(f"daemon daemon (pid {pid}) was killed by SIGKILL")


def test_nothing_of_a_daemon_outlives_a_killed_master_and_a_killed_attendant_is_replaced(start, daemon):
    script, pids = daemon()
    instance = start("--attach-daemon", script, "--auto-procname", alarms=True)
    pid = first_pid(pids)
    attendant = processes.look(pid).parent
    assert Path(f"/proc/{attendant}/cmdline").read_bytes().startswith(b"bolide attendant")
    os.kill(attendant, signal.SIGKILL)
    wait_until_gone(pid)
    wait_until(lambda: len(written(pids)) == 2, "the daemon of another attendant")
    pid = written(pids)[1]
    assert is_alive(pid)
    assert instance.body()
    instance.send_signal(signal.SIGKILL)
    instance.process.wait()
    wait_until_gone(pid)
    instance.wait_until_gone()


def test_a_reload_restarts_daemons_once_the_new_generation_serves(start, daemon):
    script, pids = daemon()
    instance = start("--attach-daemon2", f"cmd=exec {script},reloadsignal=1", alarms=True)
    pid = first_pid(pids)
    instance.reload(2)
    wait_until(lambda: len(written(pids)) == 2, "the daemon to be started again")
    instance.wait_for_text(f"daemon daemon (pid {pid}) ended on SIGHUP")
    assert not is_alive(pid)
    assert is_alive(written(pids)[1])
    assert instance.stop() == 0


def test_a_reload_that_fails_leaves_daemons_alone(start, daemon, tmp_path):
    script, pids = daemon()
    (tmp_path / "fragile.py").write_text(
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'ok']\n"
    )
    instance = start("--attach-daemon", f"exec {script}", "--pythonpath", tmp_path, module="fragile", alarms=True)
    pid = first_pid(pids)
    (tmp_path / "fragile.py").write_text("raise RuntimeError('broken')\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 1 keeps serving")
    assert is_alive(pid)
    assert written(pids) == [pid]


def test_a_control_daemon_takes_the_instance_with_it(start, daemon):
    script, pids = daemon(after="while [ ! -e $0.end ]; do sleep 0.05; done")
    instance = start("--attach-control-daemon", f"exec {script}", alarms=True)
    first_pid(pids)
    Path(f"{script}.end").touch()
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("exited with status 0, and the instance exits with it")


def test_a_touched_file_restarts_a_daemon(start, daemon, tmp_path):
    script, pids = daemon()
    touched = tmp_path / "daemon.conf"
    touched.touch()
    os.utime(touched, (1, 1))
    instance = start("--attach-daemon2", f"cmd=exec {script},touch={tmp_path}/other;{touched},stopsignal=2", alarms=True)
    pid = first_pid(pids)
    os.utime(touched, (2, 2))
    wait_until(lambda: len(written(pids)) == 2, "the daemon to be started again")
    assert not is_alive(pid)
    instance.wait_for_text("daemon.conf was touched: restarting it")
    instance.wait_for_text(f"(pid {pid}) ended on SIGINT; restarting immediately")


def test_a_smart_daemon_outlives_the_instance_and_is_found_by_the_next(start, daemon, tmp_path):
    pidfile = tmp_path / "smart.pid"
    script, pids = daemon()
    # It writes to the log itself, so the log is a file here: nothing reads a pipe during its whole lifetime.
    log = tmp_path / "log"
    instance = start("--smart-attach-daemon2", f"{pidfile} exec {script}", "--logto", log, alarms=True)
    pid = first_pid(pids)
    wait_until(lambda: written(pidfile) == [pid], "the pidfile")
    assert instance.stop() == 0
    assert is_alive(pid)
    log.unlink()
    second = start("--smart-attach-daemon2", f"{pidfile} exec {script}", "--logto", log, alarms=True)
    second.wait_for_log(rf"^bolide: daemon daemon: already running \(pid {pid}, according to its pidfile\)")
    processes.kill(pid)
    wait_until(lambda: len(written(pids)) == 2, "the daemon to be started again")
    second.wait_for_log(rf"the process in its pidfile \({pid}\) has ended")
    assert second.stop() == 0
    assert is_alive(written(pids)[1])


def test_a_smart_daemon_in_the_background_gets_a_signal_at_a_stop_if_configured(start, daemon, tmp_path):
    pidfile = tmp_path / "smart.pid"
    script, pids = daemon()
    background = tmp_path / "background"
    background.write_text(f"#!/bin/sh\nsetsid {script} </dev/null >/dev/null 2>&1 &\necho $! > {pidfile}\n")
    background.chmod(0o755)
    instance = start("--attach-daemon2", f"cmd={background},pidfile={pidfile},notifypid=1", alarms=True)
    instance.wait_for_log(r"^bolide: daemon background: its pidfile contains \d+")
    pid = first_pid(pids)
    assert instance.stop() == 0
    wait_until_gone(pid)


def test_a_flood_of_a_daemon_neither_blocks_it_nor_the_instance(start, daemon):
    script, pids = daemon(
        after="i=0\nwhile [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done\necho flood is over > $0.over\nexec sleep 1000"
    )
    instance = start("--attach-daemon", f"exec {script}", alarms=True)
    first_pid(pids)
    instance.leave_log()
    wait_until(Path(f"{script}.over").exists, "the daemon to have written everything, with nobody who reads the log")
    assert instance.body()
    instance.read_log()
    assert instance.stop() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a daemon as another user")
def test_a_daemon_runs_as_the_user_that_it_names(start, tmp_path):
    os.chmod(tmp_path, 0o777)
    instance = start("--attach-daemon2", "cmd=id -u; id -g; id -G; exec sleep 1000,uid=nobody,chdir=/", alarms=True)
    instance.wait_for_log(r"^\[daemon id\] 65534$", count=3)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("attach-daemon2", "stopsignal=15", "has no command"),
        ("attach-daemon2", "cmd=x,ns_pid=1", "unshare --pid"),
        ("attach-daemon2", "cmd=x,uid=no-such-user-here", "no user is called `no-such-user-here`"),
        ("attach-daemon2", "cmd=x,daemonize=1", "no pidfile"),
        ("attach-daemon2", "cmd=x,stopsignal=99", "number from 1 to 64"),
        ("smart-attach-daemon", "/tmp/x.pid", "needs a pidfile and a command"),
        ("legion-attach-daemon", "lord x", "write `lock-engine = redis://HOST:6379/0`"),
    ],
)
def test_a_daemon_that_can_not_be_is_refused_at_the_start(refuse, option, value, words):
    refuse(option, value, words)


def test_a_reload_takes_the_daemons_of_the_configuration_as_it_is_then(start, daemon, tmp_path):
    (first, first_pids), (second, second_pids) = daemon("first"), daemon("second")
    configuration = tmp_path / "uwsgi.ini"
    configuration.write_text(f"[uwsgi]\nattach-daemon = exec {first}\n")
    instance = start("--ini", configuration, alarms=True)
    pid = first_pid(first_pids)
    configuration.write_text(f"[uwsgi]\nattach-daemon = exec {second}\n")
    instance.reload(2)
    assert is_alive(first_pid(second_pids))
    wait_until_gone(pid)
    assert instance.stop() == 0
    assert written(first_pids) == [pid]


def test_a_stop_says_that_daemons_are_waited_for(start, daemon):
    script, pids = daemon(before="trap '' TERM", after="while :; do sleep 0.1; done")
    instance = start("--attach-daemon", script, "--reload-mercy", "3", alarms=True)
    first_pid(pids)
    assert instance.stop() == 0
    instance.wait_for_text("bolide: stop: no request is in flight; waiting for daemons and cron commands to exit; ")


@pytest.fixture
def two(tmp_path):
    """Returns a command line of two parallel programs, and the pids that they have written, two for each run."""
    path = tmp_path / "two.pids"

    def pids(starts=1):
        return wait_until(lambda: len(written(path)) == 2 * starts and written(path), f"the programs of {starts} starts")[-2:]

    one = f"(echo $(exec sh -c 'echo $PPID') >> {path}; exec sleep 1000)"
    yield f"{one} & {one} & wait", pids
    for pid in written(path):
        if is_alive(pid):
            processes.kill(pid)


def attendant_of(instance, pid):
    """Returns the helper process of a program that was started by a shell of the helper."""
    return processes.look(processes.look(pid).parent).parent


def test_the_programs_of_one_command_line_go_with_a_killed_attendant_before_others_follow(start, two):
    command, pids = two
    instance = start("--attach-daemon", command, alarms=True)
    before = pids()
    os.kill(attendant_of(instance, before[0]), signal.SIGKILL)
    after = pids(starts=2)
    assert not any(map(is_alive, before))
    assert instance.stop() == 0
    wait_until(lambda: not any(map(is_alive, after)), "the end of the programs")


def test_the_programs_of_one_command_line_go_when_master_and_attendant_are_killed_together(start, two):
    command, pids = two
    instance = start("--attach-daemon", command, alarms=True)
    started = pids()
    attendant = attendant_of(instance, started[0])
    # Neither can do anything about the other's end.
    for pid in (attendant, instance.pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (attendant, instance.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, started)), "the end of the programs")
    instance.wait_until_gone()


def test_a_command_of_cron_goes_with_a_killed_attendant_and_what_one_left_behind_does_not(start, tmp_path):
    left, running = tmp_path / "left", tmp_path / "running"
    leaves = f"sleep 1000 > /dev/null 2>&1 & echo $! > {left}"
    stays = f"sleep 1000 & echo $! > {running}; wait"
    instance = start("--cron", f"-1 -1 -1 -1 -1 {leaves}", "--unique-cron", f"-1 -1 -1 -1 -1 {stays}", alarms=True)
    instance.wait_for_log(r"^bolide: cron sleep \(pid \d+\) exited with status 0")
    (pid,), (other,) = (wait_until(lambda path=path: written(path), f"a pid in {path}") for path in (left, running))
    try:
        os.kill(attendant_of(instance, other), signal.SIGKILL)
        wait_until_gone(other)
        assert is_alive(pid)
    finally:
        processes.kill(pid)
        processes.kill(other)


@pytest.mark.parametrize(("options", "told"), [((), ""), (("--daemons-honour-stdin",), "from the terminal")])
def test_daemons_read_the_standard_input_of_the_instance_where_daemons_honour_stdin_says_so(start, tmp_path, options, told):
    (tmp_path / "typed").write_text("from the terminal\n")
    typing = ["/bin/sh", "-c", f'exec "$@" < {tmp_path}/typed', "sh", *program()]
    reads = 'read line; echo "has read: $line"; exec sleep 1000'
    instance = start("--attach-daemon", reads, *options, command=typing)
    instance.wait_for_log(rf"^\[daemon \S+\] has read: {told}$")


def test_binsh_is_the_shell_of_daemons_jobs_and_hooks_the_first_one_that_is_there(start, tmp_path):
    commands, shell = tmp_path / "commands", tmp_path / "shell"
    shell.write_text(f'#!/bin/sh\necho "$2" >> {commands}\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    shells = ("--binsh", f"{tmp_path}/none", "--binsh", str(shell), "--binsh", "/bin/false")
    jobs = ("--attach-daemon", "echo daemon; exec sleep 1000", "--cron", "-1 -1 -1 -1 -1 echo job", "--exec-asap", "echo step")
    instance = start(*shells, *jobs, alarms=True)
    for said in (r"\[daemon \S+\] daemon", r"\[cron \S+\] job", "step"):
        instance.wait_for_log(f"^{said}$")
    assert sorted(commands.read_text().splitlines()) == ["echo daemon; exec sleep 1000", "echo step", "exec echo job"]
