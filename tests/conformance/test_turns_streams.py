"""A client with many requests takes turns with other clients, on one thread or several: the number of calls before another
client's.

Each call of the flooding client is held, and released individually, so the tests only measure the order of calls.
"""

import pytest
from support.held import get
from support.http2 import Http2
from support.waiting import wait_until

#: Requests that the flooding client has sent.
STREAMS = 100
#: Calls of the flooding client after which another client connects.
BEFORE = 20
#: Maximum number of a client's calls before those of a new client: two that have begun already, or together, and a turn of two
#: more.
MAX_CALLS = 4
#: HTTP/1 clients that send the next request as soon as they have a response.
KEPT = 30
#: Number of threads, if there are several; each is inside a call of the flooding client.
THREADS = 3


def flood(held):
    """An HTTP/2 connection whose streams are held one by one; some of them have been released."""
    connection = Http2(held.server.connect())
    assert connection.request(target="/quick?greeting").text == "greeting"
    answers = [connection.begin(target=f"/held/gate?flood-{number:03}") for number in range(STREAMS)]
    for _ in range(BEFORE):
        end_one(held)
    wait_until(lambda: held_call(held), "the next call is held")
    return connection, answers


def held_call(held):
    """Returns the name of the currently held call of the flood, or None."""
    return next((name for name in held.in_progress() if name.startswith("flood")), None)


def end_one(held):
    """Ends a held call of the flood, the only one or any of them; returns its name."""
    wait_until(lambda: held_call(held), "a call is held")
    count = len(held.ended())
    held.let_through()
    held.wait_until_ended(count + 1)
    return held.ended()[count]


def calls_before(held, name, end):
    """Ends calls one by one until this one, which has been sent, has begun; returns the number of others that have begun since
    then.
    """
    begun = len(held.begun())
    for _ in range(10 * STREAMS):
        if name in held.begun():
            return held.begun()[begun:].index(name)
        wait_for_more = len(held.begun()) + 1
        end()
        wait_until(lambda least=wait_for_more: len(held.begun()) >= least, "the next call begins")
    raise AssertionError("it is never served")


class Newcomers:
    """Each kind of client: ``prepare`` runs before the flood, ``send`` after some of its calls."""

    def __init__(self, held, kind):
        self.held = held
        self.kind = kind
        self.client = {"new": lambda: None, "kept": held.connect, "new-stream": lambda: None, "kept-stream": self._multiplexed}[
            kind
        ]()

    def _multiplexed(self):
        connection = Http2(self.held.server.connect())
        assert connection.request(target="/quick?kept").text == "kept"
        return connection

    def send(self, name):
        if self.kind.endswith("stream"):
            self.client = self.client or Http2(self.held.server.connect())
            self.answer = self.client.begin(target=f"/quick?{name}")
        else:
            self.client = self.client or self.held.server.connect()
            self.client.send(get(f"/quick?{name}"))

    def read(self):
        if self.kind.endswith("stream"):
            return self.client.finish(self.answer).text
        return self.client.read_response().text


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
@pytest.mark.parametrize("kind", ["new", "kept", "new-stream", "kept-stream"])
def test_a_client_waits_for_few_of_the_streams_of_another(hold, kind, application):
    held = hold("http2 = h2c", application=application)
    newcomer = Newcomers(held, kind)
    connection, answers = flood(held)
    newcomer.send("newcomer")
    assert calls_before(held, "newcomer", lambda: end_one(held)) <= MAX_CALLS
    assert newcomer.read() == "newcomer"
    held.open_gates()
    connection.finish(*answers)


@pytest.mark.parametrize("kind", ["new", "kept", "new-stream", "kept-stream"])
def test_with_threads_a_client_waits_for_few_of_the_streams_of_another(hold, kind):
    held = hold(f"http2 = h2c\nthreads = {THREADS}")
    newcomer = Newcomers(held, kind)
    connection, answers = flood(held)
    held.wait_for_progress(THREADS)
    newcomer.send("newcomer")
    assert calls_before(held, "newcomer", lambda: end_one(held)) <= MAX_CALLS
    assert newcomer.read() == "newcomer"
    held.open_gates()
    connection.finish(*answers)


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_a_new_connection_has_its_turn_in_the_round_in_which_it_is_accepted(hold, application):
    held = hold(application=application)
    clients = [held.connect() for _ in range(KEPT)]
    first = held.hold("first")
    for number, client in enumerate(clients):
        client.send(get(f"/held/gate?flood-{number}-0"))
    held.let_through("first")
    for _ in range(2 * KEPT):
        answer_one(held, clients)
    wait_until(lambda: held_call(held), "the next call is held")
    new = held.server.connect()
    new.send(get("/quick?newcomer"))
    # Each of the others has one call before it.
    assert calls_before(held, "newcomer", lambda: answer_one(held, clients)) <= KEPT + MAX_CALLS
    assert new.read_response().text == "newcomer"
    assert first.finish() == "first"


def answer_one(held, clients):
    """Ends the held call; its client sends the next request."""
    name = end_one(held)
    _, number, times = name.split("-")
    client = clients[int(number)]
    assert client.read_response().text == name
    client.send(get(f"/held/gate?flood-{number}-{int(times) + 1}"))
