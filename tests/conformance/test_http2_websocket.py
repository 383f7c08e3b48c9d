"""WebSockets on HTTP/2 streams (RFC 8441): handshakes, messages beside other streams, compression, ends of all kinds."""

import ast
import itertools
import os
import signal

import pytest
from support import http2, processes
from support.http2 import CANCEL, ENABLE_CONNECT_PROTOCOL, INITIAL_WINDOW_SIZE, PROTOCOL_ERROR, Both, Http2
from support.http2_websocket import StreamSocket, connect
from support.waiting import wait_until
from support.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, close_payload, deflated, frame, inflated, received

WAYS = ["plain", "tls"]
CONFIGURATION = "asgi = {apps}/asgi_socket.py\nlifespan = off\nloop = "
SERVICE_RESTART, GOING_AWAY = 1012, 1001
#: Numbers of gates: one that another test has opened stays open.
GATES = itertools.count()


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def both(request, serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), CONFIGURATION + request.param)


@pytest.fixture
def server(both):
    return both.server


@pytest.fixture(params=WAYS)
def connection(both, request):
    connection = both.connect(request.param)
    connection.read_settings()
    return connection


def fine(connection):
    """Other requests of the connection are served."""
    return connection.request(target="/seen/nobody").body == b"[]"


# The handshake.


def test_the_server_says_that_it_has_extended_connect(connection):
    assert connection.server_settings[ENABLE_CONNECT_PROTOCOL] == 1


def test_a_text_and_bytes_come_back(connection, server):
    socket = StreamSocket(connection, server, ("accept",), ("echo", 2)).open()
    socket.send_text("hello")
    assert socket.read_message() == "hello"
    socket.send(BINARY, b"\0\xff")
    assert socket.read_message() == b"\0\xff"
    assert socket.close()[0] in (1000, None)
    assert fine(connection)


def test_the_scope_is_that_of_a_websocket_over_http_2(connection, server):
    names = ("type", "http_version", "scheme", "path", "subprotocols", "headers")
    socket = StreamSocket(connection, server, ("accept",), ("tell_scope", *names), path="/a/b", headers=[("x-a", "1")]).open()
    scope = ast.literal_eval(socket.read_message())
    assert (scope["type"], scope["http_version"], scope["path"]) == ("websocket", "2", "/a/b")
    assert scope["scheme"] == {"http": "ws", "https": "wss"}[connection.scheme]
    names = [name for name, _ in scope["headers"]]
    assert names[0] == b"host"
    assert (b"x-a", b"1") in scope["headers"]
    assert not [name for name in names if name.startswith(b":")]
    # The fields of HTTP/1.1, where applications look for them.
    assert [pair for pair in scope["headers"] if pair[0] in (b"upgrade", b"connection")] == [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
    ]


def test_a_subprotocol_and_fields_are_in_the_answer(connection, server):
    keys = {"subprotocol": "chat", "headers": [(b"x-own", b"1")]}
    socket = StreamSocket(
        connection,
        server,
        ("receive",),
        ("send", {"type": "websocket.accept", **keys}),
        ("receive_all",),
        headers=[("sec-websocket-protocol", "chat, other")],
    ).open()
    assert (socket.response.get("sec-websocket-protocol"), socket.response.get("x-own")) == ("chat", "1")


def test_a_handshake_that_the_application_refuses_is_403(connection, server):
    socket = StreamSocket(connection, server, ("receive",), ("send", {"type": "websocket.close"}))
    answer = socket.refused()
    connection.read_until(lambda: answer.is_over, "the answer ends")
    assert answer.status == 403
    assert fine(connection)


def test_an_application_that_fails_before_it_accepts_is_500(connection, server):
    answer = StreamSocket(connection, server, ("fail",)).refused()
    connection.read_until(lambda: answer.is_over, "the answer ends")
    assert answer.status == 500
    assert fine(connection)


def test_an_own_answer_that_refuses_has_its_body(connection, server):
    response = "websocket.http.response"
    steps = [("receive",), ("send", {"type": f"{response}.start", "status": 404, "headers": []}), ("refuse_with", 200_000)]
    answer = StreamSocket(connection, server, *steps).refused()
    connection.read_until(lambda: answer.is_over, "the answer ends")
    assert (answer.status, answer.received) == (404, 200_000)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"sec-websocket-version": None}, 426),
        ({"sec-websocket-version": "12"}, 426),
        ({":protocol": "telnet"}, 501),
    ],
)
def test_a_handshake_that_is_wrong_is_refused_on_its_stream(connection, server, change, status):
    fields = [(name, change.get(name, value)) for name, value in connect("/")]
    answer = StreamSocket(connection, server, fields=[pair for pair in fields if pair[1] is not None]).refused()
    assert answer.status == status
    assert fine(connection)


@pytest.mark.parametrize("missing", [":path", ":scheme", ":authority"])
def test_an_extended_connect_without_a_field_that_it_must_have_is_malformed(connection, server, missing):
    fields = [pair for pair in connect("/") if pair[0] != missing]
    answer = StreamSocket(connection, server, fields=fields).refused()
    assert answer.reset == PROTOCOL_ERROR or answer.status == 400
    assert fine(connection)


def test_a_get_with_a_protocol_is_malformed(connection, server):
    fields = [(name, "GET" if name == ":method" else value) for name, value in connect("/")]
    answer = StreamSocket(connection, server, fields=fields).refused()
    assert answer.reset == PROTOCOL_ERROR or answer.status == 400
    assert fine(connection)


def test_connect_without_a_protocol_is_no_websocket_and_no_proxy(connection):
    answer = connection.begin_with([(":method", "CONNECT"), (":authority", "example.com:443")], ends=False, method="CONNECT")
    connection.read_until(lambda: answer.is_over or answer.status is not None, "it is refused")
    assert answer.reset is not None or answer.status in (400, 405, 501)
    assert fine(connection)


# Messages.


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 1_000_000])
def test_a_message_of_any_size_comes_back(connection, server, size):
    socket = StreamSocket(connection, server, ("accept",), ("echo", 1)).open()
    payload = os.urandom(size)
    socket.send(BINARY, payload)
    assert socket.read_message() == payload


def test_a_message_may_come_in_pieces_of_any_kind(connection, server):
    socket = StreamSocket(connection, server, ("accept",), ("echo", 1)).open()
    wire = b"".join(
        [
            frame(TEXT, b"one ", final=False),
            frame(PING, b"p"),
            frame(CONTINUATION, b"two ", final=False),
            frame(CONTINUATION, b"three"),
        ]
    )
    for place in range(len(wire)):
        connection.send_data(socket.answer, wire[place : place + 1])
    assert socket.read().opcode == PONG
    assert socket.read_message() == "one two three"


def test_compression_is_agreed_and_used(connection, server):
    socket = StreamSocket(connection, server, ("accept",), ("echo", 1), compression=True).open()
    assert "permessage-deflate" in socket.response.get("sec-websocket-extensions")
    text = "compressed " * 10_000
    socket.send(TEXT, deflated(text.encode()), rsv=4)
    message = socket.read()
    assert message.compressed
    payload = message.payload
    while not message.final:
        message = socket.read()
        payload += message.payload
    assert inflated(payload).decode() == text


def test_several_websockets_and_requests_share_a_connection(connection, server):
    sockets = [StreamSocket(connection, server, ("accept",), ("echo", 3)).open() for _ in range(10)]
    for turn in range(3):
        for number, socket in enumerate(sockets):
            socket.send_text(f"{turn} {number}")
        assert fine(connection)
        for number, socket in reversed(list(enumerate(sockets))):
            assert socket.read_message() == f"{turn} {number}"


def test_what_a_client_does_not_take_holds_up_no_other_stream(both, server):
    connection = both.connect("plain", {INITIAL_WINDOW_SIZE: 1000}, gives_back=False)
    socket = StreamSocket(connection, server, ("accept",), ("say_for_ever", 5000), ("receive_all",)).open()
    connection.read_until(lambda: socket.answer.received == 1000, "the window is full")
    connection.open_window(0, 1 << 20)
    memory = processes.resident_bytes(server.worker())
    for _ in range(50):
        answer = connection.begin(target="/seen/nobody")
        assert connection.finish(answer).body == b"[]"
    assert processes.resident_bytes(server.worker()) - memory < 16 << 20
    connection.reset(socket.answer)
    # The sending task ends by itself, before or after.
    socket.wait_for(lambda events: ("ended", None) in events, "the application has ended")


def test_what_an_application_does_not_receive_holds_up_no_other_stream(connection, server):
    gate = f"gate-{next(GATES)}"
    socket = StreamSocket(connection, server, ("accept",), ("wait", gate), ("receive_all",)).open()
    sent = 0
    while connection.send_windows[socket.answer.stream] > 3000 and connection.send_windows[0] > 20_000 and sent < 20_000_000:
        socket.send(BINARY, bytes(2000))
        sent += 2000
        connection.ping()
    assert sent < 20_000_000, "the server takes whatever comes"
    assert fine(connection)
    socket.go(gate)
    socket.send(BINARY, b"last")
    socket.wait_for(
        lambda events: any(event[1].get("bytes") == b"last" for event in events if event[0] == "received"), "all came"
    )


# Ends.


def test_a_close_by_the_client_is_answered_and_ends_the_stream(connection, server):
    socket = StreamSocket(connection, server, ("accept",), ("receive_all",)).open()
    assert socket.close(1000, "bye") == (1000, "bye") or socket.answer.is_whole
    events, error = socket.ended()
    assert error is None
    assert received(events)[-1]["code"] == 1000
    assert fine(connection)


def test_a_close_by_the_application_ends_the_stream(connection, server):
    close = {"type": "websocket.close", "code": 4000, "reason": "enough"}
    socket = StreamSocket(connection, server, ("accept",), ("send", close), ("receive",)).open()
    code, reason = socket.read_close()
    assert (code, reason) == (4000, "enough")
    socket.send(CLOSE, close_payload(4000))
    assert socket.client.is_closed()
    assert fine(connection)


def test_a_ping_that_arrives_while_output_waits_is_answered_when_the_client_reads(connection, server):
    # The window of a stream is 64 KiB, so the server is behind until the client reads.
    socket = StreamSocket(connection, server, ("accept",), ("say_zeros", 1 << 20)).open()
    socket.client.send(b"".join(frame(PING, b"%d" % number) for number in range(100)))
    pongs, size = [], 0
    while b"99" not in pongs:
        found = socket.read()
        if found.opcode == PONG:
            pongs.append(found.payload)
        else:
            size += len(found.payload)
    assert pongs == sorted(pongs, key=int)
    assert size in (0, 1 << 20)
    assert fine(connection)


@pytest.mark.parametrize("way", ["reset", "end_sending"])
def test_a_stream_that_ends_without_a_close_is_1006(connection, server, way):
    socket = StreamSocket(connection, server, ("accept",), ("receive_all",)).open()
    getattr(socket.client, way)()
    events, _ = socket.ended()
    assert received(events)[-1]["code"] == 1006
    assert fine(connection)


def test_an_application_that_fails_closes_its_stream_alone(connection, server):
    other = StreamSocket(connection, server, ("accept",), ("echo", 1)).open()
    socket = StreamSocket(connection, server, ("accept",), ("receive",), ("fail",)).open()
    socket.send_text("now")
    assert socket.read_close()[0] == 1011
    other.send_text("still there")
    assert other.read_message() == "still there"


def test_a_violation_closes_its_stream_alone(connection, server):
    other = StreamSocket(connection, server, ("accept",), ("echo", 1)).open()
    socket = StreamSocket(connection, server, ("accept",), ("receive_all",)).open()
    socket.send(TEXT, b"not masked", mask=b"")
    assert socket.read_close()[0] == 1002
    other.send_text("still there")
    assert other.read_message() == "still there"


def test_the_end_of_the_connection_is_the_end_of_its_websockets(connection, server):
    sockets = [StreamSocket(connection, server, ("accept",), ("receive_all",)).open() for _ in range(3)]
    connection.close()
    for socket in sockets:
        assert received(socket.ended()[0])[-1]["code"] == 1006


# The end of the worker.


@pytest.fixture(params=WAYS)
def draining(request, serve, tmp_path):
    both = Both(serve, tmp_path, CONFIGURATION + "auto")
    connection = both.connect(request.param)
    connection.read_settings()
    return both.server, connection


def test_a_reload_closes_with_1012_and_then_the_connection(draining, tmp_path):
    server, connection = draining
    notes = tmp_path / "notes"
    sockets = [StreamSocket(connection, server, ("accept",), ("receive_all",)).open() for _ in range(4)]
    sockets.append(StreamSocket(connection, server, ("accept",), ("receive_all",), ("keep_notes", str(notes))).open())
    server.send_signal(signal.SIGHUP)
    for socket in sockets:
        code, _ = socket.read_close()
        assert code == SERVICE_RESTART
        socket.send(CLOSE, close_payload(code))
        assert socket.client.is_closed()
    wait_until(notes.exists, "the application has ended")
    assert received(ast.literal_eval(notes.read_text()))[-1]["code"] == SERVICE_RESTART
    assert connection.read_end() == http2.NO_ERROR
    server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    again = StreamSocket(Http2(server.connect()), server, ("accept",), ("echo", 1)).open()
    again.send_text("after")
    assert again.read_message() == "after"


def test_a_stop_closes_with_1001_and_ends_with_status_0(draining):
    server, connection = draining
    socket = StreamSocket(connection, server, ("accept",), ("receive_all",)).open()
    server.send_signal(signal.SIGTERM)
    code, _ = socket.read_close()
    assert code == GOING_AWAY
    socket.send(CLOSE, close_payload(code))
    assert connection.read_end() in (http2.NO_ERROR, CANCEL)
    assert server.wait_for_exit() == 0
