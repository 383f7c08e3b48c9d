"""WebSockets at the end of their worker: one whose client does not answer the close, and one that opens during the end."""

import re
import signal

import pytest
from support.waiting import assert_once_below
from support.websocket import WebSocket

ASGI = """
import asyncio, os
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await receive()
    if scope["path"] == "/late":
        print("asked", flush=True)
        while not os.path.exists({gate!r}):
            await asyncio.sleep(0.01)
    await send({{"type": "websocket.accept"}})
    while (message := await receive())["type"] != "websocket.disconnect":
        pass
    print("ended with", message["code"], flush=True)
"""
WSGI = """
import uwsgi
def application(environ, start_response):
    uwsgi.websocket_handshake()
    try:
        while True:
            uwsgi.websocket_recv()
    finally:
        print("ended", flush=True)
"""
WAYS = {
    "asgi": (ASGI, ("--asgi", "shop:application", "--lifespan", "off")),
    "gevent": (WSGI, ("--module", "shop", "--gevent", "10", "--gevent-monkey-patch")),
    "threads": (WSGI, ("--module", "shop", "--threads", "2")),
}

#: More than shutdown may wait for such a client, and less than the time that it has at a reload (5 s, and 2 s to read the rest).
MAX_MS = 5000


@pytest.fixture
def serve(start, tmp_path):
    def serve(way):
        text, options = WAYS[way]
        (tmp_path / "shop.py").write_text(text.format(gate=str(tmp_path / "gate")) if text is ASGI else text)
        return start(*options, module=None)

    return serve


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_does_not_wait_long_for_a_client_that_does_not_answer_the_close(way, serve):
    def milliseconds_of_a_stop():
        instance = serve(way)
        mute = WebSocket(instance.connect()).open()
        instance.send_signal(signal.SIGTERM)
        assert mute.read_close() == (1001, "the server is stopping")
        assert instance.wait_for_exit() == 0
        assert "ended" in instance.log
        assert "Traceback" not in instance.log
        number, unit = re.search(r"^bolide: stopped after ([\d.]+) (ms|s)$", instance.log, re.MULTILINE).groups()
        return float(number) * {"ms": 1, "s": 1000}[unit]

    assert_once_below(milliseconds_of_a_stop, MAX_MS)


@pytest.mark.parametrize("how", ["stop", "reload"])
def test_a_websocket_that_opens_when_its_worker_ends_is_told_why(how, serve, tmp_path):
    instance = serve("asgi")
    late = WebSocket(instance.connect(), "/late")
    instance.wait_for_log("^asked$")
    if how == "stop":
        instance.send_signal(signal.SIGTERM)
        instance.wait_for_log("^bolide: stop: waiting for 1 request: GET /late ")
    else:
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log("^bolide: ready: 1 worker of generation 2 ")
    (tmp_path / "gate").touch()
    code = {"stop": 1001, "reload": 1012}[how]
    assert late.open().answer_close()[0] == code
    instance.wait_for_log(f"^ended with {code}$")
