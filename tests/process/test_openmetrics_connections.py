"""What ``/metrics`` tells of connections: their states and protocols."""

import contextlib
import socket
import time

import pytest
from support.metrics import metrics_address, samples, value_of
from support.tls import Authority, context_of
from support.waiting import TIMEOUT_SECONDS, wait_until

#: A WSGI application with an answer that no socket's buffer holds, and one that waits for a file.
APPLICATION = """
import os, time
def application(environ, start_response):
    path = environ["PATH_INFO"]
    while path == "/wait" and not os.path.exists("gate"): time.sleep(0.01)
    start_response("200 OK", [])
    return [b"x" * (64 << 20 if path == "/big" else 1)]
"""
#: An ASGI application that accepts WebSockets, and keeps requests until a file exists.
ASYNCHRONOUS = """
import asyncio, os
async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect": pass
    elif scope["type"] == "http":
        while scope["path"] == "/wait" and not os.path.exists("gate"): await asyncio.sleep(0.01)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
"""
#: Applications whose code blocks the event loop for six tenths of a second.
BLOCKING = {
    "asgi": ASYNCHRONOUS.replace("import asyncio, os", "import asyncio, os, time").replace(
        'while scope["path"] == "/wait"', 'time.sleep(0.6)\n        while scope["path"] == "/wait"'
    ),
    "gevent": "from gevent.monkey import get_original\nsleep = get_original('time', 'sleep')\n"
    "def application(environ, start_response):\n"
    "    sleep(0.6)\n    start_response('200 OK', [])\n    return [b'']\n",
}
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
#: The preface of HTTP/2 and empty settings.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def states(address):
    """Returns the numbers of connections that are not 0, by protocol, TLS and state."""
    found = {}
    for (name, *labels), count in samples(address).items():
        if name == "bolide_connections_by_state" and count:
            named = dict(labels)
            kind = named["protocol"] + (" TLS" if named["tls"] == "yes" else "")
            found[kind, named["state"]] = int(count)
    return found


def backlog(address):
    return sum(count for (name, *_), count in samples(address).items() if name == "bolide_backlog_connections")


def wait_for(address, expected):
    wait_until(lambda: states(address) == expected, lambda: f"{expected} and not {states(address)}", look_seconds=0.1)


#: Held connections outlive any test, on a busy machine too.
PATIENT = ("--socket-timeout", "3600", "--http-timeout", "3600", "--http-keepalive=3600")


@pytest.fixture
def held():
    """Opens connections, writes these bytes, and keeps them open until the end of the test."""
    with contextlib.ExitStack() as stack:

        def held(address, first=b"", context=None):
            client = stack.enter_context(socket.create_connection(address, timeout=TIMEOUT_SECONDS))
            if context is not None:
                client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
            client.sendall(first)
            return client

        yield held


def test_connections_are_told_by_what_they_do_and_speak(start, held, tmp_path):
    authority = Authority(tmp_path / "authority")
    served = authority.server()
    listeners = ("--https", f"127.0.0.1:0,{served.chain},{served.key}", "--socket", "127.0.0.1:0", "--threads", "4", *PATIENT)
    (tmp_path / "shop.py").write_text(APPLICATION)
    instance = start("--metrics", "127.0.0.1:0", *listeners, module="shop", alarms=True)
    address = metrics_address(instance)
    web, tls = instance.address(), instance.address("https")
    wait_for(address, {})
    held(web)
    held(web, b"GET /half")
    for _ in range(2):
        held(web, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").recv(4096)
    held(web, b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    held(web, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    held(instance.address("uwsgi"))
    held(tls, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", context_of(authority)).recv(4096)
    held(tls, HTTP2, context_of(authority, alpn=("h2",))).recv(4096)
    plain = {"new": 1, "reading": 1, "idle": 2, "request": 1, "writing": 1}
    expected = {("http/1.1", state): count for state, count in plain.items()}
    expected |= {("uwsgi", "new"): 1, ("http/1.1 TLS", "idle"): 1, ("h2 TLS", "new"): 1}
    wait_for(address, expected)
    (tmp_path / "gate").touch()
    expected["http/1.1", "idle"] += expected.pop(("http/1.1", "request"))
    wait_for(address, expected)


def test_a_call_that_keeps_the_only_thread_is_a_request(start, held, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    instance = start("--metrics", "127.0.0.1:0", *PATIENT, module="shop", alarms=True)
    address = metrics_address(instance)
    kept = held(instance.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    kept.recv(4096)
    wait_for(address, {("http/1.1", "idle"): 1})
    kept.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_for(address, {("http/1.1", "request"): 1})
    (tmp_path / "gate").touch()
    kept.recv(4096)
    wait_for(address, {("http/1.1", "idle"): 1})


def test_a_call_that_ends_while_another_thread_leads_a_calm_worker_is_no_request_any_more(start, held, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    instance = start("--metrics", "127.0.0.1:0", "--threads", "3", *PATIENT, module="shop", alarms=True)
    address = metrics_address(instance)
    # The time limit of this one is the first: no other one wakes the thread that leads.
    held(instance.address())
    waits = held(instance.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    waits.recv(4096)
    waits.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    # Another thread takes the lead for it.
    held(instance.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").recv(4096)
    wait_for(address, {("http/1.1", "new"): 1, ("http/1.1", "request"): 1, ("http/1.1", "idle"): 1})
    calm = time.monotonic() + 2.2
    wait_until(lambda: time.monotonic() > calm, "two counts")
    (tmp_path / "gate").touch()
    assert waits.recv(4096)
    wait_for(address, {("http/1.1", "new"): 1, ("http/1.1", "idle"): 2})


def test_a_connection_that_no_worker_takes_at_once_has_waited(start, held, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    instance = start("--metrics", "127.0.0.1:0", *PATIENT, module="shop", alarms=True)
    address = metrics_address(instance)
    held(instance.address(), b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_for(address, {("http/1.1", "request"): 1})
    waits = held(instance.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    sent = time.monotonic()
    wait_until(lambda: backlog(address) == 1, "the connection in the accept queue")
    wait_until(lambda: time.monotonic() > sent + 0.1, "a tenth of a second")
    (tmp_path / "gate").touch()
    assert waits.recv(4096)
    wait_until(lambda: value_of(address, "bolide_accept_wait_seconds_count") == 2, "the wait")
    # A tick of the kernel may be missing.
    assert value_of(address, "bolide_accept_wait_seconds_sum") > 0.08


@pytest.mark.parametrize("kind", ["asgi", "gevent"])
def test_a_loop_that_application_code_blocks_is_late(start, kind, tmp_path):
    application = BLOCKING[kind]
    (tmp_path / "shop.py").write_text(application)
    options = {"asgi": ("--asgi", "shop:application"), "gevent": ("--gevent", "4", "--gevent-monkey-patch", "--wsgi", "shop")}
    instance = start("--metrics", "127.0.0.1:0", *options[kind], module=None, alarms=True)
    address = metrics_address(instance)
    wait_until(lambda: value_of(address, "bolide_loop_lag_seconds_count"), "a loop that is not blocked")
    instance.get("/")
    # It is called again within a quarter of a second, and its code has blocked it for longer.
    wait_until(lambda: value_of(address, "bolide_loop_lag_seconds_sum") > 0.1, "its lag")
    quiet = start("--metrics", "127.0.0.1:0", "--loop-stall", "0", *options[kind], module=None)
    assert value_of(metrics_address(quiet), "bolide_loop_lag_seconds_count") is None


def test_websockets_and_requests_of_an_asynchronous_application_are_told_apart(start, held, tmp_path):
    (tmp_path / "shop.py").write_text(ASYNCHRONOUS)
    instance = start("--metrics", "127.0.0.1:0", "--asgi", "shop:application", *PATIENT, module=None, alarms=True)
    address = metrics_address(instance)
    for _ in range(2):
        assert held(instance.address(), HANDSHAKE).recv(4096).startswith(b"HTTP/1.1 101 ")
    for path in ("/", "/wait"):
        held(instance.address(), f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wait_for(address, {("websocket", "request"): 2, ("http/1.1", "idle"): 1, ("http/1.1", "request"): 1})
    (tmp_path / "gate").touch()
    wait_for(address, {("websocket", "request"): 2, ("http/1.1", "idle"): 2})
