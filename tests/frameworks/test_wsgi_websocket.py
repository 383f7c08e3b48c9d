"""WebSockets of WSGI applications: libraries that use the connection's socket from environ, as with gunicorn's gthread worker."""

import time

import pytest
import socketio
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import TEXT, WebSocket

FLASK_SOCK = """
import threading
from flask import Flask, request
from flask_sock import Sock
app = Flask(__name__)
sock = Sock(app)
@sock.route("/echo")
def echo(ws):
    while True:
        ws.send(ws.receive())
@sock.route("/once")
def once(ws):
    ws.send("only " + ws.receive())
@app.route("/")
def index():
    return "fine"
@app.route("/keys")
def keys():
    return str(sorted(key for key in request.environ if key.endswith(".socket")))
kept = []
def after(sock):
    data = sock.recv(5)
    sock.sendall(data.upper())
    sock.close()
def application(environ, start_response):
    if environ["PATH_INFO"] == "/kept":
        sock = environ["gunicorn.socket"]
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: five\\r\\nConnection: Upgrade\\r\\n\\r\\n")
        threading.Thread(target=after, args=(sock,), daemon=True).start()
        return []
    if environ["PATH_INFO"] == "/late":
        start_response("200 OK", [])
        kept.append(environ["gunicorn.socket"])
        return [b"fine"]
    if environ["PATH_INFO"] == "/too_late":
        try:
            kept.pop().fileno()
        except RuntimeError as error:
            start_response("200 OK", [])
            return [str(error).encode()]
    if environ["PATH_INFO"] == "/elsewhere":
        start_response("200 OK", [])
        return taken_elsewhere(environ["gunicorn.socket"])
    return app(environ, start_response)
def taken_elsewhere(sock):
    told = []
    def take():
        try:
            sock.fileno()
        except RuntimeError as error:
            told.append(str(error).encode())
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    yield from told
"""

FLASK_SOCKETIO = """
from flask import Flask
from flask_socketio import SocketIO, send
app = Flask(__name__)
socketio = SocketIO(app, async_mode="threading")
@socketio.on("shout")
def shout(text):
    return text.upper()
application = app
"""

SWITCH = ("Connection: Upgrade", "Upgrade: five")
#: Far beyond what an ordinary request needs on a busy machine.
HARAKIRI_SECONDS = 5


@pytest.fixture(scope="module", params=[2, 4], ids=["2 threads", "4 threads"])
def server(serve_module, request):
    return shop(serve_module, FLASK_SOCK, f"threads = {request.param}\nharakiri = {HARAKIRI_SECONDS}")


def shop(serve, text, more):
    server = serve.prepare(f"module = shop\npythonpath = {{directory}}\n{more}")
    (server.directory / "shop.py").write_text(text)
    return server.start()


def ask(server, target, lines=SWITCH, behind=b""):
    client = server.connect()
    client.send("\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode() + behind)
    return client


def test_flask_sock_echoes(server):
    socket = WebSocket(server.connect(), "/echo").open()
    for text in ("one", "two", "x" * 100_000):
        socket.send_text(text)
        assert socket.read().payload.decode() == text
    assert server.get("/").text == "fine"
    assert socket.close() == (1000, "")
    server.wait_for_log(r"GET /echo => generated 0 bytes in \d+ msecs \(HTTP/1\.1 101\)")
    assert "exception" not in server.log


def test_a_websocket_that_the_view_ends_is_closed(server):
    socket = WebSocket(server.connect(), "/once").open()
    socket.send_text("this")
    frame = socket.read()
    assert (frame.opcode, frame.payload) == (TEXT, b"only this")
    # Only after the view has closed: otherwise the library's threads interfere with each other.
    assert socket.answer_close() == (1000, "")
    assert server.get("/").text == "fine"


def test_harakiri_does_not_count_the_time_of_a_websocket(server):
    socket = WebSocket(server.connect(), "/echo").open()
    end = time.monotonic() + HARAKIRI_SECONDS + 1.5
    while time.monotonic() < end:
        socket.send_text("still here")
        assert socket.read().payload == b"still here"
    socket.close()
    assert "harakiri" not in server.log_until_now()


def test_a_connection_that_the_application_keeps_beyond_its_return_is_its_own(server):
    client = ask(server, "/kept")
    assert client.read_head().status == 101
    # The request has ended, as its log line shows.
    server.wait_for_log(r"GET /kept => .*HTTP/1\.1 101")
    assert server.get("/").text == "fine"
    client.send(b"hello")
    assert client.read_to_end() == b"HELLO"


def test_a_request_for_another_protocol_that_the_application_does_not_speak_is_answered(server):
    client = ask(server, "/")
    assert client.read_response().text == "fine"
    assert client.request(target="/").text == "fine"


def test_the_socket_is_there_for_requests_that_ask_for_another_protocol_only(server):
    both = "['gunicorn.socket', 'werkzeug.socket']"
    assert server.connect().request(target="/keys").text == "[]"
    assert ask(server, "/keys").read_response().text == both
    # The bytes after the head are in our buffer, and would be lost.
    assert ask(server, "/keys", behind=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").read_response().text == "[]"
    assert ask(server, "/keys", (*SWITCH, "Content-Length: 1"), b"x").read_response().text == "[]"


def test_a_socket_that_is_used_after_its_request_reaches_no_other_client(server):
    assert ask(server, "/late").read_response().text == "fine"
    # The answer comes before the end of the request, which its log line shows; the next request may be in another thread.
    server.wait_for_log(r"GET /late => ")
    assert server.get("/too_late").text == "the connection's socket was used after its request had ended"


def test_a_socket_is_not_taken_by_another_thread_while_the_answer_is_sent(server):
    told = "the connection's socket was used by another thread after the application had returned"
    assert ask(server, "/elsewhere").read_response().text == told


@pytest.mark.parametrize("transports", [["websocket"], ["polling", "websocket"]], ids=["websocket", "upgrade"])
def test_flask_socketio_speaks_websocket(serve, transports):
    server = shop(serve, FLASK_SOCKETIO, "threads = 4")
    client = socketio.Client(reconnection=False)
    client.connect(server.url, transports=transports, wait_timeout=TIMEOUT_SECONDS)
    try:
        wait_until(lambda: client.transport() == "websocket", "the switch to WebSocket")
        assert client.call("shout", "hello") == "HELLO"
    finally:
        client.disconnect()
    wait_until(lambda: "HTTP/1.1 101" in server.log, "the end of the WebSocket's request")
    assert "exception" not in server.whole_log()
