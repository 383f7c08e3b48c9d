"""`master-fifo`: commands as single letters, written to a named pipe."""

import contextlib
import errno
import os
import stat

import pytest
from support.waiting import wait_until
from support_instance import START_FAILED


def write(path, letters):
    """Like `echo letters > path`, which fails here if there is no reader."""
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(pipe, f"{letters}\n".encode())
    finally:
        os.close(pipe)


def test_letters_reload_tell_the_state_and_stop(start, tmp_path):
    fifo = tmp_path / "fifo"
    instance = start("--master-fifo", fifo)
    found = fifo.stat()
    assert stat.S_ISFIFO(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    for generation in (2, 3):
        write(fifo, "r")
        instance.wait_for_generation(generation)
    write(fifo, "s")
    instance.wait_for_log("^bolide: status: generation in service: 3")
    write(fifo, "q")
    assert instance.wait_for_exit() == 0
    instance.wait_for_text(f"bolide: master-fifo {fifo}: stopping when its requests are answered")
    assert not fifo.exists(), "a writer would wait for ever for a reader"


def test_the_same_letter_many_times_counts_once(start, tmp_path):
    fifo = tmp_path / "fifo"
    instance = start("--master-fifo", fifo)
    write(fifo, "r" * 40)
    instance.wait_for_generation(2)
    write(fifo, "Q")
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("stopping immediately")
    assert "generation 3" not in instance.log


def test_a_digit_chooses_the_pipe_that_takes_letters(start, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    instance = start("--master-fifo", first, "--master-fifo", second)
    assert not second.exists()
    write(first, "1")
    instance.wait_for_log(f"^bolide: master-fifo: commands are now read from {second}")
    assert not first.exists()
    write(second, "r")
    instance.wait_for_generation(2)
    # There is no ninth one: as in uWSGI, the first one is used then.
    write(second, "9")
    wait_until(lambda: has_reader(first), "the first pipe")
    write(first, "q")
    assert instance.wait_for_exit() == 0


def test_a_deleted_pipe_is_recreated(start, tmp_path):
    fifo = tmp_path / "fifo"
    instance = start("--master-fifo", fifo)
    fifo.unlink()
    wait_until(lambda: has_reader(fifo), "the pipe to be made anew")
    write(fifo, "q")
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("fault", ["configuration", "application"])
def test_a_brutal_reload_that_fails_leaves_the_next_one_its_time(fault, start, tmp_path):
    fifo, ini, gate, broken = (tmp_path / name for name in ("fifo", "more.ini", "gate", "broken"))
    ini.write_text("[uwsgi]\n")
    guard = f"import os\nassert not os.path.exists({str(broken)!r}), 'broken'\nfrom probe import application\n"
    (tmp_path / "guarded.py").write_text(guard)
    options = ("--threads", "2", "--pythonpath", tmp_path, "--master-fifo", fifo, "--ini", ini)
    instance = start(*options, module="guarded")
    if fault == "configuration":
        ini.write_text("[uwsgi]\nprocesses = 0\n")
    else:
        broken.touch()
    write(fifo, "R")
    instance.wait_for_log(r"^bolide: .*: generation 1 keeps serving")
    ini.write_text("[uwsgi]\n")
    broken.unlink(missing_ok=True)
    held = instance.connect()
    held.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "gate.waiting").exists, "the request to be with the application")
    write(fifo, "r")
    instance.wait_for_log(r"^bolide: ready: .* of generation \d+ in")
    gate.touch()
    assert held.read_response().text == "waited"


def test_the_pipe_and_the_sockets_of_a_start_that_fails_are_removed(fail, tmp_path):
    files = [tmp_path / name for name in ("fifo", "control", "stats", "app.sock")]
    fifo, control, stats, app = files
    options = ("--master-fifo", fifo, "--control-socket", control, "--stats", stats, "--http-socket", app, "--vacuum")
    status, lines = fail("--module", "probe", *options, "--hook-master-start", "exec:exit 3")
    assert status == START_FAILED
    assert "exited with status 3" in lines[-1]
    assert [file.name for file in files if file.exists()] == []


def test_a_control_socket_that_cannot_be_bound_leaves_nothing_behind(fail, tmp_path):
    files = [tmp_path / name for name in ("fifo", "stats", "app.sock")]
    fifo, stats, app = files
    options = ("--master-fifo", fifo, "--control-socket", tmp_path / "missing/control", "--stats", stats, "--http-socket", app)
    status, lines = fail("--module", "probe", *options)
    assert status == START_FAILED
    assert "control-socket = " in lines[-1]
    assert [file.name for file in files if file.exists()] == []


@pytest.mark.parametrize("gone", [False, True], ids=["overwritten", "removed"])
def test_the_letter_p_rewrites_a_pidfile_that_no_longer_contains_our_pid(gone, start, tmp_path):
    fifo, pidfile = tmp_path / "fifo", tmp_path / "pid"
    instance = start("--master-fifo", fifo, "--pidfile", pidfile)
    if gone:
        pidfile.unlink()
    else:
        pidfile.write_text("garbage that is longer than a pid\n")
    write(fifo, "P")
    wait_until(lambda: pidfile.exists() and pidfile.read_text() == f"{instance.pid}\n", lambda: instance.log)


def has_reader(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        # ENXIO: it exists, and nothing has it open.
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return False
    return True


def test_a_pipe_that_is_the_log_stays_where_it_is(start, tmp_path):
    fifo, log = tmp_path / "fifo", tmp_path / "log.pipe"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        start("--master-fifo", fifo, "--logto", log, ready=False)
        wait_until(lambda: has_reader(fifo), "the pipe for letters")
        said = bytearray()

        def says(words):
            with contextlib.suppress(BlockingIOError):
                said.extend(os.read(reader, 65536))
            return words in said

        for letter in "Ll":
            write(fifo, letter)
            wait_until(lambda: says(b"log.pipe is not a file"), lambda: said)
            said.clear()
        assert stat.S_ISFIFO(log.stat().st_mode)
        assert sorted(found.name for found in tmp_path.glob("log.pipe*")) == ["log.pipe"]
        write(fifo, "s")
        wait_until(lambda: says(b"status: generation in service"), lambda: said)
    finally:
        os.close(reader)


def test_junk_is_said_once_and_does_nothing(start, tmp_path):
    fifo = tmp_path / "fifo"
    instance = start("--master-fifo", fifo)
    for _ in range(50):
        write(fifo, "~x\x07")
    write(fifo, "B")
    instance.wait_for_log("`B` has no effect: there is no emperor")
    assert len([line for line in instance.lines if "contains unknown letters" in line]) == 1
    assert instance.body() == str(instance.worker())
    assert instance.stop() == 0


@pytest.mark.parametrize("place", ["file", "missing/fifo"])
def test_a_file_that_is_no_pipe_is_not_removed(place, start, fail, tmp_path):
    (tmp_path / "file").write_text("mine")
    status, lines = fail("--module", "probe", "--http-socket", "app.sock", "--master-fifo", place)
    assert status == START_FAILED
    assert f"master-fifo = {tmp_path / place}: " in lines[-1]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_pipe_that_an_ended_instance_has_left_is_taken_over(start, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    instance = start("--master-fifo", fifo)
    assert stat.S_IMODE(fifo.stat().st_mode) == 0o600
    write(fifo, "q")
    assert instance.wait_for_exit() == 0
