"""`request-start`: the application gets the time when its request arrived as `X-Request-Start`, over each protocol."""

import contextlib
import json
import re
import signal
import ssl
import time
from pathlib import Path

import pytest
from support import fastcgi, scgi, uwsgi
from support.client import Client
from support.http2 import Http2, secured
from support.tls import Authority, context_of
from support.waiting import wait_until

#: Each call says the values of the field, when it was called, and when it ended: it waits for a file if it is asked to.
APPLICATION = """
import json
import os
import time


def told(path, values):
    called = time.time()
    if path == "/wait":
        open("called", "w").close()
    while path == "/wait" and not os.path.exists("gate"):
        time.sleep(0.002)
    return json.dumps({"starts": values, "called": called, "ended": time.time()}).encode()


def application(environ, start_response):
    environ["wsgi.input"].read()
    values = [value for name, value in environ.items() if name == "HTTP_X_REQUEST_START"]
    body = told(environ["PATH_INFO"], values)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asynchronous(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    body = told(scope["path"], [value.decode() for name, value in scope["headers"] if name == b"x-request-start"])
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""
KINDS = {
    "threads": "module = starts\nthreads = 2",
    "gevent": "module = starts\ngevent = 4",
    "asgi": "module = starts:asynchronous\nasgi-extensions = none",
}
#: No peer is a trusted reverse proxy.
TRUSTS_NONE = "trusted-proxies = 192.0.2.1"
VALUE = re.compile(r"t=\d{10}\.\d{3}")
#: The kernel counts in ticks of at most 10 ms, and the field is in milliseconds.
TICK_SECONDS = 0.02


class Place:
    """A server with this kind of application at all protocols."""

    def __init__(self, serve, directory, options):
        directory.mkdir(exist_ok=True)
        (directory / "starts.py").write_text(APPLICATION)
        self.gate = None
        self.authority = Authority(directory / "certificates")
        shown = self.authority.server()
        listen = (
            "http-socket = 127.0.0.1:0",
            "http-socket = {directory}/http.sock",
            f"https = 127.0.0.1:0,{shown.chain},{shown.key}",
            "uwsgi-socket = 127.0.0.1:0",
            "scgi-socket = 127.0.0.1:0",
            "fastcgi-socket = 127.0.0.1:0",
            "http2 = h2c",
        )
        self.server = serve(f"pythonpath = {directory}\n{options}", listen=listen)
        self.gate = self.server.directory / "gate"

    def context(self, alpn=("http/1.1",)):
        return context_of(self.authority, alpn=list(alpn))

    def secured(self, client):
        client.socket = self.context().wrap_socket(client.socket, server_hostname="localhost")
        return client


def ask_http(place, target, headers):
    with place.server.connect() as client:
        return client.request("GET", target, headers)


def ask_unix(place, target, headers):
    with Client(str(place.server.directory / "http.sock")) as client:
        return client.request("GET", target, headers)


def ask_https(place, target, headers):
    with place.secured(place.server.connect(place.server.address("https"))) as client:
        return client.request("GET", target, headers)


def ask_http2(place, target, headers):
    with Http2(place.server.connect()) as client:
        return client.request("GET", target, [(name.lower(), value) for name, value in headers])


def ask_http2_tls(place, target, headers):
    client = secured(place.server.connect(place.server.address("https")), place.context(["h2"]))
    with Http2(client) as connection:
        connection.scheme = "https"
        return connection.request("GET", target, [(name.lower(), value) for name, value in headers])


def ask_upgraded(place, target, headers):
    """RFC 7540 section 3.2."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    with place.server.connect() as client:
        client.send(
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            f"Upgrade: h2c\r\nHTTP2-Settings: \r\n{lines}\r\n".encode()
        )
        assert client.read_head().status == 101
        connection = Http2(client)
        return connection.finish(connection.expect(1))


def through(module, protocol):
    def ask(place, target, headers):
        extra = [("HTTP_" + name.upper().replace("-", "_"), value) for name, value in headers]
        return module.ask(place.server.address(protocol), "GET", target, extra=extra)

    return ask


#: The protocols of clients, and those that only reverse proxies speak.
CLIENTS = {
    "http": ask_http,
    "unix": ask_unix,
    "https": ask_https,
    "http2": ask_http2,
    "http2-tls": ask_http2_tls,
    "upgraded": ask_upgraded,
}
PROXIES = {"uwsgi": through(uwsgi, "uwsgi"), "scgi": through(scgi, "scgi"), "fastcgi": through(fastcgi, "fastcgi")}
WAYS = CLIENTS | PROXIES


@pytest.fixture(scope="module", params=list(KINDS))
def untrusting(request, serve_module, tmp_path_factory):
    options = f"{KINDS[request.param]}\nrequest-start = true\n{TRUSTS_NONE}"
    return Place(serve_module, tmp_path_factory.mktemp("starts"), options)


@pytest.fixture(scope="module", params=list(KINDS))
def trusting(request, serve_module, tmp_path_factory):
    """It trusts the clients of this machine."""
    return Place(serve_module, tmp_path_factory.mktemp("starts"), f"{KINDS[request.param]}\nrequest-start = true")


def wait_until_read(place, client):
    """Waits until the server has read all that this client has sent: the kernel has given it out, and the one thread of the
    worker has served another connection since then.
    """
    ports = [client.socket.getpeername()[1], client.socket.getsockname()[1]]

    def unread():
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if [int(address.partition(":")[2], 16) for address in (local, remote)] == ports:
                return int(queues.partition(":")[2], 16)
        raise AssertionError("the server's side of the connection is gone")

    wait_until(lambda: unread() == 0, "the server has read all")
    assert place.server.get().status == 200


def facts_of(answer):
    assert answer.status == 200, answer
    return json.loads(answer.body)


def start_of(answer):
    """Returns the one start, in seconds since 1970."""
    (value,) = facts_of(answer)["starts"]
    assert VALUE.fullmatch(value)
    return float(value[2:])


def assert_own(ask):
    """This call returns the server's own value, of this moment."""
    before = time.time()
    start = start_of(ask())
    assert before - TICK_SECONDS <= start <= time.time()


@pytest.mark.parametrize("way", WAYS)
def test_a_request_of_a_client_without_the_field_gets_one(untrusting, way):
    for _ in range(2):
        assert_own(lambda: WAYS[way](untrusting, "/", []))


@pytest.mark.parametrize("way", WAYS)
def test_a_request_of_a_trusted_reverse_proxy_without_the_field_gets_one(trusting, way):
    for _ in range(2):
        assert_own(lambda: WAYS[way](trusting, "/", []))


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Request-Start", "t=1000000000.000")],
        [("x-request-start", "t=1000000000.000"), ("X-Request-Start", "t=2000000000.000"), ("X-REQUEST-START", "x")],
        [("X-Request-Start", "")],
        [("X_Request_Start", "t=1000000000.000")],
        [("X-Request_Start", "t=1000000000.000"), ("x-request-start", "t=1000000000.000")],
    ],
    ids=["one", "several", "empty", "underscores", "both"],
)
@pytest.mark.parametrize("way", CLIENTS)
def test_that_of_a_client_is_replaced(untrusting, way, headers):
    assert_own(lambda: CLIENTS[way](untrusting, "/", headers))


@pytest.mark.parametrize("way", WAYS)
def test_that_of_a_trusted_reverse_proxy_is_kept(trusting, way):
    for value in ("t=1000000000.000", "1000000000123"):
        assert facts_of(WAYS[way](trusting, "/", [("X-Request-Start", value)]))["starts"] == [value]
    # An empty one says nothing.
    assert_own(lambda: WAYS[way](trusting, "/", [("X-Request-Start", "")]))


def test_underscores_can_not_say_it_for_a_trusted_reverse_proxy(serve, tmp_path):
    options = f"{KINDS['threads']}\nrequest-start = true\nheader-map = dangerous"
    place = Place(serve, tmp_path / "place", options)
    assert_own(lambda: ask_http(place, "/", [("X_Request_Start", "t=1000000000.000")]))
    both = [("X_Request_Start", "t=1000000000.000"), ("X-Request-Start", "t=1500000000.000")]
    assert facts_of(ask_http(place, "/", both))["starts"] == ["t=1500000000.000"]


def test_a_block_that_a_trusted_reverse_proxy_repeats_says_it_again(trusting):
    headers = [("X-Request-Start", "t=1000000000.000")]
    with trusting.server.connect() as client:
        for _ in range(5):
            assert facts_of(client.request("GET", "/", headers))["starts"] == ["t=1000000000.000"]
        for _ in range(5):
            assert_own(lambda: client.request("GET", "/", []))


@pytest.mark.parametrize("connect", ["http", "https", "http2", "http2-tls"])
def test_a_later_request_of_a_connection_arrives_when_it_is_read(untrusting, connect):
    address = untrusting.server.address("https" if "tls" in connect or connect == "https" else "http")
    client = untrusting.server.connect(address)
    if connect == "https":
        client = untrusting.secured(client)
    elif connect == "http2-tls":
        client = Http2(secured(client, untrusting.context(["h2"])))
        client.scheme = "https"
    elif connect == "http2":
        client = Http2(client)
    with client:
        starts = []
        for _ in range(4):
            before = time.time()
            starts.append(start_of(client.request("GET", "/")))
            first_wait = TICK_SECONDS if len(starts) == 1 else 0.001
            assert before - first_wait <= starts[-1] <= time.time()
        assert starts == sorted(starts)


@pytest.mark.parametrize("protocol", ["uwsgi", "fastcgi"])
def test_a_later_request_of_a_reverse_proxies_connection_arrives_when_it_is_read(serve, tmp_path, protocol):
    (tmp_path / "starts.py").write_text(APPLICATION)
    listen = {"uwsgi": "puwsgi-socket = 127.0.0.1:0", "fastcgi": "fastcgi-socket = 127.0.0.1:0"}[protocol]
    server = serve(f"pythonpath = {tmp_path}\nmodule = starts\nrequest-start = true", listen=(listen,))
    with server.connect(server.address(listen.split("-")[0])) as client:
        for number in range(3):
            before = time.time()
            if protocol == "uwsgi":
                client.send(uwsgi.packet(uwsgi.request_variables()))
                answer = client.read_response()
            else:
                client.send(fastcgi.request(keep=True))
                answer = fastcgi.read_answer(client)
            assert before - (0.001 if number else TICK_SECONDS) <= start_of(answer) <= time.time()


@pytest.mark.parametrize("kind", KINDS)
def test_pipelined_requests_arrive_when_they_are_read_and_not_when_the_ones_before_them_did(serve, tmp_path, kind):
    place = Place(serve, tmp_path / "place", f"{KINDS[kind]}\nthreads = 1\nrequest-start = true\n{TRUSTS_NONE}")
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    with place.server.connect() as client:
        client.send(head + b"bo")
        wait_until_read(place, client)
        before = time.time()
        client.send(b"dy" + head + b"body" + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        starts = [start_of(client.read_response()) for _ in range(3)]
    assert starts[0] <= before <= starts[1] + 0.001
    assert starts[1] <= starts[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_whose_head_trickles_in_arrives_with_its_first_byte(serve, tmp_path, kind):
    place = Place(serve, tmp_path / "place", f"{KINDS[kind]}\nthreads = 1\nrequest-start = true\n{TRUSTS_NONE}")
    with place.server.connect() as client:
        assert client.request().status == 200
        begun = time.time()
        client.send(b"GET / HT")
        wait_until_read(place, client)
        read = time.time()
        for part in (b"TP/1.1\r\nHost: loc", b"alhost\r\n\r\n"):
            client.send(part)
        assert begun - 0.001 <= start_of(client.read_response()) <= read


def begin_plain(place):
    client = place.server.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client, client.read_response


def begin_https(place):
    """The ClientHello is sent, and the request follows the handshake."""
    client = place.server.connect(place.server.address("https"))
    patience = client.socket.gettimeout()
    client.socket.setblocking(False)
    client.socket = place.context().wrap_socket(client.socket, server_hostname="localhost", do_handshake_on_connect=False)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.socket.do_handshake()

    def finish():
        client.socket.settimeout(patience)
        client.socket.do_handshake()
        return client.request()

    return client, finish


def begin_http2(place):
    client = Http2(place.server.connect())
    answers = [client.begin() for _ in range(3)]

    def finish():
        client.finish(*answers)
        # They have arrived together.
        assert max(map(start_of, answers)) - min(map(start_of, answers)) <= TICK_SECONDS
        return answers[2]

    return client, finish


def begin_through(packet, protocol, read):
    def begin(place):
        client = place.server.connect(place.server.address(protocol))
        client.send(packet())
        return client, lambda: read(client)

    return begin


BEGINNINGS = {
    "http": begin_plain,
    "https": begin_https,
    "http2": begin_http2,
    "uwsgi": begin_through(
        lambda: uwsgi.packet(uwsgi.request_variables()), "uwsgi", lambda client: uwsgi.Answer(client.read_to_end())
    ),
    "scgi": begin_through(scgi.request, "scgi", lambda client: scgi.Answer(client.read_to_end())),
    "fastcgi": begin_through(fastcgi.request, "fastcgi", fastcgi.read_answer),
}


@pytest.mark.parametrize("way", BEGINNINGS)
def test_a_request_behind_a_slow_one_has_arrived_before_that_has_ended(serve, tmp_path, way):
    place = Place(serve, tmp_path / "place", f"module = starts\nrequest-start = true\n{TRUSTS_NONE}")
    with place.server.connect() as slow:
        slow.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # Others would be accepted before it.
        wait_until((place.server.directory / "called").exists, "the slow request is called")
        waits, finish = BEGINNINGS[way](place)
        with waits:
            sent = time.time()
            wait_until(lambda: time.time() > sent + 0.1, "a tenth of a second")
            place.gate.touch()
            answer = finish()
        first = facts_of(slow.read_response())
    start, called = start_of(answer), facts_of(answer)["called"]
    assert called >= first["ended"]
    assert called - start >= first["ended"] - sent - TICK_SECONDS
    if way != "https":
        # The handshake has waited; the request was sent after it.
        assert start <= sent + TICK_SECONDS


def test_a_connection_that_moves_to_a_worker_of_the_new_code_gets_it_there(serve, tmp_path):
    options = f"module = starts\nmaster = true\nprocesses = 2\nrequest-start = true\n{TRUSTS_NONE}"
    place = Place(serve, tmp_path / "place", options)
    forged = [("X-Request-Start", "t=1000000000.000")]
    with place.server.connect() as served, place.server.connect() as fresh:
        assert_own(lambda: served.request("GET", "/", forged))
        place.server.send_signal(signal.SIGHUP)
        place.server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
        for client in (served, fresh, served):
            assert_own(lambda client=client: client.request("GET", "/", forged))


def test_without_the_option_the_application_gets_what_the_client_has_sent(serve, tmp_path):
    place = Place(serve, tmp_path / "place", f"{KINDS['threads']}\n{TRUSTS_NONE}")
    for way, ask in WAYS.items():
        assert facts_of(ask(place, "/", []))["starts"] == [], way
        assert facts_of(ask(place, "/", [("X-Request-Start", "soon")]))["starts"] == ["soon"], way
