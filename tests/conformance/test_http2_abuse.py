"""HTTP/2 clients that try to cause high cost at low effort: each flood ends its connection with a code, in bounded memory, and
other clients are served.

The names are those of the CVEs: 2019-9511 to 9518 (data dribble, ping, resource loop, reset, settings, empty headers, internal
data buffering, empty frames), 2023-44487 (rapid reset), 2024-27316 and related ones (CONTINUATION), 2025-8671 (made you reset).
"""

import contextlib
import struct

import pytest
from support import http2, processes
from support.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    Both,
    Ended,
    Http2,
    frame,
    pseudo,
    settings,
    window_update,
)

#: Maximum growth of the worker's memory during a flood, in bytes: a connection's buffers, and the rounding of an allocator.
GROWTH_BYTES = 12 << 20
#: Maximum number of frames before the server must end the connection. Each is far beyond what a client needs.
FLOOD_FRAMES = 200_000
#: Frames that are sent in one write.
BATCH_FRAMES = 500


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def both(request, serve_module, tmp_path_factory):
    application = {"asgi": "asgi = {apps}/asgi_http.py", "wsgi": "wsgi-file = {apps}/streams.py"}[request.param]
    return Both(serve_module, tmp_path_factory.mktemp("tls"), application + "\npost-buffering = 10000\ndisable-logging = true")


@pytest.fixture
def server(both):
    return both.server


@pytest.fixture
def bounded(server):
    """The worker is the same afterwards, has not grown, and serves."""
    assert server.get("/fine").body == b"fine"
    worker = server.worker()
    before = processes.resident_bytes(worker)
    yield
    assert server.get("/fine").body == b"fine"
    assert server.worker() == worker
    assert processes.resident_bytes(worker) - before < GROWTH_BYTES


def flooded(connection, make, most=FLOOD_FRAMES, batch=BATCH_FRAMES):
    """Sends ``make(number)`` repeatedly until the server closes the connection; returns the error code."""
    for start in range(0, most, batch):
        if not connection.send(b"".join(make(number) for number in range(start, start + batch))):
            break
    else:
        raise AssertionError(f"{most} frames, and the connection is still there")
    return end_code(connection)


def end_code(connection):
    """Returns the code of the GOAWAY, if it has arrived: a client that keeps sending may lose it to a reset."""
    with contextlib.suppress(AssertionError):
        return connection.read_end()
    return connection.went_away[-1][1] if connection.went_away else None


#: If the client never stops, the kernel may drop the last frames of the server.
CALMED = (ENHANCE_YOUR_CALM, None)


def prepared(both, way="plain", values=None):
    """A connection whose sides have both received the other's settings."""
    connection = both.connect(way, values)
    connection.ping()
    return connection


def static_block(method="GET", target="/fine"):
    """Returns a header block that does not leave an entry in the table, so that it can be repeated."""
    encoded = b"\x82" if method == "GET" else b"\x83"
    encoded += b"\x86" + b"\x04" + bytes([len(target)]) + target.encode() + b"\x01\x09localhost"
    return encoded


BLOCK = static_block()


def ask(number, ends=True, block=BLOCK):
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), 2 * number + 1, block)


def test_the_block_that_floods_are_made_of_is_a_request(both):
    connection = both.connect("plain")
    answer = connection.expect(1)
    connection.send(ask(0))
    assert connection.finish(answer).body == b"fine"


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_rapid_reset(both, bounded, way):
    connection = prepared(both, way)
    code = flooded(connection, lambda number: ask(number, ends=False) + http2.rst_stream(2 * number + 1))
    assert code in CALMED


def test_resets_of_requests_that_are_whole(both, bounded):
    connection = prepared(both)
    assert flooded(connection, lambda number: ask(number) + http2.rst_stream(2 * number + 1)) in (*CALMED, http2.STREAM_CLOSED)


def test_made_you_reset(both, bounded):
    # Frames for which the server must reset the stream: each costs a request, without a RST_STREAM of the client.
    connection = prepared(both)
    code = flooded(connection, lambda number: ask(number, ends=False) + window_update(2 * number + 1, 0))
    assert code in (*CALMED, PROTOCOL_ERROR)


def test_more_streams_than_there_may_be(both, bounded):
    connection = prepared(both)
    assert flooded(connection, lambda number: ask(number, ends=False)) in CALMED


def test_continuation_flood(both, bounded):
    connection = prepared(both)
    connection.send(frame(HEADERS, END_STREAM, 1, BLOCK))
    assert flooded(connection, lambda number: frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")) in (*CALMED, PROTOCOL_ERROR)


def test_empty_continuation_flood(both, bounded):
    connection = prepared(both)
    connection.send(frame(HEADERS, END_STREAM, 1, BLOCK))
    assert flooded(connection, lambda number: frame(CONTINUATION, 0, 1)) in (*CALMED, PROTOCOL_ERROR)


def test_large_continuation_flood(both, bounded):
    connection = prepared(both)
    connection.send(frame(HEADERS, END_STREAM, 1, BLOCK))
    piece = b"\x00\x01a\x7f\x81\x7c" + b"b" * 16_000
    code = flooded(connection, lambda number: frame(CONTINUATION, 0, 1, piece), most=20_000, batch=20)
    assert code in (*CALMED, PROTOCOL_ERROR, http2.COMPRESSION_ERROR)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("settings", lambda number: settings({INITIAL_WINDOW_SIZE: 65535 - number % 2})),
        ("empty settings", lambda number: settings()),
        ("many settings", lambda number: settings([(0xF000, number)] * 100)),
        ("ping", lambda number: frame(PING, 0, 0, struct.pack(">Q", number))),
        ("priority", lambda number: frame(PRIORITY, 0, 1 + 2 * (number % 1000), b"\0\0\0\0\x0f")),
        ("priority update", lambda number: http2.priority_update(1 + 2 * (number % 1000), b"u=1")),
        ("window updates", lambda number: window_update(0, 1)),
        ("unknown frames", lambda number: frame(0xEE, 0, 0, b"x")),
        ("acknowledged settings", lambda number: settings((), http2.ACK)),
        ("acknowledged pings", lambda number: frame(PING, http2.ACK, 0, bytes(8))),
    ],
)
def test_floods_of_frames_that_carry_nothing(both, bounded, kind, make):
    assert flooded(prepared(both), make) in (*CALMED, PROTOCOL_ERROR), kind


@pytest.mark.parametrize("padding", [0, 255])
def test_data_frames_that_carry_nothing(both, bounded, padding):
    connection = prepared(both)
    connection.send(ask(0, ends=False, block=static_block("POST", "/fine")))
    payload = bytes([padding]) + bytes(padding) if padding else b""
    flags = PADDED if padding else 0
    code = flooded(connection, lambda number: frame(DATA, flags, 1, payload))
    assert code in (*CALMED, http2.FLOW_CONTROL_ERROR, http2.STREAM_CLOSED)


def test_pings_with_unread_answers(both, bounded):
    # Without a reader, responses have to wait: first in the client's socket, and then not at all.
    connection = both.connect("plain", receive_bytes=4096)
    connection.client.socket.settimeout(3)
    with contextlib.suppress(TimeoutError):
        flooded(connection, lambda number: frame(PING, 0, 0, struct.pack(">Q", number)))


def test_unread_answers(both, bounded):
    connection = both.connect("plain", {INITIAL_WINDOW_SIZE: (1 << 31) - 1}, receive_bytes=4096)
    connection.open_window(0, 1 << 30)
    connection.client.socket.settimeout(3)
    # All responses share one object of the application, so the growth is the server's own: at most 64 KiB per stream.
    with contextlib.suppress(TimeoutError):
        for number in range(2000):
            if not connection.send(ask(number, block=static_block("GET", "/one_part?1"))):
                break


def test_windows_of_zero_on_many_connections(both, bounded):
    connections = [both.connect("plain", {INITIAL_WINDOW_SIZE: 0}) for _ in range(20)]
    for connection in connections:
        connection.send(b"".join(ask(number) for number in range(50)))
    connections[-1].expect(99)
    for stream in range(1, 99, 2):
        connections[-1].expect(stream)
    connections[-1].ping()
    assert both.server.get("/fine").body == b"fine"
    for connection in connections:
        connection.close()


def test_a_bomb_of_hpack_is_431_or_the_end(both, bounded):
    # A field of 4 KB is put into the table once, and referenced by one byte thousands of times.
    connection = prepared(both)
    value = b"a" * 3900
    length = b"\x7f" + _integer(len(value) - 127)
    answer = connection.expect(1)
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, BLOCK + b"\x40\x01x" + length + value + b"\xbe" * 12_000))
    with contextlib.suppress(Ended):
        connection.read_until(lambda: answer.is_over, "it is refused")
        assert answer.status == 431 or answer.reset is not None
        answer = connection.expect(3)
        connection.send(ask(1))
        assert connection.finish(answer).body == b"fine"


def test_many_bombs_of_hpack(both, bounded):
    connection = prepared(both)
    value = b"a" * 3900
    length = b"\x7f" + _integer(len(value) - 127)
    connection.send(ask(0, block=BLOCK + b"\x40\x01x" + length + value))
    connection.expect(1)
    bomb = BLOCK + b"\xbe" * 16_000
    code = flooded(connection, lambda number: ask(number + 1, block=bomb), most=20_000, batch=20)
    assert code in CALMED


def _integer(value):
    """Returns the rest of an integer after its prefix (RFC 7541 section 5.1)."""
    encoded = b""
    while value >= 128:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def test_size_updates_of_the_table_without_end(both, bounded):
    connection = prepared(both)
    code = flooded(connection, lambda number: ask(number, block=b"\x20\x3f\xe1\x1f" * 4000 + BLOCK), most=20_000, batch=20)
    assert code in (*CALMED, http2.COMPRESSION_ERROR)


def test_many_connections_that_say_half_a_head(both, bounded):
    connections = [Http2(both.server.connect()) for _ in range(100)]
    for connection in connections:
        connection.send(frame(HEADERS, END_STREAM, 1, BLOCK)[:-1])
    assert both.server.get("/fine").body == b"fine"
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_busy_client_that_does_nothing_wrong_is_left_alone(both, way):
    # Normal behavior of browsers and proxies: many requests, an occasional reset, a PING, small windows that are opened in small
    # steps.
    connection = both.connect(way)
    for turn in range(300):
        answers = [connection.begin("GET", "/fine") for _ in range(20)]
        if turn % 3 == 0:
            connection.reset(answers.pop())
        connection.finish(*answers)
        if turn % 10 == 0:
            connection.ping(struct.pack(">Q", turn))
        if turn % 50 == 0:
            connection.send(settings({INITIAL_WINDOW_SIZE: 65535}))
    assert not connection.went_away
    target = "/digest" if "asgi" in both.server.ini.read_text() else "/fine"
    fields = pseudo("POST", target, scheme=connection.scheme)
    upload = connection.begin_with(fields, ends=False, method="POST")
    for _ in range(5000):
        if upload.is_over:
            break
        connection.send_body(upload, b"x", ends=False)
    connection.ping()
    assert not connection.went_away
