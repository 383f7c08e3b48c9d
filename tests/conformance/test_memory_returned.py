"""Memory that slow clients caused a worker to allocate is returned to the system when they have disconnected, and memory of a
large piece of work when that is done: at most a tenth stays.
"""

import pytest
from support import processes
from support.client import Client
from support.http2 import INITIAL_WINDOW_SIZE, Both
from support.waiting import wait_until

MEBIBYTE = 1 << 20
#: Minimum growth of the worker's memory for a meaningful comparison.
MIN_BYTES = 60 * MEBIBYTE
LARGE_BYTES = 10_000_000

APPLICATION = """
PART = 64 * 1024
LARGE_BYTES = 10_000_000

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    if environ["PATH_INFO"] == "/parts":
        return (b"x" * PART for _ in range(100))
    if environ["PATH_INFO"] == "/large":
        return [b"x" * LARGE_BYTES]
    return [b"fine"]
"""


@pytest.fixture
def both(serve, tmp_path):
    def make(more):
        (tmp_path / "application.py").write_text(APPLICATION)
        return Both(serve, tmp_path / "tls", f"wsgi-file = {tmp_path}/application.py\nsocket-timeout = 600\n{more}")

    return make


def assert_given_back(server, take):
    """``take`` makes the worker allocate memory with slow clients; its return value closes them."""
    worker = server.worker()
    before = processes.resident_bytes(worker)
    leave = take()
    taken = processes.resident_bytes(worker) - before
    assert taken > MIN_BYTES
    leave()
    wait_until(
        lambda: processes.resident_bytes(worker) - before <= taken // 10,
        lambda: f"{(processes.resident_bytes(worker) - before) >> 20} of {taken >> 20} MiB have stayed",
    )


@pytest.mark.parametrize("more", ["threads = 1", "threads = 4"])
def test_of_streams_that_have_no_window(both, more):
    both = both(more)

    def take():
        connections = [both.connect("plain", {INITIAL_WINDOW_SIZE: 0}) for _ in range(20)]
        for connection in connections:
            answers = [connection.begin(target="/parts") for _ in range(100)]
            connection.read_until(lambda heads=answers: all(answer.status for answer in heads), "all have their heads")

        def leave():
            for connection in connections:
                connection.close()

        return leave

    assert_given_back(both.server, take)


def test_of_large_answers_that_are_read_slowly(both):
    server = both("threads = 4").server
    # From now on the allocator serves responses of this size from its ordinary heap.
    for _ in range(8):
        assert len(server.get("/large").body) == LARGE_BYTES

    def take():
        clients = [Client(server.address("http"), receive_bytes=16384) for _ in range(60)]
        for client in clients:
            client.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for client in clients:
            assert client.read_head().status == 200

        def leave():
            for client in clients:
                client.reset()

        return leave

    assert_given_back(server, take)
    assert server.get("/fine").body == b"fine"


#: `peak` takes about 100 MB of small pieces, and keeps the last one, below which glibc keeps what it has got back.
PEAK = """
import os, time
import uwsgi
kept = []
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
noted = os.path.abspath("peak")
def peak():
    before = resident()
    pieces = [b"x" * (600 + number % 2) for number in range(150_000)]
    taken = resident() - before
    time.sleep(0.1)
    kept.append(pieces.pop())
    with open(noted, "w") as file:
        print(os.getpid(), before, taken, file=file)
"""
WSGI_PEAK = """
def application(environ, start_response):
    peak()
    start_response("200 OK", [])
    return [b"done"]
"""
ASGI_PEAK = """
async def application(scope, receive, send):
    assert scope["type"] == "http"
    peak()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})
"""
HELPER_PEAK = """
def application(environ, start_response):
    uwsgi.mule_msg(b"work", 1) if environ["PATH_INFO"] == "/mule" else uwsgi.spool(body=b"work")
    start_response("200 OK", [])
    return [b"done"]
def mule():
    while True:
        uwsgi.mule_get_msg()
        peak()
def work(job):
    peak()
    return uwsgi.SPOOL_OK
uwsgi.spooler = work
"""
#: The rest of the configuration, the rest of the source, and what to ask for.
PLACES = {
    "a thread": ("master = true", WSGI_PEAK, "/"),
    "threads": ("master = true\nthreads = 4", WSGI_PEAK, "/"),
    "asgi": ("master = true", ASGI_PEAK, "/"),
    "gevent": ("master = true\ngevent = 10", WSGI_PEAK, "/"),
    "a mule": ("master = true\nmule = large:mule", HELPER_PEAK, "/mule"),
    "a spooler": ("master = true\nspooler = {directory}/jobs\nspooler-frequency = 3600", HELPER_PEAK, "/spooler"),
}


@pytest.mark.parametrize("place", PLACES)
def test_of_a_large_piece_of_work(serve, tmp_path, place):
    more, source, target = PLACES[place]
    (tmp_path / "large.py").write_text(PEAK + source)
    (tmp_path / "jobs").mkdir()
    server = serve(f"chdir = {tmp_path}\nmodule = large:application\n{more}")
    assert server.get(target).body == b"done"
    noted = tmp_path / "peak"
    wait_until(lambda: noted.exists() and noted.read_text().endswith("\n"), lambda: f"the work: {server.log}")
    pid, before, taken = map(int, noted.read_text().split())
    assert taken > MIN_BYTES
    wait_until(
        lambda: processes.resident_bytes(pid) - before <= taken // 10,
        lambda: f"{(processes.resident_bytes(pid) - before) >> 20} of {taken >> 20} MiB have stayed",
    )
