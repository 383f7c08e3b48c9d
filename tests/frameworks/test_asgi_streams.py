"""Long streams through ASGI frameworks: event streams that arrive event by event, and bodies in both directions that never fill
the memory.
"""

import contextlib
import json
import signal
import threading

import httpx
import pytest
from support import processes
from support.client import TIMEOUTS
from support.waiting import wait_until

TIMEOUT_SECONDS = 60

#: One gigabyte, in parts of a megabyte.
PART = bytes(range(256)) * 4096
UPLOAD_BYTES = 1024 * len(PART)

#: Maximum growth of a worker's resident memory while it passes such a body on: buffers of the socket, of the engine and of the
#: framework, and memory that the interpreter keeps of them.
GROWTH_BYTES = 24 * 1024 * 1024


@pytest.fixture(scope="module")
def events(serve_module):
    return serve_module("pythonpath = {apps}\nasgi = events_asgi:app")


@pytest.fixture
def client(events):
    with httpx.Client(base_url=events.url, verify=False, trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        yield client


def listening(client, count):
    wait_until(lambda: client.get("/listening").json() == count, f"{count} listen")


def post(client, text):
    """Sends an event to all listeners; returns their number."""
    return client.post("/post", content=text).json()


def nobody_is_left(client):
    """A stream that only sends notices the disconnect in ``send()``, as in Starlette since ASGI 2.4."""
    wait_until(lambda: post(client, "is anybody there?") == 0, "nobody listens")


@pytest.mark.parametrize("path", ["/events", "/by-hand"])
def test_events_arrive_one_by_one(client, path):
    with client.stream("GET", path) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        listening(client, 1)
        lines = stream.iter_lines()
        for text in ("first", "caf\xe9", "third"):
            # The next event is posted only after this one was read: no event can have waited for another.
            assert post(client, text) == 1
            assert next(line for line in lines if line.startswith("data:")) == f"data: {text}"
        post(client, "end")
        assert [line for line in lines if line] == []
    listening(client, 0)


@pytest.mark.parametrize("path", ["/events", "/by-hand"])
def test_a_stream_of_events_ends_when_its_client_leaves(client, path):
    with client.stream("GET", path) as stream:
        listening(client, 1)
        post(client, "first")
        assert next(line for line in stream.iter_lines() if line.startswith("data:")) == "data: first"
    if path == "/events":
        # It waits for the disconnect while it has nothing to send.
        listening(client, 0)
    nobody_is_left(client)


def test_many_listeners_hear_the_same_events(events, client):
    streams = [events.connect() for _ in range(100)]
    for stream in streams:
        stream.send(b"GET /by-hand HTTP/1.1\r\nHost: localhost\r\n\r\n")
    listening(client, len(streams))
    for text in ("one", "two"):
        assert post(client, text) == len(streams)
        for stream in streams:
            stream.read_until(f"data: {text}\n\n".encode())
    for stream in streams:
        stream.close()
    nobody_is_left(client)


def test_the_pings_of_an_event_stream_arrive_by_themselves(client):
    with client.stream("GET", "/events?ping=yes") as stream:
        assert next(line for line in stream.iter_lines() if line).startswith(": ping")
    listening(client, 0)


def test_event_streams_end_when_the_worker_does(serve):
    server = serve("pythonpath = {apps}\nasgi = events_asgi:app\nworker-reload-mercy = 2")
    stream = server.connect()
    stream.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    stream.read_head()
    server.send_signal(signal.SIGTERM)
    # The stream never ends by itself: the mercy limits it.
    stream.read_to_end()
    server.expects_alarms = True
    server.wait_for_exit()


# Bodies that never fill the memory.


@pytest.fixture(scope="module")
def bodies(serve_module):
    server = serve_module("pythonpath = {apps}\nasgi = starlette_asgi:app")
    # Imports and caches of the first requests do not count as growth.
    server.get("/count", method="POST", body=PART)
    server.get("/large?bytes=1000000")
    return server


class Watch:
    """Measures the largest resident memory of a worker over a period, in a thread."""

    def __init__(self, pid):
        self.pid = pid
        self.at_first = self.most = processes.resident_bytes(pid)
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.end.wait(0.02):
            self.most = max(self.most, processes.resident_bytes(self.pid))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()

    @property
    def growth(self):
        return self.most - self.at_first


def worker_of(server):
    return int(server.get("/large?bytes=1").get("x-pid"))


@pytest.mark.parametrize("framing", ["a length", "chunks"])
def test_an_upload_of_a_gigabyte_takes_constant_memory(bodies, framing):
    pid = worker_of(bodies)
    count = UPLOAD_BYTES // len(PART)
    if framing == "a length":
        field, part = f"Content-Length: {UPLOAD_BYTES}", PART
    else:
        field, part = "Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (len(PART), PART)
    with Watch(pid) as watch, bodies.connect() as client:
        client.send(f"PUT /count HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n".encode())
        for _ in range(count):
            assert client.send(part)
        if framing == "chunks":
            client.send(b"0\r\n\r\n")
        told = json.loads(client.read_response().body)
    assert (told["length"], told["pid"]) == (UPLOAD_BYTES, pid)
    # The application received it in parts, none of them large.
    assert told["largest"] <= 1024 * 1024
    assert watch.growth < GROWTH_BYTES, f"{watch.growth} bytes more"


def test_an_upload_waits_when_the_application_does_not_read(bodies):
    """TCP holds back the client of a busy application, and nothing accumulates in the worker."""
    pid = worker_of(bodies)
    with Watch(pid) as watch, bodies.connect() as client:
        client.send(f"POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n".encode())
        client.socket.settimeout(0.5)
        sent = 0
        with contextlib.suppress(*TIMEOUTS):
            while sent < UPLOAD_BYTES:
                sent += client.socket.send(PART)
        client.socket.settimeout(TIMEOUT_SECONDS)
    assert sent < 64 * 1024 * 1024
    assert watch.growth < GROWTH_BYTES, f"{watch.growth} bytes more"


def test_a_download_takes_constant_memory_however_slow_its_client(bodies):
    size = 200_000_000
    with bodies.connect(receive_bytes=65536) as client:
        pid = worker_of(bodies)
        with Watch(pid) as watch:
            client.send(f"GET /large?bytes={size} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = client.read_head()
            assert head.get("transfer-encoding") == "chunked"
            # Other clients are served during this slow transfer.
            assert bodies.get("/hello/ann").text == "hello ann "
            length = sum(len(part) for part in client.read_chunks())
        assert length == size
        assert watch.growth < GROWTH_BYTES, f"{watch.growth} bytes more"
