"""The end of a process: application threads get a few seconds, wherever they were started, and are named in the log; they do not
get the whole mercy.
"""

import signal
import subprocess
import sys

import pytest

#: Exit status of a startup whose application can't be loaded.
LOAD_FAILED = 22

WSGI = """
import concurrent.futures, os, threading, time
from probe import application as probe
together = threading.Barrier(4)
pool = concurrent.futures.ThreadPoolExecutor(2)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    print("mail is sent", flush=True)
def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/forever":
        threading.Thread(target=time.sleep, args=(300,), name="kernel 7").start()
    elif path == "/mail":
        together.wait(60)
        threading.Thread(target=wait_for, args=(environ["QUERY_STRING"],)).start()
    elif path == "/pool":
        pool.submit(time.sleep, 0).result()
    environ["PATH_INFO"] = "/pid"
    return probe(environ, start_response)
"""

ASGI = """
import asyncio, sys, threading, time
async def answer(send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        time.sleep(1.5)
        await asyncio.sleep(0.5)
        print("shutdown is done", flush=True)
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/forever":
        threading.Thread(target=time.sleep, args=(300,), name="kernel 7").start()
    elif scope["path"] == "/executor":
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 300)
    await answer(send)
"""


@pytest.fixture
def shop(start, tmp_path):
    def shop(text, *options):
        (tmp_path / "shop.py").write_text(text)
        if text == ASGI:
            return start("--asgi", "shop", *options, module=None)
        return start(*options, module="shop")

    return shop


def ask(instance, target):
    client = instance.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "reload"])
@pytest.mark.parametrize(("text", "options"), [(WSGI, ("--threads", "1")), (WSGI, ("--threads", "4")), (ASGI, ("--lazy-apps",))])
def test_a_thread_that_does_not_end_keeps_its_worker_for_seconds_and_is_named(shop, text, options, number):
    instance = shop(text, *options)
    assert instance.get("/forever").status == 200
    instance.send_signal(number)
    instance.wait_for_log("^bolide: worker 1: the process has finished serving, waiting 4 s for .* threads: 'kernel 7'$")
    if number == signal.SIGTERM:
        assert instance.wait_for_exit() == 0
    else:
        instance.wait_for_generation(2)
    instance.wait_for_text("worker 1: the process stops waiting for the application's threads: 'kernel 7'")
    assert "reload-mercy" not in instance.log


def test_threads_are_waited_for_on_whichever_thread_of_the_worker_they_were_started(shop, tmp_path):
    instance = shop(WSGI, "--threads", "4")
    gate = tmp_path / "gate"
    # Each on a separate thread, because they wait for each other.
    clients = [ask(instance, f"/mail?{gate}") for _ in range(4)]
    for client in clients:
        assert client.read_response().status == 200
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: worker 1: the process has finished serving, waiting")
    gate.touch()
    assert instance.wait_for_exit() == 0
    assert instance.log.count("mail is sent") == 4


def test_an_executor_with_nothing_to_do_is_not_waited_for(shop):
    instance = shop(WSGI)
    assert instance.get("/pool").status == 200
    assert instance.stop() == 0
    assert "has finished serving" not in instance.log


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_loops_own_executor_is_waited_for_no_longer_than_other_threads(shop, loop):
    instance = shop(ASGI, "--loop", loop)
    assert instance.get("/executor").status == 200
    assert instance.stop() == 0
    instance.wait_for_text("stops waiting for the application's threads: ")


def test_a_slow_shutdown_is_no_stuck_loop(shop):
    instance = shop(ASGI, "--loop-stall", "1", "--harakiri", "1")
    assert instance.get("/").status == 200
    assert instance.stop() == 0
    # Before that a busy machine may really have blocked the loop.
    told = instance.log.split("bolide: stop: ", 1)[1]
    assert "shutdown is done" in told
    assert "has been blocked" not in told
    assert "killing " not in instance.log


def test_a_thread_that_was_started_before_the_load_failed_does_not_keep_the_start_from_failing(fail, tmp_path):
    (tmp_path / "shop.py").write_text("import threading, time\nthreading.Thread(target=time.sleep, args=(300,)).start()\n1 / 0\n")
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "shop")
    assert status == LOAD_FAILED
    assert "ZeroDivisionError" in lines[-1]


def test_a_stream_does_not_hold_up_a_stop(shop):
    """Ctrl-C while a browser has an open page with server-sent events."""
    instance = shop(STREAM)
    client = ask(instance, "/")
    client.read_head()
    assert next(client.read_chunks()) == b"data: tick\n\n"
    instance.send_signal(signal.SIGINT)
    # Cut off, so that the client reconnects; the application is notified, and has time to end.
    assert b"\r\n0\r\n" not in client.read_to_end()
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("the stream has ended")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_stream_of_a_wsgi_application_does_not_hold_up_a_stop(shop, threads):
    """The thread is in the application's generator for the duration of the stream, and is the only one of its worker."""
    instance = shop(WSGI_STREAM, "--threads", threads)
    client = ask(instance, "/")
    client.read_head()
    assert next(client.read_chunks()) == b"data: tick\n\n"
    instance.send_signal(signal.SIGINT)
    assert b"\r\n0\r\n" not in client.read_to_end()
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("the stream has ended")
    instance.wait_for_text("worker 1: streams still open 3 s after the order to stop, closing them: 1")


def test_an_answer_of_known_length_is_finished_at_a_stop(shop, tmp_path):
    instance = shop(STREAM)
    gate = tmp_path / "gate"
    client = ask(instance, f"/download?{gate}")
    assert client.read_head().get("content-length") == "10"
    stream = ask(instance, "/")
    stream.read_head()
    instance.send_signal(signal.SIGTERM)
    # Streams have ended by then.
    instance.wait_for_log("the stream has ended")
    gate.touch()
    assert client.read_exactly(10) == b"first last"
    assert instance.wait_for_exit() == 0


WSGI_STREAM = """
import time
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    try:
        while True:
            yield b"data: tick\\n\\n"
            time.sleep(0.01)
    finally:
        print("the stream has ended", flush=True)
"""

STREAM = """
import asyncio, os
async def application(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    headers = [(b"content-type", b"text/event-stream")]
    if scope["path"] == "/download":
        headers.append((b"content-length", b"10"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] == "/download":
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while not os.path.exists(scope["query_string"]):
            await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b" last"})
        return
    try:
        while True:
            await send({"type": "http.response.body", "body": b"data: tick\\n\\n", "more_body": True})
            await asyncio.sleep(0.02)
    finally:
        print("the stream has ended", flush=True)
"""

#: No thread runs here before this one blocks. The process exits at the next check of the clock.
BEGUN = """
import os, sys
from bolide import shutdown
sys.setswitchinterval(1000)
looked = []
def sleep(seconds):
    looked.append(seconds)
    end.acquire()
shutdown.sleep = sleep
end = shutdown.make_lock()
end.acquire()
shutdown.begin(0)
os._exit(0 if looked else 3)
"""


def test_the_shutdown_thread_runs_before_the_interpreter_ends():
    """The end of the interpreter frees the state of a thread that has not begun: CPython would write there, and crash."""
    assert subprocess.run([sys.executable, "-c", BEGUN], timeout=200, check=False).returncode == 0
