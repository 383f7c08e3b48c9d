"""Responses that a worker generates itself, files and routes, do not wait for a thread that holds the GIL.

The tests assert the order of events, not times: the application continues only when the test writes to a pipe, and the test does
that after it has its responses.
"""

import os
import signal

import pytest

OWN_ANSWERS = """
wsgi-file = {apps}/keeping.py
static-map = /files={directory}/files
route = ^/gone$ return:410
enable-threads = true
"""


@pytest.fixture
def keeping(serve):
    """Starts the server, with a function that makes its application release the GIL."""
    pipes = []

    def start(threads, are_up=True):
        server = serve.prepare(f"{OWN_ANSWERS}\nthreads = {threads}")
        (server.directory / "files").mkdir()
        (server.directory / "files" / "a.txt").write_text("a file")
        os.mkfifo(server.directory / "pipe")
        pipes.append(os.open(server.directory / "pipe", os.O_RDWR))
        server.let_go = lambda: os.write(pipes[-1], b"1")
        server.start()
        if not are_up:
            return server
        # A thread is up when it has held the GIL once: before that it cannot serve files.
        meet, count = ("/meet_three", 3) if threads == "3" else ("/meet", 2)
        for client in [send(server, meet) for _ in range(count)]:
            assert client.read_response().text == "met"
        return server

    yield start
    for pipe in pipes:
        # More than enough for all threads that are still blocked: the server must end after a failed test too.
        os.write(pipe, b"1" * 10)
        os.close(pipe)


def send(server, target):
    client = server.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def have_own_answers(server, *clients):
    for client in (*clients, server.connect(), server.connect()):
        assert client.request(target="/files/a.txt").text == "a file"
        assert client.request(target="/gone").status == 410


@pytest.mark.parametrize("threads", ["2", "3", "auto"])
def test_files_and_routes_wait_for_no_request_that_keeps_the_interpreter(keeping, threads):
    server = keeping(threads)
    known = server.connect()
    assert known.request(target="/fine").text == "fine"
    busy = send(server, "/keep")
    server.wait_for_log("^keeps the interpreter$")
    for _ in range(5):
        have_own_answers(server, known)
    server.let_go()
    assert busy.read_response().text == "kept"
    assert known.request(target="/fine").text == "fine"


def test_files_and_routes_wait_for_no_request_that_waits_for_the_interpreter(keeping):
    server = keeping("3")
    busy = send(server, "/keep")
    server.wait_for_log("^keeps the interpreter$")
    waiting = send(server, "/fine")
    for _ in range(5):
        have_own_answers(server)
    server.let_go()
    assert busy.read_response().text == "kept"
    assert waiting.read_response().text == "fine"


@pytest.mark.parametrize("threads", ["2", "3"])
def test_files_and_routes_wait_for_no_thread_of_the_application_that_keeps_the_interpreter(keeping, threads):
    server = keeping(threads)
    assert server.get("/thread").text == "started"
    server.let_go()
    server.wait_for_log("^keeps the interpreter$")
    for _ in range(5):
        have_own_answers(server)
    server.let_go()
    assert server.get("/fine").text == "fine"


def test_handlers_of_signals_run_while_their_thread_waits_in_the_poll_or_in_a_call(keeping):
    # The first thread leads until a call blocks it, and it handles signals.
    server = keeping("3", are_up=False)
    os.kill(server.worker(), signal.SIGWINCH)
    server.wait_for_log("^the handler has run$")
    waiting = send(server, "/wait")
    server.wait_for_log("^waits$")
    have_own_answers(server)
    os.kill(server.worker(), signal.SIGWINCH)
    server.wait_for_log("^the handler has run$", count=2)
    assert server.get("/release").text == "fine"
    assert waiting.read_response().text == "released"
