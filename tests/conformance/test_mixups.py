"""Another protocol than the socket's: it is named in the log and in the answer, with what to write, and the server goes on."""

import pytest

MIXUPS = {
    "FastCGI": (
        b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0",
        400,
        "FastCGI came to an HTTP socket: nginx is to use `proxy_pass`",
    ),
    "SCGI": (b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, "SCGI came to an HTTP socket: nginx is to use `proxy_pass`"),
    "uwsgi": (b"\0\x20\0\0\x0e\0REQUEST_METHOD\x03\0GET", 400, "The uwsgi protocol came to an HTTP socket"),
    "PROXY": (
        b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
        "A PROXY header came to a socket that expects none: write `enable-proxy-protocol = true`",
    ),
    "PROXY version 2": (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), 400, "a PROXY header of version 2 does too"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "The client speaks HTTP/2 without TLS, which is not spoken here"),
}


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/hello.py")


@pytest.mark.parametrize("name", MIXUPS)
def test_another_protocol_at_an_http_socket_is_named(server, name):
    sent, status, words = MIXUPS[name]
    client = server.connect()
    client.send(sent)
    answer = client.read_response()
    assert answer.status == status
    assert words in answer.text
    server.wait_for_text(f"refused a request of 127.0.0.1 with {status}: ")
    server.wait_for_text(words)
    assert server.get("/").status == 200
