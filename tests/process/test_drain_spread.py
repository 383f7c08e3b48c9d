"""`drain-spread`: WebSockets and event streams of a leaving worker close evenly over this time, and never all at one moment."""

import selectors
import signal
import time

import pytest
from support.waiting import TIMEOUT_SECONDS
from support.websocket import WebSocket

#: What streams have at shutdown, in seconds, before the first one is closed.
STREAM_SECONDS = 3
#: The clock that workers read may lag, and so may the order, in seconds.
LAG_SECONDS = 0.05

ASGI = """
async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"data: 1\\n\\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass
"""
WSGI = """
import time, uwsgi
def application(environ, start_response):
    if "HTTP_UPGRADE" in environ:
        uwsgi.websocket_handshake()
        while True:
            uwsgi.websocket_recv()
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    def events():
        while True:
            yield b"data: 1\\n\\n"
            time.sleep(0.02)
    return events()
"""
WAYS = {
    "ASGI": (ASGI, ("--asgi", "shop:application", "--lifespan", "off")),
    "threads": (WSGI, ("--module", "shop", "--threads", "12")),
    "gevent": (WSGI, ("--module", "shop", "--gevent", "50", "--gevent-monkey-patch")),
}


@pytest.fixture
def serve(start, tmp_path):
    def serve(way, *options):
        text, chosen = WAYS[way]
        (tmp_path / "shop.py").write_text(text)
        return start(*chosen, *options, module=None)

    return serve


def open_stream(instance):
    client = instance.connect()
    client.send(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_until(b"data: 1\n\n")
    return client


def ends_of(clients, began):
    """Returns when each of these connections ends, in seconds after `began`, in the order of these times."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.socket.setblocking(False)
            selector.register(client.socket, selectors.EVENT_READ)
        ends = []
        while selector.get_map():
            for key, _ in selector.select(TIMEOUT_SECONDS) or pytest.fail(f"only {len(ends)} of {len(clients)} have ended"):
                data = key.fileobj.recv(65536)
                # A close frame, or the end of a stream.
                if data == b"" or data.startswith(b"\x88") or data.endswith(b"0\r\n\r\n"):
                    selector.unregister(key.fileobj)
                    ends.append(time.monotonic() - began)
        return ends


def assert_spread(ends, after, over):
    """No connection ends before its place in this time. Later ones say something about the machine only."""
    count = len(ends)
    for place, end in enumerate(ends):
        assert end >= after + over * max(place - 1, 0) / count - LAG_SECONDS, (place, count, ends)


@pytest.mark.parametrize("way", ["ASGI", "gevent"])
def test_websockets_close_evenly_at_shutdown(way, serve):
    instance = serve(way, "--drain-spread", "1")
    clients = [WebSocket(instance.connect()).open().client for _ in range(20)]
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    assert_spread(ends_of(clients, began), 0, 1)
    assert instance.wait_for_exit() == 0


def test_websockets_of_several_workers_close_evenly_together(serve):
    instance = serve("ASGI", "--drain-spread", "1", "--processes", "4")
    clients = [WebSocket(instance.connect()).open().client for _ in range(40)]
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    ends = ends_of(clients, began)
    # Each of the workers may have its first one at the beginning.
    assert_spread(ends[4:], 0, 1)
    assert ends[-1] > 0.7
    assert instance.wait_for_exit() == 0


def test_websockets_close_evenly_at_a_reload(serve):
    instance = serve("ASGI", "--drain-spread", "1")
    sockets = [WebSocket(instance.connect()).open() for _ in range(20)]
    began = time.monotonic()
    instance.send_signal(signal.SIGHUP)
    assert_spread(ends_of([one.client for one in sockets], began), 0, 1)


@pytest.mark.parametrize("way", WAYS)
def test_event_streams_close_evenly_at_shutdown(way, serve):
    # The time between two ends is shorter if a process does not run around the first one, so it has to be long.
    instance = serve(way, "--drain-spread", "1" if way == "ASGI" else "5")
    clients = [open_stream(instance) for _ in range(10)]
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    ends = ends_of(clients, began)
    if way != "ASGI":
        # A call of the application knows its own place only.
        assert ends[0] >= STREAM_SECONDS - LAG_SECONDS
        assert ends[-1] - ends[0] > 0.5
    else:
        assert_spread(ends, STREAM_SECONDS, 1)
    assert instance.wait_for_exit() == 0
    assert "Traceback" not in instance.log


def test_websockets_that_threads_receive_from_close_at_different_times(serve):
    instance = serve("threads", "--drain-spread", "6")
    clients = [WebSocket(instance.connect()).open().client for _ in range(10)]
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    ends = ends_of(clients, began)
    assert ends[-1] - ends[0] > 1
    assert instance.wait_for_exit() == 0


def test_the_spread_is_not_longer_than_the_mercy(serve):
    instance = serve("ASGI", "--drain-spread", "600", "--reload-mercy", "12")
    sockets = [WebSocket(instance.connect()).open() for _ in range(4)]
    streams = [open_stream(instance) for _ in range(4)]
    instance.send_signal(signal.SIGTERM)
    for one in sockets:
        assert one.answer_close()[0] == 1001
        one.client.close()
    for client in streams:
        client.read_to_end()
        client.close()
    assert instance.wait_for_exit() == 0
    assert "killing it" not in instance.log, instance.log
