"""Socket.IO (python-socketio's AsyncServer) with its own client: by polling, by WebSocket, and with an upgrade between them."""

import asyncio
import contextlib
import json

import httpx
import pytest
import socketio
from engineio.payload import Payload
from support.browser import chromium
from support.http2 import Both
from support.socketio_page import BY_HAND

TIMEOUT_SECONDS = 60

#: One response to a poll contains all waiting events; a client accepts 16 by default.
Payload.max_decode_packets = 1000

#: Transports of the client: the last begins with polling and upgrades to a WebSocket.
TRANSPORTS = {"polling": ["polling"], "websocket": ["websocket"], "upgrade": ["polling", "websocket"]}


@pytest.fixture(scope="module")
def site(serve_module):
    return serve_module("pythonpath = {apps}\nasgi = socketio_asgi:app")


@pytest.fixture(params=TRANSPORTS)
def transports(request):
    return TRANSPORTS[request.param]


@contextlib.asynccontextmanager
async def visitor(site, transports, **options):
    """A connected client with a queue of received events."""
    client = socketio.AsyncClient(reconnection=False)
    client.heard = asyncio.Queue()

    async def hear(event, *data):
        await client.heard.put((event, *data))

    client.on("*", hear)
    await client.connect(site.url, transports=transports, wait_timeout=TIMEOUT_SECONDS, **options)
    try:
        event, told = await asyncio.wait_for(client.heard.get(), TIMEOUT_SECONDS)
        assert (event, told["sid"]) == ("welcome", client.get_sid())
        yield client
    finally:
        await leave(client)


async def leave(client):
    """Disconnects; with polling it does not wait for the last poll, which the server leaves unanswered for seconds."""
    await (client.eio.disconnect(abort=True) if client.connected and client.transport() == "polling" else client.disconnect())


async def heard(client):
    return await asyncio.wait_for(client.heard.get(), TIMEOUT_SECONDS)


def test_socket_io_acknowledges_events(site, transports):
    async def talk():
        async with visitor(site, transports, headers={"X-Agent": "test"}) as client:
            for data in ("text", {"a": [1, None]}, b"\x00\xff" * 1000, "\u20ac" * 30_000):
                told = await client.call("echo", data, timeout=TIMEOUT_SECONDS)
                assert told == {"data": data, "path": "/socket.io/", "agent": "test"}

    asyncio.run(talk())


def test_socket_io_changes_to_a_websocket(site):
    async def talk():
        async with visitor(site, TRANSPORTS["upgrade"]) as client:
            assert client.transport() == "websocket"

    asyncio.run(talk())


def test_socket_io_sends_many_events_in_order(site, transports):
    async def talk():
        async with visitor(site, transports) as client:
            await client.emit("slowly", 200)
            assert [await heard(client) for _ in range(200)] == [("number", number) for number in range(200)]

    asyncio.run(talk())


def test_socket_io_has_rooms(site, transports):
    async def talk():
        async with visitor(site, transports) as ann, visitor(site, ["websocket"]) as bob, visitor(site, ["polling"]) as eve:
            for client in (ann, bob):
                assert await client.call("enter", "red", timeout=TIMEOUT_SECONDS) == "in"
            assert await eve.call("enter", "blue", timeout=TIMEOUT_SECONDS) == "in"
            await ann.emit("say", ("red", "hello"))
            expected = ("said", {"room": "red", "text": "hello"})
            assert (await heard(ann), await heard(bob)) == (expected, expected)
            await ann.emit("say", ("blue", "for others"))
            # The first event that eve receives is the message in her room.
            assert await heard(eve) == ("said", {"room": "blue", "text": "for others"})

    asyncio.run(talk())


def test_socket_io_has_namespaces(site, transports):
    async def talk():
        client = socketio.AsyncClient(reconnection=False)
        await client.connect(site.url, transports=transports, namespaces=["/loud"], wait_timeout=TIMEOUT_SECONDS)
        told = await client.call("shout", "hello", namespace="/loud", timeout=TIMEOUT_SECONDS)
        await leave(client)
        return told

    assert asyncio.run(talk()) == "HELLO"


def test_socket_io_refuses_a_client(site, transports):
    async def talk():
        client = socketio.AsyncClient(reconnection=False)
        try:
            with pytest.raises(socketio.exceptions.ConnectionError):
                await client.connect(site.url, auth={"ticket": "forged"}, transports=transports, wait_timeout=TIMEOUT_SECONDS)
        finally:
            await leave(client)

    asyncio.run(talk())


def test_socket_io_stays_connected_by_its_pings(site, transports):
    """The server pings twice a second; it disconnects a client that does not answer."""

    async def talk():
        async with visitor(site, transports) as client:
            pings = 0
            handle = client.eio._send_packet

            async def count(packet):
                nonlocal pings
                # The client's answer to a ping.
                pings += packet.packet_type == 3
                await handle(packet)

            client.eio._send_packet = count
            while pings < 2:
                await asyncio.sleep(0.01)
            assert client.connected

    asyncio.run(asyncio.wait_for(talk(), TIMEOUT_SECONDS))


def test_socket_io_notices_a_disconnect(site, transports):
    def left():
        return httpx.get(f"{site.url}/other", verify=False, trust_env=False, timeout=TIMEOUT_SECONDS).text.count("left")

    async def talk():
        async with visitor(site, transports):
            pass

    before = left()
    asyncio.run(talk())
    site.wait_for(lambda: left() > before, "the server knows")


def test_the_application_beside_socket_io_is_served(site):
    assert httpx.get(f"{site.url}/other", verify=False, trust_env=False, timeout=TIMEOUT_SECONDS).status_code == 200
    assert site.log.count("the site opens") == 1
    assert "Traceback" not in site.log_until_now()


@pytest.mark.parametrize("polls", [False, True], ids=["websocket", "upgrade"])
def test_a_page_of_https_opens_its_websocket_over_http_2(serve, tmp_path, polls):
    both = Both(serve, tmp_path, "pythonpath = {apps}\nasgi = socketio_asgi:app")
    with chromium("--ignore-certificate-errors") as browser:
        browser.get(f"https://localhost:{both.server.address('https')[1]}/")
        found = json.loads(browser.execute_async_script(BY_HAND, polls))
    assert found == {"heard": ["welcome"], "answer": "hi", "protocols": ["h2"]}
    line = both.server.wait_for_log(r"^.*/socket\.io/\?EIO=4&transport=websocket.*$")[0]
    # An extended CONNECT (RFC 8441), not a separate connection.
    assert "CONNECT /socket.io/" in line
    assert "(HTTP/2.0 200)" in line
