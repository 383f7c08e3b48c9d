"""An application that is monkey-patched by gevent: its own threads are greenlets, the worker's are real threads all the same."""

import signal

import pytest

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
    server = serve.prepare(f"module = shop\npythonpath = {{folder}}\nthreads = {threads}\n{more}")
    (server.folder / "shop.py").write_text(APPLICATION)
    server.start()
    clients = [server.connect() for _ in range(4)]
    for _ in range(5):
        for client in clients:
            assert client.request(target="/").status == 200
            assert client.request(target="/greenlet").text == "slept"
    assert server.stop(signal.SIGTERM) == 0
    assert "Traceback" not in server.log
