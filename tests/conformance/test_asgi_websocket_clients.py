"""WebSockets with common client libraries, directly and through a real nginx."""

import asyncio
import random

import aiohttp
import pytest
import websockets
from support.client import Client
from support.nginx import Nginx
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import CLOSE, PING, TEXT, Scripted, close_payload, frame, received
from websockets.sync.client import connect
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

LOOPS = ["asyncio", "uvloop"]

#: Options of the client of websockets, whose own limit of a handshake is 10 seconds.
OPTIONS = {"proxy": None, "open_timeout": TIMEOUT_SECONDS}

#: As in nginx's documentation about WebSocket.
FRONT = """
    map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
    server {{
        listen 127.0.0.1:{{port}};
        location / {{
            proxy_pass http://127.0.0.1:{http};
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Host $host;
        }}
    }}
"""

#: Sizes around each change of a frame header's length, and a large one.
SIZES = (0, 1, 125, 126, 65535, 65536, 300_000)


def conversation():
    """Messages of all kinds: ``(text or bytes)``."""
    for size in SIZES:
        yield "\u20ac" * (size // 3) + "x" * (size % 3)
        yield random.Random(size).randbytes(size)


@pytest.fixture(scope="module", params=LOOPS)
def server(serve_module, request):
    return serve_module(f"asgi = {{apps}}/asgi_socket.py\nlifespan = off\nloop = {request.param}")


@pytest.fixture(scope="module")
def nginx(server, tmp_path_factory):
    front = Nginx(tmp_path_factory.mktemp("nginx"), FRONT.format(http=server.port))
    yield front
    front.finish()


@pytest.fixture(params=["direct", "nginx"])
def port(request, server):
    return server.port if request.param == "direct" else request.getfixturevalue("nginx").port


def target(*steps, name="client"):
    return f"/?{Scripted.query(name, steps)}"


def url(port, *steps, name="client"):
    return f"ws://127.0.0.1:{port}{target(*steps, name=name)}"


# websockets.


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_the_client_of_websockets_converses(port, compression):
    messages = list(conversation())
    with connect(url(port, ("accept",), ("echo", len(messages))), compression=compression, max_size=None, **OPTIONS) as line:
        assert bool(line.protocol.extensions) == bool(compression)
        assert line.ping().wait(60)
        for message in messages:
            line.send(message)
            assert line.recv() == message
        # The application has ended.
        with pytest.raises(websockets.ConnectionClosedOK):
            line.recv()
        assert (line.close_code, line.close_reason) == (1000, "")


def test_the_client_of_websockets_sends_fragments_and_reads_them(server):
    with connect(url(server.port, ("accept",), ("echo", 2)), **OPTIONS) as line:
        line.send(iter(["a\u20ac", "", "b" * 100_000]))
        assert line.recv() == "a\u20ac" + "b" * 100_000
        line.send(iter([b"1", b"2"]))
        assert line.recv() == b"12"


def test_the_client_of_websockets_gets_its_subprotocol_and_the_close_code(port):
    accept = ("send", {"type": "websocket.accept", "subprotocol": "two"})
    close = ("send", {"type": "websocket.close", "code": 4001, "reason": "enough \u20ac"})
    with connect(url(port, ("receive",), accept, close), subprotocols=["one", "two"], **OPTIONS) as line:
        assert line.subprotocol == "two"
        with pytest.raises(websockets.ConnectionClosedError):
            line.recv()
        assert (line.close_code, line.close_reason) == (4001, "enough \u20ac")


def test_the_client_of_websockets_is_told_of_a_refusal(port):
    with pytest.raises(websockets.InvalidStatus) as refused:
        connect(url(port, ("receive",), ("send", {"type": "websocket.close"})), **OPTIONS)
    assert refused.value.response.status_code == 403


def test_a_hundred_clients_of_websockets_talk_at_once(server):
    async def talk(number):
        async with websockets.connect(url(server.port, ("accept",), ("echo", 20)), **OPTIONS) as line:
            for place in range(20):
                await line.send(f"{number} {place}")
                assert await line.recv() == f"{number} {place}"

    async def all_of_them():
        await asyncio.gather(*(talk(number) for number in range(100)))

    asyncio.run(all_of_them())


# aiohttp.


@pytest.mark.parametrize("compress", [0, 15, 9])
def test_the_client_of_aiohttp_converses(port, compress):
    messages = list(conversation())

    async def converse():
        address = url(port, ("accept",), ("echo", len(messages)), ("receive_all",))
        options = {"compress": compress, "max_msg_size": 0}
        async with aiohttp.ClientSession() as session, session.ws_connect(address, **options) as line:
            assert bool(line.compress) == bool(compress)
            for message in messages:
                await (line.send_str if isinstance(message, str) else line.send_bytes)(message)
                assert (await line.receive()).data == message
            await line.close(code=4002, message=b"bye")
            assert line.close_code == 4002

    asyncio.run(converse())


def test_the_application_is_told_why_the_client_of_aiohttp_leaves(server, port):
    name = f"aiohttp-leaves-{port}"

    async def leave():
        address = url(port, ("accept",), ("receive_all",), name=name)
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as line:
            await line.close(code=4003, message="b\u00fce".encode())

    asyncio.run(leave())
    wait_until(lambda: "'code': 4003, 'reason': 'b\u00fce'" in server.get(f"/seen/{name}").text, "the application is told")


# wsproto.


class Wsproto:
    """A client whose frames are encoded by wsproto."""

    def __init__(self, port, *steps, **options):
        self.client = Client(("127.0.0.1", port))
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self.waiting = []
        self.send(Request(host=f"127.0.0.1:{port}", target=target(*steps), **options))

    def send(self, event):
        self.client.send(self.protocol.send(event))

    def next(self):
        """Reads the next event."""
        while not self.waiting:
            if not self.client.receive():
                self.protocol.receive_data(None)
            else:
                self.protocol.receive_data(self.client.buffer)
                self.client.buffer = b""
            self.waiting = list(self.protocol.events())
        return self.waiting.pop(0)

    def message(self):
        data, event = None, None
        while event is None or not event.message_finished:
            event = self.next()
            assert isinstance(event, (TextMessage, BytesMessage)), event
            data = event.data if data is None else data + event.data
        return data if isinstance(data, str) else bytes(data)


@pytest.mark.parametrize("extensions", [[], [PerMessageDeflate()], [PerMessageDeflate(client_max_window_bits=9)]])
def test_the_client_of_wsproto_converses(port, extensions):
    messages = list(conversation())
    line = Wsproto(port, ("accept",), ("echo", len(messages)), extensions=extensions)
    accepted = line.next()
    assert isinstance(accepted, AcceptConnection)
    assert len(accepted.extensions) == len(extensions)
    for message in messages:
        line.send(Ping(b"beside"))
        line.send(TextMessage(message) if isinstance(message, str) else BytesMessage(message))
        assert isinstance(line.next(), Pong)
        assert line.message() == message
    end = line.next()
    assert isinstance(end, CloseConnection)
    line.send(end.response())
    assert line.client.is_closed()


def test_the_client_of_wsproto_is_told_of_a_refusal(port):
    start = {"type": "websocket.http.response.start", "status": 418, "headers": [(b"content-length", b"6")]}
    body = {"type": "websocket.http.response.body", "body": b"teapot"}
    line = Wsproto(port, ("receive",), ("send", start), ("send", body))
    refusal = line.next()
    assert isinstance(refusal, RejectConnection)
    assert refusal.status_code == 418
    data = line.next()
    assert isinstance(data, RejectData)
    assert bytes(data.data) == b"teapot"


# nginx.


def test_behind_nginx_the_application_is_told_that_the_client_has_gone(server, nginx):
    for leave, code in (("close", 1006), ("reset", 1006)):
        socket = Scripted(server, ("accept",), ("receive_all",), client=nginx.connect()).open()
        socket.send_text("last words")
        socket.wait_for(received, "the message has come")
        getattr(socket.client, leave)()
        messages = received(socket.ended()[0])
        assert [message.get("text") for message in messages] == ["last words", None]
        assert messages[-1]["code"] == code


def test_behind_nginx_frames_that_come_with_the_handshake_are_read(server, nginx):
    early = frame(TEXT, "early") + frame(PING, b"p")
    socket = Scripted(server, ("accept",), ("echo", 2), client=nginx.connect(), early=early).open()
    socket.skips_pongs = True
    assert socket.read_message() == "early"
    socket.send_text("later")
    assert socket.read_message() == "later"
    socket.skips_pongs = False
    assert socket.read_close() == (1000, "")
    socket.send(CLOSE, close_payload(1000))
    assert socket.client.is_closed()


def test_behind_nginx_a_slow_client_holds_the_application_back(server, nginx):
    times, size = 400, 100_000
    socket = Scripted(server, ("accept",), ("say_zeros", size, times), client=nginx.connect(receive_bytes=4096)).open()
    for _ in range(times):
        assert len(socket.read_message()) == size
    assert socket.answer_close() == (1000, "")
