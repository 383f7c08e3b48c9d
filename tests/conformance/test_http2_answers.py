"""The server's own responses over HTTP/2: files, routes, compressed responses, refusals. Each belongs to its stream."""

import gzip
import re
from urllib.parse import urlencode

import pytest
from support.files import assert_same, fill, parts_of, pattern
from support.http2 import MAX_HEADER_LIST_SIZE, Both, Http2, pseudo

LARGE = pattern(6 << 20)
TEXT = b"a text that is long enough to be worth compressing " * 200

CONFIGURATION = """
wsgi-file = {directory}/application.py
static-map = /files={directory}/files
x-sendfile = {directory}/private
compress = gzip
route = ^/gone$ return:410
route = ^/away$ redirect:https://example.com/
route = ^/re/(.*)$ rewrite:/path/$1
response-route = ^/path addheader:X-Routed: yes
buffer-size = 20000
limit-post = 1000
"""

APPLICATION = """
TEXT = b"a text that is long enough to be worth compressing " * 200

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/hands":
        start_response("200 OK", [("X-Sendfile", environ["QUERY_STRING"])])
        return [b""]
    body = TEXT if path == "/text" else path.encode()
    if environ["REQUEST_METHOD"] == "POST":
        body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]
"""


@pytest.fixture(scope="module")
def both(serve_module, tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    fill(directory, {"files/a.txt": b"0123456789", "files/large.bin": LARGE, "private/report.txt": b"the report"})
    (directory / "application.py").write_text(APPLICATION)
    (directory / "tls").mkdir()
    both = Both(serve_module, directory / "tls", CONFIGURATION.replace("{directory}", str(directory)))
    both.directory = directory
    return both


@pytest.fixture(params=["plain", "tls"])
def connection(both, request):
    return both.connect(request.param)


# Files.


def test_a_file_comes_with_its_validators(connection):
    answer = connection.request(target="/files/a.txt")
    assert (answer.status, answer.body, answer.get("content-length")) == (200, b"0123456789", "10")
    assert answer.get("etag")
    again = connection.request(target="/files/a.txt", headers=[("if-none-match", answer.get("etag"))])
    assert (again.status, again.body) == (304, b"")
    assert connection.request("HEAD", "/files/a.txt").get("content-length") == "10"


def test_parts_of_a_file(connection):
    answer = connection.request(target="/files/a.txt", headers=[("range", "bytes=2-4")])
    assert (answer.status, answer.body, answer.get("content-range")) == (206, b"234", "bytes 2-4/10")
    several = connection.request(target="/files/large.bin", headers=[("range", "bytes=0-9,3000000-4000000")])
    assert several.status == 206
    assert [content for _, _, content in parts_of(several)] == [LARGE[:10], LARGE[3_000_000:4_000_001]]
    assert connection.request(target="/files/a.txt", headers=[("range", "bytes=20-")]).status == 416


def test_a_large_file_comes_whole_beside_others(connection):
    large = [connection.begin(target="/files/large.bin") for _ in range(4)]
    small = [connection.begin(target="/files/a.txt") for _ in range(10)]
    connection.finish(*small)
    connection.finish(*large)
    for answer in large:
        assert_same(answer.body, LARGE)
    assert {answer.body for answer in small} == {b"0123456789"}


def test_paths_without_a_file_go_to_the_application(connection):
    assert connection.request(target="/files/nothing").body == b"/files/nothing"
    assert connection.request(target="/files/a.txt").status == 200


def test_a_file_that_the_application_names_is_sent(both, connection):
    answer = connection.request(target=f"/hands?{both.directory}/private/report.txt")
    assert (answer.status, answer.body, answer.all("x-sendfile")) == (200, b"the report", [])


# Routes and filters.


def test_routes_answer_and_rewrite(connection):
    assert connection.request(target="/gone").status == 410
    away = connection.request(target="/away")
    assert (away.status, away.get("location")) == (302, "https://example.com/")
    routed = connection.request(target="/re/x")
    assert (routed.body, connection.request(target="/path/y").get("x-routed")) == (b"/path/x", "yes")


def test_an_answer_is_compressed_for_clients_that_accept_it(connection):
    answer = connection.request(target="/text", headers=[("accept-encoding", "gzip")])
    assert (answer.get("content-encoding"), gzip.decompress(answer.body)) == ("gzip", TEXT)
    assert connection.request(target="/text").body == TEXT


# Limits.


def test_a_body_that_is_too_large_is_413_on_its_stream(connection):
    declared = connection.begin("POST", "/", [("content-length", "1001")], ends=False)
    connection.read_until(lambda: declared.status is not None, "the answer is there")
    assert declared.status == 413
    told_by_its_parts = connection.begin("POST", "/", ends=False)
    connection.send_data(told_by_its_parts, b"x" * 1001)
    connection.read_until(lambda: told_by_its_parts.status is not None, "the answer is there")
    assert told_by_its_parts.status == 413
    assert connection.request("POST", "/", body=b"x" * 1000).body == b"x" * 1000


@pytest.mark.parametrize(
    "fields",
    [
        [("x-long", "a" * 25_000)],
        [(f"x-{number}", "a" * 200) for number in range(120)],
        [(f"x-{number}", "a") for number in range(200)],
    ],
    ids=["long", "much", "many"],
)
def test_a_head_that_is_too_large_is_431_on_its_stream_and_hpack_goes_on(connection, fields):
    answer = connection.begin(headers=fields)
    connection.read_until(lambda: answer.is_over, "the answer is there")
    assert answer.status == 431
    # The fields are in HPACK's table on both sides, whether they were forwarded or not.
    assert connection.request(headers=[("x-1", "a"), *fields[:1]] if len(fields[0][1]) < 1000 else ()).status == 200
    assert connection.request(target="/files/a.txt").status == 200


def test_the_limit_of_a_head_is_announced(connection):
    assert connection.read_settings()[MAX_HEADER_LIST_SIZE] >= 20_000


def test_a_target_that_is_too_long_is_refused_on_its_stream(connection):
    answer = connection.begin(target="/" + "a" * 21_000)
    connection.read_until(lambda: answer.is_over, "the answer is there")
    assert answer.status in (414, 431)
    assert connection.request(target="/files/a.txt").status == 200


@pytest.mark.parametrize("host", ["", "a b", "a/b", "user@a", "a:x", "[::1"])
def test_an_authority_that_is_malformed_is_refused_on_its_stream(connection, host):
    answer = connection.begin_with(pseudo(authority=host))
    connection.read_until(lambda: answer.is_over, "the answer is there")
    assert answer.status == 400 or answer.reset is not None
    assert connection.request(target="/files/a.txt").status == 200


def test_a_host_field_that_differs_from_the_authority_is_refused(connection):
    # RFC 9113 section 8.3.1.
    answer = connection.begin_with([*pseudo(authority="a.example"), ("host", "b.example")])
    connection.read_until(lambda: answer.is_over, "the answer is there")
    assert answer.status == 400 or answer.reset is not None


def test_every_answer_has_a_date(connection):
    for target in ("/", "/files/a.txt", "/gone", "/files/nothing"):
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", connection.request(target=target).get("date"))


# Time limits.


@pytest.fixture(scope="module")
def hasty(serve_module):
    """A server with a timeout of one second for data, and of two for a next request."""
    return serve_module("wsgi-file = {apps}/echo.py\nhttp2 = h2c\nsocket-timeout = 1\nhttp-timeout = 1\nhttp-keepalive = 2")


def test_an_idle_connection_is_sent_away_with_a_good_goaway(hasty):
    connection = Http2(hasty.connect())
    assert connection.request().status == 200
    assert connection.read_end() == 0


def test_a_client_that_says_nothing_after_its_settings_is_sent_away(hasty):
    connection = Http2(hasty.connect())
    assert connection.read_end() == 0


def test_a_frame_that_does_not_come_to_its_end_ends_the_connection(hasty):
    connection = Http2(hasty.connect())
    connection.read_settings()
    connection.send(connection.heads(1, pseudo())[:-3])
    assert connection.read_end() is not None


def test_a_body_that_does_not_come_is_408_on_its_stream_and_others_go_on(hasty):
    connection = Http2(hasty.connect())
    answer = connection.begin("POST", "/", [("content-length", "8")], ends=False)
    connection.send_data(answer, b"half")
    connection.read_until(lambda: answer.is_over, "the request has its time")
    assert answer.status == 408 or answer.reset is not None
    assert connection.request().status == 200


IDLE_APPLICATIONS = {
    "asgi": """
import asyncio
async def application(scope, receive, send):
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await asyncio.sleep(0.1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})
""",
    "wsgi": """
import time
def application(environ, start_response):
    environ["wsgi.input"].read()
    time.sleep(0.1)
    start_response("200 OK", [])
    return [b"fine"]
""",
}


@pytest.fixture(scope="module", params=["asgi", "wsgi 1", "wsgi 4"])
def short(request, serve_module, tmp_path_factory):
    """A server that keeps an idle connection for two seconds (1 would be the default), and whose responses take a moment."""
    kind, _, threads = request.param.partition(" ")
    directory = tmp_path_factory.mktemp("short")
    (directory / "application.py").write_text(IDLE_APPLICATIONS[kind])
    (directory / "tls").mkdir()
    application = f"wsgi-file = {directory}/application.py\nthreads = {threads}"
    if kind == "asgi":
        application = f"asgi = {directory}/application.py\nlifespan = off"
    return Both(serve_module, directory / "tls", f"{application}\nhttp-keepalive = 2\nhttp-timeout = 1\nsocket-timeout = 1")


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_connection_is_sent_away_after_its_last_answer_however_that_came(short, way):
    # The client sends nothing after the requests, not even WINDOW_UPDATE.
    # Each begins as soon as its connection is there, which has its own idle time before the first request.
    connections, answers = [], []
    for _ in range(8):
        connections.append(short.connect(way, gives_back=False))
        answers.append(connections[-1].begin())
    for connection, answer in zip(connections, answers):
        connection.finish(answer)
    # The client sends nothing more: only the end of the last stream starts the idle time.
    assert [connection.read_end() for connection in connections] == [0] * 8


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_a_connection_is_sent_away_after_a_body_that_stopped_and_after_a_reset(short, way):
    # Each begins as soon as its connection is there, which has its own idle time before the first request.
    stopped = short.connect(way, gives_back=False)
    answer = stopped.begin("POST", "/", [("content-length", "8")], ends=False)
    stopped.send_data(answer, b"half")
    taken_back = short.connect(way, gives_back=False)
    taken_back.reset(taken_back.begin())
    stopped.read_until(lambda: answer.is_over, "the request has its time")
    assert [stopped.read_end(), taken_back.read_end()] == [0, 0]


# A route's harakiri.


def test_harakiri_of_one_stream_leaves_the_others(serve):
    server = serve.prepare("asgi = {directory}/slow.py\nlifespan = off\nhttp2 = h2c\nroute = ^/short harakiri:1\nharakiri = 300")
    (server.directory / "slow.py").write_text(
        "import asyncio\n"
        "gate = asyncio.Event()\n"
        "async def application(scope, receive, send):\n"
        "    if scope['path'] == '/short': await asyncio.sleep(60)\n"
        "    if scope['path'] == '/long': await gate.wait()\n"
        "    if scope['path'] == '/open': gate.set()\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'fine'})\n"
    )
    connection = Http2(server.start().connect())
    long, short = connection.begin(target="/long"), connection.begin(target="/short")
    assert connection.finish(short).status == 504
    assert connection.request(target="/open").body == b"fine"
    assert connection.finish(long).body == b"fine"


def test_urlencoded_names_of_files_are_found(both, connection):
    assert connection.request(target="/files/%61.txt?" + urlencode({"v": "1"})).body == b"0123456789"
