"""Request and log options do what uWSGI's manual says: limits of requests, and their time limits."""

import re
import time

import pytest
from support import uwsgi
from support.client import Closed
from support.waiting import wait_until

PROBE = "module = probe\npythonpath = {apps}/../process/probes"
#: Returns the type of `wsgi.input`, and the number of bytes read from it.
BODY = """\
def application(environ, start_response):
    start_response('200 OK', [])
    return [f"{type(environ['wsgi.input']).__name__} {len(environ['wsgi.input'].read())}".encode()]
"""
#: An answer of unknown length.
STREAM = """\
def application(environ, start_response):
    start_response('200 OK', [])
    yield b'one'
    yield b'two'
"""
ECHO = "wsgi-file = {apps}/echo.py"


def test_socket_and_uwsgi_socket_speak_the_uwsgi_protocol(serve):
    for option in ["socket", "uwsgi-socket"]:
        server = serve(PROBE, listen=(f"{option} = 127.0.0.1:0",))
        assert uwsgi.ask(server.address("uwsgi")).body.isdigit()


@pytest.mark.parametrize("option", ["http", "http-socket", "http11-socket"])
def test_http_sockets_keep_connections_alive(option, serve):
    server = serve(PROBE, listen=(f"{option} = 127.0.0.1:0",))
    client = server.connect()
    assert {client.request().text for _ in range(3)} == {client.request().text}


def test_protocol_decides_what_socket_speaks(serve):
    server = serve(f"{PROBE}\nprotocol = http", listen=("socket = 127.0.0.1:0",))
    assert server.get().text.isdigit()


def test_buffer_size_bounds_the_head(serve):
    server = serve(f"{PROBE}\nbuffer-size = 2048")
    assert server.get("/pid", [("X-Long", "x" * 1500)]).status == 200
    assert server.get("/pid", [("X-Long", "x" * 4096)]).status == 431


def test_limit_post_bounds_the_body(serve):
    server = serve(f"{ECHO}\nlimit-post = 1000")
    assert server.get(method="POST", body=b"x" * 1000).status == 200
    assert server.get(method="POST", body=b"x" * 1001).status == 413


def test_post_buffering_sends_larger_bodies_to_a_file(serve):
    server = serve.prepare("module = shop\npost-buffering = 4096")
    (server.directory / "shop.py").write_text(BODY)
    server.start()
    small, large = (server.get(method="POST", body=b"x" * count).text.split() for count in (4096, 100_000))
    assert (small[1], large[1]) == ("4096", "100000")
    assert small[0] != large[0]


@pytest.mark.parametrize(
    ("listen", "line"),
    [("http-socket", "socket-timeout = 5"), ("http", "http-timeout = 5")],
    ids=["socket-timeout", "http-timeout"],
)
def test_timeouts_end_a_request_that_does_not_come(listen, line, serve):
    server = serve(f"{PROBE}\n{line}", listen=(f"{listen} = 127.0.0.1:0",))
    client = server.connect()
    client.send(b"GET / HTTP/1.1\r\nHost:")
    assert client.read_response().status == 408
    assert client.is_closed()


def test_http_keepalive_is_the_time_of_an_idle_connection(serve):
    server = serve(f"{PROBE}\nhttp-keepalive = 2")
    client = server.connect()
    idle_since = time.monotonic()
    client.request()
    assert client.is_closed()
    assert time.monotonic() - idle_since > 1


@pytest.mark.parametrize("value", ["0", "false"])
def test_http_keepalive_off_closes_after_each_answer(value, serve):
    client = serve(f"{PROBE}\nhttp-keepalive = {value}").connect()
    assert client.request().says_close
    assert client.is_closed()


def test_disable_logging_writes_no_line_for_a_request(serve):
    loud, quiet = serve(PROBE), serve(f"{PROBE}\ndisable-logging = true")
    for server in (loud, quiet):
        assert server.get("/pid?seen").status == 200
    loud.wait_for_log(r"GET /pid\?seen => generated \d+ bytes")
    quiet.stop()
    assert "seen" not in quiet.log


def test_memory_report_writes_memory_before_the_line_of_a_request(serve):
    server = serve(f"{PROBE}\nmemory-report = true")
    server.get("/pid")
    said = server.wait_for_log(r"^\{address space usage: (\d+) bytes/\d+MB\} \{rss usage: (\d+) bytes/\d+MB\} \[pid: ")
    assert int(said[1]) > int(said[2]) > 1024 * 1024


def leave_early(server):
    """A client that requests more than any buffer holds, and disconnects."""
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /bytes/50000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_head()
    client.reset()
    wait_until(lambda: server.get("/pid").status == 200, "the worker goes on")


@pytest.mark.parametrize("line", ["ignore-write-errors = true", "disable-write-exception = true"])
def test_a_client_that_left_is_not_worth_a_line_when_write_errors_are_ignored(line, serve):
    server = serve(f"{PROBE}\n{line}\ndisable-logging = true")
    leave_early(server)
    server.stop()
    assert not re.search("write|pipe|reset", server.log, re.IGNORECASE), server.log


def test_ignore_sigpipe_or_not_a_client_that_left_ends_nothing(serve):
    for line in ["ignore-sigpipe = true", ""]:
        server = serve(f"{PROBE}\n{line}")
        worker = server.get("/pid").text
        leave_early(server)
        assert server.get("/pid").text == worker


def test_http_auto_chunked_or_not_an_answer_of_unknown_length_is_chunked(serve):
    for line in ["http-auto-chunked = true", ""]:
        server = serve.prepare(f"module = shop\n{line}")
        (server.directory / "shop.py").write_text(STREAM)
        assert server.start().get().chunks == [b"one", b"two"]


def test_an_option_with_an_impossible_value_is_an_error_with_file_and_line(serve):
    for line in ["processes = many", "harakiri = -1", "http-socket = 127.0.0.1:99999"]:
        server = serve.prepare(f"{PROBE}\n{line}").launch()
        assert server.wait_for_exit() == 1
        assert "uwsgi.ini:5" in server.log, server.log
        with pytest.raises((Closed, OSError, AssertionError)):
            server.get()
