"""Protocol violations of HTTP/2 clients, a frame sequence each, with the resulting error code; and unusual sequences that are
valid.

The list follows the requirements of RFC 9113 and RFC 7541, section by section. A stream error ends the stream; a connection error
ends that connection, and no other.
"""

import struct

import pytest
from support import http2
from support.http2 import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Http2,
    frame,
    pseudo,
    settings,
    window_update,
)

#: Maximum frame size in bytes, as long as the server announces no larger one.
FRAME_BYTES = http2.USUAL_FRAME_BYTES
#: Maximum number of unread DATA frames that a server accepts nevertheless.
MAX_FRAMES = 100

#: Paths where the application waits for its body, and where it answers immediately.
READS, ANSWERS = "/digest", "/fine"

#: A header block that encodes ``GET /fine``.
GET = pseudo(target=ANSWERS)
POST = pseudo("POST", READS)


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("asgi = {apps}/asgi_http.py\nhttp2 = h2c")


class Pieces:
    """A client that sends its data byte by byte."""

    #: Only this many bytes of it: the beginning of a large frame is enough.
    BYTEWISE_BYTES = 400

    def __init__(self, client):
        self.client = client
        self.close = client.close
        self.read_exactly = client.read_exactly

    def send(self, data):
        return self.client.send_byte_by_byte(data[: self.BYTEWISE_BYTES]) and self.client.send(data[self.BYTEWISE_BYTES :])


@pytest.fixture(params=["whole", "byte by byte"])
def connection(server, request):
    client = server.connect()
    connection = Http2(client if request.param == "whole" else Pieces(client))
    connection.read_settings()
    return connection


def begun(connection):
    """A request whose body is still to come."""
    return connection.begin("POST", READS, ends=False)


def answered(connection):
    """A request that is complete."""
    answer = connection.request(target=ANSWERS)
    assert answer.status == 200
    return answer


def left(connection):
    """A stream that we have reset."""
    answer = begun(connection)
    connection.reset(answer)
    return answer


def block(connection, fields=GET):
    return connection.block(fields)


def raw(*pieces):
    """Returns a function that sends the same bytes on any connection. In them 1 is the first stream."""
    return lambda connection: connection.send(b"".join(pieces))


def on(prepare, make):
    """Returns a function that sends the frames of ``make`` for the stream that ``prepare`` has opened."""
    return lambda connection: connection.send(make(prepare(connection).stream))


def head(fields, flags=END_STREAM | END_HEADERS, before=b"", after=b""):
    """Returns a function that sends HEADERS on a new stream."""

    def send(connection):
        stream = connection.next_stream
        connection.expect(stream)
        connection.send(frame(HEADERS, flags, stream, before + block(connection, fields) + after))

    return send


def bare_head(payload, flags=END_STREAM | END_HEADERS):
    """HEADERS on a new stream with a raw header block."""

    def send(connection):
        stream = connection.next_stream
        connection.expect(stream)
        connection.send(frame(HEADERS, flags, stream, payload))

    return send


def within_a_block(intruder):
    """A header block that another frame interrupts."""

    def send(connection):
        stream = connection.next_stream
        connection.expect(stream)
        connection.send(frame(HEADERS, END_STREAM, stream, block(connection)) + intruder(stream))

    return send


def body_of(length, *parts):
    """A request whose body differs from its announced length."""

    def send(connection):
        answer = connection.begin("POST", READS, [("content-length", str(length))], ends=False)
        for number, part in enumerate(parts):
            connection.send_data(answer, part, ends=number == len(parts) - 1)

    return send


def trailers(fields, ends=True):
    def send(connection):
        answer = begun(connection)
        connection.send_data(answer, b"body")
        connection.send(connection.heads(answer.stream, fields, ends))

    return send


def depends_on_itself(connection):
    priority = struct.pack(">IB", connection.next_stream, 15)
    head(GET, END_STREAM | END_HEADERS | HAS_PRIORITY, before=priority)(connection)


def lower_stream(connection):
    answered(connection)
    answer = begun(connection)
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, answer.stream - 2, block(connection)))


def skipped_stream(connection):
    """Stream 5 closes stream 3, which was never used (section 5.1.1)."""
    connection.expect(5)
    connection.send(frame(HEADERS, END_HEADERS, 5, block(connection, POST)))
    connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 3, block(connection)))


def overflow_of_a_stream(connection):
    answer = begun(connection)
    connection.send(window_update(answer.stream, (1 << 31) - 1) + window_update(answer.stream, (1 << 31) - 1))


def beyond_the_streams_window(connection):
    answer = connection.begin("POST", "/slow_reader?never", ends=False)
    beyond = frame(DATA, 0, answer.stream, bytes(FRAME_BYTES))
    for _ in range(0, connection.send_windows[answer.stream] + FRAME_BYTES, FRAME_BYTES):
        connection.send(beyond)
    # The server may have returned buffered window in the meantime, although the application does not read.
    for _ in range(MAX_FRAMES):
        connection.ping()
        if answer.is_over:
            return
        connection.send(beyond)


#: The whole connection, for the rest of its lifetime.
CONNECTION_ERRORS = {
    "4.2 a DATA frame that is too large": (
        on(begun, lambda stream: frame(DATA, 0, stream, bytes(FRAME_BYTES + 1))),
        FRAME_SIZE_ERROR,
    ),
    "4.2 a HEADERS frame that is too large": (raw(frame(HEADERS, END_HEADERS, 1, bytes(FRAME_BYTES + 1))), FRAME_SIZE_ERROR),
    "4.2 a frame that says it is of 16 MB": (raw(frame(DATA, 0, 1, b"", length=(1 << 24) - 1)), FRAME_SIZE_ERROR, PROTOCOL_ERROR),
    "4.2 an unknown frame that is too large": (raw(frame(99, 0, 1, bytes(FRAME_BYTES + 1))), FRAME_SIZE_ERROR),
    "4.3 a PRIORITY frame within a header block": (
        within_a_block(lambda stream: frame(PRIORITY, 0, stream, bytes(4) + b"\x0f")),
        PROTOCOL_ERROR,
    ),
    "4.3 the HEADERS of another stream within a header block": (
        within_a_block(lambda stream: frame(HEADERS, END_HEADERS, stream + 2)),
        PROTOCOL_ERROR,
    ),
    "4.3 CONTINUATION of another stream within a header block": (
        within_a_block(lambda stream: frame(CONTINUATION, END_HEADERS, stream + 2)),
        PROTOCOL_ERROR,
    ),
    "4.3 DATA within a header block": (within_a_block(lambda stream: frame(DATA, 0, stream, b"x")), PROTOCOL_ERROR),
    "5.1 DATA on an idle stream": (raw(frame(DATA, END_STREAM, 1, b"x")), PROTOCOL_ERROR, STREAM_CLOSED),
    "5.1 RST_STREAM of an idle stream": (raw(http2.rst_stream(1)), PROTOCOL_ERROR),
    "5.1 WINDOW_UPDATE of an idle stream": (raw(window_update(1, 100)), PROTOCOL_ERROR),
    "5.1 CONTINUATION on an idle stream": (raw(frame(CONTINUATION, END_HEADERS, 1)), PROTOCOL_ERROR),
    "5.1 CONTINUATION on a stream that is over": (
        on(answered, lambda stream: frame(CONTINUATION, END_HEADERS, stream)),
        PROTOCOL_ERROR,
    ),
    "5.1.1 an even stream": (
        lambda connection: connection.send(frame(HEADERS, END_STREAM | END_HEADERS, 2, block(connection))),
        PROTOCOL_ERROR,
    ),
    "5.1.1 a stream below the last one": (lower_stream, PROTOCOL_ERROR, STREAM_CLOSED),
    "5.1.1 a stream that was skipped": (skipped_stream, PROTOCOL_ERROR, STREAM_CLOSED),
    "6.1 DATA on stream 0": (raw(frame(DATA, END_STREAM, 0, b"x")), PROTOCOL_ERROR),
    "6.1 a DATA frame of padding alone, and more": (
        on(begun, lambda stream: frame(DATA, PADDED | END_STREAM, stream, b"\x06Test")),
        PROTOCOL_ERROR,
    ),
    "6.1 padding that is as long as its DATA frame": (
        on(begun, lambda stream: frame(DATA, PADDED, stream, b"\x06Test\0")),
        PROTOCOL_ERROR,
    ),
    "6.1 a padded DATA frame without a length": (
        on(begun, lambda stream: frame(DATA, PADDED, stream)),
        PROTOCOL_ERROR,
        FRAME_SIZE_ERROR,
    ),
    "6.2 HEADERS on stream 0": (lambda connection: connection.send(connection.heads(0, GET)), PROTOCOL_ERROR),
    "6.2 padding that is longer than its HEADERS frame": (
        head(GET, END_STREAM | END_HEADERS | PADDED, before=b"\xff"),
        PROTOCOL_ERROR,
    ),
    "6.2 a HEADERS frame that is too short for its priority": (
        bare_head(b"\0\0\0", END_HEADERS | HAS_PRIORITY),
        PROTOCOL_ERROR,
        FRAME_SIZE_ERROR,
    ),
    "6.3 PRIORITY on stream 0": (raw(frame(PRIORITY, 0, 0, bytes(5))), PROTOCOL_ERROR),
    "6.4 RST_STREAM on stream 0": (raw(http2.rst_stream(0)), PROTOCOL_ERROR),
    "6.4 RST_STREAM of 3 bytes": (on(begun, lambda stream: frame(RST_STREAM, 0, stream, bytes(3))), FRAME_SIZE_ERROR),
    "6.5 SETTINGS that acknowledges and has values": (raw(frame(SETTINGS, ACK, 0, bytes(6))), FRAME_SIZE_ERROR),
    "6.5 SETTINGS on a stream": (raw(frame(SETTINGS, 0, 1)), PROTOCOL_ERROR),
    "6.5 SETTINGS of 3 bytes": (raw(frame(SETTINGS, 0, 0, bytes(3))), FRAME_SIZE_ERROR),
    "6.5.2 ENABLE_PUSH = 2": (raw(settings({http2.ENABLE_PUSH: 2})), PROTOCOL_ERROR),
    "6.5.2 INITIAL_WINDOW_SIZE = 2 GB": (raw(settings({INITIAL_WINDOW_SIZE: 1 << 31})), FLOW_CONTROL_ERROR),
    "6.5.2 MAX_FRAME_SIZE = 16,383": (raw(settings({MAX_FRAME_SIZE: FRAME_BYTES - 1})), PROTOCOL_ERROR),
    "6.5.2 MAX_FRAME_SIZE = 16 MB": (raw(settings({MAX_FRAME_SIZE: 1 << 24})), PROTOCOL_ERROR),
    "6.6 PUSH_PROMISE": (
        lambda connection: connection.send(
            frame(PUSH_PROMISE, END_HEADERS, begun(connection).stream, bytes(3) + b"\x02" + block(connection))
        ),
        PROTOCOL_ERROR,
    ),
    "6.7 PING of 6 bytes": (raw(frame(PING, 0, 0, bytes(6))), FRAME_SIZE_ERROR),
    "6.7 PING on a stream": (raw(frame(PING, 0, 1, bytes(8))), PROTOCOL_ERROR),
    "6.8 GOAWAY on a stream": (raw(frame(GOAWAY, 0, 1, bytes(8))), PROTOCOL_ERROR),
    "6.8 GOAWAY of 4 bytes": (raw(frame(GOAWAY, 0, 0, bytes(4))), FRAME_SIZE_ERROR),
    "6.9 WINDOW_UPDATE of 0": (raw(window_update(0, 0)), PROTOCOL_ERROR),
    "6.9 WINDOW_UPDATE of 3 bytes": (raw(frame(WINDOW_UPDATE, 0, 0, bytes(3))), FRAME_SIZE_ERROR),
    "6.9.1 a window of the connection beyond 2 GB": (raw(window_update(0, (1 << 31) - 1)), FLOW_CONTROL_ERROR),
    "6.9.2 a window of a stream beyond 2 GB, by SETTINGS": (
        on(begun, lambda stream: window_update(stream, (1 << 31) - 1 - 65535) + settings({INITIAL_WINDOW_SIZE: 65536})),
        FLOW_CONTROL_ERROR,
    ),
    "6.10 CONTINUATION after END_HEADERS": (
        on(begun, lambda stream: frame(CONTINUATION, END_HEADERS, stream)),
        PROTOCOL_ERROR,
    ),
    "6.10 CONTINUATION after CONTINUATION with END_HEADERS": (
        within_a_block(lambda stream: 2 * frame(CONTINUATION, END_HEADERS, stream)),
        PROTOCOL_ERROR,
    ),
    "6.10 CONTINUATION on stream 0": (within_a_block(lambda stream: frame(CONTINUATION, END_HEADERS, 0)), PROTOCOL_ERROR),
    "6.10 CONTINUATION after DATA": (
        on(begun, lambda stream: frame(DATA, 0, stream, b"x") + frame(CONTINUATION, END_HEADERS, stream)),
        PROTOCOL_ERROR,
    ),
    "HPACK 2.1 a header block that ends within a field": (bare_head(b"\x82\x86\x44\x7f"), COMPRESSION_ERROR),
    "HPACK 2.3.3 an index that is in no table": (bare_head(b"\x82\x86\x84\xfe\xff\x00"), COMPRESSION_ERROR),
    "HPACK 4.2 a size update at the end of a block": (head(GET, after=b"\x20"), COMPRESSION_ERROR),
    "HPACK 5.1 an integer without an end": (bare_head(b"\x82\xff" + b"\xff" * 20 + b"\x01"), COMPRESSION_ERROR),
    "HPACK 5.2 padding of more than 7 bits": (
        head(GET, after=b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
        COMPRESSION_ERROR,
    ),
    "HPACK 5.2 padding by zeros": (head(GET, after=b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"), COMPRESSION_ERROR),
    "HPACK 5.2 the symbol EOS": (
        head(GET, after=b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"),
        COMPRESSION_ERROR,
    ),
    "HPACK 6.1 index 0": (bare_head(b"\x80"), COMPRESSION_ERROR),
    "HPACK 6.3 a size update beyond what was announced": (bare_head(b"\x3f\xe1\xff\x0f"), COMPRESSION_ERROR),
}

#: One request; the connection stays open.
STREAM_ERRORS = {
    "5.1 DATA on a half-closed stream": (
        lambda connection: connection.send(frame(DATA, END_STREAM, connection.begin("GET", "/slow?half-closed").stream, b"x")),
        STREAM_CLOSED,
    ),
    "5.1 HEADERS on a half-closed stream": (
        lambda connection: connection.send(connection.heads(connection.begin("GET", "/slow?half-closed").stream, GET)),
        STREAM_CLOSED,
    ),
    # RFC 9113 has removed these dependencies.
    "5.3.1 a stream that depends on itself": (depends_on_itself, PROTOCOL_ERROR, 200),
    "6.9 WINDOW_UPDATE of 0 on a stream": (on(begun, lambda stream: window_update(stream, 0)), PROTOCOL_ERROR),
    "6.9.1 a window of a stream beyond 2 GB": (overflow_of_a_stream, FLOW_CONTROL_ERROR),
    "8.1 a second HEADERS frame without END_STREAM": (trailers([("x-a", "b")], ends=False), PROTOCOL_ERROR),
    "8.1 trailers with a pseudo-header field": (trailers([(":path", "/")]), PROTOCOL_ERROR),
    "8.1.1 a body that is shorter than its content-length": (body_of(5, b"four"), PROTOCOL_ERROR),
    "8.1.1 a body that is longer than its content-length": (body_of(3, b"four"), PROTOCOL_ERROR),
    "8.1.1 parts that are longer than their content-length": (body_of(5, b"thr", b"ee2"), PROTOCOL_ERROR),
    "8.1.1 no body, with a content-length": (head([*POST, ("content-length", "1")]), PROTOCOL_ERROR),
    "8.1.1 a content-length that is not a number": (head([*POST, ("content-length", "x")]), PROTOCOL_ERROR, 400),
    "8.1.1 two lengths": (head([*POST, ("content-length", "0"), ("content-length", "1")]), PROTOCOL_ERROR, 400),
    "8.2.1 a name in upper case": (head([*GET, ("X-Test", "ok")]), PROTOCOL_ERROR),
    "8.2.1 a name with a blank": (head([*GET, ("x test", "ok")]), PROTOCOL_ERROR),
    "8.2.1 a name with a colon": (head([*GET, ("x:test", "ok")]), PROTOCOL_ERROR),
    "8.2.1 an empty name": (head([*GET, ("", "ok")]), PROTOCOL_ERROR),
    "8.2.1 a value with a line end": (head([*GET, ("x-test", "a\r\nb: c")]), PROTOCOL_ERROR),
    "8.2.1 a value with a NUL": (head([*GET, ("x-test", "a\0b")]), PROTOCOL_ERROR),
    "8.2.2 connection": (head([*GET, ("connection", "keep-alive")]), PROTOCOL_ERROR),
    "8.2.2 transfer-encoding": (head([*POST, ("transfer-encoding", "chunked")]), PROTOCOL_ERROR),
    "8.2.2 upgrade": (head([*GET, ("upgrade", "websocket")]), PROTOCOL_ERROR),
    "8.2.2 keep-alive": (head([*GET, ("keep-alive", "timeout=5")]), PROTOCOL_ERROR),
    "8.2.2 proxy-connection": (head([*GET, ("proxy-connection", "keep-alive")]), PROTOCOL_ERROR),
    "8.2.2 te that is not trailers": (head([*GET, ("te", "trailers, deflate")]), PROTOCOL_ERROR),
    "8.3 an unknown pseudo-header field": (head([*GET, (":test", "ok")]), PROTOCOL_ERROR),
    "8.3 a pseudo-header field of answers": (head([*GET, (":status", "200")]), PROTOCOL_ERROR),
    "8.3 a pseudo-header field behind another field": (head([("x-test", "ok"), *GET]), PROTOCOL_ERROR),
    "8.3.1 an empty :path": (head(pseudo(target="")), PROTOCOL_ERROR),
    "8.3.1 a :path that does not begin with a slash": (head(pseudo(target="fine")), PROTOCOL_ERROR, 400),
    "8.3.1 a :path with a blank": (head(pseudo(target="/fine HTTP/1.1")), PROTOCOL_ERROR, 400),
    "8.3.1 a :path with a line end": (head(pseudo(target="/fine\r\nx: y")), PROTOCOL_ERROR, 400),
    "8.3.1 a :method that is not a token": (head(pseudo("GE T", ANSWERS)), PROTOCOL_ERROR, 400),
    "8.3.1 an empty :method": (head(pseudo("", ANSWERS)), PROTOCOL_ERROR, 400),
    "8.3.1 no :method": (head([pair for pair in GET if pair[0] != ":method"]), PROTOCOL_ERROR),
    "8.3.1 no :scheme": (head([pair for pair in GET if pair[0] != ":scheme"]), PROTOCOL_ERROR),
    "8.3.1 no :path": (head([pair for pair in GET if pair[0] != ":path"]), PROTOCOL_ERROR),
    "8.3.1 two :method": (head([*GET, (":method", "GET")]), PROTOCOL_ERROR),
    "8.3.1 two :scheme": (head([*GET, (":scheme", "http")]), PROTOCOL_ERROR),
    "8.3.1 two :path": (head([*GET, (":path", "/")]), PROTOCOL_ERROR),
    "8.3.1 two :authority": (head([*GET, (":authority", "localhost")]), PROTOCOL_ERROR),
}


def twice(values):
    return settings([(INITIAL_WINDOW_SIZE, value) for value in values])


#: Valid sequences: the connection stays open, and so does the stream.
NO_ERRORS = {
    "4.1 an unknown frame": raw(frame(0x16, 0, 0, bytes(8)), frame(99, 0xFF, 77, b"x")),
    "4.1 an undefined flag": raw(frame(PING, 0x16, 0, bytes(8))),
    "4.1 the reserved bit": raw(frame(PING, 0, 1 << 31, bytes(8))),
    "4.2 a DATA frame of 16 KiB": on(begun, lambda stream: frame(DATA, 0, stream, bytes(FRAME_BYTES))),
    "5.1 PRIORITY of an idle stream": raw(frame(PRIORITY, 0, 101, bytes(4) + b"\x0f")),
    "5.1 PRIORITY of a stream that is over": on(answered, lambda stream: frame(PRIORITY, 0, stream, bytes(4) + b"\x0f")),
    "5.1 WINDOW_UPDATE of a stream that is over": on(answered, lambda stream: window_update(stream, 100)),
    "5.1 RST_STREAM of a stream that is over": on(answered, lambda stream: http2.rst_stream(stream)),
    "6.1 padding": on(begun, lambda stream: frame(DATA, PADDED, stream, b"\x05x" + bytes(5))),
    "6.2 padding, and a priority": head(GET, END_STREAM | END_HEADERS | PADDED | HAS_PRIORITY, b"\x02\x80\0\0\0\xff", bytes(2)),
    "6.4 an unknown code": lambda connection: connection.reset(begun(connection), 0xFF),
    "6.5.2 an unknown setting": raw(settings({0xFF: 1})),
    "6.5.3 a setting twice": raw(twice([100, 65535])),
    "6.7 an answer to a PING that nobody sent": raw(frame(PING, ACK, 0, b"nobodys!")),
    "6.9.2 windows that become negative": on(begun, lambda stream: twice([0]) + twice([65535])),
    "HPACK 4.2 two size updates at the start of a block": head(GET, before=b"\x20\x3f\xe1\x1f"),
}


def fine(connection):
    """The connection still serves."""
    return connection.request(target=ANSWERS).body == b"fine" and not connection.went_away


def connection_error(connection, act):
    """Returns the code with which a connection ends in the meantime, or None."""
    try:
        act()
    except http2.Ended:
        return connection.went_away[-1][1]
    return None


@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_a_mistake_of_the_connection_ends_it_with_its_code(server, connection, case):
    send, *codes = CONNECTION_ERRORS[case]
    send(connection)
    assert connection.read_end() in codes
    assert connection.farewell, "the GOAWAY says what was wrong (section 6.8 has a place for it)"
    assert server.get(ANSWERS).status == 200


@pytest.mark.parametrize("case", STREAM_ERRORS)
def test_a_mistake_of_a_stream_resets_it_with_its_code_and_the_connection_goes_on(connection, case):
    send, *codes = STREAM_ERRORS[case]
    send(connection)
    answer = connection.answers[max(connection.answers)]
    connection.read_until(lambda: answer.is_over, "the stream is over")
    if answer.status is None:
        assert answer.reset in codes
    else:
        # Section 8.1.1: a response may report the error, and a server may ignore some errors.
        assert answer.status in codes
    assert fine(connection)


@pytest.mark.parametrize("case", NO_ERRORS)
def test_what_only_looks_wrong_has_no_consequence(connection, case):
    NO_ERRORS[case](connection)
    assert fine(connection)
    assert all(answer.reset is None for answer in connection.answers.values())


def test_a_priority_frame_of_another_size_is_a_mistake_of_either_kind(server, connection):
    # RFC 9113 section 6.3 makes it a stream error, which section 5.4.2 allows to treat as a connection error.
    answer = begun(connection)
    connection.send(frame(PRIORITY, 0, answer.stream, bytes(4)))
    code = connection_error(connection, lambda: connection.read_reset(answer))
    assert FRAME_SIZE_ERROR in (code, answer.reset)


@pytest.mark.parametrize("kind", ["DATA", "HEADERS"])
@pytest.mark.parametrize("prepare", [left, answered])
def test_what_comes_on_a_closed_stream_is_dropped_or_a_mistake_of_either_kind(server, connection, prepare, kind):
    # Section 5.1 allows both, because frames may have been in transit.
    answer = prepare(connection)
    answer.is_left = True
    connection.send(frame(DATA, END_STREAM, answer.stream, b"x") if kind == "DATA" else connection.heads(answer.stream, GET))
    assert connection_error(connection, lambda: fine(connection)) in (None, STREAM_CLOSED, PROTOCOL_ERROR)
    assert answer.reset in (None, STREAM_CLOSED)
    assert server.get(ANSWERS).status == 200


def test_beyond_the_streams_window_is_a_mistake_of_flow_control(server, connection):
    code = connection_error(connection, lambda: beyond_the_streams_window(connection))
    answer = connection.answers[max(connection.answers)]
    assert FLOW_CONTROL_ERROR in (code, answer.reset)


def test_more_streams_than_announced_are_refused_and_may_be_tried_again(connection):
    most = connection.server_settings[http2.MAX_CONCURRENT_STREAMS]
    answers = [begun(connection) for _ in range(most + 5)]
    connection.ping()
    assert [answer.reset for answer in answers] == [None] * most + [http2.REFUSED_STREAM] * 5
    connection.send_data(answers[0], b"", ends=True)
    assert connection.finish(answers[0]).status == 200
    assert fine(connection)


def test_the_preface_goes_on_with_settings(server):
    connection = Http2(server.connect(), preface=PREFACE + frame(PING, 0, 0, bytes(8)))
    assert connection.read_end() == PROTOCOL_ERROR


def test_a_preface_with_a_mistake_in_it_is_no_http2(server):
    for place in range(3, len(PREFACE)):
        client = server.connect()
        client.send(PREFACE[:place] + b"x" + PREFACE[place + 1 :] + settings())
        said = client.read_to_end()
        assert said.startswith(b"HTTP/1.1 ") or said == b"" or http2.frame(SETTINGS)[3:4] == said[3:4], (place, said)


def test_a_client_that_goes_away_still_gets_what_it_has_asked_for(server, connection):
    answer = connection.begin(target="/slow?going")
    connection.send(http2.goaway(0, 0xFF, b"good bye"))
    server.wait_for_log("^slow going has begun$")
    server.get("/open?going")
    assert connection.finish(answer).body == b"slow going"
