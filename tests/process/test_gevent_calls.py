"""uWSGI's asynchronous calls in a gevent worker: the request waits in the call, or by yielding an empty part."""

import json

import pytest
from support.waiting import wait_until

GEVENT = "wsgi-file = {apps}/gevent_site.py\ngevent = 100\ngevent-monkey-patch = true"

#: The calls that exist in a gevent worker only.
CALLS = ("async_connect", "async_sleep", "close", "connect", "green_schedule", "is_connected", "recv", "send", "wait_fd_read")


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(GEVENT)


def begin(server, target, gate):
    """Sends a request, and returns when its view waits."""
    client = server.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(lambda: json.loads(server.get("/waiting").text).get(gate), f"{target} waits")
    return client


def test_a_suspended_call_goes_on_when_its_descriptor_is_ready(server):
    client = begin(server, "/uwsgi_suspend/a/30", "a")
    assert server.get("/feed/a").text == "fed"
    assert client.read_response().text == "None reader reader"


def test_a_suspended_call_goes_on_after_its_time_limit(server):
    client = begin(server, "/uwsgi_suspend/b/5", "b")
    assert server.get("/fine").text == "fine"
    assert client.read_response().text == "True None -1"


def test_an_answer_goes_on_when_the_descriptor_of_its_empty_part_is_ready(server):
    client = begin(server, "/uwsgi_yield/c/30", "c")
    assert server.get("/feed/c").text == "fed"
    assert client.read_response().text == "None reader reader, None writer writer, True None -1"


def test_an_answer_that_asks_another_server_waits_for_it_between_its_parts(server):
    client = begin(server, f"/uwsgi_fetch/{server.port}", "fetched")
    server.get("/open/fetched")
    assert client.read_response().text.endswith("\r\n\r\nfetched")


def test_a_connection_that_is_refused_is_no_connection(server, free_port):
    answer = server.get(f"/uwsgi_fetch/{free_port()}")
    assert (answer.status, answer.text) == (504, "no connection")


def test_calls_that_connect_and_receive_let_other_requests_run(server):
    client = begin(server, f"/uwsgi_connect/{server.port}", "connected")
    server.get("/open/connected")
    assert client.read_response().text.endswith("\r\n\r\nconnected")


def test_a_greenlet_of_a_request_waits_for_descriptors_of_its_own(server):
    assert server.get("/uwsgi_mixed").text == "True True"


def test_the_descriptors_that_a_request_waits_for_are_bounded(server):
    assert server.get("/uwsgi_many").text == "1024: a request can't wait for more than 1024 descriptors"


def test_calls_that_wait_name_the_option_without_which_they_do_not_exist(serve):
    server = serve.prepare("module = shop\npythonpath = {directory}")
    (server.directory / "shop.py").write_text(
        "import uwsgi\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        f"    found = [name for name in {CALLS!r} if hasattr(uwsgi, name)]\n"
        "    try:\n"
        "        uwsgi.wait_fd_read(0)\n"
        "    except AttributeError as error:\n"
        "        return [f'{found} {error} {uwsgi.suspend()} {uwsgi.ready_fd()} {uwsgi.loop}'.encode()]\n"
    )
    server.start()
    told = "`uwsgi.wait_fd_read` exists only if the configuration has the option `gevent` (for example `gevent = 100`)"
    assert server.get().text == f"[] {told} True -1 None"


def test_calls_of_a_request_are_there_again_after_the_hook_of_the_one_before(serve):
    """A greenlet serves both, with the same callables."""
    server = serve.prepare("wsgi-file = {directory}/view.py\ngevent = 10")
    (server.directory / "view.py").write_text(
        """
import uwsgi
uwsgi.after_req_hook = lambda: None
def application(environ, start_response):
    uwsgi.set_user_harakiri(30)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"limited"]
"""
    )
    server.start()
    assert [server.get("/").text for _ in range(3)] == ["limited"] * 3
