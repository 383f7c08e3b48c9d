"""A worker that the master kills costs its clients the requests that it executes, and no other."""

import re
import signal
import threading

import pytest
from support.held import LISTEN, Request
from support.http2 import NO_ERROR, Http2
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support_canary import LONG
from support_kept import OPTIONS, Kept
from support_stuck import INTERFACES, LIMIT, begin, stick, wait_until_killed

#: A limit for tests that must do something between the begin of a stuck call and the kill.
LONGER = ("--harakiri", "5")
#: Kept connections on which a request waits, and as many that rest.
CONNECTIONS = 10


def opened(instance, count, protocol="http", address=None):
    kept = [Kept(instance, protocol, address) for _ in range(count)]
    for one in kept:
        one.ask()
    return kept


def lose_only_the_stuck(instance, directory, kept, workers):
    """All workers are stuck and killed: each request that waits is answered, and no connection that rests is closed."""
    stuck, killed = stick(instance, directory, workers)
    half = len(kept) // 2
    for one in kept[:half]:
        one.send("/pid")
    wait_until_killed(stuck)
    answers = {one.read() for one in kept[:half]} | {one.ask() for one in kept[half:]}
    assert not answers & killed
    assert answers <= {str(pid) for pid in instance.workers()}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("interface", INTERFACES)
def test_harakiri_of_all_workers_loses_only_the_stuck_requests(start, tmp_path, interface, workers):
    # With threads, a worker is stuck after its second call only, which must begin before the kill for the first.
    limit = LONGER if interface == "threads" else LIMIT
    instance = begin(start, interface, "--processes", workers, *limit)
    lose_only_the_stuck(instance, tmp_path, opened(instance, 2 * CONNECTIONS), workers)


@pytest.mark.parametrize("protocol", [name for name in OPTIONS if name != "http"])
def test_harakiri_keeps_the_connections_of_reverse_proxies(start, tmp_path, protocol):
    instance = begin(start, "wsgi", f"--{OPTIONS[protocol]}", "127.0.0.1:0", *LIMIT)
    lose_only_the_stuck(instance, tmp_path, opened(instance, 2 * CONNECTIONS, protocol), 1)


@pytest.mark.parametrize("protocol", OPTIONS)
def test_harakiri_keeps_connections_at_a_unix_socket(start, tmp_path, protocol):
    path = str(tmp_path / "app.sock")
    instance = begin(start, "wsgi", f"--{OPTIONS[protocol]}", path, *LIMIT)
    lose_only_the_stuck(instance, tmp_path, opened(instance, 2 * CONNECTIONS, protocol, path), 1)


@pytest.mark.parametrize("protocol", [name for name in LISTEN if name != "http"])
def test_a_request_on_a_connection_that_was_silent_is_answered_after_harakiri(start, tmp_path, protocol):
    option, _, address = LISTEN[protocol].partition(" = ")
    instance = begin(start, "wsgi", f"--{option}", address, *LIMIT)
    silent = [Request(instance, protocol) for _ in range(CONNECTIONS)]
    # Connections before this one are with the worker.
    opened(instance, 1)
    stuck, killed = stick(instance, tmp_path)
    for one in silent:
        one.send("/pid")
    wait_until_killed(stuck)
    assert {one.finish() for one in silent}.isdisjoint(killed)


def test_more_connections_than_the_queue_has_room_for_survive_harakiri(start, tmp_path):
    instance = begin(start, "wsgi", *LIMIT)
    lose_only_the_stuck(instance, tmp_path, opened(instance, 400), 1)


def test_connections_wait_for_a_worker_that_loads_the_application_again(start, tmp_path):
    (tmp_path / "slow.py").write_text("import time; time.sleep(1)\nfrom sticking import application\n")
    instance = start("--pythonpath", tmp_path, "--lazy-apps", *LIMIT, module="slow")
    instance.calls = 1
    lose_only_the_stuck(instance, tmp_path, opened(instance, 2 * CONNECTIONS), 1)


def test_a_kill_for_memory_keeps_the_other_connections(start, tmp_path):
    instance = start("--evil-reload-on-rss", "300")
    kept = opened(instance, 2 * CONNECTIONS)
    before = kept[0].ask()
    instance.connect().send(b"GET /grow/300 HTTP/1.1\r\nHost: a\r\n\r\n")
    for one in kept[:CONNECTIONS]:
        one.send("/pid")
    instance.wait_for_log(rf"^bolide: killing worker 1 \(pid {before}\) because of its memory use")
    # Some of them may be answered before the kill.
    for one in kept[:CONNECTIONS]:
        one.read()
    # The line comes before the kill.
    instance.wait_for_replacement(int(before))
    assert before not in {one.ask() for one in kept}


@pytest.mark.parametrize("interface", INTERFACES)
def test_requests_behind_a_worker_that_outlasts_its_mercy_are_answered_by_the_next_generation(start, tmp_path, interface):
    instance = begin(start, interface, "--worker-reload-mercy", "2")
    kept = opened(instance, 2 * CONNECTIONS)
    stuck, killed = stick(instance, tmp_path)
    for one in kept[:CONNECTIONS]:
        one.send("/pid")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    assert {one.read() for one in kept[:CONNECTIONS]}.isdisjoint(killed)
    assert {one.ask() for one in kept}.isdisjoint(killed)
    instance.wait_for_log(r"did not finish within 2 s \(worker-reload-mercy\)|did not finish within 2 s \(reload-mercy\)")
    wait_until_killed(stuck)


def test_harakiri_beside_a_canary_loses_only_the_stuck_request(start, tmp_path):
    instance = begin(start, "wsgi", *LIMIT, *LONG, alarms=True)
    kept = opened(instance, 2 * CONNECTIONS)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(r"^bolide: canary: worker 1 \(pid \d+\) of generation 2 handles requests")
    # One of the two workers is the canary.
    stuck, killed = stick(instance, tmp_path, 2)
    for one in kept[:CONNECTIONS]:
        one.send("/pid")
    wait_until_killed(stuck)
    assert {one.read() for one in kept[:CONNECTIONS]}.isdisjoint(killed)
    assert {one.ask() for one in kept[CONNECTIONS:]}.isdisjoint(killed)


def test_connections_of_a_worker_that_is_killed_in_a_pause_are_served_after_it(start, tmp_path, call):
    instance = begin(start, "wsgi", *LONGER)
    kept = opened(instance, 2 * CONNECTIONS)
    stuck, killed = stick(instance, tmp_path)
    assert call("pause", instance.pid)[0] == 0
    for one in kept[:CONNECTIONS]:
        one.send("/pid")
    wait_until_killed(stuck)
    instance.wait_for_replacement(*map(int, killed))
    assert all(one.is_silent() for one in kept)
    assert call("resume", instance.pid)[0] == 0
    assert {one.read() for one in kept[:CONNECTIONS]}.isdisjoint(killed)
    assert {one.ask() for one in kept[CONNECTIONS:]}.isdisjoint(killed)


def test_quick_requests_in_other_threads_end_before_the_kill(start, tmp_path):
    instance = begin(start, "threads", *LIMIT)
    stuck = Kept(instance)
    stuck.send(f"/wait?{tmp_path / 'never'}")
    lost, is_killed = [], threading.Event()

    def keep_asking():
        one = Kept(instance)
        while not is_killed.is_set():
            try:
                one.ask("/short")
            except Exception as error:
                lost.append(error)
                return

    others = [threading.Thread(target=keep_asking) for _ in range(2)]
    for other in others:
        other.start()
    wait_until_killed([stuck])
    is_killed.set()
    for other in others:
        other.join()
    assert lost == []


# Connections that can't move.


@pytest.fixture
def secure(tmp_path):
    """Options of a listener with TLS, and a context of its clients."""
    authority = Authority(tmp_path / "certificates")
    shown = authority.server()
    return ("--https", f"127.0.0.1:0,{shown.chain},{shown.key}"), context_of(authority)


def test_an_idle_connection_within_tls_is_closed_in_order_before_a_kill(start, tmp_path, secure):
    options, context = secure
    instance = begin(start, "wsgi", *options, *LONGER)
    clients = [TlsClient(instance.address("https"), context) for _ in range(3)]
    for client in clients:
        assert client.request().status == 200
    idle, waiting, other = clients
    stuck, _ = stick(instance, tmp_path)
    waiting.send(b"GET /pid HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for client in (idle, other):
        # Without close_notify this raises SSLEOFError.
        assert client.socket.recv(100) == b""
    wait_until_killed(stuck)
    instance.wait_for_log(r"; a request that was waiting on another connection is lost$")


def test_an_idle_connection_of_http2_gets_goaway_before_a_kill(start, tmp_path):
    instance = begin(start, "wsgi", "--http2", "h2c", *LIMIT)
    with Http2(instance.connect()) as connection:
        assert connection.request().status == 200
        stuck, _ = stick(instance, tmp_path)
        assert connection.read_end() == NO_ERROR
        wait_until_killed(stuck)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT], ids=["second signal", "immediate stop"])
def test_an_immediate_stop_closes_idle_connections_in_order(start, tmp_path, secure, number):
    options, context = secure
    instance = begin(start, "wsgi", *options)
    kept = opened(instance, 3)
    client = TlsClient(instance.address("https"), context)
    assert client.request().status == 200
    stick(instance, tmp_path)
    if number == signal.SIGTERM:
        instance.send_signal(signal.SIGTERM)
        instance.wait_for_log(r"^bolide: stop: completing requests")

    def stops_immediately():
        instance.send_signal(number)
        return "stopping immediately" in instance.log

    # A signal within a moment of the first counts as the same one.
    wait_until(stops_immediately, "the immediate stop")
    assert client.socket.recv(100) == b""
    assert all(one.client.is_closed() for one in kept)
    instance.wait_for_exit()


@pytest.mark.parametrize("kind", ["plain", "tls", "http2"])
def test_new_connections_are_spread_over_idle_workers(start, tmp_path, secure, kind):
    options, context = secure
    instance = begin(start, "wsgi", "--processes", "4", "--http2", "h2c", *options)
    rounds = []

    def are_spread():
        at = {str(pid): 0 for pid in instance.workers()}
        opened_ones = []
        for _ in range(40):
            if kind == "tls":
                client = TlsClient(instance.address("https"), context)
                pid = client.request().text
            elif kind == "http2":
                client = Http2(instance.connect())
                pid = client.request().body.decode()
            else:
                client = Kept(instance)
                pid = client.ask()
            opened_ones.append(client)
            at[pid] += 1
        rounds.append(at)
        return max(at.values()) <= 20 and min(at.values()) >= 4

    # A worker that waits for a CPU gets fewer connections, so a busy machine may need more than one round.
    wait_until(are_spread, lambda: f"a round of even counts: {rounds}")


# A client that has ended its side.


def test_a_request_of_a_client_that_has_ended_its_side_moves_and_is_answered(start, tmp_path):
    instance = begin(start, "wsgi", "--processes", "2", *LIMIT)
    kept = opened(instance, 2 * CONNECTIONS)
    stuck, killed = stick(instance, tmp_path, 2)
    for one in kept:
        one.send("/pid")
        one.client.end_sending()
    wait_until_killed(stuck)
    assert {one.read() for one in kept}.isdisjoint(killed)
    assert all(one.client.is_closed() for one in kept)


def test_a_client_that_has_ended_its_side_does_not_wait_for_a_stuck_worker(start, tmp_path):
    instance = begin(start, "wsgi", "--processes", "2")
    kept = opened(instance, 2 * CONNECTIONS)
    _, (held,) = stick(instance, tmp_path, 1)
    for one in kept:
        one.send("/pid")
        one.client.end_sending()
    answers = {one.read() for one in kept}
    assert held not in answers
    (tmp_path / "never-0").touch()


def test_the_log_of_a_kill_that_loses_nothing_else_says_nothing_else(start, tmp_path):
    instance = begin(start, "wsgi", *LIMIT)
    lose_only_the_stuck(instance, tmp_path, opened(instance, 2), 1)
    said = instance.wait_for_log(r"^bolide: harakiri: killing worker 1 \(pid \d+\) while it serves (.*)$")
    assert re.fullmatch(r"GET /wait\?\S+ \(for [\d.]+ s\)", said[1]), said[1]
