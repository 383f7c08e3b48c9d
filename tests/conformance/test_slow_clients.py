"""Slow clients use memory, never a thread: one worker with one thread keeps serving all other clients."""

import os
import signal
from pathlib import Path

import pytest
from support import processes
from support.waiting import assert_once_below, wait_until

MEGABYTE = bytes(range(256)) * 4096
#: Maximum that a worker may buffer of an unread response, including the kernel's buffers: far less than the response.
HELD_BYTES = 32 << 20
#: A long head, and its bytes that arrive one by one.
LONG_HEAD_BYTES = 60_000
DRIPPED_BYTES = 60


@pytest.fixture(scope="module")
def server(serve_module):
    # A client that stops reading on purpose must not time out in the meantime, however busy the machine is.
    return serve_module("wsgi-file = {apps}/streams.py\npost-buffering = 10000\nsocket-timeout = 600")


def assert_others_are_served(server, times=3):
    for _ in range(times):
        response = server.get("/fine")
        assert (response.status, response.body) == (200, b"fine")


def worker_of(server):
    return int(server.get("/pid").body)


def test_a_head_that_comes_byte_by_byte_blocks_no_other_client(server):
    client = server.connect()
    data = b"GET /fine HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for place in range(len(data) - 1):
        client.send(data[place : place + 1])
        assert_others_are_served(server, 1)
    client.send(data[-1:])
    assert client.read_response().body == b"fine"


def test_a_byte_more_of_a_long_head_costs_no_more_than_of_a_short_one(serve):
    # No head times out before all attempts have been made.
    server = serve(f"wsgi-file = {{apps}}/streams.py\nbuffer-size = {2 * LONG_HEAD_BYTES}\nsocket-timeout = 600")
    worker = worker_of(server)
    barrier = server.connect()

    def drip(clients):
        """Returns the worker's nanoseconds for single bytes of each head, each of which is a separate event."""
        began = cpu_ns(worker)
        for _ in range(DRIPPED_BYTES):
            for client in clients:
                client.send(b"x")
            assert barrier.request(target="/fine").status == 200
        return cpu_ns(worker) - began

    def begun(field_bytes):
        clients = [server.connect() for _ in range(50)]
        for client in clients:
            client.send(b"GET /fine HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * field_bytes)
        return clients

    short, long = begun(1), begun(LONG_HEAD_BYTES)
    assert_once_below(lambda: drip(long) / drip(short), 1.4)
    for client in (*short, *long):
        client.send(b"\r\n\r\n")
        assert client.read_response().body == b"fine"


def cpu_ns(pid):
    """Returns the CPU time of a process with one thread, in nanoseconds (the first number; see the kernel's sched-stats.rst)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.parametrize("size", [30, 20_000])
def test_a_body_that_trickles_blocks_no_other_client(server, size):
    client = server.connect()
    client.send(f"POST /fine HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
    for _ in range(30):
        client.send(b"x" * (size // 30))
        assert_others_are_served(server, 1)
    client.send(b"x" * (size - size // 30 * 30))
    assert client.read_response().body == b"fine"


@pytest.mark.parametrize(("kind", "megabytes"), [("large_parts", 200), ("small_parts", 50), ("one_part", 64), ("file", 64)])
def test_a_stopped_reader_blocks_no_other_client_and_memory_stays_bounded(server, kind, megabytes):
    worker = worker_of(server)
    before = int(server.get("/given").body)
    memory = processes.resident_bytes(worker)
    client = server.connect(receive_bytes=65536)
    client.send(f"GET /{kind}?{megabytes} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    response = client.read_head()
    assert response.status == 200
    assert_others_are_served(server, 50)
    if kind.endswith("parts"):
        # The generator was suspended where the client stopped, and resumes below.
        assert int(server.get("/given").body) - before < HELD_BYTES
        assert processes.resident_bytes(worker) - memory < HELD_BYTES
    if response.get("transfer-encoding"):
        total = sum(len(chunk) for chunk in client.read_chunks())
    else:
        total = int(response.get("content-length"))
        for place in range(0, total, len(MEGABYTE)):
            assert client.read_exactly(len(MEGABYTE)) == MEGABYTE, f"at {place}"
    assert total == megabytes * len(MEGABYTE)
    if kind.endswith("parts"):
        server.wait_for_log(f"^closed {megabytes}$")
    # The connection can be used for more requests.
    assert client.request(target="/fine").body == b"fine"


def test_many_stopped_readers_block_no_other_client(server):
    clients = [server.connect(receive_bytes=65536) for _ in range(40)]
    for client in clients:
        client.send(b"GET /large_parts?20 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.read_head().status == 200
    assert_others_are_served(server, 20)
    for client in clients:
        assert sum(len(chunk) for chunk in client.read_chunks()) == 20 * len(MEGABYTE)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_reader_that_never_goes_on_is_given_up_after_socket_timeout(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/streams.py\nsocket-timeout = 4\nthreads = {threads}")
    clients = {}
    for kind in ("large_parts", "small_parts", "file"):
        client = clients[kind] = server.connect(receive_bytes=65536)
        client.send(f"GET /{kind}?100&{kind} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.read_head().status == 200
    for kind in clients:
        server.wait_for_log(rf"GET /{kind}\?100&{kind} => generated \d+ bytes")
        if kind != "file":
            server.wait_for_log(f"^closed 100&{kind}$")
    assert_others_are_served(server)
    for client in clients.values():
        assert len(client.read_to_end()) < HELD_BYTES


#: The points in a request at which a client disappears.
STAGES = {
    "connected": b"",
    "one byte": b"G",
    "part of the head": b"GET /fine HTTP/1.1\r\nHost: local",
    "head without its end": b"GET /fine HTTP/1.1\r\nHost: localhost\r\n",
    "head before its body": b"POST /fine HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    "part of the body": b"POST /fine HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000,
    "part of a chunk": b"POST /fine HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nxx",
    "asked": b"GET /fine HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asked for much": b"GET /large_parts?50 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asked for many parts": b"GET /small_parts?50 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asked for a file": b"GET /file?5 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asked for a large list": b"GET /one_part?20 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asked a hundred times": b"GET /fine HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100,
}


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("stage", STAGES)
def test_clients_that_vanish_at_any_stage_leave_nothing_behind(server, stage, way):
    worker = worker_of(server)
    before = descriptors(worker)
    for reads in (0, 10, 100_000):
        for _ in range(5):
            client = server.connect()
            client.send(STAGES[stage])
            if reads and stage.startswith("asked for"):
                client.read_exactly(reads)
            getattr(client, way)()
    assert_others_are_served(server)
    wait_until(lambda: descriptors(worker) <= before, lambda: f"{descriptors(worker)} descriptors, {before} before")
    assert worker_of(server) == worker


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("way", ["close", "reset", "end_sending"])
@pytest.mark.parametrize("threads", [1, 4])
def test_the_end_of_a_client_is_seen_when_it_comes_together_with_its_last_bytes(serve, threads, way):
    server = serve(f"wsgi-file = {{apps}}/streams.py\nthreads = {threads}")
    worker = worker_of(server)
    before = descriptors(worker)
    clients = [server.connect() for _ in range(3)]
    for client in clients:
        client.send(b"GE")
    assert_others_are_served(server)
    # While the worker is stopped, bytes and end accumulate: a single event, reported once, for each connection.
    processes.kill(worker, signal.SIGSTOP)
    for client in clients:
        client.send(b"T /fine HTTP/1.1\r\nHost: local")
        getattr(client, way)()
    processes.kill(worker, signal.SIGCONT)
    assert_others_are_served(server)
    wait_until(lambda: descriptors(worker) <= before, lambda: f"{descriptors(worker)} descriptors, {before} before")


def test_a_client_that_vanishes_while_the_application_works_loses_only_its_answer(serve):
    server = serve("wsgi-file = {apps}/streams.py\nthreads = 4")
    gone = [server.connect() for _ in range(3)]
    for client in gone:
        client.send(b"GET /block HTTP/1.1\r\nHost: localhost\r\n\r\n")
    # These come after them: the requests have been read.
    assert_others_are_served(server)
    for client in gone:
        client.reset()
    assert_others_are_served(server)
    assert server.get("/unblock").body == b"fine"
    assert_others_are_served(server)
    server.wait_for_log(r"GET /block => ", count=3)


def test_an_endless_answer_to_head_ends_when_its_client_leaves(serve):
    # No write to it is attempted that would fail.
    server = serve("wsgi-file = {apps}/streams.py")
    client = server.connect()
    client.send(b"HEAD /counting?100000&head HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.read_head().status == 200
    client.close()
    wait_until(lambda: server.get("/counted?0&closed").body == b"1", "the answer has ended")


def begin_counting(server, name):
    """A client that reads nothing; returns the number of parts that its application had yielded when it was suspended."""
    client = server.connect(str(server.directory / "s.sock"))
    client.send(f"GET /counting?10&{name} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n".encode())
    # One thread requests parts until the client is slow: the thread that requests one of them requests all.
    given = wait_until(lambda: int(server.get(f"/counted?0&{name}").body), f"client {name} is served")
    return client, given


COMPRESSED = "\ncompress = gzip\ncompress-types = application/octet-stream"


@pytest.mark.parametrize("more", ["", COMPRESSED], ids=["plain", "compressed"])
def test_what_waits_for_slow_readers_has_a_bound_together(serve, more):
    """With many of them each gets a smaller buffer, and its application is suspended earlier."""
    # A UNIX socket has a buffer of a fixed size: the application's progress depends on our own buffer only.
    listen = ("http-socket = 127.0.0.1:0", "http-socket = {directory}/s.sock")
    # None times out for its slowness before all are connected.
    server = serve("wsgi-file = {apps}/streams.py\nsocket-timeout = 600" + more, listen=listen)
    readers = [begin_counting(server, number) for number in range(400)]
    first, last = readers[0][1], readers[-1][1]
    # Parts have a kilobyte.
    assert first - last > 32
    assert_others_are_served(server)
    for reader, _ in readers[1:]:
        reader.close()
    wait_until(lambda: server.get("/counted?0&closed").body == b"399", "the others are given up")
    assert abs(begin_counting(server, "again")[1] - first) < 8


#: Maximum memory of an idle connection, in bytes: far less than the head below.
IDLE_BYTES = 20_000


def test_an_idle_connection_does_not_keep_a_large_head(serve):
    server = serve("wsgi-file = {apps}/streams.py")
    worker = worker_of(server)
    head = b"GET /fine HTTP/1.1\r\nHost: a\r\nX-Large: " + b"x" * 60_000 + b"\r\n\r\n"

    def visit():
        client = server.connect()
        for _ in range(2):
            client.send(head)
            assert client.read_response().status == 200

    visit()
    before = processes.resident_bytes(worker)
    for _ in range(300):
        visit()
    assert processes.resident_bytes(worker) - before < 300 * IDLE_BYTES
