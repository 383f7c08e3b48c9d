"""Connections over TLS: everything that works on a plain one works here, in both directions, and ends properly."""

import hashlib
import json
import os
import socket
import ssl
import subprocess

import pytest
from support import processes
from support.client import Client
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support.websocket import TEXT, WebSocket, frame

MEGABYTE = bytes(range(256)) * 4096
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]

#: Maximum memory in bytes for a slow client of a large response, with a margin for other activity.
SLOW_BYTES = 24 << 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def listen(authority):
    credentials = authority.server()
    return (f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key}",)


@pytest.fixture(scope="module")
def context(authority):
    return context_of(authority)


def connect(server, context, **options):
    return TlsClient(server.address("https"), context, **options)


def get(server, context, target="/", **options):
    with connect(server, context) as client:
        return client.request(target=target, **options)


@pytest.fixture(scope="module")
def streams(serve_module, listen):
    return serve_module("wsgi-file = {apps}/streams.py", listen=listen)


@pytest.fixture(scope="module")
def echo(serve_module, listen):
    return serve_module("wsgi-file = {apps}/echo.py", listen=listen)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["one_part", "large_parts", "small_parts", "file"])
def test_large_answers_arrive_whole(streams, authority, version, path):
    response = get(streams, context_of(authority, least=version, most=version), f"/{path}?8")
    size = {"large_parts": 100_000, "small_parts": 1000}.get(path, len(MEGABYTE))
    total = 8 * len(MEGABYTE)
    assert response.body == b"".join(MEGABYTE[: min(size, total - start)] for start in range(0, total, size))


def test_a_large_upload_arrives_whole(serve, listen, context):
    server = serve("module = asgi_http:application\npythonpath = {apps}", listen=listen)
    body = os.urandom(1 << 20) * 12
    with connect(server, context) as client:
        for sent in (body, b"", body):
            told = json.loads(client.request("POST", "/digest", body=sent).text)
            assert (told["bytes"], told["sha256"]) == (len(sent), hashlib.sha256(sent).hexdigest())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_upload_is_collected_whole(echo, authority, version):
    body = MEGABYTE * 3
    with connect(echo, context_of(authority, least=version, most=version)) as client:
        for _ in range(2):
            told = json.loads(client.request("POST", body=body).text)
            assert told["body"] == body.decode("latin-1")


def test_a_chunked_upload_in_small_records_arrives_whole(echo, context):
    with connect(echo, context) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(300):
            client.send(b"%x\r\n%s\r\n" % (number + 1, b"x" * (number + 1)))
        client.send(b"0\r\n\r\n")
        assert json.loads(client.read_response().text)["body"] == "x" * sum(range(301))


def test_requests_that_follow_one_another_are_answered_in_their_order(echo, context):
    with connect(echo, context) as client:
        client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number for number in range(500)))
        paths = [json.loads(client.read_response().text)["environ"]["PATH_INFO"] for _ in range(500)]
    assert paths == [f"/{number}" for number in range(500)]


def test_a_slow_reader_gets_all_and_costs_little(serve, listen, context):
    server = serve("wsgi-file = {apps}/streams.py", listen=listen)
    before = processes.resident_bytes(server.worker())
    with connect(server, context, receive_bytes=4096) as client:
        client.send(b"GET /large_parts?64 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.read_head().status == 200
        # Another client is served in the meantime.
        assert get(server, context, "/fine").text == "fine"
        assert int(get(server, context, "/given").text) < 16 << 20, "it is not made faster than it is taken"
        assert processes.resident_bytes(server.worker()) - before < SLOW_BYTES
        total = sum(len(chunk) for chunk in client.read_chunks())
    assert total == 64 << 20


def test_a_file_is_sent_whole_and_in_parts(serve, listen, context, tmp_path):
    content = os.urandom(5_000_001)
    (tmp_path / "film").write_bytes(content)
    (tmp_path / "small").write_bytes(b"small")
    server = serve(f"wsgi-file = {{apps}}/hello.py\nstatic-map = /files={tmp_path}", listen=listen)
    with connect(server, context) as client:
        assert client.request(target="/files/film").body == content
        assert client.request(target="/files/small").body == b"small"
        part = client.request(target="/files/film", headers=[("Range", "bytes=100000-199999")])
        assert (part.status, part.body) == (206, content[100000:200000])
        assert client.request("HEAD", "/files/film").get("content-length") == str(len(content))
        assert client.request(target="/files/film", headers=[("Range", "bytes=-1")]).body == content[-1:]


def test_write_arrives(serve, listen, context):
    server = serve("wsgi-file = {apps}/writing.py", listen=listen)
    body = get(server, context, "/threads").body
    assert len(body) == 4 * 30 * 60_000 + len(b"end")
    assert {body.count(letter) for letter in b"ab"} == {30 * 60_000}


def test_an_asgi_stream_arrives_as_it_is_sent(serve, listen, context):
    server = serve("module = asgi_http:application\npythonpath = {apps}", listen=listen)
    with connect(server, context) as client:
        assert client.request(target="/parts").chunks
        assert client.request("POST", "/echo", body=b"hello").body == b"hello"


@pytest.mark.parametrize("compression", [False, True])
def test_websocket_within_tls(serve, listen, context, compression):
    server = serve("module = asgi_socket_echo:application\npythonpath = {apps}", listen=listen)
    with connect(server, context) as client:
        ws = WebSocket(client, compression=compression).open()
        for text in ("hello", "x" * 70_000, "é" * 200_000):
            ws.send_text(text)
            assert ws.read_message() == text
        assert ws.close() == (1000, "")


def test_first_frames_may_come_with_the_handshake(serve, listen, context):
    server = serve("module = asgi_socket_echo:application\npythonpath = {apps}", listen=listen)
    with connect(server, context) as client:
        ws = WebSocket(client, early=frame(TEXT, "early") + frame(TEXT, "bird")).open()
        assert [ws.read_message(), ws.read_message()] == ["early", "bird"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_is_said_within_tls(echo, authority, version):
    with connect(echo, context_of(authority, least=version, most=version)) as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        # An end without close_notify would be an error here.
        assert client.read_to_end().startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_idle_connection_is_ended_with_a_word(serve, listen, authority, version):
    server = serve("wsgi-file = {apps}/echo.py\nhttp-keepalive = 4", listen=listen)
    with connect(server, context_of(authority, least=version, most=version)) as client:
        assert client.request().status == 200
        assert client.is_closed()


def test_an_answer_that_breaks_off_has_no_word_at_its_end(serve, listen, context):
    server = serve("wsgi-file = {apps}/failures.py", listen=listen)
    with connect(server, context) as client:
        client.send(b"GET /exception_mid_stream HTTP/1.0\r\n\r\n")
        with pytest.raises(ssl.SSLEOFError):
            client.read_to_end()


def test_a_client_that_ends_with_a_word_is_let_go(echo, context):
    with connect(echo, context) as client:
        assert client.request().status == 200
        with client.say_goodbye() as plain:
            assert plain.recv(1) == b""


def test_a_body_that_is_cut_off_reaches_no_application(serve, listen, context):
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    with connect(server, context) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
        # The end of the TCP connection, without close_notify.
        with socket.socket(fileno=os.dup(client.socket.fileno())) as plain:
            plain.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert get(server, context).status == 200
    assert server.log.count("POST") == 0


def test_a_socket_is_offered_to_those_that_ask_for_another_protocol_alone(serve, listen, context):
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    headers = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    types = json.loads(get(server, context, headers=headers).text)["types"]
    assert {"gunicorn.socket", "werkzeug.socket"} <= set(types)
    assert not {"gunicorn.socket", "werkzeug.socket"} & set(json.loads(get(server, context).text)["types"])


def test_the_uwsgi_protocol_is_spoken_within_tls_too(serve, authority, context):
    credentials = authority.server("front", "localhost")
    server = serve("wsgi-file = {apps}/echo.py", listen=(f"ssl-socket = 127.0.0.1:0,{credentials.chain},{credentials.key}",))
    variables = {"REQUEST_METHOD": "GET", "PATH_INFO": "/x", "REQUEST_URI": "/x", "SERVER_PROTOCOL": "HTTP/1.1"}
    packet = b"".join(len(part).to_bytes(2, "little") + part.encode() for pair in variables.items() for part in pair)
    (place,) = server.places()
    with TlsClient(place[1:], context_of(authority, alpn=())) as client:
        client.send(b"\0" + len(packet).to_bytes(2, "little") + b"\0" + packet)
        told = json.loads(client.read_to_end().partition(b"\r\n\r\n")[2])
    # The reverse proxy's TLS is not its client's.
    assert told["environ"]["wsgi.url_scheme"] == "http"
    assert "HTTPS" not in told["environ"]


@pytest.mark.parametrize("options", [(), ("--tlsv1.2", "--tls-max", "1.2"), ("--http1.0",)])
def test_curl_is_served(echo, authority, options):
    url = f"https://localhost:{echo.address('https')[1]}/"
    command = ["curl", "-sS", "--http1.1", *options, "--cacert", str(authority.certificate), "-d", "@-", url]
    done = subprocess.run(command, input=b"x" * 100_000, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["body"] == "x" * 100_000


def test_http2_passes_large_bodies_both_ways(serve, listen, authority, tmp_path):
    content = os.urandom(3_000_001)
    (tmp_path / "film").write_bytes(content)
    server = serve(f"wsgi-file = {{apps}}/echo.py\nstatic-map = /files={tmp_path}", listen=listen)
    url = f"https://localhost:{server.address('https')[1]}/"
    command = ["curl", "-sS", "--http2", "--cacert", str(authority.certificate), "-w", "%{stderr}%{http_version}"]
    done = subprocess.run([*command, url + "files/film"], capture_output=True, timeout=60)
    assert (done.stderr, done.stdout) == (b"2", content)
    done = subprocess.run([*command, "--data-binary", "@-", url], input=content, capture_output=True, timeout=60)
    told = json.loads(done.stdout)
    assert (done.stderr, told["body"]) == (b"2", content.decode("latin-1"))
    assert (told["environ"]["SERVER_PROTOCOL"], told["environ"]["HTTPS"]) == ("HTTP/2.0", "on")


def test_a_client_that_negotiates_http2_must_speak_it(echo, authority):
    with connect(echo, context_of(authority, alpn=("h2",))) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # RFC 9113 section 3.4: GOAWAY with PROTOCOL_ERROR, after our own settings.
        assert b"\0\0\0\0\0\0\0\0\1" in client.read_to_end()


def test_connections_that_come_and_go_leave_nothing(serve, listen, context):
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    worker = server.worker()

    def descriptors():
        return len(os.listdir(f"/proc/{worker}/fd"))

    get(server, context)
    wait_until(lambda: descriptors() > 0, lambda: "no descriptors")
    before = descriptors()
    for _ in range(20):
        get(server, context)
        with Client(server.address("https")) as client:
            client.send(b"\x16\x03\x01")
    wait_until(lambda: descriptors() <= before, lambda: f"{descriptors() - before} descriptors are left")
