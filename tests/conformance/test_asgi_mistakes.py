"""ASGI applications that break the rules: an exception at the offending line, 500 if the head has not been sent, otherwise the
connection is closed, and the worker keeps serving.
"""

import importlib.util
import json
import re

import pytest
from support.server import APPS
from support.waiting import wait_until


def load_mistakes():
    spec = importlib.util.spec_from_file_location("mistakes_of_the_tests", APPS / "asgi_mistakes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MISTAKES


MISTAKES = load_mistakes()


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("asgi = {apps}/asgi_mistakes.py\nloop = asyncio")


def assert_fine(client):
    response = client.request(target="/fine")
    assert (response.status, response.body) == (200, b"fine")


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=list(MISTAKES))
def test_a_wrong_message_is_an_exception_at_the_line_that_sent_it(server, number):
    messages, kind, words = list(MISTAKES.values())[number]
    with server.connect() as client:
        response = client.request(target=f"/mistake_caught?{number}")
        assert response.status == 200
        if len(messages) == 2 and messages[0]["headers"]:
            # It announced a length, and sent a body of that length.
            assert response.body == b"x" * int(messages[0]["headers"][0][1])
        else:
            told = json.loads(response.body)
            assert re.search(kind, told["kind"])
            assert words in told["text"]
            assert told["line"] == "await send(last)"
        assert response.get("x-injected") is None
        assert_fine(client)


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=list(MISTAKES))
def test_an_uncaught_wrong_message_is_a_500_and_a_traceback(server, number):
    _, kind, words = list(MISTAKES.values())[number]
    with server.connect() as client:
        pid = client.request(target="/pid").body
        before = len(server.log)
        response = client.request(target=f"/mistake?{number}")
        assert (response.status, response.body) == (500, b"Internal Server Error")
        assert response.get("x-injected") is None
        assert_fine(client)
        assert client.request(target="/pid").body == pid
    pattern = rf"an exception in GET /mistake\?{number}\n(?:worker 1: .*\n)*worker 1: \w*{kind}: .*{re.escape(words)}"
    server.wait_for(lambda: re.search(pattern, server.log[before:]), "the traceback")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("raises", "RuntimeError: as the test asked, with a d\u00e9tail \u20ac"),
        ("raises_later", "RuntimeError: later"),
        ("raises_after_start", "RuntimeError: after startup"),
        ("raises_after_start_later", "RuntimeError: after startup"),
        ("cancels_itself", "GET /cancels_itself: the application's task was cancelled before its response was complete"),
        ("cancels_itself_later", "GET /cancels_itself_later: the application's task was cancelled"),
        ("cancelled_by_timeout", ".*TimeoutError"),
        ("base_exception", ".*BaseExceptionOfOurs: no Exception"),
        ("base_exception_later", ".*BaseExceptionOfOurs: no Exception"),
        ("generator_exit", "GeneratorExit"),
        ("stop_iteration", "RuntimeError: coroutine raised StopIteration"),
        ("recursion", "RecursionError: maximum recursion depth exceeded"),
        ("returns", "GET /returns: the application returned without completing its response"),
        ("returns_later", "GET /returns_later: the application returned without completing its response"),
        ("returns_after_start", "GET /returns_after_start: the application returned without completing its response"),
        ("returns_after_start_later", "GET /returns_after_start_later: the application returned without completing"),
    ],
)
def test_before_anything_has_left_a_failure_is_a_500_and_the_connection_stays_good(server, path, words):
    with server.connect() as client:
        assert_fine(client)
        pid = client.request(target="/pid").body
        response = client.request(target=f"/{path}")
        assert (response.status, response.body) == (500, b"Internal Server Error")
        assert response.get("x-begun") is None
        assert_fine(client)
        assert client.request(target="/pid").body == pid
    server.wait_for_log(f"^(?:bolide: )?worker 1: (?:{words})")
    server.wait_for_log(rf"GET /{path} => generated 21 bytes in \d+ msecs \(HTTP/1.1 500\)")


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("raises_mid_body", b"5\r\nbegun\r\n"),
        ("raises_mid_body_later", b"5\r\nbegun\r\n"),
        ("raises_in_generator", b"5\r\nbegun\r\n"),
        ("returns_mid_body", b"5\r\nbegun\r\n"),
        ("returns_mid_declared_body", b"begun"),
        ("str_mid_body", b"5\r\nbegun\r\n"),
        ("too_short_mid_body", b"123456"),
        ("too_long_mid_body", b"12345678"),
    ],
)
def test_after_the_head_has_left_a_failure_closes_the_connection(server, path, sent):
    with server.connect() as client:
        client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert client.read_head().status == 200
        # No last chunk: the client sees that the response is incomplete.
        assert client.read_to_end() == sent
    server.wait_for_log(rf"GET /{path}\b")
    with server.connect() as client:
        assert_fine(client)


@pytest.mark.parametrize("path", ["send_after_end", "start_after_end"])
def test_a_message_after_the_end_is_an_exception_and_the_answer_is_whole(server, path):
    with server.connect() as client:
        response = client.request(target=f"/{path}")
        assert (response.status, response.body) == (200, b"body")
        assert_fine(client)
    server.wait_for_log(f"an exception in GET /{path}, after its response$")
    server.wait_for_log("RuntimeError: the response is already complete$")


def test_callables_kept_beyond_their_request_reach_no_other_client(server):
    with server.connect() as client:
        assert client.request(target="/keep").body == b"kept"
        told = json.loads(client.request(target="/use_kept").body)
        assert told == ["http.disconnect", "the response is already complete"]
        assert_fine(client)


def test_a_send_that_is_not_awaited_is_reported(server):
    with server.connect() as client:
        assert client.request(target="/never_awaited").body == b"fine"
        assert_fine(client)


def test_a_value_whose_truth_can_not_be_told_is_an_exception(server):
    with server.connect() as client:
        assert client.request(target="/bad_truth").status == 500
        assert_fine(client)
    server.wait_for_log("ValueError: undecided$")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("path", ["system_exit", "system_exit_later"])
def test_system_exit_loses_only_its_own_request(serve, path, loop):
    server = serve(f"asgi = {{apps}}/asgi_mistakes.py\nloop = {loop}")
    server.expects_alarms = True
    pid = server.get("/pid").body
    with server.connect() as client:
        client.send(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert client.read_response().status == 500
    server.wait_for_log("SystemExit: 7")
    # The worker exits, as the application requested, and another replaces it: no request is refused in the meantime.
    assert wait_until(lambda: new_pid(server, pid), "another worker serves")


def new_pid(server, old):
    response = server.get("/pid")
    assert response.status == 200
    return response.body if response.body != old else None
