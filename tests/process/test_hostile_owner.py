"""The application's user owns the directories of pidfile, logs, FIFO and sockets: root is not tricked into using another file,
and never hangs.
"""

import os
import signal
import socket
import stat
import subprocess
import sys

import pytest
from support.server import program
from support.waiting import wait_until
from support_hostile import Ground, identity_options
from support_upgrade import UPGRADE
from support_users import NOBODY

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def ground(open_directory):
    return Ground(open_directory)


@pytest.fixture
def begin(start, ground):
    """Starts an instance whose application runs as the user `nobody`."""

    def begin(*options, ready=True, groups=None, **more):
        identity, command = identity_options(ground.directory)
        if groups is not None:
            become = f"import os, sys; os.setgroups({groups}); os.execv(sys.argv[1], sys.argv[1:])"
            command = [sys.executable, "-c", become, *command]
        return start(*identity, *options, ready=ready, command=command, logging=True, **more)

    return begin


def write(path, letters):
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(pipe, letters.encode())
    finally:
        os.close(pipe)


def status(instance):
    """Returns the output of `bolide status`: the master answers."""
    command = [*program(), "status", str(instance.pid)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=instance.directory, timeout=60).stdout


LAID = {
    "link": "ln -s $OUTSIDE/secret {name}",
    "link to a new file": "ln -s $OUTSIDE/open/new {name}",
    "FIFO": "mkfifo {name}",
    "directory": "mkdir {name}",
}


@pytest.mark.parametrize("option", ["pidfile", "pidfile2", "safe-pidfile", "safe-pidfile2"])
@pytest.mark.parametrize("laid", LAID)
def test_the_letter_p_and_vacuum_are_not_redirected_by_a_replaced_pidfile(option, laid, begin, ground):
    path, fifo = ground.theirs / "app.pid", ground.theirs / "fifo"
    instance = begin(f"--{option}", path, "--master-fifo", fifo, "--vacuum")
    wait_until(path.exists, "the pidfile")
    ground.act("rm app.pid; " + LAID[laid].format(name="app.pid"))
    write(fifo, "P")
    write(fifo, "s")
    instance.wait_for_log("^bolide: status: ")
    assert status(instance)
    ground.is_untouched()
    assert instance.stop() == 0
    ground.is_untouched()


@pytest.mark.parametrize("laid", ["link", "link to a new file", "FIFO"])
@pytest.mark.parametrize("option", ["pidfile", "safe-pidfile", "pidfile2", "logto", "logto2", "stats-push"])
def test_a_start_is_not_redirected_by_a_replaced_file(option, laid, begin, ground):
    path = ground.theirs / "file"
    ground.act(LAID[laid].format(name="file"))
    value = {"stats-push": f"file:path={path},freq=1"}.get(option, path)
    instance = begin(f"--{option}", value, ready=False)
    settled = ("bolide: ready: ", "not started", ": nothing reads from this named pipe")
    instance.wait_for(lambda: instance.process.poll() is not None or any(word in instance.log for word in settled), "an outcome")
    if instance.process.poll() is None:
        instance.send_signal(signal.SIGTERM)
    instance.wait_for_exit()
    ground.is_untouched()
    # Private files of the user are opened as the user, who gets the kernel's own error message.
    if "not started" in instance.log and laid != "FIFO" and option != "pidfile2":
        assert f"{path} is a link" in instance.log


@pytest.mark.parametrize("option", ["logger", "req-logger"])
@pytest.mark.parametrize("laid", ["link", "link to a new file"])
def test_a_logger_is_not_led_elsewhere(option, laid, begin, ground):
    ground.act(LAID[laid].format(name="file"))
    instance = begin(f"--{option}", f"file:{ground.theirs}/file", ready=False)
    assert instance.wait_for_exit() == 1
    ground.is_untouched()


@pytest.mark.parametrize("is_roots", [True, False])
def test_root_writes_to_no_named_pipe_in_the_users_directory(is_roots, begin, ground):
    """The user's own rights suffice for a pipe of that user, for which lines wait; a pipe of root's may have been put there."""
    if is_roots:
        os.mkfifo(ground.theirs / "file", 0o600)
    else:
        ground.act("mkfifo file")
    instance = begin("--req-logger", f"file:{ground.theirs}/file", ready=not is_roots)
    if is_roots:
        assert instance.wait_for_exit() == 1
        assert "is a FIFO in a directory of another user" in instance.log
    else:
        instance.wait_for_log(": nothing reads from this named pipe")
        assert status(instance)
    ground.is_untouched()


@pytest.mark.parametrize("option", ["logto", "logto2"])
def test_logfile_chown_gives_no_file_away_that_was_laid_there(option, begin, ground):
    ground.act("ln -s $OUTSIDE/secret app.log")
    instance = begin(f"--{option}", ground.theirs / "app.log", "--logfile-chown", "--logfile-chmod", "666", ready=False)
    assert instance.wait_for_exit() == 1
    ground.is_untouched()
    assert "is a link" in instance.log


def test_a_file_of_roots_that_the_user_has_renamed_is_neither_given_away_nor_opened_to_others(begin, ground):
    key = ground.theirs / "key"
    key.write_text("of root's\n")
    key.chmod(0o600)
    ground.act("mv key app.log")
    log = ground.theirs / "app.log"
    instance = begin("--logto", log, "--logfile-chown", "--logfile-chmod", "666", ready=False)
    instance.wait_for(lambda: "bolide: ready: " in log.read_text(), "it is ready")
    assert "keeps its owner" in instance.log
    assert "keeps its mode" in instance.log
    found = log.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)


@pytest.mark.parametrize("letter", ["l", "L"], ids=["reopen", "rotate"])
@pytest.mark.parametrize("directory", ["closed", "open"])
def test_logs_are_not_created_in_another_directory_through_a_link(letter, directory, begin, ground):
    ground.make(ground.theirs / "logs")
    fifo = ground.theirs / "fifo"
    instance = begin("--logger", f"file:{ground.theirs}/logs/app.log", "--master-fifo", fifo, ready=False)
    log = ground.theirs / "logs" / "app.log"
    instance.wait_for(lambda: log.exists() and "bolide: ready: " in log.read_text(), "it is ready")
    ground.act(f"mv logs moved; ln -s $OUTSIDE/{directory} logs")
    moved = ground.theirs / "moved" / "app.log"
    write(fifo, letter)
    instance.wait_for(lambda: "can't be" in moved.read_text(), "the line about the log")
    ground.is_untouched()
    instance.send_signal(signal.SIGTERM)
    assert instance.wait_for_exit() == 0
    ground.is_untouched()


@pytest.mark.parametrize("names", ["shared", "secret"])
def test_a_hard_link_is_not_written_to(names, begin, ground):
    os.link(ground.outside / names, ground.theirs / "app.pid")
    before = ground.before = ground.look()
    instance = begin("--pidfile", ground.theirs / "app.pid", ready=False)
    assert instance.wait_for_exit() == 1
    assert ground.look() == before
    assert "has 2 hard links" in instance.log


def test_root_has_not_its_groups_where_it_acts_as_the_user(begin, ground):
    ground.act("ln -s $OUTSIDE/shared app.pid")
    instance = begin("--pidfile2", ground.theirs / "app.pid", ready=False, groups=[0])
    assert instance.wait_for_exit() == 1
    ground.is_untouched()


def test_a_fifo_instead_of_a_daemons_pidfile_hangs_nothing(begin, ground):
    ground.act("mkfifo daemon.pid")
    options = ("--smart-attach-daemon", f"{ground.theirs}/daemon.pid true", "--attach-daemon", "echo the other runs")
    instance = begin(*options, alarms=True)
    instance.wait_for_text("the other runs")
    assert status(instance)
    assert instance.stop() == 0
    ground.is_untouched()


def test_the_pid_of_a_successor_is_written_nowhere_else(begin, ground):
    path, fifo = ground.theirs / "app.pid", ground.theirs / "fifo"
    instance = begin("--pidfile", path, "--master-fifo", fifo, "--logto", ground.theirs / "app.log", ready=False)
    log = ground.theirs / "app.log"

    def said():
        return log.read_text() if log.exists() else ""

    instance.wait_for(lambda: "bolide: ready: " in said(), "it is ready")
    ground.act("rm app.pid; ln -s $OUTSIDE/secret app.pid")
    os.kill(instance.pid, UPGRADE)
    instance.wait_for(lambda: "can't be written" in said(), "the line about the pidfile")
    instance.process.wait(timeout=60)
    ground.is_untouched()

    def is_told():
        # The new master creates the pipe, and opens it then.
        try:
            write(fifo, "Q")
        except OSError:
            return False
        return True

    wait_until(is_told, "the pipe of the new master")
    wait_until(lambda: not fifo.exists(), "its end")
    ground.is_untouched()


def test_a_socket_is_bound_in_no_other_directory_and_only_it_is_given_away(begin, ground):
    ground.act("mkdir run")
    ground.act("rmdir run; ln -s $OUTSIDE/open run")
    instance = begin("--socket", ground.theirs / "run" / "app.sock", ready=False)
    assert instance.wait_for_exit() == 1
    ground.is_untouched()


def test_a_link_to_a_release_that_the_user_has_laid_still_works(begin, ground):
    ground.act("mkdir -p releases/5/run; ln -s releases/5 current")
    current, release = ground.theirs / "current" / "run", ground.theirs / "releases" / "5" / "run"
    options = ("--pidfile", current / "app.pid", "--master-fifo", current / "fifo", "--control-socket", current / "control")
    options += ("--socket", current / "app.sock", "--logger", f"file:{current}/app.log", "--stats", current / "stats")
    instance = begin(*options, "--vacuum", ready=False)
    log = release / "app.log"
    instance.wait_for(lambda: log.exists() and "bolide: ready: " in log.read_text(), "it is ready")
    assert sorted(path.name for path in release.iterdir()) == ["app.log", "app.pid", "app.sock", "control", "fifo", "stats"]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(release / "app.sock"))
    write(current / "fifo", "L")
    wait_until(lambda: len(list(release.glob("app.log.*"))) == 1, "the log that was put aside")
    write(current / "fifo", "q")
    assert instance.wait_for_exit() == 0
    assert not any(path.name.endswith((".pid", ".sock")) for path in release.iterdir())


def test_links_of_roots_are_followed(begin, ground):
    run = ground.directory / "run"
    run.mkdir(mode=0o755)
    place = ground.directory / "link"
    place.symlink_to(run)
    instance = begin("--pidfile", place / "app.pid", "--logger", "file:/dev/stdout")
    assert int((run / "app.pid").read_text()) == instance.pid


def test_files_of_loggers_belong_to_the_user_and_that_of_logto_to_root(begin, ground):
    ours = ground.directory / "ours"
    ours.mkdir(mode=0o755)
    files = [f"{directory}/{name}" for directory in (ground.theirs, ours) for name in ("messages", "requests")]
    options = [(f"--{option}", f"file:{file}") for option, file in zip(("logger", "req-logger") * 2, files, strict=True)]
    instance = begin(*(part for pair in options for part in pair), "--logto", ours / "app.log", ready=False)
    messages = ours / "messages"
    instance.wait_for(lambda: messages.exists() and "bolide: ready: " in messages.read_text(), "it is ready")
    assert [os.stat(file).st_uid for file in files] == [NOBODY.pw_uid] * 4
    assert (ours / "app.log").stat().st_uid == 0
