"""Connections and bodies of HTTP/1.1: persistence, pipelining, and the framing of responses."""

import json
import random
import re
import resource
import time

import pytest
from support import processes
from support.waiting import assert_once_below, wait_until

WHOLE = b"first second third"
IMF_DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


@pytest.fixture(scope="module")
def framing(serve_module):
    return serve_module("wsgi-file = {apps}/framing.py")


@pytest.fixture(scope="module")
def echo(serve_module):
    return serve_module("wsgi-file = {apps}/echo.py")


def body_of(response):
    return json.loads(response.body)["body"]


def target_of(response):
    return json.loads(response.body)["environ"]["REQUEST_URI"]


def get(target, extra=b""):
    return b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + extra + b"\r\n"


def test_a_connection_is_kept_alive(framing):
    client = framing.connect()
    for _ in range(50):
        response = client.request(target="/list")
        assert (response.status, response.body) == (200, WHOLE)
        assert response.get("connection") is None


def test_nothing_of_one_request_reaches_the_next_on_its_connection(echo):
    # From a reverse proxy, a connection carries the requests of many people; repeated header blocks are cached.
    chance = random.Random(7)
    people = [[("Cookie", f"session={name}"), (f"X-{name}", name)] for name in ("ann", "bob", "cid")]
    for changes in (0.05, 0.3, 1.0):
        client = echo.connect()
        person = people[0]
        for _ in range(150):
            if chance.random() < changes:
                person = chance.choice([*people, []])
            body = chance.choice([None, None, b"", b"body"])
            told = json.loads(client.request("POST", "/x", headers=person, body=body).body)
            seen = {key: value for key, value in told["environ"].items() if key.startswith("HTTP_")}
            expected = {f"HTTP_{name.upper()}".replace("-", "_"): value for name, value in person}
            assert seen == {"HTTP_HOST": "localhost", **expected}
            assert told["body"] == (body or b"").decode()
            assert told["environ"].get("CONTENT_LENGTH") == (None if body is None else str(len(body)))


def test_a_repeated_header_block_leaks_nothing_from_one_request_into_the_next(echo):
    client = echo.connect()
    client.send(b"GET http://example.com/1?q HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_response()
    client.send(get(b"/2"))
    seen = json.loads(client.read_response().body)["environ"]
    assert (seen["HTTP_HOST"], seen["QUERY_STRING"], seen["PATH_INFO"]) == ("localhost", "", "/2")


def test_pipelined_requests_are_answered_in_order(echo):
    client = echo.connect()
    client.send(b"".join(get(b"/%d" % number) for number in range(100)))
    assert [target_of(client.read_response()) for _ in range(100)] == [f"/{number}" for number in range(100)]


def test_pipelined_requests_are_answered_in_order_however_they_are_cut(echo):
    client = echo.connect()
    stream = b"".join(get(b"/%d" % number, b"X: %d\r\n" % number) for number in range(30))
    for start in range(0, len(stream), 37):
        client.send(stream[start : start + 37])
    assert [target_of(client.read_response()) for _ in range(30)] == [f"/{number}" for number in range(30)]


@pytest.mark.parametrize("chunked", [False, True])
def test_requests_pipelined_behind_a_post_are_served(echo, chunked):
    client = echo.connect()
    if chunked:
        post = b"POST /post HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nT: x\r\n\r\n"
    else:
        post = b"POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    client.send(post + get(b"/1") + post + post + get(b"/2"))
    responses = [client.read_response() for _ in range(5)]
    assert [target_of(response) for response in responses] == ["/post", "/1", "/post", "/post", "/2"]
    assert [body_of(response) for response in responses] == ["abc", "", "abc", "abc", ""]


def test_requests_pipelined_after_a_close_are_not_served(echo):
    with echo.connect() as client:
        client.send(get(b"/last", b"Connection: close\r\n") + get(b"/never"))
        assert target_of(client.read_response()) == "/last"
        assert client.is_closed()
    echo.get("/after")
    echo.wait_for_log("GET /after")
    assert "/never" not in echo.log


@pytest.mark.parametrize("threads", [1, 4])
def test_requests_behind_a_head_of_a_streamed_answer_are_answered_if_the_client_then_ends_its_side(serve, threads):
    server = serve(f"wsgi-file = {{apps}}/framing.py\nthreads = {threads}")
    head = b"HEAD /generator HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(10):
        with server.connect() as client:
            client.send(head + head + get(b"/generator"))
            client.end_sending()
            for method in ("HEAD", "HEAD", "GET"):
                answer = client.read_response(method)
                assert (answer.status, answer.body) == (200, WHOLE if method == "GET" else b"")
            assert client.is_closed()


ENDLESS = """
import itertools, time
ended = []
def endless():
    try:
        for _ in itertools.count():
            yield b"more"
    finally:
        ended.append(True)
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(len(ended)).encode()] if environ["PATH_INFO"] == "/ended" else endless()
"""


def test_a_head_of_an_endless_answer_ends_when_its_client_does(serve):
    server = serve.prepare("wsgi-file = endless.py\nthreads = 2")
    (server.directory / "endless.py").write_text(ENDLESS)
    server.start()
    for number, leave in enumerate(("end_sending", "close"), 1):
        client = server.connect()
        client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_response("HEAD").status == 200
        getattr(client, leave)()
        wait_until(lambda number=number: server.get("/ended").text == str(number), f"the answer has ended after {leave}")


def test_a_client_that_ends_its_side_after_the_request_still_gets_the_answer(echo):
    client = echo.connect()
    client.send(get(b"/1") + get(b"/2"))
    client.end_sending()
    assert target_of(client.read_response()) == "/1"
    assert target_of(client.read_response()) == "/2"
    assert client.is_closed()


@pytest.mark.parametrize("size", [1, 1000, 65535, 65536, 65537, 1_000_000, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_any_size_comes_whole(echo, size, chunked):
    body = bytes(number % 251 for number in range(size))
    client = echo.connect()
    if chunked:
        client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, size, 70_001):
            part = body[start : start + 70_001]
            client.send(b"%x\r\n" % len(part) + part + b"\r\n")
        client.send(b"0\r\n\r\n")
        response = client.read_response()
    else:
        response = client.request("PUT", body=body)
    told = json.loads(response.body)
    assert told["body"].encode("latin-1") == body
    assert told["environ"]["CONTENT_LENGTH"] == str(size)
    assert client.request().status == 200


@pytest.mark.parametrize(
    ("path", "chunked"),
    [
        ("list", False),
        ("list_with_length", False),
        ("generator", True),
        ("generator_with_length", False),
        ("generator_with_empty_parts", True),
    ],
)
def test_an_answer_of_unknown_length_is_chunked_for_http_1_1(framing, path, chunked):
    client = framing.connect()
    response = client.request(target=f"/{path}")
    assert response.body == WHOLE
    assert (response.chunks is not None) is chunked
    if chunked:
        assert response.chunks == [b"first ", b"second ", b"third"]
    assert client.request(target="/list").body == WHOLE


@pytest.mark.parametrize("path", ["list", "list_with_length", "generator", "generator_with_length"])
@pytest.mark.parametrize("keep", [False, True])
def test_an_answer_to_http_1_0_is_never_chunked_and_closes_when_its_length_is_unknown(framing, path, keep):
    client = framing.connect()
    client.send(f"GET /{path} HTTP/1.0\r\n{'Connection: keep-alive' if keep else 'X: y'}\r\n\r\n".encode())
    response = client.read_response()
    assert response.body == WHOLE
    assert response.chunks is None
    if keep and path != "generator":
        # RFC 9112 section 9.3: the response to an HTTP/1.0 client must announce persistence.
        assert response.get("connection") == "keep-alive"
        client.send(b"GET /list HTTP/1.0\r\n\r\n")
        assert client.read_response().body == WHOLE
    else:
        assert response.says_close
    assert client.is_closed()


@pytest.mark.parametrize("path", ["nothing", "empty_generator"])
def test_an_empty_answer_has_a_length_of_zero(framing, path):
    client = framing.connect()
    response = client.request(target=f"/{path}")
    assert response.get("content-length") == "0"
    assert client.request(target="/list").body == WHOLE


@pytest.mark.parametrize("path", ["no_content", "no_content_with_length", "no_content_with_body"])
def test_an_answer_204_has_neither_body_nor_length(framing, path):
    client = framing.connect()
    response = client.request(target=f"/{path}")
    assert response.status == 204
    # RFC 9110 section 8.6: no Content-Length in a 204; RFC 9112 section 6.1: no Transfer-Encoding either.
    assert response.get("content-length") is None
    assert response.get("transfer-encoding") is None
    assert client.request(target="/list").body == WHOLE


@pytest.mark.parametrize("path", ["not_modified", "not_modified_with_body"])
def test_an_answer_304_has_no_body(framing, path):
    client = framing.connect()
    response = client.request(target=f"/{path}")
    assert response.status == 304
    assert response.get("etag") == '"x"'
    assert response.get("transfer-encoding") is None
    assert client.request(target="/list").body == WHOLE


@pytest.mark.parametrize("path", ["list", "list_with_length", "generator", "generator_with_length", "not_modified"])
def test_an_answer_to_head_has_no_body(framing, path):
    client = framing.connect()
    response = client.request("HEAD", f"/{path}")
    assert response.status in (200, 304)
    if path.endswith("length"):
        assert response.get("content-length") == str(len(WHOLE))
    client.send(get(b"/list"))
    assert client.read_until(b"HTTP/1.1 200 OK\r\n") == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("path", ["nothing", "empty_generator"])
def test_an_answer_to_head_invents_no_length(framing, path):
    # RFC 9110 section 8.6: if an application omits the body, the length that GET would have is unknown.
    client = framing.connect()
    response = client.request("HEAD", f"/{path}")
    assert response.get("content-length") is None
    assert client.request(target="/list").body == WHOLE


@pytest.mark.parametrize("path", ["list", "generator", "no_content", "not_modified", "own_date_and_server"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_date_is_always_there_and_server_once(framing, path, method):
    client = framing.connect()
    response = client.request(method, f"/{path}")
    assert IMF_DATE.fullmatch(response.get("date"))
    assert response.get("server") == ("mine/1.0" if path.startswith("own") else "bolide")


def test_date_is_there_in_a_refusal(framing):
    client = framing.connect()
    client.send(b"nonsense\r\n\r\n")
    response = client.read_response()
    assert response.status == 400
    assert IMF_DATE.fullmatch(response.get("date"))
    assert len(response.all("server")) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_expect_100_continue_is_answered_before_the_body_comes(echo, chunked):
    client = echo.connect()
    how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 3"
    # Also if the connection has served a request before.
    for _ in range(2):
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + how + b"\r\n\r\n")
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"3\r\nabc\r\n0\r\n\r\n" if chunked else b"abc")
        assert body_of(client.read_response()) == "abc"
    assert client.request().status == 200


def test_expect_100_continue_is_answered_when_the_head_comes_byte_by_byte(echo):
    client = echo.connect()
    client.send_byte_by_byte(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send_byte_by_byte(b"abc")
    assert body_of(client.read_response()) == "abc"


def test_expect_100_continue_is_not_answered_when_the_body_is_there_or_none_is_to_come(echo):
    for data in (
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    ):
        client = echo.connect()
        client.send(data)
        assert client.read_response().status == 200


def test_expect_100_continue_of_a_body_that_is_too_large_is_refused_at_once(serve):
    server = serve("wsgi-file = {apps}/echo.py\nlimit-post = 10")
    client = server.connect()
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n")
    assert client.read_response().status == 413
    assert client.is_closed()


def test_without_keepalive_every_answer_closes(serve):
    server = serve("wsgi-file = {apps}/hello.py\nhttp-keepalive = 0")
    client = server.connect()
    response = client.request()
    assert response.says_close
    assert client.is_closed()


@pytest.fixture
def many_descriptors():
    """Raises the limit for a thousand sockets in this process, and in servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("configuration", ["", "processes = 2\nthreads = 2"])
def test_a_thousand_kept_alive_connections_are_served(many_descriptors, serve, configuration):
    server = serve("wsgi-file = {apps}/framing.py\n" + configuration)
    clients = [server.connect() for _ in range(1000)]
    for turn in range(2):
        for client in clients:
            client.send(get(b"/list"))
        for client in clients:
            response = client.read_response()
            assert (response.status, response.body) == (200, WHOLE), f"turn {turn}"
    for client in clients:
        client.close()


def test_kept_alive_answers_are_not_held_back_by_nagle(framing):
    # Each response of two parts would stall for 40 ms without TCP_NODELAY, 100 of them for 4 s: far longer than they take.
    client = framing.connect()

    def seconds_of_a_hundred():
        began = time.monotonic()
        for _ in range(100):
            assert client.request(target="/generator").body == WHOLE
        return time.monotonic() - began

    assert_once_below(seconds_of_a_hundred, 3)


def test_an_idle_connection_keeps_no_large_head(serve):
    """The cached head of a connection is bounded, so that idle ones are small whatever they have sent."""
    server = serve("wsgi-file = {apps}/framing.py")

    def head_of(client):
        return b"".join(b"X-%d: %b\r\n" % (number, b"%d-%d" % (client, number) * 150) for number in range(20))

    heads = [head_of(client) for client in range(200)]
    size = len(heads[-1])
    assert size > 15_000

    def ask(client, head):
        client.send(get(b"/list", head))
        assert client.read_response().status == 200

    with server.connect() as warm:
        for _ in range(3):
            ask(warm, heads[0])
    before = processes.resident_bytes(server.worker())
    for head in heads:
        client = server.connect()
        for _ in range(2):
            ask(client, head)
    assert processes.resident_bytes(server.worker()) - before < len(heads) * size / 2
