"""A hanging hook of the master does not block its signals, and its commands do not outlive it."""

import os
import signal

import pytest
from support import processes
from support.waiting import wait_until
from support_processes import is_alive

#: The startup steps of the master, and how each is configured; the last is inside a jail.
STARTS = {
    "asap": (),
    "pre-jail": (),
    "as-root": (),
    "in-jail": (),
    "master-start": (),
    "as-root in a jail": ("--chroot", "/"),
}
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


@pytest.fixture
def hanging(tmp_path):
    """Returns a command that hangs with a child beside it, and a function with their pids; remaining processes are killed with
    the test.
    """
    path = tmp_path / "hanging.pids"

    def pids():
        numbers = path.read_text().split() if path.exists() else []
        return [int(number) for number in numbers] if len(numbers) == 2 else None

    yield f"exec:sleep 1000 & echo $$ $! > {path}.part; mv {path}.part {path}; wait", lambda: wait_until(pids, "the command")
    for pid in pids() or []:
        if is_alive(pid):
            processes.kill(pid)


def wait_until_gone(pids):
    wait_until(lambda: not any(map(is_alive, pids)), lambda: f"the end of {[processes.look(pid) for pid in pids]}")


def needs_root(step):
    if "--chroot" in STARTS.get(step, ()) and os.getuid() != 0:
        pytest.skip("only root can enter a jail")


@pytest.mark.parametrize("number", [*SIGNALS, signal.SIGKILL])
@pytest.mark.parametrize("step", STARTS)
def test_a_signal_ends_a_start_whose_hook_hangs_and_the_command_goes_with_it(start, hanging, step, number):
    needs_root(step)
    command, running = hanging
    instance = start(f"--hook-{step.split()[0]}", command, *STARTS[step], ready=False)
    pids = running()
    instance.send_signal(number)
    status = instance.wait_for_exit()
    wait_until_gone(pids)
    if number == signal.SIGKILL:
        assert status == -signal.SIGKILL
        return
    # Like a shutdown while the application is loaded.
    assert status == 0
    name = signal.Signals(number).name
    assert f"bolide: not started: {name} arrived: killing the hooks ({step.split()[0]})" in instance.lines[-1]


@pytest.mark.parametrize("step", STARTS)
def test_a_signal_that_comes_twice_does_what_it_does_once(start, hanging, step):
    needs_root(step)
    command, running = hanging
    instance = start(f"--hook-{step.split()[0]}", command, *STARTS[step], ready=False)
    pids = running()
    processes.kill(instance.pid, signal.SIGTERM)
    processes.kill(instance.pid, signal.SIGTERM)
    assert instance.wait_for_exit() in (0, -signal.SIGTERM)
    wait_until_gone(pids)


@pytest.mark.parametrize("step", ["asap", "as-root", "master-start"])
@pytest.mark.parametrize("action", ["write:{pipe} text", "append:{pipe} text", "wait_for_file:{absent}"])
def test_an_endless_action_does_not_block_signals_of_the_master(start, tmp_path, step, action):
    os.mkfifo(tmp_path / "pipe")
    action = action.format(pipe=tmp_path / "pipe", absent=tmp_path / "absent")
    instance = start(f"--hook-{step}", action, ready=False)
    instance.wait_for_text(f"hook {step}: {action.partition(':')[0]}")
    instance.send_signal(signal.SIGTERM)
    assert instance.wait_for_exit() == 0
    instance.wait_until_gone()


@pytest.mark.parametrize("second", [*SIGNALS, signal.SIGKILL])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGQUIT])
def test_a_second_signal_ends_a_hook_of_the_end_that_hangs(start, hanging, first, second):
    command, running = hanging
    instance = start("--hook-as-user-atexit", command, alarms=True)
    instance.send_signal(first)
    pids = running()

    def ends():
        # A signal right after the first may count as the same one, so it is sent once more.
        processes.kill(instance.pid, second)
        return instance.process.poll() is not None

    wait_until(ends, "the end of the master")
    status = instance.wait_for_exit()
    wait_until_gone(pids)
    if second == signal.SIGKILL:
        assert status == -signal.SIGKILL
        return
    assert status == 0
    instance.wait_for_text(f"{second.name} arrived: killing the hooks (as-user-atexit)")


def test_the_end_waits_for_its_hooks_and_what_they_leave_behind_is_let_be(start, tmp_path):
    gate, left = tmp_path / "gate", tmp_path / "left"
    begin = f"sleep 1000 > /dev/null 2>&1 & echo $! > {left}"
    command = f"exec:{begin}; while [ ! -e {gate} ]; do sleep 0.02; done; echo done > {left}.done"
    instance = start("--hook-as-user-atexit", command)
    instance.send_signal(signal.SIGTERM)
    wait_until(lambda: left.exists() and left.read_text().endswith("\n"), "the hook")
    pid = int(left.read_text())
    try:
        assert instance.process.poll() is None
        gate.touch()
        assert instance.wait_for_exit() == 0
        assert (tmp_path / "left.done").exists()
        assert is_alive(pid)
    finally:
        processes.kill(pid)


def test_the_commands_of_a_file_that_was_touched_die_with_a_killed_master(start, hanging, tmp_path):
    command, running = hanging
    file = tmp_path / "touched"
    file.touch()
    instance = start("--touch-exec", f"{file} {command.removeprefix('exec:')}", alarms=True)
    os.utime(file, (1, 1))
    pids = running()
    instance.send_signal(signal.SIGKILL)
    instance.wait_until_gone()
    wait_until_gone(pids)
