"""Random frames, random fragmentation and random ends at every stage: the worker survives, and keeps nothing of them."""

import os

import pytest
from support.hostile import Hostile
from support.processes import resident_bytes
from support.waiting import wait_until
from support.websocket import PING, PONG, Scripted

#: Actions of one client, and the number of successive clients.
ACTIONS = 2000
ROUNDS = 3

#: Rounds after which the allocator has reached its working size.
FIRST_ROUNDS = 1

#: Maximum growth of the worker's memory between the first and the other rounds: no round is meant to leave anything.
MAX_GROWTH_BYTES = 8 << 20

#: Longer than a busy machine withholds the processor from a worker: only a client can block its loop for so long.
STALL_SECONDS = 20

#: Descriptors of our own requests.
FEW = 3

#: Lines that the log must not contain, whatever clients do. The applications themselves fail, as scripted.
SIGNS = (
    "SystemError",
    "InvalidStateError",
    "never retrieved",
    "never awaited",
    "AssertionError",
    "StopIteration",
    "has been blocked",
)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_hostile_clients_leave_nothing_behind(serve, loop):
    server = serve(
        f"""
        asgi = {{apps}}/asgi_socket.py
        lifespan = off
        loop = {loop}
        loop-stall = {STALL_SECONDS}
        disable-logging = true
        socket-timeout = 2
        websocket-ping-interval = 1
        websocket-ping-timeout = 1
        websocket-max-message-size = 1000000
        """
    )
    worker = server.worker()
    descriptors = f"/proc/{worker}/fd"
    at_rest = len(os.listdir(descriptors))
    resident = []
    for seed in range(ROUNDS):
        client = Hostile(server.address(), seed)
        for _ in range(ACTIONS):
            client.act()
        client.leave()
        wait_until(
            lambda: len(os.listdir(descriptors)) <= at_rest + FEW,
            lambda: f"its connections are closed: {len(os.listdir(descriptors))}, at rest {at_rest}",
        )
        resident.append(resident_bytes(worker))
    assert resident[-1] - resident[FIRST_ROUNDS - 1] < MAX_GROWTH_BYTES, resident
    socket = Scripted(server, ("accept",), ("echo", 1)).open()
    socket.send_text("still here")
    # On a busy machine a ping may come before the answer.
    while (answer := socket.read()).opcode == PING:
        socket.send(PONG, answer.payload)
    assert answer.payload == b"still here"
    found = [line for line in server.lines if any(sign in line for sign in SIGNS)]
    assert not found, "\n".join(found)
    assert server.worker() == worker
