"""Compression of responses: negotiated, identical after decoding, and left out where it is not allowed."""

import gzip
import sys
import zlib

import brotli
import pytest
import zstandard
from support import uwsgi
from support.client import Client
from support.server import APPS
from support.waiting import assert_once_below

sys.path.insert(0, str(APPS))
from compressible import PARTS, TEXT

CODINGS = ("gzip", "br", "zstd")
LISTEN = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0")
#: All cases run with both interfaces.
APPLICATIONS = {"wsgi": "wsgi-file = {apps}/compressible.py", "asgi": "wsgi-file = {apps}/compressible.py\ncallable = asgi"}


def decoded(coding, body):
    if coding == "gzip":
        return gzip.decompress(body)
    if coding == "br":
        return brotli.decompress(body)
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def decoder(coding):
    """Decodes parts incrementally."""
    if coding == "gzip":
        return zlib.decompressobj(31).decompress
    if coding == "br":
        return brotli.Decompressor().process
    return zstandard.ZstdDecompressor().decompressobj().decompress


@pytest.fixture(scope="module", params=APPLICATIONS)
def server(serve_module, request):
    return serve_module(APPLICATIONS[request.param] + "\ncompress = zstd,br,gzip\nthreads = 2", listen=LISTEN)


def ask(server, target, accept="gzip", method="GET", headers=()):
    with Client(server.address()) as client:
        return client.request(method, target, [("Accept-Encoding", accept), *headers])


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("target", ["/text", "/json", "/error", "/parts", "/large"])
def test_answers_are_the_same_when_they_are_decoded(server, target, coding):
    response = ask(server, target, coding)
    assert (response.get("content-encoding"), response.get("vary")) == (coding, "Accept-Encoding")
    expected = TEXT * 20 if target == "/large" else TEXT
    assert decoded(coding, response.body) == expected
    assert len(response.body) < len(expected) / 2


def test_small_answers_have_a_content_length(server):
    response = ask(server, "/text")
    assert int(response.get("content-length")) == len(response.body) < len(TEXT)
    assert ask(server, "/parts").chunks


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, br;q=0.5", "gzip"),
        ("br, gzip", "br"),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "br"),
        ("identity", None),
        ("deflate", None),
        ("gzip;q=0", None),
        ("", None),
    ],
)
def test_the_client_chooses(server, accept, coding):
    response = ask(server, "/text", accept)
    assert response.get("content-encoding") == coding
    # The response depends on the client: caches must know.
    assert response.get("vary") == "Accept-Encoding"
    assert (decoded(coding, response.body) if coding else response.body) == TEXT


@pytest.mark.parametrize(
    "target", ["/short", "/image", "/untyped", "/partial", "/text?Content-Encoding=x", "/text?Content-MD5=x"]
)
def test_answers_not_worth_or_not_allowed_to_compress_are_unchanged(server, target):
    response, plain = ask(server, target), ask(server, target, "identity")
    assert response.get("vary") is None
    assert [pair for pair in response.headers if pair[0] != "date"] == [pair for pair in plain.headers if pair[0] != "date"]
    assert response.body == plain.body


def test_no_transform_is_respected(server):
    response = ask(server, "/text?Cache-Control=max-age=5,%20no-transform")
    assert (response.get("content-encoding"), response.body) == (None, TEXT)


def test_answers_without_a_body_are_untouched(server):
    response = ask(server, "/nothing")
    assert (response.get("content-encoding"), response.get("vary"), response.body) == (None, None, b"")


def test_a_304_has_the_fields_of_the_200(server):
    """RFC 9110 section 15.4.5: Vary and ETag are those of the answer 200."""
    response = ask(server, "/unchanged?ETag=%22x%22")
    assert (response.get("content-encoding"), response.get("vary"), response.get("etag")) == (None, "Accept-Encoding", 'W/"x"')
    plain = ask(server, "/unchanged?ETag=%22x%22", "identity")
    assert (plain.get("vary"), plain.get("etag")) == ("Accept-Encoding", '"x"')


def test_what_does_not_get_smaller_stays_as_it_is(server):
    response = ask(server, "/noise")
    assert (response.get("content-encoding"), response.get("vary"), len(response.body)) == (None, "Accept-Encoding", 5000)


def test_validators_ranges_and_vary_follow(server):
    response = ask(server, "/text?ETag=%22x%22&Vary=Cookie&Accept-Ranges=bytes")
    assert (response.get("etag"), response.get("vary"), response.get("accept-ranges")) == (
        'W/"x"',
        "Cookie, Accept-Encoding",
        None,
    )
    assert ask(server, "/text?ETag=W/%22x%22").get("etag") == 'W/"x"'
    assert ask(server, "/text?Vary=accept-encoding,%20Cookie").get("vary") == "accept-encoding, Cookie"
    plain = ask(server, "/text?ETag=%22x%22&Accept-Ranges=bytes", "identity")
    assert (plain.get("etag"), plain.get("accept-ranges")) == ('"x"', "bytes")


def test_head_has_the_fields_of_get(server):
    head = ask(server, "/text?ETag=%22x%22", method="HEAD")
    assert (head.get("content-encoding"), head.get("etag"), head.get("vary")) == ("gzip", 'W/"x"', "Accept-Encoding")
    assert head.get("content-length") is None
    assert ask(server, "/image", method="HEAD").get("content-length") == str(len(TEXT))


@pytest.mark.parametrize("coding", CODINGS)
def test_a_stream_is_not_held_back(server, coding):
    """Data that the application has yielded can be read before it yields more."""
    feed = decoder(coding)
    with Client(server.address()) as client:
        client.send(f"GET /endless HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n".encode())
        assert client.read_head().get("content-encoding") == coding
        chunks = client.read_chunks()
        text = b""
        while text != b"data: first\n\n":
            text += feed(next(chunks))
        assert ask(server, "/go").body == b"gone"
        assert text + b"".join(feed(chunk) for chunk in chunks) == b"data: first\n\ndata: second\n\n"


def test_events_are_not_compressed(server):
    with Client(server.address()) as client:
        client.send(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        assert client.read_head().get("content-encoding") is None
        assert next(client.read_chunks()) == b"data: first\n\n"
        ask(server, "/go")


def test_a_kept_alive_connection_goes_on(server):
    with Client(server.address()) as client:
        for target in ("/text", "/parts", "/image", "/parts", "/large", "/text"):
            response = client.request("GET", target, [("Accept-Encoding", "br")])
            expected = TEXT * 20 if target == "/large" else TEXT
            assert (response.body if target == "/image" else decoded("br", response.body)) == expected


def test_http_1_0_gets_a_body_that_ends_with_the_connection(server):
    with Client(server.address()) as client:
        client.send(b"GET /parts HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
        assert gzip.decompress(client.read_response().body) == TEXT


def test_reverse_proxies_get_it_too(server):
    answer = uwsgi.ask(server.address("uwsgi"), "GET", "/parts", extra=[("HTTP_ACCEPT_ENCODING", "gzip")])
    assert gzip.decompress(answer.body) == b"".join(PARTS)


def test_a_slow_client_gets_all_of_a_large_answer(server):
    with Client(server.address(), receive_bytes=4096) as client:
        client.send(b"GET /large HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip;q=0.1, identity\r\n\r\n")
        response = client.read_response()
    assert gzip.decompress(response.body) == TEXT * 20


# Options of compression.


def test_it_is_off_unless_asked_for(serve):
    server = serve("wsgi-file = {apps}/compressible.py")
    response = ask(server, "/text")
    assert (response.get("content-encoding"), response.get("vary"), response.body) == (None, None, TEXT)


def test_types_and_sizes_are_options(serve):
    rules = "compress = gzip\ncompress-types = image/*,text/event-stream\ncompress-min-size = 1\ncompress-level = 9\nthreads = 2"
    server = serve("wsgi-file = {apps}/compressible.py\n" + rules)
    assert ask(server, "/image").get("content-encoding") == "gzip"
    assert ask(server, "/text").get("content-encoding") is None
    feed = decoder("gzip")
    with Client(server.address()) as client:
        client.send(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
        assert client.read_head().get("content-encoding") == "gzip"
        text, chunks = b"", client.read_chunks()
        while text != b"data: first\n\n":
            text += feed(next(chunks))
        ask(server, "/go")


def test_http_auto_gzip_is_asked_for_by_the_application(serve):
    server = serve("wsgi-file = {apps}/compressible.py\nhttp-auto-gzip = true")
    response = ask(server, "/parts?uWSGI-Encoding=gzip")
    assert (response.get("content-encoding"), response.get("uwsgi-encoding")) == ("gzip", None)
    assert gzip.decompress(response.body) == TEXT
    # A length that the server itself sets is not a Content-Length of the application.
    response = ask(server, "/untold?uWSGI-Encoding=gzip")
    assert (response.get("content-encoding"), gzip.decompress(response.body)) == ("gzip", TEXT)
    for target, accept in (
        ("/parts", "gzip"),
        ("/parts?uWSGI-Encoding=gzip", "br"),
        ("/text?uWSGI-Encoding=gzip", "gzip"),
        ("/parts?uWSGI-Encoding=gzip&Content-Encoding=x", "gzip"),
    ):
        response = ask(server, target, accept)
        assert (response.get("content-encoding") in (None, "x"), response.get("uwsgi-encoding"), response.body) == (
            True,
            None,
            TEXT,
        )


def test_a_route_can_ask_for_gzip(serve):
    rules = (
        "route-if = contains:${HTTP_ACCEPT_ENCODING};gzip goto:small\nroute-run = last:\nroute-label = small\nroute-run = gzip:"
    )
    server = serve("wsgi-file = {apps}/compressible.py\n" + rules)
    assert gzip.decompress(ask(server, "/image").body) == TEXT
    assert ask(server, "/image", "br").body == TEXT


#: Progress of an application thread while a large response is compressed, which takes seconds. If the worker held the GIL
#: in the meantime, the thread would run about fifty times, whenever the worker waits for the client; without, it runs thousands
#: of times.
MIN_TICKS = 300


def test_compression_keeps_no_thread_of_the_application_waiting(serve):
    client = serve("wsgi-file = {apps}/ticking.py\ncompress = br\ncompress-level = 9").connect()
    client.request("GET", "/begin")

    def ticks_meanwhile():
        before = int(client.request("GET", "/").body)
        response = client.request("GET", "/large", [("Accept-Encoding", "br")])
        assert response.get("content-encoding") == "br"
        return int(client.request("GET", "/").body) - before

    # On a busy machine the thread may have run rarely for other reasons.
    assert_once_below(lambda: -ticks_meanwhile(), 1 - MIN_TICKS, tries=5)
