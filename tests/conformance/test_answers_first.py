"""A complete response leaves before application code runs again: ``close()``, finalizers, hooks.

The application logs whether its client had the response by then.
"""

import itertools

import pytest
from support import fastcgi, uwsgi
from support.client import Client
from support.http2 import Both, pseudo

TEXT = b"one two three"
LISTEN = [
    "http-socket = 127.0.0.1:0",
    "socket = 127.0.0.1:0",
    "fastcgi-socket = 127.0.0.1:0",
    "scgi-socket = 127.0.0.1:0",
]
CONFIGURATION = "env = AFTERWARDS_DIRECTORY={directory}\nwsgi-file = {apps}/afterwards.py\n"

ASGI = "env = AFTERWARDS_DIRECTORY={directory}\npythonpath = {apps}\nasgi = {apps}/afterwards_asgi.py\n"
STATIC = "static-map = /static={directory}/static\n"

#: The responses of the application's variants.
KINDS = ["list", "failing", "generator", "told", "freed", "environ", "file", "write", "written"]

numbers = itertools.count()


@pytest.fixture(scope="module", params=["threads = 1", "threads = 2", "gevent = 20\ngevent-monkey-patch = true"])
def server(request, serve_module):
    return serve_module(CONFIGURATION + request.param, listen=LISTEN)


@pytest.fixture(scope="module")
def hooked(serve_module):
    return serve_module(CONFIGURATION + "env = AFTERWARDS_HOOK=1", listen=LISTEN)


@pytest.fixture(scope="module", params=["threads = 1", "threads = 2", "gevent = 20\ngevent-monkey-patch = true"])
def both(request, serve_module, tmp_path_factory):
    return with_file(Both(serve_module, tmp_path_factory.mktemp("tls"), CONFIGURATION + STATIC + request.param))


@pytest.fixture(scope="module")
def asynchronous(serve_module, tmp_path_factory):
    return with_file(Both(serve_module, tmp_path_factory.mktemp("tls"), ASGI + STATIC))


def with_file(both):
    (both.server.directory / "static").mkdir()
    (both.server.directory / "static" / "quick").write_bytes(TEXT)
    return both


def over_http(server, target):
    with server.connect() as client:
        return client.request(target=target).body


def over_http_1_0(server, target):
    with server.connect() as client:
        client.send(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        return client.read_to_end().partition(b"\r\n\r\n")[2]


def over_uwsgi(server, target):
    return uwsgi.ask(server.address("uwsgi"), target=target).body


def over_fastcgi(server, target):
    with Client(server.address("fastcgi")) as client:
        client.send(fastcgi.request(target=target))
        return fastcgi.read_answer(client).body


WAYS = {"http": over_http, "http 1.0": over_http_1_0, "uwsgi": over_uwsgi, "fastcgi": over_fastcgi}


def assert_first(server, kind, ask):
    """``ask`` gets the target; when it returns, the client has its response."""
    name = f"{kind}-{next(numbers)}"
    body = ask(f"/{kind}?{name}")
    (server.directory / name).touch()
    server.wait_for_log(f"^{name}: the client ")
    assert f"{name}: the client had its answer" in server.log
    return body


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_comes_before_what_the_application_does_behind_it(server, kind):
    assert assert_first(server, kind, lambda target: over_http(server, target)) == TEXT
    # The code that ran in the meantime does not affect the next response.
    assert over_http(server, "/plain?none") == TEXT


@pytest.mark.parametrize("kind", ["list", "generator"])
@pytest.mark.parametrize("way", WAYS)
def test_the_answer_is_complete_by_then_in_every_protocol(server, way, kind):
    assert assert_first(server, kind, lambda target: WAYS[way](server, target)) == TEXT


@pytest.mark.parametrize("kind", ["list", "generator"])
def test_so_is_a_head_alone(server, kind):
    def ask(target):
        with server.connect() as client:
            return client.request("HEAD", target).status

    assert assert_first(server, kind, ask) == 200


def test_so_is_an_answer_without_a_body(server):
    def ask(target):
        with server.connect() as client:
            return client.request(target=target).status

    assert assert_first(server, "nothing", ask) == 204


def test_so_is_the_answer_to_a_request_that_failed(server):
    def ask(target):
        with server.connect() as client:
            return client.request(target=target).status

    assert assert_first(server, "raising", ask) == 500


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["plain", "tls"])
def test_so_it_is_over_http_2(both, way, kind):
    connection = both.connect(way)
    # Quick responses before it, which may wait for each other.
    answers = [connection.begin(target="/plain?none") for _ in range(40)]
    connection.finish(*answers)
    assert assert_first(both.server, kind, lambda target: connection.request(target=target).body) == TEXT
    assert connection.request(target="/plain?none").body == TEXT


def begin_together(connection, targets):
    """Requests whose frames come in one write."""
    sent, begun = [], []
    for target in targets:
        begun.append(connection.expect(connection.next_stream, "GET"))
        sent.append(connection.heads(begun[-1].stream, pseudo(target=target, scheme=connection.scheme)))
    connection.send(b"".join(sent))
    return begun


@pytest.mark.parametrize("way", ["plain", "tls"])
@pytest.mark.parametrize("quick", ["/plain?none", "/static/quick"])
def test_quick_answers_of_a_batch_do_not_wait_for_a_slow_one(both, way, quick):
    connection = both.connect(way)
    for _ in range(3):
        connection.finish(*begin_together(connection, [quick] * 32))

    def ask(target):
        *answers, slow = begin_together(connection, [quick] * 6 + [target])
        connection.finish(*answers)
        assert not slow.is_over
        return slow

    slow = assert_first(both.server, "slow", ask)
    assert connection.finish(slow).body == TEXT


@pytest.mark.parametrize("kind", ["at_once", "later"])
@pytest.mark.parametrize("way", ["plain", "tls"])
def test_an_asynchronous_answer_comes_before_what_its_task_does_behind_it(asynchronous, way, kind):
    connection = asynchronous.connect(way)
    connection.finish(*begin_together(connection, ["/plain?none"] * 40))
    assert assert_first(asynchronous.server, kind, lambda target: connection.request(target=target).body) == TEXT


@pytest.mark.parametrize("kind", ["slow", "next"])
@pytest.mark.parametrize("quick", ["/plain?none", "/static/quick"])
def test_quick_answers_do_not_wait_for_a_task_that_holds_up_the_loop(asynchronous, quick, kind):
    connection = asynchronous.connect("plain")
    connection.finish(*begin_together(connection, [quick] * 40))

    def ask(target):
        *answers, slow = begin_together(connection, [quick] * 6 + [target])
        connection.finish(*answers)
        return slow

    slow = assert_first(asynchronous.server, kind, ask)
    assert connection.finish(slow).body == TEXT


@pytest.mark.parametrize("way", WAYS)
def test_the_answer_comes_before_the_hook_of_its_end(hooked, way):
    assert assert_first(hooked, "generator", lambda target: WAYS[way](hooked, target)) == TEXT
