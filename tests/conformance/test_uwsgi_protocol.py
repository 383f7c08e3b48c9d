"""The uwsgi protocol (modifier1 0), as reverse proxies use it: over TCP and UNIX sockets."""

import json
import os
import struct

import pytest
from support import uwsgi
from support.client import Client
from support.ports import ipv6_is_there
from support.refusals import told_of

TCP_AND_UNIX = ("socket = 127.0.0.1:0", "socket = {directory}/app.sock")


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/echo.py\nbuffer-size = 8192\nlimit-post = 5000000\npost-buffering = 100000",
        listen=TCP_AND_UNIX,
    )


@pytest.fixture(params=["tcp", "unix"])
def address(server, request):
    return server.address("uwsgi") if request.param == "tcp" else str(server.directory / "app.sock")


def test_variables_become_the_environ(address):
    extra = [("HTTP_X_FRONT", "caf\xe9"), ("HTTPS", "on"), ("SCRIPT_NAME", "/app"), ("MY_OWN", "a\nb"), ("EMPTY", "")]
    answer = uwsgi.ask(address, "GET", "/a/b?c=d", extra=extra)
    assert answer.status == 200
    seen = json.loads(answer.body)["environ"]
    expected = dict([*uwsgi.request_variables("GET", "/a/b?c=d"), *extra])
    assert {key: seen.get(key) for key in expected} == expected
    assert seen["wsgi.url_scheme"] == "https"


def test_the_last_of_doubled_variables_counts(address):
    answer = uwsgi.ask(address, extra=[("HTTP_X", "first"), ("HTTP_X", "last")])
    assert json.loads(answer.body)["environ"]["HTTP_X"] == "last"


@pytest.mark.parametrize("scheme", ["UWSGI_SCHEME", "HTTP_X_FORWARDED_PROTO"])
def test_the_reverse_proxy_tells_the_scheme(address, scheme):
    assert json.loads(uwsgi.ask(address, extra=[(scheme, "https")]).body)["environ"]["wsgi.url_scheme"] == "https"
    assert json.loads(uwsgi.ask(address).body)["environ"]["wsgi.url_scheme"] == "http"
    for strange in ("javascript", "https, http", ""):
        told = json.loads(uwsgi.ask(address, extra=[(scheme, strange)]).body)["environ"]
        assert (told["wsgi.url_scheme"], told[scheme]) == ("http", strange)


@pytest.mark.parametrize("size", [1, 1000, 65536, 100_000, 100_001, 1_000_000])
def test_a_body_comes_by_its_content_length(address, size):
    body = os.urandom(size)
    answer = uwsgi.ask(address, "POST", "/", body)
    told = json.loads(answer.body)
    assert told["body"].encode("latin-1") == body
    assert told["environ"]["CONTENT_LENGTH"] == str(size)


def test_a_packet_may_come_byte_by_byte(address):
    with Client(address) as client:
        client.send_byte_by_byte(uwsgi.packet(uwsgi.request_variables("POST", "/slow", b"abc")) + b"abc")
        told = json.loads(uwsgi.Answer(client.read_to_end()).body)
    assert (told["environ"]["PATH_INFO"], told["body"]) == ("/slow", "abc")


def test_the_answer_is_as_reverse_proxies_expect_it(address):
    answer = uwsgi.ask(address)
    assert answer.status_line == "HTTP/1.1 200 OK"
    # Date, Server and connection handling belong to the reverse proxy; the end of the connection ends the body.
    assert [name for name, _ in answer.headers] == ["Content-Type", "Content-Length"]


def test_an_answer_without_a_length_is_not_chunked(serve):
    server = serve("wsgi-file = {apps}/framing.py", listen=("socket = 127.0.0.1:0",))
    answer = uwsgi.ask(server.address("uwsgi"), target="/generator")
    assert answer.body == b"first second third"
    assert [name for name, _ in answer.headers] == ["Content-Type"]
    head = uwsgi.ask(server.address("uwsgi"), "HEAD", "/generator")
    assert (head.status, head.body) == (200, b"")


#: Malformed packets: the bytes, and words of the log line.
REFUSED = {
    "another modifier": (uwsgi.packet(uwsgi.request_variables(), modifier1=5), 400, "modifier1"),
    "a variable beyond the packet": (struct.pack("<BHB", 0, 6, 0) + b"\x05\0ab\0\0", 400, "beyond the packet"),
    "a value beyond the packet": (struct.pack("<BHB", 0, 6, 0) + b"\x01\0a\x05\0b", 400, "beyond the packet"),
    "half a length": (struct.pack("<BHB", 0, 1, 0) + b"\x01", 400, "beyond the packet"),
    "a name without a value": (struct.pack("<BHB", 0, 3, 0) + b"\x01\0a", 400, "beyond the packet"),
    "no variables": (uwsgi.packet([]), 400, "no variables"),
    "no name": (uwsgi.packet([("", "x")]), 400, "no name"),
    "larger than buffer-size": (uwsgi.packet([("A", "b" * 9000)]), 431, "buffer-size"),
    "too many variables": (uwsgi.packet([("A", "")] * 1025), 431, "more variables"),
    "two lengths": (uwsgi.packet([("CONTENT_LENGTH", "1"), ("CONTENT_LENGTH", "2")]), 400, "more than one CONTENT"),
    "no number": (uwsgi.packet([("CONTENT_LENGTH", "1x")]), 400, "is not a single number"),
    "negative": (uwsgi.packet([("CONTENT_LENGTH", "-1")]), 400, "is not a single number"),
    "body too large": (uwsgi.packet([("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "5000001")]), 413, "limit-post"),
}


@pytest.mark.parametrize("way", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_or_oversized_packet_is_refused(server, address, name, way):
    data, status, words = REFUSED[name]
    before = len(server.lines)
    with Client(address) as client:
        (client.send if way == "whole" else client.send_byte_by_byte)(data)
        assert uwsgi.Answer(client.read_to_end()).status == status
    found = server.wait_for(lambda: [line for line in server.lines[before:] if "refused" in line], "the refusal")
    assert len(found) == 1
    assert words in found[0]


def test_a_packet_without_a_method_is_served_as_uwsgi_does(address):
    with Client(address) as client:
        client.send(uwsgi.packet([("PATH_INFO", "/a")]))
        answer = uwsgi.Answer(client.read_to_end())
    assert (answer.status, json.loads(answer.body)["environ"]["PATH_INFO"]) == (200, "/a")


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 40])
def test_a_truncated_packet_reaches_no_application(server, address, cut):
    target = f"/cut/{cut}"
    with Client(address) as client:
        client.send(uwsgi.packet(uwsgi.request_variables(target=target))[:-cut])
        client.end_sending()
        assert client.is_closed()
    with Client(address) as client:
        client.send(uwsgi.packet(uwsgi.request_variables("POST", target, b"12345")) + b"12")
        client.end_sending()
        assert client.is_closed()
    assert uwsgi.ask(address, target=f"/whole/{cut}").status == 200
    server.wait_for_log(f"GET /whole/{cut}")
    assert target not in server.log


def test_the_log_names_the_client_and_not_the_reverse_proxy(server, address):
    uwsgi.ask(address, target="/logged", extra=[("REMOTE_USER", "ann")])
    server.wait_for_log(r"\] 192\.0\.2\.7 \(ann\) \{13 vars in \d+ bytes\} \[.*\] GET /logged => ")


def test_every_kind_of_socket_serves_at_once(serve):
    local = "[::1]" if ipv6_is_there() else "127.0.0.1"
    server = serve(
        "wsgi-file = {apps}/echo.py",
        listen=(
            "http-socket = 127.0.0.1:0",
            "http = 127.0.0.1:0",
            f"http11-socket = {local}:0",
            f"socket = {local}:0",
            "uwsgi-socket = {directory}/one.sock",
            "http-socket = {directory}/two.sock",
            "socket = @bolide-test-{directory}",
        ),
    )
    places = server.places()
    assert len(places) == 7
    for place in places:
        if isinstance(place, str):
            address = "\0" + place[1:] if place.startswith("@") else place
            speaks_http = place.endswith("two.sock")
        else:
            address = place[1:]
            speaks_http = place[0] == "http"
        if speaks_http:
            seen = json.loads(server.connect(address).request().body)["environ"]
        else:
            seen = json.loads(uwsgi.ask(address).body)["environ"]
            assert seen["SERVER_PORT"] == "80"
            continue
        if isinstance(place, tuple):
            assert seen["SERVER_PORT"] == str(address[1])
            assert seen["REMOTE_ADDR"] == address[0]
            assert seen["REMOTE_PORT"].isdigit()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "A uwsgi socket received HTTP: write `http-socket`"),
        (b"POST /x HTTP/1.1\r\nHost: a\r\n\r\n", "A uwsgi socket received HTTP: write `http-socket`"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32), "The client speaks TLS"),
        (b"\x05\x00\x00\x00", "modifier1 is not that of a request"),
    ],
)
def test_another_protocol_is_told_from_this_one(server, data, words):
    with Client(server.address("uwsgi")) as client:
        client.send(data)
        assert client.read_to_end().startswith(b"HTTP/1.1 400 ")
    assert told_of(server, words)
