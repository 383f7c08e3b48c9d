"""An upgrade: another master has the sockets, and serves before the old one ends; one that does not serve changes nothing."""

import os
import signal
import stat

import pytest
from support.waiting import wait_until
from support_load import Load
from support_processes import children_of, is_alive

UPGRADE = signal.SIGRTMIN + 2

VERSION = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Length", "{length}")])
    return [b"{version}"]
"""


def write(tmp_path, version, before=""):
    (tmp_path / "shop.py").write_text(before + VERSION.format(version=version, length=len(version)))


@pytest.fixture
def upgradable(start, tmp_path):
    def upgradable(*options, **more):
        write(tmp_path, "old")
        return start("--pidfile", tmp_path / "shop.pid", "--vacuum", *options, module="shop", **more)

    yield upgradable
    pid = pid_of(tmp_path)
    if pid and is_alive(pid):
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not is_alive(pid), "the end of the master that took over")


def pid_of(tmp_path):
    file = tmp_path / "shop.pid"
    return int(file.read_text()) if file.exists() and file.read_text().strip() else None


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
            os.kill(before, UPGRADE)
            wait_until(lambda before=before: pid_of(tmp_path) != before, "the pidfile of the new master")
            wait_until(lambda before=before: not is_alive(before) or before == old, "the end of the old master")
            load.wait(lambda version=version: load.bodies[version] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert instance.process.wait(20) == 0
    assert os.stat(path).st_ino == inode
    instance.wait_for_log(
        r"^bolide: upgrade: the new master \(pid \d+\) serves, this one ends when its requests are answered$", count=3
    )
    # Nothing is left of the masters before it, and it ends like any other.
    last = pid_of(tmp_path)
    assert {process.pid for process in instance.processes()} == {last, *children_of(last), *workers_of(last)}
    os.kill(last, signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of the last master")
    assert not path.exists()
    assert not (tmp_path / "shop.pid").exists()


def workers_of(master):
    return [worker for prototype in children_of(master) for worker in children_of(prototype)]


def test_a_new_master_that_does_not_come_to_serve_changes_nothing(upgradable, tmp_path):
    path = tmp_path / "app.sock"
    instance = upgradable("--http-socket", path)
    before = sorted(instance.workers())
    with Load(instance.address()) as load:
        write(tmp_path, "broken", before="def (:\n")
        instance.send_signal(UPGRADE)
        instance.wait_for_log(
            r"^bolide: upgrade: the new master \(pid \d+\) has ended before it served, see above: this one goes on$"
        )
        load.wait_for_more()
        assert sorted(instance.workers()) == before
        assert pid_of(tmp_path) == instance.pid
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        # It can be tried again, and the instance is as lively as before.
        write(tmp_path, "mended")
        instance.reload(2)
    assert load.losses == []
    assert set(load.bodies) == {"old", "mended"}


def test_a_request_in_flight_is_finished_by_the_master_before(start, tmp_path):
    instance = start("--pidfile", tmp_path / "shop.pid")
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    instance.send_signal(UPGRADE)
    wait_until(lambda: pid_of(tmp_path) != instance.pid, "the pidfile of the new master")
    instance.wait_for_log(r"^bolide: upgrade: the new master \(pid \d+\) serves")
    assert instance.body().isdigit()
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.process.wait(20) == 0
    os.kill(pid_of(tmp_path), signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of the new master")


def test_binary_path_is_the_program_of_the_new_master(upgradable, tmp_path):
    wrapper = tmp_path / "wrapper"
    instance = upgradable("--binary-path", wrapper)
    wrapper.write_text("#!/bin/sh\necho wrapped\nexit 3\n")
    wrapper.chmod(0o755)
    instance.send_signal(UPGRADE)
    instance.wait_for_log("^wrapped$")
    instance.wait_for_log(r"^bolide: upgrade: the new master \(pid \d+\) has ended before it served")
    assert instance.body() == "old"
