"""Header options, error pages and compression apply to static files as they do to the application's responses."""

import gzip
import os
import zlib

import brotli
import pytest
import zstandard
from support.client import Client
from support.files import fill
from support.uwsgi import ask as ask_uwsgi

TEXT = b"".join(b"rule-%d { color: #%06x }\n" % (number, number) for number in range(20_000))
NOISE = os.urandom(30_000)
SMALL = TEXT[:9_000]
FILES = {
    "small.css": SMALL,
    "large.css": TEXT,
    "tiny.css": b"a {}",
    "noise.txt": NOISE,
    "picture.png": TEXT[:40_000],
    "ready.css": TEXT[:50_000],
    "ready.css.gz": gzip.compress(TEXT[:50_000]),
    "none.css": b"",
}
LISTEN = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")
OPTIONS = """
    static-map = /s={directory}/files
    static-gzip-all = true
    static-serve = only
    route = ^/r/(.*)$ static:{directory}/files/$1
    compress = br,zstd,gzip
    add-header = X-Frame-Options: DENY
    del-header = Last-Modified
    response-route-status = 200 addheader:X-Status: ${uwsgi[status]}
    error-page-404 = {directory}/404.html
"""


def decoded(coding, body):
    if coding == "gzip":
        return gzip.decompress(body)
    return brotli.decompress(body) if coding == "br" else zstandard.ZstdDecompressor().decompressobj().decompress(body)


@pytest.fixture(scope="module", params=["application", "asgi"])
def server(serve_module, request):
    application = f"wsgi-file = {{apps}}/compressible.py\ncallable = {request.param}\n"
    server = serve_module(application + OPTIONS, listen=LISTEN)
    fill(server.directory / "files", FILES)
    (server.directory / "404.html").write_text("<h1>Not here</h1>")
    return server


def ask(server, target, accept="gzip", method="GET", headers=()):
    with Client(server.address()) as client:
        return client.request(method, target, [("Accept-Encoding", accept), *headers])


@pytest.mark.parametrize("place", ["/s", "/r"])
@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
@pytest.mark.parametrize("name", ["small.css", "large.css"])
def test_text_is_compressed_by_type(server, place, name, coding):
    response = ask(server, f"{place}/{name}", coding)
    assert (response.get("content-encoding"), response.get("vary")) == (coding, "Accept-Encoding")
    assert decoded(coding, response.body) == FILES[name]
    assert len(response.body) < len(FILES[name]) / 2
    # It is a different representation than the file itself.
    assert response.get("etag").startswith('W/"')
    assert response.get("accept-ranges") is None
    assert (response.get("content-length") is not None) == (name == "small.css")


def test_files_not_worth_compressing_are_sent_unchanged(server):
    for name in ("tiny.css", "picture.png", "none.css"):
        response = ask(server, f"/s/{name}")
        assert (response.get("content-encoding"), response.get("vary"), response.body) == (None, None, FILES[name]), name
        assert response.get("accept-ranges") == "bytes"
        assert response.get("etag").startswith('"')
    identity = ask(server, "/s/large.css", "identity")
    assert (identity.get("content-encoding"), identity.get("vary"), identity.body) == (None, "Accept-Encoding", TEXT)


def test_compressed_files_are_not_compressed_again(server):
    response = ask(server, "/s/ready.css", "gzip")
    assert (response.get("content-encoding"), response.body) == ("gzip", FILES["ready.css.gz"])
    assert response.all("vary") == ["Accept-Encoding"]
    assert response.get("content-length") == str(len(response.body))
    # For a client that accepts only another coding, the original is compressed.
    response = ask(server, "/s/ready.css", "br")
    assert (response.get("content-encoding"), decoded("br", response.body)) == ("br", FILES["ready.css"])
    assert response.all("vary") == ["Accept-Encoding"]
    # The compressed file under its own name is an ordinary file.
    assert ask(server, "/s/ready.css.gz").body == FILES["ready.css.gz"]


def test_a_part_is_one_of_the_file_itself(server):
    for name in ("small.css", "large.css"):
        response = ask(server, f"/s/{name}", headers=[("Range", "bytes=100-1999")])
        assert (response.status, response.get("content-encoding"), response.body) == (206, None, FILES[name][100:2000])
        response = ask(server, f"/s/{name}", headers=[("Range", "bytes=0-1,5-6")])
        assert (response.status, response.get("content-encoding")) == (206, None)
        assert response.get("x-frame-options") == "DENY"


def test_a_client_that_has_it_already_is_told_so(server):
    for name in ("small.css", "large.css"):
        tag = ask(server, f"/s/{name}").get("etag")
        same = ask(server, f"/s/{name}", headers=[("If-None-Match", tag)])
        assert (same.status, same.get("etag"), same.get("vary"), same.body) == (304, tag, "Accept-Encoding", b"")
    tag = ask(server, "/s/picture.png").get("etag")
    same = ask(server, "/s/picture.png", headers=[("If-None-Match", tag)])
    assert (same.status, same.get("etag"), same.get("vary")) == (304, tag, None)
    tag = ask(server, "/s/ready.css").get("etag")
    same = ask(server, "/s/ready.css", headers=[("If-None-Match", tag)])
    assert (same.status, same.get("etag"), same.all("vary")) == (304, tag, ["Accept-Encoding"])


def test_head_has_the_fields_of_get(server):
    for name in ("small.css", "large.css", "picture.png", "ready.css"):
        head, get = (ask(server, f"/s/{name}", method=method) for method in ("HEAD", "GET"))
        for field in ("content-encoding", "vary", "etag", "x-frame-options", "x-status", "content-type"):
            assert head.get(field) == get.get(field), (name, field)


def test_fields_are_added_and_taken_out(server):
    for name in ("tiny.css", "large.css", "picture.png"):
        for accept in ("gzip", "identity"):
            response = ask(server, f"/s/{name}", accept)
            assert [response.get(field) for field in ("x-frame-options", "x-status", "last-modified")] == ["DENY", "200", None]


def test_a_connection_goes_on_whatever_was_sent(server):
    with Client(server.address()) as client:
        for name in ("large.css", "tiny.css", "small.css", "large.css", "picture.png", "ready.css", "none.css", "large.css"):
            response = client.request("GET", f"/s/{name}", [("Accept-Encoding", "gzip")])
            body = gzip.decompress(response.body) if response.get("content-encoding") else response.body
            assert body == FILES[name], name


def test_a_slow_client_gets_all_of_it(server):
    with Client(server.address(), receive_bytes=4096) as client:
        client.send(b"GET /s/large.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        assert gzip.decompress(client.read_response().body) == TEXT


def test_older_clients_and_reverse_proxies_get_it_too(server):
    with Client(server.address()) as client:
        client.send(b"GET /s/large.css HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
        assert gzip.decompress(client.read_response().body) == TEXT
    answer = ask_uwsgi(server.address("uwsgi"), "GET", "/s/large.css", extra=[("HTTP_ACCEPT_ENCODING", "gzip")])
    assert gzip.decompress(answer.body) == TEXT


def test_an_error_page_takes_the_place_of_the_servers_words(server):
    for place in ("/s", "/r"):
        response = ask(server, f"{place}/nothing")
        assert (response.status, response.get("content-type"), response.text) == (404, "text/html", "<h1>Not here</h1>")
        assert response.get("x-frame-options") == "DENY"
        assert ask(server, f"{place}/nothing", method="HEAD").get("content-length") == str(len("<h1>Not here</h1>"))


def test_a_file_that_shrinks_while_it_is_compressed_is_not_taken_for_whole(server):
    path = server.directory / "files" / "shrinking.css"
    path.write_bytes(TEXT * 40)
    with Client(server.address(), receive_bytes=4096) as client:
        client.send(b"GET /s/shrinking.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        assert client.read_head().get("content-encoding") == "gzip"
        os.truncate(path, 1000)
        data = client.read_to_end()
    assert not data.endswith(b"0\r\n\r\n")


FILE_APP = """
import os

def application(environ, start_response):
    path = os.path.join(os.path.dirname(__file__), "body.css")
    start_response("200 OK", [("Content-Type", "text/css")])
    return environ["wsgi.file_wrapper"](open(path, "rb"))

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    path = os.path.join(os.path.dirname(__file__), "body.css")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/css")]})
    await send({"type": "http.response.pathsend", "path": path})
"""


@pytest.mark.parametrize("callable_name", ["application", "asgi"])
def test_files_that_the_application_hands_over_are_compressed_too(serve, callable_name):
    server = serve.prepare(f"wsgi-file = {{directory}}/app.py\ncallable = {callable_name}\ncompress = gzip")
    (server.directory / "app.py").write_text(FILE_APP)
    (server.directory / "body.css").write_bytes(TEXT)
    server.start()
    for _ in range(2):
        response = ask(server, "/")
        assert (response.get("content-encoding"), gzip.decompress(response.body)) == ("gzip", TEXT)
    assert ask(server, "/", "identity").body == TEXT
    assert ask(server, "/", method="HEAD").get("content-encoding") == "gzip"


def test_nothing_is_changed_unless_it_is_asked_for(serve):
    server = serve.prepare("wsgi-file = {apps}/hello.py\nstatic-map = /s={directory}/files")
    fill(server.directory / "files", FILES)
    server.start()
    for name in ("small.css", "large.css"):
        response = ask(server, f"/s/{name}")
        assert (response.get("content-encoding"), response.get("vary"), response.body) == (None, None, FILES[name])
        assert response.get("content-length") == str(len(FILES[name]))


def test_data_is_sent_while_the_rest_is_compressed(server):
    """A large file is not compressed as a whole before its first byte leaves."""
    path = server.directory / "files" / "huge.css"
    path.write_bytes(TEXT * 20)
    with Client(server.address(), receive_bytes=4096) as client:
        client.send(b"GET /s/huge.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        client.read_head()
        feed, text = zlib.decompressobj(31), b""
        chunks = client.read_chunks()
        while not text:
            text += feed.decompress(next(chunks))
        assert TEXT.startswith(text[: len(TEXT)])
        # Other clients are served in the meantime.
        assert ask(server, "/s/tiny.css").body == FILES["tiny.css"]
        for chunk in chunks:
            text += feed.decompress(chunk)
    assert text + feed.flush() == TEXT * 20
