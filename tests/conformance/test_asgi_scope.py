"""The HTTP connection scope: each key as specified in "HTTP & WebSocket ASGI Message Format", and the lifespan's state."""

import json
import os

import pytest
from support import uwsgi
from support.client import Client


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "asgi = {apps}/asgi_scope.py",
        listen=("http-socket = 127.0.0.1:0", "http-socket = {directory}/http.sock", "socket = 127.0.0.1:0"),
    )


def scope_of(server, target="/", headers=(), method="GET", body=None):
    return json.loads(server.get(target, headers, method, body).body)


def raw(server, data, method="GET", address=None):
    """Returns the scope of a raw request."""
    with Client(address or server.address()) as client:
        client.send(data)
        return json.loads(client.read_response(method).body)


def as_bytes(text):
    return {"bytes": text, "type": "bytes"}


def pairs(scope):
    return [(name["bytes"], value["bytes"]) for name, value in scope["headers"]]


def test_the_scope_has_every_key_with_its_type(server):
    types = json.loads(server.get("/types?a=b").body)
    assert types == {
        "scope": "dict",
        "type": "str",
        "asgi": "dict",
        "http_version": "str",
        "method": "str",
        "scheme": "str",
        "path": "str",
        "raw_path": "bytes",
        "query_string": "bytes",
        "root_path": "str",
        "headers": "list",
        "header": ["tuple"],
        "header parts": ["bytes"],
        "client": "tuple",
        "server": "tuple",
        "extensions": "dict",
        "state": "dict",
    }


def test_type_is_http_and_asgi_names_its_versions(server):
    scope = scope_of(server)
    assert scope["type"] == "http"
    assert scope["asgi"]["version"] == "3.0"
    assert tuple(map(int, scope["asgi"]["spec_version"].split("."))) >= (2, 5)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_http_version_is_that_of_the_request(server, version):
    close = "Connection: close\r\n" if version == "1.1" else ""
    scope = raw(server, f"GET / HTTP/{version}\r\nHost: a\r\n{close}\r\n".encode())
    assert scope["http_version"] == version


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "X-OWN"])
def test_method_is_the_method_name_uppercased(server, method):
    assert scope_of(server, method=method)["method"] == method


def test_method_in_lower_case_is_uppercased(server):
    assert raw(server, b"patch / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")["method"] == "PATCH"


def test_scheme_is_http_unless_a_reverse_proxy_says_https(server):
    assert scope_of(server)["scheme"] == "http"
    assert scope_of(server, headers=[("X-Forwarded-Proto", "https")])["scheme"] == "https"
    assert scope_of(server, headers=[("X-Forwarded-Proto", "gopher")])["scheme"] == "http"


@pytest.mark.parametrize(
    ("target", "path", "raw_path", "query"),
    [
        ("/", "/", "/", ""),
        ("/a/b", "/a/b", "/a/b", ""),
        ("/a%20b/c", "/a b/c", "/a%20b/c", ""),
        ("/%E2%82%AC/%c3%bc", "/\u20ac/\u00fc", "/%E2%82%AC/%c3%bc", ""),
        ("/a%2Fb", "/a/b", "/a%2Fb", ""),
        ("/a%3Fb?c=%3F", "/a?b", "/a%3Fb", "c=%3F"),
        ("/100%25", "/100%", "/100%25", ""),
        ("/a+b?c+d=e%20f&c=", "/a+b", "/a+b", "c+d=e%20f&c="),
        ("/?", "/", "/", ""),
        ("/?a?b", "/", "/", "a?b"),
        ("//a//b", "//a//b", "//a//b", ""),
        ("/a/../b/./c", "/b/c", "/a/../b/./c", ""),
        ("/a/%2e%2e/b?c/../d", "/a/../b", "/a/%2e%2e/b", "c/../d"),
        ("/a;b=c", "/a;b=c", "/a;b=c", ""),
    ],
)
def test_path_is_percent_decoded_and_raw_path_and_query_string_are_as_they_came(server, target, path, raw_path, query):
    scope = scope_of(server, target)
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, as_bytes(raw_path), as_bytes(query))


def test_a_path_that_is_no_utf_8_is_served_and_raw_path_has_it(server):
    scope = scope_of(server, "/%FF/x")
    assert (scope["path"], scope["raw_path"]) == ("/\ufffd/x", as_bytes("/%FF/x"))


@pytest.mark.parametrize("target", [b"/?a=\xe4", b"/\xc3\xa9", b"/a\\b"])
def test_raw_path_and_query_string_are_ascii(server, target):
    """Applications decode them like this, and raise an exception at anything else."""
    with Client(server.address()) as client:
        client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.read_response().status == 400


def test_an_absolute_target_gives_its_path_and_its_authority_replaces_the_host(server):
    scope = raw(server, b"GET http://shop.example:8080/a%20b?c=d HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", as_bytes("/a%20b"), as_bytes("c=d"))
    assert [value for name, value in pairs(scope) if name == "host"] == ["shop.example:8080"]


def test_options_of_the_whole_server_has_the_path_star(server):
    scope = raw(server, b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("OPTIONS", "*", as_bytes("*"))


def test_root_path_of_an_application_at_the_root_is_empty(server):
    assert scope_of(server)["root_path"] == ""


def test_headers_are_pairs_of_bytes_lowercased_in_their_order_with_doubles(server):
    headers = [("X-One", "1"), ("ACCEPT", "a, b"), ("x-one", "2"), ("X-Empty", ""), ("Cookie", "a=b"), ("Cookie", "c=d")]
    scope = scope_of(server, headers=headers)
    own = [pair for pair in pairs(scope) if pair[0] not in ("host", "connection")]
    assert own == [(name.lower(), value) for name, value in headers]
    assert {part["type"] for pair in scope["headers"] for part in pair} == {"bytes"}


def test_header_values_keep_bytes_beyond_ascii_and_lose_blanks_around_them(server):
    scope = raw(server, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-A: \t \xe4\xff b  \r\n\r\n")
    assert ("x-a", "\u00e4\u00ff b") in pairs(scope)


def test_content_length_and_transfer_encoding_are_among_the_headers(server):
    assert ("content-length", "3") in pairs(scope_of(server, method="POST", body=b"abc"))
    data = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert ("transfer-encoding", "chunked") in pairs(raw(server, data))


def test_more_names_of_headers_than_are_kept_are_told_right(server):
    with server.connect() as client:
        for start in range(0, 3000, 50):
            headers = [(f"X-Name-{number}", str(number)) for number in range(start, start + 50)]
            scope = json.loads(client.request(headers=headers).body)
            assert pairs(scope)[1:] == [(name.lower(), value) for name, value in headers]


def test_client_is_host_and_port_of_the_peer(server):
    with server.connect() as client:
        for _ in range(3):
            scope = json.loads(client.request().body)
            assert scope["client"] == list(client.socket.getsockname())


def test_server_is_host_and_port_of_the_listening_socket(server):
    assert scope_of(server)["server"] == list(server.address())


def test_over_a_unix_socket_server_is_its_path_and_none_and_client_is_none(server):
    path = str(server.directory / "http.sock")
    scope = raw(server, b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", address=path)
    assert scope["server"] == [path, None]
    assert scope["client"] is None
    assert scope["path"] == "/a"


#: Keys that every application can use, whatever middleware surrounds it.
HARMLESS = {"http.response.early_hint": {}, "http.response.trailers": {}}


def test_extensions_that_middleware_may_not_know_are_not_offered_unasked(server):
    assert scope_of(server)["extensions"] == HARMLESS


@pytest.mark.parametrize("words", ["pathsend", "zerocopysend", "informational", "pathsend, zerocopysend", "none"])
def test_extensions_are_offered_where_they_are_asked_for(serve, words):
    server = serve(f"asgi = {{apps}}/asgi_scope.py\nasgi-extensions = {words}")
    asked_for = {f"http.response.{word.strip()}": {} for word in words.split(",") if word != "none"}
    assert scope_of(server)["extensions"] == {**HARMLESS, **asked_for}


def test_each_request_has_a_scope_of_its_own(server):
    with server.connect() as client:
        for _ in range(6):
            assert json.loads(client.request(target="/stain").body) == []
    assert json.loads(server.get("/stain").body) == []


def test_requests_of_one_connection_with_changing_headers_see_their_own(server):
    with server.connect() as client:
        for number in range(12):
            headers = [("X-Number", str(number // 3))]
            scope = json.loads(client.request(target=f"/{number}?{number}", headers=headers).body)
            assert ("x-number", str(number // 3)) in pairs(scope)
            assert (scope["path"], scope["query_string"]) == (f"/{number}", as_bytes(str(number)))


def test_versions_may_change_on_one_connection(server):
    with server.connect() as client:
        for version in ("1.1", "1.0", "1.1", "1.0"):
            client.send(f"GET / HTTP/{version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n".encode())
            assert json.loads(client.read_response().body)["http_version"] == version


def test_state_is_a_copy_for_each_request_of_what_the_lifespan_left(serve):
    server = serve("asgi = {apps}/asgi_scope.py:stateful")
    with server.connect() as client:
        for number in range(4):
            told = json.loads(client.request().body)
            # A shallow copy: the namespace is a copy, the objects in it are shared.
            assert told == {"count": 0, "shared": number, "more": False}


def test_a_request_over_the_uwsgi_protocol_has_the_same_scope(server):
    extra = [("HTTP_X_ONE", "1"), ("HTTP_ACCEPT_LANGUAGE", "de"), ("REQUEST_SCHEME", "https")]
    answer = uwsgi.ask(server.address("uwsgi"), "POST", "/a%20b?c=d", b"abc", extra)
    scope = json.loads(answer.body)
    assert (scope["type"], scope["method"], scope["http_version"], scope["scheme"]) == ("http", "POST", "1.1", "https")
    # A real reverse proxy decodes PATH_INFO; this client passes its input on unchanged.
    assert (scope["raw_path"], scope["query_string"]) == (as_bytes("/a%20b"), as_bytes("c=d"))
    assert (scope["client"], scope["server"]) == (["192.0.2.7", 4711], ["www.example.com", 80])
    assert pairs(scope) == [("content-length", "3"), ("host", "www.example.com"), ("x-one", "1"), ("accept-language", "de")]
    assert scope["root_path"] == ""


def test_over_the_uwsgi_protocol_script_name_is_the_root_path_and_part_of_the_path(server):
    variables = [pair for pair in uwsgi.request_variables(target="/shop/a") if pair[0] != "PATH_INFO"]
    with Client(server.address("uwsgi")) as client:
        client.send(uwsgi.packet([*variables, ("SCRIPT_NAME", "/shop"), ("PATH_INFO", "/a")]))
        scope = json.loads(uwsgi.Answer(client.read_to_end()).body)
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == ("/shop", "/shop/a", as_bytes("/shop/a"))


def test_the_worker_is_one_process_of_its_own(server):
    assert scope_of(server)["pid"] not in (os.getpid(), server.process.pid)
