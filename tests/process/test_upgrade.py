"""An upgrade: another master takes over the sockets, and serves before the old one ends."""

import os
import signal

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_kept import Kept
from support_load import Load
from support_processes import children_of, command_line_of, is_alive
from support_upgrade import HELD, SERVES, UPGRADE, pid_of, pidfile, upgrade, wait_for_another, workers_of
from support_versions import write


def test_an_upgrade_loses_no_request_and_the_new_master_has_pidfile_and_sockets(upgradable, tmp_path):
    path = tmp_path / "app.sock"
    instance = upgradable("--processes", "2", "--http-socket", path)
    old = instance.pid
    inode = os.stat(path).st_ino
    with Load(instance.address()) as load:
        for number in range(3):
            version = f"version-{'x' * number}"
            write(tmp_path, version)
            before = pid_of(tmp_path)
            upgrade(tmp_path)
            wait_until(lambda before=before: not is_alive(before) or before == old, "the end of the old master")
            load.wait(lambda version=version: load.bodies[version] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert os.stat(path).st_ino == inode
    instance.wait_for_log(SERVES, count=3)
    # No process of earlier masters is left, and it ends like any other.
    last = pid_of(tmp_path)
    assert {process.pid for process in instance.processes()} == {last, *children_of(last), *workers_of(last)}
    os.kill(last, signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of the last master")
    assert not path.exists()
    assert not pidfile(tmp_path).exists()


def waiting_request(instance, tmp_path):
    """A client whose request waits for the gate."""
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    return client, gate


@pytest.mark.parametrize("processes", ["1", "2"])
def test_kept_connections_go_on_at_the_workers_of_the_new_master(upgradable, tmp_path, processes):
    instance = upgradable("--processes", processes, module="probe")
    kept = [Kept(instance) for _ in range(10)]
    before = {one.ask() for one in kept}
    for _ in range(2):
        master = upgrade(tmp_path)
        wait_until(lambda before=before: not any(is_alive(int(pid)) for pid in before), "the end of the old workers")
        answers = {one.ask() for one in kept}
        assert answers <= {str(worker) for worker in workers_of(master)}
        before = answers


def test_connections_move_between_the_workers_while_the_new_master_loads(upgradable, tmp_path):
    hold = tmp_path / "hold"
    (tmp_path / "held.py").write_text(HELD.format(path=str(hold)) + "from probe import application\n")
    instance = upgradable("--processes", "2", "--pythonpath", tmp_path, module="held")
    kept = [Kept(instance) for _ in range(20)]
    for one in kept:
        one.ask()
    hold.touch()
    os.kill(pid_of(tmp_path), UPGRADE)
    instance.wait_for_log(r"^bolide: upgrade \(.*\): starting a new master")
    wait_until(lambda: any(loads(child) for child in children_of(instance.pid)), "the prototype of the new master")
    _, gate = waiting_request(instance, tmp_path)
    # Half of them are with the busy worker, and the other worker of this master serves them.
    for one in kept:
        one.send("/pid")
    assert len({one.read() for one in kept}) == 1
    hold.unlink()
    wait_for_another(tmp_path, instance.pid)
    gate.touch()


def loads(child):
    """Returns whether this child of a master is a master too, with a prototype that has no worker yet."""
    return any(not children_of(prototype) and "prototype" in command_line_of(prototype) for prototype in children_of(child))


def test_requests_behind_a_stuck_worker_are_answered_by_the_new_master(upgradable, tmp_path):
    instance = upgradable("--worker-reload-mercy", "3", module="probe", alarms=True)
    kept = [Kept(instance) for _ in range(10)]
    old = {one.ask() for one in kept}
    _, gate = waiting_request(instance, tmp_path)
    for one in kept[:5]:
        one.send("/pid")
    upgrade(tmp_path)
    assert {one.read() for one in kept[:5]}.isdisjoint(old)
    assert {one.ask() for one in kept}.isdisjoint(old)
    assert not gate.exists()
    instance.wait_for_log(r"did not finish within 3 s")


def test_a_request_in_flight_is_finished_by_the_master_before(upgradable, tmp_path):
    instance = upgradable(module="probe")
    client, gate = waiting_request(instance, tmp_path)
    upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    assert instance.body().isdigit()
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.process.wait(TIMEOUT_SECONDS) == 0


def test_a_stop_of_all_processes_leaves_a_request_of_the_master_before_its_time(upgradable, tmp_path):
    instance = upgradable(module="probe")
    client, gate = waiting_request(instance, tmp_path)
    new = upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    for pid in (new, instance.pid):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(new), "the end of the new master")
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert "stopping immediately" not in instance.log


def test_the_death_of_the_master_before_leaves_the_new_one_its_sockets(upgradable, tmp_path):
    # With a second thread the worker notices its master's end while it serves.
    instance = upgradable("--threads", "2", module="probe", alarms=True)
    client, _gate = waiting_request(instance, tmp_path)
    new = upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    instance.send_signal(signal.SIGKILL)
    wait_until(lambda: {process.pid for process in instance.processes()} == {new, *children_of(new), *workers_of(new)}, "its end")
    assert client.is_closed()
    assert instance.body().isdigit()


def test_a_stop_while_the_new_master_is_started_ends_both(upgradable, tmp_path):
    instance = upgradable(alarms=True)
    (tmp_path / "hold").touch()
    write(tmp_path, "new", before=HELD.format(path=str(tmp_path / "hold")))
    instance.send_signal(UPGRADE)
    instance.wait_for_log(r"^bolide: upgrade \(.*\): starting a new master \(pid \d+\)")
    assert instance.stop() == 0
    instance.wait_until_gone()


def test_a_new_master_without_the_one_before_it_ends(upgradable, tmp_path):
    # Workers whose master is killed shut down its sockets, so nothing can be served.
    instance = upgradable(alarms=True)
    (tmp_path / "hold").touch()
    write(tmp_path, "new", before="print('loading', flush=True)\n" + HELD.format(path=str(tmp_path / "hold")))
    instance.send_signal(UPGRADE)
    instance.wait_for_log("^loading$")
    instance.send_signal(signal.SIGKILL)
    instance.process.wait()
    instance.wait_until_gone()
    instance.wait_for_log("^bolide: the master that this one was to replace has exited")


def test_a_reload_meanwhile_follows_only_if_the_upgrade_fails(upgradable, tmp_path):
    instance = upgradable()
    hold = tmp_path / "hold"
    hold.touch()
    write(tmp_path, "broken", before=HELD.format(path=str(hold)) + "import no_such_module\n")
    instance.send_signal(UPGRADE)
    instance.wait_for_log(r"^bolide: upgrade \(.*\): starting a new master \(pid \d+\)")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(
        r"^bolide: reload \(SIGHUP\): an upgrade is in progress \(new master pid \d+\): the reload follows if it fails$"
    )
    assert "generation 2" not in instance.log
    hold.unlink()
    instance.wait_for_log(r"^bolide: upgrade: the new master \(pid \d+\) is not ready: .*: this master keeps serving$")
    instance.wait_for_log(r"^bolide: generation 2 could not be loaded")
    assert instance.body() == "old"


def test_binary_path_is_the_program_of_the_new_master(upgradable, tmp_path):
    wrapper = tmp_path / "wrapper"
    instance = upgradable("--binary-path", wrapper, alarms=True)
    wrapper.write_text("#!/bin/sh\necho wrapped $@\nexit 3\n")
    wrapper.chmod(0o755)
    instance.send_signal(UPGRADE)
    instance.wait_for_log(f"^wrapped .*--binary-path {wrapper}")
    instance.wait_for_log(
        r"^bolide: upgrade: the new master \(pid \d+\) exited with status 3 before it was ready: this master keeps serving$"
    )
    assert instance.body() == "old"


def test_a_letter_of_the_fifo_orders_an_upgrade_where_no_other_user_can_write_it(upgradable, tmp_path):
    fifo = tmp_path / "fifo"
    instance = upgradable("--master-fifo", fifo)
    fifo.write_text("f\n")
    instance.wait_for_log(SERVES)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
