"""A process of the application's user does whatever it can to everything that it has inherited: the master of root answers,
reloads and stops, and no process of root ends, in the instance or beside it.

`BOLIDE_HOSTILE_SEED` selects another sequence, `BOLIDE_HOSTILE_ACTS` a longer one. A failure prints both, and all acts.
"""

import os
import re
import shutil
import signal
import subprocess

import pytest
from support import processes
from support.ports import reserve
from support.server import APPS, program
from support.waiting import wait_until
from support_hostile import Ground, identity_options
from support_instance import DONE
from support_processes import children_of, command_line_of
from support_upgrade import UPGRADE

SEED = int(os.environ.get("BOLIDE_HOSTILE_SEED", "20261127"))
ACTS = int(os.environ.get("BOLIDE_HOSTILE_ACTS", "60"))
pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user"),
    # In seconds: an act takes 0.4 s on an idle machine.
    pytest.mark.timeout(240 + 2 * ACTS),
]
#: Acts between two looks at the instance, and between two reloads.
LOOK_EVERY, RELOAD_EVERY = 5, 20
#: Timeout of an answer of the master, in seconds: far more than it needs.
ANSWER_SECONDS = 60
#: Parts of the names of the master's children: a prototype, and its helpers.
CHILDREN = ("bolide: prototype", "bolide: attendant", "bolide: exporter", "bolide log program")
#: A generation serves.
SERVES = r"^bolide: ready: \d+ workers? of generation \d+ in"
#: A process of the master's own has ended without an order.
UNEXPECTED = r"the (process for daemons and cron|exporter of spans) \(pid \d+\) .*: starting another"


def are_named(pids):
    """Returns whether these are the master's children, each with its name, and none beside them."""
    try:
        names = [command_line_of(pid) for pid in pids]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return len(names) == len(CHILDREN) and all(any(role in name for name in names) for role in CHILDREN)


class Play:
    def __init__(self, instance, directory, beside):
        self.instance, self.directory, self.beside = instance, directory, beside
        self.told = []
        self.orders = 0
        # The server is ready without its helpers. Without its name, one of them looks like any other child.
        wait_until(lambda: are_named(children_of(instance.pid)), "the names of the master's children")
        own = [pid for pid in children_of(instance.pid) if "prototype" not in command_line_of(pid)]
        self.names = {pid: command_line_of(pid) for pid in own for pid in [pid, *children_of(pid)]}
        assert any("attendant" in name for name in self.names.values())
        # Each generation has an attendant of its own, with daemons of its own: the log says whether one has ended in between.
        self.guarded = [pid for pid in own if "attendant" not in self.names[pid]]
        self.guarded += [pid for one in self.guarded for pid in children_of(one)]

    def act(self, number):
        name = f"{SEED + number}"
        done = self.directory / f"done-{name}"
        (self.directory / f"act-{name}").touch()

        def is_over():
            if done.exists():
                return done.read_text()
            # One that cuts what it has mapped may end itself with its act.
            return "it has ended itself" if self.named("taken-*", alive=False) else None

        # Every process that could do it may have ended itself: the next generation has others.
        if not self.named("alive-*", alive=True):
            self.instance.send_signal(signal.SIGHUP)
        said = wait_until(is_over, lambda: f"an act; the log:\n{self.instance.log[-3000:]}", ANSWER_SECONDS)
        for path in self.directory.glob("taken-*"):
            path.unlink(missing_ok=True)
        self.told.append(f"{number}: {said}")

    def named(self, pattern, alive):
        """Returns the files of living or ended processes of the instance. The kernel gives a pid to others again."""
        ours = {one.pid for one in processes.of_session(self.instance.process.pid)}
        return [path for path in self.directory.glob(pattern) if (int(path.name[6:]) in ours) == alive]

    def order(self, *words):
        command = [*program(), *words, str(self.instance.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    def look(self):
        assert self.instance.process.poll() is None, f"the master has exited: {self.instance.process.poll()}"
        status, output = self.order("status")
        assert status == DONE, output
        ended = [self.names.get(pid, pid) for pid in self.guarded if processes.look(pid) is None]
        assert not ended, f"these have ended: {ended}; the log:\n{self.instance.log[-3000:]}"
        assert self.beside.poll() is None
        self.instance.read_log()
        assert not re.search(UNEXPECTED, self.instance.log), self.instance.log[-3000:]

    def run(self, acts, reloads=True):
        try:
            for number in range(acts):
                self.act(number)
                if number % LOOK_EVERY == 0:
                    self.look()
                if reloads and number % RELOAD_EVERY == RELOAD_EVERY - 1:
                    self.instance.send_signal(signal.SIGHUP)
            self.look()
            if reloads:
                self.reload_at_rest()
        except BaseException as error:
            error.add_note(f"BOLIDE_HOSTILE_SEED={SEED} BOLIDE_HOSTILE_ACTS={ACTS}:\n" + "\n".join(self.told))
            raise
        finally:
            (self.directory / "over").touch()
        assert self.instance.stop() is not None

    def reload_at_rest(self):
        """When the harm is over, a new generation serves."""
        (self.directory / "over").touch()
        before = len(re.findall(SERVES, self.instance.log, re.MULTILINE))

        def has_followed():
            self.instance.read_log()
            return len(re.findall(SERVES, self.instance.log, re.MULTILINE)) > before

        self.instance.send_signal(signal.SIGHUP)
        wait_until(has_followed, lambda: f"a new generation; the log:\n{self.instance.log[-3000:]}", ANSWER_SECONDS)


@pytest.fixture
def ground(open_directory):
    return Ground(open_directory)


@pytest.fixture
def play(start, ground):
    shutil.copy(APPS / "hostile_process.py", ground.directory)
    orders = ground.make(ground.directory / "orders")
    beside = subprocess.Popen(["sleep", "1000"])
    held = reserve()

    def play(*options):
        identity, command = identity_options(ground.directory)
        services = ("--cache2", "name=c,items=10", "--cache2", f"name=kept,items=10,store={ground.theirs}/kept", "--locks", "2")
        services += (
            "--queue",
            "8",
            "--queue-store",
            ground.theirs / "queue",
            "--sharedarea",
            "4",
            "--metric",
            "name=mine",
            "--mule",
        )
        roots = ("--attach-daemon", "sleep 100000", "--otlp", f"http://127.0.0.1:{held.getsockname()[1]}")
        roots += ("--req-logger", "pipe:cat")
        limits = ("--worker-reload-mercy", "1", "--reload-mercy", "1", "--processes", "2")
        environment = {"HOSTILE_DIRECTORY": str(orders)}
        chosen = {"command": command, "module": "hostile_process", "alarms": True, "logging": True, "environment": environment}
        return Play(start(*identity, *services, *roots, *limits, *options, **chosen), orders, beside)

    yield play
    (orders / "over").touch()
    held.close()
    beside.kill()
    beside.wait()


def test_nothing_of_root_ends_whatever_a_process_of_the_user_does(play):
    one = play()
    assert len(one.guarded) == 3, one.names  # the exporter, the guard of the log program, and the program
    one.run(ACTS)


def test_a_new_master_that_has_not_served_yet_is_not_ended_either(play, ground):
    # It is a child of the old one, as a worker is whose prototype has exited.
    program = ground.directory / "waits-for-long"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    one = play("--binary-path", program)
    one.instance.send_signal(UPGRADE)
    one.instance.wait_for_log(r"^bolide: upgrade \(.*\)")

    def successor():
        return [pid for pid in children_of(one.instance.pid) if "sleep 1000" in command_line_of(pid)]

    one.guarded += wait_until(successor, "the new master")
    one.run(ACTS // 2, reloads=False)
