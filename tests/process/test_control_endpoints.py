"""Each command reaches the instance by each of its names: configuration, pidfile, pid, fifo and control socket."""

import re

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import DONE, NO_ANSWER, NO_INSTANCE, REFUSED
from support_processes import is_alive
from support_upgrade import wait_for_another, workers_of
from support_versions import write


@pytest.fixture(params=["app.ini", "shop.pid", "pid", "fifo", "control.sock"])
def instance_and_name(request, upgradable, tmp_path):
    """An instance with three workers, and its names."""
    name = request.param
    channel = f"control-socket = {tmp_path}/control.sock" if name == "control.sock" else ""
    (tmp_path / "app.ini").write_text(
        f"[uwsgi]\nmaster-fifo = {tmp_path}/fifo\nprocesses = 3\nlogto = {tmp_path}/log\n{channel}\n"
    )
    instance = upgradable("--ini", tmp_path / "app.ini")
    return instance, instance.pid if name == "pid" else name


def test_workers_are_taken_away_and_added(instance_and_name, call):
    instance, name = instance_and_name
    assert call("workers", "-2", name)[0] == DONE
    wait_until(lambda: len(instance.workers()) == 1, "the end of two workers")
    assert call("workers", "+1", name)[0] == DONE
    wait_until(lambda: len(instance.workers()) == 2, "adding a worker")
    # There are never more than `processes`: one worker is started, and the refusal of the others is reported where there is an
    # answer.
    status, said = call("workers", "+5", name)
    assert status == (DONE if name == "fifo" else REFUSED), said
    wait_until(lambda: len(instance.workers()) == 3, "the third worker")
    instance.wait_for_log(r"no worker is added: the maximum is 3 workers \(processes\)$")


def test_a_number_of_workers_is_reached_from_above_and_from_below(instance_and_name, call):
    instance, name = instance_and_name
    if name == "fifo":
        status, said = call("workers", "1", name)
        assert (status, "no letter of the FIFO does that" in said) == (NO_ANSWER, True), said
        return
    for number in (1, 3, 3, 2):
        assert call("workers", str(number), name)[0] == DONE
        wait_until(lambda number=number: len(instance.workers()) == number, f"{number} workers")
    status, said = call("workers", "4", name)
    assert (status, "the maximum is 3 workers (processes)" in said) == (REFUSED, True), said
    assert len(instance.workers()) == 2


def test_logs_are_reopened_and_rotated(instance_and_name, call, tmp_path):
    _, name = instance_and_name
    log, moved = tmp_path / "log", tmp_path / "moved"
    log.rename(moved)
    assert call("log-reopen", name)[0] == DONE
    wait_until(log.exists, "the new file")
    assert "ready: " in moved.read_text()
    assert call("workers", "-1", name)[0] == DONE
    wait_until(lambda: "ends, 2 of 3 stay" in read(log), "more lines in the new file")
    assert "ends, 2 of 3 stay" not in moved.read_text()
    assert call("log-rotate", name)[0] == DONE
    (aside,) = wait_until(lambda: [file for file in tmp_path.iterdir() if re.fullmatch(r"log\.\d+", file.name)], "the file aside")
    assert "ends, 2 of 3 stay" in aside.read_text()
    assert call("workers", "+1", name)[0] == DONE
    # The FIFO does not tell when the order was executed, so the new file may not exist yet.
    wait_until(lambda: "1 worker more, 3 of 3" in read(log), "lines in the file after it")
    assert "1 worker more, 3 of 3" not in aside.read_text()


def test_an_upgrade_is_ordered_and_the_name_is_the_new_masters_from_then_on(instance_and_name, call, tmp_path):
    instance, name = instance_and_name
    write(tmp_path, "young")
    waits = [] if name == "fifo" else ["--wait"]
    assert call("upgrade", *waits, name)[0] == DONE
    new = wait_for_another(tmp_path, instance.pid)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert instance.body() == "young"
    name = new if name == instance.pid else name
    assert call("workers", "-2", name)[0] == DONE
    wait_until(lambda: len(workers_of(new)) == 1, "the end of two workers of the new master")
    assert call("stop", name)[0] == DONE
    wait_until(lambda: not is_alive(new), "the end of the new master")
    assert call("stop", name)[0] == NO_INSTANCE
    assert not (tmp_path / "fifo").exists()
    assert not (tmp_path / "control.sock").exists()


def test_logs_that_cannot_be_reopened_are_an_error(start, call, tmp_path):
    instance = start()
    for command in ("log-reopen", "log-rotate"):
        assert call(command, instance.pid) == (
            REFUSED,
            f"bolide: master {instance.pid}: no log goes to a file, so there is nothing to reopen\n",
        )
    (tmp_path / "logs").mkdir()
    other = start("--logto", tmp_path / "logs" / "log", ready=False)
    wait_until(lambda: "ready: " in read(tmp_path / "logs" / "log"), "the start")
    (tmp_path / "logs").rename(tmp_path / "elsewhere")
    status, said = call("log-reopen", other.pid)
    assert (status, f"{tmp_path}/logs/log" in said) == (REFUSED, True), said


def read(path):
    return path.read_text() if path.exists() else ""


def test_instances_of_one_directory_are_told_apart_and_named_by_their_ports(start, call):
    ports = [re.search(r"127\.0\.0\.1:(\d+)", start().everything())[1] for _ in range(2)]
    status, said = call("status")
    assert status == NO_INSTANCE
    assert "choose one by its pid or its port:\n" in said
    assert all(f"at http://127.0.0.1:{port} (" in said for port in ports), said
    for name in (ports[0], f":{ports[0]}", f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[0]}"):
        status, said = call("status", name)
        assert status == DONE
        assert f":{ports[0]}" in said
        assert f":{ports[1]}" not in said
    status, said = call("status", "127.0.0.1:1")
    assert status == NO_INSTANCE
    assert "specify a pidfile, a configuration, a pid or a port" in said
