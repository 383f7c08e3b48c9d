"""``cancel-on-disconnect``: the work for a request ends when its client has left before its response was complete, and for no
other reason.

A client leaves by a reset. The end of its sending side alone is none, because such a client still reads. The application is
`tests/apps/leaving_asgi.py`.
"""

import contextlib
import json
import os
import socket
import subprocess

import pytest
from support import fastcgi, nginx, scgi, uwsgi
from support.held import get
from support.http2 import Http2, secured
from support.metrics import metrics_address, value_of
from support.server import program
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support.websocket import WebSocket

ON = "cancel-on-disconnect = true"
ASGI = "pythonpath = {apps}\nasgi = leaving_asgi:application\nlifespan = off"
#: Way to the server -> the line of its listening socket.
LISTEN = {
    "http1": "http-socket = 127.0.0.1:0",
    "unix": "http-socket = {directory}/app.sock",
    "tls": "https-socket = 127.0.0.1:0,{chain},{key}\nhttp-socket = 127.0.0.1:0",
    "http2": "http-socket = 127.0.0.1:0\nhttp2 = h2c",
    "http2-tls": "https-socket = 127.0.0.1:0,{chain},{key}",
    "uwsgi": "uwsgi-socket = 127.0.0.1:0",
    "scgi": "scgi-socket = 127.0.0.1:0",
    "fastcgi": "fastcgi-socket = 127.0.0.1:0",
}
SCHEMES = {"unix": "http", "tls": "https", "http2": "http", "http2-tls": "https", "http1": "http"}
#: More connections than it takes until each worker has one.
MANY = 200
#: Interface -> the lines that load its application, and the calls that it can have at a time.
WORKERS = {
    "wsgi": ("module = leaving", 1),
    "threads": ("module = leaving\nthreads = 2", 2),
    "gevent": ("module = leaving\ngevent = 1\ngevent-monkey-patch = true", 1),
    "asgi": ("asgi = leaving:asynchronous\nlifespan = off", 1),
}


class Way:
    """A running server, and its clients by one of the ways to it."""

    def __init__(self, serve, directory, way, options):
        self.way = way
        authority = Authority(directory / "certificates")
        shown = authority.server()
        self.context = context_of(authority, alpn=["h2" if way == "http2-tls" else "http/1.1"])
        listen = LISTEN[way].replace("{chain}", str(shown.chain)).replace("{key}", str(shown.key)).split("\n")
        text = f"master = true\nmetrics = 127.0.0.1:0\n{options}"
        self.server = serve.prepare(text, listen=listen)

    def start(self):
        self.server.start()
        return self

    def begin(self, target, **more):
        """Sends a request. Returns the client."""
        scheme = SCHEMES.get(self.way, self.way)
        address = str(self.server.directory / "app.sock") if self.way == "unix" else self.server.address(scheme)
        client = TlsClient(address, self.context) if self.way == "tls" else self.server.connect(address)
        if self.way == "http2-tls":
            secured(client, self.context)
        if self.way.startswith("http2"):
            connection = Http2(client)
            connection.scheme = scheme
            connection.read_settings()
            client.connection, client.stream = connection, connection.begin("GET", target)
        else:
            sent = {
                "uwsgi": lambda: uwsgi.packet(uwsgi.request_variables(target=target)),
                "scgi": lambda: scgi.request(target=target),
                "fastcgi": lambda: fastcgi.request(target=target, **more),
            }
            client.send(sent.get(self.way, lambda: get(target))())
        return client

    def finish(self, client):
        """Reads the response to the request with which the client began."""
        if self.way.startswith("http2"):
            client.connection.finish(client.stream)
        else:
            client.read_response()

    def go_on(self, client, target):
        """Sends another request of the client."""
        if self.way.startswith("http2"):
            client.stream = client.connection.begin("GET", target)
        else:
            client.send(get(target))

    def relayed(self):
        return value_of(metrics_address(self.server), "bolide_sticky_requests_total", result="relayed")

    def count(self, state):
        return value_of(metrics_address(self.server), "bolide_cancelled_requests_total", state=state)

    def wait_for_499(self, target, state="running"):
        self.server.wait_for_log(rf"GET {target} => generated \d+ bytes .* \(\S+ 499\)")
        wait_until(lambda: self.count(state) == 1, "it is counted")

    def assert_no_failure(self):
        address = metrics_address(self.server)
        assert value_of(address, "bolide_requests_total", status="5xx") == 0
        assert value_of(address, "bolide_exceptions_total") == 0
        assert "Traceback" not in self.server.whole_log()


@pytest.fixture
def serve_by(serve, tmp_path):
    def serve_by(way="http1", options=ON, application=ASGI):
        return Way(serve, tmp_path, way, f"{application}\n{options}").start()

    return serve_by


def end_sending(client):
    """Ends the sending side of the connection below TLS, which goes on in the other direction."""
    with socket.socket(fileno=os.dup(client.socket.fileno())) as raw:
        raw.shutdown(socket.SHUT_WR)


def ask(way, target):
    """One request on a connection of its own, over HTTP/1 in the clear."""
    return way.server.get(target)


@pytest.mark.parametrize("way", ["http1", "unix", "tls", "http2", "http2-tls", "uwsgi", "scgi", "fastcgi"])
def test_a_request_whose_client_resets_its_connection_is_cancelled(way, serve_by):
    served = serve_by(way)
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    client.reset()
    served.server.wait_for_log("^wait cancelled$")
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499("/wait")
    served.assert_no_failure()


@pytest.mark.parametrize("way", ["http2", "http2-tls"])
def test_a_stream_that_is_reset_is_cancelled_and_the_others_of_its_connection_are_not(way, serve_by):
    served = serve_by(way)
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    other = client.connection.begin("GET", "/until-disconnect")
    client.connection.reset(client.stream)
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499("/wait")
    assert client.connection.request("GET", "/quick").body == b"quick"
    assert not other.is_over
    served.assert_no_failure()


@pytest.mark.parametrize("way", ["http2", "http2-tls"])
def test_the_end_of_a_connection_of_http2_cancels_its_requests(way, serve_by):
    served = serve_by(way)
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    end_sending(client)
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499("/wait")
    served.assert_no_failure()


def test_an_aborted_request_of_fastcgi_is_cancelled(serve_by):
    served = serve_by("fastcgi")
    client = served.begin("/wait", keep=True)
    served.server.wait_for_log("^wait begun$")
    client.send(fastcgi.record(fastcgi.ABORT_REQUEST, 1))
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499("/wait")


@pytest.mark.parametrize("way", ["http1", "unix", "uwsgi", "scgi", "fastcgi"])
def test_a_client_that_only_ends_its_sending_side_gets_its_response(way, serve_by):
    served = serve_by(way)
    client = served.begin("/until-disconnect")
    client.end_sending()
    served.server.wait_for_log("^told$")
    assert b"still here" in client.read_to_end()
    assert served.count("running") is None


def test_a_client_that_only_ends_its_side_of_tls_gets_its_response(serve_by):
    served = serve_by("tls")
    client = served.begin("/until-disconnect")
    # Without close_notify, the end of the sending side is all that the server sees.
    end_sending(client)
    served.server.wait_for_log("^told$")
    assert client.read_head().status == 200


@pytest.mark.parametrize("way", ["http1", "tls"])
def test_the_end_of_the_sending_side_counts_if_the_option_says_so(way, serve_by):
    served = serve_by(way, "cancel-on-disconnect = fin")
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    end_sending(client)
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499("/wait")


def test_work_after_the_response_goes_on(serve_by):
    served = serve_by()
    client = served.begin("/background")
    assert client.read_response().body == b"done"
    client.reset()
    # The turn that serves this one has seen the reset.
    ask(served, "/quick")
    ask(served, "/go")
    served.server.wait_for_log("^background done$")
    served.server.wait_for_log(r"GET /background => .* \(HTTP/1.1 200\)")
    assert "background cancelled" not in served.server.whole_log()


def test_a_stream_of_starlette_is_cancelled(serve_by):
    served = serve_by()
    client = served.begin("/stream")
    client.read_until(b"first")
    client.reset()
    served.server.wait_for_log("^stream cancelled$")
    served.wait_for_499("/stream")
    served.assert_no_failure()


def test_an_application_that_suppresses_it_goes_on(serve_by):
    served = serve_by()
    client = served.begin("/stubborn")
    served.server.wait_for_log("^stubborn begun$")
    client.reset()
    served.server.wait_for_log("^stubborn cancelled$")
    ask(served, "/go")
    served.server.wait_for_log("^stubborn went on$")
    served.wait_for_499("/stubborn")
    served.assert_no_failure()


def test_a_task_of_the_application_goes_on(serve_by):
    served = serve_by()
    client = served.begin("/with-task")
    served.server.wait_for_log("^wait begun$")
    client.reset()
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    ask(served, "/go")
    served.server.wait_for_log("^own task done$")


def test_an_error_of_the_application_in_its_cleanup_is_logged(serve_by):
    served = serve_by()
    client = served.begin("/fails")
    served.server.wait_for_log("^fails begun$")
    client.reset()
    served.server.wait_for_log("ValueError: a mistake in the cleanup$")
    served.wait_for_499("/fails")
    wait_until(lambda: value_of(metrics_address(served.server), "bolide_exceptions_total") == 1, "it is counted")


def test_a_websocket_gets_its_disconnect_and_is_not_cancelled(serve_by):
    served = serve_by()
    socket = WebSocket(served.server.connect(), "/websocket").open()
    socket.client.reset()
    served.server.wait_for_log("^websocket told$")
    ask(served, "/go")
    served.server.wait_for_log("^websocket went on$")
    assert served.count("running") is None


def test_without_the_option_a_request_goes_on(serve_by):
    served = serve_by(options="")
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    client.reset()
    ask(served, "/quick")
    ask(served, "/go")
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    assert "wait cancelled" not in served.server.whole_log()
    assert " 499)" not in served.server.whole_log()


def test_a_route_turns_it_on_and_off(serve_by):
    served = serve_by(options=f"{ON}\nroute = /off$ cancel-on-disconnect:off")
    kept = served.begin("/wait/off")
    served.server.wait_for_log("^wait begun$")
    kept.reset()
    left = served.begin("/stubborn")
    served.server.wait_for_log("^stubborn begun$")
    left.reset()
    served.server.wait_for_log("^stubborn cancelled$")
    ask(served, "/go")
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    assert "wait cancelled" not in served.server.whole_log()


def test_a_route_turns_it_on_for_an_instance_without_the_option(serve_by):
    served = serve_by(options="route = ^/wait$ cancel-on-disconnect:")
    client = served.begin("/wait")
    served.server.wait_for_log("^wait begun$")
    client.reset()
    served.server.wait_for_log("^wait cancelled$")
    served.wait_for_499("/wait")


@pytest.mark.parametrize("way", ["tls", "http2"])
def test_a_request_at_the_worker_of_its_session_is_cancelled(way, serve_by):
    """The client's connection stays at another worker, which relays the request."""
    served = serve_by(way, f"{ON}\nsticky = query:sid\nprocesses = 2")
    sessions = sessions_of_workers(served.server)
    client = served.begin(f"/pid?sid={sessions[0]}")
    served.finish(client)
    elsewhere = sessions[0] if served.relayed() else sessions[1]
    served.go_on(client, f"/wait?sid={elsewhere}")
    served.server.wait_for_log("^wait begun$")
    client.reset()
    served.server.wait_for_log("^wait cleaned up: http.disconnect$")
    served.wait_for_499(rf"/wait\?sid={elsewhere}")
    assert served.relayed()


def sessions_of_workers(server):
    """Returns a session of each of two workers. Workers share connections that are kept open."""
    sessions = {}
    with contextlib.ExitStack() as clients:
        for number in range(MANY):
            client = clients.enter_context(server.connect(server.address("http")))
            sessions.setdefault(client.request("GET", f"/pid?sid={number}").body, number)
            if len(sessions) == 2:
                return list(sessions.values())
    raise AssertionError(f"all sessions are those of one worker: {sessions}")


# Requests that wait.


@pytest.fixture
def waiting(serve_by):
    """Serves `tests/apps/leaving.py` with as many held calls as it can have, so that other requests wait."""

    def waiting(worker, way="http1", options=ON):
        application, calls = WORKERS[worker]
        served = serve_by(way, options, f"pythonpath = {{apps}}\n{application}")
        held = []
        for number in range(calls):
            held.append(served.begin(f"/hold/{number}"))
            served.server.wait_for_log(f"^/hold/{number} begun$")
        return served, held

    return waiting


def let_go(served):
    (served.server.directory / "go").touch()


def assert_never_begun(served, target):
    served.wait_for_499(target, state="waiting")
    served.assert_no_failure()
    assert f"{target} begun" not in served.server.whole_log()


@pytest.mark.parametrize("way", ["http1", "uwsgi"])
@pytest.mark.parametrize("worker", WORKERS)
def test_a_request_whose_client_has_left_while_it_waited_is_never_begun(worker, way, waiting):
    served, _held = waiting(worker, way)
    left, stays = served.begin("/left"), served.begin("/stays")
    left.reset()
    let_go(served)
    stays.read_until(b"/stays")
    assert_never_begun(served, "/left")


@pytest.mark.parametrize("worker", WORKERS)
def test_a_stream_that_was_reset_while_it_waited_is_never_begun(worker, waiting):
    served, held = waiting(worker, "http2")
    connection = held[0].connection
    left, stays = connection.begin("GET", "/left"), connection.begin("GET", "/stays")
    connection.reset(left)
    let_go(served)
    connection.finish(stays)
    assert_never_begun(served, "/left")


@pytest.mark.parametrize("worker", WORKERS)
def test_a_client_that_has_only_ended_its_sending_side_while_it_waited_is_served(worker, waiting):
    served, _held = waiting(worker)
    half = served.begin("/half")
    half.end_sending()
    let_go(served)
    assert half.read_response().body == b"/half"
    assert served.count("waiting") is None


@pytest.mark.parametrize("worker", WORKERS)
def test_the_end_of_the_sending_side_of_a_client_that_waited_counts_if_the_option_says_so(worker, waiting):
    served, _held = waiting(worker, options="cancel-on-disconnect = fin")
    half = served.begin("/half")
    half.end_sending()
    let_go(served)
    assert_never_begun(served, "/half")


def test_without_the_option_a_request_is_begun_whose_client_has_left(waiting):
    served, _held = waiting("wsgi", options="")
    served.begin("/left").reset()
    let_go(served)
    served.server.wait_for_log("^/left begun$")


def test_a_request_that_runs_in_a_greenlet_goes_on(waiting):
    served, (held,) = waiting("gevent")
    held.reset()
    let_go(served)
    served.server.wait_for_log(r"GET /hold/0 => .* \(HTTP/1.1 200\)")


def test_a_wsgi_application_beside_asgi_goes_on(serve_by):
    served = serve_by(options=f"{ON}\nmount = /beside=leaving:application\nmanage-script-name = true")
    client = served.begin("/beside/hold")
    served.server.wait_for_log("^/hold begun$")
    client.reset()
    # The turn that serves this one has seen the reset.
    ask(served, "/quick")
    let_go(served)
    served.server.wait_for_log(r"GET /beside/hold => .* \(HTTP/1.1 200\)")
    assert served.count("running") is None


# Behind nginx, which over TCP only ends its sending side when its client leaves.


@pytest.mark.parametrize("pass_by", ["http", "uwsgi", "fastcgi", "scgi"])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_request_is_cancelled_whose_client_has_left_nginx(kind, pass_by, serve, tmp_path):
    option = {"http": "http-socket"}.get(pass_by, f"{pass_by}-socket")
    address = {"unix": "{directory}/app.sock", "tcp": "127.0.0.1:0"}[kind]
    options = {"unix": ON, "tcp": "cancel-on-disconnect = fin"}[kind]
    server = serve(f"master = true\nmetrics = 127.0.0.1:0\n{ASGI}\n{options}", listen=[f"{option} = {address}"])
    place = {"unix": f"unix:{server.directory}/app.sock", "tcp": "127.0.0.1:{}"}[kind]
    if kind == "tcp":
        place = place.format(server.address(pass_by)[1])
    passes = f"proxy_pass http://{place};" if pass_by == "http" else f"{pass_by}_pass {place};"
    (tmp_path / "parameters").write_text(nginx.parameters())
    front = nginx.Nginx(
        tmp_path, f"server {{ listen 127.0.0.1:{{port}}; include {tmp_path}/parameters; location / {{ {passes} }} }}"
    )
    try:
        client = front.connect()
        client.send(get("/wait"))
        server.wait_for_log("^wait begun$")
        client.close()
        server.wait_for_log("^wait cancelled$")
        server.wait_for_log(r"GET /wait => .* \(\S+ 499\)")
    finally:
        front.finish()


# What the program says.


def test_status_shows_the_cancelled_requests(serve_by):
    served = serve_by()
    client = served.begin("/stubborn")
    served.server.wait_for_log("^stubborn begun$")
    client.reset()
    served.wait_for_499("/stubborn")
    command = [*program(), "status", str(served.server.process.pid)]
    assert "cancelled requests: 1 running, 0 waiting" in subprocess.run(command, capture_output=True, text=True).stdout
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True).stdout
    assert json.loads(shown)["cancelled"] == {"running": 1, "waiting": 0}


def check(call, directory, *lines):
    (directory / "uwsgi.ini").write_text("\n".join(["[uwsgi]", *lines]) + "\n")
    return call("check", "uwsgi.ini")[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cancel-on-disconnect = rst", "`cancel-on-disconnect = rst` is neither on nor off"),
        ("route = ^/ cancel-on-disconnect:yes", "`cancel-on-disconnect:yes` is neither on nor off"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(line, words, call, tmp_path):
    said = check(call, tmp_path, "http-socket = 127.0.0.1:0", "module = wsgi", line)
    assert any("uwsgi.ini:4" in shown and words in shown for shown in said.splitlines()), said


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["http-socket = 127.0.0.1:0", "check-static = ."], "has no effect without an application"),
        (["uwsgi-socket = 127.0.0.1:0", "module = wsgi"], "does not notice at `uwsgi.ini:3` that a client has left"),
        (["fastcgi-socket = 127.0.0.1:0", "module = wsgi"], "does not notice at `uwsgi.ini:3` that a client has left"),
        (["uwsgi-socket = app.sock", "module = wsgi"], None),
        (["http-socket = 127.0.0.1:0", "module = wsgi"], None),
    ],
)
def test_check_finds_instances_in_which_it_can_do_nothing(lines, words, call, tmp_path):
    said = check(call, tmp_path, ON, *lines)
    assert words in said if words else "`cancel-on-disconnect" not in said


def test_check_accepts_reverse_proxies_over_tcp_if_the_end_of_their_sending_side_counts(call, tmp_path):
    said = check(call, tmp_path, "cancel-on-disconnect = fin", "uwsgi-socket = 127.0.0.1:0", "module = wsgi")
    assert "`cancel-on-disconnect" not in said
