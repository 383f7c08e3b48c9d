"""Limits of memory, CPU and tasks of each site (`vassal-limits`): control groups of the kernel's (version 2).

Most machines of tests have no group with controllers that a test may use. So a directory of files takes the place of the
kernel's: it shows what is written, and not what the kernel does with it. The last test is on the kernel itself.
"""

import subprocess
from pathlib import Path

import pytest
from support.emperor import Emperor
from support.server import program
from support.waiting import TIMEOUT_SECONDS, wait_until

LIMITS = ["vassal-limits = memory=512,cpu=50", "vassal-limits = name=big*,memory=2048,tasks=300"]


@pytest.fixture
def groups(tmp_path):
    """A directory in place of the group of the emperor's service."""
    groups = tmp_path / "groups"
    groups.mkdir()
    (groups / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    # The kernel makes this file with each group.
    for name in ("site:0:one.ini", "site:0:big%20one.ini"):
        (groups / name).mkdir()
        (groups / name / "cgroup.procs").touch()
    return groups


@pytest.fixture
def emperor(tmp_path, groups):
    """Makes an emperor with these lines, in that group."""
    made = []

    def emperor(*lines, group=groups):
        environment = {"BOLIDE_TEST_CGROUP": str(group)} if group else None
        made.append(Emperor(program(), tmp_path, "emperor = {directory}/vassals", *lines, environment=environment))
        return made[-1]

    yield emperor
    for one in made:
        one.finish()


def site(port):
    return [f"http-socket = 127.0.0.1:{port}"]


def written(group):
    return {path.name: path.read_text() for path in group.iterdir() if path.is_file()}


def test_each_site_is_in_a_group_with_its_limits_before_it_runs(emperor, groups, free_port):
    one, big = free_port(), free_port()
    emperor = emperor(*LIMITS)
    emperor.write("one.ini", *site(one))
    emperor.write("big one.ini", *site(big))
    emperor.start()
    emperor.answer(one)
    emperor.answer(big)
    # A `0` is the process that writes it, which is the vassal's before its program.
    assert written(groups / "site:0:one.ini") == {"memory.max": str(512 << 20), "cpu.max": "50000 100000", "cgroup.procs": "0"}
    of_big = {"memory.max": str(2 << 30), "cpu.max": "50000 100000", "pids.max": "300", "cgroup.procs": "0"}
    assert written(groups / "site:0:big%20one.ini") == of_big
    assert written(groups / "emperor") == {"cgroup.procs": str(emperor.process.pid)}
    assert (groups / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_an_emperor_whose_group_the_service_manager_has_made_uses_the_one_above(emperor, groups, free_port):
    port = free_port()
    (groups / "emperor").mkdir()
    emperor = emperor(*LIMITS, group=groups / "emperor")
    emperor.write("one.ini", *site(port))
    emperor.start()
    emperor.answer(port)
    assert written(groups / "site:0:one.ini")["memory.max"] == str(512 << 20)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vassal-limits = memory=0", "has `memory=0`, but not a number from 1 to 1048576"),
        ("vassal-limits = memory=1G", "has `memory=1G`"),
        ("vassal-limits = cpu=-1", "has `cpu=-1`"),
        ("vassal-limits = disk=5", "has an unknown `disk`"),
        ("vassal-limits = name=one.ini", "limits nothing"),
        ("vassal-limits = name=a**b,cpu=50", "`a**b` is not a pattern of names"),
    ],
)
def test_a_limit_that_is_none_is_told_at_startup(emperor, line, words):
    emperor = emperor(line).start()
    assert emperor.process.wait(TIMEOUT_SECONDS) != 0
    assert words in emperor.log


def test_a_group_without_the_controllers_is_told_at_startup_with_what_to_do(emperor, groups):
    (groups / "cgroup.controllers").write_text("cpuset cpu\n")
    emperor = emperor(*LIMITS).start()
    assert emperor.process.wait(TIMEOUT_SECONDS) != 0
    assert "has no controller for memory, pids: start the emperor as a service with `Delegate=yes`" in emperor.log


def controllers():
    """Returns the controllers of the group that this process is in, and the group."""
    line = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")), None)
    if line is None:
        return [], None
    group = Path("/sys/fs/cgroup") / line[len("0::/") :]
    try:
        return (group / "cgroup.controllers").read_text().split(), group
    except OSError:
        return [], group


def test_the_kernel_limits_a_site_or_the_emperor_tells_why_it_can_not(emperor, free_port):
    port = free_port()
    emperor = emperor("vassal-limits = tasks=300", group=None)
    emperor.write("one.ini", *site(port))
    emperor.start()
    known, group = controllers()
    if "pids" not in known:
        assert emperor.process.wait(TIMEOUT_SECONDS) != 0
        assert "vassal-limits: " in emperor.log
        return
    wait_until(lambda: emperor.process.poll() is not None or "serving" in status_of(emperor), lambda: emperor.log)
    if emperor.process.poll() is not None:
        # This group is not ours, or has other processes.
        assert "vassal-limits: " in emperor.log
        return
    (pid,) = [int(word) for word in (group / "site:0:one.ini/cgroup.procs").read_text().split()][:1]
    assert Path(f"/proc/{pid}").exists()
    assert (group / "site:0:one.ini/pids.max").read_text() == "300\n"
    emperor.stop()
    assert not (group / "site:0:one.ini").exists()


def status_of(emperor):
    command = [*program(), "status", str(emperor.directory / "emperor.ini")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return done.stdout
