"""An instance that an emperor has started (`UWSGI_EMPEROR_FD`): what it reports, and what it does when the emperor orders it. The
emperors here are sockets of the test; tests/compat has a real one.
"""

import os
import signal
import socket
from pathlib import Path

import pytest
from support.metrics import metrics_address, value_of
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_load import Load

#: What an emperor orders, and what a vassal reports.
STOP, RELOAD, STOP_GRACEFULLY = b"\0", b"\1", b"\2"
SPAWNED, ACCEPTING, LOYAL, IDLE, HEARTBEAT = 1, 5, 17, 22, 26
SERVES = [SPAWNED, ACCEPTING, LOYAL]


class Emperor:
    def __init__(self):
        self.socket, self.of_vassal = socket.socketpair()
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.reports = []

    def order(self, byte):
        self.socket.sendall(byte)

    def wait_for(self, *reports):
        """Waits for these reports, in this order, after those that were waited for before. Heartbeats may come between."""
        while len(self.reports) < len(reports):
            self.reports += [report for report in self.receive() if report != HEARTBEAT]
        first, self.reports = self.reports[: len(reports)], self.reports[len(reports) :]
        assert first == list(reports)

    def receive(self):
        got = self.socket.recv(64)
        assert got, f"the vassal has closed its socket after {self.reports}"
        return got

    def ends(self):
        self.socket.close()


@pytest.fixture
def emperor():
    emperor = Emperor()
    yield emperor
    emperor.socket.close()
    emperor.of_vassal.close()


@pytest.fixture
def vassal(start, emperor):
    def vassal(*options, **more):
        number = emperor.of_vassal.fileno()
        environment = {"UWSGI_EMPEROR_FD": str(number), **more.pop("environment", {})}
        instance = start(*options, environment=environment, kept=(number,), **more)
        emperor.of_vassal.close()
        return instance

    return vassal


def test_a_vassal_reports_that_it_serves_after_the_start_and_after_each_reload(vassal, emperor):
    instance = vassal("--metrics", "127.0.0.1:0")
    emperor.wait_for(*SERVES)
    with Load(instance.address()) as load:
        emperor.order(RELOAD)
        emperor.wait_for(*SERVES)
        load.wait_for_more()
    assert load.losses == []
    instance.wait_for_generation(2)
    labels = {"cause": "emperor", "outcome": "done"}
    assert value_of(metrics_address(instance), "bolide_reloads_total", **labels) == 1


@pytest.mark.parametrize("order", [STOP, STOP_GRACEFULLY])
def test_an_order_to_stop_completes_the_requests_in_flight(order, vassal, emperor, tmp_path):
    instance = vassal()
    emperor.wait_for(*SERVES)
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    emperor.order(order)
    instance.wait_for_text("stop: completing requests in flight")
    gate.touch()
    assert client.read_response().status == 200
    assert instance.wait_for_exit() == 0


def test_a_reload_that_fails_leaves_the_instance_as_it_is_and_reports_nothing(vassal, emperor, tmp_path):
    (tmp_path / "shop.py").write_text("def application(environ, start):\n    start('200 OK', [])\n    return [b'one']\n")
    instance = vassal(module="shop")
    emperor.wait_for(*SERVES)
    (tmp_path / "shop.py").write_text("raise RuntimeError('broken')\n")
    emperor.order(RELOAD)
    instance.wait_for_text("generation 2 could not be loaded")
    assert instance.body() == "one"
    (tmp_path / "shop.py").write_text("def application(environ, start):\n    start('200 OK', [])\n    return [b'two']\n")
    emperor.order(RELOAD)
    # Nothing came between.
    emperor.wait_for(*SERVES)
    instance.wait_for(lambda: instance.body() == "two", "the new code")


def test_the_end_of_the_emperor_is_that_of_the_vassal(vassal, emperor):
    instance = vassal()
    emperor.wait_for(*SERVES)
    emperor.ends()
    assert instance.wait_for_exit() == 0
    assert "bolide: the emperor has ended\n" in instance.log


def test_heartbeats_come_from_a_vassal_without_requests(vassal, emperor):
    vassal("--heartbeat", "1")
    emperor.wait_for(*SERVES)
    for _ in range(2):
        assert set(emperor.receive()) == {HEARTBEAT}


def test_a_vassal_that_is_idle_says_so_before_it_exits(vassal, emperor):
    instance = vassal("--idle", "1", "--die-on-idle")
    emperor.wait_for(*SERVES, IDLE)
    assert instance.wait_for_exit() == 0


def test_a_vassal_stays_the_child_of_its_emperor_with_daemonize_too(vassal, emperor, tmp_path):
    instance = vassal("--daemonize", tmp_path / "vassal.log", ready=False)
    emperor.wait_for(*SERVES)
    assert "ready: 1 worker" in (tmp_path / "vassal.log").read_text()
    instance.send_signal(signal.SIGTERM)
    assert instance.wait_for_exit() == 0


def test_a_vassal_has_a_master_and_its_processes_know_no_emperor(vassal, emperor):
    instance = vassal(master=False)
    emperor.wait_for(*SERVES)
    # Without a master, a single worker loads the application itself.
    assert "(the application was loaded in" in instance.log
    for pid in (instance.prototype(), instance.worker()):
        assert b"UWSGI_EMPEROR_FD" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_vassal_is_not_upgraded(vassal, emperor):
    instance = vassal()
    emperor.wait_for(*SERVES)
    instance.send_signal(signal.SIGRTMIN + 2)
    instance.wait_for_text("the emperor would take the end of this master for that of the instance")
    assert instance.body()


@pytest.mark.parametrize("number", ["x", "-1", "1", "999", "file"])
def test_a_number_that_is_no_socket_of_an_emperor_is_told_and_passed_over(number, start, tmp_path):
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    kept = (file,) if number == "file" else ()
    number = str(file) if number == "file" else number
    instance = start(environment={"UWSGI_EMPEROR_FD": number}, kept=kept)
    os.close(file)
    instance.wait_for_log(rf"^bolide: UWSGI_EMPEROR_FD = {number}: .*; there is no emperor$")
    assert instance.body()


def test_an_emperor_that_does_not_read_delays_nothing(vassal, emperor):
    # The socket takes no more.
    emperor.of_vassal.setblocking(False)
    try:
        while True:
            emperor.of_vassal.send(bytes(4096))
    except BlockingIOError:
        pass
    instance = vassal("--heartbeat", "1")
    assert instance.body()
    emperor.order(STOP)
    assert instance.wait_for_exit() == 0
