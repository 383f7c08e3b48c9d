"""WebSockets of WSGI applications over https: their libraries read and write plain bytes."""

import asyncio
import json
import threading

import pytest
import socketio
from support.browser import chromium
from support.http2 import Both
from support.socketio_page import BY_HAND
from support.tls import TlsClient, context_of
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import BINARY, WebSocket

SHOP = """
import threading
from flask import Flask
from flask_socketio import SocketIO, emit
from flask_sock import Sock
from simple_websocket import ConnectionClosed
app = Flask(__name__)
socketio = SocketIO(app, async_mode="threading", cors_allowed_origins="*")
@socketio.on("connect")
def connect():
    emit("welcome")
@socketio.on("echo")
def echo(text):
    return {"data": text}
sock = Sock(app)
@sock.route("/echo")
def echo_messages(ws):
    try:
        while True:
            ws.send(ws.receive())
    except ConnectionClosed:
        print("the view has ended", flush=True)
        raise
@app.route("/")
def index():
    return "fine"
def keep(taken):
    print("heard", taken.recv(5), flush=True)
    # More than the pair and the client's socket take at once.
    for _ in range(64):
        taken.sendall(b"x" * 65536)
    taken.close()
def application(environ, start_response):
    if environ["PATH_INFO"] in ("/kept", "/last"):
        taken = environ["werkzeug.socket"]
        taken.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: five\\r\\nConnection: Upgrade\\r\\n\\r\\n")
        if environ["PATH_INFO"] == "/last":
            keep(taken)
        else:
            threading.Thread(target=keep, args=(taken,)).start()
        return []
    return app(environ, start_response)
"""

KEPT_BYTES = 64 * 65536


@pytest.fixture
def shop(serve, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    return Both(serve, tmp_path, f"module = shop\npythonpath = {tmp_path}\nthreads = 4")


def connect(shop):
    return TlsClient(shop.server.address("https"), context_of(shop.authority))


def ask(shop, path):
    client = connect(shop)
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: five\r\n\r\n".encode())
    assert client.read_head().status == 101
    return client


def test_messages_of_any_size_go_both_ways_at_once(shop):
    sockets = [WebSocket(connect(shop), "/echo").open() for _ in range(3)]

    def talk(socket, number):
        for length in (0, 1, 16 * 1024, 16 * 1024 + 1, 1_000_000):
            socket.send(BINARY, bytes([number]) * length)
            assert socket.read_message() == bytes([number]) * length
        assert socket.close() == (1000, "")
        ended.append(number)

    ended = []
    threads = [threading.Thread(target=talk, args=pair) for pair in zip(sockets, range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1, 2]
    shop.server.wait_for_log("^the view has ended$", count=3)
    shop.server.wait_for_log(r"GET /echo => generated 0 bytes in \d+ msecs \(HTTP/1\.1 101\)", count=3)


@pytest.mark.parametrize("goes", ["with a word", "without a word"])
def test_a_view_is_notified_of_the_disconnect(shop, goes):
    socket = WebSocket(connect(shop), "/echo").open()
    socket.send_text("hello")
    assert socket.read_message() == "hello"
    if goes == "with a word":
        socket.client.say_goodbye()
    socket.client.close()
    shop.server.wait_for_log("^the view has ended$")


@pytest.mark.parametrize("path", ["/last", "/kept"])
def test_all_that_was_said_arrives_also_when_the_call_has_ended_and_the_worker_ends(shop, path):
    client = ask(shop, path)
    client.send(b"hello")
    shop.server.wait_for_log("^heard b'hello'$")
    if path == "/last":
        shop.server.send_signal(15)
    # Followed by close_notify, or else reading raises.
    assert client.read_to_end() == b"x" * KEPT_BYTES
    assert "Traceback" not in shop.server.log


def test_flask_socketio_speaks_websocket(shop):
    async def talk():
        # The client with threads reads one TLS connection in one thread and writes it in another, which OpenSSL does not allow:
        # https://github.com/miguelgrinberg/python-engineio/issues/461
        client = socketio.AsyncClient(reconnection=False, ssl_verify=False)
        url = f"https://localhost:{shop.server.address('https')[1]}"
        await client.connect(url, transports=["websocket"], wait_timeout=TIMEOUT_SECONDS)
        try:
            return await client.call("echo", "hello")
        finally:
            await client.disconnect()

    assert asyncio.run(talk()) == {"data": "hello"}
    wait_until(lambda: "HTTP/1.1 101" in shop.server.log, "the end of the WebSocket's request")


@pytest.mark.parametrize("polls", [False, True], ids=["websocket", "upgrade"])
def test_a_page_of_https_speaks_with_flask_socketio_by_websocket(shop, polls):
    with chromium("--ignore-certificate-errors") as browser:
        browser.get(f"https://localhost:{shop.server.address('https')[1]}/")
        found = json.loads(browser.execute_async_script(BY_HAND, polls))
    assert found == {"heard": ["welcome"], "answer": "hi", "protocols": ["h2"]}
    line = shop.server.wait_for_log(r"^.*/socket\.io/\?EIO=4&transport=websocket.*$")[0]
    assert "GET /socket.io/" in line
    assert "(HTTP/1.1 101)" in line
