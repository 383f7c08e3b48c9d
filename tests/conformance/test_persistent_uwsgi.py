"""Several uwsgi packets one after the other on one connection (`puwsgi-socket`)."""

import json
import os

import pytest
from support import uwsgi
from support.client import Client

LISTEN = ("puwsgi-socket = 127.0.0.1:0", "puwsgi-socket = {directory}/app.sock")


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module("wsgi-file = {apps}/echo.py\nbuffer-size = 8192\npost-buffering = 100000", listen=LISTEN)


@pytest.fixture(params=["tcp", "unix"])
def address(server, request):
    return server.address("puwsgi") if request.param == "tcp" else str(server.directory / "app.sock")


def packet(method="GET", target="/", body=b""):
    return uwsgi.packet(uwsgi.request_variables(method, target, body)) + body


def read_answer(client, method="GET"):
    """Returns a response whose Content-Length determines its end."""
    return client.read_response(method)


@pytest.mark.parametrize("size", [0, 1, 1000, 100_001])
def test_a_connection_serves_one_request_behind_the_other(address, size):
    body = os.urandom(size)
    with Client(address) as client:
        for number in range(3):
            client.send(packet("POST", f"/{number}", body))
            told = json.loads(read_answer(client).body)
            assert told["environ"]["PATH_INFO"] == f"/{number}"
            assert told["body"].encode("latin-1") == body


def test_packets_may_come_together_and_byte_by_byte(address):
    packets = b"".join(packet("POST", f"/{number}", b"abc") for number in range(3))
    for way in ("send", "send_byte_by_byte"):
        with Client(address) as client:
            getattr(client, way)(packets)
            for number in range(3):
                assert json.loads(read_answer(client).body)["environ"]["PATH_INFO"] == f"/{number}"


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("list_with_length", "GET"),
        ("list_with_length", "HEAD"),
        ("nothing", "GET"),
        ("no_content", "GET"),
        ("not_modified", "GET"),
    ],
)
def test_a_connection_goes_on_behind_an_answer_whose_end_can_be_told(serve, target, method):
    server = serve("wsgi-file = {apps}/framing.py", listen=LISTEN)
    with Client(server.address("puwsgi")) as client:
        for _ in range(3):
            client.send(packet(method, f"/{target}"))
            assert read_answer(client, method).status in (200, 204, 304)


def test_the_connection_ends_an_answer_of_unknown_length(serve):
    server = serve("wsgi-file = {apps}/framing.py", listen=LISTEN)
    with Client(server.address("puwsgi")) as client:
        client.send(packet(target="/list_with_length"))
        assert read_answer(client).body == b"first second third"
        client.send(packet(target="/generator"))
        answer = uwsgi.Answer(client.read_to_end())
    assert answer.body == b"first second third"
    assert [name for name, _ in answer.headers] == ["Content-Type"]


def test_a_malformed_packet_ends_the_connection_and_no_other(server, address):
    before = len(server.lines)
    with Client(address) as client, Client(address) as other:
        for one in (client, other):
            one.send(packet())
            assert read_answer(one).status == 200
        client.send(uwsgi.packet([("", "x")]))
        assert uwsgi.Answer(client.read_to_end()).status == 400
        other.send(packet())
        assert read_answer(other).status == 200
    found = server.wait_for(lambda: [line for line in server.lines[before:] if "refused" in line], "the refusal")
    assert len(found) == 1
    assert "no name" in found[0]
