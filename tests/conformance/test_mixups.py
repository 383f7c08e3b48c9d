"""A different protocol than the socket's: the response identifies it, and so does the log, once a minute and peer, with the
option to change and the place; and the server keeps serving.
"""

import re
import time

import pytest
from support.client import Client

MIXUPS = {
    "FastCGI": (
        b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0",
        400,
        "An HTTP socket received FastCGI: use `proxy_pass`",
    ),
    "SCGI": (b"24:CONTENT_LENGTH\x000\0SCGI\x001\0,", 400, "An HTTP socket received SCGI: use `proxy_pass`"),
    "uwsgi": (b"\0\x20\0\0\x0e\0REQUEST_METHOD\x03\0GET", 400, "An HTTP socket received the uwsgi protocol"),
    "PROXY": (
        b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
        "A socket received a PROXY header that it does not expect: write `enable-proxy-protocol = true`",
    ),
    "PROXY version 2": (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12), 400, "a version 2 PROXY header looks like this"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "The client speaks HTTP/2 without TLS, which is disabled"),
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
    place = rf"127\.0\.0\.1:{server.port} \(.*uwsgi\.ini:2\)"
    server.wait_for_log(rf"refused a request from 127\.0\.0\.1 with {status} at {place}: .*{re.escape(words)}")
    assert server.get("/").status == 200


#: The first record of TLS, and requests of the protocols.
TLS = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32)
HTTP = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

#: The data that comes to each socket, and the name of its protocol in the log.
AT_SOCKETS = [
    *(("http", sent, words) for sent, _, words in MIXUPS.values()),
    ("http", TLS, "this socket speaks plain HTTP"),
    ("uwsgi", HTTP, "A uwsgi socket received HTTP"),
    ("uwsgi", TLS, "this socket speaks the uwsgi protocol"),
    ("scgi", HTTP, "An SCGI socket received HTTP"),
    ("scgi", TLS, "this socket speaks SCGI"),
    ("fastcgi", HTTP, "A FastCGI socket received HTTP"),
    ("fastcgi", TLS, "this socket speaks FastCGI"),
]
SOCKETS = ("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", "scgi-socket = 127.0.0.1:0", "fastcgi-socket = 127.0.0.1:0")


def mix_up(server, address, data, **options):
    with server.connect(address, **options) as client:
        client.send(data)
        client.read_to_end()


def test_each_mixup_is_one_line_a_minute_of_each_peer(serve):
    server = serve("wsgi-file = {apps}/hello.py", listen=SOCKETS)
    began = time.monotonic()
    for _ in range(3):
        for scheme, sent, _ in AT_SOCKETS:
            mix_up(server, server.address(scheme), sent)
    for _ in range(2):
        mix_up(server, server.address("uwsgi"), HTTP, source="127.0.0.2")
    # A fault that is not a mix-up is logged each time: after the last of these lines no other follows.
    for _ in range(2):
        mix_up(server, server.address(), b"nonsense\r\n\r\n")
    server.wait_for_log("refused a request from 127.0.0.1 with 400: The request's target is missing", count=2)
    # A machine that was suspended for minutes has one line for each minute.
    most = 1 + int((time.monotonic() - began) // 60)
    for _, _, words in AT_SOCKETS:
        lines = [line for line in server.lines if words in line and "from 127.0.0.1 " in line]
        assert 1 <= len(lines) <= most, (words, lines)
    assert 1 <= server.log.count("refused a request from 127.0.0.2 ") <= most


def test_the_line_says_at_which_socket_and_where_that_was_asked_for(serve):
    server = serve("wsgi-file = {apps}/hello.py", listen=(*SOCKETS, "socket = {directory}/app.sock"))
    for number, scheme in enumerate(("uwsgi", "scgi", "fastcgi"), start=3):
        host, port = server.address(scheme)
        mix_up(server, (host, port), HTTP)
        server.wait_for_log(
            rf"refused a request from {host} with 400 at {host}:{port} \(.*/uwsgi\.ini:{number}\): An? \S+ socket received HTTP"
        )
    with Client(str(server.directory / "app.sock")) as client:
        client.send(HTTP)
        client.read_to_end()
    place = rf"{re.escape(str(server.directory))}/app\.sock \(.*/uwsgi\.ini:6\)"
    server.wait_for_log(rf"refused a request from a local client with 400 at {place}: A uwsgi socket received HTTP")


def test_a_socket_of_the_command_line_is_said_to_be_one(serve):
    server = serve(arguments=["--uwsgi-socket", "127.0.0.1:0", "--wsgi-file", "{apps}/hello.py"])
    host, port = server.address("uwsgi")
    mix_up(server, (host, port), HTTP)
    server.wait_for_log(
        rf"refused a request from {host} with 400 at {host}:{port} \(command line\): An? \S+ socket received HTTP"
    )
