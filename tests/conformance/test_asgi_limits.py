"""Protection of ASGI applications: too many requests, slow or flooding clients, incomplete bodies."""

import contextlib
import json
import os
import signal
import socket
import threading

import pytest
from support import processes
from support.client import Client
from support.waiting import TIMEOUT_SECONDS, wait_until

#: Maximum memory of a worker with many slow or flooding clients, in bytes.
HELD_BYTES = 32 << 20

FLOODS = 50


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request, serve_module):
    return serve_module(f"asgi = {{apps}}/asgi_http.py\nloop = {request.param}")


def request(target, method="GET", headers=""):
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def hold(server, name, path="slow", said="slow {} has begun"):
    """A request that stays in the application until a request for ``/open?name``."""
    client = server.connect()
    client.send(request(f"/{path}?{name}"))
    server.wait_for_log(f"^{said.format(name)}$")
    return client


def hold_until_it_leaves(server, name):
    return hold(server, name, "wait_for_end", "waits {}")


# limit-concurrency.


def test_beyond_limit_concurrency_the_answer_is_503_with_retry_after_and_later_ones_are_served(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlimit-concurrency = 2")
    clients = [hold_until_it_leaves(server, name) for name in ("one", "two")]
    with server.connect() as beyond:
        for method, body in [("GET", None), ("POST", b"x" * 100_000), ("GET", None)]:
            response = beyond.request(method, "/digest", body=body)
            assert response.status == 503
            assert response.get("retry-after").isdigit()
            assert not response.says_close
        for client in clients:
            client.reset()
        server.wait_for_log("^ended one$")
        server.wait_for_log("^ended two$")
        # They have logged it; then their tasks end.
        wait_until(lambda: beyond.request(target="/fine").status == 200, "a free place")
    # Only these two have reached the application in the meantime.
    server.wait_for_log(r"POST /digest => generated \d+ bytes in \d+ msecs \(HTTP/1\.1 503\)")


def test_requests_within_limit_concurrency_are_all_served(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlimit-concurrency = 3")
    held = [hold(server, name) for name in ("one", "two")]
    with server.connect() as client:
        assert all(client.request(target="/fine").status == 200 for _ in range(20))
    for name, client in zip(("one", "two"), held):
        assert server.get(f"/open?{name}").status == 200
        assert client.read_response().status == 200


def test_work_after_a_response_counts_until_it_ends(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlimit-concurrency = 2")
    assert server.get("/background?work").body == b"answered"
    leaving = hold_until_it_leaves(server, "leaving")
    assert server.get("/fine").status == 503
    leaving.reset()
    server.wait_for_log("^ended leaving$")
    wait_until(lambda: server.get("/open?work").status == 200, "a free place")
    server.wait_for_log("^worked work$")


# Incomplete bodies and heads.


#: Option -> socket: the option that limits a client's silence there.
TIMEOUTS = [("http", "http-timeout"), ("http-socket", "socket-timeout")]


@pytest.mark.parametrize(("kind", "option"), TIMEOUTS)
def test_a_body_that_does_not_come_is_408_and_a_disconnect_for_the_application(serve, kind, option):
    server = serve(f"asgi = {{apps}}/asgi_http.py\n{option} = 1", listen=(f"{kind} = 127.0.0.1:0",))
    with server.connect() as client:
        client.send(request("/digest", "POST", "Content-Length: 100\r\n") + b"part")
        assert client.read_response().status == 408
        assert client.is_closed()
    server.wait_for_log("^disconnected while it read$")


@pytest.mark.parametrize(("kind", "option"), TIMEOUTS)
def test_a_head_that_does_not_come_is_408(serve, kind, option):
    server = serve(f"asgi = {{apps}}/asgi_http.py\n{option} = 1", listen=(f"{kind} = 127.0.0.1:0",))
    with server.connect() as client:
        client.send(b"GET /fine HTTP/1.1\r\nHos")
        assert client.read_response().status == 408
        assert client.is_closed()


def test_an_application_that_takes_its_time_is_not_the_clients_fault(serve):
    server = serve("asgi = {apps}/asgi_http.py\nsocket-timeout = 1")
    client = hold(server, "patient")
    with server.connect() as other:
        # Longer than the limit, which is about the client's silence in the middle of something.
        assert other.request(target="/sleep?1.5").status == 200
    server.get("/open?patient")
    assert client.read_response().body == b"slow patient"


def test_a_body_that_the_application_does_not_ask_for_has_no_limit_of_time(serve):
    server = serve("asgi = {apps}/asgi_http.py\nsocket-timeout = 1")
    client = server.connect()
    client.send(request("/slow_reader?unasked", "POST", "Content-Length: 4\r\n") + b"bo")
    assert server.get("/sleep?1.5").status == 200
    server.get("/open?unasked")
    client.send(b"dy")
    assert json.loads(client.read_response().body)["bytes"] == 4


# Slow clients and floods.


def test_many_clients_that_trickle_heads_and_bodies_cost_bounded_memory_and_others_are_served(server):
    worker = int(server.get("/pid").body)
    before = processes.resident_bytes(worker)
    with contextlib.ExitStack() as stack:
        heads = [stack.enter_context(Client(server.address())) for _ in range(FLOODS)]
        bodies = [stack.enter_context(Client(server.address())) for _ in range(FLOODS)]
        chunked = [stack.enter_context(Client(server.address())) for _ in range(FLOODS)]
        for client in heads:
            client.send(b"GET /fine HTTP/1.1\r\nHost: a\r\nX-Filler: " + b"x" * 1000)
        for client in bodies:
            client.send(request("/digest", "POST", "Content-Length: 100\r\n"))
        for client in chunked:
            client.send(request("/digest", "POST", "Transfer-Encoding: chunked\r\n"))
        for number in range(20):
            for client in heads:
                client.send(b"y")
            for client in bodies:
                client.send(b"z")
            for client in chunked:
                client.send(b"1\r\nz\r\n")
            assert server.get("/fine").status == 200, number
        assert processes.resident_bytes(worker) - before < HELD_BYTES
        for client in heads:
            client.send(b"\r\n\r\n")
            assert client.read_response().body == b"fine"
        for client in bodies:
            client.send(b"z" * 80)
            assert json.loads(client.read_response().body)["bytes"] == 100
        for client in chunked:
            client.send(b"0\r\n\r\n")
            assert json.loads(client.read_response().body)["bytes"] == 20


def test_a_body_that_the_application_does_not_read_stays_with_its_client(server):
    worker = int(server.get("/pid").body)
    before = processes.resident_bytes(worker)
    clients = [server.connect(patience=0.2) for _ in range(4)]
    for number, client in enumerate(clients):
        client.send(request(f"/slow_reader?flood-{number}", "POST", f"Content-Length: {1 << 30}\r\n"))
        sent = fill(client, b"x" * (1 << 20), 256 << 20)
        assert sent < 256 << 20, "TCP has not stopped the client"
    assert processes.resident_bytes(worker) - before < HELD_BYTES
    for client in clients:
        client.reset()
    assert server.get("/fine").body == b"fine"


def test_many_clients_that_pipeline_without_reading_cost_bounded_memory(server):
    worker = int(server.get("/pid").body)
    before = processes.resident_bytes(worker)
    clients = [server.connect(patience=0.2, receive_bytes=65536) for _ in range(4)]
    for client in clients:
        sent = fill(client, request("/fine") * 1000, 256 << 20)
        assert sent < 256 << 20, "TCP has not stopped the client"
    assert processes.resident_bytes(worker) - before < HELD_BYTES
    assert server.get("/fine").body == b"fine"
    for client in clients:
        client.reset()


def test_a_client_that_pipelines_without_end_does_not_keep_others_waiting(server):
    with flooding(server), server.connect() as other:
        for _ in range(20):
            assert other.request(target="/fine").body == b"fine"


@contextlib.contextmanager
def flooding(server):
    """A client that sends requests and reads responses until the block ends; its first response comes before the block begins."""
    data = request("/fine") * 2000
    over = threading.Event()
    answers = threading.Semaphore(0)
    client = server.connect()

    def send():
        while not over.is_set() and client.send(data):
            pass

    def receive():
        while not over.is_set() and client.receive():
            client.buffer = b""
            answers.release()

    threads = [threading.Thread(target=act) for act in (send, receive)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert answers.acquire(timeout=TIMEOUT_SECONDS)
    try:
        yield
        assert all(thread.is_alive() for thread in threads), "the flood has ended early"
    finally:
        over.set()
        client.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def fill(client, data, most):
    """Sends the same data repeatedly until TCP does not accept more; returns the number of bytes."""
    sent = 0
    while sent < most:
        try:
            sent += client.socket.send(data)
        except OSError:
            break
    return sent


def test_a_head_that_is_too_large_is_431_and_reaches_no_application(server):
    with server.connect() as client:
        client.send(b"GET /fine HTTP/1.1\r\nHost: a\r\n" + b"X-Filler: " + b"x" * (1 << 20))
        assert client.read_response().status == 431


def test_limit_post_is_413_however_the_body_is_framed(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlimit-post = 1000")
    with server.connect() as client:
        assert client.request("POST", "/digest", body=b"x" * 1000).status == 200
        client.send(request("/digest", "POST", "Content-Length: 1001\r\n"))
        assert client.read_response().status == 413
    with server.connect() as client:
        client.send(request("/digest", "POST", "Transfer-Encoding: chunked\r\n") + b"3e9\r\n" + b"x" * 500)
        # The application has begun to read once the worker answers another connection which came later.
        server.get("/fine")
        client.send(b"x" * 501)
        assert client.read_response().status == 413
    server.wait_for_log("^disconnected while it read$")


# backlog.


def test_listen_is_the_number_of_connections_that_wait_while_the_loop_is_busy(serve):
    server = serve("asgi = {apps}/asgi_http.py\nlisten = 7")
    worker = int(server.get("/pid").body)
    os.kill(worker, signal.SIGSTOP)
    try:
        waiting = [server.connect() for _ in range(8)]
        with pytest.raises(OSError, match="timed out"):
            server.connect(patience=0.5)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert [client.request(target="/fine").status for client in waiting] == [200] * 8


REFUSING = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/read":
        while (await receive())["more_body"]:
            pass
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})
"""


def test_a_413_of_the_application_closes_the_connection_if_the_body_was_not_read(serve):
    server = serve.prepare("asgi = app:app")
    (server.directory / "app.py").write_text(REFUSING)
    server.start()
    for body, target, closes in [(b"", "/", True), (b"x" * 50, "/", True), (b"x" * 100, "/read", False)]:
        with server.connect() as client:
            client.send(f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n".encode() + body)
            response = client.read_response()
            assert (response.status, response.body, response.says_close) == (413, b"no", closes)
            assert not closes or client.is_closed()
