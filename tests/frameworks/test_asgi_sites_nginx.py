"""ASGI frameworks behind a real nginx with the uwsgi protocol: pages, WebSockets, event streams."""

import httpx
import pytest
from support.nginx import Nginx
from support.waiting import wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

TIMEOUT_SECONDS = 60

#: As in docs/asgi.md. nginx forwards all header fields of a request by default, including those of a WebSocket handshake.
FRONT = """
    server {{
        listen 127.0.0.1:{{port}};
        location / {{
            {parameters}
            uwsgi_pass 127.0.0.1:{port};
            uwsgi_buffering off;
            uwsgi_read_timeout 1h;
        }}
    }}
"""

#: nginx's file `uwsgi_params`, whose path differs between systems.
PARAMETERS = """
    QUERY_STRING $query_string; REQUEST_METHOD $request_method; CONTENT_TYPE $content_type; CONTENT_LENGTH $content_length;
    REQUEST_URI $request_uri; PATH_INFO $document_uri; DOCUMENT_ROOT $document_root; SERVER_PROTOCOL $server_protocol;
    REQUEST_SCHEME $scheme; HTTPS $https if_not_empty; REMOTE_ADDR $remote_addr; REMOTE_PORT $remote_port;
    SERVER_PORT $server_port; SERVER_NAME $server_name
"""


def front_of(server, tmp_path_factory):
    parameters = "".join(f"uwsgi_param {' '.join(parameter.split())};\n" for parameter in PARAMETERS.split(";"))
    return Nginx(tmp_path_factory.mktemp("nginx"), FRONT.format(parameters=parameters, port=server.address("uwsgi")[1]))


@pytest.fixture(scope="module")
def site(serve_module):
    return serve_module("pythonpath = {apps}\nasgi = starlette_asgi:app", listen=("socket = 127.0.0.1:0",))


@pytest.fixture(scope="module")
def front(site, tmp_path_factory):
    front = front_of(site, tmp_path_factory)
    yield front
    front.finish()


@pytest.fixture(scope="module")
def events(serve_module, tmp_path_factory):
    front = front_of(
        serve_module("pythonpath = {apps}\nasgi = events_asgi:app", listen=("socket = 127.0.0.1:0",)), tmp_path_factory
    )
    yield front
    front.finish()


def client_of(front):
    return httpx.Client(base_url=f"http://127.0.0.1:{front.port}", verify=False, trust_env=False, timeout=TIMEOUT_SECONDS)


def test_behind_uwsgi_pass_pages_and_bodies_come_whole(front):
    with client_of(front) as client:
        assert client.get("/hello/caf\xe9?q=1").text == "hello caf\xe9 1"
        assert client.post("/json", json=["x" * 300_000]).json()["received"] == ["x" * 300_000]
        assert client.get("/stream").text == "".join(f"{number}\n" for number in range(1000))
        assert client.post("/count", content=b"x" * 900_000).json()["length"] == 900_000
        assert client.get("/where").text == f"http://127.0.0.1:{front.port}/where"


def test_behind_uwsgi_pass_a_websocket_speaks_both_ways(front):
    with connect(f"ws://127.0.0.1:{front.port}/echo", subprotocols=["chat"]) as line:
        assert line.subprotocol == "chat"
        for message in ("caf\xe9", b"\x00\xff" * 50_000, "x" * 100_000):
            line.send(message)
            assert line.recv(TIMEOUT_SECONDS) == message
        line.send("leave")
        with pytest.raises(ConnectionClosed):
            line.recv(TIMEOUT_SECONDS)
        assert (line.protocol.close_code, line.protocol.close_reason) == (4001, "as you asked")


def test_behind_uwsgi_pass_a_websocket_is_refused_with_its_response(front):
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"ws://127.0.0.1:{front.port}/refused").__enter__()
    assert refusal.value.response.status_code == 401


def test_behind_uwsgi_pass_the_application_notices_a_websocket_disconnect(front):
    with client_of(front) as client:
        client.get("/notes")
        with connect(f"ws://127.0.0.1:{front.port}/echo") as line:
            line.close(4321, "goodbye")
        wait_until(lambda: "left with 4321" in client.get("/notes").json(), "the application knows")


def test_behind_uwsgi_pass_events_arrive_one_by_one(events):
    with client_of(events) as client, client.stream("GET", "/events") as stream:
        wait_until(lambda: client.get("/listening").json() == 1, "it listens")
        lines = stream.iter_lines()
        for text in ("first", "second"):
            assert client.post("/post", content=text).json() == 1
            assert next(line for line in lines if line.startswith("data:")) == f"data: {text}"
    with client_of(events) as client:
        wait_until(lambda: client.get("/listening").json() == 0, "nobody listens")
