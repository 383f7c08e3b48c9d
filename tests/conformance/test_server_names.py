"""``server-names``: requests for other hosts get 421, over every protocol; an invalid Host gets 400."""

import pytest
from support import uwsgi
from support.client import Client
from support.http2 import Http2

SERVED = [
    "shop.example",
    "SHOP.Example:8443",
    "shop.example.",
    "a.b.example",
    "x.a.b.example.",
    "[::1]",
    "[::1]:80",
    "127.0.0.1:8000",
]

OTHERS = ["localhost", "b.example", "evilb.example", "www.shop.example", "shop.example.evil", "[::2]", "127.0.0.2", "shop"]

MALFORMED = [
    ":80",
    "a b",
    "user@shop.example",
    "shop.example:80a",
    "shop.example:65536",
    "[::1",
    "::1",
    "[shop.example]",
    "a/b",
    "%",
]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        """
        wsgi-file = {apps}/echo.py
        server-names = shop.example, *.B.example
        server-names = ::1 127.0.0.1
        trusted-proxies = 127.0.0.1
        http2 = h2c
        """,
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"),
    )


def ask(server, host, line="GET / HTTP/1.1", fields="", **options):
    with Client(server.address(), **options) as client:
        host = "" if host is None else f"Host: {host}\r\n"
        client.send(f"{line}\r\n{host}{fields}\r\n".encode("latin-1"))
        return client.read_response()


@pytest.mark.parametrize("host", SERVED)
def test_a_host_that_is_named_is_served(server, host):
    assert ask(server, host).status == 200


@pytest.mark.parametrize("host", OTHERS)
def test_another_host_is_misdirected(server, host):
    response = ask(server, host)
    assert (response.status, response.reason) == (421, "Misdirected Request")
    assert b"server-names" in response.body


@pytest.mark.parametrize("host", MALFORMED)
def test_a_malformed_host_is_a_bad_request(server, host):
    assert ask(server, host).status == 400


def test_each_request_of_a_connection_is_looked_at(server):
    with server.connect() as client:
        for host in ("shop.example", "shop.example", "a.b.example"):
            client.send(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert client.read_response().status == 200
        client.send(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        assert client.read_response().status == 421


def test_the_target_names_the_host_where_it_has_one(server):
    assert ask(server, "other.example", "GET http://shop.example/ HTTP/1.1").status == 200
    assert ask(server, "shop.example", "GET http://other.example/ HTTP/1.1").status == 421


def test_a_trusted_reverse_proxies_host_counts(server):
    assert ask(server, "inner", fields="X-Forwarded-Host: shop.example\r\n").status == 200
    assert ask(server, "shop.example", fields="X-Forwarded-Host: other.example\r\n").status == 421
    assert ask(server, "inner", fields="X-Forwarded-Host: shop.example\r\n", source="127.0.0.2").status == 421


def test_an_http_1_0_request_without_a_host_matches_no_name(server):
    assert ask(server, None, "GET / HTTP/1.0").status == 421
    assert ask(server, "shop.example", "GET / HTTP/1.0").status == 200


def test_reverse_proxies_of_other_protocols_are_asked_too(server):
    for host, status in (("shop.example", 200), ("other.example", 421)):
        assert uwsgi.ask(server.address("uwsgi"), extra=[("HTTP_HOST", host)]).status == status


def test_over_http2_each_stream_is_looked_at(server):
    with Http2(server.connect()) as client:
        for host, status in (("shop.example", 200), ("other.example", 421), ("A.b.example:80", 200), ("", 400), ("a b", 400)):
            assert client.request(authority=host).status == status, host


def test_a_body_for_another_host_is_not_waited_for(server):
    response = ask(server, "other.example", "POST / HTTP/1.1", "Content-Length: 0\r\n")
    assert response.status == 421


def test_without_the_option_every_host_is_served(serve):
    server = serve("wsgi-file = {apps}/hello.py")
    assert [ask(server, host).status for host in (*SERVED, *OTHERS)] == [200] * len(SERVED + OTHERS)
    assert [ask(server, host).status for host in MALFORMED] == [400] * len(MALFORMED)


@pytest.mark.parametrize("name", ["*", "http://shop.example", "shop.example:80", "a b!", ".example", "sh\u00f6p.example", "*."])
def test_a_value_that_is_not_a_host_is_an_error_with_its_line(serve, name):
    server = serve.prepare("wsgi-file = {apps}/hello.py\n" + f"server-names = {name}").launch()
    assert server.wait_for_exit() != 0
    assert server.wait_for_log(r"uwsgi\.ini:\d+: .*is not a host")


def test_an_empty_host_is_none_of_the_names_and_is_served_where_there_are_none(server, serve):
    """RFC 9112 section 3.2: the Host of clients whose target has no authority."""
    assert ask(server, "").status == 421
    assert ask(serve("wsgi-file = {apps}/hello.py"), "").status == 200
