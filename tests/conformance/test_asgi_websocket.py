"""Messages of a WebSocket in both directions (RFC 6455 sections 5 and 6, ASGI 3 "WebSocket"), and permessage-deflate
(RFC 7692).
"""

import itertools
import os
import random
import signal
import struct

import pytest
from support.waiting import wait_until
from support.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Scripted,
    close_payload,
    deflated,
    failures,
    frame,
    received,
)

ACCEPT = {"type": "websocket.accept"}

_questions = itertools.count()


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("asgi = {apps}/asgi_socket.py\nlifespan = off")


@pytest.fixture(scope="module")
def plain_server(serve_module):
    return serve_module("asgi = {apps}/asgi_socket.py\nlifespan = off\nwebsocket-compression = false")


def echoing(server, times, **options):
    return Scripted(server, ("accept",), ("echo", times), **options).open()


# Messages.


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 255, 256, 16383, 16384, 16385, 65535, 65536, 70000, 1_000_000])
def test_messages_of_all_sizes_come_back_as_they_were(server, size, compression):
    socket = echoing(server, 4, compression=compression)
    texts = ["xy" * (size // 2) + "z" * (size % 2), "\u20ac" * (size // 3) + "a" * (size % 3)]
    for text in texts:
        socket.send_text(text)
        assert socket.read_message() == text
    for payload in (bytes(size), random.Random(size).randbytes(size)):
        socket.send(BINARY, payload)
        assert socket.read_message() == payload
    assert socket.answer_close() == (1000, "")


def test_a_message_has_the_key_that_has_something_and_not_the_other(server):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.send_text("t\u20ac\U0001f600")
    socket.send(BINARY, b"b")
    socket.send_text("")
    socket.send(BINARY, b"")
    socket.close()
    assert received(socket.ended()[0])[:-1] == [
        {"type": "websocket.receive", "text": "t\u20ac\U0001f600"},
        {"type": "websocket.receive", "bytes": b"b"},
        {"type": "websocket.receive", "text": ""},
        {"type": "websocket.receive", "bytes": b""},
    ]


def test_fragments_are_one_message_also_with_control_frames_between_them(server):
    socket = echoing(server, 2)
    euro = "\u20ac".encode()
    socket.send(TEXT, b"a" + euro[:1], final=False)
    socket.send(PING, b"between")
    socket.send(CONTINUATION, b"", final=False)
    socket.send(PONG, b"nobody asked")
    socket.send(CONTINUATION, euro[1:2], final=False)
    socket.send(CONTINUATION, euro[2:] + b"z")
    answer = socket.read()
    assert (answer.opcode, answer.payload) == (PONG, b"between")
    assert socket.read_message() == "a\u20acz"
    socket.send(BINARY, b"", final=False)
    for number in range(1000):
        socket.send(CONTINUATION, bytes([number % 256]), final=number == 999)
    assert socket.read_message() == bytes(number % 256 for number in range(1000))


@pytest.mark.parametrize("compression", [False, True])
def test_frames_that_come_byte_by_byte_are_the_same(server, compression):
    socket = echoing(server, 3, compression=compression)
    text = "slowly, " * 20
    wire = frame(TEXT, text) + frame(PING, b"p") + frame(BINARY, bytes(300), final=False) + frame(CONTINUATION, b"!")
    if compression:
        wire += frame(TEXT, deflated(text.encode()), rsv=4)
    else:
        wire += frame(TEXT, text)
    socket.client.send_byte_by_byte(wire)
    # A pong may overtake the application's messages.
    socket.skips_pongs = True
    assert [socket.read_message() for _ in range(3)] == [text, bytes(300) + b"!", text]


def test_pings_are_answered_with_their_payload_while_the_application_is_busy(server):
    socket = Scripted(server, ("accept",), ("wait", "pinged")).open()
    for payload in (b"", b"x", bytes(range(125))):
        socket.send(PING, payload)
        answer = socket.read()
        assert (answer.opcode, answer.payload) == (PONG, payload)
    socket.send(PONG, b"unasked")
    socket.go("pinged")
    assert socket.answer_close() == (1000, "")


def test_pings_and_pongs_are_no_messages_of_the_application(server):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.client.send(frame(PING, b"1") + frame(PONG, b"2") + frame(TEXT, "3") + frame(CLOSE, close_payload(1000)))
    assert socket.read().opcode == PONG
    assert socket.read_close() == (1000, "")
    assert [message.get("text") for message in received(socket.ended()[0])] == ["3", None]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(TEXT, "x", mask=b""), 1002),
        (frame(TEXT, "x", rsv=4), 1002),
        (frame(TEXT, "x", rsv=1), 1002),
        (frame(3, "x"), 1002),
        (frame(15, ""), 1002),
        (frame(CONTINUATION, "x"), 1002),
        (frame(TEXT, "x", final=False) + frame(TEXT, "y"), 1002),
        (frame(PING, "x", final=False), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(CLOSE, close_payload(1005)), 1002),
        (frame(CLOSE, close_payload(999)), 1002),
        (frame(CLOSE, close_payload(5000)), 1002),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"\xe2\x82"), 1007),
        (frame(TEXT, b"ab\xff", final=False), 1007),
        (frame(TEXT, "\ud800".encode("utf-8", "surrogatepass")), 1007),
        (frame(TEXT, b"", length=1 << 63), 1002),
    ],
)
def test_a_client_that_breaks_the_protocol_is_closed_with_the_code_for_it(server, wire, code):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.client.send(frame(TEXT, "before") + wire + frame(TEXT, "after"))
    found, reason = socket.read_close()
    assert found == code
    assert reason
    assert socket.client.is_closed()
    messages = received(socket.ended()[0])
    assert messages[0]["text"] == "before"
    assert messages[1:] == [{"type": "websocket.disconnect", "code": code, "reason": reason}]


BROKEN = frame(3, "x")


def test_messages_that_came_whole_before_a_mistake_are_answered(server):
    socket = Scripted(server, ("accept",), ("echo", 3), ("receive_all",)).open()
    socket.client.send(b"".join(frame(TEXT, text) for text in "abc") + BROKEN + frame(TEXT, "after"))
    assert [socket.read_message() for _ in range(3)] == ["a", "b", "c"]
    assert socket.read_close()[0] == 1002
    assert socket.client.is_closed()
    assert [message.get("code") for message in received(socket.ended()[0])] == [1002]


def test_an_answer_that_takes_a_while_still_leaves_before_the_close(server):
    socket = Scripted(server, ("accept",), ("receive",), ("wait", "late"), ("say", "the answer"), ("receive_all",)).open()
    socket.client.send(frame(TEXT, "question") + BROKEN)
    socket.wait_for(lambda events: ("waits", "late") in events, "it has the message")
    socket.go("late")
    assert socket.read_message() == "the answer"
    assert socket.read_close()[0] == 1002
    assert [message.get("code") for message in received(socket.ended()[0])] == [None, 1002]


def test_an_application_that_does_not_answer_is_not_waited_for_without_end(server):
    socket = Scripted(server, ("accept",), ("receive",), ("wait", "never"), ("receive_all",)).open()
    socket.client.send(frame(TEXT, "question") + BROKEN)
    assert socket.read_close()[0] == 1002
    assert socket.client.is_closed()
    socket.go("never")
    assert [message.get("code") for message in received(socket.ended()[0])] == [None, 1002]


# Messages of applications.


def test_messages_of_several_tasks_come_whole_and_in_their_order(server):
    tasks, times = 8, 50
    socket = Scripted(server, ("accept",), ("say_at_once", tasks, times)).open()
    next_of = [0] * tasks
    for _ in range(tasks * times):
        number, place, rest = socket.read_message().split(" ")
        assert rest == "x" * 2000
        assert int(place) == next_of[int(number)]
        next_of[int(number)] += 1
    assert socket.answer_close() == (1000, "")
    assert socket.ended()[1] is None


def test_a_message_of_bytearray_or_memoryview_like_bytes_is_sent(server):
    # Frameworks pass on objects that they received from elsewhere.
    socket = Scripted(server, ("accept",), ("say_buffers",)).open()
    assert [socket.read_message() for _ in range(3)] == [b"bytes", b"bytearray", b"memoryview"]


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ({"type": "websocket.send"}, "ValueError", "'text' or 'bytes'"),
        ({"type": "websocket.send", "text": None, "bytes": None}, "ValueError", "'text' or 'bytes'"),
        ({"type": "websocket.send", "text": "x", "bytes": b"x"}, "ValueError", "'text' or 'bytes'"),
        ({"type": "websocket.send", "text": b"x"}, "TypeError", "text"),
        ({"type": "websocket.send", "bytes": "x"}, "TypeError", "bytes"),
        ({"type": "websocket.send", "bytes": 5}, "TypeError", "bytes"),
        ({"type": "websocket.send", "text": "\ud800"}, "ValueError", "surrogates"),
        ({"type": "websocket.accept"}, "RuntimeError", "already accepted"),
        ({"type": "websocket.http.response.start", "status": 404}, "RuntimeError", "already accepted"),
        ({"type": "websocket.receive", "text": "x"}, "RuntimeError", "websocket.receive"),
        ({"type": "http.response.body", "body": b"x"}, "RuntimeError", "http.response.body"),
        ({"type": "nonsense"}, "RuntimeError", "nonsense"),
        ({"type": b"websocket.send", "text": "x"}, "TypeError", "type"),
        ({"text": "x"}, "TypeError", "type"),
        ({}, "TypeError", "type"),
        ([], "TypeError", "dict"),
        (None, "TypeError", "dict"),
        ("websocket.send", "TypeError", "dict"),
        ({"type": "websocket.close", "code": 999}, "ValueError", "999"),
        ({"type": "websocket.close", "code": 1004}, "ValueError", "1004"),
        ({"type": "websocket.close", "code": 1005}, "ValueError", "1005"),
        ({"type": "websocket.close", "code": 1006}, "ValueError", "1006"),
        ({"type": "websocket.close", "code": 1015}, "ValueError", "1015"),
        ({"type": "websocket.close", "code": 2999}, "ValueError", "2999"),
        ({"type": "websocket.close", "code": 5000}, "ValueError", "5000"),
        ({"type": "websocket.close", "code": 70000}, "ValueError", ""),
        ({"type": "websocket.close", "code": -1}, "ValueError", ""),
        ({"type": "websocket.close", "code": 1 << 80}, "ValueError", ""),
        ({"type": "websocket.close", "code": "1000"}, "TypeError", "code"),
        ({"type": "websocket.close", "reason": b"x"}, "TypeError", "reason"),
        ({"type": "websocket.close", "reason": "\ud800"}, "ValueError", "reason"),
    ],
)
def test_a_wrong_message_is_an_exception_in_its_face_and_the_socket_serves_on(server, message, kind, words):
    socket = Scripted(server, ("accept",), ("send", message), ("say", "still here")).open()
    assert socket.read_message() == "still here"
    assert socket.answer_close() == (1000, "")
    ((kinds, text),) = failures(socket.ended()[0])
    assert kinds == [kind]
    assert words in text


def test_a_receive_that_was_cancelled_loses_no_message(server):
    socket = Scripted(server, ("accept",), ("receive_with_timeout", 0.01), ("receive", 2)).open()
    socket.wait_for(lambda events: ("nothing came",) in events, "the first wait is over")
    socket.send_text("one")
    socket.send_text("two")
    assert [message["text"] for message in received(socket.ended()[0])] == ["one", "two"]


def test_messages_that_came_just_before_the_close_are_received(server):
    socket = Scripted(server, ("accept",), ("wait", "closed"), ("receive_all",)).open()
    wire = b"".join(frame(TEXT, str(number)) for number in range(100)) + frame(CLOSE, close_payload(4001, "enough"))
    socket.client.send(wire)
    assert socket.read_close() == (4001, "")
    assert socket.client.is_closed()
    socket.client.close()
    socket.go("closed")
    messages = received(socket.ended()[0])
    assert [message.get("text") for message in messages[:-1]] == [str(number) for number in range(100)]
    assert messages[-1] == {"type": "websocket.disconnect", "code": 4001, "reason": "enough"}


def test_messages_that_came_before_the_client_vanished_are_received_while_the_application_sends(server):
    # Its writes fail before its reads: the client's messages are still there to be read.
    steps = [("accept",), ("tell_pid",), ("say_for_ever", 1000), ("end_saying",), ("receive_all",)]
    socket = Scripted(server, *steps).open()
    wire = b"".join(frame(TEXT, str(number)) for number in range(100)) + frame(CLOSE, close_payload(4001, "enough"))
    pid = int(socket.read_message())
    os.kill(pid, signal.SIGSTOP)
    try:
        socket.client.send(wire)
        # Unread data makes the end a reset.
        socket.client.close()
    finally:
        os.kill(pid, signal.SIGCONT)
    events, error = socket.ended()
    assert error is None
    messages = received(events)
    assert [message.get("text") for message in messages[:-1]] == [str(number) for number in range(100)]
    assert messages[-1]["code"] == 4001


# permessage-deflate.


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        ("permessage-deflate", "permessage-deflate; server_no_context_takeover; client_no_context_takeover"),
        (
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        (
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=9",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10;"
            " client_max_window_bits=9",
        ),
        (
            "x-unknown; a=b, permessage-deflate; server_max_window_bits=7, permessage-deflate; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; unknown", None),
        ("x-webkit-deflate-frame", None),
    ],
)
def test_compression_is_negotiated(server, offer, answer):
    socket = echoing(server, 1, headers=[("Sec-WebSocket-Extensions", offer)])
    assert socket.response.get("sec-websocket-extensions") == answer
    socket.compression = answer is not None
    socket.send_text("x" * 1000)
    assert socket.read_message() == "x" * 1000


def test_compressed_messages_are_inflated_also_in_fragments_and_mixed_with_plain_ones(server):
    socket = echoing(server, 4, compression=True)
    text = "compressed " * 500
    data = deflated(text.encode())
    socket.send(TEXT, data, rsv=4)
    assert socket.read_message() == text
    socket.send(TEXT, data[:10], rsv=4, final=False)
    socket.send(PING, b"between")
    socket.send(CONTINUATION, data[10:])
    assert socket.read().opcode == PONG
    assert socket.read_message() == text
    socket.send(TEXT, text)
    assert socket.read_message() == text
    socket.send(BINARY, deflated(b""), rsv=4)
    assert socket.read_message() == b""


def test_what_can_be_compressed_is_and_what_can_not_is_not(server):
    socket = echoing(server, 2, compression=True)
    socket.send_text("x" * 10_000)
    answer = socket.read()
    assert answer.compressed
    assert len(answer.payload) < 1000
    noise = random.Random(1).randbytes(10_000)
    socket.send(BINARY, noise)
    answer = socket.read()
    assert (answer.compressed, answer.payload) == (False, noise)


def test_corrupt_compressed_data_closes_with_1007(server):
    socket = Scripted(server, ("accept",), ("receive_all",), compression=True).open()
    socket.send(TEXT, b"\xff\xff\xff\xff", rsv=4)
    assert socket.read_close()[0] == 1007
    assert received(socket.ended()[0])[-1]["code"] == 1007


def test_a_continuation_may_not_say_that_it_is_compressed(server):
    socket = Scripted(server, ("accept",), ("receive_all",), compression=True).open()
    socket.send(TEXT, deflated(b"xx")[:1], rsv=4, final=False)
    socket.send(CONTINUATION, deflated(b"xx")[1:], rsv=4)
    assert socket.read_close()[0] == 1002


def test_compression_can_be_switched_off(plain_server):
    socket = echoing(plain_server, 1, headers=[("Sec-WebSocket-Extensions", "permessage-deflate")])
    assert socket.response.get("sec-websocket-extensions") is None
    socket.send_text("x" * 1000)
    assert socket.read_message() == "x" * 1000
    socket = Scripted(plain_server, ("accept",), ("receive_all",), headers=[("Sec-WebSocket-Extensions", "permessage-deflate")])
    socket.open().send(TEXT, deflated(b"x"), rsv=4)
    assert socket.read_close()[0] == 1002


# Closing.


@pytest.mark.parametrize(
    ("payload", "code", "reason"),
    [
        (b"", 1005, ""),
        (close_payload(1000), 1000, ""),
        (close_payload(1001, "bye"), 1001, "bye"),
        (close_payload(3000, "\u20ac" * 41), 3000, "\u20ac" * 41),
        (close_payload(4999), 4999, ""),
        (close_payload(1014), 1014, ""),
    ],
)
def test_the_application_is_told_the_code_and_reason_of_the_clients_close(server, payload, code, reason):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.send(CLOSE, payload)
    assert socket.read_close() == (struct.unpack(">H", payload[:2])[0] if payload else None, "")
    assert socket.client.is_closed()
    assert received(socket.ended()[0]) == [{"type": "websocket.disconnect", "code": code, "reason": reason}]


@pytest.mark.parametrize("leave", ["close", "reset", "end_sending"])
def test_a_client_that_goes_without_a_word_is_1006(server, leave):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.send_text("last words")
    socket.wait_for(received, "the message has come")
    getattr(socket.client, leave)()
    assert received(socket.ended()[0])[-1] == {"type": "websocket.disconnect", "code": 1006, "reason": ""}


def test_a_client_that_goes_in_the_midst_of_a_message_is_1006(server):
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.client.send(frame(TEXT, "x" * 1000)[:500])
    socket.client.close()
    assert received(socket.ended()[0]) == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("close", "code", "reason"),
    [
        ({}, 1000, ""),
        ({"code": 4000}, 4000, ""),
        ({"code": 1003, "reason": "why \u20ac"}, 1003, "why \u20ac"),
        ({"code": 3000, "reason": None}, 3000, ""),
        ({"reason": "\u20ac" * 100}, 1000, "\u20ac" * 41),
    ],
)
def test_the_application_closes_with_a_code_and_a_reason(server, close, code, reason, at_once):
    steps = [] if at_once else [("turn",)]
    socket = Scripted(server, ("accept",), *steps, ("send", {"type": "websocket.close", **close}), ("receive",)).open()
    assert socket.answer_close() == (code, reason)
    events, error = socket.ended()
    assert (failures(events), error) == ([], None)
    assert received(events)[-1]["type"] == "websocket.disconnect"
    assert received(events)[-1]["code"] == code


@pytest.mark.parametrize("at_once", [True, False])
def test_an_application_that_returns_without_a_close_closes_with_1000(server, at_once):
    socket = Scripted(server, ("accept",), *([] if at_once else [("turn",)]), ("say", "bye")).open()
    assert socket.read_message() == "bye"
    assert socket.answer_close() == (1000, "")


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("failure", ["fail", "cancel"])
def test_an_application_that_fails_closes_with_1011(server, failure, at_once):
    socket = Scripted(server, ("accept",), *([] if at_once else [("turn",)]), (failure,)).open()
    code, reason = socket.answer_close()
    assert code == 1011
    assert "test asked" not in reason
    assert socket.ended()[1] == {"fail": "RuntimeError", "cancel": "CancelledError"}[failure]


def test_the_log_has_the_traceback_of_an_application_that_failed(server):
    count = server.log.count("RuntimeError: for the log")
    socket = Scripted(server, ("accept",), ("fail", "for the log"), path="/failing").open()
    assert socket.answer_close()[0] == 1011
    server.wait_for_log("RuntimeError: for the log", count + 1)
    server.wait_for_text("GET /failing")


def test_nothing_may_follow_a_close(server):
    messages = [{"type": "websocket.send", "text": "x"}, {"type": "websocket.close"}, ACCEPT]
    steps = [("send", {"type": "websocket.close"}), *(("send", message) for message in messages)]
    for wait in ([], [("turn",)]):
        socket = Scripted(server, ("accept",), *wait, *steps).open()
        assert socket.answer_close() == (1000, "")
        for kinds, text in failures(socket.ended()[0]):
            assert kinds == ["RuntimeError"]
            assert "nothing may follow" in text
        assert len(failures(socket.seen())) == len(messages)


def test_a_send_after_the_client_has_left_raises_an_oserror(server):
    # ASGI 2.4: "If send is called after the client has disconnected, the server should raise a server-specific OSError".
    steps = [("accept",), ("receive",), ("send", {"type": "websocket.send", "text": "x"}), ("send", {"type": "websocket.close"})]
    for leave in ("close", "reset"):
        socket = Scripted(server, *steps).open()
        getattr(socket.client, leave)()
        events, error = socket.ended()
        assert error is None
        assert failures(events)[0][0] == ["ClientDisconnected", "OSError"]
    socket = Scripted(server, *steps).open()
    socket.close(4000)
    assert failures(socket.ended()[0])[0][0] == ["ClientDisconnected", "OSError"]


def test_a_send_before_the_application_knows_that_the_client_has_left_raises_an_oserror(server):
    socket = Scripted(server, ("accept",), ("say_zeros", 1000, 100_000)).open()
    socket.client.reset()
    events, error = socket.ended()
    assert error is None
    assert failures(events) == [(["ClientDisconnected"], "the client has disconnected")]


def tracebacks(server):
    """Returns the number in the log. The last one belongs to this query: earlier lines reach the log before it."""
    text = f"question {next(_questions)}"
    assert Scripted(server, ("accept",), ("fail", text)).open().answer_close()[0] == 1011
    server.wait_for_log(f"RuntimeError: {text}$")
    return server.log.count("Traceback")


def test_a_disconnection_that_the_application_does_not_catch_is_no_failure_in_the_log(server):
    count = tracebacks(server)
    socket = Scripted(server, ("accept",), ("receive",), ("say", "to nobody")).open()
    socket.client.close()
    assert socket.ended()[1] == "ClientDisconnected"
    assert tracebacks(server) == count + 1


@pytest.mark.parametrize("turns", [[], [("turn",)]])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("accept",)], ("say", "to nobody")),
        (
            [("receive",), ("send", {"type": "websocket.http.response.start", "status": 404, "headers": []})],
            ("refuse_with", 200_000),
        ),
    ],
)
def test_nor_is_one_that_the_send_itself_finds_out(server, tmp_path, before, after, turns):
    gate = tmp_path / "gate"
    count = tracebacks(server)
    socket = Scripted(server, *before, *turns, ("block", str(gate)), after)
    wait_until(gate.with_suffix(".waiting").exists, "the loop does not turn")
    socket.client.reset()
    gate.touch()
    assert socket.ended()[1] == "ClientDisconnected"
    assert tracebacks(server) == count + 1


def test_the_disconnect_is_told_again_and_again(server):
    socket = Scripted(server, ("accept",), ("receive", 3)).open()
    socket.close(4000, "x")
    assert received(socket.ended()[0]) == [{"type": "websocket.disconnect", "code": 4000, "reason": "x"}] * 3


def test_messages_after_the_applications_close_are_dropped(server):
    socket = Scripted(server, ("accept",), ("turn",), ("send", {"type": "websocket.close", "code": 4000}), ("receive", 2)).open()
    assert socket.read_close() == (4000, "")
    for _ in range(100):
        socket.send_text("late" * 1000)
    socket.send(PING, b"late")
    socket.send(CLOSE, close_payload(4000))
    assert socket.client.is_closed()
    assert {message["type"] for message in received(socket.ended()[0])} == {"websocket.disconnect"}


def test_an_application_may_work_on_after_its_close(server):
    socket = Scripted(server, ("accept",), ("send", {"type": "websocket.close"}), ("wait", "work")).open()
    assert socket.answer_close() == (1000, "")
    socket.go("work")
    assert socket.ended()[1] is None


def test_the_access_log_has_a_line_for_each_socket(server):
    socket = Scripted(server, ("accept",), path="/logged").open()
    assert socket.answer_close() == (1000, "")
    line = server.wait_for_log(r"^.*GET /logged.*$").group()
    assert "(HTTP/1.1 101)" in line


def test_one_worker_holds_many_conversations_at_once(server):
    sockets = [echoing(server, 2) for _ in range(100)]
    for number, socket in enumerate(sockets):
        socket.send_text(f"first {number}")
    for number, socket in enumerate(sockets):
        assert socket.read_message() == f"first {number}"
        socket.send_text(f"second {number}")
    for number, socket in reversed(list(enumerate(sockets))):
        assert socket.read_message() == f"second {number}"
        assert socket.answer_close() == (1000, "")
    assert wait_until(lambda: all(socket.seen()[-1] == ("ended", None) for socket in sockets[::20]), "all have ended")
