"""WSGI applications over HTTP/2, with and without TLS: environ, bodies, failures, and fairness between streams."""

import hashlib
import json
import os

import pytest
from support.http2 import CANCEL, INTERNAL_ERROR, Both, Reset

MEGABYTE = bytes(range(256)) * 4096
WAYS = ["plain", "tls"]
#: Number of threads for the calls of a connection's streams: one, and several.
THREADS = ["threads = 1", "threads = 4"]


def make(serve_module, tmp_path_factory, application, more=""):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), f"wsgi-file = {{apps}}/{application}.py\n{more}")


@pytest.fixture(scope="module", params=THREADS)
def echo(request, serve_module, tmp_path_factory):
    return make(serve_module, tmp_path_factory, "echo", request.param)


@pytest.fixture(scope="module", params=THREADS)
def streams(request, serve_module, tmp_path_factory):
    return make(serve_module, tmp_path_factory, "streams", f"{request.param}\npost-buffering = 10000")


@pytest.fixture(scope="module", params=THREADS)
def answers(request, serve_module, tmp_path_factory):
    return make(serve_module, tmp_path_factory, "answers", request.param)


@pytest.fixture(scope="module")
def failures(serve_module, tmp_path_factory):
    return make(serve_module, tmp_path_factory, "failures")


def environ_of(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)["environ"]


@pytest.mark.parametrize("way", WAYS)
def test_environ_says_http_2_and_the_scheme(echo, way):
    connection = echo.connect(way)
    environ = environ_of(connection.request(target="/a%20b/c?x=%20y", authority="example.com:8443", headers=[("x-a", "1")]))
    assert (environ["SERVER_PROTOCOL"], environ["REQUEST_METHOD"]) == ("HTTP/2.0", "GET")
    assert environ["wsgi.url_scheme"] == {"plain": "http", "tls": "https"}[way]
    assert (environ["PATH_INFO"], environ["QUERY_STRING"], environ["REQUEST_URI"]) == ("/a b/c", "x=%20y", "/a%20b/c?x=%20y")
    assert environ["RAW_URI"] == "/a%20b/c?x=%20y"
    assert (environ["HTTP_HOST"], environ["HTTP_X_A"], environ["REMOTE_ADDR"]) == ("example.com:8443", "1", "127.0.0.1")
    assert not [name for name in environ if ":" in name]
    assert environ.get("HTTPS") == {"plain": None, "tls": "on"}[way]


@pytest.mark.parametrize("scheme", ["javascript", "ftp", "ws", "httpx"])
def test_another_scheme_reaches_no_application(echo, scheme):
    connection = echo.connect("plain")
    target = f"/scheme/{scheme}"
    answer = connection.request(target=target, scheme=scheme)
    assert (answer.status, target in echo.server.log) == (400, False)
    assert environ_of(connection.request(scheme="HTTPS"))["wsgi.url_scheme"] == "http"


def test_cookies_are_one_variable_again(echo):
    answer = echo.connect("plain").request(headers=[("cookie", "a=b"), ("cookie", "c=d")])
    assert environ_of(answer)["HTTP_COOKIE"] == "a=b; c=d"


def test_nothing_of_one_request_reaches_the_next(echo):
    connection = echo.connect("plain")
    for fields in ([("x-a", "1")], [], [("x-a", "2"), ("cookie", "c=d")], [("x-a", "2"), ("cookie", "c=d")], [("x-b", "1")]):
        environ = environ_of(connection.request(headers=fields))
        found = {name: value for name, value in environ.items() if name.startswith(("HTTP_X_", "HTTP_COOKIE"))}
        assert found == {"HTTP_" + name.upper().replace("-", "_"): value for name, value in fields}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, 1, 16385, 100_000, 3_000_000])
def test_a_body_comes_whole_with_a_length_and_without(echo, way, size):
    connection = echo.connect(way)
    body = os.urandom(size).hex().encode()
    for declared in (True, False):
        fields = [("content-length", str(len(body)))] if declared else []
        answer = connection.begin("POST", "/", fields, ends=False)
        connection.send_body(answer, body)
        told = json.loads(connection.finish(answer).body)
        assert hashlib.sha256(told["body"].encode()).hexdigest() == hashlib.sha256(body).hexdigest()
        assert told["environ"].get("CONTENT_LENGTH") in ((str(len(body)),) if declared else (None, "", str(len(body))))


def test_bodies_of_several_streams_come_at_once(echo):
    connection = echo.connect("plain")
    bodies = [os.urandom(50_000).hex() for _ in range(6)]
    started = [connection.begin("POST", "/", ends=False) for _ in bodies]
    for place in range(0, 100_000, 10_000):
        for answer, body in zip(started, bodies, strict=True):
            connection.send_body(answer, body[place : place + 10_000].encode(), ends=place == 90_000)
    connection.finish(*started)
    assert [json.loads(answer.body)["body"] for answer in started] == bodies


@pytest.mark.parametrize("way", WAYS)
def test_every_stream_is_served_although_one_thread_takes_them_one_by_one(echo, way):
    connection = echo.connect(way)
    for _ in range(5):
        started = [connection.begin(target=f"/?{number}") for number in range(50)]
        connection.finish(*started)
        assert [environ_of(answer)["QUERY_STRING"] for answer in started] == [str(number) for number in range(50)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "path", ["list", "tuple", "generator", "start_in_generator", "iterable_class", "headers_as_tuple", "keywords"]
)
def test_an_answer_of_any_shape_comes_whole(answers, way, path):
    connection = answers.connect(way)
    for _ in range(2):
        answer = connection.request(target=f"/{path}")
        assert (answer.status, answer.body) == (200, b"one two three")
        assert connection.request("HEAD", f"/{path}").body == b""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["large_parts", "small_parts", "one_part", "file"])
def test_a_large_answer_comes_whole(streams, way, kind):
    answer = streams.connect(way).request(target=f"/{kind}?7")
    # The content of `large_parts` restarts with each part, so only their length is the same for all.
    assert len(answer.body) == 7 * len(MEGABYTE)
    if kind in ("one_part", "file"):
        assert hashlib.sha256(answer.body).hexdigest() == hashlib.sha256(MEGABYTE * 7).hexdigest()


def test_large_answers_of_several_streams_come_at_once(streams):
    connection = streams.connect("plain")
    started = [
        connection.begin(target=f"/{kind}?5&{number}") for number, kind in enumerate(["large_parts", "file", "one_part"] * 3)
    ]
    connection.finish(*started)
    assert {len(answer.body) for answer in started} == {5 * len(MEGABYTE)}


def test_requests_of_one_connection_run_on_as_many_threads_as_there_are(serve, tmp_path):
    both = Both(serve, tmp_path, "wsgi-file = {apps}/blocking.py\nthreads = 8")
    connection = both.connect("plain")
    answers = [connection.begin(target="/meet?8") for _ in range(8)]
    assert [connection.finish(answer).body for answer in answers] == [b"met 8"] * 8


def test_with_several_threads_a_call_that_blocks_holds_up_no_other_connection(serve, tmp_path):
    both = Both(serve, tmp_path, "wsgi-file = {apps}/streams.py\nthreads = 4")
    connection = both.connect("plain")
    blocked = connection.begin(target="/block")
    other = both.connect("plain")
    assert other.request(target="/given").status == 200
    assert not blocked.is_over
    assert other.request(target="/unblock").status == 200
    assert connection.finish(blocked).body == b"unblocked"


def test_a_reset_of_a_stream_that_waits_closes_its_iterable(streams):
    connection = streams.connect("plain", gives_back=False)
    answer = connection.begin(target="/large_parts?500&left")
    connection.read_until(lambda: answer.received > 60_000, "the window is full")
    connection.reset(answer)
    streams.server.wait_for_log("^closed 500&left$")
    connection.gives_back = True
    connection.open_window(0, 100_000)
    assert connection.request(target="/fine").body == b"fine"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["exception", "none", "number", "exception_before_first_part", "never_started_with_body"])
def test_an_application_that_fails_is_500_on_its_stream_alone(failures, way, path):
    connection = failures.connect(way)
    started = [connection.begin(target=target) for target in ("/fine", f"/{path}", "/fine")]
    connection.finish(*started)
    assert [answer.status for answer in started] == [200, 500, 200]
    assert connection.request(target="/fine").body == b"fine"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", ["exception_mid_stream", "exception_mid_stream_with_length", "exception_after_write"])
def test_an_answer_that_is_cut_off_is_a_reset_and_no_end(failures, way, path):
    connection = failures.connect(way)
    with pytest.raises(Reset) as reset:
        connection.request(target=f"/{path}")
    assert reset.value.code in (INTERNAL_ERROR, CANCEL)
    assert connection.request(target="/fine").body == b"fine"


@pytest.mark.parametrize("way", WAYS)
def test_the_request_line_says_http_2(echo, way):
    echo.connect(way).request("GET", f"/of/{way}?a=b")
    echo.server.wait_for_log(rf"GET /of/{way}\?a=b => generated \d+ bytes in \d+ msecs \(HTTP/2\.0 200\)")


def test_an_application_cannot_take_the_connection_of_a_stream(serve, tmp_path):
    (tmp_path / "taking.py").write_text(
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [str('gunicorn.socket' in environ).encode()]\n"
    )
    both = Both(serve, tmp_path, f"wsgi-file = {tmp_path}/taking.py")
    assert both.connect("plain").request().body == b"False"
