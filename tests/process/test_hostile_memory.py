"""A process of the application's user cuts the memory that it shares with a master of root: the master lives, and what was cut is
lost to the application alone.
"""

import os
import shutil
import signal

import pytest
from support.expressions import value
from support.server import APPS
from support.tls import Authority
from support_hostile import Ground, identity_options
from support_instance import DONE
from support_upgrade import UPGRADE

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

#: The application: `expressions.py` and functions that do their worst to each memory file that the process has inherited.
HOSTILE = """
import fcntl, os
from expressions import NAMES, application

F_ADD_SEALS, F_SEAL_FUTURE_WRITE = 1033, 0x10

def memories():
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            name = os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)")
        except OSError:
            continue
        if name.startswith("/memfd:bolide-"):
            yield number, name.removeprefix("/memfd:bolide-")

def is_harmed(number):
    size = os.fstat(number).st_size
    for act in (lambda: os.ftruncate(number, 0), lambda: os.ftruncate(number, size + 4096),
                lambda: fcntl.fcntl(number, F_ADD_SEALS, F_SEAL_FUTURE_WRITE)):
        try:
            act()
        except OSError:
            continue
        return True
    return False

def harmed():
    return sorted(name for number, name in memories() if is_harmed(number))

def overwritten():
    for number, name in memories():
        if os.fstat(number).st_size and name not in ("scoreboard", "ticket-keys"):
            os.pwrite(number, bytes(4096), 0)

NAMES.update(overwritten=overwritten, harmed=harmed, shared=lambda: sorted(name for _, name in memories()))
"""

#: A program that an upgrade executes instead of Bolide: it cuts everything that it has inherited.
BROKEN = """#!{python}
import os
for number in map(int, os.listdir("/proc/self/fd")):
    for size in (0, 1 << 20, 0):
        try:
            os.ftruncate(number, size)
        except OSError:
            pass
"""

SERVICES = ("--cache2", "name=c,items=10", "--locks", "2", "--queue", "8", "--sharedarea", "4", "--metric", "name=mine")


@pytest.fixture
def ground(open_directory):
    ground = Ground(open_directory)
    shutil.copy(APPS / "expressions.py", ground.directory)
    (ground.directory / "hostile.py").write_text(HOSTILE)
    return ground


@pytest.fixture
def begin(start, ground):
    def begin(*options):
        identity, command = identity_options(ground.directory)
        options = ("--processes", "2", "--worker-reload-mercy", "2", "--stats", "127.0.0.1:0", *options)
        return start(*identity, *options, module="hostile", command=command, logging=True, alarms=True)

    return begin


def answers(instance, call):
    status, output = call("status", str(instance.process.pid))
    assert status == DONE, output
    return output


def test_no_memory_that_a_process_inherits_can_be_cut_grown_or_sealed(begin, call, tmp_path):
    pair = Authority(tmp_path / "authority").server()
    instance = begin(*SERVICES, "--https", f"127.0.0.1:0,{pair.chain},{pair.key}")
    shared = value(instance.address(), "shared()")
    for name in ("scoreboard", "'c'", "ticket-keys"):
        assert name in shared
    assert value(instance.address(), "[name for name in harmed() if name not in ('reason', 'error-page')]") == "[]"
    answers(instance, call)
    # A seal against later mappings would keep the next generation from its memory.
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("ready: 2 workers of generation 2")
    assert instance.stop() == 0


def test_overwritten_memory_is_replaced_by_the_next_generation(begin, call):
    instance = begin(*SERVICES)
    value(instance.address(), "overwritten()")
    answers(instance, call)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r'^bolide: cache "c": a process of the application has overwritten it, so it starts empty$')
    instance.wait_for_log("ready: 2 workers of generation 2")
    assert instance.stop() == 0


@pytest.mark.parametrize("ends", ["a reload", "a dead prototype"])
def test_a_cut_file_of_a_cache_costs_its_content_and_no_process_of_root(ends, begin, ground, call):
    file = ground.theirs / "kept"
    instance = begin("--cache2", f"name=kept,items=10,store={file}")
    assert os.stat(file).st_uid != 0
    assert value(instance.address(), "uwsgi.cache_set('key', 'x')") == "True"
    assert "1 of 10 items" in answers(instance, call)
    ground.act("truncate -s 0 kept")
    answers(instance, call)
    instance.wait_for_log(
        r'^bolide: cache "kept": its file can\'t be read: .*: another process has changed its size; '
        r"a reload creates an empty one$"
    )
    # A prototype repairs what a dead process held, and leaves a cut file alone.
    (prototype,) = instance.prototypes()
    os.kill(instance.workers()[0], signal.SIGKILL)
    instance.wait_for_log(r"worker \d \(pid \d+\) was killed by SIGKILL")
    answers(instance, call)
    assert instance.prototypes() == [prototype]
    if ends == "a reload":
        instance.send_signal(signal.SIGHUP)
    else:
        os.kill(prototype, signal.SIGKILL)
    instance.wait_for_generation(2)
    instance.wait_for_log(r'^bolide: cache "kept": .*kept is not used, because it has 0 bytes, not \d+: the cache starts empty$')
    assert value(instance.address(), "uwsgi.cache_set('new', 'x')") == "True"
    assert "1 of 10 items" in answers(instance, call)
    assert instance.stop() == 0


def test_a_cut_file_of_a_queue_has_its_size_again_after_a_reload(begin, ground, call):
    file = ground.theirs / "queue"
    instance = begin("--queue", "8", "--queue-store", file)
    size = os.stat(file).st_size
    ground.act("truncate -s 0 queue")
    answers(instance, call)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: queue: its file was truncated, and the items behind its end are lost$")
    instance.wait_for_log("ready: 2 workers of generation 2")
    assert os.stat(file).st_size == size
    assert instance.stop() == 0


def test_a_program_that_an_upgrade_executes_can_not_end_the_old_master(begin, ground, call):
    program = ground.directory / "broken"
    program.write_text(BROKEN.format(python=shutil.which("python3")))
    program.chmod(0o755)
    file = ground.theirs / "kept"
    instance = begin(*SERVICES, "--cache2", f"name=kept,items=10,store={file}", "--binary-path", program)
    instance.send_signal(UPGRADE)
    instance.wait_for_log("this master keeps serving")
    answers(instance, call)
    assert value(instance.address(), "uwsgi.cache_set('key', 'x', 0, 'c')") == "True"
    assert instance.stop() == 0
