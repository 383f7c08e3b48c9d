"""More resources of an instance at an upgrade: statistics, the service manager, daemons and cron. One master has each at a
time.
"""

import collections
import json
import os
import re
import signal
import socket
import struct
import time

import prometheus_client
import pytest
from support.client import Client
from support.repeating import Repeating
from support.server import program
from support.statistics import read_raw, read_statistics
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_activate import activated
from support_processes import is_alive
from support_upgrade import HELD, SERVES, UPGRADE, pid_of, upgrade, wait_for_another
from support_versions import write
from uwsgi_prometheus.collectors import UWSGIStatsCollector


class Readers(Repeating):
    """Repeated readers of the statistics: records the masters that have answered, in their order, and failures."""

    def __init__(self, address):
        super().__init__(2)
        self.masters = []
        self._address = address

    def once(self):
        self.masters.append(read_statistics(self._address)["pid"])


def hold(tmp_path):
    """The code of the next master waits until this file is removed."""
    held = tmp_path / "hold"
    held.touch()
    write(tmp_path, "new", before="print('loading', flush=True)\n" + HELD.format(path=str(held)))
    return held


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_statistics_are_the_old_masters_until_the_new_one_serves_and_no_reader_is_refused(kind, upgradable, tmp_path):
    path = tmp_path / "stats.sock"
    instance = upgradable("--stats", "127.0.0.1:0" if kind == "tcp" else path)
    place = instance.wait_for_log(r"^bolide: statistics at (\S+)$")[1]
    address = (place.rpartition(":")[0], int(place.rpartition(":")[2])) if kind == "tcp" else str(path)
    with Readers(address) as readers:
        wait_until(lambda: readers.masters, "a reader to be answered")
        held = hold(tmp_path)
        instance.send_signal(UPGRADE)
        instance.wait_for_log("^loading$")
        # The new master has the socket by now, and leaves it to the old one.
        seen = len(readers.masters)
        wait_until(lambda: len(readers.masters) > seen + 5, "more answers")
        assert set(readers.masters) == {instance.pid}
        held.unlink()
        new = wait_for_another(tmp_path, instance.pid)
        assert instance.process.wait(TIMEOUT_SECONDS) == 0
        wait_until(lambda: readers.masters[-1] == new, "the new master's answer")
    assert readers.failures == []
    assert set(readers.masters) == {instance.pid, new}
    # And the one after that.
    third = upgrade(tmp_path)
    wait_until(lambda: read_statistics(address)["pid"] == third, "the third master's answer")
    os.kill(third, signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of the last master")
    assert not path.exists()


def test_an_exporter_that_is_kept_reads_one_master_after_the_other(upgradable, tmp_path):
    instance = upgradable("--stats", "127.0.0.1:0", "--stats-http")
    place = instance.wait_for_log(r"^bolide: statistics at (\S+), over HTTP$")[1]
    registry = prometheus_client.CollectorRegistry()
    registry.register(UWSGIStatsCollector(stats_url=f"http://{place}"))

    def requests_total():
        page = prometheus_client.generate_latest(registry).decode()
        return float(re.search(r"^uwsgi_requests_total (\S+)$", page, re.MULTILINE)[1])

    for _ in range(3):
        instance.body()
    wait_until(lambda: requests_total() == 3, "the requests of the old master")
    held = hold(tmp_path)
    instance.send_signal(UPGRADE)
    instance.wait_for_log("^loading$")
    assert requests_total() == 3
    held.unlink()
    wait_for_another(tmp_path, instance.pid)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert instance.body() == "new"
    wait_until(lambda: requests_total() == 1, "the requests of the new master")


def test_a_reader_that_is_slow_gets_its_answer_from_the_master_that_began_it(upgradable, tmp_path):
    instance = upgradable("--stats", "127.0.0.1:0", "--stats-http", module="probe")
    place = instance.wait_for_log(r"^bolide: statistics at (\S+), over HTTP$")[1]
    address = (place.rpartition(":")[0], int(place.rpartition(":")[2]))
    # The old master lives as long as it has this request.
    gate = tmp_path / "gate"
    with instance.connect() as client, socket.create_connection(address) as slow:
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
        slow.sendall(b"GET / HTTP/1.0\r\n")
        # A client that connects later is answered once this one was accepted.
        assert pid_in(read_raw(address, ASKED)) == instance.pid
        new = upgrade(tmp_path)
        instance.wait_for_log(SERVES)
        slow.sendall(b"\r\n")
        answer = b""
        while part := slow.recv(65536):
            answer += part
        assert pid_in(answer) == instance.pid
        assert pid_in(read_raw(address, ASKED)) == new
        gate.touch()
        assert client.read_response().text == "waited"


ASKED = b"GET / HTTP/1.0\r\n\r\n"


def pid_in(answer):
    return json.loads(answer.partition(b"\r\n\r\n")[2])["pid"]


class Ear:
    """The socket of a service manager that accepts messages of the main process only, as with `NotifyAccess=main`."""

    CREDENTIALS = struct.Struct("3i")

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(TIMEOUT_SECONDS)

    def hears(self):
        """Returns the next message and the pid of its sender."""
        text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(self.CREDENTIALS.size))
        ((_, _, data),) = ancillary
        return dict(line.split("=", 1) for line in text.decode().splitlines()), self.CREDENTIALS.unpack(data)[0]


def test_the_old_master_reports_the_new_main_pid_and_only_the_main_process_notifies(upgradable, tmp_path):
    ear = Ear(tmp_path / "notify")
    watched = 'WATCHDOG_PID=$$ exec "$0" "$@"'
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    instance = upgradable(environment=environment, command=["/bin/sh", "-c", watched, *program()])
    main, pings = instance.pid, collections.Counter()
    while "READY" not in (said := ear.hears()[0]):
        assert said == {"WATCHDOG": "1"}
    held = hold(tmp_path)
    instance.send_signal(UPGRADE)
    instance.wait_for_log("^loading$")
    held.unlink()
    while pings[main] < 3 or main == instance.pid:
        said, sender = ear.hears()
        assert sender == main, said
        pings[sender] += said == {"WATCHDOG": "1"}
        if "MAINPID" in said:
            main = int(said["MAINPID"])
            assert said == {"MAINPID": str(main), "READY": "1", "STATUS": "upgraded, the new master is ready"}
    assert main == pid_of(tmp_path)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    # From then on it reports for the service.
    os.kill(main, signal.SIGHUP)
    while True:
        said, sender = ear.hears()
        assert sender == main
        if "RELOADING" in said:
            break


def test_sockets_of_the_service_manager_are_handed_on_and_stay_its_own(upgradable, tmp_path):
    path = tmp_path / "app.sock"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(path))
        local.listen()
        environment = {"LISTEN_FDNAMES": "web:local"}
        (tmp_path / "app.ini").write_text("[uwsgi]\nhttp-socket = fd://web\nhttp-socket = fd://local\n")
        options = activated(tcp, local)
        instance = upgradable("--ini", tmp_path / "app.ini", socket=None, environment=environment, **options)
        for version in ("second", "third"):
            assert Client(tcp.getsockname()).request().status == 200
            write(tmp_path, version)
            upgrade(tmp_path)
            for place in (tcp.getsockname(), str(path)):
                wait_until(lambda place=place, version=version: Client(place).request().text == version, "the new version")
        assert instance.process.wait(TIMEOUT_SECONDS) == 0
        # A reload parses the inherited sockets and their names again.
        last = pid_of(tmp_path)
        write(tmp_path, "the fourth one")
        os.kill(last, signal.SIGHUP)
        wait_until(lambda: Client(tcp.getsockname()).request().text == "the fourth one", "the reload")
        os.kill(last, signal.SIGTERM)
        wait_until(lambda: not instance.processes(), "the end of the last master")
        assert path.exists(), "the file is the manager's"
        # They still listen: new connections belong to the next instance.
        with socket.create_connection(tcp.getsockname()), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def lines_of(path):
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.fixture
def alone(tmp_path):
    """Returns the script of a daemon that records whether another copy of it runs, and the file with the pids of all."""
    pids, lock, twice = tmp_path / "pids", tmp_path / "lock", tmp_path / "twice"
    script = tmp_path / "daemon"
    script.write_text(
        f"#!/bin/sh\nmkdir {lock} || echo $$ >> {twice}\ntrap 'rmdir {lock}; exit 0' TERM\n"
        f"echo $$ >> {pids}\nwhile :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    yield script, pids, twice
    for pid in map(int, lines_of(pids)):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_daemon_runs_once_and_the_new_masters_begins_when_the_old_ones_has_ended(upgradable, alone, tmp_path):
    script, pids, twice = alone
    instance = upgradable("--attach-daemon", f"exec {script}", alarms=True)
    wait_until(lambda: lines_of(pids), "the daemon")
    held = hold(tmp_path)
    instance.send_signal(UPGRADE)
    instance.wait_for_log("^loading$")
    assert len(lines_of(pids)) == 1
    held.unlink()
    wait_until(lambda: len(lines_of(pids)) == 2, "the daemon of the new master")
    first, second = map(int, lines_of(pids))
    assert not is_alive(first)
    assert is_alive(second)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert is_alive(second)
    assert not twice.exists()


def test_a_daemon_goes_on_where_the_upgrade_fails(upgradable, alone, tmp_path):
    script, pids, _twice = alone
    instance = upgradable("--attach-daemon", f"exec {script}", alarms=True)
    (pid,) = map(int, wait_until(lambda: lines_of(pids), "the daemon"))
    write(tmp_path, "broken", before="def (:\n")
    instance.send_signal(UPGRADE)
    instance.wait_for_log(r"^bolide: upgrade: the new master \(pid \d+\) is not ready: .*: this master keeps serving$")
    assert is_alive(pid)
    assert lines_of(pids) == [str(pid)]


ALWAYS = "-1 -1 -1 -1 -1"


def test_a_job_of_cron_runs_once_a_minute_and_one_that_runs_outlives_the_upgrade_but_not_the_instance(
    upgradable, alone, tmp_path
):
    script, pids, _twice = alone
    minutes, note = tmp_path / "minutes", tmp_path / "job"
    short = f"{ALWAYS} echo $(($(date +%s) / 60)) >> {minutes}"
    long = f"{ALWAYS} test -e {note} || {{ echo $$ > {note}; exec sleep 1000; }}"
    # A job that starts at the end of a minute may run into the next one, so this begins earlier.
    wait_until(lambda: time.time() % 60 < 45, "the next minute")
    instance = upgradable("--attach-daemon", f"exec {script}", "--cron", short, "--cron", long, alarms=True)
    wait_until(lambda: lines_of(minutes) and lines_of(note), "both jobs")
    (job,) = map(int, lines_of(note))
    new = upgrade(tmp_path)
    # The daemon shows that the helper process of the new master has started.
    wait_until(lambda: len(lines_of(pids)) == 2, "the daemon of the new master")
    wait_until(lambda: instance.prototypes() == [new], "the end of all that has served")
    assert is_alive(job)
    assert instance.process.poll() is None, "the job has a master still"
    os.kill(new, signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of both masters")
    assert not is_alive(job)
    assert max(collections.Counter(lines_of(minutes)).values()) == 1, lines_of(minutes)
