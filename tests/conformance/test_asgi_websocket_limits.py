"""Limits of a WebSocket: the size of messages, silence, slow clients, and the memory of many."""

import functools
import os
import resource
import signal
import zlib

import pytest
from support.client import TIMEOUTS
from support.processes import resident_bytes
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FLUSH_TAIL,
    PING,
    PONG,
    TEXT,
    Scripted,
    WebSocket,
    close_payload,
    deflated,
    failures,
    frame,
    received,
)

MEGABYTE = 1 << 20

#: A small message size, so that the largest message is cheap to test.
MAX_BYTES = 10_000

#: Maximum that the kernel buffers for both sides of a connection whose client does not read, in bytes.
KERNEL_BYTES = 16 * MEGABYTE


@functools.lru_cache
def bomb(size):
    """Returns ``size`` compressed zero bytes without materializing them."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    part = bytes(MEGABYTE)
    data = b"".join(compressor.compress(part) for _ in range(size // MEGABYTE)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    return data[: -len(FLUSH_TAIL)]


# The size of a message.


@pytest.fixture(scope="module")
def small(serve_module):
    return serve_module(f"asgi = {{apps}}/asgi_socket.py\nlifespan = off\nwebsocket-max-message-size = {MAX_BYTES}")


@pytest.fixture(scope="module")
def usual(serve_module):
    return serve_module("asgi = {apps}/asgi_socket.py\nlifespan = off")


@pytest.mark.parametrize("compression", [False, True])
def test_a_message_of_the_largest_size_is_received(small, compression):
    socket = Scripted(small, ("accept",), ("echo", 3), compression=compression).open()
    socket.send(BINARY, bytes(MAX_BYTES))
    assert socket.read_message() == bytes(MAX_BYTES)
    socket.client.send(frame(TEXT, "x" * 9000, final=False) + frame(CONTINUATION, "x" * 1000))
    assert socket.read_message() == "x" * MAX_BYTES
    if compression:
        socket.send(BINARY, deflated(bytes(MAX_BYTES)), rsv=4)
    else:
        socket.send(BINARY, bytes(MAX_BYTES))
    assert socket.read_message() == bytes(MAX_BYTES)


@pytest.mark.parametrize(
    ("wire", "compression"),
    [
        (frame(BINARY, bytes(MAX_BYTES + 1)), False),
        (frame(BINARY, b"only announced", length=MAX_BYTES + 1), False),
        (frame(BINARY, b"only announced", length=(1 << 63) - 1), False),
        (frame(TEXT, "x" * 9000, final=False) + frame(CONTINUATION, "x" * 1001), False),
        (
            frame(BINARY, bytes(MAX_BYTES), final=False) + frame(CONTINUATION, b"", final=False) + frame(CONTINUATION, b"x"),
            False,
        ),
        (frame(BINARY, deflated(bytes(MAX_BYTES + 1)), rsv=4), True),
        (frame(BINARY, bytes(MAX_BYTES + 1)), True),
    ],
)
def test_a_longer_message_is_closed_with_1009(small, wire, compression):
    # RFC 6455 section 7.4.1: 1009 is "a message that is too big for it to process".
    socket = Scripted(small, ("accept",), ("receive_all",), compression=compression).open()
    socket.client.send(frame(TEXT, "before") + wire)
    code, reason = socket.read_close()
    assert (code, bool(reason)) == (1009, True)
    assert socket.client.is_closed()
    messages = received(socket.ended()[0])
    assert [message.get("text") for message in messages[:-1]] == ["before"]
    assert messages[-1]["code"] == 1009


def test_the_largest_size_is_that_of_a_message_and_not_of_a_connection(small):
    socket = Scripted(small, ("accept",), ("echo", 20)).open()
    for _ in range(20):
        socket.send(BINARY, bytes(MAX_BYTES))
        assert socket.read_message() == bytes(MAX_BYTES)


def test_what_the_application_sends_has_no_largest_size(small):
    socket = Scripted(small, ("accept",), ("say_zeros", 3 * MEGABYTE)).open()
    assert socket.read_message() == bytes(3 * MEGABYTE)


def test_uwsgi_counts_the_largest_size_in_kilobytes(serve):
    server = serve("asgi = {apps}/asgi_socket.py\nlifespan = off\nwebsocket-max-size = 2")
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    socket.send(BINARY, bytes(2048))
    socket.send(BINARY, bytes(2049))
    assert socket.read_close()[0] == 1009
    assert [len(message["bytes"]) for message in received(socket.ended()[0])[:-1]] == [2048]


@pytest.mark.parametrize("split", [False, True])
def test_a_compression_bomb_is_1009_and_costs_no_more_than_a_message_may(usual, split):
    data = bomb(128 * MEGABYTE)
    assert len(data) < MEGABYTE
    worker = usual.worker()
    before = resident_bytes(worker)
    socket = Scripted(usual, ("accept",), ("receive_all",), compression=True).open()
    if split:
        parts = [data[start : start + 1000] for start in range(0, len(data), 1000)]
        wire = frame(BINARY, parts[0], rsv=4, final=False)
        wire += b"".join(frame(CONTINUATION, part, final=part is parts[-1]) for part in parts[1:])
    else:
        wire = frame(BINARY, data, rsv=4)
    socket.client.send(wire)
    assert socket.read_close()[0] == 1009
    assert received(socket.ended()[0])[0]["code"] == 1009
    # The default of 16 MB, plus the spare capacity of a growing vector.
    assert peak_bytes(worker) - before < 64 * MEGABYTE


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


# Silence.


@pytest.fixture(scope="module")
def pinging(serve_module):
    return serve_module("asgi = {apps}/asgi_socket.py\nlifespan = off\nwebsocket-ping-interval = 0.2\nwebsocket-ping-timeout = 3")


def test_a_silent_client_is_asked_by_a_ping_and_lives_on_while_it_answers(pinging):
    socket = Scripted(pinging, ("accept",), ("echo", 1)).open()
    for _ in range(10):
        ping = socket.read()
        assert ping.opcode == PING
        socket.send(PONG, ping.payload)
    socket.send_text("still here")
    while (answer := socket.read()).opcode == PING:
        pass
    assert answer.payload == b"still here"


def test_a_client_that_does_not_answer_a_ping_has_vanished(pinging):
    socket = Scripted(pinging, ("accept",), ("receive_all",)).open()
    assert socket.read().opcode == PING
    assert socket.client.is_closed(), "there is one ping, and nobody reads a close frame"
    assert received(socket.ended()[0]) == [
        {"type": "websocket.disconnect", "code": 1006, "reason": "the client did not answer a ping"}
    ]


def test_uwsgis_names_of_pings_do_the_same(serve):
    options = "websocket-ping-freq = 0.2\nwebsocket-pong-tolerance = 4"
    server = serve(f"asgi = {{apps}}/asgi_socket.py\nlifespan = off\n{options}")
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    for _ in range(3):
        ping = socket.read()
        assert ping.opcode == PING
        socket.send(PONG, ping.payload)
    # The next one is not answered.
    assert socket.read().opcode == PING
    assert socket.client.is_closed()
    assert received(socket.ended()[0])[-1]["reason"] == "the client did not answer a ping"


def test_whatever_a_client_sends_is_a_sign_of_life(pinging):
    socket = Scripted(pinging, ("accept",), ("receive_all",)).open()
    # A part of a frame counts, too; no pong is ever sent.
    assert socket.read().opcode == PING
    wire = frame(TEXT, "hello")[:8]
    for place in range(len(wire)):
        socket.client.send(wire[place : place + 1])
        assert socket.read().opcode == PING
    assert socket.client.is_closed()
    assert received(socket.ended()[0])[-1]["code"] == 1006


def test_an_application_that_does_not_receive_is_not_taken_for_a_client_that_is_silent(pinging):
    # Unread data fills the buffer, so the pongs after it are not read.
    socket = Scripted(pinging, ("accept",), ("wait", "busy"), ("receive", 30)).open()
    socket.client.send(b"".join(frame(TEXT, f"{number} " + "x" * 10_000) for number in range(30)))
    pings = 0
    socket.client.socket.settimeout(5)
    try:
        while socket.read().opcode == PING:
            pings += 1
    except TIMEOUTS:
        pass
    assert pings <= 1
    socket.go("busy")
    texts = [message["text"] for message in received(socket.ended()[0])]
    assert [text.split()[0] for text in texts] == [str(number) for number in range(30)]


def test_no_ping_is_sent_when_the_interval_is_0(serve):
    options = "websocket-ping-interval = 0\nwebsocket-ping-timeout = 0.1"
    server = serve(f"asgi = {{apps}}/asgi_socket.py\nlifespan = off\n{options}")
    silent = Scripted(server, ("accept",), ("receive_all",)).open()
    silent.client.socket.settimeout(1)
    with pytest.raises(TIMEOUTS):
        silent.read()
    silent.client.socket.settimeout(TIMEOUT_SECONDS)
    assert silent.close() == (1000, "")


# Backpressure in both directions.


def test_send_waits_for_a_client_that_does_not_read_and_goes_on_when_it_does(usual):
    times, size = 400, 100_000
    socket = Scripted(usual, ("accept",), ("say_zeros", size, times), client=usual.connect(receive_bytes=4096)).open()
    seen = settled(lambda: len(socket.seen()))
    assert seen * size < KERNEL_BYTES
    for _ in range(times):
        assert len(socket.read_message()) == size
    assert socket.answer_close() == (1000, "")
    assert [event[1] for event in socket.ended()[0] if event[0] == "sent"][1:] == list(range(times))


def test_what_an_application_does_not_receive_stays_with_the_client(usual):
    # The kernel's buffers are full, then the client can't send: nothing accumulates in the worker.
    worker = usual.worker()
    socket = Scripted(usual, ("accept",), ("wait", "hungry"), ("receive_all",)).open()
    socket.wait_for(lambda events: ("waits", "hungry") in events, "it waits")
    before = resident_bytes(worker)
    wire = frame(BINARY, bytes(50_000))
    sent = blocked_after(socket, wire)
    assert sent < KERNEL_BYTES
    assert resident_bytes(worker) - before < MEGABYTE
    socket.go("hungry")
    # The part of the last frame that has not left.
    socket.client.socket.settimeout(TIMEOUT_SECONDS)
    socket.client.send(wire[sent % len(wire) :] if sent % len(wire) else b"")
    socket.send(CLOSE, close_payload(1000))
    assert socket.read_close() == (1000, "")
    messages = received(socket.ended()[0])[:-1]
    assert [len(message["bytes"]) for message in messages] == [50_000] * -(-sent // len(wire))


def test_unreceived_tiny_messages_use_bounded_memory_too(usual):
    worker = usual.worker()
    socket = Scripted(usual, ("accept",), ("wait", "tiny")).open()
    socket.wait_for(lambda events: ("waits", "tiny") in events, "it waits")
    before = resident_bytes(worker)
    sent = blocked_after(socket, frame(BINARY) * 10_000)
    assert sent < KERNEL_BYTES
    assert resident_bytes(worker) - before < 2 * MEGABYTE
    socket.client.reset()
    socket.go("tiny")
    assert socket.ended()[1] is None


def test_pings_of_a_client_that_does_not_read_pile_up_nowhere(usual):
    worker = usual.worker()
    socket = Scripted(usual, ("accept",), ("wait", "pings"), client=usual.connect(receive_bytes=4096)).open()
    before = resident_bytes(worker)
    wire = frame(PING, bytes(125)) * 1000
    # RFC 6455 section 5.5.3: not each ping requires a separate pong.
    for _ in range(200):
        socket.client.send(wire)
    assert resident_bytes(worker) - before < MEGABYTE
    socket.go("pings")
    socket.ended()


def settled(measure):
    """Returns a value once it has stopped growing."""
    last = [None, 0]

    def stands():
        value = measure()
        last[:] = [value, last[1] + 1 if value == last[0] else 0]
        return last[1] >= 20

    wait_until(stands, lambda: f"it stands still: {last}")
    return last[0]


def blocked_after(socket, wire):
    """Sends until nothing more is accepted for a second; returns the number of bytes."""
    connection = socket.client.socket
    connection.settimeout(1)
    sent = 0
    try:
        while sent < 4 * KERNEL_BYTES:
            sent += connection.send(wire[sent % len(wire) :])
    except TIMEOUTS:
        pass
    return sent


# Clients that are slow or have disappeared.


@pytest.fixture(scope="module")
def impatient(serve_module):
    return serve_module("asgi = {apps}/asgi_socket.py\nlifespan = off\nsocket-timeout = 1\nwebsocket-ping-interval = 0")


def test_a_client_that_takes_nothing_is_given_up_after_the_sockets_timeout(impatient):
    socket = Scripted(impatient, ("accept",), ("say_zeros", 100_000, 10_000), client=impatient.connect(receive_bytes=4096)).open()
    events, error = socket.ended()
    assert error is None
    assert failures(events)[-1][0] == ["ClientDisconnected"]


def test_a_client_that_takes_nothing_is_given_up_although_it_talks(impatient):
    steps = [("accept",), ("say_for_ever", 100_000), ("receive_all",), ("end_saying",)]
    socket = Scripted(impatient, *steps, client=impatient.connect(receive_bytes=4096)).open()

    def has_ended():
        socket.send_text("hello")
        return socket.seen()[-1][0] == "ended"

    wait_until(has_ended, "it was given up")
    goodbye = {"type": "websocket.disconnect", "code": 1006, "reason": "the client did not read"}
    assert received(socket.seen())[-1] == goodbye


#: More than the kernel buffers for a connection, so that a client that does not read is behind.
FLOOD_BYTES = KERNEL_BYTES + 4 * MEGABYTE


def pong_behind(socket, payload):
    """Reads frames up to the pong with this payload. Returns the payloads of all pongs, and the bytes of other frames."""
    pongs, size = [], 0
    while payload not in pongs:
        found = socket.read()
        if found.opcode == PONG:
            pongs.append(found.payload)
        else:
            size += len(found.payload)
    return pongs, size


def test_a_ping_that_arrives_while_output_waits_is_answered_when_the_client_reads(usual):
    # RFC 6455 section 5.5.2: a ping must be answered; section 5.5.3: the latest one suffices.
    steps = [("accept",), ("say_zeros", FLOOD_BYTES), ("echo", 1)]
    client = usual.connect(receive_bytes=65536)
    socket = Scripted(usual, *steps, client=client).open()
    client.receive()
    client.send(b"".join(frame(PING, b"%d" % number) for number in range(1000)))
    pongs, size = pong_behind(socket, b"999")
    assert pongs == sorted(pongs, key=int)
    assert size == FLOOD_BYTES
    socket.send_text("still there")
    assert socket.read_message() == "still there"


def test_a_client_that_reads_slowly_gets_the_pong_of_each_of_its_pings(usual):
    client = usual.connect(receive_bytes=65536)
    socket = Scripted(usual, ("accept",), ("say_zeros", 3 * MEGABYTE, 8), client=client).open()
    for number in range(8):
        client.send(frame(PING, b"%d" % number))
        pong_behind(socket, b"%d" % number)


def test_a_client_that_is_silent_after_the_close_frame_is_cut_off(usual):
    socket = Scripted(usual, ("accept",), ("send", {"type": "websocket.close", "code": 4000}), ("receive",)).open()
    assert socket.read_close() == (4000, "")
    # RFC 6455 section 7.1.1: after a reasonable time the server closes the connection in any case.
    assert socket.client.is_closed()


def test_a_frozen_worker_loses_no_message_of_clients_that_wait(usual):
    worker = usual.worker()
    sockets = [Scripted(usual, ("accept",), ("echo", 3)).open() for _ in range(20)]
    os.kill(worker, signal.SIGSTOP)
    try:
        for number, socket in enumerate(sockets):
            socket.client.send(b"".join(frame(TEXT, f"{number} {place}") for place in range(3)))
    finally:
        os.kill(worker, signal.SIGCONT)
    for number, socket in enumerate(sockets):
        assert [socket.read_message() for _ in range(3)] == [f"{number} {place}" for place in range(3)]


# Many at the same time.

IDLE_SOCKETS = 2000
IDLE_BYTES = 8 * 1024


@pytest.fixture
def many_descriptors():
    """Raises the limit of descriptors to the number that the test needs, for it and the server that it starts."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE_SOCKETS + 500
    if most != resource.RLIM_INFINITY and most < needed:
        raise AssertionError(f"the hard limit of descriptors is {most}: raise it to {needed} for this test (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, needed), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def test_an_idle_socket_costs_a_few_kilobytes(serve, many_descriptors):
    # Without pings: opening the sockets may take longer than their interval.
    quiet = "disable-logging = true\nwebsocket-ping-interval = 0"
    server = serve(f"asgi = {{apps}}/asgi_socket_echo.py\nlifespan = off\nlisten = 100\n{quiet}")
    worker = server.worker()

    def opened(count):
        sockets = [WebSocket(server.connect(), compression=True).open() for _ in range(count)]
        for number, socket in enumerate(sockets):
            socket.send_text(f"{number} " * 20)
        for number, socket in enumerate(sockets):
            assert socket.read_message() == f"{number} " * 20
        return sockets

    # The memory of the first ones is fixed cost of the worker.
    opened(100)
    before = resident_bytes(worker)
    sockets = opened(IDLE_SOCKETS)
    assert (resident_bytes(worker) - before) / IDLE_SOCKETS < IDLE_BYTES
    for socket in sockets:
        socket.send(CLOSE, close_payload(1000))
    assert all(socket.read_close() == (1000, "") for socket in sockets)
    descriptors = f"/proc/{worker}/fd"
    wait_until(lambda: len(os.listdir(descriptors)) < 150, lambda: f"all are closed: {len(os.listdir(descriptors))}")
