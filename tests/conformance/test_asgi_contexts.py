"""Context variables belong to their request: no other request sees them, whatever sends and whenever."""

import pytest
from support.websocket import WebSocket

#: Longer than one iteration of the event loop.
REQUESTS = 20


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request, serve_module):
    return serve_module(f"pythonpath = {{apps}}\nasgi = asgi_contexts:app\nlifespan = off\nloop = {request.param}")


def said(client, path, requests=REQUESTS, head="GET /{path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n", more="", body=""):
    """Returns the bodies of pipelined requests: each begins where the previous one ends."""
    request = head.format(path=path, more=more) + body
    client.send(request.encode() * requests)
    return {client.read_response().text for _ in range(requests)}


@pytest.mark.parametrize("way", ["at_once", "after_waiting", "by_another_task", "from_a_thread", "after_its_response"])
def test_a_request_finds_no_context_variable_of_another(server, way):
    with server.connect() as client:
        assert said(client, way) == {"nobody"}
        # Nor does a request of another kind, on this connection or another.
        assert said(client, "at_once") == {"nobody"}
    assert server.get("/at_once").text == "nobody"


def test_a_request_with_a_body_finds_no_context_variable_of_another(server):
    with server.connect() as client:
        assert said(client, "with_a_body", more="Content-Length: 4\r\n", body="body") == {"nobody"}
        for _ in range(REQUESTS):
            client.send(b"POST /with_a_body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo")
            client.send(b"dy")
            assert client.read_response().text == "nobody"


def test_a_websocket_finds_no_context_variable_of_another(server):
    for _ in range(3):
        with server.connect() as client:
            socket = WebSocket(client, "/socket").open()
            assert socket.read_message() == "nobody"
            socket.close()
        assert server.get("/after_waiting").text == "nobody"


@pytest.mark.parametrize("application", ["plain", "wrapped", "plain_object", "awaitable"])
def test_what_a_plain_function_does_before_its_awaitable_belongs_to_its_task(serve, application):
    server = serve(f"pythonpath = {{apps}}\nasgi = asgi_contexts:{application}\nlifespan = off")
    with server.connect() as client:
        assert said(client, "") == {"nobody"}
