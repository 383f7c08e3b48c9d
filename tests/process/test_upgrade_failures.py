"""A failed upgrade: the old master keeps serving, the log and the command give the reason, and it can be retried."""

import concurrent.futures
import os
import stat

import pytest
from support_instance import DONE, REFUSED
from support_load import Load
from support_upgrade import HELD, pid_of, upgrade
from support_versions import write

#: Timeout of startup, in seconds: beyond what one needs on a busy machine.
LOAD_SECONDS = 10


def broken_code(tmp_path):
    write(tmp_path, "broken", before="def (:\n")
    return "is not ready: the application could not be loaded: SyntaxError"


def wrong_configuration(tmp_path):
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nprocesses = many\n")
    return "uwsgi.ini:2: "


def program(text):
    def write_program(tmp_path):
        (tmp_path / "wrapper").write_text(text)
        (tmp_path / "wrapper").chmod(0o755)

    return write_program


def missing_program(_tmp_path):
    return "can't be executed: No such file or directory"


def ending_program(tmp_path):
    program("#!/bin/sh\nexit 7\n")(tmp_path)
    return "exited with status 7 before it was ready"


def hanging_program(tmp_path):
    program("#!/bin/sh\nexec sleep 1000\n")(tmp_path)
    return f"is not ready: not within {LOAD_SECONDS + 5} s (load-timeout)"


def hanging_code(tmp_path):
    (tmp_path / "hold").touch()
    write(tmp_path, "hanging", before=HELD.format(path=str(tmp_path / "hold")))
    return f"it was not ready within {LOAD_SECONDS} s (load-timeout)"


@pytest.mark.parametrize(
    ("failure", "has_program"),
    [
        (broken_code, False),
        (wrong_configuration, False),
        (hanging_code, False),
        (missing_program, True),
        (ending_program, True),
        (hanging_program, True),
    ],
)
def test_a_new_master_that_does_not_come_to_serve_changes_nothing(failure, has_program, upgradable, call, tmp_path):
    (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nload-timeout = {LOAD_SECONDS}\n")
    path = tmp_path / "app.sock"
    options = ["--binary-path", tmp_path / "wrapper"] if has_program else []
    fifo = tmp_path / "fifo"
    instance = upgradable("--ini", tmp_path / "uwsgi.ini", "--http-socket", path, "--master-fifo", fifo, *options, alarms=True)
    before = sorted(instance.workers())
    with Load(instance.address()) as load:
        words = failure(tmp_path)
        status, said = call("upgrade", "--wait", instance.pid)
        assert (status, words in said) == (REFUSED, True), said
        instance.wait_for_log(r"^bolide: upgrade.*: this master (stays|keeps serving)$")
        load.wait_for_more()
        assert sorted(instance.workers()) == before
        assert pid_of(tmp_path) == instance.pid
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        assert set(load.bodies) == {"old"}
        # It works as before: it reads FIFO commands, reloads, and the upgrade can be retried.
        (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nload-timeout = 60\n")
        write(tmp_path, "mended")
        assert call("reload", fifo)[0] == DONE
        instance.wait_for_generation(2)
        if not has_program:
            write(tmp_path, "upgraded")
            upgrade(tmp_path)
            load.wait(lambda: load.bodies["upgraded"] > 0, "the code of the new master")
    assert load.losses == []


def test_a_second_upgrade_is_refused_at_once_and_does_not_affect_the_first(upgradable, call, tmp_path):
    instance = upgradable()
    (tmp_path / "hold").touch()
    write(tmp_path, "new", before=HELD.format(path=str(tmp_path / "hold")))
    with concurrent.futures.ThreadPoolExecutor() as threads:
        first = threads.submit(call, "upgrade", "--wait", instance.pid)
        pid = instance.wait_for_log(r"^bolide: upgrade \(the control socket\): starting a new master \(pid (\d+)\)")[1]
        for arguments in (["upgrade"], ["upgrade", "--wait"]):
            status, said = call(*arguments, instance.pid)
            assert (status, f"one is already in progress (pid {pid})" in said) == (REFUSED, True), said
        (tmp_path / "hold").unlink()
        assert first.result() == (DONE, f"master {instance.pid}: the new master (pid {pid}) is ready\n")
    assert pid_of(tmp_path) == int(pid)


def test_no_upgrade_begins_while_a_reload_goes_on(upgradable, call, tmp_path):
    instance = upgradable()
    (tmp_path / "hold").touch()
    write(tmp_path, "new", before=HELD.format(path=str(tmp_path / "hold")))
    assert call("reload", instance.pid)[0] == DONE
    status, said = call("upgrade", instance.pid)
    assert status == REFUSED
    assert "a reload is in progress; try again when it is done" in said
    (tmp_path / "hold").unlink()
    instance.wait_for_generation(2)
