"""A client that leaves before its answer is not a failure of the application: no status of one, no traceback, and nothing that a
monitor would count as an error. An error of the application's own stays one."""

import pytest
from support.http2 import Http2
from support.metrics import metrics_address, value_of
from support.waiting import wait_until
from support.websocket import WebSocket

ASGI = """
class ClientDisconnect(Exception):
    "Starlette's."

async def application(scope, receive, send):
    path = scope["path"]
    if path == "/mistake-before":
        raise ValueError("a mistake")
    while (message := await receive())["type"] != "http.disconnect":
        print("a part" if message["body"] else "nothing", flush=True)
    if path == "/begins":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    if path == "/mistake-after":
        raise ValueError("a mistake")
    if path != "/returns":
        raise ClientDisconnect()
"""
WSGI = """
import uwsgi
def application(environ, start_response):
    if environ["PATH_INFO"] == "/websocket":
        uwsgi.websocket_handshake()
        while True:
            uwsgi.websocket_send(uwsgi.websocket_recv())
    environ["wsgi.input"].read()
    write = start_response("200 OK", [])
    if environ["PATH_INFO"] == "/mistake":
        raise OSError("a mistake")
    while True:
        write(b"x" * 100_000)
"""
WORKERS = {"one": "threads = 1", "threads": "threads = 2", "gevent": "gevent = 10\ngevent-monkey-patch = true"}


@pytest.fixture
def shop(serve):
    def shop(text, options):
        server = serve.prepare(f"pythonpath = {{directory}}\nmaster = true\nmetrics = 127.0.0.1:0\nhttp2 = h2c\n{options}")
        (server.directory / "shop.py").write_text(text)
        return server.start()

    return shop


def status_of(server, line):
    return server.wait_for_log(rf"{line} => generated \d+ bytes .* \(HTTP/[\d.]+ (\d+)\)")[1]


def assert_no_failure(server):
    address = metrics_address(server)
    assert value_of(address, "bolide_requests_total", status="5xx") == 0
    assert value_of(address, "bolide_exceptions_total") == 0
    assert "Traceback" not in server.whole_log()


def begin_upload(server, version, path):
    """Begins an upload; returns a call that leaves it."""
    client = server.connect()
    if version == "http2":
        connection = Http2(client)
        connection.read_settings()
        upload = connection.begin("POST", path, [("content-length", "100")], ends=False)
        connection.send_data(upload, b"begun")
        return {"reset": lambda: connection.reset(upload), "close": client.close, "half": client.close}
    client.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbegun".encode())
    return {"reset": client.reset, "close": client.close, "half": client.end_sending}


@pytest.mark.parametrize("way", ["close", "reset", "half"])
@pytest.mark.parametrize("path", ["/returns", "/raises", "/begins"])
@pytest.mark.parametrize("version", ["http1", "http2"])
def test_an_asgi_application_whose_client_leaves_its_upload_has_not_failed(version, path, way, shop):
    server = shop(ASGI, "asgi = shop:application\nlifespan = off")
    leave = begin_upload(server, version, path)[way]
    server.wait_for_log("^a part$")
    leave()
    status = status_of(server, f"POST {path}")
    # A head that has begun is sent if another event comes before the application ends.
    assert status == "0" or (path, status) == ("/begins", "200")
    counted = "none" if status == "0" else "2xx"
    wait_until(lambda: value_of(metrics_address(server), "bolide_requests_total", status=counted) == 1, "it is counted")
    assert_no_failure(server)


@pytest.mark.parametrize("version", ["http1", "http2"])
@pytest.mark.parametrize("path", ["/mistake-before", "/mistake-after"])
def test_an_error_of_the_application_is_one_although_its_client_has_left(path, version, shop):
    server = shop(ASGI, "asgi = shop:application\nlifespan = off")
    leave = begin_upload(server, version, path)["close"]
    if path == "/mistake-after":
        server.wait_for_log("^a part$")
    else:
        server.wait_for_log("^worker 1: ValueError: a mistake$")
    leave()
    server.wait_for_log("^worker 1: ValueError: a mistake$")
    if (path, version) != ("/mistake-after", "http2"):
        assert status_of(server, f"POST {path}") == "500"
    wait_until(lambda: value_of(metrics_address(server), "bolide_exceptions_total") == 1, "it is counted")


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("worker", WORKERS)
def test_a_wsgi_application_that_writes_to_a_client_that_has_left_has_not_failed(worker, way, shop):
    server = shop(WSGI, f"module = shop\n{WORKERS[worker]}")
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /writes HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.read_head().status == 200
    getattr(client, way)()
    assert status_of(server, "GET /writes") == "200"
    assert_no_failure(server)


@pytest.mark.parametrize("worker", WORKERS)
def test_an_oserror_of_a_wsgi_application_is_an_error(worker, shop):
    server = shop(WSGI, f"module = shop\n{WORKERS[worker]}")
    assert server.get("/mistake").status == 500
    server.wait_for_log("^worker 1: OSError: a mistake$")


@pytest.mark.parametrize("worker", WORKERS)
def test_a_wsgi_application_whose_upload_does_not_arrive_is_not_called(worker, shop):
    server = shop(WSGI, f"module = shop\n{WORKERS[worker]}")
    begin_upload(server, "http1", "/writes")["close"]()
    client = server.connect()
    client.send(b"GET /writes HTTP/1.1\r\nHost: a\r\n\r\n")
    client.read_head()
    client.close()
    status_of(server, "GET /writes")
    assert "POST /writes => " not in server.whole_log()
    assert "Traceback" not in server.whole_log()


@pytest.mark.parametrize("way", ["close", "reset"])
@pytest.mark.parametrize("worker", WORKERS)
def test_a_wsgi_application_whose_websocket_is_left_has_not_failed(worker, way, shop):
    server = shop(WSGI, f"module = shop\n{WORKERS[worker]}")
    socket = WebSocket(server.connect(), "/websocket").open()
    socket.send_text("hello")
    assert socket.read().payload == b"hello"
    getattr(socket.client, way)()
    assert status_of(server, "GET /websocket") == "101"
    assert_no_failure(server)
