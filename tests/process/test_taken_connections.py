"""WebSockets of WSGI applications at the end of a worker: a view that waits for its client inside its call ends by itself."""

import signal

import pytest
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support.websocket import WebSocket

#: The last message of a view goes to the log, and so does the last one to it.
SHOP = """
from flask import Flask
from flask_sock import Sock
from simple_websocket import ConnectionClosed
import uwsgi
app = Flask(__name__)
sock = Sock(app)
def say(text):
    print(text, flush=True)
@sock.route("/library")
def library(ws):
    try:
        while True:
            ws.send(ws.receive())
    except ConnectionClosed:
        say("the view of /library has ended")
        raise
def own(environ, start_response):
    uwsgi.websocket_handshake()
    try:
        while True:
            uwsgi.websocket_send(uwsgi.websocket_recv())
    except OSError:
        say("the view of /own has ended")
        return []
def raw(environ, start_response):
    taken = environ["gunicorn.socket"]
    taken.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: five\\r\\nConnection: Upgrade\\r\\n\\r\\n")
    taken.sendall(taken.recv(100))
    say("rest %r" % (taken.recv(100),))
    # A protocol of its own has a last word, too.
    taken.sendall(b"goodbye")
    taken.close()
    return []
def application(environ, start_response):
    special = {"/own": own, "/raw": raw}.get(environ["PATH_INFO"])
    return special(environ, start_response) if special else app(environ, start_response)
@app.route("/")
def index():
    return "fine"
"""


class Shop:
    """Returns an instance and a function that connects to it, plain or over TLS."""

    def __init__(self, instance, context):
        self.instance = instance
        self.context = context

    def connect(self):
        if self.context is None:
            return self.instance.connect()
        return TlsClient(self.instance.address("https"), self.context)

    def websocket(self, path):
        """Returns an open WebSocket, whose view has sent something and waits for more."""
        socket = WebSocket(self.connect(), path).open()
        socket.send_text("hello")
        assert socket.read().payload == b"hello"
        return socket


@pytest.fixture(params=["http", "https"])
def shop(request, start, tmp_path):
    def shop(*options):
        (tmp_path / "shop.py").write_text(SHOP)
        context = None
        if request.param == "https":
            authority = Authority(tmp_path / "certificates")
            shown = authority.server("front", "localhost")
            context = context_of(authority)
            options = ("--https", f"127.0.0.1:0,{shown.chain},{shown.key}", *options)
        return Shop(start(*options, module="shop"), context)

    return shop


@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize("path", ["/library", "/own"])
def test_a_stop_ends_the_view_of_an_open_websocket(shop, path, threads):
    shop = shop("--threads", threads)
    socket = shop.websocket(path)
    instance = shop.instance
    instance.send_signal(signal.SIGTERM)
    if path == "/own":
        assert socket.answer_close() == (1001, "the server is stopping")
    assert instance.wait_for_exit() == 0
    assert f"the view of {path} has ended" in instance.lines
    assert "killing " not in instance.log


@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize("path", ["/library", "/own"])
def test_a_reload_ends_the_view_of_an_open_websocket_and_its_client_comes_back(shop, path, threads):
    shop = shop("--threads", threads)
    socket = shop.websocket(path)
    instance = shop.instance
    if path == "/own":
        # The server waits for it, and it echoes.
        instance.send_signal(signal.SIGHUP)
        assert socket.answer_close() == (1012, "the server is restarting")
        instance.wait_for_generation(2)
    else:
        instance.reload(2)
    assert f"the view of {path} has ended" in instance.lines
    assert "killing " not in instance.log
    shop.websocket(path)


def test_what_a_client_said_and_a_view_says_at_the_end_is_not_lost(shop):
    shop = shop("--threads", "1")
    client = shop.connect()
    client.send(b"GET /raw HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: five\r\n\r\n")
    assert client.read_head().status == 101
    client.send(b"hello")
    assert client.read_exactly(5) == b"hello"
    assert shop.instance.stop() == 0
    # The end, as if the client had disconnected.
    assert "rest b''" in shop.instance.lines
    assert client.read_to_end() == b"goodbye"
    assert "killing " not in shop.instance.log


@pytest.mark.parametrize(("threads", "which"), [(1, "the only thread"), (2, r"the last of 2 threads")])
def test_a_view_that_holds_the_last_thread_is_said_once_with_what_to_do(shop, threads, which):
    shop = shop("--threads", threads)
    for path in ["/library", "/own", "/library"]:
        sockets = [shop.websocket(path) for _ in range(threads)]
        for socket in sockets:
            socket.close()
        # The next ones find their threads free.
        wait_until(lambda: shop.instance.get("/").text == "fine", "a free thread")
    text = rf"GET /library has taken over its connection and holds {which}: .* \(`threads = {threads + 1}` or more\)$"
    shop.instance.wait_for_log(text)
    assert shop.instance.log.count("has taken over its connection") == 1


def test_threads_that_are_left_are_not_warned_of(shop):
    shop = shop("--threads", "2")
    socket = shop.websocket("/library")
    assert shop.instance.get("/").text == "fine"
    socket.close()
    assert "has taken over its connection" not in shop.instance.whole_log()
