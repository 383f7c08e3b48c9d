"""Listening sockets of an instance: every kind of address, UNIX sockets, inherited descriptors, distribution of connections."""

import contextlib
import functools
import os
import signal
import socket
import stat
import uuid
from pathlib import Path

import pytest
from support import uwsgi
from support.client import Client
from support.ports import ipv6_is_there
from support.server import program
from support.waiting import wait_until
from support_instance import START_FAILED
from support_processes import descriptors_of, established_sockets, tcp_table
from support_users import may

CONNECTIONS = 64
#: Maximum for either of two workers with 64 connections: 60:40.
MAX_SHARE = 38


def unix_path(place):
    return str(place)


def test_ipv6(start, fail):
    if not ipv6_is_there():
        status, lines = fail("--http-socket", "[::1]:0", "--module", "probe")
        assert status == START_FAILED
        assert "[::1]:0" in lines[-1] or "::1" in lines[-1]
        return
    instance = start(socket="[::1]:0")
    instance.wait_for_log(r"^bolide: open http://\[::1\]:\d+$")
    assert instance.body() == str(instance.worker())


def test_several_sockets_at_once(start, tmp_path):
    instance = start("--http-socket", "127.0.0.1:0", "--uwsgi-socket", "127.0.0.1:0", "--socket", "app.sock")
    instance.wait_for_text(f"bolide: listening on uwsgi unix:{tmp_path}/app.sock\n")
    http = [place[1:] for place in instance.places() if place[0] == "http"]
    assert len(http) == 2
    worker = str(instance.worker())
    assert {Client(address).request().text for address in http} == {worker}
    assert uwsgi.ask(instance.address("uwsgi")).body.decode() == worker
    assert uwsgi.ask(unix_path(tmp_path / "app.sock")).body.decode() == worker


def test_an_abstract_socket(start):
    name = f"bolide-{uuid.uuid4().hex}"
    instance = start(socket=f"@{name}")
    assert instance.lines[0].startswith("bolide: version")
    instance.wait_for_text(f"bolide: listening on http unix:@{name}")
    with Client(b"\0" + name.encode()) as client:
        assert client.request().text == str(instance.worker())
    assert Path("/proc/net/unix").read_text().count(f"@{name}\n") >= 1


@pytest.mark.parametrize("option", ["--socket", "--uwsgi-socket", "--http-socket", "--http"])
def test_each_socket_option_takes_unix_before_a_path_and_before_an_abstract_name(start, tmp_path, option):
    name = f"bolide-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as inherited:
        inherited.bind(str(tmp_path / "given.sock"))
        inherited.listen()
        addresses = ("unix:near.sock", f"unix://{tmp_path}/url.sock", f"unix:@{name}", f"fd://{inherited.fileno()}")
        options = [word for address in addresses for word in (option, address)]
        instance = start(*options, kept=[inherited.fileno()])
        places = [*(unix_path(tmp_path / f"{file}.sock") for file in ("near", "url", "given")), b"\0" + name.encode()]
        for place in places:
            ask = Client(place).request if option.startswith("--http") else functools.partial(uwsgi.ask, place)
            assert ask().body.decode() == str(instance.worker()), place


def test_an_abstract_socket_in_use_ends_the_start(fail):
    name = f"bolide-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(b"\0" + name.encode())
        other.listen()
        status, lines = fail("--http-socket", f"@{name}", "--module", "probe")
    assert status == START_FAILED
    assert f"@{name} is in use by another program" in lines[-1]


#: In a separate network namespace, so that no other machine can connect.
ISOLATED = ["unshare", "--map-root-user", "--net"]


@pytest.mark.skipif(not may(*ISOLATED, "true"), reason="no network of its own may be made here (unshare --net)")
def test_a_port_without_a_host_is_at_every_address(start):
    instance = start(socket=":0", command=[*ISOLATED, *program()])
    said = instance.wait_for_log(r"^bolide: open http://127\.0\.0\.1:(\d+) \(all addresses of this machine: 0\.0\.0\.0:(\d+)\)$")
    assert said[1] == said[2]
    table = Path(f"/proc/{instance.worker()}/net/tcp").read_text()
    assert f" 00000000:{int(said[1]):04X} " in table


def test_a_descriptor_that_the_parent_process_has_opened(start):
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        number = inherited.fileno()
        instance = start(socket=f"fd://{number}", kept=[number])
        assert instance.address() == inherited.getsockname()
        assert instance.body() == str(instance.worker())
        instance.reload(2)
        assert instance.body() == str(instance.worker())


def test_an_inherited_unix_socket(start, tmp_path):
    with socket.socket(socket.AF_UNIX) as inherited:
        inherited.bind(str(tmp_path / "given.sock"))
        inherited.listen()
        start("--vacuum", socket=f"fd://{inherited.fileno()}", kept=[inherited.fileno()])
        with Client(unix_path(tmp_path / "given.sock")) as client:
            assert client.request().status == 200
    # A socket that another program has created is not removed.
    assert (tmp_path / "given.sock").exists()


def test_a_descriptor_that_is_no_listening_socket_ends_the_start(fail):
    status, lines = fail("--http-socket", "fd://77", "--module", "probe")
    assert status == START_FAILED
    assert "fd://77: no descriptor of that number is open" in lines[-1]
    left, right = socket.socketpair()
    with left, right:
        number = left.fileno()
        status, lines = fail("--http-socket", f"fd://{number}", "--module", "probe", pass_fds=[number])
    assert status == START_FAILED
    assert f"fd://{number}" in lines[-1]


# UNIX sockets


def test_a_stale_socket_file_is_replaced(start, tmp_path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "app.sock"))
    assert (tmp_path / "app.sock").exists()
    instance = start(socket="app.sock")
    with Client(unix_path(tmp_path / "app.sock")) as client:
        assert client.request().text == str(instance.worker())


def test_a_socket_file_that_somebody_listens_at_is_left_alone(fail, tmp_path):
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(tmp_path / "app.sock"))
        live.listen()
        status, lines = fail("--http-socket", "app.sock", "--module", "probe", "--vacuum")
        assert status == START_FAILED
        assert "app.sock is in use by another program" in lines[-1]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "app.sock"))


def test_a_file_that_is_no_socket_is_left_alone(fail, tmp_path):
    (tmp_path / "app.sock").write_text("precious")
    status, lines = fail("--http-socket", "app.sock", "--module", "probe", "--vacuum")
    assert status == START_FAILED
    assert "is not a socket, and is not removed" in lines[-1]
    assert (tmp_path / "app.sock").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "mode"),
    [(("--chmod-socket",), 0o666), (("-C",), 0o666), (("--chmod-socket=660",), 0o660), (("-C600",), 0o600)],
    ids=["no-value", "short", "value", "short-value"],
)
def test_chmod_socket_sets_the_mode(options, mode, start, tmp_path):
    start(*options, socket="app.sock")
    assert stat.S_IMODE((tmp_path / "app.sock").stat().st_mode) == mode


def test_chmod_socket_without_a_value_in_a_file_sets_666(start, tmp_path):
    (tmp_path / "app.ini").write_text("[uwsgi]\nhttp-socket = app.sock\nmodule = probe\nchmod-socket\n")
    start("app.ini", socket=None, module=None)
    assert stat.S_IMODE((tmp_path / "app.sock").stat().st_mode) == 0o666


def test_chown_socket_gives_the_file_away_if_that_is_allowed(start, fail, tmp_path):
    if os.getuid() != 0:
        status, lines = fail("--http-socket", "app.sock", "--chown-socket", "0:0", "--module", "probe")
        assert status == START_FAILED
        assert "only root may give files away" in lines[-1]
        return
    start("--chown-socket", "12345:23456", socket="app.sock")
    found = (tmp_path / "app.sock").stat()
    assert (found.st_uid, found.st_gid) == (12345, 23456)


def test_vacuum_removes_socket_files_and_pidfile_at_the_end(start, tmp_path):
    instance = start("--socket", "app.sock", "--vacuum", "--pidfile", "app.pid")
    assert (tmp_path / "app.pid").read_text() == f"{instance.pid}\n"
    assert (tmp_path / "app.sock").exists()
    instance.reload(2)
    assert (tmp_path / "app.sock").exists()
    assert instance.stop() == 0
    assert not (tmp_path / "app.sock").exists()
    assert not (tmp_path / "app.pid").exists()


def test_without_vacuum_the_files_stay(start, tmp_path):
    instance = start("--socket", "app.sock", "--pidfile", "app.pid")
    assert instance.stop() == 0
    assert (tmp_path / "app.sock").exists()
    assert (tmp_path / "app.pid").exists()


def test_vacuum_leaves_the_socket_of_a_successor_alone(start, tmp_path):
    instance = start("--socket", "app.sock", "--vacuum")
    (tmp_path / "app.sock").unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(tmp_path / "app.sock"))
        assert instance.stop() == 0
        assert (tmp_path / "app.sock").exists()


# Waiting connections


def count_waiting(place, most):
    """Returns the number of connections in the queue of a UNIX socket whose worker accepts none."""
    with contextlib.ExitStack() as clients:
        for count in range(most):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            try:
                client.connect(place)
            except BlockingIOError:
                return count
    return most


@pytest.mark.parametrize(("options", "waiting"), [(("--listen", "7"), 8), ((), 150)], ids=["listen", "default"])
def test_listen_is_the_number_of_connections_that_wait(options, waiting, start, tmp_path):
    instance = start(*options, socket="app.sock")
    worker = instance.worker()
    os.kill(worker, signal.SIGSTOP)
    try:
        # The kernel queues one connection more than the backlog (unix_recvq_full). The default is far beyond uWSGI's 100.
        assert count_waiting(unix_path(tmp_path / "app.sock"), 150) == waiting
    finally:
        os.kill(worker, signal.SIGCONT)


def test_a_listen_above_the_limit_of_the_kernel_is_cut_and_said(start):
    limit = int(Path("/proc/sys/net/core/somaxconn").read_text())
    if limit >= 65535:
        pytest.skip("this kernel's limit is beyond what the option takes")
    instance = start("--listen", "65535")
    instance.wait_for_text(f"listen = 65535 is reduced to {limit} by the kernel: raise net.core.somaxconn")


# Distribution


def share(instance):
    """Returns the number of connections of each worker."""
    ours = established_sockets(instance.port)
    return [len(ours.intersection(descriptors_of(worker).values())) for worker in instance.workers()]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_two_workers_share_64_kept_alive_connections_that_come_one_by_one_fairly(threads, start):
    """While a worker is suspended, the other one takes what comes: one round of several is enough."""
    instance = start("--processes", "2", "--threads", threads)
    wait_until(lambda: len(instance.workers()) == 2, "two workers")
    seen = []

    def is_fair():
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(instance.connect())
            assert clients[-1].request().status == 200
        seen.append(share(instance))
        assert sum(seen[-1]) == CONNECTIONS
        for client in clients:
            client.close()
        wait_until(lambda: sum(share(instance)) == 0, "the connections have left")
        return max(seen[-1]) <= MAX_SHARE

    assert any(is_fair() for _ in range(5)), seen


@pytest.mark.parametrize("threads", ["1", "3"])
def test_two_workers_share_a_burst_of_64_kept_alive_connections_fairly(threads, start):
    """A worker that was suspended gets its share of a later burst: one connection of several is enough."""
    instance = start("--processes", "2", "--threads", threads)
    wait_until(lambda: len(instance.workers()) == 2, "two workers")
    seen = []

    def is_fair():
        clients = [instance.connect() for _ in range(CONNECTIONS)]
        for client in clients:
            client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(client.read_response().status == 200 for client in clients)
        seen.append(share(instance))
        assert sum(seen[-1]) == CONNECTIONS
        for client in clients:
            client.close()
        wait_until(lambda: sum(share(instance)) == 0, "the burst has left")
        return max(seen[-1]) <= MAX_SHARE

    wait_until(is_fair, lambda: f"a burst that is shared fairly: {seen}")


def test_no_descriptor_left_serves_the_open_connections_and_recovers(start):
    limited = ["sh", "-c", 'ulimit -n 48; exec "$@"', "sh", *program()]
    instance = start(command=limited)
    first = instance.connect()
    assert first.request().status == 200
    waiting = [instance.connect() for _ in range(60)]
    instance.wait_for_log(
        r"^bolide: worker 1: can't accept a connection: \d+ are open: .*raise the limit of open files \(ulimit -n"
    )
    assert first.request().status == 200
    for client in waiting:
        client.close()
    assert instance.body() == str(instance.worker())
    assert first.request().status == 200
    # The line is not written for every attempt.
    assert instance.log.count("can't accept a connection") < 10


def test_a_listening_socket_stays_open_over_a_reload(start):
    instance = start()
    before = [fields[9] for fields in tcp_table() if fields[3] == "0A" and fields[1].endswith(f":{instance.port:04X}")]
    instance.reload(2)
    after = [fields[9] for fields in tcp_table() if fields[3] == "0A" and fields[1].endswith(f":{instance.port:04X}")]
    assert len(before) == 1
    assert after == before
