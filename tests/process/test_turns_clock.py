"""Each call and each connection has its own time limit, however many were served before it in one batch. The clock is advanced by
hand.

A batch is created by holding a call of a worker's only thread: everything that arrives in the meantime is found by one poll.
Limits are hours here, so that no machine is too slow for them.
"""

import email.utils

import pytest
from support.client import Closed
from support.held import get
from support.http2 import NO_ERROR, Http2
from support.statistics import read_statistics
from support.turned_clock import TurnedClock

HOUR = 3600
#: A part of an hour which several calls together exceed, and none by itself.
SLOW = 540
#: Calls of one batch.
BATCH = 20
#: The clock of `Date` and of the log is coarse, and a second may begin between two readings.
COARSE_SECONDS = 1


@pytest.fixture
def turned(hold, tmp_path):
    """``turned("harakiri = 3600")``: like ``hold``, with one thread, and a clock that ``turned.clock`` advances."""

    def turned(configuration="", **options):
        return hold(f"stats = {{directory}}/stats\n{configuration}", environment=turned.clock.environment, **options)

    turned.clock = TurnedClock(tmp_path)
    return turned


def have_master_look(held):
    """Wakes the master; it has checked everything that is due when it answers for the second time."""
    for _ in range(2):
        read_statistics(str(held.directory / "stats"))


def have_worker_look(held):
    """Waits until the worker's loop has run more than one iteration."""
    for _ in range(2):
        assert held.server.get("/quick?look").text == "look"


class Fresh:
    """A separate connection for each request."""

    def __init__(self, held):
        self.held = held

    def send(self, names):
        self.requests = {name: self.held.send(name, "/held/gate") for name in names}

    def read(self, name):
        return self.requests[name].finish()


class Kept:
    """A separate kept connection for each request."""

    def __init__(self, held):
        self.clients = [held.connect() for _ in range(BATCH)]

    def send(self, names):
        self.taken = dict(zip(names, self.clients))
        for name, client in self.taken.items():
            client.send(get(f"/held/gate?{name}"))

    def read(self, name):
        return self.taken[name].read_response().text


class Pipelined:
    """One connection for all requests."""

    def __init__(self, held):
        self.client = held.connect()

    def send(self, names):
        self.client.send(b"".join(get(f"/held/gate?{name}") for name in names))

    def read(self, name):
        return self.client.read_response().text


class Streams:
    """Streams of one HTTP/2 connection."""

    def __init__(self, held):
        self.connection = Http2(held.server.connect())
        assert self.connection.request(target="/quick?greeting").text == "greeting"

    def send(self, names):
        self.answers = {name: self.connection.begin(target=f"/held/gate?{name}") for name in names}

    def read(self, name):
        return self.connection.finish(self.answers[name]).text


def step_through(held, clock, clients, seconds):
    """A batch of calls, each of which takes this long by the advanced clock; the master checks the time in each."""
    held.hold("first")
    names = [f"call-{number}" for number in range(BATCH)]
    clients.send(names)
    held.let_through("first")
    for _ in names:
        held.wait_for_progress(1)
        clock.turn(seconds)
        have_master_look(held)
        ended = len(held.ended())
        held.let_through()
        held.wait_until_ended(ended + 1)
    assert [clients.read(name) for name in names] == names


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
@pytest.mark.parametrize("clients", [Fresh, Kept, Pipelined, Streams])
def test_harakiri_counts_the_time_of_each_call_and_not_of_those_before_it(turned, clients, application):
    held = turned(f"harakiri = {HOUR}\nhttp2 = h2c", application=application)
    step_through(held, turned.clock, clients(held), SLOW)
    assert "harakiri" not in held.server.whole_log()


@pytest.mark.parametrize("protocol", ["uwsgi", "fastcgi", "scgi"])
def test_harakiri_counts_the_time_of_each_call_of_a_reverse_proxy_and_not_of_those_before_it(turned, protocol):
    held = turned(f"harakiri = {HOUR}", protocol=protocol)
    step_through(held, turned.clock, Fresh(held), SLOW)
    assert "harakiri" not in held.server.whole_log()


def test_harakiri_ends_a_call_when_its_own_time_is_over(turned):
    held = turned(f"harakiri = {HOUR}")
    held.server.expects_alarms = True
    slow, stuck = make_batch(held, "slow", "stuck")
    turned.clock.turn(HOUR * 3 // 4)
    held.let_through("slow")
    assert slow.read_response().text == "slow"
    held.wait_for("begin", "stuck")
    turned.clock.turn(HOUR * 3 // 4)
    have_master_look(held)
    assert "harakiri" not in held.server.log, "the time before it counts"
    turned.clock.turn(HOUR // 2)
    have_master_look(held)
    held.server.wait_for_text("serves GET /held/stuck?")
    # The stack takes a moment.
    turned.clock.turn(1)
    have_master_look(held)
    with pytest.raises(Closed):
        stuck.read_response()
    held.server.wait_for_log(r"killing worker 1 \(pid \d+\) while it serves GET /held/stuck")


def make_batch(held, *names, then=()):
    """Makes one poll find held calls and other bytes, each on a kept connection; returns when the first of them has begun."""
    connections = [held.connect() for _ in range(len(names) + len(then))]
    # The events of newly registered connections are consumed: the order here only depends on the sent data.
    have_worker_look(held)
    held.hold("first")
    sent = [get(f"/held/{held.gate(name)}?{name}") for name in names]
    for connection, data in zip(connections, [*sent, *then]):
        connection.send(data)
    held.let_through("first")
    held.wait_for("begin", names[0])
    return connections


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_the_last_answer_of_a_long_batch_has_its_own_date_and_so_has_its_line_in_the_log(turned, application):
    held = turned("log-format = at=%(epoch) %(uri)", application=application)
    slow, quick = make_batch(held, "slow", then=[get("/quick?last")])
    turned.clock.turn(5 * HOUR)
    held.let_through("slow")
    assert slow.read_response().text == "slow"
    answer = quick.read_response()
    began = held.find("begin", "last")["time"]
    assert email.utils.parsedate_to_datetime(answer.get("date")).timestamp() > began - COARSE_SECONDS - 1
    logged = held.server.wait_for_log(r"at=(\d+) /quick\?last$")
    assert int(logged[1]) > began - COARSE_SECONDS - 1


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_the_last_answer_of_a_batch_of_streams_has_its_own_date(turned, application):
    held = turned("http2 = h2c", application=application)
    streams = Streams(held)
    held.hold("first")
    slow = streams.connection.begin(target="/held/gate?slow")
    last = streams.connection.begin(target="/quick?last")
    held.let_through("first")
    held.wait_for("begin", "slow")
    turned.clock.turn(5 * HOUR)
    held.let_through()
    streams.connection.finish(slow, last)
    assert [slow.text, last.text] == ["slow", "last"]
    began = held.find("begin", "last")["time"]
    assert email.utils.parsedate_to_datetime(last.get("date")).timestamp() > began - COARSE_SECONDS - 1


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_a_connection_is_kept_for_its_whole_time_after_the_answer_at_the_end_of_a_long_batch(turned, application):
    held = turned(f"http-keepalive = {2 * HOUR}", application=application)
    slow, quick = make_batch(held, "slow", then=[get("/quick?last")])
    turned.clock.turn(5 * HOUR)
    held.let_through("slow")
    assert [slow.read_response().text, quick.read_response().text] == ["slow", "last"]
    have_worker_look(held)
    assert quick.request(target="/quick?again").text == "again"
    turned.clock.turn(2 * HOUR - SLOW)
    have_worker_look(held)
    assert quick.request(target="/quick?late").text == "late"
    # A response may arrive before the worker has set the connection's limit.
    have_worker_look(held)
    turned.clock.turn(2 * HOUR + 1)
    have_worker_look(held)
    assert quick.is_closed()


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_an_idle_connection_of_http2_is_kept_for_its_whole_time_after_the_answer_at_the_end_of_a_long_batch(turned, application):
    held = turned(f"http-keepalive = {2 * HOUR}\nhttp2 = h2c", application=application)
    second = Streams(held).connection
    streams = Streams(held).connection
    have_worker_look(held)
    held.hold("first")
    slow = second.begin(target="/held/gate?slow")
    last = streams.begin(target="/quick?last")
    held.let_through("first")
    held.wait_for("begin", "slow")
    turned.clock.turn(5 * HOUR)
    held.let_through()
    second.finish(slow)
    streams.finish(last)
    have_worker_look(held)
    assert streams.request(target="/quick?again").text == "again"
    turned.clock.turn(2 * HOUR - SLOW)
    have_worker_look(held)
    assert streams.request(target="/quick?late").text == "late"
    # Its time may only begin at the next check.
    for _ in range(2):
        turned.clock.turn(2 * HOUR + 1)
        have_worker_look(held)
    assert streams.read_end() == NO_ERROR


POST = b"POST /quick?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"


def test_a_body_has_its_whole_time_from_when_the_server_has_begun_to_read_it(turned):
    held = turned(f"socket-timeout = {HOUR}")
    slow, upload, quick = make_batch(held, "slow", then=[POST + b"a", get("/quick?last")])
    turned.clock.turn(5 * HOUR)
    held.let_through("slow")
    assert [slow.read_response().text, quick.read_response().text] == ["slow", "last"]
    have_worker_look(held)
    turned.clock.turn(HOUR - SLOW)
    have_worker_look(held)
    upload.send(b"bcd")
    assert upload.read_response().text == "upload"
    # And no more than that.
    upload.send(POST + b"a")
    have_worker_look(held)
    turned.clock.turn(HOUR + 1)
    have_worker_look(held)
    assert upload.read_response().status == 408


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_a_connection_that_was_accepted_at_the_end_of_a_long_batch_has_its_whole_time_for_a_request(turned, application):
    held = turned(f"socket-timeout = {HOUR}\nhttp-timeout = {HOUR}", application=application)
    connection = held.connect()
    worker = held.server.worker()
    held.hold("first")
    connection.send(get(f"/held/{held.gate('slow')}?slow"))
    held.let_through("first")
    held.wait_for("begin", "slow")
    # After a call that has begun: the server can't have noticed it before.
    new = held.server.connect()
    new.send(b"GET /quick?new HTTP/1.1\r\n")
    turned.clock.turn(5 * HOUR)
    held.let_through("slow")
    assert connection.read_response().text == "slow"
    have_worker_look(held)
    turned.clock.turn(HOUR - SLOW)
    have_worker_look(held)
    new.send(b"Host: localhost\r\n\r\n")
    assert new.read_response().text == "new"
    assert held.find("begin", "new")["pid"] == worker
