"""Size and time limits of a request: each limit with its status."""

import contextlib
import json
import os
import socket

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until

HOST = b"Host: localhost\r\n"


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/echo.py\nbuffer-size = 20000\nlimit-post = 1000")


@pytest.fixture(scope="module")
def hasty(serve_module):
    """A server with a short timeout for data, and for a next request: longer than a busy machine delays what a test sends."""
    return serve_module(
        "wsgi-file = {apps}/echo.py\nsocket-timeout = 4\nhttp-timeout = 4\nhttp-keepalive = 5",
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"),
    )


def line(length):
    """Returns a request line of ``length`` bytes."""
    return b"GET /" + b"a" * (length - len(b"GET / HTTP/1.1\r\n")) + b" HTTP/1.1\r\n"


def head(length):
    """Returns a head of ``length`` bytes, including the request line."""
    start = b"GET / HTTP/1.1\r\n" + HOST + b"X: "
    return start + b"a" * (length - len(start) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (line(20_000 - len(HOST) - 2) + HOST + b"\r\n", 200),
        (line(20_001) + HOST + b"\r\n", 414),
        (b"GET /" + b"a" * 100_000, 414),
        (head(20_000), 200),
        (head(20_001), 431),
        (line(16384) + head(5000).partition(b"\r\n")[2], 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 100_000, 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 127 + b"\r\n", 200),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 128 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X_Y: z\r\n" * 128 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n" + b"a" * 1000, 200),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\n\r\n" + b"a" * 1001, 413),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 18446744073709551615\r\n\r\n", 413),
        (
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1000 + b"0\r\n\r\n",
            200,
        ),
        (
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 1001 + b"0\r\n\r\n",
            413,
        ),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n" + b"a" * 1001, 413),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: x\r\n" * 100 + b"\r\n", 431),
    ],
)
@pytest.mark.parametrize("cut", [7, 1 << 20])
def test_a_request_beyond_a_limit_is_refused_with_its_status_and_closes(server, data, status, cut):
    if len(data) > 10_000:
        cut = max(cut, 1000)
    client = server.connect()
    for start in range(0, len(data), cut):
        if not client.send(data[start : start + cut]):
            break
    response = client.read_response()
    assert response.status == status
    if status == 200:
        # The same once more on the same connection, whose header block is cached.
        client.send(data)
        assert client.read_response().status == 200
    else:
        assert response.says_close
        assert client.is_closed()


def test_a_refused_upload_that_goes_on_still_gets_its_answer(server):
    # Without lingering, the reset would destroy the 413 before the client reads it (RFC 9112 section 9.6).
    client = server.connect()
    client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 500000\r\n\r\n")
    for _ in range(5):
        client.send(b"a" * 100_000)
    assert client.read_response().status == 413


def test_a_refused_upload_is_not_discarded_without_end(server):
    client = server.connect()
    client.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 50000000000\r\n\r\n")
    # 64 MB is far more than the server discards, and far more than sockets buffer.
    assert not all(client.send(b"a" * 1_000_000) for _ in range(64))


#: Data that a client has sent before it stops.
BEGINNINGS = [
    b"GET",
    b"GET / HTTP/1.1\r\nHost: local",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT",
]


def test_a_request_that_does_not_come_to_its_end_is_answered_408(hasty):
    clients = [hasty.connect() for _ in BEGINNINGS]
    for client, beginning in zip(clients, BEGINNINGS):
        client.send(beginning)
    for client, beginning in zip(clients, BEGINNINGS):
        if beginning.count(b"HT") > 1:
            assert client.read_response().status == 200
        response = client.read_response()
        assert response.status == 408, beginning
        assert response.says_close
        assert client.is_closed()
    hasty.wait_for_log("refused a request from 127.0.0.1 with 408: ", count=len(BEGINNINGS))


def test_a_head_has_its_time_as_a_whole_however_it_trickles(hasty):
    # A steady trickle of bytes must not keep a connection open: the sending below would take minutes.
    client = hasty.connect(patience=0.05)
    data = b"GET / HTTP/1.1\r\nX: " + b"a" * 4000
    for place in range(len(data)):
        if not client.send(data[place : place + 1]):
            break
        try:
            if not client.receive():
                break
        except OSError:
            continue
        break
    assert client.buffer.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_closed_in_silence(hasty):
    client = hasty.connect()
    assert client.is_closed()


def test_an_idle_kept_alive_connection_is_closed_in_silence(hasty):
    client = hasty.connect()
    assert client.request().status == 200
    assert client.is_closed()


def test_a_uwsgi_packet_that_does_not_come_to_its_end_is_closed_in_silence(hasty):
    beginnings = (b"\0", b"\0\x10\0\0", b"\0\x10\0\0\x05\0ab")
    clients = [hasty.connect(hasty.address("uwsgi")) for _ in beginnings]
    for client, beginning in zip(clients, beginnings):
        client.send(beginning)
    assert all(client.is_closed() for client in clients)


def test_a_body_may_take_longer_than_the_limit_as_long_as_it_keeps_coming(serve):
    server = serve("wsgi-file = {apps}/echo.py\nsocket-timeout = 3\nhttp-timeout = 3\nbody-min-rate = 1")
    client = server.connect(patience=0.5)
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n")
    # Eight bytes with a pause of half a second before each: longer than the limit in total.
    for byte in b"12345678":
        with pytest.raises(socket.timeout):
            client.receive()
        client.send(bytes([byte]))
    client.socket.settimeout(TIMEOUT_SECONDS)
    assert json.loads(client.read_response().body)["body"] == "12345678"


def drip(client, most=200):
    """Sends a byte after each pause until there is a response; returns the number of bytes and the response."""
    sent = 0
    while sent < most and b"\r\n\r\n" not in client.buffer:
        try:
            if not client.receive():
                break
        except socket.timeout:
            if not client.send(b"x"):
                break
            sent += 1
    client.socket.settimeout(TIMEOUT_SECONDS)
    return sent, client.read_response()


@pytest.mark.parametrize("target", ["wsgi-file = {apps}/echo.py", "asgi = {apps}/asgi_http.py"], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_is_ended_with_408(serve, target, framing):
    server = serve(f"{target}\nsocket-timeout = 4")
    client = server.connect(patience=0.25)
    client.send(f"POST /digest HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode())
    if "chunked" in framing:
        client.send(b"fff\r\n")
    sent, response = drip(client)
    assert (response.status, response.says_close) == (408, True)
    assert sent < 100


def test_with_a_rate_of_nothing_a_drip_goes_on(serve):
    server = serve("wsgi-file = {apps}/echo.py\nsocket-timeout = 3\nbody-min-rate = 0")
    client = server.connect(patience=0.5)
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n")
    _, response = drip(client)
    assert (response.status, json.loads(response.body)["body"]) == (200, 12 * "x")


def test_the_time_that_an_asgi_application_takes_is_not_the_client_s(serve):
    server = serve("asgi = {apps}/asgi_http.py\nsocket-timeout = 5")
    client = server.connect()
    client.send(b"POST /slow_reader?later HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
    # Longer than the timeout of a client: a request of another client measures the time.
    other = server.connect()
    other.send(b"POST /digest HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n")
    assert other.read_response().status == 408
    server.get("/open?later")
    client.send(b"half")
    assert json.loads(client.read_response().body)["bytes"] == 8


def test_what_came_while_the_worker_was_busy_came_in_time(serve):
    server = serve("wsgi-file = {apps}/streams.py\nsocket-timeout = 5")
    client = server.connect()
    client.send(b"POST /fine HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf")
    server.get("/fine")
    busy = server.connect()
    busy.send(b"GET /sleep_seconds?8 HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for_log("^sleeps 8$")
    client.send(b"half")
    assert client.read_response().body == b"fine"
    assert busy.read_response().body == b"slept"


# Disk usage of bodies.


@pytest.fixture(scope="module")
def small_disk(serve_module):
    return serve_module("wsgi-file = {apps}/streams.py\npost-buffering = 10000\nlimit-post-disk = 200000")


def upload(size, path="fine"):
    return f"POST /{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()


def bytes_in_unlinked_files(server):
    """Returns the size of the temporary files that the worker has open."""
    directory = f"/proc/{server.worker()}/fd"
    total = 0
    for name in os.listdir(directory):
        # A file may be closed between listing and stat.
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"{directory}/{name}")
            if target.endswith(" (deleted)") and not target.startswith("/memfd:"):
                total += os.stat(f"{directory}/{name}").st_size
    return total


def test_a_body_that_could_never_fit_is_413_before_it_comes(small_disk):
    client = small_disk.connect()
    client.send(upload(200_001))
    assert client.read_response().status == 413
    assert small_disk.get("/fine", method="POST", body=b"x" * 200_000).status == 200


def test_bodies_beyond_what_a_worker_may_keep_are_507_and_served_again_later(small_disk):
    holders = [small_disk.connect() for _ in range(2)]
    for holder in holders:
        holder.send(upload(90_000) + b"x" * 89_999)
    # A connection is read in bounded turns: the next client's body could be complete before these bytes were read.
    wait_until(lambda: bytes_in_unlinked_files(small_disk) == 2 * 89_999, "the worker to have both bodies")
    for _ in range(3):
        response = small_disk.get("/fine", method="POST", body=b"x" * 80_000)
        assert (response.status, response.says_close) == (507, True)
        chunked = small_disk.connect()
        chunked.send(b"POST /fine HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n13880\r\n" + b"x" * 80_000)
        assert chunked.read_response().status == 507
        # Bodies that fit into memory need no disk.
        assert small_disk.get("/fine", method="POST", body=b"x" * 5_000).status == 200
    small_disk.wait_for_log("refused a request from 127.0.0.1 with 507: .*limit-post-disk")
    holders[0].send(b"x")
    assert holders[0].read_response().body == b"fine"
    assert small_disk.get("/fine", method="POST", body=b"x" * 80_000).status == 200
    holders[1].close()
    for _ in range(10):
        assert small_disk.get("/fine", method="POST", body=b"x" * 100_000).status == 200


def test_asgi_applications_are_not_bound_by_the_disk(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlimit-post-disk = 1000")
    assert server.get("/digest", method="POST", body=b"x" * 3_000_000).status == 200
