"""The command of an alarm runs as the application's user and does not want to end: root's master answers, reloads and stops, and
nothing of the action is left behind.
"""

import os
import shutil
import signal

import pytest
from support import processes
from support.waiting import wait_until
from support_hostile import identity_options
from support_instance import APPLICATIONS, DONE
from support_processes import is_alive
from support_users import NOBODY

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

#: Actions of one alarm that run at the same time: others wait.
MAX_RUNNING = 4
#: `$$` is the command, and `$PPID` the process that executes it, which belongs to the same user.
HARMS = {
    "stops itself": "kill -STOP $$",
    "stops the process above it": "kill -STOP $PPID; exec sleep 1000",
    "kills the process above it": "kill -KILL $PPID; exec sleep 1000",
    "never ends and ignores the request to": "trap '' TERM INT HUP QUIT; sleep 1000 & wait; sleep 1000",
    "stops its whole group": "trap '' TERM; sleep 1000 & kill -STOP 0",
    "writes megabytes": "yes $(head -c 1000 /dev/zero | tr '\\0' y) | head -c 3000000; exec sleep 1000",
    "writes a line without an end": "head -c 3000000 /dev/zero | tr '\\0' y; exec sleep 1000",
    "closes its output": "exec >&- 2>&-; exec sleep 1000",
    "writes without a pause": "exec yes",
}
#: Those whose lines the test does not read: nothing waits for a reader.
UNREAD = {"writes without a pause"}


@pytest.mark.parametrize("harm", HARMS)
def test_an_action_of_an_alarm_keeps_the_master_from_nothing(harm, start, call, open_directory):
    shutil.copy(APPLICATIONS / "probe.py", open_directory)
    noted = open_directory / "noted"
    noted.touch()
    os.chown(noted, NOBODY.pw_uid, NOBODY.pw_gid)
    program = open_directory / "harm"
    program.write_text(f"#!/bin/sh\nread -r line\necho $$ $(id -u) >> {noted}\n{HARMS[harm]}\n")
    program.chmod(0o755)
    options, command = identity_options(open_directory)
    instance = start(
        *options, "--alarm", f"bad cmd:exec {program}", "--log-alarm", "bad ring-the-alarm", "--reload-mercy", "1",
        "--worker-reload-mercy", "1", command=command, alarms=True, logging=True,
    )  # fmt: skip

    def pids():
        lines = [line.split() for line in noted.read_text().splitlines()]
        assert {uid for _, uid in lines} <= {str(NOBODY.pw_uid)}
        return [int(pid) for pid, _ in lines]

    def order(*words):
        status, said = call(*words, str(instance.pid))
        assert status == DONE, said

    if harm in UNREAD:
        instance.leave_log()
    try:
        for _ in range(2 * MAX_RUNNING):
            instance.body("/?ring-the-alarm")
        wait_until(lambda: len(pids()) >= MAX_RUNNING, pids)
        order("status")
        order("reload", "--wait")
        order("status")
        assert instance.body("/")
        instance.read_log()
        assert instance.stop(signal.SIGTERM) == 0
        wait_until(lambda: not any(map(is_alive, pids())), lambda: [processes.look(pid) for pid in pids()])
    finally:
        for pid in filter(is_alive, pids()):
            processes.kill(pid)


STARTERS = {
    "alarm": lambda program, touched: ("--alarm", f"bad cmd:exec {program}", "--log-alarm", "bad ring-the-alarm"),
    "touch hook": lambda program, touched: ("--hook-touch", f"{touched} exec:exec {program}"),
}


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("harm", ["", "kill -KILL $PPID", "kill -STOP $PPID"])
def test_what_a_program_has_started_goes_with_a_killed_master(harm, starter, start, tmp_path):
    program, noted, touched = tmp_path / "harm", tmp_path / "noted", tmp_path / "touched"
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $$ $! > {noted}.part; mv {noted}.part {noted}\n{harm}\nwait\n")
    program.chmod(0o755)
    touched.touch()
    instance = start(*STARTERS[starter](program, touched), alarms=True, logging=True)
    os.utime(touched, (1, 1))
    instance.body("/?ring-the-alarm")
    wait_until(noted.exists, lambda: instance.log)
    pids = [int(pid) for pid in noted.read_text().split()]
    try:
        instance.send_signal(signal.SIGKILL)
        instance.wait_for_exit()
        wait_until(lambda: not any(map(is_alive, pids)), lambda: [processes.look(pid) for pid in pids])
    finally:
        for pid in filter(is_alive, pids):
            processes.kill(pid)


def test_what_a_touch_hook_has_started_goes_with_it_if_it_is_killed(start, tmp_path):
    program, noted, touched = tmp_path / "harm", tmp_path / "noted", tmp_path / "touched"
    program.write_text(f"#!/bin/sh\necho $$ > {noted}.part; mv {noted}.part {noted}\nkill -KILL $PPID\nexec sleep 1000\n")
    program.chmod(0o755)
    touched.touch()
    instance = start("--hook-touch", f"{touched} exec:exec {program}")
    os.utime(touched, (1, 1))
    pid = int(wait_until(lambda: noted.exists() and noted.read_text(), lambda: instance.log))
    try:
        wait_until(lambda: not is_alive(pid), lambda: f"{processes.look(pid)}\n{instance.log}")
    finally:
        if is_alive(pid):
            processes.kill(pid)
    instance.expects_alarms = True
