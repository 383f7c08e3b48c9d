"""Options for header fields of responses, error pages, and the application that SCRIPT_NAME selects."""

import json

import pytest
from support import uwsgi

OPTIONS = r"""
    add-header = X-Frame-Options: DENY
    add-header = Server: of my own
    add-header = X-Twice: 1
    add-header = X-Twice: 2
    add-header = Connection: keep-alive
    del-header = content-type
    rem-header = X-Powered-By
"""


@pytest.fixture(scope="module", params=["wsgi", "asgi"])
def server(serve_module, request):
    callable_name = "callable = asgi\n" if request.param == "asgi" else ""
    return serve_module("wsgi-file = {apps}/compressible.py\n" + callable_name + OPTIONS)


def test_fields_are_added_and_taken_out(server):
    client = server.connect()
    for _ in range(2):
        response = client.request("GET", "/short?X-Powered-By=me&X-Other=kept")
        assert response.all("x-frame-options") == ["DENY"]
        assert response.all("server") == ["of my own"]
        assert response.all("x-twice") == ["1", "2"]
        assert response.all("x-other") == ["kept"]
        assert [response.get(name) for name in ("content-type", "x-powered-by", "connection")] == [None, None, None]
        assert response.body == b"short"


def test_they_hold_for_head_and_for_answers_without_a_body(server):
    client = server.connect()
    for method, target in (("HEAD", "/short"), ("GET", "/nothing"), ("GET", "/unchanged")):
        assert client.request(method, target).get("x-frame-options") == "DENY"


def test_what_add_header_can_not_do_is_said(serve):
    server = serve("wsgi-file = {apps}/hello.py\nadd-header = Connection: keep-alive")
    server.wait_for_text("`add-header = Connection: …` has no effect: the server manages connections")
    for wrong, said in (
        ("add-header = X-No-Colon", "has no colon"),
        ("add-header = A B: c", "`A B` is not a name of a header field"),
        ("add-header = Content-Length: 5", "the server sets `Content-Length` itself"),
        ("collect-header = Content-Type", "does not contain a variable"),
        ("compress = lzma", "`lzma` is not a way to compress"),
    ):
        refused = serve.prepare("wsgi-file = {apps}/hello.py\n" + wrong).launch()
        assert refused.wait_for_exit() != 0
        assert f"uwsgi.ini:4: error: {wrong.split(' =')[0]}" in refused.log or said in refused.log
        refused.wait_for_text(said)


def test_lengths_are_the_servers(serve):
    """The bytes after the head match the head, whatever a rule removes from it."""
    server = serve.prepare(
        "wsgi-file = {apps}/compressible.py\ndel-header = Content-Length\nroute-run = delheader:Content-Length\n"
        "response-route-run = delheader:${NAME}\nroute-run = addvar:NAME=content-length\nstatic-map = /s={directory}/files\n"
        "pull-header = Content-Length LENGTH\nroute = ^/own$ return:404"
    )
    (server.directory / "files").mkdir()
    for name, size in (("small.txt", 10), ("large.txt", 100_000)):
        (server.directory / "files" / name).write_bytes(b"x" * size)
    client = server.start().connect()
    for target, length in (("/short", 5), ("/s/small.txt", 10), ("/s/large.txt", 100_000), ("/own", 9), ("/short", 5)):
        response = client.request("GET", target)
        assert (response.get("content-length"), len(response.body)) == (str(length), length), target
    for said in ("`del-header = Content-Length` has no effect", "`delheader:Content-Length` has no effect"):
        server.wait_for_text(said)


def test_server_and_date_can_be_taken_out(serve):
    response = serve("wsgi-file = {apps}/hello.py\ndel-header = Server\ndel-header = Date").connect().request("GET", "/")
    assert (response.status, response.get("server"), response.get("date")) == (200, None, None)


def test_error_pages_take_the_place_of_the_servers_own_words(serve):
    server = serve.prepare(
        "wsgi-file = {apps}/failures.py\nerror-page-500 = {directory}/missing.html\nerror-page-500 = {directory}/500.html\n"
        "error-page-404 = {directory}/404.html\nroute = ^/gone return:404\nerror-page-403 = {directory}/403.html\n"
        "route = ^/no return:403\nroute = ^/kept return:410\nadd-header = X-All: 1"
    )
    (server.directory / "500.html").write_text("<h1>It broke</h1>")
    (server.directory / "403.html").write_text("<h1>Not for you</h1>")
    (server.directory / "404.html").write_text("<h1>Not here</h1>")
    client = server.start().connect()
    response = client.request("GET", "/exception")
    assert (response.status, response.get("content-type"), response.text) == (500, "text/html", "<h1>It broke</h1>")
    assert response.get("x-all") == "1"
    response = client.request("GET", "/gone")
    assert (response.status, response.get("content-type"), response.text) == (404, "text/html", "<h1>Not here</h1>")
    response = client.request("GET", "/no")
    assert (response.status, response.get("content-type"), response.text) == (403, "text/html", "<h1>Not for you</h1>")
    assert client.request("GET", "/kept").text == "Gone"
    assert client.request("HEAD", "/gone").get("content-length") == str(len("<h1>Not here</h1>"))


@pytest.mark.parametrize("ignored", [True, False])
def test_ignore_script_name_takes_the_application_of_no_mount(serve, ignored):
    server = serve(
        "wsgi-file = {apps}/echo.py\nmount = /app={apps}/hello.py\n" + ("ignore-script-name = true" if ignored else ""),
        listen=("socket = 127.0.0.1:0",),
    )
    answer = uwsgi.ask(server.address("uwsgi"), extra=[("SCRIPT_NAME", "/app")])
    is_echo = answer.body.startswith(b"{") and json.loads(answer.body)["environ"]["SCRIPT_NAME"] == "/app"
    assert is_echo == ignored


def test_a_websocket_handshake_is_not_disturbed(serve):
    """Fields are added to it; response routes can't turn it into another response."""
    server = serve.prepare(
        "wsgi-file = {directory}/chat.py\ncompress = gzip\nadd-header = X-All: 1\nresponse-route-run = clearheaders:404"
    )
    (server.directory / "chat.py").write_text(
        "async def application(scope, receive, send):\n"
        "    if scope['type'] != 'websocket': raise NotImplementedError\n"
        "    await receive(); await send({'type': 'websocket.accept'})\n"
        "    await send({'type': 'websocket.send', 'text': 'hello'})\n"
        "    await receive()\n"
    )
    client = server.start().connect()
    fields = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    client.send(f"GET / HTTP/1.1\r\nHost: x\r\n{fields}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
    head = client.read_head()
    assert (head.status, head.get("x-all"), head.get("sec-websocket-accept")) == (101, "1", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    assert client.read_exactly(7) == b"\x81\x05hello"
