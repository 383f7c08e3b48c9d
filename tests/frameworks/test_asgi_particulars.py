"""Features of FastAPI, Django with Channels, Litestar and Quart, as they are used."""

import asyncio
import json
import signal

import aiohttp
import django
import httpx
import pytest
from support.waiting import wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

TIMEOUT_SECONDS = 60


class Site:
    """A server with a client."""

    def __init__(self, server):
        self.server = server
        self.client = httpx.Client(base_url=server.url, verify=False, trust_env=False, timeout=TIMEOUT_SECONDS)
        self.get = self.client.get
        self.post = self.client.post

    def connect(self, path, **options):
        return connect(f"ws://127.0.0.1:{self.server.port}{path}", **options)

    def notes(self):
        return self.get("/notes").json()

    def ask_many(self, targets, headers=None):
        """Sends all together; returns the texts."""

        async def ask_all():
            async with aiohttp.ClientSession() as session:

                async def ask(number, target):
                    options = {"headers": headers(number)} if headers else {}
                    async with session.get(self.server.url + target, **options) as answer:
                        assert answer.status == 200
                        return await answer.text()

                return await asyncio.gather(*(ask(number, target) for number, target in enumerate(targets)))

        return asyncio.run(ask_all())


def site_of(serve_module, application):
    return Site(serve_module(f"pythonpath = {{apps}}\nasgi = {application}"))


# FastAPI.


@pytest.fixture(scope="module")
def fastapi(serve_module):
    return site_of(serve_module, "fastapi_asgi:app")


def test_fastapi_validates_what_it_is_sent(fastapi):
    answer = fastapi.post("/order", json={"name": "tea", "tags": ["a"]}, headers={"X-Mark": "seen"})
    assert answer.status_code == 201
    assert answer.json() == {"order": {"name": "tea", "count": 1, "tags": ["a"]}, "mark": "seen"}
    assert fastapi.post("/order", json={"name": "tea", "count": 101}).status_code == 409
    refused = fastapi.post("/order", json={"count": "many"})
    assert refused.status_code == 422
    assert [error["loc"] for error in refused.json()["detail"]] == [["body", "name"], ["body", "count"]]


def test_fastapi_describes_itself(fastapi):
    assert "/order" in fastapi.get("/openapi.json").json()["paths"]
    assert fastapi.get("/docs").status_code == 200


def test_fastapis_plain_functions_run_in_threads_and_many_at_once(fastapi):
    assert fastapi.get("/sync").json() == {"thread": False}
    texts = fastapi.ask_many(["/sync"] * 100)
    assert texts == ['{"thread":false}'] * 100


def test_fastapis_dependencies_close_in_their_order(fastapi):
    fastapi.notes()
    assert fastapi.get("/depends").json() == "a session within"
    expected = ["the session opens", "the inner opens", "the view runs", "the inner closes", "the session closes"]
    wait_until(lambda: fastapi_told(fastapi, expected), "all have closed")
    assert fastapi.get("/depends-and-fails").status_code == 500
    expected = ["the session opens", "the session is rolled back", "the session closes"]
    wait_until(lambda: fastapi_told(fastapi, expected), "the session is rolled back")


def fastapi_told(fastapi, expected, told=None):
    """Returns whether exactly these notes came; notes are returned once."""
    collected = fastapi.__dict__.setdefault("collected", [])
    collected += fastapi.notes()
    if collected[: len(expected)] != expected[: len(collected)]:
        raise AssertionError(collected)
    if len(collected) == len(expected):
        collected.clear()
        return True
    return False


def test_fastapis_background_work_runs(fastapi):
    fastapi.notes()
    assert fastapi.get("/background").json() == "told"
    wait_until(lambda: fastapi_told(fastapi, ["the background work ran"]), "the work ran")


@pytest.mark.parametrize("path", ["/visitor", "/visitor-in-thread"])
def test_fastapis_requests_have_contexts_of_their_own(fastapi, path):
    texts = fastapi.ask_many([path] * 100, headers=lambda number: {"X-Visitor": f"visitor {number}"})
    assert texts == [f"visitor {number}" for number in range(100)]
    assert fastapi.get(path).text == "nobody"


def test_a_socket_of_fastapi_has_parameters_and_dependencies(fastapi):
    fastapi.notes()
    with fastapi.connect("/items/tea?q=two") as line:
        for count in range(3):
            line.send(json.dumps({"count": count}))
            told = json.loads(line.recv(TIMEOUT_SECONDS))
            assert told == {"name": "tea", "q": "two", "session": "a session", "order": {"count": count}}
    wait_until(lambda: fastapi_told(fastapi, ["the session opens", "the session closes"]), "the dependency has closed")


def test_a_socket_of_fastapi_is_refused_before_its_handshake(fastapi):
    with pytest.raises(InvalidStatus) as refusal:
        fastapi.connect("/items/tea?q=bad").__enter__()
    assert refusal.value.response.status_code == 403


def test_fastapi_takes_an_upload_that_does_not_fit_into_memory(fastapi):
    size = 20_000_000
    answer = fastapi.post("/upload", files={"file": ("large.bin", b"\x01" * size)}, data={"field": "x"})
    assert answer.json() == {"name": "large.bin", "size": size, "total": size, "field": "x"}


# Django and Channels.


@pytest.fixture(scope="module")
def site(serve_module):
    return site_of(serve_module, "django_asgi")


#: Since 5.0 Django's ASGI handler listens for the client's disconnect; before that there is nothing to test.
needs_django_5 = pytest.mark.skipif(
    django.VERSION < (5, 0), reason="Django before 5.0 does not cancel views whose client has left"
)


def test_djangos_views_run_where_they_should(site):
    # A coroutine runs in the loop; its sync functions run in a thread.
    assert site.get("/threads").json() == {"view_is_main": True, "other_is_main": False, "task": True}


def test_djangos_plain_iterators_are_streamed(site):
    expected = "".join(f"{number}\n" for number in range(1000))
    assert site.get("/blocking-stream").text == expected
    assert site.get("/file").text.startswith('"""A small Django site in one file, as an ASGI')


@needs_django_5
def test_a_view_of_django_is_cancelled_when_its_client_leaves(site):
    with site.server.connect() as leaving:
        leaving.send(b"GET /patient HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: site.notes() == ["waiting"], "the view runs")
    wait_until(lambda: site.notes() == ["waiting", "cancelled"], site.notes)


@needs_django_5
def test_a_stream_of_django_ends_when_its_client_leaves(site):
    with site.client.stream("GET", "/endless") as answer:
        assert next(answer.iter_raw(1000)) != b""
    wait_until(lambda: site.notes() == ["the stream was ended"], site.notes)
    site.server.wait_for_log("GET /endless")
    assert "Traceback" not in site.server.log


def test_a_body_that_django_never_gets_to_its_end_is_forgotten(site):
    with site.server.connect() as leaving:
        leaving.send(b"POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert site.get("/hello/ann").text == "hello ann "


def test_djangos_limits_of_bodies_hold(site):
    answer = site.post("/json", content=b"x" * 3_000_000, headers={"Content-Type": "application/json"})
    # DATA_UPLOAD_MAX_MEMORY_SIZE is 2.5 MB.
    assert answer.status_code in (400, 413)


def test_consumers_of_channels_share_a_room(site):
    with site.connect("/room/red") as ann, site.connect("/room/red") as bob, site.connect("/room/blue") as eve:
        # A connection that is open has entered the room.
        ann.send('{"text": "hello"}')
        assert json.loads(bob.recv(TIMEOUT_SECONDS)) == {"said": {"text": "hello"}}
        assert json.loads(ann.recv(TIMEOUT_SECONDS)) == {"said": {"text": "hello"}}
        ann.close(4100, "bye")
        assert json.loads(bob.recv(TIMEOUT_SECONDS)) == {"left": 4100}
        with pytest.raises(TimeoutError):
            eve.recv(0)


def test_a_plain_consumer_of_channels_runs_in_a_thread(site):
    with site.connect("/blocking-echo") as line:
        line.send("hello")
        assert line.recv(TIMEOUT_SECONDS) == "hello False"


def test_a_consumer_of_channels_that_refuses_is_a_403(site):
    with pytest.raises(InvalidStatus) as refusal:
        site.connect("/forbidden").__enter__()
    assert refusal.value.response.status_code == 403


def test_a_consumer_of_channels_streams_over_http(site):
    assert site.get("/ticker").text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"


# Litestar.


@pytest.fixture(scope="module")
def litestar(serve_module):
    return site_of(serve_module, "litestar_asgi:app")


def test_litestars_lifespan_state_reaches_requests(litestar):
    assert litestar.get("/state").json() == {"opened": "yes"}


def test_litestars_background_work_runs(litestar):
    assert litestar.get("/background").text == "told"
    wait_until(lambda: litestar.notes() == ["the background work ran"], litestar.notes)


def test_litestar_sends_events(litestar):
    answer = litestar.get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [line for line in answer.text.splitlines() if line.startswith("data:")] == ["data: 0", "data: 1", "data: 2"]


def test_a_listener_of_litestar_answers_each_message(litestar):
    with litestar.connect("/listener") as line:
        for count in range(10):
            line.send(json.dumps({"a": count, "b": 1}))
            assert json.loads(line.recv(TIMEOUT_SECONDS)) == {"sum": count + 1}
    # The listener handles the disconnect whenever it comes.
    assert litestar.get("/hello/ann").text == "hello ann "


# Quart.


@pytest.fixture(scope="module")
def quart(serve_module):
    return site_of(serve_module, "quart_asgi:app")


def test_quarts_start_runs_before_it_serves_and_its_plain_functions_in_threads(quart):
    assert quart.get("/state").json() == {"opened": "yes"}
    assert quart.get("/sync").text == "/sync"


def test_quarts_background_work_runs(quart):
    assert quart.get("/background").text == "told"
    wait_until(lambda: "the background work ran" in quart.notes(), quart.notes)


def test_quart_reads_a_body_part_by_part(quart):
    def parts():
        for _ in range(100):
            yield b"x" * 50_000

    assert quart.post("/count", content=parts()).json() == {"length": 5_000_000}


def test_a_socket_of_quart_is_refused_with_its_response(quart):
    with pytest.raises(InvalidStatus) as refusal:
        quart.connect("/refused").__enter__()
    assert refusal.value.response.status_code == 401


def test_both_tasks_of_a_socket_of_quart_end_with_it(quart):
    with quart.connect("/both") as line:
        assert [line.recv(TIMEOUT_SECONDS) for _ in range(20)] == [str(number) for number in range(20)]
        line.send("from the client")
        wait_until(lambda: "from the client" in quart.notes(), quart.notes)
    wait_until(lambda: "both have ended" in quart.notes(), quart.notes)


# All of them.


@pytest.mark.parametrize("application", ["fastapi_asgi:app", "litestar_asgi:app", "quart_asgi:app"])
def test_a_frameworks_lifespan_ends_when_its_worker_has_drained(serve, application):
    server = serve(f"pythonpath = {{apps}}\nasgi = {application}\nlifespan = on")
    with connect(f"ws://127.0.0.1:{server.port}/echo") as line:
        line.send("kept")
        assert line.recv(TIMEOUT_SECONDS) == "kept"
        assert server.get("/hello/ann").text == "hello ann "
        server.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            line.recv(TIMEOUT_SECONDS)
    assert server.wait_for_exit() == 0
    assert server.log.count("the site closes") == 1
    assert "Traceback" not in server.log
