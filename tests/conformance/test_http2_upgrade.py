"""Negotiation of HTTP/2: by ALPN, by prior knowledge, by `Upgrade`; and `http2 = on|off|h2c`, which enables them."""

import ssl

import pytest
from support import http2
from support.http2 import INITIAL_WINDOW_SIZE, PREFACE, Http2, secured, settings, upgraded
from support.tls import Authority, context_of

UPGRADE = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")]

APPLICATION = "asgi = {apps}/asgi_http.py"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def start(serve_module, authority):
    """Starts a server with a plain socket and one with TLS."""
    shown = authority.server()

    def start(*lines, application=APPLICATION):
        listen = ("http-socket = 127.0.0.1:0", f"https = 127.0.0.1:0,{shown.chain},{shown.key}", *lines)
        return serve_module(application, listen=listen)

    return start


@pytest.fixture(scope="module")
def clear(start):
    return start("http2 = h2c")


@pytest.fixture(scope="module", params=["http2 = on", None])
def usual(request, start):
    return start(*filter(None, [request.param]))


@pytest.fixture(scope="module")
def off(start):
    return start("http2 = off")


def chosen(server, authority, offered):
    """Returns the server's choice among the protocols that a client offers."""
    client = server.connect(server.address("https"))
    client.socket = context_of(authority, alpn=offered).wrap_socket(client.socket, server_hostname="localhost")
    return client, client.socket.selected_alpn_protocol()


@pytest.mark.parametrize(
    ("offered", "choice"),
    [(["h2", "http/1.1"], "h2"), (["http/1.1", "h2"], "h2"), (["h2"], "h2"), (["http/1.1"], "http/1.1"), ([], None)],
)
def test_within_tls_http2_is_chosen_for_clients_that_offer_it(usual, authority, offered, choice):
    client, choice_made = chosen(usual, authority, offered)
    assert choice_made == choice
    if choice == "h2":
        assert Http2(client).request(target="/fine", scheme="https").body == b"fine"
    else:
        assert client.request(target="/fine").body == b"fine"


def test_http1_after_negotiating_http2_ends_the_connection(usual, authority):
    client, _ = chosen(usual, authority, ["h2"])
    client.send(b"GET /fine HTTP/1.1\r\nHost: localhost\r\n\r\n")
    said = client.read_to_end()
    assert b"fine" not in said
    assert client.buffer == b""
    assert usual.get("/fine").body == b"fine"


def test_http2_after_negotiating_http1_is_refused(usual, authority):
    client, _ = chosen(usual, authority, ["http/1.1"])
    client.send(PREFACE + settings())
    assert client.read_response().status in (400, 505)


def test_without_tls_http2_is_no_default(usual):
    client = usual.connect()
    client.send(PREFACE + settings())
    assert client.read_response().status in (400, 505)
    client = usual.connect()
    # An unwanted upgrade is ignored (RFC 9110 section 7.8).
    assert client.request(target="/fine", headers=UPGRADE).body == b"fine"


def test_switched_off_it_is_not_offered(off, authority):
    client, choice = chosen(off, authority, ["h2", "http/1.1"])
    assert choice == "http/1.1"
    assert client.request(target="/fine").body == b"fine"
    with pytest.raises(ssl.SSLError):
        chosen(off, authority, ["h2"])
    client = off.connect()
    client.send(PREFACE + settings())
    assert client.read_response().status in (400, 505)


def test_with_h2c_a_plain_socket_speaks_both(clear, authority):
    assert Http2(clear.connect()).request(target="/fine").body == b"fine"
    assert clear.get("/fine").body == b"fine"
    client = secured(clear.connect(clear.address("https")), context_of(authority, alpn=["h2"]))
    assert Http2(client).request(target="/fine", scheme="https").body == b"fine"


def test_the_preface_may_come_byte_by_byte(clear):
    client = clear.connect()
    client.send_byte_by_byte(PREFACE[:-1])
    connection = Http2(client, preface=PREFACE[-1:])
    assert connection.request(target="/fine").body == b"fine"


def test_http1_does_not_become_http2_in_the_middle(clear):
    client = clear.connect()
    assert client.request(target="/fine").body == b"fine"
    client.send(PREFACE + settings())
    said = client.read_to_end()
    assert said.startswith(b"HTTP/1.1 4") or said.startswith(b"HTTP/1.1 505")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_upgrade_answers_its_request_as_stream_1(clear, method):
    connection, answer = upgraded(clear.connect(), method, "/fine", values={INITIAL_WINDOW_SIZE: 2})
    assert connection.finish(answer).body == (b"fine" if method == "GET" else b"")
    assert connection.request(target="/fine").body == b"fine"


def test_a_request_with_a_body_is_answered_as_it_came(clear):
    # RFC 7540 section 3.2: its body would have to arrive completely before the first frame.
    client = clear.connect()
    response = client.request("POST", "/digest", UPGRADE, b"x" * 5000)
    assert (response.status, b'"bytes": 5000' in response.body) == (200, True)
    assert client.request(target="/fine").body == b"fine"


def test_an_upgrade_of_wsgi_says_http_2(start):
    server = start("http2 = h2c", application="wsgi-file = {apps}/echo.py")
    connection, answer = upgraded(server.connect(), target="/a?b", headers=[("X-A", "1")])
    body = connection.finish(answer).text
    assert '"REQUEST_URI": "/a?b"' in body
    assert '"HTTP_X_A": "1"' in body
    assert connection.request().status == 200


@pytest.mark.parametrize(
    "fields",
    [
        [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c")],
        [*UPGRADE, UPGRADE[-1]],
        [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "?????")],
        [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAM")],
        [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")],
    ],
)
def test_an_upgrade_that_is_not_well_formed_is_none(clear, fields):
    client = clear.connect()
    response = client.request(target="/fine", headers=fields)
    assert response.status in (200, 400), response
    assert clear.get("/fine").body == b"fine"


def test_an_upgrade_to_either_of_several_is_an_upgrade(clear):
    client = clear.connect()
    head = (
        "GET /fine HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: other, h2c\r\nHTTP2-Settings: \r\n\r\n"
    )
    client.send(head.encode())
    assert client.read_head().status == 101
    connection = Http2(client)
    assert connection.finish(connection.expect(1)).body == b"fine"


def test_a_client_without_settings_is_disconnected(clear):
    client = clear.connect()
    client.send(PREFACE)
    client.end_sending()
    assert http2.frame(http2.SETTINGS)[3:4] in client.read_to_end()


@pytest.mark.parametrize("way", ["send", "send_byte_by_byte"])
def test_an_empty_line_before_a_request_is_no_beginning_of_http_2(clear, off, way):
    """RFC 9112 section 2.2: one empty line is ignored, with h2c as without."""
    for server in (clear, off):
        client = server.connect()
        for before in (b"\r\n", b"", b"\r\n"):
            getattr(client, way)(before + b"GET /fine HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.read_response().body == b"fine"


@pytest.mark.parametrize("before", [b"\n", b"\r\n\r\n", b"\n\r\n"])
def test_errors_about_empty_lines_are_the_same_as_without_h2c(clear, off, before):
    said = []
    for server in (clear, off):
        client = server.connect()
        client.send(before + b"GET /fine HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = client.read_response()
        said.append((answer.status, answer.body))
    assert said[0] == said[1]
    assert said[0][0] == 400
