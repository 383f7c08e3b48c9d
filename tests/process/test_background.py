"""`daemonize`: the command waits for startup and returns its status; and the pidfiles."""

import os
import shutil
import signal
import socket
import stat
import subprocess

import pytest
from support import processes
from support.client import Client
from support.server import TIME, program
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import APPLICATIONS, LOAD_FAILED, START_FAILED
from support_processes import descriptors_of
from support_users import python_for_everybody

#: Timeout of a command that waits for startup, in seconds.
START_SECONDS = 60


class Background:
    """Starts an instance that daemonizes, and kills its remaining processes at the end."""

    def __init__(self, directory):
        self.directory = directory
        self.pidfile = directory / "app.pid"
        self.socket = directory / "app.sock"
        self.log = directory / "app.log"

    def start(self, *options, module="probe"):
        """Returns the status and the lines of the command that starts it."""
        arguments = ["--pythonpath", str(APPLICATIONS), "--module", module, "--http-socket", str(self.socket)]
        arguments += ["--pidfile", str(self.pidfile), "--master", *map(str, options)]
        done = subprocess.run(
            [*program(), *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS,
        )
        return done.returncode, TIME.sub("", done.stdout.decode()).splitlines()

    def daemonize(self, *options, **chosen):
        return self.start("--daemonize", self.log, *options, **chosen)

    @property
    def pid(self):
        return int(self.pidfile.read_text())

    def get(self):
        with Client(str(self.socket)) as client:
            return client.request()

    def finish(self):
        """Kills the session of the daemon, which has no parent that waits for it."""
        if not self.pidfile.exists():
            return
        pid = self.pid
        if processes.look(pid) is not None:
            processes.kill(pid, signal.SIGTERM)
        wait_until(lambda: not processes.of_session(pid), lambda: f"the end of {processes.of_session(pid)}")


@pytest.fixture
def background(tmp_path):
    background = Background(tmp_path)
    yield background
    background.finish()


@pytest.mark.parametrize("option", ["--daemonize", "--daemonize2", "-d"])
def test_the_command_ends_when_workers_serve_in_the_background(option, background):
    status, lines = background.start(option, background.log)
    assert status == 0
    # It serves immediately: the command does not wait.
    assert background.get().status == 200
    assert lines[-1] == f"bolide: serving in the background, master pid {background.pid}, log {background.log}"
    assert "ready:" in background.log.read_text()
    shown = any("ready:" in line for line in lines)
    assert shown is (option == "--daemonize2")


def test_a_daemon_is_in_a_session_of_its_own_and_holds_nothing_of_the_terminal(background):
    assert background.daemonize()[0] == 0
    pid = background.pid
    assert processes.look(pid).session == pid
    for process in processes.of_session(pid):
        held = descriptors_of(process.pid)
        assert held[0] == "/dev/null"
        assert held[1] == held[2] == str(background.log)
        # The pipe of the typed command has no other open end here.
        assert not [target for number, target in held.items() if number < 3 and target.startswith("pipe:")]


def test_an_application_that_can_not_be_loaded_is_shown_and_is_the_status(background, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    status, lines = background.daemonize("--pythonpath", tmp_path, module="broken")
    assert status == LOAD_FAILED
    assert any("No module named 'no_such_module_at_all'" in line for line in lines)
    assert "nothing is served" in lines[-1]
    assert TIME.sub("", background.log.read_text()).splitlines()[-1] == lines[-1]
    assert len([line for line in lines if line == lines[-1]]) == 1


def test_only_what_this_start_has_logged_is_shown(background, tmp_path):
    background.log.write_text("yesterday's news\n")
    status, lines = background.daemonize("--uid", "nobody-of-this-name")
    assert status == START_FAILED
    assert "yesterday's news" not in lines
    assert "nobody-of-this-name" in lines[-1]


def test_an_address_that_is_taken_is_an_error_of_the_command(background):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, lines = background.daemonize("--http-socket", f"127.0.0.1:{taken.getsockname()[1]}")
    assert status == START_FAILED
    assert lines[-1].startswith("bolide: not started: ")


def test_a_log_that_can_not_be_written_is_an_error_of_the_command(background, tmp_path):
    status, lines = background.start("--daemonize", tmp_path / "missing" / "app.log")
    assert status == START_FAILED
    assert len(lines) == 1
    assert "missing/app.log" in lines[0]
    assert not background.pidfile.exists()


def test_ctrl_c_at_a_command_that_waits_ends_what_it_starts(background, tmp_path):
    (tmp_path / "endless.py").write_text("import time\nprint('loading', flush=True)\nwhile True: time.sleep(0.01)\n")
    arguments = ["--pythonpath", str(tmp_path), "--module", "endless", "--http-socket", str(background.socket), "--master"]
    arguments += ["--pidfile", str(background.pidfile), "--daemonize", str(background.log)]
    command = subprocess.Popen([*program(), *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with command:
        wait_until(lambda: background.log.exists() and "loading" in background.log.read_text(), "the application to be loaded")
        command.send_signal(signal.SIGINT)
        said = command.stdout.read().decode()
        assert command.wait(TIMEOUT_SECONDS) == START_FAILED
    assert "stop: " in said
    wait_until(lambda: processes.look(background.pid) is None, "the end of what was started")


def test_pidfiles_are_written_and_removed_with_the_instance(start, tmp_path):
    instance = start("--pidfile2", tmp_path / "two.pid", "--safe-pidfile", "safe.pid", "--safe-pidfile2", "safe2.pid", "--vacuum")
    files = [tmp_path / name for name in ("two.pid", "safe.pid", "safe2.pid")]
    assert [int(file.read_text()) for file in files] == [instance.pid] * 3
    assert instance.stop() == 0
    assert not any(file.exists() for file in files)


def test_only_its_owner_may_write_to_a_pidfile_whatever_umask_says(start, tmp_path):
    start("--umask", "000", "--pidfile", tmp_path / "app.pid")
    assert (tmp_path / "app.pid").stat().st_mode & 0o777 == 0o644


def test_a_safe_pidfile_is_that_of_the_last_start_that_served(start, tmp_path):
    (tmp_path / "safe.pid").write_text("before\n")
    (tmp_path / "two.pid").write_text("before\n")
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    options = ("--pythonpath", tmp_path, "--safe-pidfile", "safe.pid", "--pidfile2", "two.pid")
    instance = start(*options, module="broken", ready=False)
    assert instance.wait_for_exit() == LOAD_FAILED
    assert (tmp_path / "safe.pid").read_text() == "before\n"
    # The files that this instance has written are removed.
    assert not (tmp_path / "two.pid").exists()


@pytest.mark.parametrize("fault", ["application", "hook", "control-socket"])
def test_a_start_that_fails_leaves_no_file_behind(fault, start, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    files = {option: tmp_path / option for option in ("pidfile", "pidfile2", "master-fifo", "http-socket", "stats")}
    options = [str(part) for option, path in files.items() for part in (f"--{option}", path)]
    options += {
        "application": ["--pythonpath", str(tmp_path)],
        "hook": ["--hook-master-start", "exec:exit 3"],
        "control-socket": ["--control-socket", str(tmp_path / "missing" / "control")],
    }[fault]
    module = "broken" if fault == "application" else "probe"
    instance = start(*options, module=module, socket=None, ready=False, alarms=True)
    assert instance.wait_for_exit() in (START_FAILED, LOAD_FAILED)
    assert [option for option, path in files.items() if path.exists()] == []


def test_an_instance_that_has_served_leaves_its_pidfile_as_ever(start, tmp_path):
    instance = start("--pidfile", tmp_path / "app.pid")
    assert instance.stop() == 0
    assert (tmp_path / "app.pid").read_text() == f"{instance.pid}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have another user's files written")
def test_a_pidfile_of_the_user_is_written_with_the_users_rights(start, fail, tmp_path):
    for directory in [tmp_path, *tmp_path.parents[:-2]]:
        directory.chmod(0o755)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    identity = ("--uid", "65534", "--gid", "65534")
    # The Python of these tests may be in a place where that user can't execute it, and a failed start removes its pidfile.
    python = python_for_everybody(tmp_path)
    if python is None:
        pytest.skip("no Python here may be run by another user")
    shutil.copy(APPLICATIONS / "probe.py", tmp_path)
    chosen = ("--chdir", tmp_path, "--pidfile2", theirs / "two.pid")
    instance = start(*identity, *chosen, command=[python, "-m", "bolide"])
    found = (theirs / "two.pid").stat()
    assert (found.st_uid, found.st_gid, stat.S_ISREG(found.st_mode)) == (65534, 65534, True)
    instance.finish()
    # If they have no write permission, root does not write for them.
    arguments = ("--module", "probe", "--pythonpath", APPLICATIONS, "--http-socket", "app.sock", *identity)
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o755)
    status, lines = fail(*arguments, "--pidfile2", ours / "two.pid")
    assert status == START_FAILED
    assert f"{ours}/two.pid can't be written: Permission denied" in lines[-1]
    assert not (ours / "two.pid").exists()


def test_daemonize_opens_its_sockets_to_everybody_and_says_so_and_nothing_else(background, call):
    said = "every user may connect to the UNIX sockets (mode 666)"
    for options, mode, is_said in [
        ((), 0o666, True),
        (("--chmod-socket=660",), 0o660, False),
        (("--umask", "027"), 0o750, False),
    ]:
        status, lines = background.daemonize(*options)
        assert (status, any(said in line and "chmod-socket = 660" in line for line in lines)) == (0, is_said), lines
        assert stat.S_IMODE(background.socket.stat().st_mode) == mode
        assert background.log.stat().st_mode & 0o007 == 0
        background.finish()
    background.socket.unlink(missing_ok=True)
    (background.directory / "shop.ini").write_text(
        "[uwsgi]\nmodule = probe\nsocket = app.sock\ndaemonize = app.log\nmaster = true\n"
    )
    assert said in call("check", "shop.ini")[1]


def test_without_daemonize_a_socket_has_the_mode_of_the_umask(start, tmp_path):
    start("--umask", "022", socket=str(tmp_path / "app.sock"))
    assert stat.S_IMODE((tmp_path / "app.sock").stat().st_mode) == 0o755


@pytest.mark.parametrize("order", [("--logto", "--daemonize"), ("--daemonize", "--logto")], ids=["before", "after"])
def test_lines_go_to_the_file_of_daemonize_also_where_logto_names_another(order, background):
    paths = {"--logto": background.directory / "other.log", "--daemonize": background.log}
    status, lines = background.start(*[part for option in order for part in (option, paths[option])])
    assert status == 0, lines
    assert "bolide: ready: " in background.log.read_text()
    assert not paths["--logto"].exists()


def test_relative_files_of_loggers_and_the_fifo_lie_in_the_directory_of_chdir(start, tmp_path):
    (tmp_path / "shop").mkdir()
    paths = {
        "--logger": "file:messages.log",
        "--req-logger": "file:requests.log",
        "--master-fifo": "fifo",
        "--pidfile": "app.pid",
    }
    options = [part for pair in paths.items() for part in pair]
    instance = start("--chdir", tmp_path / "shop", *options, ready=False, logging=True)
    messages = tmp_path / "shop" / "messages.log"
    instance.wait_for(lambda: messages.exists() and "bolide: ready: " in messages.read_text(), "it is ready")
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == ["fifo", "messages.log", "requests.log"]
    # Paths that are opened before the change of directory are relative to the starting directory.
    assert (tmp_path / "app.pid").exists()


def test_an_upgrade_stays_in_the_background(background, call):
    assert background.daemonize()[0] == 0
    old, session = background.pid, os.getsid(background.pid)
    assert call("upgrade", "--wait", old)[0] == 0
    wait_until(lambda: processes.look(old) is None, "the end of the old master")
    new = background.pid
    assert os.getsid(new) == session
    assert descriptors_of(new)[0] == "/dev/null"
    assert background.get().status == 200
    os.kill(new, signal.SIGTERM)
    wait_until(lambda: not processes.of_session(session), "the end of the instance")
