"""An upgrade under all kinds of load: nothing is lost, and requests end with the master with which they have begun."""

import os
import signal
import threading

import pytest
from support.waiting import TIMEOUT_SECONDS, wait_until
from support.websocket import WebSocket
from support_load import Load
from support_upgrade import SERVES, upgrade

WSGI = """\
import os, time

def application(environ, start_response):
    path, gate = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path == "/long":
        start_response("200 OK", [])
        def parts():
            yield b"begun by " + VERSION
            open(gate + ".waiting", "w").close()
            while not os.path.exists(gate):
                time.sleep(0.01)
            yield b", ended by " + VERSION
        return parts()
    body = VERSION
    if path == "/upload":
        body += b" has %d bytes" % len(environ["wsgi.input"].read())
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
ASGI = """\
import asyncio, os

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    if scope["type"] == "websocket":
        return await talk(receive, send)
    path, gate = scope["path"], scope["query_string"].decode()
    async def part(data, more=True):
        await send({"type": "http.response.body", "body": data, "more_body": more})
    count = 0
    if path == "/upload":
        open(gate + ".waiting", "w").close()
        while True:
            message = await receive()
            count += len(message["body"])
            if not message["more_body"]:
                break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if path == "/long":
        await part(b"begun by " + VERSION)
        open(gate + ".waiting", "w").close()
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return await part(b", ended by " + VERSION, False)
    await part(VERSION + (b" has %d bytes" % count if path == "/upload" else b""), False)

async def talk(receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": VERSION.decode() + " heard " + message["text"]})
"""
#: Size of an upload, and of the parts that arrive one by one: far above `body-min-rate`, and enough for minutes.
UPLOAD_BYTES, PART_BYTES = 3_000_000, 1_000
PAUSE_SECONDS = 0.1


class Upload:
    """An upload that keeps arriving, however long the upgrades take: a drain gives up a silent one after seconds."""

    def __init__(self, client, target):
        self.client = client
        self._sent = 0
        self._over = threading.Event()
        length = f"Expect: 100-continue\r\nContent-Length: {UPLOAD_BYTES}"
        client.send(f"POST {target} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        # Until then any master may have it.
        assert client.read_head().status == 100
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self):
        while not self._over.is_set():
            self._send(PART_BYTES)
            self._over.wait(PAUSE_SECONDS)

    def _send(self, count):
        self.client.send(b"x" * count)
        self._sent += count

    def finish(self):
        """Sends the rest and returns the answer."""
        self._over.set()
        self._thread.join(TIMEOUT_SECONDS)
        self._send(UPLOAD_BYTES - self._sent)
        return self.client.read_response()


def write(tmp_path, interface, version):
    code = WSGI if interface == "wsgi" else ASGI
    (tmp_path / "shop.py").write_text(f"{code}\nVERSION = {version.encode()!r}\n")


@pytest.fixture
def loaded(upgradable, tmp_path):
    """Starts an instance of this interface."""

    def loaded(interface, *options):
        write(tmp_path, interface, "old")
        more = ["--interface", "asgi"] if interface == "asgi" else ["--threads", "4"]
        return upgradable("--processes", "2", *more, *options)

    return loaded


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
def test_kept_and_fresh_connections_an_upload_and_a_long_answer_lose_nothing(interface, loaded, tmp_path):
    instance = loaded(interface)
    gate = tmp_path / "gate"
    long = instance.connect()
    with Load(instance.address(), kept_alive=4, fresh=3) as load:
        upload = Upload(instance.connect(), f"/upload?{tmp_path / 'upload'}")
        long.send(f"GET /long?{gate} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_until(gate.with_suffix(".waiting").exists, "the long answer to begin")
        if interface == "asgi":
            wait_until((tmp_path / "upload.waiting").exists, "the application to have the upload")
        for version in ("second", "the third one"):
            write(tmp_path, interface, version)
            upgrade(tmp_path)
            load.wait(lambda version=version: load.bodies[version] > 0, "the new version")
            load.wait_for_more()
        assert upload.finish().text == f"old has {UPLOAD_BYTES} bytes"
        gate.touch()
        assert long.read_response().text == "begun by old, ended by old"
    assert load.losses == []
    assert set(load.bodies) == {"old", "second", "the third one"}
    assert instance.process.wait(TIMEOUT_SECONDS) == 0


def test_a_websocket_is_closed_with_service_restart_and_its_client_reaches_the_new_master(loaded, tmp_path):
    instance = loaded("asgi")
    talk = WebSocket(instance.connect()).open()
    talk.send_text("one")
    assert talk.read_message() == "old heard one"
    write(tmp_path, "asgi", "young")
    upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    assert talk.answer_close()[0] == 1012
    fresh = WebSocket(instance.connect()).open()
    fresh.send_text("two")
    assert fresh.read_message() == "young heard two"
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    assert fresh.close()[0] == 1000


def test_a_websocket_that_does_not_end_is_closed_within_the_mercy_of_its_master(loaded, tmp_path):
    instance = loaded("asgi", "--reload-mercy", "2")
    talk = WebSocket(instance.connect()).open()
    write(tmp_path, "asgi", "young")
    new = upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    # Going away (RFC 6455 section 7.4.1), or restarting: its client reconnects.
    assert talk.answer_close()[0] in (1001, 1012)
    assert instance.process.wait(TIMEOUT_SECONDS) == 0
    os.kill(new, signal.SIGTERM)
    wait_until(lambda: not instance.processes(), "the end of the new master")
