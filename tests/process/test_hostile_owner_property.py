"""The application's user makes random changes in every directory of an instance, during starts, reloads, rotations and upgrades.

Nothing outside changes, and nothing hangs.

`BOLIDE_HOSTILE_SEED` selects other sequences, `BOLIDE_HOSTILE_STEPS` longer ones. A failure prints both, and all actions.
"""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support import processes
from support.server import program
from support.waiting import wait_until
from support_hostile import Ground, identity_options
from support_users import NOBODY

SEED = int(os.environ.get("BOLIDE_HOSTILE_SEED", "20261123"))
STEPS = int(os.environ.get("BOLIDE_HOSTILE_STEPS", "100"))
SEQUENCES = 4
#: Timeout of a response of the master, in seconds: far more than it needs.
ANSWER_SECONDS = 60

RUN = ("app.pid", "safe.pid", "user.pid", "fifo", "control", "app.sock", "stats", "daemon.pid", "stats.json")
LOGS = ("app.log", "messages.log", "requests.log", "old.log")

#: Replacements of a file: `{name}` is its name, `{directory}` that of its directory.
ACTS = [
    "rm -rf {name}; ln -s $OUTSIDE/secret {name}",
    "rm -rf {name}; ln -s $OUTSIDE/shared {name}",
    "rm -rf {name}; ln -s $OUTSIDE/open/new {name}",
    "rm -rf {name}; ln -s $OUTSIDE/closed/app.log {name}",
    "rm -rf {name}; ln -s $OUTSIDE/listens {name}",
    "rm -rf {name}; ln -s {name} {name}",
    "rm -rf {name}; ln -s /proc/self/fd/9 {name}",
    "rm -rf {name}; mkfifo {name}",
    "rm -rf {name}; mkfifo -m 666 {name}",
    "rm -rf {name}; mkdir {name}",
    "rm -rf {name}; echo 1 > {name}",
    "rm -rf {name}; echo $$ > {name}; chmod 000 {name}",
    "rm -rf {name}",
    "rm -rf {name}.away; mv {name} {name}.away",
    "rm -rf {name}.more; ln {name} {name}.more",
    "rm -rf {name}; ln $OUTSIDE/shared {name}",
    "rm -rf {name}; ln $OUTSIDE/listens {name}",
    "chmod 000 {name}",
    "chmod 777 {name}",
    "rm -rf ../{directory}.away; mv ../{directory} ../{directory}.away; ln -s $OUTSIDE/open ../{directory}",
    "rm -rf ../{directory}.away; mv ../{directory} ../{directory}.away; ln -s $OUTSIDE/closed ../{directory}",
    "rm -rf ../{directory}.away; mv ../{directory} ../{directory}.away; mkdir ../{directory}",
    "rm -rf ../{directory}.away; mv ../{directory} ../{directory}.away; ln -s {directory}.away ../{directory}",
    "chmod 000 ../{directory}",
]
#: Restores the directories.
MEND = "for one in run logs; do [ -d $one ] && [ ! -L $one ] || { rm -rf $one; mkdir $one; }; chmod 755 $one; done"
LETTERS = ["P", "l", "L", "r", "R", "s", "f", "PlLs", "+", "0"]


#: As the user: letters for the reader of the pipe, if there is one.
LETTERS_TO = """
import os, stat, sys
pipe = os.open("run/fifo", os.O_WRONLY | os.O_NONBLOCK)
if stat.S_ISFIFO(os.fstat(pipe).st_mode):
    os.write(pipe, sys.argv[1].encode())
"""


class Play:
    """One sequence of actions and events. ``is_asked`` means that the control socket has its usual name, so that the test can
    query it.
    """

    def __init__(self, number, ground, start):
        self.random = random.Random(SEED + number)
        self.ground, self.start = ground, start
        self.is_asked = number % 2 == 0
        self.identity, self.command = identity_options(ground.directory)
        self.told = []
        self.instance = None

    # Actions of the user.

    def act(self, command):
        self.told.append(f"act: {command}")
        # The kernel does not permit some of the attempts.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.ground.act(command)

    def hostile_act(self):
        directory, names = self.random.choice([("run", RUN), ("logs", LOGS)])
        act = self.random.choice(ACTS).format(name=self.random.choice(names), directory=directory)
        self.act(f"cd {directory}; {act}")

    def letters(self):
        text = self.random.choice([letters for letters in LETTERS if self.is_asked or "f" not in letters])
        self.told.append(f"letters {text}")
        command = [self.command[0], "-c", LETTERS_TO, text]
        identity = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
        done = {"cwd": self.ground.theirs, "timeout": ANSWER_SECONDS, "stderr": subprocess.DEVNULL, "check": False}
        subprocess.run(command, **identity, **done)

    # Events of the instance.

    def begin(self):
        if self.random.random() < 0.7:
            self.act(MEND + "; rm -rf run/* logs/*")
        options = self.options()
        self.told.append(f"start {' '.join(options)}")
        options += ["--worker-reload-mercy", "1"]
        chosen = {"command": self.command, "ready": False, "alarms": True, "logging": True}
        self.instance = self.start(*self.identity, *options, **chosen)
        ended = self.instance.process.poll
        wait_until(
            lambda: ended() is not None or self.masters() or not self.is_asked, "a start that ends or answers", ANSWER_SECONDS
        )

    def options(self):
        run, logs = self.ground.theirs / "run", self.ground.theirs / "logs"
        files = [("--pidfile", run / "app.pid"), ("--safe-pidfile", run / "safe.pid"), ("--pidfile2", run / "user.pid")]
        files += [("--socket", run / "app.sock"), ("--stats", run / "stats"), ("--logto", logs / "app.log")]
        files += [("--stats-push", f"file:path={run}/stats.json,freq=1"), ("--logger", f"file:{logs}/messages.log")]
        files += [("--req-logger", f"file:{logs}/requests.log"), ("--smart-attach-daemon", f"{run}/daemon.pid true")]
        files = [pair for pair in files if self.random.random() < 0.6]
        files += [] if self.is_asked else [("--control-socket", run / "control")]
        more = [("--vacuum",), ("--logfile-chown",), ("--logfile-chmod", "640"), ("--log-truncate",), ("--log-reopen",)]
        more += [("--log-maxsize", "200"), ("--log-backupname", logs / "old.log"), ("--chmod-socket=666",)]
        more = [one for one in more if self.random.random() < 0.4]
        return [str(part) for one in [("--master-fifo", run / "fifo"), *files, *more] for part in one]

    def masters(self):
        """Returns the masters that can be queried; during an upgrade there are two."""
        names = re.findall(r" @bolide/(\d+)$", Path("/proc/net/unix").read_text(), re.MULTILINE)
        found = (processes.look(int(pid)) for pid in names)
        return [one.pid for one in found if one and one.session == self.instance.process.pid]

    def order(self):
        word = self.random.choice(["reload", "log-reopen", "log-rotate", "upgrade", "status"])
        if not self.is_asked:
            self.told.append("signal HUP")
            processes.kill(self.instance.process.pid, signal.SIGHUP)
            return
        for pid in self.masters()[:1]:
            self.told.append(f"bolide {word}")
            self.ask(word, pid)

    def ask(self, word, pid):
        command = [*program(), word, str(pid)]
        subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, cwd=self.instance.directory, check=False)

    def stop(self):
        self.told.append("stop")

        def is_over():
            left = processes.of_session(self.instance.process.pid)
            # A master in the middle of an upgrade may have missed the signal, so a master that takes over gets it as well.
            for one in left:
                if one.parent not in {other.pid for other in left} or one.pid in self.masters():
                    processes.kill(one.pid, signal.SIGINT)
            return not left

        wait_until(is_over, lambda: f"the end of {processes.of_session(self.instance.process.pid)}", ANSWER_SECONDS)
        self.instance.process.wait(timeout=ANSWER_SECONDS)
        self.instance = None

    # The whole sequence.

    def step(self):
        if self.instance is not None and self.instance.process.poll() is not None and not self.masters():
            # No process is left of an instance whose master has exited without a successor.
            wait_until(lambda: not processes.of_session(self.instance.process.pid), "the end of its processes", ANSWER_SECONDS)
            self.instance = None
        if self.instance is None:
            self.begin()
            return
        chosen = self.random.random()
        if chosen < 0.55:
            self.hostile_act()
        elif chosen < 0.75:
            self.letters()
        elif chosen < 0.93:
            self.order()
        else:
            self.stop()

    def check(self):
        if self.instance and self.is_asked:
            # Its response comes after all earlier requests are done.
            for pid in self.masters():
                self.ask("status", pid)
        assert self.ground.look(names=False) == self.ground.before

    def run(self):
        try:
            for _ in range(STEPS):
                self.step()
                self.check()
            if self.instance:
                self.stop()
            self.check()
        except BaseException as error:
            error.add_note(f"BOLIDE_HOSTILE_SEED={SEED} BOLIDE_HOSTILE_STEPS={STEPS}:\n" + "\n".join(self.told))
            for one in processes.of_session(self.instance.process.pid) if self.instance else []:
                processes.kill(one.pid)
            raise


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("number", range(SEQUENCES))
def test_nothing_outside_changes_and_nothing_hangs_whatever_the_user_does(number, start, open_directory):
    ground = Ground(open_directory)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(ground.outside / "listens"))
        listening.listen()
        for name in ("run", "logs"):
            ground.make(ground.theirs / name)
        # The user may create hard links to a file if the kernel allows it (fs.protected_hardlinks).
        ground.before = ground.look(names=False)
        Play(number, ground, start).run()
