"""WebSockets in greenlets: uWSGI's calls, and Flask-SocketIO and python-engineio in their modes for gevent."""

import json
import signal
import subprocess
import urllib.request

import engineio
import pytest
import socketio
from engineio.payload import Payload
from support.browser import chromium
from support.server import program
from support.socketio_page import BY_HAND
from support.tls import Authority
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import WebSocket

#: One response to a poll contains all waiting events; a client accepts 16 by default.
Payload.max_decode_packets = 1000

GEVENT = "module = shop\npythonpath = {directory}\ngevent = 100\ngevent-monkey-patch = true"
MODES = ["gevent", "gevent_uwsgi"]

CHAT = """
import uwsgi, gevent
from gevent.queue import Queue
rooms = set()
def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/":
        start_response("200 OK", [])
        return [str(len(rooms)).encode()]
    uwsgi.websocket_handshake(environ["HTTP_SEC_WEBSOCKET_KEY"], environ.get("HTTP_ORIGIN", ""))
    return {"/echo": echo, "/chat": chat, "/async": chat_of_descriptors}[path](environ)
def echo(environ):
    while True:
        uwsgi.websocket_send(uwsgi.websocket_recv())
def chat(environ):
    # As with a queue of redis: whatever anybody says is sent by a greenlet of each visitor.
    heard = Queue()
    rooms.add(heard)
    context = uwsgi.request_context()
    def forward():
        for text in heard:
            uwsgi.websocket_send(text, request_context=context)
    forwarding = gevent.spawn(forward)
    try:
        while True:
            text = uwsgi.websocket_recv()
            for room in rooms:
                room.put(text)
    finally:
        rooms.discard(heard)
        forwarding.kill()
def chat_of_descriptors(environ):
    # As uWSGI's websockets_chat_async.py, with a pipe instead of redis.
    import os
    connection, (reader, writer) = uwsgi.connection_fd(), os.pipe()
    while True:
        uwsgi.wait_fd_read(connection, 3)
        uwsgi.wait_fd_read(reader)
        uwsgi.suspend()
        if uwsgi.ready_fd() == reader:
            uwsgi.websocket_send(b"[pipe] " + os.read(reader, 1000))
        elif text := uwsgi.websocket_recv_nb():
            os.write(writer, text)
"""

FLASK_SOCKETIO = """
from flask import Flask, session
from flask_socketio import SocketIO, emit, join_room
app = application = Flask(__name__)
socketio = SocketIO(app, async_mode="{mode}", cors_allowed_origins="*")
assert socketio.async_mode == "{mode}"
@app.route("/")
def index():
    return "<!doctype html><title>shop</title>"
@socketio.on("connect")
def connect():
    emit("welcome", {{}})
@socketio.on("echo")
def echo(data):
    socketio.sleep(0.01)
    return {{"data": data}}
@socketio.on("enter")
def enter(room):
    join_room(room)
    return "in"
@socketio.on("say")
def say(room, text):
    emit("said", text, to=room)
@socketio.on("count")
def count(number):
    def slowly():
        for place in range(number):
            socketio.emit("number", place)
            socketio.sleep(0)
    socketio.start_background_task(slowly)
"""

ENGINEIO = """
import engineio
server = engineio.Server(async_mode="{mode}", cors_allowed_origins="*")
@server.on("message")
def message(sid, data):
    server.sleep(0.01)
    server.send(sid, data)
application = engineio.WSGIApp(server)
"""


#: Both greenlets of a request use its WebSocket for the first time, in either order.
FIRST_USE = """
import gevent
def application(environ, start_response):
    ws = environ["wsgi.websocket"]
    if environ["PATH_INFO"] == "/spawned":
        # The handshake is answered in another greenlet than that of the request.
        gevent.spawn(ws.send, "hello").get()
    else:
        sender = gevent.spawn(lambda: ws.send("hello"))
        ws.send(ws.receive())
        sender.join()
    ws.close()
    return []
"""

#: An application that was written for gunicorn: it does not mention a mode.
SOCKETIO_OF_GUNICORN = """
from flask import Flask
from flask_socketio import SocketIO, emit
app = application = Flask(__name__)
socketio = SocketIO(app, cors_allowed_origins="*")
@socketio.on("echo")
def echo(data):
    emit("heard", data)
    return data
@app.route("/mode")
def mode():
    return socketio.async_mode
"""
CLIENTS = 60


@pytest.fixture
def shop(serve):
    def start(text, more="", **options):
        server = serve.prepare(f"{GEVENT}\n{more}", **options)
        (server.directory / "shop.py").write_text(text)
        return server.start()

    return start


def test_the_first_use_of_a_websocket_answers_one_handshake_whichever_greenlet_it_is(shop):
    server = shop(FIRST_USE)
    for _ in range(20):
        socket = WebSocket(server.connect(), "/both").open()
        socket.send_text("echo")
        assert {socket.read_message(), socket.read_message()} == {"hello", "echo"}
        assert socket.answer_close() == (1000, "")
    socket = WebSocket(server.connect(), "/spawned").open()
    assert socket.read_message() == "hello"
    assert socket.answer_close() == (1000, "")
    assert "Traceback" not in server.log


def ordered(client):
    """Has a client take its messages one after another. By default each has a thread of its own, and on a busy machine a binary
    attachment can overtake the message that announces it.
    """
    trigger = client.eio._trigger_event

    def trigger_in_order(event, *arguments, run_async=False, **options):
        return trigger(event, *arguments, run_async=run_async and event != "message", **options)

    client.eio._trigger_event = trigger_in_order
    return client


@pytest.mark.parametrize("with_gevent_websocket", [True, False], ids=["gevent-websocket", "simple-websocket"])
def test_gunicorns_gevent_workers_keep_flask_socketio_in_the_mode_that_it_has_there(
    serve, with_gevent_websocket, free_port, tmp_path
):
    (tmp_path / "shop.py").write_text(SOCKETIO_OF_GUNICORN)
    if with_gevent_websocket:
        # python-engineio only looks if the package is there.
        (tmp_path / "geventwebsocket").mkdir()
        (tmp_path / "geventwebsocket" / "__init__.py").touch()
    port = free_port()
    worker = "geventwebsocket.gunicorn.workers.GeventWebSocketWorker"
    command = [*program(), "-k", worker, "-w", "1", "-b", f"127.0.0.1:{port}", "shop:application"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    clients, heard = [], []
    try:
        wait_until(lambda: "ready" in (tmp_path / "log").read_text(), lambda: (tmp_path / "log").read_text())
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{url}/mode") as answer:
            assert answer.read() == b"gevent"
        for _ in range(CLIENTS):
            clients.append(ordered(socketio.Client(reconnection=False)))
            clients[-1].on("heard", heard.append)
            clients[-1].connect(url, transports=["websocket"], wait_timeout=TIMEOUT_SECONDS)
            for data in ("text", b"x" * 2000, {"file": b"\x00\xff" * 1000}):
                assert clients[-1].call("echo", data) == data
        wait_until(lambda: len(heard) == 3 * CLIENTS, lambda: f"{len(heard)} events are heard")
    finally:
        for client in clients:
            client.disconnect()
        process.terminate()
        process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_an_application_that_names_its_mode_gets_it(shop):
    server = shop(FLASK_SOCKETIO.format(mode="gevent_uwsgi"), "gevent-websocket = true")
    client = socketio.Client(reconnection=False)
    client.connect(server.url, transports=["websocket"], wait_timeout=TIMEOUT_SECONDS)
    assert client.call("echo", "text") == {"data": "text"}
    client.disconnect()


def test_uwsgis_calls_echo_for_more_clients_than_a_worker_has_threads(shop):
    server = shop(CHAT)
    sockets = [WebSocket(server.connect(), "/echo").open() for _ in range(60)]
    for number, socket in enumerate(sockets):
        socket.send_text(f"hello {number}")
    assert [socket.read_message() for socket in sockets] == [f"hello {number}" for number in range(60)]
    assert server.get("/").text == "0"
    assert {socket.close() for socket in sockets} == {(1000, "")}


def test_a_chat_sends_what_anybody_says_to_everybody(shop):
    server = shop(CHAT)
    sockets = [WebSocket(server.connect(), "/chat").open() for _ in range(10)]
    wait_until(lambda: server.get("/").text == "10", "everybody is there")
    for number, socket in enumerate(sockets):
        socket.send_text(f"from {number}")
        assert {other.read_message() for other in sockets} == {f"from {number}"}
    sockets.pop().client.reset()
    wait_until(lambda: server.get("/").text == "9", "one has left")
    server.send_signal(signal.SIGTERM)
    assert {socket.read_close()[0] for socket in sockets} == {1001}
    for socket in sockets:
        socket.client.close()
    assert server.wait_for_exit() == 0


def test_a_chat_of_uwsgis_asynchronous_calls_waits_for_its_socket_and_another_descriptor(shop):
    socket = WebSocket(shop(CHAT).connect(), "/async").open()
    for text in ("one", "two", "three"):
        socket.send_text(text)
        assert socket.read_message() in (f"[pipe] {text}", f"[pipe] {text}".encode())
    socket.client.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "transports", [["polling"], ["websocket"], ["polling", "websocket"]], ids=["polling", "websocket", "upgrade"]
)
def test_flask_socketio_speaks_in_its_modes_for_gevent(shop, mode, transports):
    server = shop(FLASK_SOCKETIO.format(mode=mode))
    clients = [ordered(socketio.Client(reconnection=False)) for _ in range(3)]
    said, numbers = [], []
    try:
        for client in clients:
            client.on("said", said.append)
            client.connect(server.url, transports=transports, wait_timeout=TIMEOUT_SECONDS)
            wait_until(lambda client=client: client.transport() == transports[-1], "the transport")
            for data in ("text", b"\x00\xff" * 1000, "\u20ac" * 30_000):
                assert client.call("echo", data) == {"data": data}
        for client in clients[:2]:
            assert client.call("enter", "red") == "in"
        clients[2].emit("say", ("red", "hello"))
        wait_until(lambda: said == ["hello", "hello"], lambda: f"both have heard it: {said}")
        clients[0].on("number", numbers.append)
        clients[0].emit("count", 50)
        wait_until(lambda: numbers == list(range(50)), lambda: f"the numbers: {numbers}")
    finally:
        for client in clients:
            client.disconnect()
    if "websocket" in transports:
        wait_until(lambda: server.log.count("(HTTP/1.1 101)") == 3, "the ends of the WebSockets' requests")
    assert "Traceback" not in server.log


@pytest.mark.parametrize("mode", MODES)
def test_python_engineio_speaks_in_its_modes_for_gevent(shop, mode):
    server = shop(ENGINEIO.format(mode=mode))
    heard = []
    client = engineio.Client()
    client.on("message", heard.append)
    client.connect(server.url, transports=["websocket"])
    sent = [f"number {number}" for number in range(20)] + [b"\x00\x01binary"]
    for data in sent:
        client.send(data)
    wait_until(lambda: len(heard) == len(sent), lambda: f"the echoes: {heard}")
    client.disconnect()
    assert sorted(heard, key=str) == sorted(sent, key=str)


@pytest.mark.parametrize("mode", MODES)
def test_a_page_in_a_browser_speaks_with_flask_socketio_in_a_greenlet(shop, mode, tmp_path):
    shown = Authority(tmp_path / "certificates").server()
    server = shop(FLASK_SOCKETIO.format(mode=mode), listen=(f"https-socket = 127.0.0.1:0,{shown.chain},{shown.key}",))
    with chromium("--ignore-certificate-errors") as browser:
        browser.get(f"https://localhost:{server.address('https')[1]}/")
        found = json.loads(browser.execute_async_script(BY_HAND, True))
    assert (found["heard"], found["answer"]) == (["welcome"], "hi")
