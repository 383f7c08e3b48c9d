"""A complete response reaches its client immediately, whatever the application does next: other calls, ``close()``, its remaining
code.
"""

import time

import pytest
from support.held import get
from support.http2 import Http2, pseudo
from support.waiting import assert_once_below

NANOSECONDS = 1_000_000_000
#: Maximum delay of a response after its call, in seconds: a corked socket (MSG_MORE) would wait for twice as long.
AT_ONCE_SECONDS = 0.1
#: Quick calls before a slow one.
QUICK = 5
#: Streams of one connection.
STREAMS = 100
#: After this many requests in a row the worker has measured the duration of its calls.
USUAL = 32
#: Timeout of a client for a response, in seconds. One that waits for a held call waits without end.
ANSWER_SECONDS = 15


def connect(held):
    client = held.connect()
    client.socket.settimeout(ANSWER_SECONDS)
    return client


def connect_multiplexed(held):
    connection = Http2(held.server.connect(patience=ANSWER_SECONDS))
    assert connection.request(target="/quick?greeting").text == "greeting"
    return connection


def make_batch(held, attempt, clients):
    """Quick requests, followed by one that is held, all found by one poll; returns when that one's call has begun."""
    *quick, slow = clients
    for number in range(USUAL):
        assert slow.request(target=f"/quick?usual-{attempt}-{number}").status == 200
    first = held.hold(f"first-{attempt}")
    for number, client in enumerate(quick):
        client.send(get(f"/quick?quick-{attempt}-{number}"))
    slow.send(get(f"/held/gate?slow-{attempt}"))
    held.let_through(f"first-{attempt}")
    return first


@pytest.mark.parametrize(("application", "threads"), [("wsgi", 1), ("wsgi", 4), ("asgi", 1)])
def test_quick_answers_of_a_batch_do_not_wait_for_the_slow_call_behind_them(hold, application, threads):
    held = hold(f"threads = {threads}", application=application)
    clients = [connect(held) for _ in range(QUICK + 1)]
    attempts = iter(range(100))

    def wait():
        attempt = next(attempts)
        first = make_batch(held, attempt, clients)
        answers = [client.read_response().text for client in clients[:QUICK]]
        received = time.monotonic_ns()
        assert answers == [f"quick-{attempt}-{number}" for number in range(QUICK)]
        began = held.wait_for("begin", f"slow-{attempt}")["monotonic_ns"]
        assert held.find("end", f"slow-{attempt}") is None
        held.let_through()
        assert clients[QUICK].read_response().text == f"slow-{attempt}"
        assert first.finish() == f"first-{attempt}"
        return (received - began) / NANOSECONDS

    assert_once_below(wait, AT_ONCE_SECONDS)


@pytest.mark.parametrize("protocol", ["http", "uwsgi", "fastcgi", "scgi"])
def test_answers_that_end_their_connection_do_not_wait_for_the_slow_call_behind_them(hold, protocol):
    held = hold(protocol=protocol)
    attempts = iter(range(100))

    def wait():
        attempt = next(attempts)
        first = held.hold(f"first-{attempt}")
        first.client.socket.settimeout(ANSWER_SECONDS)
        quick = [held.send(f"quick-{attempt}-{number}") for number in range(QUICK)]
        slow = held.send(f"slow-{attempt}", "/held/gate")
        held.let_through(f"first-{attempt}")
        for number, request in enumerate(quick):
            request.client.socket.settimeout(ANSWER_SECONDS)
            assert request.finish() == f"quick-{attempt}-{number}"
        assert first.finish() == f"first-{attempt}"
        received = time.monotonic_ns()
        began = held.wait_for("begin", f"slow-{attempt}")["monotonic_ns"]
        held.let_through()
        assert slow.finish() == f"slow-{attempt}"
        return (received - began) / NANOSECONDS

    assert_once_below(wait, AT_ONCE_SECONDS)


@pytest.mark.parametrize("threads", [1, 4])
def test_quick_streams_of_a_batch_do_not_wait_for_the_slow_call_behind_them(hold, threads):
    held = hold(f"http2 = h2c\nthreads = {threads}")
    connection = connect_multiplexed(held)
    # Enough at a time that streams begin by the dozen, as they do while they are quick.
    targets = [f"/quick?quick-{number}" for number in range(STREAMS - 1)] + ["/held/gate?slow"]
    *quick, slow = [connection.expect(connection.next_stream) for _ in targets]
    sent = zip([*quick, slow], targets)
    connection.send(b"".join(connection.heads(answer.stream, pseudo(target=target)) for answer, target in sent))
    held.wait_for("begin", "slow")
    connection.finish(*quick)
    assert held.find("end", "slow") is None
    held.let_through()
    assert connection.finish(slow).text == "slow"


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_an_answer_does_not_wait_for_what_its_application_does_behind_it(hold, version):
    held = hold("http2 = h2c", application="asgi")
    client = connect(held) if version == "1.1" else connect_multiplexed(held)
    assert client.request(target="/after/gate?worker").text == "worker"
    assert held.find("end", "after worker") is None
    held.let_through()
    held.wait_for("end", "after worker")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("protocol", ["http", "uwsgi", "fastcgi", "scgi"])
def test_an_answer_does_not_wait_for_the_close_of_what_it_was_made_of(hold, protocol, threads):
    held = hold(f"threads = {threads}", protocol=protocol)
    request = held.send("page", "/closing/gate")
    request.client.socket.settimeout(ANSWER_SECONDS)
    held.wait_for("begin", "close of page")
    # The end of the connection may come after `close()`.
    assert request.client.read_until(b"page")
    assert held.find("end", "close of page") is None
    held.let_through()
    held.wait_for("end", "close of page")


def test_an_answer_on_a_stream_does_not_wait_for_the_close_of_what_it_was_made_of(hold):
    held = hold("http2 = h2c")
    connection = connect_multiplexed(held)
    assert connection.request(target="/closing/gate?page").text == "page"
    assert held.find("end", "close of page") is None
    held.let_through()
    held.wait_for("end", "close of page")
