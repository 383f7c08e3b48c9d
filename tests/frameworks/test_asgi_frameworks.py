"""Starlette, FastAPI, Django, Litestar and Quart as ASGI applications, with httpx, aiohttp and websockets as clients: the common
features of sites. Features of a single framework are in test_asgi_particulars.py.
"""

import asyncio
import json
import socket

import aiohttp
import httpx
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK
from websockets.sync.client import connect

FRAMEWORKS = {
    "starlette": "starlette_asgi:app",
    "fastapi": "fastapi_asgi:app",
    "django": "django_asgi",
    "litestar": "litestar_asgi:app",
    "quart": "quart_asgi:app",
}
CONTENT = bytes(range(256)) * 2000
TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module", params=FRAMEWORKS)
def site(request, serve_module):
    server = serve_module(f"pythonpath = {{apps}}\nasgi = {FRAMEWORKS[request.param]}")
    server.framework = request.param
    return server


class Answer:
    """The response as the tests see it, for all clients."""

    def __init__(self, status, body, headers, url):
        self.status_code = status
        self.content = body
        self.headers = headers
        self.url = str(url)

    @property
    def text(self):
        return self.content.decode()

    def json(self):
        return json.loads(self.content)


class Httpx:
    """httpx, which keeps connections and cookies."""

    def __init__(self):
        self.session = httpx.Client(verify=False, trust_env=False, follow_redirects=True, timeout=TIMEOUT_SECONDS)

    def ask(self, method, url, **options):
        if isinstance(options.get("data"), bytes):
            options["content"] = options.pop("data")
        answer = self.session.request(method, url, **options)
        return Answer(answer.status_code, answer.content, answer.headers, answer.url)

    def upload(self, url, name, content, field):
        return self.ask("POST", url, files={"file": (name, content)}, data={"field": field})

    def send_parts(self, url, parts, headers):
        return self.ask("POST", url, content=iter(parts), headers=headers)

    def read_lines(self, url):
        with self.session.stream("GET", url) as answer:
            return list(answer.iter_lines())

    def close(self):
        self.session.close()


class Aiohttp:
    """aiohttp, the same way."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.session = self.loop.run_until_complete(self.open())

    async def open(self):
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        # aiohttp keeps cookies for an IP address only in an unsafe jar.
        return aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.CookieJar(unsafe=True))

    def ask(self, method, url, **options):
        async def ask():
            async with self.session.request(method, url, allow_redirects=True, **options) as answer:
                return Answer(answer.status, await answer.read(), answer.headers, answer.url)

        return self.loop.run_until_complete(ask())

    def upload(self, url, name, content, field):
        form = aiohttp.FormData()
        form.add_field("file", content, filename=name, content_type="application/octet-stream")
        form.add_field("field", field)
        return self.ask("POST", url, data=form)

    def send_parts(self, url, parts, headers):
        async def generated():
            for part in parts:
                yield part

        return self.ask("POST", url, data=generated(), headers=headers)

    def read_lines(self, url):
        async def read():
            async with self.session.get(url) as answer:
                return [line.decode().rstrip("\n") async for line in answer.content]

        return self.loop.run_until_complete(read())

    def close(self):
        self.loop.run_until_complete(self.session.close())
        self.loop.close()


@pytest.fixture(params=[Httpx, Aiohttp])
def client(request):
    made = request.param()
    yield made
    made.close()


def test_an_asynchronous_framework_serves_pages(site, client):
    for name in ("ann", "caf\xe9 x", "\u20ac"):
        answer = client.ask("GET", f"{site.url}/hello/{name}", params={"q": "a&b=\xfc"})
        assert (answer.status_code, answer.text) == (200, f"hello {name} a&b=\xfc")
        assert answer.headers["server"] == "bolide"
    assert client.ask("GET", f"{site.url}/nowhere").status_code == 404


def test_an_asynchronous_framework_answers_head(site, client):
    for _ in range(3):
        answer = client.ask("HEAD", f"{site.url}/hello/ann")
        # FastAPI and Litestar do not answer HEAD with the GET handler by default.
        assert answer.status_code in (200, 405)
        assert answer.content == b""
    assert client.ask("GET", f"{site.url}/hello/ann").text == "hello ann "


def test_an_asynchronous_framework_reads_json(site, client):
    for value in ({"a": [1, 2, {"b": None}]}, ["\u20ac" * 1000], "x" * 200_000):
        body = json.dumps(value).encode()
        answer = client.ask("POST", f"{site.url}/json", data=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        assert answer.json() == {"received": value, "length": len(body)}


def test_an_asynchronous_framework_reads_json_that_comes_in_chunks(site, client):
    parts = [b'{"a": ', b'"' + b"x" * 70_000, b'"}']
    answer = client.send_parts(f"{site.url}/json", parts, {"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert answer.json() == {"received": {"a": "x" * 70_000}, "length": -1}


def test_an_asynchronous_framework_keeps_cookies(site, client):
    texts = [client.ask("GET", f"{site.url}/cookies").text for _ in range(3)]
    assert texts == ["1 none", "2 yes", "3 yes"]


def test_an_asynchronous_framework_takes_uploads(site, client):
    for content in (b"", b"small", CONTENT):
        answer = client.upload(f"{site.url}/upload", "name.bin", content, "\u20ac")
        assert answer.status_code in (200, 201)
        assert answer.json() == {"name": "name.bin", "size": len(content), "total": sum(content), "field": "\u20ac"}


def test_an_asynchronous_framework_redirects(site, client):
    answer = client.ask("GET", f"{site.url}/redirect")
    assert (answer.text, answer.url) == ("hello redirected ", f"{site.url}/hello/redirected")


def test_an_asynchronous_framework_streams(site, client):
    assert client.read_lines(f"{site.url}/stream") == [str(number) for number in range(1000)]
    assert client.ask("GET", f"{site.url}/hello/ann").text == "hello ann "


def test_an_asynchronous_framework_knows_where_it_is(site, client):
    assert client.ask("GET", f"{site.url}/where?x=y").text == f"{site.url}/where?x=y"
    proxied = client.ask("GET", f"{site.url}/where", headers={"Host": "shop.example", "X-Forwarded-Proto": "https"})
    assert proxied.text == "https://shop.example/where"


def test_an_asynchronous_frameworks_error_is_a_500_and_the_next_request_is_served(site, client):
    assert client.ask("GET", f"{site.url}/error").status_code == 500
    assert client.ask("GET", f"{site.url}/hello/ann").text == "hello ann "
    if site.framework != "django":
        # Django logs with its own configuration, which this site has disabled.
        site.wait_for_log("RuntimeError: as the test asked")


def test_an_asynchronous_framework_serves_many_at_once(site):
    async def ask_all():
        connector = aiohttp.TCPConnector(limit=50)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def ask(number):
                async with session.get(f"{site.url}/hello/{number}") as answer:
                    return await answer.text()

            return await asyncio.gather(*(ask(number) for number in range(400)))

    assert asyncio.run(ask_all()) == [f"hello {number} " for number in range(400)]


# WebSockets.


@pytest.fixture
def socket_url(site):
    return f"ws://127.0.0.1:{site.port}/echo"


def test_an_asynchronous_framework_echoes_messages(socket_url):
    with connect(socket_url, open_timeout=TIMEOUT_SECONDS) as line:
        for message in ("", "caf\xe9 \u20ac", b"\x00\xff" * 10, "x" * 100_000, CONTENT):
            line.send(message)
            assert line.recv(TIMEOUT_SECONDS) == message
        # A fragmented message is the same message.
        line.send(["one ", "two ", "three"])
        assert line.recv(TIMEOUT_SECONDS) == "one two three"
        line.ping().wait(TIMEOUT_SECONDS)


def test_an_asynchronous_framework_echoes_what_was_not_compressed(socket_url):
    with connect(socket_url, compression=None) as line:
        for message in ("plain", CONTENT):
            line.send(message)
            assert line.recv(TIMEOUT_SECONDS) == message


def test_an_asynchronous_framework_closes_with_a_code_and_a_reason(socket_url):
    with connect(socket_url) as line:
        line.send("leave")
        with pytest.raises(ConnectionClosed):
            line.recv(TIMEOUT_SECONDS)
        assert (line.protocol.close_code, line.protocol.close_reason) == (4001, "as you asked")


def test_an_asynchronous_framework_takes_a_client_that_says_goodbye_and_one_that_vanishes(site, socket_url):
    before = len(site.log)
    for _ in range(3):
        with connect(f"{socket_url}?farewell") as polite:
            polite.send("kept")
            assert polite.recv(TIMEOUT_SECONDS) == "kept"
            polite.close(1000, "thanks")
            with pytest.raises(ConnectionClosedOK):
                polite.recv(TIMEOUT_SECONDS)
        with connect(f"{socket_url}?farewell") as vanishing:
            vanishing.send("lost")
            assert vanishing.recv(TIMEOUT_SECONDS) == "lost"
            vanishing.socket.shutdown(socket.SHUT_RDWR)
    # Each is logged when it has ended.
    site.wait_for(lambda: site.log.count("GET /echo?farewell") == 6, "the six are over")
    assert "Traceback" not in site.log_until_now()[before:]


def test_an_asynchronous_framework_speaks_with_the_socket_of_aiohttp(site):
    async def talk():
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{site.url}/echo", compress=15) as line:
            await line.send_str("by aiohttp" * 100)
            text = await line.receive_str(timeout=TIMEOUT_SECONDS)
            await line.send_bytes(b"bytes")
            data = await line.receive_bytes(timeout=TIMEOUT_SECONDS)
            return text, data, await line.close()

    assert asyncio.run(talk()) == ("by aiohttp" * 100, b"bytes", True)


def test_an_asynchronous_framework_keeps_many_sockets(site, socket_url):
    async def talk():
        async with aiohttp.ClientSession() as session:

            async def one(number):
                async with session.ws_connect(socket_url) as line:
                    for turn in range(5):
                        await line.send_str(f"{number} {turn}")
                        assert await line.receive_str(timeout=TIMEOUT_SECONDS) == f"{number} {turn}"

            await asyncio.gather(*(one(number) for number in range(60)))

    asyncio.run(talk())
