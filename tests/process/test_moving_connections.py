"""Connections outlive their workers: when a worker exits, its idle connections move to the others, unnoticed by their clients."""

import signal

import pytest
from support.front import line
from support.http2 import NO_ERROR, Http2
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support_instance import APPLICATIONS
from support_kept import OPTIONS, Kept

#: Number of kept connections, and of replacements of their workers.
CONNECTIONS = 8
GENERATIONS = range(2, 5)

#: Kind -> the options that start its application, which answers `/pid` with its pid.
INTERFACES = {"wsgi": {}, "asgi": {"module": None}}


@pytest.fixture
def serving(start):
    """``serving("asgi", "--processes", "2")``; the application of each interface answers `/pid`."""

    def serving(interface, *options, **more):
        if interface == "asgi":
            options = ("--pythonpath", str(APPLICATIONS.parents[1] / "apps"), "--asgi", "asgi_shop", *options)
        return start(*options, **INTERFACES[interface], **more)

    return serving


def opened(instance, protocol="http", address=None):
    kept = [Kept(instance, protocol, address) for _ in range(CONNECTIONS)]
    assert {one.ask() for one in kept} <= workers_of(instance)
    return kept


def workers_of(instance):
    return {str(worker) for worker in instance.workers()}


def reload_and_ask(instance, kept):
    seen = workers_of(instance)
    for generation in GENERATIONS:
        instance.reload(generation)
        assert not seen & workers_of(instance)
        assert {one.ask() for one in kept} <= workers_of(instance)
        seen |= workers_of(instance)


@pytest.mark.parametrize("processes", ["1", "3"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_kept_connections_go_on_at_each_new_generation(serving, interface, processes):
    instance = serving(interface, "--processes", processes)
    reload_and_ask(instance, opened(instance))


@pytest.mark.parametrize("protocol", ["puwsgi", "fastcgi"])
def test_kept_connections_of_reverse_proxies_go_on_at_each_new_generation(serving, protocol):
    instance = serving("wsgi", "--processes", "2", f"--{OPTIONS[protocol]}", "127.0.0.1:0")
    reload_and_ask(instance, opened(instance, protocol))


@pytest.mark.parametrize("protocol", OPTIONS)
def test_kept_connections_at_a_unix_socket_go_on_at_each_new_generation(serving, protocol, tmp_path):
    path = str(tmp_path / "app.sock")
    instance = serving("wsgi", "--processes", "2", f"--{OPTIONS[protocol]}", path)
    reload_and_ask(instance, opened(instance, protocol, path))


def test_connections_that_have_not_asked_yet_go_on_at_the_new_generation(serving):
    instance = serving("wsgi", "--processes", "2")
    silent = [Kept(instance) for _ in range(CONNECTIONS)]
    # Connections before this one are with the workers, or in the kernel's queue.
    opened(instance)
    instance.reload(2)
    assert {one.ask() for one in silent} <= workers_of(instance)


def test_the_client_that_a_proxy_header_named_stays_the_client(serving):
    instance = serving("wsgi", "--processes", "2", "--enable-proxy-protocol")
    kept = [Kept(instance) for _ in range(CONNECTIONS)]
    for number, one in enumerate(kept):
        one.client.send(line(f"192.0.2.{number}", 50000 + number))
    for generation in GENERATIONS:
        told = [one.ask("/client").split() for one in kept]
        assert [client for _, *client in told] == [[f"192.0.2.{number}", str(50000 + number)] for number in range(CONNECTIONS)]
        assert {pid for pid, *_ in told} <= workers_of(instance)
        instance.reload(generation)


def test_a_proxy_header_that_comes_after_the_move_is_read(serving):
    instance = serving("wsgi", "--enable-proxy-protocol")
    one, other = Kept(instance), Kept(instance)
    other.client.send(line("192.0.2.2", 2))
    assert other.ask("/client").split()[1:] == ["192.0.2.2", "2"]
    instance.reload(2)
    one.client.send(line("192.0.2.1", 1))
    assert one.ask("/client").split() == [str(instance.worker()), "192.0.2.1", "1"]


@pytest.mark.parametrize("processes", ["1", "3"])
@pytest.mark.parametrize("interface", INTERFACES)
def test_recycling_closes_no_kept_connection(serving, interface, processes):
    instance = serving(interface, "--processes", processes, "--max-requests", "20", "--min-worker-lifetime", "0")
    kept = opened(instance)
    seen = set()

    def have_been_replaced():
        seen.update(one.ask() for one in kept)
        return len(seen) > 3 * int(processes)

    wait_until(have_been_replaced, lambda: f"workers that came later answer: {seen}")


def test_no_kept_connection_is_closed_where_cheaper_takes_workers_away(start):
    instance = start("--processes", "4", "--cheaper", "1", "--cheaper-initial", "4", "--cheaper-algo", "manual")
    kept = opened(instance)
    for left in (3, 2, 1):
        instance.send_signal(signal.SIGTTOU)
        wait_until(lambda left=left: len(instance.workers()) == left, f"{left} workers")
        assert {one.ask() for one in kept} <= workers_of(instance)


# Connections that do not move.


def test_a_connection_within_tls_is_closed_orderly_at_a_reload(start, tmp_path):
    authority = Authority(tmp_path / "certificates")
    shown = authority.server()
    instance = start("--https", f"127.0.0.1:0,{shown.chain},{shown.key}")
    plain = Kept(instance)
    with TlsClient(instance.address("https"), context_of(authority)) as client:
        old = client.request().text
        assert plain.ask() == old
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
        wait_until(lambda: plain.ask() != old, "the old worker has the order")
        answer = client.request()
        assert (answer.status, answer.text, answer.says_close) == (200, old, True)
        assert client.is_closed()
    instance.wait_for_generation(2)
    assert plain.ask() == str(instance.worker())


def test_a_connection_of_http2_gets_goaway_at_a_reload(start):
    instance = start("--http2", "h2c")
    plain = Kept(instance)
    with Http2(instance.connect()) as connection:
        assert connection.request().body.decode() == plain.ask()
        instance.send_signal(signal.SIGHUP)
        assert connection.read_end() == NO_ERROR
    instance.wait_for_generation(2)
    assert plain.ask() == str(instance.worker())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["stop", "stop by ^C"])
def test_a_stop_closes_kept_connections(start, number):
    instance = start("--processes", "2")
    kept = opened(instance)
    instance.send_signal(number)
    assert all(one.client.is_closed() for one in kept)
    instance.wait_for_exit()


# Connections for which the next generation has no socket.


@pytest.fixture
def configured(start, tmp_path):
    """Writes `app.ini` with these sockets beside the probe application, and starts Bolide with it."""

    def write(*sockets):
        lines = ["[uwsgi]", "master = true", "module = probe", f"pythonpath = {APPLICATIONS}", *sockets]
        (tmp_path / "app.ini").write_text("\n".join(lines) + "\n")

    def configured(*sockets):
        write(*sockets)
        instance = start("app.ini", module=None, socket=None, master=False, logging=True)
        instance.rewrite = write
        return instance

    return configured


@pytest.mark.parametrize("later", ["", "fastcgi-socket = 127.0.0.1:{port}"], ids=["gone", "another protocol"])
def test_a_kept_connection_of_a_removed_socket_gets_its_answer_and_is_closed(configured, free_port, later):
    port = free_port()
    first = "http-socket = 127.0.0.1:0"
    instance = configured(first, f"http-socket = 127.0.0.1:{port}")
    kept, other = Kept(instance, address=("127.0.0.1", port)), Kept(instance)
    assert kept.ask() == other.ask()
    instance.rewrite(first, later.format(port=port))
    instance.reload(2)
    answer = kept.client.request()
    assert (answer.status, answer.text, answer.says_close) == (200, str(instance.worker()), True)
    assert kept.client.is_closed()
    assert other.ask() == other.ask() == str(instance.worker())
