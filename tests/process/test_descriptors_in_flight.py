"""Descriptors on their way between processes count for all processes of a user, and the kernel refuses others above the
limit of open files (unix(7), ETOOMANYREFS). Neither the connections of killed workers nor other programs keep an instance from
forking.

The instances run as another user: the kernel does not limit root.
"""

import os
import shutil
import signal
import subprocess

import pytest
from support_instance import APPLICATIONS
from support_kept import Kept
from support_stuck import LIMIT, stick, wait_until_killed
from support_users import python_for_everybody

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a program as another user")

#: Fills pairs of sockets with as many descriptors as the argument says, and waits for the end of its input.
HOLDER = """\
import array, socket, sys
pairs, left = [], int(sys.argv[1])
with open("/dev/null") as file:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 50))]
    while left > 0:
        pairs.append(socket.socketpair())
        pairs[-1][0].sendmsg([b"x"], rights)
        left -= 50
print("held", flush=True)
sys.stdin.read()
"""


def as_nobody(limits, *command):
    """Returns the command line that runs a command as `nobody` with these limits of open files."""
    become = 'cd /; exec setpriv --reuid=nobody --regid=nogroup --clear-groups -- "$0" "$@"'
    return ["sh", "-c", f"ulimit -Sn {limits[0]}; ulimit -Hn {limits[1]}; {become}", *command]


@pytest.fixture
def start_as_nobody(start, open_directory):
    python = python_for_everybody(open_directory)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    for probe in ("sticking.py", "probe.py"):
        shutil.copy(APPLICATIONS / probe, open_directory)

    def start_as_nobody(limits, *options):
        command = as_nobody(limits, python, "-m", "bolide")
        instance = start("--pythonpath", open_directory, *options, module="sticking", command=command, alarms=True)
        instance.calls = 1
        return instance

    start_as_nobody.python = python
    return start_as_nobody


def test_an_instance_whose_workers_are_all_killed_with_many_connections_serves_again(start_as_nobody, open_directory):
    instance = start_as_nobody((200, 200), "--processes", "2", *LIMIT)
    kept = [Kept(instance) for _ in range(250)]
    for one in kept:
        one.ask()
    os.chmod(open_directory, 0o777)
    stuck, killed = stick(instance, open_directory, 2)
    wait_until_killed(stuck)
    assert instance.body("/pid") not in killed
    assert "can't be ordered" not in instance.whole_log()


def test_a_worker_is_replaced_although_another_program_of_the_user_has_many_descriptors_in_flight(start_as_nobody):
    instance = start_as_nobody((200, 4000))
    holder = subprocess.Popen(
        as_nobody((4000, 4000), start_as_nobody.python, "-c", HOLDER, "600"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        said = holder.stdout.readline()
        assert said == b"held\n"
        worker = instance.worker()
        os.kill(worker, signal.SIGKILL)
        instance.wait_for_replacement(worker)
        assert instance.body("/pid") == str(instance.worker())
        assert "can't be ordered" not in instance.whole_log()
    finally:
        holder.stdin.close()
        holder.wait()
