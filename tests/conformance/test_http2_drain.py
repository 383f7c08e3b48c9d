"""The end of HTTP/2 connections: at a reload and at shutdown, GOAWAY contains the last stream that is answered, and no
stream is lost."""

import shutil
import signal
import subprocess
import threading
import time
import traceback

import pytest
from support import http2
from support.client import Client
from support.http2 import NO_ERROR, REFUSED_STREAM, Both, Ended, Http2, Reset

WAYS = ["plain", "tls"]
APPLICATIONS = {"asgi": "asgi = {apps}/asgi_http.py", "wsgi": "wsgi-file = {apps}/streams.py"}
#: Time between the two GOAWAY frames of a connection, in seconds: the engine's constant.
GOAWAY_DELAY_SECONDS = 1
#: A request that lasts longer than a reload takes to reach its connection.
SLOW = "/sleep?3"
#: Number of reloads under load.
RELOADS = 3


@pytest.fixture(params=WAYS)
def both(request, serve, tmp_path):
    both = Both(serve, tmp_path, APPLICATIONS["asgi"] + "\nprocesses = 2")
    both.way = request.param
    return both


def reload(server, generation):
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(rf"^bolide: ready: .* of generation {generation} in")


def test_a_reload_answers_the_streams_that_are_open_and_then_ends_the_connection(both):
    connection, idle = both.connect(both.way), both.connect(both.way)
    idle.ping()
    slow = [connection.begin(target=SLOW) for _ in range(3)]
    connection.ping()
    both.server.send_signal(signal.SIGHUP)
    connection.read_until(lambda: connection.went_away, "the connection is told that it ends")
    assert connection.went_away[-1][1] == NO_ERROR
    assert connection.went_away[-1][0] >= slow[-1].stream
    late = [connection.begin(target="/fine") for _ in range(3)]
    connection.finish(*slow)
    assert [(answer.status, answer.body.isdigit()) for answer in slow] == [(200, True)] * 3
    assert connection.read_end() == NO_ERROR
    for answer in late:
        # Streams after the last GOAWAY are refused, so that the client may retry elsewhere; the others are answered.
        assert answer.body == b"fine" or answer.reset == REFUSED_STREAM or answer.stream > connection.went_away[-1][0]
    assert idle.read_end() == NO_ERROR


def test_a_connection_that_is_told_to_end_says_so_before_it_refuses_anything(both):
    # RFC 9113 section 6.8: the first GOAWAY names the highest possible stream, because requests may be in transit.
    connection = both.connect(both.way)
    slow = connection.begin(target=SLOW)
    connection.ping()
    began = time.monotonic()
    both.server.send_signal(signal.SIGHUP)
    connection.read_until(lambda: connection.went_away, "the connection is told that it ends")
    if connection.went_away[0][0] == http2.MAX_WINDOW_BYTES:
        under_way = connection.begin(target="/fine")
        connection.read_until(
            lambda: under_way.is_over or under_way.stream > connection.went_away[-1][0], "the request is answered, or refused"
        )
        # On a busy machine it may come after the second GOAWAY.
        assert under_way.body == b"fine" or time.monotonic() - began >= GOAWAY_DELAY_SECONDS
    assert connection.finish(slow).status == 200


def test_a_stop_lets_open_streams_end_and_ends_with_status_0(both):
    connection, idle = both.connect(both.way), both.connect(both.way)
    idle.ping()
    answer = connection.begin(target="/sleep?0.5")
    connection.ping()
    both.server.send_signal(signal.SIGTERM)
    assert idle.read_end() == NO_ERROR
    assert connection.finish(answer).status == 200
    assert connection.read_end() == NO_ERROR
    assert both.server.wait_for_exit() == 0


def test_a_large_answer_that_is_under_way_at_a_reload_comes_whole(both):
    connection = both.connect(both.way, gives_back=False)
    answer = connection.begin(target="/stream?20&reload")
    connection.read_until(lambda: answer.received == http2.USUAL_WINDOW_BYTES, "the window is full")
    both.server.send_signal(signal.SIGHUP)
    connection.read_until(lambda: connection.went_away, "the connection is told that it ends")
    connection.open_window(0, 30 << 20)
    connection.open_window(answer.stream, 30 << 20)
    assert len(connection.finish(answer).body) == 20 << 20
    assert connection.read_end() == NO_ERROR


class Load:
    """A client that keeps a number of streams open, and continues on a new connection when the server announces the end of the
    old one.

    A stream that is refused, or above the last one of a GOAWAY, may be retried (RFC 9113 section 8.7): all others that end
    without a response are losses.
    """

    STREAMS = 10

    def __init__(self, connect):
        self.connect = connect
        self.answers = 0
        self.connections = 0
        self.losses = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.thread.start()

    def _run(self):
        while not self.is_over.is_set():
            try:
                self._one_connection()
            except Exception as error:
                self.losses.append("".join(traceback.format_exception(type(error), error, error.__traceback__)))
                return

    def _one_connection(self):
        self.connections += 1
        with self.connect() as connection:
            running = []
            try:
                while not self.is_over.is_set():
                    while not connection.went_away and len(running) < self.STREAMS:
                        running.append(connection.begin(target="/fine"))
                    if not running and connection.went_away:
                        connection.read_end()
                        return
                    connection.read()
                    running = [answer for answer in running if not self._count(answer)]
                connection.finish(*running)
            except (Ended, Reset):
                last = connection.went_away[-1][0] if connection.went_away else http2.MAX_WINDOW_BYTES
                for answer in running:
                    if not self._count(answer) and answer.stream <= last:
                        self.losses.append(f"{answer} of a connection that ended with {connection.went_away}")

    def _count(self, answer):
        if answer.is_whole:
            if (answer.status, answer.body) != (200, b"fine"):
                self.losses.append(repr(answer))
            self.answers += 1
        elif answer.reset not in (None, REFUSED_STREAM):
            self.losses.append(repr(Reset(answer)))
        return answer.is_over

    def finish(self):
        self.is_over.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("interface", APPLICATIONS)
def test_reloads_under_load_lose_no_stream(serve, tmp_path, way, interface):
    both = Both(serve, tmp_path, APPLICATIONS[interface] + "\nprocesses = 2")
    loads = [Load(lambda: both.connect(way)) for _ in range(3)]
    for generation in range(2, RELOADS + 2):
        before = [load.answers for load in loads]
        reload(both.server, generation)
        both.server.wait_for(
            lambda: all(load.losses or load.answers > count + 20 for load, count in zip(loads, before, strict=True)),  # noqa: B023
            "every client has new answers",
        )
    for load in loads:
        load.finish()
    assert [load.losses for load in loads] == [[], [], []]
    assert sum(load.connections for load in loads) > len(loads)


def test_a_worker_that_reaches_its_number_of_requests_loses_no_stream(serve, tmp_path):
    both = Both(serve, tmp_path, APPLICATIONS["wsgi"] + "\nprocesses = 2\nmax-requests = 200")
    load = Load(lambda: both.connect("plain"))
    both.server.wait_for(lambda: load.losses or load.answers > 2000, "ten workers have come and gone")
    load.finish()
    assert load.losses == []


@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not installed: apt-get install nghttp2-client")
@pytest.mark.parametrize("way", WAYS)
def test_h2load_sees_no_failure_at_the_end_of_its_connections(both, way):
    address = both.server.address("https" if way == "tls" else "http")
    scheme = {"plain": "http", "tls": "https"}[way]
    command = ["h2load", "-n", "2000", "-c", "10", "-m", "10", f"{scheme}://127.0.0.1:{address[1]}/fine"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "2000 succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout, done.stdout + done.stderr
    assert "status codes: 2000 2xx" in done.stdout


def test_a_new_connection_after_the_reload_is_served_by_the_new_generation(both):
    old = both.connect(both.way)
    before = old.request(target="/pid").body
    reload(both.server, 2)
    assert old.read_end() == NO_ERROR
    assert both.connect(both.way).request(target="/pid").body != before
    with Client(both.server.address()) as client:
        assert client.request(target="/fine").body == b"fine"
    assert Http2(both.server.connect()).request(target="/fine").body == b"fine"
