"""Connections at a reload whose clients send at an arbitrary moment: another request, or a slow one."""

import hashlib
import signal
import time

import pytest
from support.server import APPS
from support.waiting import wait_until

#: A worker that exits waits this long for a slow body, in seconds: the engine's constant.
ARRIVAL_SECONDS = 5
#: Size of one part of a slow upload, and the pause after it, in seconds: far above `body-min-rate`.
PIECE = b"x" * 1000
PIECE_PAUSE_SECONDS = 0.1

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def reload(instance, generation=2):
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log(rf"^bolide: ready: .* of generation {generation} in")


def test_a_client_that_asked_once_more_meanwhile_reads_the_announced_end_and_no_reset(start, tmp_path):
    # RFC 9112 section 9.6: closing a socket with unread bytes resets it, which may destroy the answer on its way.
    instance = start("--threads", "2")
    gate = tmp_path / "gate"
    client, idle = instance.connect(), instance.connect()
    client.send(f"POST /wait?{gate} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n".encode())
    idle.request()
    # At a reload the connection would stay open.
    instance.send_signal(signal.SIGTERM)
    assert idle.is_closed()
    # From here on the application has the request, and the worker drains: its response will announce the end.
    client.send(b"x")
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    client.send(GET)
    gate.touch()
    answer = client.read_response()
    assert (answer.text, answer.says_close) == ("waited", True)
    assert client.is_closed()
    assert not client.was_reset


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upload_that_keeps_coming_is_taken_however_long_it_takes(start, framing):
    instance = start("--pythonpath", APPS, module="traffic")
    client = instance.connect()
    body = PIECE * round((ARRIVAL_SECONDS + 2) / PIECE_PAUSE_SECONDS)
    coding = f"Content-Length: {len(body)}" if framing == "length" else "Transfer-Encoding: chunked"
    client.send(f"POST /digest HTTP/1.1\r\nHost: localhost\r\n{coding}\r\n\r\n".encode())
    pieces = [body[place : place + len(PIECE)] for place in range(0, len(body), len(PIECE))]
    for number, piece in enumerate(pieces):
        client.send(piece if framing == "length" else b"%x\r\n%s\r\n" % (len(piece), piece))
        if number == 0:
            reload(instance)
        time.sleep(PIECE_PAUSE_SECONDS)
    if framing == "chunked":
        client.send(b"0\r\n\r\n")
    answer = client.read_response()
    assert (answer.status, answer.text, answer.says_close) == (200, hashlib.sha1(body).hexdigest(), False)
    instance.wait_for_generation(2)
    # With its response the connection has moved to the new generation.
    client.send(GET)
    assert client.read_response().status == 200


def test_an_upload_that_drips_does_not_hold_an_old_generation_for_long(start):
    instance = start("--pythonpath", APPS, module="traffic")
    client = instance.connect()
    client.send(b"POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx")
    instance.get("/")
    reload(instance)

    def is_given_up():
        client.send(b"x")
        return len(instance.prototypes()) == 1

    wait_until(is_given_up, "the end of the old generation", look_seconds=PIECE_PAUSE_SECONDS)
    assert client.read_response().status == 408
