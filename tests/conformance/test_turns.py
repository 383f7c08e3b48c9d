"""Fairness: whatever one client does, others are served after one call of the application and one turn of each, in one thread."""

import signal
import socket
import threading

import pytest
from support import processes
from support.waiting import assert_once_below, wait_until
from support.websocket import PING, Scripted, frame

#: Maximum number of requests of one connection that a turn serves.
TURN_REQUESTS = 32
#: Maximum bytes of an application's response that a turn sends to one client; one more part may have been in progress.
TURN_BYTES = 256 * 1024


@pytest.fixture(params=["wsgi", "asgi"])
def server(request, serve):
    return serve("wsgi-file = {apps}/turns.py" if request.param == "wsgi" else "pythonpath = {apps}\nasgi = {apps}/turns_asgi.py")


class Flood:
    """Sends ``data`` many times from a thread, and reads the responses in another; ``taken`` counts their bytes."""

    def __init__(self, client, data, times):
        self.client = client
        self.taken = 0
        self.is_over = False
        self._threads = [threading.Thread(target=self._send, args=(data, times)), threading.Thread(target=self._take)]
        for thread in self._threads:
            thread.start()

    def _send(self, data, times):
        for _ in range(times):
            if not self.client.send(data):
                return

    def _take(self):
        while True:
            try:
                data = self.client.socket.recv(1 << 20)
            except OSError:
                data = b""
            self.taken += len(data)
            if not data:
                self.is_over = True
                return

    def end(self):
        self.client.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self.client.reset()


def get(target, headers=""):
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def calls_meanwhile(client, questions, most):
    """Returns the application's calls for other clients during this many requests, each of which must be below ``most``."""
    counts = [int(client.request(target="/calls").body) for _ in range(questions + 1)]
    assert counts[-1] < most, "it was served when the others had been"
    return counts[-1] - counts[0]


def test_a_second_client_is_served_while_one_pipelines_large_requests(server):
    second = server.connect()
    assert second.request(target="/fine").body == b"fine"
    # Ten seconds of work; one read receives only so much of it that few requests are complete.
    flood = Flood(server.connect(), get("/view", f"Cookie: {'x' * 3500}\r\n") * 10, 200)
    wait_until(lambda: flood.taken, "the first answers")
    assert_once_below(lambda: calls_meanwhile(second, 1, 2000), 2 * TURN_REQUESTS + 1)
    flood.end()


def test_a_view_that_is_slow_ends_the_turn_of_one_that_pipelines(server):
    second = server.connect()
    assert second.request(target="/fine").body == b"fine"
    flood = Flood(server.connect(), get("/view") * 100, 20)
    wait_until(lambda: flood.taken, "the first answers")
    # A turn has at most two calls of 5 ms, and one turn may be in progress when the request comes.
    assert_once_below(lambda: calls_meanwhile(second, 4, 2000), 4 * 2 * 2 + 1, tries=30)
    flood.end()


def test_a_second_client_is_served_while_one_takes_an_endless_answer_as_fast_as_it_comes(server):
    second = server.connect()
    assert second.request(target="/fine").body == b"fine"
    client = server.connect()
    flood = Flood(client, get("/steady_parts?50000"), 1)
    wait_until(lambda: flood.taken, "the first parts")
    taken = flood.taken
    for _ in range(10):
        assert second.request(target="/fine").body == b"fine"
    assert flood.taken - taken < 50_000 * 100_000 / 2, "they were served after the answer's end"
    flood.end()


def test_a_second_client_is_served_while_one_asks_for_the_head_of_an_endless_answer(server):
    second = server.connect()
    assert second.request(target="/fine").body == b"fine"
    client = server.connect()
    client.send(get("/quick_parts?20000000").replace(b"GET", b"HEAD"))
    assert client.read_head().status == 200
    assert int(second.request(target="/given").body) < 20_000_000 * 100_000 / 2, "it was served after the answer's end"


def test_many_new_readers_get_a_turn_each_before_the_others(server):
    second = server.connect()
    assert second.request(target="/fine").body == b"fine"
    readers = [server.connect() for _ in range(40)]
    worker = server.worker()
    # While the worker is stopped, all requests arrive: they are events of one turn.
    processes.kill(worker, signal.SIGSTOP)
    for reader in readers:
        reader.send(get("/quick_parts?50"))
    second.send(get("/given"))
    processes.kill(worker, signal.SIGCONT)
    assert int(second.read_response().body) <= len(readers) * (TURN_BYTES + 2 * 100_000)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_context_variables_of_an_answer_in_turns_are_its_own(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/turns.py\nthreads = {threads}")
    clients = {name: server.connect() for name in "abcd"}
    worker = server.worker()
    for _ in range(2):
        processes.kill(worker, signal.SIGSTOP)
        for name, client in clients.items():
            client.send(get(f"/context?{name}"))
        processes.kill(worker, signal.SIGCONT)
        for name, client in clients.items():
            assert client.read_head().status == 200
            assert set(b"".join(client.read_chunks())) == set(name.encode())
        assert server.get("/variable").text == "none"
    assert "Traceback" not in server.whole_log()


def test_a_large_part_goes_out_in_turns_and_arrives_whole(server):
    client = server.connect()
    client.send(get("/one_part?200"))
    response = client.read_response()
    assert len(response.body) == 200 * 100_000
    assert client.request(target="/fine").body == b"fine"


@pytest.mark.parametrize("kind", ["steady_parts", "quick_parts"])
def test_an_answer_in_many_turns_arrives_whole(server, kind):
    client = server.connect()
    for _ in range(3):
        client.send(get(f"/{kind}?60"))
        assert client.read_head().status == 200
        assert sum(len(chunk) for chunk in client.read_chunks()) == 60 * 100_000


def test_a_second_client_is_served_while_one_floods_with_pings(serve):
    server = serve("asgi = {apps}/asgi_socket.py")
    chatty = Scripted(server, ("accept",), ("receive",)).open()
    second = server.connect()
    # Far more than sockets buffer: what they hold goes on while this test does not run.
    data, times = frame(PING, b"x") * 20_000, 1000
    flood = Flood(chatty.client, data, times)
    wait_until(lambda: flood.taken, "the first pongs")
    for _ in range(3):
        assert second.request(target="/seen/nobody").body == b"[]"
    # A pong is a ping without its mask.
    assert flood.taken < times * 20_000 * (len(frame(PING, b"x")) - 4) / 2, "they were served after the last ping"
    flood.end()


def test_an_unwanted_body_of_which_most_is_no_body_is_swallowed_up_to_the_bound(serve):
    # The server discards up to a megabyte, whatever its content: here 258 bytes come for one of the body. 64 MB are far beyond
    # that, and beyond what sockets buffer.
    server = serve("asgi = {apps}/turns_asgi.py\npythonpath = {apps}")
    chunk = b"1".rjust(255, b"0") + b"\r\nx\r\n"
    client = server.connect()
    client.send(b"POST /fine HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert client.read_response().body == b"fine"
    assert not all(client.send(chunk * 4000) for _ in range(64))


def processes_of(server):
    """Returns its workers: the prototype's children."""
    everybody = server.processes()
    prototypes = [process.pid for process in everybody if process.parent == server.process.pid]
    return [process.pid for process in everybody if process.parent in prototypes]


@pytest.mark.parametrize("first", [0, 1])
def test_new_connections_do_not_wait_behind_a_stuck_request_while_another_worker_is_idle(serve, first):
    server = serve("wsgi-file = {apps}/turns.py\nprocesses = 2")
    workers = processes_of(server)
    # Both are stopped while they wait, and the connections arrive. The one that resumes first blocks in the first request.
    for worker in workers:
        wait_until(lambda: processes.look(worker).state == "S", f"{worker} waits")  # noqa: B023
        processes.kill(worker, signal.SIGSTOP)
    clients = [server.connect() for _ in range(5)]
    clients[0].send(get("/wait"))
    for client in clients[1:]:
        client.send(get("/fine"))
    processes.kill(workers[first], signal.SIGCONT)
    wait_until(lambda: has_begun(workers[first], server), "the first has the request")
    processes.kill(workers[1 - first], signal.SIGCONT)
    for client in clients[1:]:
        assert client.read_response().body == b"fine"
    # The flag belongs to one process, and only the blocked one has not answered.
    processes.kill(workers[first])
    server.expects_alarms = True
    server.wait_for_log("was killed by")


def has_begun(worker, server):
    return f"waits in {worker}" in server.log
