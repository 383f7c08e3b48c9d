"""A burst beyond the listen queue of a UNIX socket, compared with uWSGI: the same number of clients is refused, and no other is
lost.
"""

import contextlib
import os
import socket

from support.client import Client
from support.held import APPLICATIONS, GATE_BYTES, get
from support.server import Server
from support.waiting import wait_until

WORKERS = 4
LISTEN = 128
SETTINGS = f"""\
{APPLICATIONS["wsgi"]}
env = HELD_DIRECTORY={{directory}}
master = true
processes = {WORKERS}
listen = {LISTEN}"""


def connect_at_once(path, count):
    """Connects like a reverse proxy, without waiting for room. Returns the connections, and the number of refused ones."""
    made, refused = [], 0
    for _ in range(count):
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        try:
            one.connect(path)
            made.append(one)
        except BlockingIOError:
            one.close()
            refused += 1
    return made, refused


def start(server):
    """Starts it and waits until each worker could serve."""
    server.launch()
    said = {"uwsgi": r"spawned uWSGI worker 4", "bolide": r"bolide: ready: "}[server.directory.name]
    server.wait_for_log(said)


def burst(server):
    """Returns the number of refused clients when all workers are inside calls and four times the queue's length of clients
    connect.
    """
    os.mkfifo(server.directory / "gate")
    gate = os.open(server.directory / "gate", os.O_RDWR | os.O_CLOEXEC)
    start(server)
    path = str(server.directory / "http.sock")
    record = server.directory / "record"
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, gate)
        busy = [stack.enter_context(Client(path)) for _ in range(WORKERS)]
        for number, client in enumerate(busy):
            client.send(get(f"/held/gate?busy-{number}", "Connection: close\r\n"))
            wait_until(lambda wanted=number + 1: record.read_bytes().count(b'"begin"') == wanted, "the call has begun")
        made, refused = connect_at_once(path, LISTEN * 4)
        for number, one in enumerate(made):
            stack.callback(one.close)
            one.sendall(get(f"/quick?{number}", "Connection: close\r\n"))
        if server.directory.name == "bolide":
            # uWSGI logs this for TCP only.
            server.wait_for_log(rf'listen queue of socket ".*http.sock" full \(\d+/{LISTEN}\)')
        os.write(gate, bytes(GATE_BYTES))
        for client in busy:
            assert b"busy-" in client.read_to_end()
        answered = 0
        for number, one in enumerate(made):
            one.setblocking(True)
            with one.makefile("rb") as answer:
                answered += answer.read().endswith(b"\r\n\r\n%d" % number)
    assert answered == len(made)
    return refused


def test_a_burst_of_four_listen_queues_loses_no_more_than_with_uwsgi_and_is_said_in_the_log(uwsgi, bolide, tmp_path):
    refused = {}
    for name, command in (("uwsgi", uwsgi), ("bolide", bolide)):
        server = Server(tmp_path / name, SETTINGS, ("http-socket = {directory}/http.sock",), command=[command])
        server.expects_alarms = True
        try:
            refused[name] = burst(server)
        finally:
            server.finish()
    assert 0 < refused["bolide"] <= refused["uwsgi"]
