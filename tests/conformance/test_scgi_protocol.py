"""SCGI: requests as reverse proxies send them, and malformed ones, over TCP and UNIX sockets."""

import json
import os

import pytest
from support import scgi, uwsgi
from support.client import Client
from support.refusals import name_of, told_of
from support.scgi import block, netstring

LISTEN = ("scgi-socket = 127.0.0.1:0", "scgi-socket = {directory}/app.sock", "uwsgi-socket = 127.0.0.1:0")


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(
        "wsgi-file = {apps}/echo.py\nbuffer-size = 8192\nlimit-post = 5000000\npost-buffering = 100000", listen=LISTEN
    )


@pytest.fixture(params=["tcp", "unix"])
def address(server, request):
    return server.address("scgi") if request.param == "tcp" else str(server.directory / "app.sock")


def test_the_environ_is_that_of_the_uwsgi_protocol(server, address):
    extra = [("HTTP_X_FRONT", "caf\xe9"), ("HTTPS", "on"), ("SCRIPT_NAME", "/app"), ("MY_OWN", "a\nb,:"), ("EMPTY", "")]
    extra += [("HTTP_X", "first"), ("HTTP_X", "last")]
    told = json.loads(scgi.ask(address, "GET", "/a/b?c=d", extra=extra).body)["environ"]
    by_uwsgi = json.loads(uwsgi.ask(server.address("uwsgi"), "GET", "/a/b?c=d", extra=extra).body)["environ"]
    assert told == {**by_uwsgi, "CONTENT_LENGTH": "0", "SCGI": "1"}
    assert told["wsgi.url_scheme"] == "https"


def test_the_answer_is_as_reverse_proxies_expect_it(address):
    answer = scgi.ask(address)
    assert answer.status_text == "200 OK"
    # Date, Server and connection handling belong to the reverse proxy; the end of the connection ends the body.
    assert [name for name, _ in answer.headers] == ["Content-Type", "Content-Length"]


@pytest.mark.parametrize("size", [1, 1000, 65536, 100_000, 100_001, 1_000_000])
def test_a_body_comes_by_its_content_length(address, size):
    body = os.urandom(size)
    told = json.loads(scgi.ask(address, "POST", "/", body).body)
    assert told["body"].encode("latin-1") == body
    assert told["environ"]["CONTENT_LENGTH"] == str(size)


def test_a_request_may_come_byte_by_byte(address):
    with Client(address) as client:
        client.send_byte_by_byte(scgi.request("POST", "/slow", b"abc"))
        told = json.loads(scgi.Answer(client.read_to_end()).body)
    assert (told["environ"]["PATH_INFO"], told["body"]) == ("/slow", "abc")


@pytest.mark.parametrize(
    ("target", "method", "status", "body"),
    [
        ("list", "GET", 200, b"first second third"),
        ("generator", "GET", 200, b"first second third"),
        ("generator", "HEAD", 200, b""),
        ("no_content_with_body", "GET", 204, b""),
        ("not_modified_with_body", "GET", 304, b""),
    ],
)
def test_an_answer_ends_with_its_connection(serve, target, method, status, body):
    server = serve("wsgi-file = {apps}/framing.py", listen=LISTEN)
    answer = scgi.ask(server.address("scgi"), method, f"/{target}")
    assert (answer.status, answer.body) == (status, body)
    assert answer.all("Transfer-Encoding") + answer.all("Connection") == []


def test_a_failure_is_500(serve):
    server = serve("wsgi-file = {apps}/failures.py", listen=LISTEN)
    assert scgi.ask(server.address("scgi"), target="/exception").status == 500


def test_the_head_may_be_one_of_http(serve):
    server = serve("wsgi-file = {apps}/framing.py", listen=("scgi-nph-socket = 127.0.0.1:0",))
    with Client(server.address("scgi-nph")) as client:
        client.send(scgi.request(target="/list"))
        answer = uwsgi.Answer(client.read_to_end())
    assert (answer.status_line, answer.body) == ("HTTP/1.1 200 OK", b"first second third")


#: A valid head, to be corrupted.
PLAIN = [("CONTENT_LENGTH", "0"), ("SCGI", "1"), ("REQUEST_METHOD", "GET")]

#: Malformed bytes, the status, and words of the log line.
REFUSED = {
    "no netstring": (b"CONTENT_LENGTH", 400, "socket received HTTP"),
    "a negative length": (b"-5:", 400, "length of a netstring"),
    "no length": (b":" + block(PLAIN) + b",", 400, "length of a netstring"),
    "a zero before the length": (b"0" + netstring(block(PLAIN)), 400, "has a leading zero"),
    "too many digits": (b"1" * 10, 431, "too many digits"),
    "larger than buffer-size": (b"8193:", 431, "buffer-size"),
    "no comma": (netstring(block(PLAIN))[:-1] + b";", 400, "comma"),
    "a name without a value": (netstring(block(PLAIN) + b"A\0"), 400, "does not end with a NUL"),
    "a value without an end": (netstring(block(PLAIN) + b"A\0b"), 400, "does not end with a NUL"),
    "no name": (netstring(block([*PLAIN, ("", "x")])), 400, "no name"),
    "no variables": (b"0:,", 400, "no CONTENT_LENGTH"),
    "another variable first": (netstring(block([PLAIN[1], PLAIN[0]])), 400, "first variable"),
    "no version": (netstring(block([PLAIN[0], PLAIN[2]])), 400, "SCGI with the value 1"),
    "another version": (netstring(block([PLAIN[0], ("SCGI", "2")])), 400, "SCGI with the value 1"),
    "no method": (netstring(block(PLAIN[:2])), 400, "no REQUEST_METHOD"),
    "an empty method": (netstring(block([*PLAIN[:2], ("REQUEST_METHOD", "")])), 400, "no REQUEST_METHOD"),
    "a method that is taken back": (netstring(block([*PLAIN, ("REQUEST_METHOD", "")])), 400, "no REQUEST_METHOD"),
    "two lengths": (netstring(block([PLAIN[0], *PLAIN])), 400, "more than one CONTENT_LENGTH"),
    "an empty length": (netstring(block([("CONTENT_LENGTH", ""), *PLAIN[1:]])), 400, "is not a single number"),
    "no number": (netstring(block([("CONTENT_LENGTH", "1x"), *PLAIN[1:]])), 400, "is not a single number"),
    "too many variables": (netstring(block([*PLAIN, *[("A", "")] * 1022])), 431, "more variables"),
    "body too large": (netstring(block([("CONTENT_LENGTH", "5000001"), *PLAIN[1:]])), 413, "limit-post"),
}


@pytest.mark.parametrize("way", ["whole", "byte by byte"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_or_oversized_request_is_refused_and_no_other_connection(server, address, name, way):
    data, status, words = REFUSED[name]
    before = len(server.lines)
    with Client(address) as client, Client(address) as other:
        other.send(scgi.request("POST", "/other", b"ab")[:-1])
        (client.send if way == "whole" else client.send_byte_by_byte)(data)
        assert scgi.Answer(client.read_to_end()).status == status
        other.send(b"b")
        assert scgi.Answer(other.read_to_end()).status == 200
    if words == "socket received HTTP":
        assert f" with {status} at " in told_of(server, words, name_of(address))
        return
    # The mix-ups of earlier tests may have their line of the minute now.
    found = server.wait_for(
        lambda: [line for line in server.lines[before:] if "refused" in line and "more like it" not in line], "the refusal"
    )
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize("cut", [1, 5, 6, 7, 40])
def test_a_truncated_request_reaches_no_application(server, address, cut):
    target = f"/cut/{cut}"
    with Client(address) as client:
        client.send(scgi.request("POST", target, b"12345")[:-cut])
        client.end_sending()
        assert client.is_closed()
    assert scgi.ask(address, target=f"/whole/{cut}").status == 200
    server.wait_for_log(f"GET /whole/{cut}")
    assert target not in server.log


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "An SCGI socket received HTTP: write `http-socket`"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(32), "The client speaks TLS"),
        (uwsgi.packet(uwsgi.request_variables()), "length of a netstring"),
    ],
)
def test_another_protocol_is_told_from_this_one(server, address, data, words):
    with Client(address) as client:
        client.send(data)
        assert scgi.Answer(client.read_to_end()).status == 400
    assert told_of(server, words, name_of(address))


def test_the_log_names_the_client_and_not_the_reverse_proxy(server, address):
    scgi.ask(address, target="/logged", extra=[("REMOTE_USER", "ann")])
    server.wait_for_log(r"\] 192\.0\.2\.7 \(ann\) \{14 vars in \d+ bytes\} \[.*\] GET /logged => ")


def test_an_asynchronous_application_has_the_body_as_it_comes(serve):
    server = serve("asgi = {apps}/asgi_http.py", listen=LISTEN)
    with Client(server.address("scgi")) as client:
        client.send(scgi.request("POST", "/echo", b"helloworld")[: -len(b"world")])
        assert client.read_until(b"\r\n\r\n").startswith(b"Status: 200 OK\r\n")
        assert client.read_exactly(len(b"hello")) == b"hello"
        client.send(b"world")
        assert client.read_to_end() == b"world"
