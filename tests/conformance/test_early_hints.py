"""`environ["wsgi.early_hints"]`, as under gunicorn: 103 before the response of a WSGI application."""

import pytest

APPLICATION = """
from urllib.parse import parse_qsl

def app(environ, start_response):
    hints = environ.get("wsgi.early_hints")
    if hints is None:
        start_response("200 OK", [("Content-Length", "6")])
        return [b"absent"]
    for name, value in parse_qsl(environ["QUERY_STRING"]):
        hints([(name, value)])
    hints([("Link", "</style.css>; rel=preload"), (b"X-Second", b"2")])
    start_response("200 OK", [("Content-Type", "text/plain")])
    hints([("X-Between", "1")])

    def parts():
        yield b"one"
        hints([("X-Late", "1")])
        yield b" two"

    return parts()
"""
LINE = ["--bind", "127.0.0.1:0", "app:app"]


@pytest.fixture(params=[[], ["-k", "gevent"]], ids=["threads", "gevent"])
def server(request, serve):
    server = serve.prepare(arguments=[*LINE, *request.param])
    (server.directory / "app.py").write_text(APPLICATION)
    return server.start()


def test_early_hints_precede_the_response_and_late_ones_are_ignored(server):
    with server.connect() as client:
        for _ in range(2):
            client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            first = client.read_head()
            assert (first.status, first.get("link"), first.get("x-second")) == (103, "</style.css>; rel=preload", "2")
            second = client.read_head()
            assert (second.status, second.get("x-between")) == (103, "1")
            response = client.read_response()
            assert (response.status, response.body, response.get("x-late")) == (200, b"one two", None)


def test_a_client_of_http_1_0_gets_none(server):
    with server.connect() as client:
        client.send(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert client.read_response().body == b"one two"


@pytest.mark.parametrize("query", ["X-A=b%0d%0ac", "Bad%20Name=1", "Content-Length=5", "Connection=close"])
def test_a_malformed_hint_is_an_error(server, query):
    assert server.get(f"/?{query}").status == 500
    server.wait_for_text("ValueError: the early hint is refused")


def test_an_application_under_options_of_uwsgi_has_none(serve):
    server = serve.prepare("module = app:app")
    (server.directory / "app.py").write_text(APPLICATION)
    assert server.start().get("/").body == b"absent"
