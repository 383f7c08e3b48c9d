"""Threads: requests really overlap, a blocked call does not delay other requests, and the application's own threads run."""

import statistics
import threading
import time

import pytest
from support.waiting import assert_once_below, wait_until


def ask_at_once(server, targets):
    """Sends every request on a separate connection before any response is read; returns the bodies."""
    clients = [server.connect() for _ in targets]
    for client, target in zip(clients, targets):
        client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return [client.read_response().text for client in clients]


def test_eight_threads_run_eight_requests_at_once(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = 8")
    assert ask_at_once(server, ["/meet?8"] * 8) == ["met 8"] * 8


ARENAS = """
import ctypes, ctypes.util, os, re, threading

libc = ctypes.CDLL(None)
libc.open_memstream.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
all_are_here = threading.Barrier(8, timeout=60)
kept = []

def application(environ, start_response):
    kept.append(bytes(100_000))
    all_are_here.wait()
    text, length = ctypes.c_char_p(), ctypes.c_size_t()
    stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(length))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    start_response("200 OK", [])
    return [str(text.value.count(b"<heap nr=")).encode()]
"""


def test_threads_share_few_arenas_of_the_allocator(serve):
    """Each arena keeps its peak memory."""
    server = serve.prepare("wsgi-file = {directory}/arenas.py\nthreads = 8")
    (server.directory / "arenas.py").write_text(ARENAS)
    server.start()
    assert max(int(text) for text in ask_at_once(server, ["/"] * 8)) <= 2


def test_an_application_that_sleeps_overlaps_in_eight_threads(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = 8")
    # 80 sleeps of 100 ms take one second in eight threads, and eight seconds in one: the counter shows which it was.
    most = ask_at_once(server, ["/sleep"] * 80)
    assert max(int(text) for text in most) == 8


def test_no_more_requests_run_at_once_than_there_are_threads(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = 3\nprocesses = 1")
    most = ask_at_once(server, ["/sleep"] * 12)
    assert max(int(text) for text in most) <= 3


@pytest.mark.parametrize("how", ["wait", "spin"])
@pytest.mark.parametrize("threads", ["2", "4", "auto"])
def test_a_blocked_call_delays_no_other_request(serve, how, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}")
    kept = [server.connect() for _ in range(5)]
    for client in kept:
        assert client.request(target="/fine").text == "fine"
    blocked = server.connect()
    blocked.send(f"GET /{how} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    for _ in range(10):
        assert server.get("/fine").text == "fine"
        for client in kept:
            assert client.request(target="/fine").text == "fine"
    assert server.get("/release").text == "fine"
    assert blocked.read_response().text == "released"
    assert blocked.request(target="/fine").text == "fine"


#: Interval of the timer of a worker's loop, in seconds. A request that waits for the timer was not signaled.
LOOK_AT_CLOCK_SECONDS = 0.5


@pytest.mark.parametrize("threads", ["2", "4", "auto"])
def test_a_next_request_that_comes_while_close_blocks_waits_for_it_alone(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}")
    client = server.connect()
    times = []
    for number in range(10):
        began = time.monotonic()
        assert client.request(target=f"/closing?{number}").text == str(number)
        times.append(time.monotonic() - began)
    # A call waits for the close() before it, of 50 ms.
    assert statistics.median(times) < LOOK_AT_CLOCK_SECONDS / 2, times


@pytest.mark.parametrize("threads", ["2", "auto"])
def test_a_worker_that_drains_ends_with_its_last_request_whichever_thread_serves_it(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}")
    client = server.connect()
    client.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    # Another thread serves these, and leads from then on. A loop that did not notice the end logs it.
    assert server.get("/fine").text == "fine"
    assert server.get("/release_later").text == "fine"
    assert server.stop() == 0
    assert client.read_response().text == "released"


def test_pipelined_requests_behind_a_blocked_one_wait_for_it_alone(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = 2")
    client = server.connect()
    head = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
    client.send(f"GET /echo?1{head}GET /wait{head}GET /echo?2{head}".encode())
    assert client.read_response().text == "1"
    assert server.get("/release").text == "fine"
    assert [client.read_response().text for _ in range(2)] == ["released", "2"]


#: Of fifty requests, this many may run in a different thread than the one before: a busy machine may delay a thread's end.
MAX_CHANGES = 15


@pytest.mark.parametrize("how", ["rest", "work"])
@pytest.mark.parametrize("threads", ["4", "auto"])
def test_requests_of_a_single_client_stay_on_a_thread(serve, threads, how):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}")
    client = server.connect()

    def changes():
        names = [client.request(target=f"/{how}").text for _ in range(50)]
        return sum(name != next_name for name, next_name in zip(names, names[1:]))

    assert_once_below(changes, MAX_CHANGES + 1)


@pytest.mark.parametrize("threads", ["2", "4", "auto"])
def test_a_client_that_connects_during_a_call_is_served_in_parallel(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}")
    clients = [server.connect() for _ in range(2)]
    for number in range(20):
        # Calls that keep their thread, and then two that wait for each other: the second begins while the first runs.
        for client in clients[: number % 3]:
            assert client.request(target="/rest").text
        for client in clients:
            client.send(b"GET /pair HTTP/1.1\r\nHost: localhost\r\n\r\n")
        names = [client.read_response().text for client in clients]
        assert len(set(names)) == 2, names


@pytest.mark.parametrize("threads", ["2", "4"])
def test_a_time_limit_ends_a_connection_while_a_call_blocks(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}\nhttp-keepalive = 4")
    idle, blocked = server.connect(), server.connect()
    assert idle.request(target="/fine").text == "fine"
    blocked.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert idle.read_to_end() == b""
    assert server.get("/release").text == "fine"
    assert blocked.read_response().text == "released"


def test_threads_auto_starts_small_and_grows_while_requests_wait(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = auto")
    few = int(server.get("/threads").text)
    assert few <= 3
    assert ask_at_once(server, ["/meet?12"] * 12) == ["met 12"] * 12
    assert int(server.get("/threads").text) > few


def test_threads_auto_does_not_grow_without_need(serve):
    def grown():
        server = serve("wsgi-file = {apps}/blocking.py\nthreads = auto")
        few = int(server.get("/threads").text)
        client = server.connect()
        for _ in range(500):
            assert client.request(target="/fine").text == "fine"
        return int(server.get("/threads").text) - few

    # A busy machine may delay calls and the ends of threads, so that a request finds all of them busy.
    assert_once_below(grown, 2)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_threads_of_the_application_run_while_no_request_does(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}\nenable-threads = true")
    assert server.get("/start").text == "fine"
    wait_until(lambda: int(server.get("/ticks").text) > 50, "the thread has counted")


def test_threads_have_names_of_their_own(serve):
    server = serve("wsgi-file = {apps}/blocking.py\nthreads = 4")
    names = set()

    def have_all_served():
        names.update(ask_at_once(server, ["/name"] * 4))
        return len(names) == 4

    wait_until(have_all_served, lambda: f"all threads serve: {names}")
    assert sorted(names) == ["MainThread", *(f"bolide worker 1 thread {number}" for number in (1, 2, 3))]


@pytest.mark.parametrize("threads", ["1", "8", "auto"])
def test_every_client_gets_its_own_answers_under_load(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/blocking.py\nthreads = {threads}\nprocesses = 2")
    problems = []

    def visit(number):
        try:
            client = server.connect()
            for turn in range(40):
                target = f"/{'sleep' if turn == 7 and threads != '1' else 'echo'}?{number}-{turn}"
                text = client.request(target=target).text
                if "echo" in target:
                    assert text == f"{number}-{turn}"
        except Exception as error:
            problems.append(f"{number}: {error!r}")

    visitors = [threading.Thread(target=visit, args=(number,)) for number in range(40)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert not problems


def test_a_suspended_answer_may_be_taken_up_by_another_thread(serve):
    server = serve("wsgi-file = {apps}/streams.py\nthreads = 4")
    clients = [server.connect(receive_bytes=65536) for _ in range(12)]
    for client in clients:
        client.send(b"GET /large_parts?10 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.read_head().status == 200
    assert server.get("/fine").body == b"fine"
    totals = []

    def drain(client):
        totals.append(sum(len(chunk) for chunk in client.read_chunks()))

    readers = [threading.Thread(target=drain, args=(client,)) for client in clients]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert totals == [10 << 20] * 12
    server.wait_for_log("^closed 10$", count=12)
