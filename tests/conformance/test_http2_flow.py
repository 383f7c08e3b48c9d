"""Flow control and priorities over HTTP/2: small windows, closed ones, readers that stop, and the order of streams."""

import hashlib

import pytest
from support import http2, processes
from support.files import assert_same, fill, pattern
from support.http2 import INITIAL_WINDOW_SIZE, Both, settings
from support.waiting import wait_until

MEGABYTE = bytes(range(256)) * 4096
WAYS = ["plain", "tls"]
LARGE = pattern(8 << 20)
#: Maximum bytes of a file that may leave while another of the same urgency is in progress: frames that were cut before the
#: switch.
BEGINNING_BYTES = 512 << 10
#: Maximum that a worker may buffer of unread responses: far less than their size.
HELD_BYTES = 32 << 20


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def both(request, serve_module, tmp_path_factory):
    """A server with large responses of an application, and a large file."""
    directory = tmp_path_factory.mktemp("site")
    fill(directory, {"files/large.bin": LARGE, "files/small.txt": b"small"})
    (directory / "tls").mkdir()
    application = {"asgi": "asgi = {apps}/asgi_http.py", "wsgi": "wsgi-file = {apps}/streams.py"}[request.param]
    both = Both(serve_module, directory / "tls", f"{application}\nstatic-map = /files={directory}/files")
    both.parts = {"asgi": "/stream", "wsgi": "/large_parts"}[request.param]
    return both


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.mark.parametrize("window", [1, 2, 17, 100])
def test_tiny_windows_are_kept_to_the_byte(both, way, window):
    # The client checks every frame.
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: window})
    assert connection.request(target="/fine").body == b"fine"
    assert connection.request(target="/files/small.txt").body == b"small"


def test_a_window_of_zero_holds_the_body_and_not_the_head(both, way):
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: 0})
    answers = [connection.begin(target=target) for target in ("/fine", "/files/small.txt", f"{both.parts}?1", "/files/large.bin")]
    connection.read_until(lambda: all(answer.status for answer in answers), "all heads are there")
    connection.ping()
    assert [answer.received for answer in answers] == [0, 0, 0, 0]
    for answer, body in ((answers[0], b"fine"), (answers[1], b"small")):
        connection.open_window(answer.stream, 100)
        assert connection.finish(answer).body == body
    connection.open_window(answers[3].stream, 1000)
    connection.read_until(lambda: answers[3].received == 1000, "as much as the window takes is there")
    connection.open_window(answers[3].stream, len(LARGE))
    assert_same(connection.finish(answers[3]).body, LARGE)
    connection.open_window(answers[2].stream, 65535)
    assert len(connection.finish(answers[2]).body) == len(MEGABYTE)


def test_settings_open_the_windows_of_all_streams(both, way):
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: 0})
    answers = [connection.begin(target="/fine") for _ in range(5)]
    connection.read_until(lambda: all(answer.status for answer in answers), "all heads are there")
    connection.send(settings({INITIAL_WINDOW_SIZE: 3}))
    for answer in answers:
        connection.receive_windows[answer.stream] += 3
    connection.gives_back = False
    connection.read_until(lambda: [answer.received for answer in answers] == [3] * 5, "three bytes of each are there")
    for answer in answers:
        connection.open_window(answer.stream, 1)
    connection.finish(*answers)
    assert {answer.body for answer in answers} == {b"fine"}


def test_a_window_that_has_become_negative_waits_until_it_is_positive(both, way):
    # RFC 9113 section 6.9.2.
    connection = both.connect(way, gives_back=False)
    answer = connection.begin(target="/files/large.bin")
    connection.read_until(lambda: answer.received == http2.USUAL_WINDOW_BYTES, "the window is full")
    connection.send(settings({INITIAL_WINDOW_SIZE: 1000}))
    connection.ping()
    change = http2.USUAL_WINDOW_BYTES - 1000
    connection.receive_windows[answer.stream] -= change
    connection.open_window(0, len(LARGE))
    connection.open_window(answer.stream, change)
    connection.ping()
    assert answer.received == http2.USUAL_WINDOW_BYTES
    connection.open_window(answer.stream, 10)
    connection.read_until(lambda: answer.received == http2.USUAL_WINDOW_BYTES + 10, "ten bytes more are there")
    connection.open_window(answer.stream, len(LARGE))
    assert_same(connection.finish(answer).body, LARGE)


def test_a_stream_whose_window_is_closed_holds_up_no_other(both, way):
    connection = both.connect(way, gives_back=False)
    held = [connection.begin(target=target) for target in (f"{both.parts}?20", "/files/large.bin")]
    # Each has its own window, and all share the connection's, so that one is opened.
    connection.open_window(0, 10_000_000)
    connection.read_until(lambda: all(answer.received == http2.USUAL_WINDOW_BYTES for answer in held), "both windows are full")
    for _ in range(20):
        assert connection.request(target="/fine").body == b"fine"
    for answer in held:
        connection.open_window(answer.stream, 30 << 20)
    connection.open_window(0, 60 << 20)
    connection.finish(*held)
    assert [len(answer.body) for answer in held] == [20 << 20, len(LARGE)]


def test_the_window_of_the_connection_holds_all_streams_and_then_lets_them_go(both, way):
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: 1 << 20}, gives_back=False)
    answers = [connection.begin(target="/files/large.bin") for _ in range(3)]
    connection.read_until(lambda: sum(answer.received for answer in answers) == http2.USUAL_WINDOW_BYTES, "the window is full")
    connection.ping()
    waiting = connection.begin(target="/fine")
    connection.read_until(lambda: waiting.status == 200, "a head needs no window")
    assert waiting.received == 0
    connection.gives_back = True
    for answer in answers:
        connection.open_window(answer.stream, len(LARGE))
    connection.open_window(0, 4 * len(LARGE))
    connection.finish(*answers, waiting)
    for answer in answers:
        assert_same(answer.body, LARGE)
    assert waiting.body == b"fine"


def test_large_frames_and_windows_are_used(both, way):
    values = {INITIAL_WINDOW_SIZE: (1 << 31) - 1, http2.MAX_FRAME_SIZE: (1 << 24) - 1}
    connection = both.connect(way, values, gives_back=False)
    connection.open_window(0, (1 << 31) - 1 - http2.USUAL_WINDOW_BYTES)
    answer = connection.request(target="/files/large.bin")
    assert_same(answer.body, LARGE)


def worker_of(both):
    return both.server.worker()


@pytest.mark.parametrize("kind", ["parts", "file"])
def test_stopped_readers_use_bounded_memory_and_block_no_other_client(both, way, kind):
    target = f"{both.parts}?50" if kind == "parts" else "/files/large.bin"
    worker = worker_of(both)
    assert both.connect(way).request(target="/fine").body == b"fine"
    memory = processes.resident_bytes(worker)
    connections = [both.connect(way, gives_back=False, receive_bytes=65536) for _ in range(10)]
    started = [connection.begin(target=target) for connection in connections for _ in range(10)]
    other = both.connect(way)
    for _ in range(20):
        assert other.request(target="/fine").body == b"fine"
    assert processes.resident_bytes(worker) - memory < HELD_BYTES
    for connection in connections:
        connection.close()
    assert len(started) == 100
    assert other.request(target="/fine").body == b"fine"


def test_a_reader_that_does_not_read_its_socket_is_given_up(serve, tmp_path):
    both = Both(serve, tmp_path, "asgi = {apps}/asgi_http.py\nsocket-timeout = 1")
    connection = both.connect("plain", {INITIAL_WINDOW_SIZE: (1 << 31) - 1}, receive_bytes=4096)
    connection.open_window(0, 1 << 30)
    connection.begin(target="/stream?500&given-up")
    both.server.wait_for_log("^streamed 500&given-up$")


# Priorities (RFC 9218), of files.


def finished_in_order(connection, answers):
    """Returns the responses in the order in which they ended."""
    order = []
    connection.read_until(
        lambda: order.extend(answer for answer in answers if answer.is_over and answer not in order)
        or len(order) == len(answers),
        "all have ended",
    )
    return order


def begin_file(connection, priority=None):
    return connection.begin(target="/files/large.bin", headers=[("priority", priority)] if priority else [])


def held_connection(both, way):
    """A connection on which no body flows until its window is opened, so that all requests arrive before."""
    connection = both.connect(way, {INITIAL_WINDOW_SIZE: 16 << 20}, gives_back=False)
    filler = connection.begin(target="/files/large.bin")
    connection.read_until(lambda: connection.receive_windows[0] == 0, "the window of the connection is full")
    connection.reset(filler)
    return connection


def test_an_urgent_file_overtakes_others(both, way):
    connection = held_connection(both, way)
    usual, late, urgent = begin_file(connection), begin_file(connection, "u=7"), begin_file(connection, "u=0")
    connection.ping()
    connection.open_window(0, 100 << 20)
    assert finished_in_order(connection, [usual, late, urgent]) == [urgent, usual, late]


def test_a_file_that_has_become_urgent_overtakes_others(both, way):
    # RFC 9218 section 7.1: PRIORITY_UPDATE.
    connection = held_connection(both, way)
    first, second = begin_file(connection), begin_file(connection)
    connection.send(http2.priority_update(second.stream, b"u=0"))
    connection.ping()
    connection.open_window(0, 100 << 20)
    assert finished_in_order(connection, [first, second]) == [second, first]


def test_files_of_one_urgency_come_one_after_the_other(both, way):
    connection = held_connection(both, way)
    first, second = begin_file(connection, "u=3"), begin_file(connection, "u=3")
    connection.ping()
    connection.open_window(0, 6 << 20)
    connection.read_until(lambda: connection.receive_windows[0] == 0, "the window is full")
    assert second.received <= BEGINNING_BYTES
    connection.open_window(0, 60 << 20)
    assert finished_in_order(connection, [first, second]) == [first, second]


def test_files_whose_parts_are_of_use_share_the_connection(both, way):
    # RFC 9218 section 4.2.
    connection = held_connection(both, way)
    first, second = begin_file(connection, "u=3, i"), begin_file(connection, "u=3, i")
    connection.ping()
    connection.open_window(0, 6 << 20)
    connection.read_until(lambda: connection.receive_windows[0] == 0, "the window is full")
    assert min(first.received, second.received) > 2 << 20, (first.received, second.received)
    connection.open_window(0, 60 << 20)
    assert len(finished_in_order(connection, [first, second])) == 2


def test_a_priority_that_is_malformed_is_none(both, way):
    connection = both.connect(way)
    for text in ("u=9", "u=x", "i=7", "nonsense=", "u=1,u=2;a", ";;;"):
        assert connection.request(target="/files/small.txt", headers=[("priority", text)]).body == b"small"
    connection.send(http2.priority_update(1, b"u=99"))
    connection.send(http2.priority_update(1001, b"u=2"))
    digest = hashlib.sha256(connection.request(target="/files/large.bin").body).hexdigest()
    assert digest == hashlib.sha256(LARGE).hexdigest()


def test_an_answer_that_waits_for_a_window_ends_when_its_client_has_gone(both):
    if both.parts != "/large_parts":
        pytest.skip("the ASGI application tells it in its own way, which test_http2_asgi.py looks at")
    connection = both.connect("plain", gives_back=False)
    answer = connection.begin(target="/large_parts?50&gone")
    connection.read_until(lambda: answer.received == http2.USUAL_WINDOW_BYTES, "the window is full")
    connection.close()
    wait_until(lambda: "closed 50&gone" in both.server.log, "the iterable is closed")
