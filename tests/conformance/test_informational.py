"""`http.response.informational` (`asgi-extensions = informational`): responses of the application with a status from 102 to 199,
before its response.
"""

import json

import pytest
from support import fastcgi, scgi, uwsgi
from support.http2 import Both

APPLICATION = """
import json

PROGRESS = [(b"Upload-Offset", b"5"), (b"x-second", b"2")]


def informational(status, headers=()):
    return {"type": "http.response.informational", "status": status, "headers": headers}


async def answer(send, text):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


#: Messages that are refused.
MISTAKES = {
    "100": informational(100),
    "101": informational(101),
    "200": informational(200),
    "99": informational(99),
    "0": informational(0),
    "-1": informational(-1),
    "65639": informational(65536 + 103),
    "text": informational("103"),
    "none": {"type": "http.response.informational"},
    "newline": informational(103, [(b"link", b"</a>\\r\\nx-injected: 1")]),
    "name": informational(103, [(b"li nk", b"a")]),
    "pseudo": informational(103, [(b":status", b"200")]),
    "length": informational(103, [(b"content-length", b"4")]),
    "connection": informational(103, [(b"Connection", b"close")]),
    "str": informational(103, [("link", b"</a>")]),
    "number": informational(103, [(b"link", 4)]),
    "long": informational(103, [(b"x-long", b"x" * 40_000), (b"x-longer", b"x" * 40_000)]),
}


async def at_status(scope, receive, send):
    await send(informational(int(scope["query_string"]), PROGRESS))
    await answer(send, b"page")


async def at_mistake(scope, receive, send):
    try:
        await send(MISTAKES[scope["query_string"].decode()])
    except Exception as error:
        return await answer(send, f"{type(error).__name__}: {error}".encode())
    await answer(send, b"nothing was raised")


async def at_late(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    try:
        await send(informational(103))
    except RuntimeError as error:
        print(error, flush=True)
    await send({"type": "http.response.body", "body": b"page"})


async def at_upload(scope, receive, send):
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        if message.get("body"):
            await send(informational(104, [(b"upload-offset", b"%d" % length)]))
    await answer(send, b"%d" % length)


async def at_many(scope, receive, send):
    for number in range(100):
        await send(informational(199, [(b"x-number", b"%d" % number)]))
    await answer(send, b"page")


async def at_extensions(scope, receive, send):
    await answer(send, json.dumps(scope["extensions"]).encode())


async def application(scope, receive, send):
    if scope["type"] == "http":
        await globals()["at_" + scope["path"].strip("/")](scope, receive, send)
"""


def prepare(serve, directory):
    """Returns the options of the application."""
    path = directory / "informing.py"
    path.write_text(APPLICATION)
    return f"asgi = {path}\nasgi-extensions = informational"


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request, serve_module, tmp_path_factory):
    options = prepare(serve_module, tmp_path_factory.mktemp("informing"))
    listen = ["http-socket", "uwsgi-socket", "fastcgi-socket", "scgi-socket"]
    return serve_module(f"{options}\nloop = {request.param}", listen=[f"{kind} = 127.0.0.1:0" for kind in listen])


@pytest.fixture(scope="module")
def both(serve_module, tmp_path_factory):
    directory = tmp_path_factory.mktemp("informing")
    return Both(serve_module, directory, prepare(serve_module, directory))


@pytest.fixture(params=["plain", "tls"])
def connection(both, request):
    return both.connect(request.param)


def ask(client, target, method="GET", version="1.1"):
    client.send(f"{method} {target} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())


# HTTP/1.


@pytest.mark.parametrize(
    ("status", "reason"),
    [(102, "Processing"), (103, "Early Hints"), (104, "Upload Resumption Supported"), (150, ""), (199, "")],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_it_precedes_the_response(server, method, status, reason):
    with server.connect() as client:
        for _ in range(2):
            ask(client, f"/status?{status}", method)
            first = client.read_head()
            assert (first.status, first.reason) == (status, reason)
            assert first.headers == [("upload-offset", "5"), ("x-second", "2")]
            response = client.read_response(method)
            assert (response.status, response.body) == (200, b"page" if method == "GET" else b"")


def test_a_client_of_http_1_0_gets_none(server):
    with server.connect() as client:
        ask(client, "/status?104", version="1.0")
        response = client.read_response()
        assert (response.status, response.body) == (200, b"page")


@pytest.mark.parametrize("protocol", [("uwsgi", uwsgi), ("fastcgi", fastcgi), ("scgi", scgi)], ids=lambda pair: pair[0])
def test_a_reverse_proxy_of_another_protocol_gets_none(server, protocol):
    scheme, module = protocol
    answer = module.ask(server.address(scheme), target="/status?104")
    assert (answer.status, answer.body) == (200, b"page")


def test_it_is_among_the_extensions(server):
    assert "http.response.informational" in json.loads(server.get("/extensions").body)


def test_it_reports_the_progress_of_a_body(server):
    with server.connect() as client:
        client.send(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        for part, offset in [(b"abc", "3"), (b"defg", "7"), (b"hi", "9")]:
            client.send(part)
            head = client.read_head()
            assert (head.status, head.get("upload-offset")) == (104, offset)
        assert client.read_response().body == b"9"


def test_a_body_that_was_expected_is_asked_for_before(server):
    with server.connect() as client:
        client.send(b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.read_head().status == 100
        client.send(b"abc")
        assert client.read_head().status == 104
        assert client.read_response().body == b"3"


def test_a_hundred_arrive_in_order(server):
    with server.connect() as client:
        ask(client, "/many")
        assert [client.read_head().get("x-number") for _ in range(100)] == [str(number) for number in range(100)]
        assert client.read_response().body == b"page"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("100", "ValueError: the informational response is refused: 100 is sent by the server"),
        ("101", "ValueError: the informational response is refused: 101 changes the protocol"),
        *(
            (name, "ValueError: the informational response is refused: the status of an informational response is between")
            for name in ("200", "99", "0", "-1", "65639")
        ),
        ("text", "TypeError: 'status' must be an int, not str"),
        ("none", "TypeError: 'status' must be an int"),
        ("newline", "ValueError: the informational response is refused: a field's name is not a token, or its value contains"),
        ("name", "ValueError: the informational response is refused: a field's name is not a token"),
        ("pseudo", "ValueError: the informational response is refused: a field's name is not a token"),
        ("length", "ValueError: the informational response is refused: a field belongs to the server"),
        ("connection", "ValueError: the informational response is refused: a field belongs to the server"),
        ("str", "TypeError: "),
        ("number", "TypeError: "),
        ("long", "ValueError: the informational response is refused: its fields have more than 64 KiB"),
    ],
)
def test_a_wrong_one_is_an_exception_and_nothing_of_it_is_sent(server, name, words):
    with server.connect() as client:
        for version in ("1.1", "1.0"):
            client.send(f"GET /mistake?{name} HTTP/{version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n".encode())
            response = client.read_response()
            assert (response.status, response.get("x-injected")) == (200, None)
            assert response.text.startswith(words)


def test_it_must_precede_the_start_of_the_response(server):
    with server.connect() as client:
        ask(client, "/late")
        assert client.read_response().body == b"page"
    server.wait_for_text("'http.response.informational' must precede 'http.response.start'")


# HTTP/2.


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("status", [102, 103, 104, 199])
def test_it_precedes_the_response_on_a_stream(connection, method, status):
    answer = connection.request(method, f"/status?{status}")
    assert answer.interim == [(status, [("upload-offset", "5"), ("x-second", "2")])]
    assert (answer.status, answer.body) == (200, b"page" if method == "GET" else b"")


def test_it_reports_the_progress_of_a_body_on_a_stream(connection):
    answer = connection.begin("POST", "/upload", [("content-length", "5")], ends=False)
    connection.send_data(answer, b"abc")
    connection.read_until(lambda: answer.interim, "the first offset is there")
    connection.send_data(answer, b"de", ends=True)
    assert connection.finish(answer).body == b"5"
    assert answer.interim == [(104, [("upload-offset", "3")]), (104, [("upload-offset", "5")])]


@pytest.mark.parametrize("name", ["100", "101", "200", "newline", "pseudo", "length", "connection", "long"])
def test_a_wrong_one_is_not_sent_on_a_stream(connection, name):
    answer = connection.request(target=f"/mistake?{name}")
    assert (answer.status, answer.interim) == (200, [])
    assert answer.text.startswith("ValueError: the informational response is refused")
