"""Applications that are patched by gevent: their own threads are greenlets, and threads of a worker are real ones.

With the option `gevent`, requests wait beside each other, whatever function of the standard library they wait in.
"""

import signal
import socketserver
import threading

import pytest
from support.waiting import TIMEOUT_SECONDS

APPLICATION = """
from gevent import monkey
monkey.patch_all()
import threading, time
first = threading.Event()
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/greenlet":
        found = []
        thread = threading.Thread(target=lambda: (time.sleep(0.01), found.append("slept")))
        thread.start()
        thread.join()
        return [found[0].encode()]
    return [threading.current_thread().name.encode()]
"""


@pytest.mark.parametrize("more", ["", "lazy-apps = true"])
@pytest.mark.parametrize("threads", ["1", "2", "auto"])
def test_a_patched_application_is_served_by_native_threads(serve, threads, more):
    server = serve.prepare(f"module = shop\npythonpath = {{directory}}\nthreads = {threads}\n{more}")
    (server.directory / "shop.py").write_text(APPLICATION)
    server.start()
    clients = [server.connect() for _ in range(4)]
    for _ in range(5):
        for client in clients:
            assert client.request(target="/").status == 200
            assert client.request(target="/greenlet").text == "slept"
    assert server.stop(signal.SIGTERM) == 0
    assert "Traceback" not in server.log


#: Each way to wait ends when the last of the requests has come, so it can't end unless all of them wait at the same time.
TOGETHER = """
import concurrent.futures, queue, select, socket, subprocess, threading
import requests
TOGETHER = 5
ours, theirs = socket.socketpair()
items, lock, condition, barrier = queue.Queue(), threading.Lock(), threading.Condition(), threading.Barrier(TOGETHER)
pool = concurrent.futures.ThreadPoolExecutor(TOGETHER)
arrived = []
def arrive():
    with lock:
        arrived.append(None)
        return len(arrived) % TOGETHER == 0
def by_barrier(query):
    barrier.wait(30)
def by_pool(query):
    pool.submit(barrier.wait, 30).result(30)
def by_condition(query):
    with condition:
        if arrive():
            condition.notify_all()
        else:
            assert condition.wait(30)
def by_queue(query):
    if arrive():
        for _ in range(TOGETHER):
            items.put("item")
    items.get(timeout=30)
def by_select(query):
    if arrive():
        theirs.sendall(b"x")
    assert select.select([ours], [], [], 30)[0]
def by_requests(query):
    assert requests.get(query, timeout=30).text == "all are here"
def by_children(query):
    if arrive():
        open(query, "w").close()
    subprocess.run(f"until test -e '{query}'; do sleep 0.01; done", shell=True, check=True, timeout=30)
def application(environ, start_response):
    globals()["by_" + environ["PATH_INFO"].strip("/")](environ["QUERY_STRING"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"""
REQUESTS_AT_ONCE = 5


class Meeting(socketserver.ThreadingTCPServer):
    """An HTTP server that answers when enough clients have asked."""

    daemon_threads = True

    def __init__(self):
        self.all_are_here = threading.Barrier(REQUESTS_AT_ONCE)
        super().__init__(("127.0.0.1", 0), Guest)


class Guest(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        self.server.all_are_here.wait(TIMEOUT_SECONDS)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\nall are here")


@pytest.fixture(scope="module")
def meeting():
    with Meeting() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def patched(serve_module):
    server = serve_module.prepare("module = shop\npythonpath = {directory}\ngevent = 20\ngevent-monkey-patch = true")
    (server.directory / "shop.py").write_text(TOGETHER)
    return server.start()


@pytest.mark.parametrize("way", ["barrier", "pool", "condition", "queue", "select", "requests", "children"])
def test_requests_that_wait_by_the_standard_library_wait_beside_each_other(way, patched, meeting, tmp_path):
    query = {"requests": meeting, "children": str(tmp_path / "file")}.get(way, "")
    clients = [patched.connect() for _ in range(REQUESTS_AT_ONCE)]
    for client in clients:
        client.send(f"GET /{way}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert [client.read_response("GET").text for client in clients] == ["done"] * REQUESTS_AT_ONCE
