"""The PROXY protocol: its header names the client; a connection without a header is refused where one is expected."""

import pytest
from support.front import LOCAL, View, binary, line, part, ssl_part
from support.haproxy import HAProxy
from support.http2 import Http2
from support.tls import Authority, context_of

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

APPLICATIONS = {"wsgi": "wsgi-file = {apps}/echo.py", "asgi": "asgi = {apps}/asgi_scope.py"}

#: TLVs that have no effect here: ALPN, authority, CRC-32C, NOOP, unique ID, and one of a cloud provider.
OTHER_PARTS = (
    part(0x01, b"h2") + part(0x02, b"shop.example") + part(0x03, b"\x01\x02\x03\x04") + part(0x04, b"") + part(0x05, b"x" * 128)
) + part(0xEA, b"\x01vpce-08d2bf15fac5001c9")

HEADERS = {
    "version 1": (line("192.0.2.1", 56324), ("192.0.2.1", "56324")),
    "version 1, IPv6": (line("2001:db8::1", 56324, "TCP6", "::1"), ("2001:db8::1", "56324")),
    "version 2": (binary("192.0.2.1", 56324), ("192.0.2.1", "56324")),
    "version 2, IPv6": (binary("2001:db8::1", 56324), ("2001:db8::1", "56324")),
    "version 2, IPv4 in IPv6": (binary("::ffff:192.0.2.1", 56324), ("192.0.2.1", "56324")),
    "version 2 with all kinds of parts": (binary("192.0.2.1", 56324, parts=OTHER_PARTS), ("192.0.2.1", "56324")),
    "version 2, nearly as long as may be": (binary("192.0.2.1", 56324, parts=part(0xE0, b"x" * 4000)), ("192.0.2.1", "56324")),
}

#: The sender itself is the client.
OWN = {
    "version 1": b"PROXY UNKNOWN\r\n",
    "version 1 with addresses": b"PROXY UNKNOWN 192.0.2.1 198.51.100.1 56324 443\r\n",
    "version 2": binary(),
    "a health check": binary(command=LOCAL),
    "a health check with addresses": binary("192.0.2.1", 56324, command=LOCAL),
}

NONE = {
    "a request": REQUEST,
    "a line that is cut off by another": b"PROXY TCP4 192.0.2.1\r\n" + REQUEST,
    "words": b"PROXY TCP4 here there 1 2\r\n" + REQUEST,
    "a line without end": b"PROXY TCP4 " + b"1" * 200,
    "an unknown version": binary()[:12] + b"\x31\x11\x00\x0c" + bytes(12),
    "an unknown command": binary(command=0x2F),
    "too short for its addresses": binary()[:12] + b"\x21\x11\x00\x04" + bytes(4),
    "longer than may be": binary("192.0.2.1", 1, parts=part(0xE0, b"x" * 4096)),
    "a part beyond the end": binary("192.0.2.1", 1, parts=b"\x20\x00\xff\x01"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "junk": bytes(range(128, 228)),
}


@pytest.fixture(scope="module", params=APPLICATIONS)
def server(request, serve_module):
    sockets = ("http-socket = 127.0.0.1:0", "http-socket = {directory}/http.sock")
    return serve_module(APPLICATIONS[request.param] + "\nenable-proxy-protocol = true", listen=sockets)


def ask(client):
    client.send(REQUEST)
    return View(client.read_response())


# Headers.


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("way", ["at once", "byte by byte", "alone"])
def test_the_client_is_the_one_that_the_header_names(server, name, way):
    header, client = HEADERS[name]
    connection = server.connect()
    if way == "at once":
        connection.send(header + REQUEST)
    elif way == "byte by byte":
        connection.send_byte_by_byte(header + REQUEST)
    else:
        connection.send(header)
        connection.send(REQUEST)
    view = View(connection.read_response())
    assert (view.client, view.scheme) == (client, "http")
    # One header is valid for all requests of the connection.
    assert [ask(connection).client for _ in range(3)] == [client] * 3


@pytest.mark.parametrize("name", OWN)
def test_a_sender_that_speaks_for_itself_is_the_client(server, name):
    connection = server.connect()
    connection.send(OWN[name])
    host, port = connection.socket.getsockname()
    assert ask(connection).client == (host, str(port))


def test_a_unix_socket_has_its_headers_too(server):
    for header, client in HEADERS.values():
        connection = server.connect(str(server.directory / "http.sock"))
        connection.send(header)
        assert ask(connection).client == client


@pytest.mark.parametrize("name", NONE)
def test_an_invalid_header_ends_the_connection_without_an_answer(serve, name):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true")
    with server.connect() as connection:
        connection.send(NONE[name])
        assert connection.read_to_end() == b""
    assert server.wait_for_log(r"refused a connection from 127\.0\.0\.1 at .*uwsgi\.ini:\d+\): .*PROXY header")
    assert server.log.count("PROXY header") == 1
    # No other connection is affected.
    connection = server.connect()
    connection.send(line("192.0.2.1", 1))
    assert ask(connection).address == "192.0.2.1"


def test_a_second_header_is_no_request(server):
    with server.connect() as connection:
        connection.send(line("192.0.2.1", 1) + line("192.0.2.2", 2) + REQUEST)
        assert connection.read_response().status == 400


def test_a_connection_that_ends_within_its_header_is_closed(server):
    for header in (b"", b"PROXY TCP4", binary("192.0.2.1", 1)[:20]):
        with server.connect() as connection:
            connection.send(header)
            connection.end_sending()
            assert connection.read_to_end() == b""


def test_a_header_has_its_time_as_a_whole(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\nsocket-timeout = 1")
    for header in (b"", b"PROXY TCP4 192."):
        with server.connect() as connection:
            connection.send(header)
            assert connection.read_to_end() == b""


# TLS terminated by the reverse proxy.


def test_a_client_that_came_by_tls_has_https(server):
    for parts, scheme in ((ssl_part(), "https"), (ssl_part(client=0), "http"), (OTHER_PARTS + ssl_part() + OTHER_PARTS, "https")):
        connection = server.connect()
        connection.send(binary("192.0.2.1", 1, parts=parts))
        assert [ask(connection).scheme for _ in range(3)] == [scheme] * 3


@pytest.mark.parametrize(
    ("told", "verify", "name"),
    [
        ({}, "SUCCESS", "alice"),
        ({"verify": 18}, "FAILED", "alice"),
        ({"client": 0x01, "name": b""}, "NONE", None),
    ],
)
def test_the_application_sees_what_the_header_says_of_tls(serve, told, verify, name):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\nroute-if = equal:${HTTPS};on addheader:X-TLS: yes")
    connection = server.connect()
    connection.send(binary("192.0.2.1", 1, parts=ssl_part(**told)) + REQUEST)
    response = connection.read_response()
    environ = View(response).environ
    assert response.get("x-tls") == "yes"
    assert (environ["HTTPS"], environ["SSL_PROTOCOL"], environ["SSL_CIPHER"]) == ("on", "TLSv1.3", "TLS_AES_128_GCM_SHA256")
    assert (environ["SSL_CLIENT_VERIFY"], environ.get("SSL_CLIENT_S_DN_CN")) == (verify, name)


@pytest.mark.parametrize("option", ["https-socket", "https"])
def test_the_header_comes_before_tls(serve, tmp_path, option):
    authority = Authority(tmp_path)
    credentials = authority.server()
    switch = "enable-proxy-protocol" if option == "https-socket" else "http-enable-proxy-protocol"
    address = f"{option} = 127.0.0.1:0,{credentials.chain},{credentials.key}"
    server = serve(APPLICATIONS["wsgi"] + f"\n{switch} = true", listen=(address,))
    for way in ("at once", "byte by byte"):
        client = server.connect(server.address("https"))
        header = binary("192.0.2.1", 56324, parts=OTHER_PARTS)
        _sent = client.send(header) if way == "at once" else client.send_byte_by_byte(header)
        client.socket = context_of(authority).wrap_socket(client.socket, server_hostname="localhost")
        for _ in range(2):
            view = ask(client)
            assert (view.client, view.scheme) == (("192.0.2.1", "56324"), "https")
            assert view.environ["SSL_PROTOCOL"] == "TLSv1.3"
    # TLS without the header is refused.
    with server.connect(server.address("https")) as client:
        client.send(NONE["TLS"])
        assert client.read_to_end() == b""
    server.wait_for_log("does not begin with a PROXY header")


def test_http2_follows_the_header_too(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\nhttp2 = h2c")
    client = server.connect()
    client.send(line("192.0.2.1", 56324))
    with Http2(client) as session:
        assert [View(session.request()).client for _ in range(3)] == [("192.0.2.1", "56324")] * 3


# Trusted senders, and precedence.


def test_only_trusted_senders_are_believed_where_they_are_named(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\ntrusted-proxies = 127.0.0.2")
    trusted = server.connect(source="127.0.0.2")
    trusted.send(line("192.0.2.1", 1))
    assert ask(trusted).address == "192.0.2.1"
    with server.connect() as stranger:
        stranger.send(line("192.0.2.1", 1) + REQUEST)
        assert stranger.read_to_end() == b""
    assert server.wait_for_log(r"refused a connection from 127\.0\.0\.1 at .*uwsgi\.ini:\d+\): .*trusted-proxies only")


def test_header_fields_count_where_the_client_of_the_header_is_trusted(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\ntrusted-proxies = 127.0.0.1, 198.51.100.0/24")
    for source, address in (("192.0.2.1", "192.0.2.1"), ("198.51.100.7", "203.0.113.9")):
        connection = server.connect()
        connection.send(line(source, 1))
        for _ in range(2):
            view = View(connection.request(headers=[("X-Forwarded-For", "203.0.113.9")]))
            assert view.address == address


def test_each_kind_of_socket_has_its_own_option(serve):
    sockets = ("http = 127.0.0.1:0", "http-socket = {directory}/http.sock", "socket = 127.0.0.1:0")
    server = serve(APPLICATIONS["wsgi"] + "\nhttp-enable-proxy-protocol = true", listen=sockets)
    through_http = server.connect()
    through_http.send(line("192.0.2.1", 1))
    assert ask(through_http).address == "192.0.2.1"
    assert ask(server.connect(str(server.directory / "http.sock"))).address == ""


def test_an_option_without_a_socket_to_act_on_is_said(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nhttp-enable-proxy-protocol = true")
    server.wait_for_text("`http-enable-proxy-protocol` has no effect")
    assert ask(server.connect()).address == "127.0.0.1"


def test_the_log_names_the_client(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true")
    connection = server.connect()
    connection.send(binary("2001:db8::1", 7))
    ask(connection)
    assert server.wait_for_log(r"^\[pid: .*\] 2001:db8::1 \(\) \{")


def test_a_drain_ends_connections_that_wait_for_their_header(serve):
    server = serve(APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true")
    waiting = [server.connect(), server.connect()]
    waiting[1].send(b"PROXY TCP4")
    server.process.terminate()
    assert server.wait_for_exit() == 0
    assert [connection.read_to_end() for connection in waiting] == [b"", b""]


# A real load balancer.


@pytest.fixture(scope="module")
def haproxy(server, tmp_path_factory):
    directory = tmp_path_factory.mktemp("haproxy")
    authority = Authority(directory / "authority")
    credentials = authority.server("localhost")
    bundle = directory / "bundle.pem"
    bundle.write_bytes(credentials.chain.read_bytes() + credentials.key.read_bytes())
    place = f"127.0.0.1:{server.port}"
    front = HAProxy(
        directory,
        {
            "v1": ("", f"{place} send-proxy"),
            "v2": ("", f"{place} send-proxy-v2"),
            "unix": ("", f"unix@{server.directory}/http.sock send-proxy-v2"),
            # A check has to end within the interval: a busy machine fails some of them.
            "checked": ("", f"{place} send-proxy-v2 check inter 50ms fall 1000"),
            "ssl": (
                f"ssl crt {bundle} ca-file {authority.certificate} verify optional",
                f"{place} send-proxy-v2-ssl-cn proxy-v2-options ssl-cipher,authority,crc32c",
            ),
        },
    )
    front.authority = authority
    yield front
    front.finish()


@pytest.mark.parametrize("way", ["v1", "v2", "unix", "checked"])
def test_behind_haproxy_the_client_is_haproxys(haproxy, way):
    client = haproxy.connect(way, source="127.0.0.9")
    for _ in range(3):
        assert ask(client).client == ("127.0.0.9", str(client.socket.getsockname()[1]))


@pytest.mark.parametrize("has_certificate", [True, False])
def test_behind_haproxy_that_ends_tls_the_application_knows_of_it(haproxy, has_certificate):
    authority = haproxy.authority
    context = context_of(authority, client=authority.client("alice") if has_certificate else None)
    with haproxy.connect("ssl", source="127.0.0.9") as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        view = ask(client)
    assert (view.address, view.scheme) == ("127.0.0.9", "https")
    if view.environ is not None:
        assert view.environ["SSL_PROTOCOL"] == "TLSv1.3"
        assert view.environ["SSL_CIPHER"].startswith("TLS_")
        assert view.environ["SSL_CLIENT_VERIFY"] == ("SUCCESS" if has_certificate else "NONE")
        assert view.environ.get("SSL_CLIENT_S_DN_CN") == ("alice" if has_certificate else None)


# Peers that may leave the header out.

OPTIONAL = APPLICATIONS["wsgi"] + "\nhttp-enable-proxy-protocol = true\n"
PLAIN = {
    "a request": REQUEST,
    "a request that begins like a header": b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_trusted_peer_may_leave_out_the_header_of_uwsgis_router(name, application, serve):
    configuration = OPTIONAL.replace(APPLICATIONS["wsgi"], APPLICATIONS[application]) + "trusted-proxies = 127.0.0.1"
    server = serve(configuration, listen=("http = 127.0.0.1:0",))
    connection = server.connect()
    connection.send_byte_by_byte(PLAIN[name])
    assert View(connection.read_response()).client == tuple(map(str, connection.socket.getsockname()))
    # The connection goes on, and another one has its header.
    assert ask(connection).address == "127.0.0.1"
    connection = server.connect()
    connection.send(line("192.0.2.1", 56324))
    assert ask(connection).client == ("192.0.2.1", "56324")
    assert "PROXY" not in server.log


def test_a_trusted_peer_may_leave_out_the_header_before_tls(serve, tmp_path):
    authority = Authority(tmp_path)
    credentials = authority.server()
    address = f"https = 127.0.0.1:0,{credentials.chain},{credentials.key}"
    server = serve(OPTIONAL + "trusted-proxies = 127.0.0.1", listen=(address,))
    client = server.connect(server.address("https"))
    client.socket = context_of(authority).wrap_socket(client.socket, server_hostname="localhost")
    view = ask(client)
    assert (view.address, view.scheme) == ("127.0.0.1", "https")


def test_a_trusted_peer_may_leave_out_the_header_before_http2(serve):
    server = serve(OPTIONAL + "trusted-proxies = 127.0.0.1\nhttp2 = h2c", listen=("http = 127.0.0.1:0",))
    with Http2(server.connect()) as session:
        assert View(session.request()).address == "127.0.0.1"


@pytest.mark.parametrize("name", sorted(set(NONE) - {"a request", "TLS", "junk"}))
def test_a_malformed_header_is_refused_where_it_may_be_left_out(name, serve):
    server = serve(OPTIONAL + "trusted-proxies = 127.0.0.1", listen=("http = 127.0.0.1:0",))
    with server.connect() as connection:
        connection.send(NONE[name])
        assert connection.read_to_end() == b""


@pytest.mark.parametrize(
    ("more", "is_told"), [("", True), ("trusted-proxies = 192.0.2.1", False), ("trusted-proxies = none", False)]
)
def test_nobody_else_may_leave_it_out_and_the_start_says_so(more, is_told, serve):
    server = serve(OPTIONAL + more, listen=("http = 127.0.0.1:0",))
    with server.connect() as connection:
        connection.send(REQUEST)
        assert connection.read_to_end() == b""
    told = "warning: `http-enable-proxy-protocol`: connections without a header of the PROXY protocol are refused"
    assert (told in server.log) == is_told


def test_bolides_sockets_stay_strict(serve):
    configuration = APPLICATIONS["wsgi"] + "\nenable-proxy-protocol = true\ntrusted-proxies = 127.0.0.1"
    server = serve(configuration)
    with server.connect() as connection:
        connection.send(REQUEST)
        assert connection.read_to_end() == b""
    assert "`enable-proxy-protocol`: connections without a header of the PROXY protocol are refused" in server.log
