"""`bolide.contrib`: a channel layer of Django Channels, a backend of broadcaster and managers of python-socketio, between four
workers of the real program.
"""

import asyncio
import subprocess
import sys

import pytest
import socketio
from support.redis_server import RedisServer
from support.server import APPS
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import WebSocket

CONFIGURATION = """
asgi = contrib_asgi:application
pythonpath = {apps}
processes = 4
publish = true
disable-logging = true
"""
#: The names of the checks, without an import of what they check.
CHECKS = [
    line[len("async def ") : -len("():")]
    for line in (APPS / "contrib_checks.py").read_text().splitlines()
    if line.startswith("async def ") and line.endswith("():")
]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(CONFIGURATION)


@pytest.mark.parametrize("check", CHECKS)
def test_the_channel_layer_does_what_the_specification_says(server, check):
    assert server.get(f"/run?{check}").text == "fine"


def sockets_in_each_worker(server, target):
    """Returns a WebSocket in each of the four workers, with what it said first, by the worker's pid."""
    found = {}

    def all_are_there():
        socket = WebSocket(server.connect(), target).open()
        said = socket.read_message()
        found.setdefault(said.split()[0], (socket, said))
        return len(found) == 4

    wait_until(all_are_there, lambda: f"a WebSocket in each worker: {found}", look_seconds=0)
    return found


def test_a_group_of_consumers_in_four_workers_gets_what_one_sends(server):
    found = sockets_in_each_worker(server, "/ws/room-1").values()
    outside = WebSocket(server.connect(), "/ws/room-2").open()
    outside.read_message()
    (first, _), *others = found
    for text in ["hello", "again"]:
        first.send_text(text)
    for socket, _ in found:
        assert [socket.read_message() for _ in range(2)] == ["hellob'\\x00'", "againb'\\x00'"]
    # A channel of another process.
    target, said = others[0]
    first.send_text(f"{said.split()[1]} personal")
    assert target.read_message() == "personalb'\\x00'"
    # A consumer that has left does not get more, and the others do.
    assert target.close() == (1000, "")
    outside.send_text("only-here")
    assert outside.read_message() == "only-hereb'\\x00'"
    first.send_text("last")
    for socket, _ in (pair for pair in found if pair[0] is not target):
        assert socket.read_message() == "lastb'\\x00'"


def test_subscribers_of_broadcaster_in_four_workers_get_what_one_publishes(server):
    found = sockets_in_each_worker(server, "/sockets/news").values()
    for text in ["hello", "again"]:
        assert server.get(f"/broadcast/news?{text}").text == "fine"
    assert server.get("/broadcast/other?nobody").text == "fine"
    for socket, _ in found:
        assert [socket.read_message() for _ in range(2)] == ["news: hello", "news: again"]


def test_an_emit_of_one_worker_reaches_the_clients_of_socket_io_in_all(server):
    asyncio.run(asyncio.wait_for(emit_to_all(server), TIMEOUT_SECONDS))


async def emit_to_all(server):
    clients, heard = {}, {}
    while len(clients) < 3:
        client = socketio.AsyncClient(reconnection=False)
        said = heard[client] = asyncio.Queue()
        client.on("said", said.put)
        await client.connect(server.url, transports=["websocket"], wait_timeout=TIMEOUT_SECONDS)
        pid = await client.call("enter", "room")
        if clients.setdefault(pid, client) is not client:
            await client.disconnect()
    first, *others = clients.values()
    await first.emit("say", ("room", "hello"))
    await others[0].emit("say", ("room", {"bytes": b"\0\xff"}))
    for client in clients.values():
        both = [await heard[client].get() for _ in range(2)]
        assert sorted(both, key=str) == ["hello", {"bytes": b"\0\xff"}]
        await client.disconnect()


@pytest.fixture
def machines(serve):
    """Two instances that share a server, as on two machines."""
    redis = RedisServer()
    lines = CONFIGURATION.replace("processes = 4", "processes = 1")
    lines = lines.replace("publish = true", f"publish = engine={redis.url}?connect-ms=20000&answer-ms=20000")
    yield redis, serve(lines), serve(lines)
    redis.finish()


def test_consumers_on_two_machines_share_a_group_and_send_to_each_others_channels(machines):
    redis, here, there = machines
    first, second = (WebSocket(server.connect(), "/ws/room").open() for server in (here, there))
    first.read_message()
    channel = second.read_message().split()[1]
    # The channel of each process, that of flushes, and the group.
    wait_until(lambda: sorted(redis.all_listeners().values()) == [1, 1, 2, 2], lambda: redis.all_listeners())
    first.send_text("hello")
    for socket in (first, second):
        assert socket.read_message() == "hellob'\\x00'"
    first.send_text(f"{channel} personal")
    assert second.read_message() == "personalb'\\x00'"


def test_an_emit_on_one_machine_reaches_the_clients_of_socket_io_on_another(machines):
    redis, here, there = machines

    async def emit():
        first, second = socketio.AsyncClient(reconnection=False), socketio.AsyncClient(reconnection=False)
        heard = asyncio.Queue()
        second.on("said", heard.put)
        for client, server in ((first, here), (second, there)):
            await client.connect(server.url, transports=["websocket"], wait_timeout=TIMEOUT_SECONDS)
            await client.call("enter", "room")
        wait_until(lambda: list(redis.all_listeners().values()) == [2], lambda: redis.all_listeners())
        await first.emit("say", ("room", "hello"))
        assert await heard.get() == "hello"
        for client in (first, second):
            await client.disconnect()

    asyncio.run(asyncio.wait_for(emit(), TIMEOUT_SECONDS))


@pytest.mark.parametrize(
    ("module", "package"),
    [("channels", "channels"), ("broadcaster", "broadcaster"), ("socketio", "python-socketio"), ("limits", "limits")],
)
def test_a_package_that_is_missing_is_named(module, package):
    code = f"import sys; sys.modules[{module!r}] = None\nimport bolide.contrib.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"bolide.contrib.{module} needs" in done.stderr
    assert f"pip install {package}" in done.stderr
