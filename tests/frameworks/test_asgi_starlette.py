"""Features of Starlette, as they are used: lifespan state, background work, abandoned streams, files, middleware and WebSockets
in both directions.
"""

import asyncio
import hashlib
import os
import signal

import aiohttp
import httpx
import pytest
from support.client import Closed
from support.waiting import wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

TIMEOUT_SECONDS = 60
FILE = os.urandom(3_000_000)


@pytest.fixture(scope="module")
def site(serve_module, tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    (files / "large.bin").write_bytes(FILE)
    (files / "empty.bin").write_bytes(b"")
    (files / "page.html").write_text("<p>caf\xe9", encoding="utf-8")
    return serve_module("pythonpath = {apps}\nasgi = starlette_asgi:app", environment={"SITE_FILES": str(files)})


@pytest.fixture
def client(site):
    with httpx.Client(base_url=site.url, verify=False, trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        yield client


def notes(client):
    return client.get("/notes").json()


def test_starlettes_lifespan_state_reaches_requests(site, client):
    first, second = client.get("/state").json(), client.get("/state").json()
    assert first["opened"] == second["opened"] == "yes"
    # Objects in the state are shared; the state itself is a copy for each request.
    assert second["visits"] == first["visits"] + 1
    assert first["scope"] == second["scope"]
    assert site.log.count("the site opens") == 1


def test_starlettes_lifespan_ends_with_the_worker(serve):
    server = serve("pythonpath = {apps}\nasgi = starlette_asgi:app\nprocesses = 2")
    assert server.get("/hello/ann").text == "hello ann "
    assert server.stop() == 0
    assert server.log.count("the site opens") == server.log.count("the site closes") == 2


def test_a_task_of_starlette_knows_its_loop_and_its_library(client):
    assert client.get("/task").json() == {
        "library": ["asyncio", True],
        "cancelled": True,
        "thread": "asyncio",
        "same_task": True,
    }


def test_starlettes_methods_are_its_endpoints(client):
    assert client.get("/method").text == "get"
    answer = client.delete("/method")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers
    assert "transfer-encoding" not in answer.headers
    assert client.post("/method").status_code == 405


def test_starlettes_background_work_runs_after_its_response(client):
    # The response is complete while the background work still waits for the gate.
    assert client.get("/background").text == "it goes on"
    assert notes(client) == []
    client.get("/open")
    wait_until(lambda: notes(client) == ["a coroutine", "a function in a thread"], lambda: notes(client))


def test_starlettes_background_work_is_finished_before_the_worker_ends(serve):
    server = serve("pythonpath = {apps}\nasgi = starlette_asgi:app")
    assert server.get("/background-at-the-end").text == "it goes on"
    assert server.stop() == 0
    assert server.log.index("the work is done") < server.log.index("the site closes")


@pytest.mark.parametrize("path", ["/endless", "/outer/endless"])
def test_starlettes_stream_ends_when_its_client_leaves(client, path):
    with client.stream("GET", path) as answer:
        assert next(answer.iter_raw(1000)) != b""
    wait_until(lambda: notes(client) == ["the stream was ended"], lambda: notes(client))


def test_starlette_sees_that_its_client_has_left(site, client):
    with site.connect() as leaving:
        leaving.send(b"GET /patient HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: notes(client) == ["waiting"], lambda: notes(client))
    wait_until(lambda: notes(client) == ["waiting", "the client has disconnected"], lambda: notes(client))


def test_starlette_sends_files_with_their_head_and_their_parts(client):
    answer = client.get("/file/large.bin")
    assert hashlib.sha256(answer.content).digest() == hashlib.sha256(FILE).digest()
    assert answer.headers["content-length"] == str(len(FILE))
    assert 'filename="named.bin"' in answer.headers["content-disposition"]
    assert client.head("/file/large.bin").headers["content-length"] == str(len(FILE))
    assert client.get("/file/empty.bin").content == b""


def test_starlettes_static_files_are_served(client):
    for _ in range(2):
        answer = client.get("/files/large.bin")
        assert answer.content == FILE
    assert client.get("/files/page.html").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/files/large.bin", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert client.head("/files/large.bin").headers["content-length"] == str(len(FILE))
    assert client.get("/files/missing.bin").status_code == 404
    assert client.get("/files/../starlette_asgi.py").status_code == 404


def test_starlettes_static_files_have_ranges(client):
    answer = client.get("/files/large.bin", headers={"Range": "bytes=1000-1999"})
    if answer.status_code == 206:
        assert answer.content == FILE[1000:2000]
        assert answer.headers["content-range"] == f"bytes 1000-1999/{len(FILE)}"
    else:
        # Starlette before 0.39 does not support ranges.
        assert answer.content == FILE


def test_a_file_of_starlette_that_is_left_half_way_leaves_the_worker_serving(site, client):
    with site.connect(receive_bytes=4096) as leaving:
        leaving.send(b"GET /files/large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        leaving.read_head()
        leaving.read_exactly(10_000)
        leaving.reset()
    assert client.get("/files/large.bin").content == FILE


def test_starlettes_middleware_rewraps_and_compresses_a_stream(client):
    answer = client.get("/outer/stream")
    assert answer.text == "".join(f"{number}\n" for number in range(1000))
    assert (answer.headers["x-inner"], answer.headers["x-outer"]) == ("yes", "yes")
    assert answer.headers["content-encoding"] == "gzip"


def test_an_error_of_starlette_in_its_stream_cuts_the_response_off(site):
    with site.connect() as client:
        client.send(b"GET /breaking HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises(Closed):
            client.read_response()


# WebSockets.


def test_starlettes_sockets_choose_subprotocols_and_give_headers(site):
    with connect(f"ws://127.0.0.1:{site.port}/echo", subprotocols=["one", "two"]) as line:
        assert line.subprotocol == "two"
        assert line.response.headers["x-greeting"] == "hello"
        line.send("kept")
        assert line.recv(TIMEOUT_SECONDS) == "kept"


def test_a_socket_of_starlette_gets_the_close_code_of_its_client(site, client):
    with connect(f"ws://127.0.0.1:{site.port}/echo") as line:
        line.close(4321, "enough")
    wait_until(lambda: "left with 4321" in notes(client), lambda: notes(client))


def test_a_socket_of_starlette_speaks_both_ways_at_once(site, client):
    async def talk():
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{site.url}/chat") as line:

            async def say():
                for number in range(500):
                    await line.send_str(f"text {number}")

            saying = asyncio.create_task(say())
            heard = [await line.receive_json(timeout=TIMEOUT_SECONDS) for _ in range(500)]
            await saying
            return heard

    assert asyncio.run(talk()) == [{"number": number + 1, "text": f"text {number}"} for number in range(500)]
    wait_until(lambda: "chat of 500" in notes(client), lambda: notes(client))


def test_a_socket_of_starlette_is_refused_with_a_response(site):
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://127.0.0.1:{site.port}/refused").__enter__()
    response = refusal.value.response
    assert (response.status_code, response.headers["x-why"]) == (401, "no ticket")


@pytest.mark.parametrize("path", ["/closed", "/nowhere"])
def test_a_socket_that_starlette_closes_at_once_is_a_403(site, path):
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://127.0.0.1:{site.port}{path}").__enter__()
    assert refusal.value.response.status_code == 403


def test_a_page_of_starlette_is_no_socket_and_the_reverse(site, client):
    assert client.get("/echo").status_code == 404
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://127.0.0.1:{site.port}/hello/ann").__enter__()
    assert refusal.value.response.status_code == 403


def test_a_socket_of_starlette_ends_with_the_worker(serve):
    server = serve("pythonpath = {apps}\nasgi = starlette_asgi:app")
    with connect(f"ws://127.0.0.1:{server.port}/echo") as line:
        line.send("kept")
        assert line.recv(TIMEOUT_SECONDS) == "kept"
        server.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            line.recv(TIMEOUT_SECONDS)
        # RFC 6455 section 7.4.1: the server goes down.
        assert line.protocol.close_code == 1001
    assert server.wait_for_exit() == 0
    server.wait_for_text("the site closes")


def test_a_socket_of_starlette_is_closed_with_service_restart_at_a_reload(serve):
    server = serve("pythonpath = {apps}\nasgi = starlette_asgi:app")
    with connect(f"ws://127.0.0.1:{server.port}/echo") as line:
        line.send("kept")
        assert line.recv(TIMEOUT_SECONDS) == "kept"
        server.send_signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed):
            line.recv(TIMEOUT_SECONDS)
        # The IANA registry of WebSocket close codes: the service restarts, reconnect.
        assert line.protocol.close_code == 1012
    with connect(f"ws://127.0.0.1:{server.port}/echo") as line:
        line.send("served")
        assert line.recv(TIMEOUT_SECONDS) == "served"
    server.wait_for(
        lambda: server.log.count("the site opens") == 2 and "the site closes" in server.log, "one site follows another"
    )
