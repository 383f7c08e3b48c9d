"""Request heads, valid, malformed and ambiguous (RFC 9112), each sent whole and byte by byte, with the expected response."""

import json

import pytest
from support.refusals import told_of

HOST = b"Host: localhost\r\n"


def line(text):
    """Returns a request with this request line."""
    return text + b"\r\n" + HOST + b"\r\n"


def headers(text):
    """Returns a request with these header fields."""
    return b"GET / HTTP/1.1\r\n" + HOST + text + b"\r\n"


def post(text, body=b""):
    return b"POST / HTTP/1.1\r\n" + HOST + text + b"\r\n" + body


#: Refused requests: the request, its status, and words of the log line about the fault.
REFUSED = {
    # Lengths that intermediaries may interpret differently: request smuggling (RFC 9112 sections 6.1 to 6.3, 11.2).
    "both lengths": (post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400, "both"),
    "both, the other way": (post(b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n"), 400, "both"),
    "two equal lengths": (post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc"), 400, "more than one Content"),
    "two lengths": (post(b"Content-Length: 3\r\nContent-Length: 4\r\n", b"abcd"), 400, "more than one Content"),
    "list of lengths": (post(b"Content-Length: 3, 3\r\n", b"abc"), 400, "is not a single number"),
    "signed length": (post(b"Content-Length: +3\r\n", b"abc"), 400, "is not a single number"),
    "negative length": (post(b"Content-Length: -3\r\n"), 400, "is not a single number"),
    "hexadecimal length": (post(b"Content-Length: 0x3\r\n", b"abc"), 400, "is not a single number"),
    "blank in length": (post(b"Content-Length: 1 0\r\n", b"abc"), 400, "is not a single number"),
    "underscore in length": (post(b"Content-Length: 1_0\r\n"), 400, "is not a single number"),
    "empty length": (post(b"Content-Length:\r\n"), 400, "is not a single number"),
    "length with zeros": (post(b"Content-Length: 003\r\n", b"abc"), 400, "has a leading zero"),
    "no length with zeros": (post(b"Content-Length: 00\r\n"), 400, "has a leading zero"),
    "huge length": (post(b"Content-Length: 99999999999999999999\r\n"), 400, "is not a single number"),
    "unknown coding": (post(b"Transfer-Encoding: gzip\r\n"), 501, "transfer coding"),
    "identity coding": (post(b"Transfer-Encoding: identity\r\n"), 501, "transfer coding"),
    "two codings": (post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 400, "single word chunked"),
    "chunked twice": (post(b"Transfer-Encoding: chunked, chunked\r\n"), 400, "single word chunked"),
    "quoted chunked": (post(b'Transfer-Encoding: "chunked"\r\n'), 400, "single word chunked"),
    "chunked, two headers": (post(2 * b"Transfer-Encoding: chunked\r\n"), 400, "more than one Transfer"),
    "vertical tab": (post(b"Transfer-Encoding: \x0bchunked\r\n"), 400, "control character"),
    "chunked in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "HTTP/1.0"),
    "space before the colon": (post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), 400, "its colon"),
    "tab before the colon": (post(b"Content-Length\t: 3\r\n", b"abc"), 400, "its colon"),
    # Lines (section 2.2) and fields (section 5).
    "obs-fold": (headers(b"X-Long: a\r\n b\r\n"), 400, "begins with a space"),
    "obs-fold by tab": (headers(b"X-Long: a\r\n\tb\r\n"), 400, "begins with a space"),
    "space before first field": (b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, "begins with a space"),
    "bare LF after the line": (b"GET / HTTP/1.1\nHost: localhost\n\n", 400, "CRLF"),
    "bare LF after a field": (headers(b"X: a\nY: b\r\n"), 400, "LF without a CR"),
    "bare LF at the end": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\n", 400, "LF"),
    "bare CR in a value": (headers(b"X: a\rContent-Length: 5\r\n"), 400, "CR without an LF"),
    "NUL in a value": (headers(b"X: a\0b\r\n"), 400, "NUL"),
    "control character in a value": (headers(b"X: a\x01b\r\n"), 400, "control character"),
    "DEL in a value": (headers(b"X: a\x7fb\r\n"), 400, "control character"),
    "no colon": (headers(b"Nonsense\r\n"), 400, "does not have a colon"),
    "no name": (headers(b": value\r\n"), 400, "does not have a name"),
    "parenthesis in a name": (headers(b"X(y): b\r\n"), 400, "name has an invalid character"),
    "NUL in a name": (headers(b"X\0y: b\r\n"), 400, "name has an invalid character"),
    "two empty lines first": (b"\r\n\r\n" + line(b"GET / HTTP/1.1"), 400, "empty line"),
    # Host (section 3.2).
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "no Host"),
    "two Hosts": (headers(HOST), 400, "more than one Host"),
    "two Hosts, one of them empty": (headers(b"Host:\r\n"), 400, "more than one Host"),
    "port for a Host": (b"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400, "does not contain a host"),
    "user in Host": (b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "not a host"),
    "path in Host": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "not a host"),
    "blank in Host": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "not a host"),
    # The request line (section 3).
    "no version": (b"GET /\r\n\r\n", 400, "HTTP version is missing"),
    "lower case version": (line(b"GET / http/1.1"), 400, "version is malformed"),
    "long version": (line(b"GET / HTTP/1.10"), 400, "follows the HTTP version"),
    "HTTP/2.0": (line(b"GET / HTTP/2.0"), 505, "is not supported"),
    "HTTP/0.9 by name": (line(b"GET / HTTP/0.9"), 505, "is not supported"),
    "two spaces": (line(b"GET  / HTTP/1.1"), 400, "More than one space"),
    "two spaces before the version": (line(b"GET /  HTTP/1.1"), 400, "More than one space"),
    "space in the target": (line(b"GET /a b HTTP/1.1"), 400, "version is malformed"),
    "tab for a space": (line(b"GET\t/ HTTP/1.1"), 400, "method has an invalid character"),
    "space after the version": (line(b"GET / HTTP/1.1 "), 400, "follows the HTTP version"),
    "NUL in the target": (line(b"GET /a\0b HTTP/1.1"), 400, "control character"),
    "method with a colon": (line(b"GET: / HTTP/1.1"), 400, "method has an invalid character"),
    "very long method": (line(b"A" * 33 + b" / HTTP/1.1"), 400, "longer than any known"),
    "TLS": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32), 400, "speaks TLS"),
    "uwsgi": (b"\0\x1d\0\0\x0e\0REQUEST_METHOD\x03\0GET", 400, "HTTP socket received the uwsgi protocol"),
    # Targets (section 3.2).
    "target without a slash": (line(b"GET index.html HTTP/1.1"), 400, "neither a path"),
    "asterisk of GET": (line(b"GET * HTTP/1.1"), 400, "for OPTIONS only"),
    "CONNECT": (line(b"CONNECT example.com:443 HTTP/1.1"), 501, "not a proxy"),
    "raw UTF-8": (line("GET /caf\xe9 HTTP/1.1".encode()), 400, "non-ASCII"),
    "raw byte in the query": (line(b"GET /?a=\xe4 HTTP/1.1"), 400, "non-ASCII"),
    "backslash": (line(b"GET /a\\..\\b HTTP/1.1"), 400, "backslash"),
    "backslash in the query": (line(b"GET /?\\ HTTP/1.1"), 400, "backslash"),
    "raw UTF-8, absolute form": (line("GET http://a/\xe9 HTTP/1.1".encode()), 400, "non-ASCII"),
    "fragment": (line(b"GET /a#b HTTP/1.1"), 400, "fragment"),
    "bad escape": (line(b"GET /a%zz HTTP/1.1"), 400, "percent sign"),
    "cut escape": (line(b"GET /a%2 HTTP/1.1"), 400, "percent sign"),
    "escaped NUL": (line(b"GET /a%00b HTTP/1.1"), 400, "encoded NUL"),
    "absolute form without a host": (line(b"GET http:///x HTTP/1.1"), 400, "host in the request's target"),
    "absolute form with a user": (line(b"GET http://a@b/x HTTP/1.1"), 400, "host in the request's target"),
    "ftp": (line(b"GET ftp://localhost/x HTTP/1.1"), 400, "neither a path"),
    # Expectations (RFC 9110 section 10.1.1) and chunks (RFC 9112 section 7.1).
    "unknown expectation": (post(b"Expect: the-unexpected\r\nContent-Length: 3\r\n", b"abc"), 417, "100-continue"),
    "chunk size with junk": (post(b"Transfer-Encoding: chunked\r\n", b"3x\r\nabc\r\n0\r\n\r\n"), 400, "chunk"),
    "chunk size with a sign": (post(b"Transfer-Encoding: chunked\r\n", b"+3\r\nabc\r\n0\r\n\r\n"), 400, "chunk"),
    "chunk size 0x3": (post(b"Transfer-Encoding: chunked\r\n", b"0x3\r\nabc\r\n0\r\n\r\n"), 400, "chunk"),
    "no chunk size": (post(b"Transfer-Encoding: chunked\r\n", b"\r\nabc\r\n0\r\n\r\n"), 400, "chunk"),
    "huge chunk size": (post(b"Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\nabc"), 400, "chunk"),
    "chunk longer than its size": (post(b"Transfer-Encoding: chunked\r\n", b"2\r\nabc\r\n0\r\n\r\n"), 400, "chunk"),
    "chunk with bare LF": (post(b"Transfer-Encoding: chunked\r\n", b"3\nabc\n0\n\n"), 400, "chunk"),
    "extension without a name": (post(b"Transfer-Encoding: chunked\r\n", b"3;\r\nabc\r\n0\r\n\r\n"), 400, "extension"),
    "extension with a bracket": (
        post(b"Transfer-Encoding: chunked\r\n", b"3;bad[=x\r\nabc\r\n0\r\n\r\n"),
        400,
        "extension",
    ),
    "extensions of nothing": (post(b"Transfer-Encoding: chunked\r\n", b"3;;;===\r\nabc\r\n0\r\n\r\n"), 400, "extension"),
    "raw byte in an extension": (post(b"Transfer-Encoding: chunked\r\n", b"3;\xff\r\nabc\r\n0\r\n\r\n"), 400, "extension"),
    "extension's open quote": (post(b"Transfer-Encoding: chunked\r\n", b'3;a="b\r\nabc\r\n0\r\n\r\n'), 400, "extension"),
    "malformed trailer": (post(b"Transfer-Encoding: chunked\r\n", b"0\r\nX : y\r\n\r\n"), 400, "trailer"),
}

#: Accepted requests: the request, whether the connection stays open, and parts of environ.
SERVED = {
    "plain": (line(b"GET / HTTP/1.1"), True, {"PATH_INFO": "/", "QUERY_STRING": "", "SERVER_PROTOCOL": "HTTP/1.1"}),
    "later minor version": (line(b"GET / HTTP/1.7"), True, {"SERVER_PROTOCOL": "HTTP/1.1"}),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", False, {"SERVER_PROTOCOL": "HTTP/1.0"}),
    "HTTP/1.0, kept": (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True, {"SERVER_PROTOCOL": "HTTP/1.0"}),
    "close": (headers(b"Connection: close\r\n"), False, {}),
    "close among others": (headers(b"Connection: x, CLOSE ,y\r\n"), False, {}),
    "close wins": (headers(b"Connection: close\r\nConnection: keep-alive\r\n"), False, {}),
    "kept": (headers(b"Connection: keep-alive\r\n"), True, {}),
    "unknown option": (headers(b"Connection: closed\r\n"), True, {}),
    "one empty line first": (b"\r\n" + line(b"GET /x HTTP/1.1"), True, {"PATH_INFO": "/x"}),
    "no blank after the colon": (headers(b"X-A:b\r\n"), True, {"HTTP_X_A": "b"}),
    "blanks around": (headers(b"X-A: \t b c \t \r\n"), True, {"HTTP_X_A": "b c"}),
    "empty value": (headers(b"X-A:\r\n"), True, {"HTTP_X_A": ""}),
    "repeated field": (headers(b"X-A: 1\r\nx-a: 2\r\n"), True, {"HTTP_X_A": "1, 2"}),
    "repeated cookie": (headers(b"Cookie: a=1\r\nCookie: b=2\r\n"), True, {"HTTP_COOKIE": "a=1; b=2"}),
    "latin-1 value": (headers(b"X-A: caf\xe9\r\n"), True, {"HTTP_X_A": "caf\xe9"}),
    "underscore dropped": (headers(b"X_A: forged\r\nX-A: true\r\n"), True, {"HTTP_X_A": "true"}),
    "httpoxy": (headers(b"Proxy: http://evil/\r\nX-A: 1\r\n"), True, {"HTTP_X_A": "1"}),
    "IPv6 Host": (b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", True, {"HTTP_HOST": "[::1]:8080"}),
    # RFC 9112 section 3.2: the Host of a client whose target has no authority.
    "empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", True, {"HTTP_HOST": "", "PATH_INFO": "/"}),
    "Host of blanks": (b"GET / HTTP/1.1\r\nHost: \t \r\n\r\n", True, {"HTTP_HOST": ""}),
    "empty Host of HTTP/1.0": (b"GET / HTTP/1.0\r\nHost:\r\n\r\n", False, {"HTTP_HOST": ""}),
    "empty Host, absolute form": (b"GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", True, {"HTTP_HOST": "a"}),
    "query": (line(b"GET /a/b?c=d?e&f=%20 HTTP/1.1"), True, {"PATH_INFO": "/a/b", "QUERY_STRING": "c=d?e&f=%20"}),
    "escapes": (
        line(b"GET /caf%C3%A9%2Fx%20y+z?%41 HTTP/1.1"),
        True,
        {
            "PATH_INFO": "/caf\xc3\xa9/x y+z",
            "REQUEST_URI": "/caf%C3%A9%2Fx%20y+z?%41",
            "QUERY_STRING": "%41",
        },
    ),
    "dot segments": (
        line(b"GET /a/../b//c/./.d/. HTTP/1.1"),
        True,
        {"PATH_INFO": "/b//c/.d/", "REQUEST_URI": "/a/../b//c/./.d/."},
    ),
    "dot segments above the root": (line(b"GET /../../a HTTP/1.1"), True, {"PATH_INFO": "/a", "REQUEST_URI": "/../../a"}),
    "dot segments to the root": (line(b"GET /a/b/../.. HTTP/1.1"), True, {"PATH_INFO": "/"}),
    "encoded dots": (line(b"GET /a/%2e%2e/b HTTP/1.1"), True, {"PATH_INFO": "/a/../b"}),
    "dots in the query": (line(b"GET /a?b/../c HTTP/1.1"), True, {"PATH_INFO": "/a", "QUERY_STRING": "b/../c"}),
    "dot segments, absolute form": (
        line(b"GET http://a/b/../c HTTP/1.1"),
        True,
        {"PATH_INFO": "/c", "REQUEST_URI": "/b/../c"},
    ),
    "absolute form": (
        line(b"GET http://example.com:81/a?b HTTP/1.1"),
        True,
        {"PATH_INFO": "/a", "QUERY_STRING": "b", "REQUEST_URI": "/a?b", "HTTP_HOST": "example.com:81"},
    ),
    "absolute form without a path": (
        line(b"GET HTTP://example.com?b HTTP/1.1"),
        True,
        {"PATH_INFO": "/", "QUERY_STRING": "b", "REQUEST_URI": "/?b"},
    ),
    "asterisk form": (line(b"OPTIONS * HTTP/1.1"), True, {"PATH_INFO": "*", "REQUEST_URI": "*"}),
    "unknown method": (line(b"FROBNICATE / HTTP/1.1"), True, {"REQUEST_METHOD": "FROBNICATE"}),
    "lower case method": (line(b"get / HTTP/1.1"), True, {"REQUEST_METHOD": "get"}),
    "body": (post(b"Content-Length: 3\r\n", b"abc"), True, {"CONTENT_LENGTH": "3", "body": "abc"}),
    "length of zero": (post(b"Content-Length: 0\r\n"), True, {"body": ""}),
    "body of GET": (headers(b"Content-Length: 3\r\n") + b"abc", True, {"body": "abc"}),
    "chunked body": (
        post(b"Transfer-Encoding: chunked\r\n", b'1\r\na\r\n2;x=y ; z="\xff\\""\r\nbc\r\n000\r\n\r\n'),
        True,
        {"body": "abc", "CONTENT_LENGTH": "3"},
    ),
    "trailers are dropped": (
        post(b"Transfer-Encoding: ChunKed\r\n", b"A;x\r\n0123456789\r\n0\r\nX-Trailer: forged\r\n\r\n"),
        True,
        {"body": "0123456789"},
    ),
    "content type": (
        post(b"Content-Type: text/x\r\nContent-Length: 0\r\n"),
        True,
        {"CONTENT_TYPE": "text/x", "body": ""},
    ),
}

#: Those of them that may be another protocol.
MIXUPS = {"TLS", "uwsgi", "two empty lines first"}

#: Never in an environ: a dropped field, or a CGI variable that must not exist.
ABSENT = {"HTTP_PROXY", "HTTP_X_TRAILER", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE", "HTTP_TRANSFER_ENCODING"}

WAYS = ["whole", "byte by byte"]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/echo.py")


def send(client, data, way):
    if way == "whole":
        client.send(data)
    else:
        client.send_byte_by_byte(data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_or_ambiguous_head_is_refused_and_closes(server, name, way):
    data, status, words = REFUSED[name]
    before = len(server.lines)
    with server.connect() as client:
        send(client, data, way)
        response = client.read_response()
        assert response.status == status
        assert response.says_close
        assert client.is_closed()
    if name in MIXUPS:
        assert f"refused a request from 127.0.0.1 with {status} at " in told_of(server, words)
        return
    # The mix-ups of earlier tests may have their line of the minute now.
    complaint = server.wait_for(
        lambda: [line for line in server.lines[before:] if "refused" in line and "more like it" not in line], "the refusal"
    )
    assert len(complaint) == 1
    assert f"refused a request from 127.0.0.1 with {status}: " in complaint[0]
    assert words in complaint[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SERVED)
def test_a_well_formed_head_is_served_as_it_is_meant(server, name, way):
    data, stays, expected = SERVED[name]
    with server.connect() as client:
        send(client, data, way)
        method = data.lstrip().split(b" ")[0].decode()
        response = client.read_response(method)
        assert response.status == 200

        told = json.loads(response.body)
        seen = {**told["environ"], "body": told["body"]}
        assert {key: seen.get(key) for key in expected} == expected
        assert not ABSENT & set(seen)
        assert response.says_close is not stays
        if stays:
            assert client.request().status == 200
        else:
            assert client.is_closed()


def test_what_follows_a_refused_head_is_never_served(server):
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect() as client:
        client.send(post(b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n") + smuggled)
        assert client.read_response().status == 400
        assert client.is_closed()
    server.get("/after")
    server.wait_for_log("GET /after")
    assert "/smuggled" not in server.log


def test_a_refusal_names_the_fault_and_never_shows_a_header(server):
    secret = b"Authorization: Basic c2VjcmV0\r\nCookie: session=hush\r\n"
    for broken in (b"Content-Length: hush\r\n", b"X: hush\0\r\n", b"hush hush\r\n", b"Transfer-Encoding: hush\r\n"):
        with server.connect() as client:
            client.send(headers(secret + broken))
            response = client.read_response()
            assert response.status in (400, 501)
            assert b"hush" not in response.body
            assert b"c2VjcmV0" not in response.body
    server.get("/after-the-secrets")
    server.wait_for_log("GET /after-the-secrets")
    assert "hush" not in server.log
    assert "c2VjcmV0" not in server.log


@pytest.mark.parametrize("interface", ["wsgi-file = {apps}/echo.py", "asgi = {apps}/asgi_scope.py"])
def test_lenient_targets_take_raw_bytes_and_backslashes(serve, interface):
    server = serve(f"{interface}\nlenient-targets = true")
    with server.connect() as client:
        client.send(line(b"GET /caf\xc3\xa9\\x?\xe9\\ HTTP/1.1"))
        told = json.loads(client.read_response().body)
    if "environ" in told:
        seen = [told["environ"][key] for key in ("PATH_INFO", "QUERY_STRING")]
    else:
        seen = [told["path"].encode().decode("latin-1"), told["query_string"]["bytes"]]
    assert seen == ["/caf\xc3\xa9\\x", "\xe9\\"]
