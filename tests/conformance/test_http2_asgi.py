"""ASGI applications over HTTP/2, with and without TLS: the scope, bodies in both directions, many concurrent streams, and the end
of a stream.
"""

import hashlib
import itertools
import json
import os

import pytest
from support import http2
from support.http2 import CANCEL, INTERNAL_ERROR, NO_ERROR, Both, pseudo

MEGABYTE = bytes(range(256)) * 4096

#: A gate of the application opens once, so each test has a separate one.
numbers = itertools.count()
WAYS = ["plain", "tls"]


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def both(request, serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), f"asgi = {{apps}}/asgi_http.py\nloop = {request.param}")


@pytest.fixture(params=WAYS)
def connection(both, request):
    return both.connect(request.param)


@pytest.fixture(scope="module")
def scopes(serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), "asgi = {apps}/asgi_scope.py")


@pytest.fixture
def server(both):
    return both.server


def told(server, name):
    return json.loads(server.get(f"/told?{name}").body)


def scope_of(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)


# The scope.


@pytest.mark.parametrize("way", WAYS)
def test_the_scope_says_http_2_and_the_scheme(scopes, way):
    scope = scope_of(scopes.connect(way).request(target="/a%20b/c?x=%20y"))
    assert (scope["type"], scope["http_version"], scope["method"]) == ("http", "2", "GET")
    assert scope["scheme"] == {"plain": "http", "tls": "https"}[way]
    assert (scope["path"], scope["raw_path"]["bytes"], scope["query_string"]["bytes"]) == ("/a b/c", "/a%20b/c", "x=%20y")
    assert scope["client"][0] == "127.0.0.1"


def test_the_scope_has_the_authority_as_host_and_no_pseudo_header_field(scopes):
    scope = scope_of(
        scopes.connect("plain").request(target="/", authority="example.com:8443", headers=[("x-a", "1"), ("x-b", "")])
    )
    headers = [(name["bytes"], value["bytes"]) for name, value in scope["headers"]]
    # Only that of a WebSocket has more.
    assert headers == [("host", "example.com:8443"), ("x-a", "1"), ("x-b", "")]


def test_a_host_field_stands_where_there_is_no_authority(scopes):
    fields = [pair for pair in pseudo() if pair[0] != ":authority"] + [("host", "example.com")]
    connection = scopes.connect("plain")
    scope = scope_of(connection.finish(connection.begin_with(fields)))
    assert [value["bytes"] for name, value in scope["headers"] if name["bytes"] == "host"] == ["example.com"]


def test_cookies_are_one_field_again(scopes):
    # RFC 9113 section 8.2.3: clients split the field for better compression by HPACK.
    scope = scope_of(
        scopes.connect("plain").request(headers=[("cookie", "a=b"), ("x-other", "1"), ("cookie", "c=d"), ("cookie", "e=f")])
    )
    assert [value["bytes"] for name, value in scope["headers"] if name["bytes"] == "cookie"] == ["a=b; c=d; e=f"]


def test_nothing_of_one_request_reaches_the_next(scopes):
    connection = scopes.connect("plain")
    for fields in ([("x-a", "1")], [], [("x-a", "2"), ("cookie", "c=d")], [("x-a", "2"), ("cookie", "c=d")], [("x-b", "1")]):
        scope = scope_of(connection.request(headers=fields))
        assert [(name["bytes"], value["bytes"]) for name, value in scope["headers"]][1:] == fields


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_any_method_is_passed_on(scopes, method):
    assert scope_of(scopes.connect("plain").request(method))["method"] == method


def test_options_of_the_whole_server_have_an_asterisk_for_a_path(scopes):
    connection = scopes.connect("plain")
    answer = connection.request("OPTIONS", "*")
    assert answer.status in (200, 204, 400, 404)
    assert connection.request().status == 200


def test_early_hints_and_trailers_are_among_the_extensions(scopes):
    extensions = scope_of(scopes.connect("plain").request())["extensions"]
    assert {"http.response.early_hint", "http.response.trailers"} <= set(extensions)


def test_bytes_above_127_come_as_they_are(scopes):
    scope = scope_of(scopes.connect("plain").request(headers=[("x-a", "\xe4\xff")]))
    assert [value["bytes"] for name, value in scope["headers"] if name["bytes"] == "x-a"] == ["\xe4\xff"]


# Answers.


@pytest.mark.parametrize("path", ["fine", "defaults", "declared", "parts", "parts_declared", "part_kinds"])
def test_an_answer_has_its_body_and_no_field_of_a_connection(connection, path):
    bodies = {"fine": b"fine", "defaults": b"", "declared": b"fine"}
    answer = connection.request(target=f"/{path}")
    assert (answer.status, answer.body) == (200, bodies.get(path, b"one two three"))
    assert answer.get("date")


@pytest.mark.parametrize("path", ["hop_by_hop", "close"])
def test_what_an_application_says_of_its_connection_is_left_out(connection, path):
    # The client checks every field. A refusal would be a response too.
    assert connection.request(target=f"/{path}").status in (200, 500)
    assert connection.request(target="/fine").body == b"fine"


def test_headers_keep_their_order_and_doubles(connection):
    own = [pair for pair in connection.request(target="/headers").headers if pair[0].startswith("x-")]
    assert own == [("x-one", "1"), ("x-two", "2"), ("x-one", "3"), ("x-empty", ""), ("x-latin", "\u00e4")]


@pytest.mark.parametrize("path", ["fine", "parts", "one_part?3", "status_with_body?404"])
def test_head_has_the_fields_and_no_body(connection, path):
    answer = connection.request("HEAD", f"/{path}")
    assert (answer.status, answer.body) == (404 if "404" in path else 200, b"")


@pytest.mark.parametrize("path", ["status", "status_with_body"])
@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body_have_none(connection, path, status):
    answer = connection.request(target=f"/{path}?{status}")
    assert (answer.status, answer.body) == (status, b"")


def test_early_hints_come_before_the_answer(connection, server):
    name = f"hints-{next(numbers)}"
    answer = connection.begin(target=f"/early_hint?{name}")
    connection.read_until(lambda: answer.interim, "the hints are there")
    assert answer.interim[0] == (103, [("link", "</style.css>; rel=preload; as=style"), ("link", "</a.js>; rel=preload")])
    assert answer.status is None
    server.get(f"/open?{name}")
    assert connection.finish(answer).body == b"page"


def test_trailers_end_the_answer(connection):
    answer = connection.request(target="/trailers", headers=[("te", "trailers")])
    assert (answer.body, answer.trailers) == (b"one two", [("x-sum", "7"), ("x-two", "b")])
    answer = connection.request(target="/trailers_only", headers=[("te", "trailers")])
    assert (answer.body, answer.trailers) == (b"", [("x-sum", "0")])


@pytest.mark.parametrize("path", ["one_part?20", "stream?20", "small_parts?3", "pathsend?20", "zerocopysend_parts?20"])
def test_a_large_answer_comes_whole(connection, path):
    answer = connection.request(target=f"/{path}")
    whole = MEGABYTE * int(path.partition("?")[2])
    assert hashlib.sha256(answer.body).hexdigest() == hashlib.sha256(whole).hexdigest()


def test_several_large_answers_come_at_once(connection):
    answers = [connection.begin(target="/one_part?5") for _ in range(8)]
    connection.finish(*answers)
    digest = hashlib.sha256(MEGABYTE * 5).hexdigest()
    assert {hashlib.sha256(answer.body).hexdigest() for answer in answers} == {digest}


# Bodies of requests.


def digest_of(answer):
    return json.loads(answer.body)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 70_000, 5_000_000])
def test_a_body_comes_whole(connection, size, declared):
    body = os.urandom(size)
    answer = connection.begin("POST", "/digest", [("content-length", str(size))] if declared else [], ends=False)
    connection.send_body(answer, body)
    found = digest_of(connection.finish(answer))
    assert (found["bytes"], found["sha256"]) == (size, hashlib.sha256(body).hexdigest())


def test_several_bodies_come_at_once_in_pieces_of_each(connection):
    bodies = [os.urandom(200_000) for _ in range(10)]
    answers = [connection.begin("POST", "/digest", ends=False) for _ in bodies]
    for place in range(0, 200_000, 10_000):
        for answer, body in zip(answers, bodies, strict=True):
            connection.send_body(answer, body[place : place + 10_000], ends=place == 190_000)
    connection.finish(*answers)
    assert [digest_of(answer)["sha256"] for answer in answers] == [hashlib.sha256(body).hexdigest() for body in bodies]


def test_a_body_is_echoed_while_it_comes(connection):
    answer = connection.begin("POST", "/echo", ends=False)
    for number in range(5):
        connection.send_data(answer, b"%d" % number)
        connection.read_until(lambda: b"".join(answer.parts).endswith(b"%d" % number), "the part has come back")  # noqa: B023
    connection.send_data(answer, ends=True)
    assert connection.finish(answer).body == b"01234"


def test_trailers_of_a_request_end_its_body(connection):
    answer = connection.begin("POST", "/digest", ends=False)
    connection.send_data(answer, b"body")
    connection.send_trailers(answer, [("x-sum", "7")])
    assert digest_of(connection.finish(answer))["bytes"] == 4
    assert connection.request(target="/fine").body == b"fine"


def test_padding_is_no_part_of_a_body_and_its_window_is_given_back(connection):
    answer = connection.begin("POST", "/digest", ends=False)
    for _ in range(2000):
        # 200 bytes of padding each: four times the window of a stream.
        while min(connection.send_windows[0], connection.send_windows[answer.stream]) < 300:
            connection.read()
        payload = b"\xc8x" + bytes(200)
        for stream in (0, answer.stream):
            connection.send_windows[stream] -= len(payload)
        connection.send(http2.frame(http2.DATA, http2.PADDED, answer.stream, payload))
    connection.send_data(answer, ends=True)
    assert digest_of(connection.finish(answer))["bytes"] == 2000


def test_expect_100_continue_is_answered_on_the_stream(connection):
    answer = connection.begin("POST", "/digest", [("expect", "100-continue"), ("content-length", "4")], ends=False)
    connection.read_until(lambda: answer.interim, "100 is there")
    assert [status for status, _ in answer.interim] == [100]
    connection.send_data(answer, b"body", ends=True)
    assert digest_of(connection.finish(answer))["bytes"] == 4


def test_an_answer_that_does_not_wait_for_the_body_ends_the_stream_and_says_that_nothing_is_wrong(connection):
    # RFC 9113 section 8.1: RST_STREAM with NO_ERROR asks the client to stop sending.
    answer = connection.begin("POST", "/fine", ends=False)
    connection.read_until(lambda: answer.is_whole, "the answer is there")
    assert answer.body == b"fine"
    if answer.reset is None:
        connection.ping()
    assert answer.reset == NO_ERROR
    assert connection.request(target="/fine").body == b"fine"


def test_an_unread_body_stays_with_the_client_and_blocks_no_other_stream(connection, server):
    name = f"unread-{next(numbers)}"
    held = connection.begin("POST", f"/slow_reader?{name}", ends=False)
    while min(connection.send_windows[held.stream], connection.send_windows[0]) > 0:
        connection.send_data(held, bytes(min(16384, connection.send_windows[held.stream], connection.send_windows[0])))
        if connection.send_windows[held.stream] > 0 and connection.send_windows[0] < 16384:
            connection.ping()
    sent = json.loads(connection.request(target="/messages").body)
    assert sent, "another stream is served"
    other = connection.request("POST", "/digest", body=b"other")
    assert digest_of(other)["bytes"] == 5
    server.get(f"/open?{name}")
    connection.send_body(held, b"last")
    assert connection.finish(held).status == 200


def test_unread_bodies_leave_the_rest_of_the_window_to_another_upload(connection, server):
    connection.read_settings()
    name = f"unread-{next(numbers)}"
    held = [connection.begin("POST", f"/slow_reader?{name}", ends=False) for _ in range(3)]
    for answer in held:
        connection.send_body(answer, bytes(connection.send_windows[answer.stream]), ends=False)
    other = connection.request("POST", "/digest", body=MEGABYTE)
    assert digest_of(other)["bytes"] == len(MEGABYTE)
    server.get(f"/open?{name}")
    for answer in held:
        connection.send_data(answer, ends=True)
    assert connection.finish(*held).status == 200


# Concurrent streams.


def test_a_stream_that_waits_holds_up_no_other(connection, server):
    name = f"waits-{next(numbers)}"
    slow = connection.begin(target=f"/slow?{name}")
    for _ in range(20):
        assert connection.request(target="/fine").body == b"fine"
    assert not slow.is_over
    server.get(f"/open?{name}")
    assert connection.finish(slow).body == f"slow {name}".encode()


def test_answers_come_in_the_order_in_which_they_are_ready(connection, server):
    names = [f"order-{next(numbers)}" for _ in range(5)]
    answers = [connection.begin(target=f"/slow?{name}") for name in names]
    for name, answer in reversed(list(zip(names, answers, strict=True))):
        server.get(f"/open?{name}")
        assert connection.finish(answer).body == f"slow {name}".encode()


def test_all_streams_that_are_announced_are_served_at_once(connection, server):
    most = connection.read_settings()[http2.MAX_CONCURRENT_STREAMS]
    name = f"crowd-{next(numbers)}"
    answers = [connection.begin(target=f"/slow?{name}") for _ in range(most - 1)]
    connection.request(target=f"/open?{name}")
    connection.finish(*answers)
    assert {answer.body for answer in answers} == {f"slow {name}".encode()}


def test_thousands_of_requests_are_served_on_one_connection(connection):
    for _ in range(50):
        answers = [connection.begin(target="/fine") for _ in range(60)]
        connection.finish(*answers)
        assert {answer.body for answer in answers} == {b"fine"}


# The end of a stream.


def test_a_reset_is_the_clients_end_to_the_application(connection, server):
    name = f"reset-{next(numbers)}"
    answer = connection.begin(target=f"/wait_for_end?{name}")
    server.wait_for_log(f"^waits {name}$")
    connection.reset(answer)
    server.wait_for_log(f"^ended {name}$")
    assert told(server, name) == ["http.request", "http.disconnect", "http.disconnect"]
    assert connection.request(target="/fine").body == b"fine"


def test_the_end_of_the_connection_is_the_end_of_all_its_streams(connection, server):
    names = [f"gone-{next(numbers)}" for _ in range(3)]
    for name in names:
        connection.begin(target=f"/wait_for_end?{name}")
        server.wait_for_log(f"^waits {name}$")
    connection.close()
    for name in names:
        server.wait_for_log(f"^ended {name}$")


def test_sending_to_a_stream_that_was_reset_fails_as_it_does_when_a_client_has_gone(connection, server):
    name = f"nobody-{next(numbers)}"
    answer = connection.begin(target=f"/send_to_nobody?{name}")
    connection.read_until(lambda: answer.received, "it has begun")
    connection.reset(answer)
    connection.ping()
    server.get(f"/open?{name}")
    server.wait_for_log(f"^ended {name}$")
    assert "OSError" in told(server, name)
    assert connection.request(target="/fine").body == b"fine"


def test_a_reset_while_the_answer_is_under_way_ends_it(connection, server):
    name = f"cut-{next(numbers)}"
    answer = connection.begin(target=f"/stream?2000&{name}")
    connection.read_until(lambda: answer.received > 1_000_000, "a part has come")
    connection.reset(answer)
    server.wait_for_log(f"^streamed 2000&{name}$")
    assert connection.request(target="/fine").body == b"fine"


def test_work_after_the_answer_goes_on(connection, server):
    name = f"background-{next(numbers)}"
    assert connection.request(target=f"/background?{name}").body == b"answered"
    assert connection.request(target="/fine").body == b"fine"
    server.get(f"/open?{name}")
    server.wait_for_log(f"^worked {name}$")


# Failing applications.


@pytest.fixture(scope="module")
def failing(serve_module, tmp_path_factory):
    directory = tmp_path_factory.mktemp("application")
    (directory / "failing.py").write_text(FAILING)
    return Both(serve_module, tmp_path_factory.mktemp("tls"), f"asgi = {directory}/failing.py\nlifespan = off")


FAILING = """
async def application(scope, receive, send):
    if scope["path"] == "/nothing":
        return
    if scope["path"] != "/before":
        length = [(b"content-length", b"100")] if scope["path"] == "/short" else []
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"begun", "more_body": scope["path"] != "/fine"})
    if scope["path"] not in ("/fine", "/unfinished"):
        raise RuntimeError("as the test asked")
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["before", "nothing"])
def test_an_application_that_fails_is_500_on_its_stream_alone(failing, way, path):
    connection = failing.connect(way)
    other = connection.begin("POST", "/fine", ends=False)
    assert connection.request(target=f"/{path}").status == 500
    connection.send_data(other, ends=True)
    assert connection.finish(other).body == b"begun"
    assert connection.request(target="/fine").body == b"begun"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["after", "short", "unfinished"])
def test_an_answer_that_is_cut_off_is_a_reset_and_no_end(failing, way, path):
    connection = failing.connect(way)
    answer = connection.begin(target=f"/{path}")
    assert connection.read_reset(answer) in (INTERNAL_ERROR, CANCEL)
    assert not answer.is_whole
    assert connection.request(target="/fine").body == b"begun"
