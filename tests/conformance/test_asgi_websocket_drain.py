"""WebSockets when their worker exits: at a reload, at shutdown, and by itself. Each is closed with the right code, within its
time limit.
"""

import ast
import itertools
import select
import signal
import time

import pytest
from support.waiting import TIMEOUT_SECONDS, assert_once_below, wait_until
from support.websocket import CLOSE, TEXT, Scripted, close_payload, received

#: RFC 6455 section 7.4.1 and the IANA registry: "going away", "service restart".
GOING_AWAY, SERVICE_RESTART = 1001, 1012

#: Interval over which the closes of many connections are spread at a reload, in seconds: the engine's constants.
EACH_SECONDS = 0.01

CONFIGURATION = "asgi = {apps}/asgi_socket.py\nlifespan = off\nloop = %s"


@pytest.fixture(params=["asyncio", "uvloop"])
def server(serve, request):
    return serve(CONFIGURATION % request.param)


@pytest.fixture
def usual(serve):
    return serve(CONFIGURATION % "auto")


def reload(server, generation=2):
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(rf"^bolide: ready: .* of generation {generation} in")


def test_a_reload_closes_with_1012_and_the_client_is_welcome_again(server, tmp_path):
    notes = tmp_path / "notes"
    socket = Scripted(server, ("accept",), ("echo", 1), ("receive_all",), ("keep_notes", str(notes))).open()
    socket.send_text("before")
    assert socket.read_message() == "before"
    reload(server)
    code, reason = socket.answer_close()
    assert (code, reason) == (SERVICE_RESTART, "the server is restarting")
    wait_until(notes.exists, "the application has ended")
    assert received(ast.literal_eval(notes.read_text()))[-1] == {
        "type": "websocket.disconnect",
        "code": SERVICE_RESTART,
        "reason": "the server is restarting",
    }
    again = Scripted(server, ("accept",), ("echo", 1)).open()
    again.send_text("after")
    assert again.read_message() == "after"


def test_a_stop_closes_with_1001_at_once_and_ends_with_status_0(server, tmp_path):
    notes = tmp_path / "notes"
    sockets = [Scripted(server, ("accept",), ("receive_all",)).open() for _ in range(50)]
    sockets.append(Scripted(server, ("accept",), ("receive_all",), ("keep_notes", str(notes))).open())
    server.send_signal(signal.SIGTERM)
    for socket in sockets:
        assert socket.answer_close() == (GOING_AWAY, "the server is stopping")
    assert server.wait_for_exit() == 0
    assert received(ast.literal_eval(notes.read_text()))[-1]["code"] == GOING_AWAY


def test_a_stop_has_a_timeout_for_clients_that_do_not_answer_the_close_frame(usual):
    deaf = Scripted(usual, ("accept",), ("receive_all",)).open()
    assert usual.stop() == 0
    assert deaf.read_close()[0] == GOING_AWAY
    assert deaf.client.is_closed()


def test_a_stop_has_a_timeout_for_clients_that_read_nothing(usual):
    slow = Scripted(usual, ("accept",), ("say_for_ever", 100_000), ("receive_all",), client=usual.connect(receive_bytes=4096))
    slow.open()
    slow.wait_for(lambda events: len(events) == 2, "it says")
    assert usual.stop() == 0


def test_at_a_reload_many_are_closed_one_after_the_other_and_serve_meanwhile(usual):
    count = 300
    generations = itertools.count(2)
    # Data that a delayed client reads late has still left in time: only a client that reads in time can see that.
    assert_once_below(lambda: -seconds_of_closing(usual, count, next(generations)), -count * EACH_SECONDS / 2, tries=5)


def seconds_of_closing(usual, count, generation):
    """Returns the time between the first and the last close frame at a reload."""
    sockets = [Scripted(usual, ("accept",), ("echo", 1_000_000_000)).open() for _ in range(count)]
    usual.send_signal(signal.SIGHUP)
    # Each one sends all the time, until it is closed.
    by_number = {socket.client.socket.fileno(): socket for socket in sockets}
    poll = select.poll()
    for number, socket in by_number.items():
        socket.send_text("x")
        poll.register(number, select.POLLIN)
    closed, echoed_after_the_first = [], 0
    while by_number:
        for number, _ in poll.poll(TIMEOUT_SECONDS * 1000):
            answer = by_number[number].read()
            if answer.opcode == TEXT:
                echoed_after_the_first += bool(closed)
                by_number[number].send_text("x")
                continue
            assert (answer.opcode, answer.payload[:2]) == (CLOSE, close_payload(SERVICE_RESTART))
            closed.append(time.monotonic())
            by_number[number].send(CLOSE, answer.payload[:2])
            poll.unregister(number)
            del by_number[number]
    assert len(closed) == count
    usual.wait_for_log(rf"^bolide: ready: .* of generation {generation} in")
    # Longer on a slow machine. Closes that are due at the same check of the clock leave together. A client that begins to read
    # when all are closed does not see another message: that attempt does not count.
    return closed[-1] - closed[0] if echoed_after_the_first else 0


def test_a_handshake_that_is_accepted_while_the_worker_drains_is_a_socket_that_closes(usual):
    gate = "wait-for-the-drain"
    socket = Scripted(usual, ("receive",), ("receive_with_timeout", 2), ("send", {"type": "websocket.accept"}), ("receive_all",))
    socket.wait_for(lambda events: ("received", {"type": "websocket.connect"}) in events, gate)
    reload(usual)
    assert socket.open().answer_close()[0] == SERVICE_RESTART


def test_messages_that_were_said_before_the_drain_are_delivered_before_the_close(usual):
    socket = Scripted(usual, ("accept",), ("say_zeros", 100_000, 20), ("receive_all",), client=usual.connect(receive_bytes=4096))
    socket.open()
    socket.wait_for(lambda events: len([event for event in events if event[0] == "sent"]) == 21, "all is said")
    reload(usual)
    for _ in range(20):
        assert len(socket.read_message()) == 100_000
    assert socket.answer_close()[0] == SERVICE_RESTART


def test_a_worker_that_has_served_its_requests_closes_its_sockets_with_1012(serve):
    server = serve("asgi = {apps}/asgi_socket.py\nlifespan = off\nmax-requests = 5")
    socket = Scripted(server, ("accept",), ("receive_all",)).open()
    for _ in range(5):
        server.get("/seen/nobody")
    assert socket.answer_close()[0] == SERVICE_RESTART
    assert server.get("/seen/nobody").status == 200
