"""What a request in flight waits for, as the events of the page report it: its body, the application, or its client."""

import json
import re
import socket

import pytest
from support.metrics import metrics_address
from support.statistics import connect
from support.waiting import wait_until

WSGI = """
def application(environ, start_response):
    if environ["PATH_INFO"] == "/body":
        environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return (b"x" * 65536 for part in range(2000))
"""

ASGI = """
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in range(2000):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body"})
"""


@pytest.mark.parametrize(
    ("text", "options"),
    [(WSGI, ("--threads", "2")), (ASGI, ("--interface", "asgi3")), (WSGI, ("--gevent", "10"))],
    ids=["wsgi", "asgi", "gevent"],
)
def test_a_request_in_flight_is_shown_with_what_it_waits_for(text, options, start, call, tmp_path):
    if "--gevent" in options:
        pytest.importorskip("gevent")
    (tmp_path / "shop.py").write_text(text)
    instance = start("--pythonpath", tmp_path, "--metrics", "127.0.0.1:0", *options, module="shop")
    metrics = metrics_address(instance)

    def phases():
        with connect(metrics) as stream, stream.makefile("r") as lines:
            stream.sendall(b"GET /-/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            event = next(json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        return {one["request"]: one["phase"] for worker in event["workers"] for one in worker["in_flight"]}

    with socket.create_connection(instance.address()) as sends, socket.create_connection(instance.address()) as reads:
        sends.sendall(b"PUT /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n12")
        reads.sendall(b"GET /sent HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: phases() == {"PUT /body": "body", "GET /sent": "sending"}, "both phases")
        # `bolide top` says the same.
        said = call("top", "--once", instance.pid)[1]
        assert re.search(r"^worker 1: PUT /body \(for .*, body\b.*\)$", said, re.M), said
        assert re.search(r"^worker 1: GET /sent \(for .*, sending\b.*\)$", said, re.M), said
        sends.sendall(b"34")
        wait_until(lambda: phases() == {"PUT /body": "sending", "GET /sent": "sending"}, "a body that is complete")
    wait_until(lambda: phases() == {}, "the end of both")
