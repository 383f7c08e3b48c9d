"""Responses of ASGI applications: framing, streams, keep-alive and pipelining, disconnects, background work."""

import itertools
import json
import os
import re

import pytest
from support import processes
from support.client import Client
from support.waiting import wait_until

MEGABYTE = bytes(range(256)) * 4096

#: A gate of the application opens once, so each test has a separate one.
numbers = itertools.count()

#: Maximum that a worker may buffer when the other side does not read, including the kernel's buffers.
HELD_BYTES = 32 << 20


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request, serve_module):
    return serve_module(f"asgi = {{apps}}/asgi_http.py\nloop = {request.param}")


def assert_fine(client):
    response = client.request(target="/fine")
    assert (response.status, response.body, response.says_close) == (200, b"fine", False)


def told(server, name):
    return json.loads(server.get(f"/told?{name}").body)


def request(target, method="GET", headers="", version="1.1"):
    return f"{method} {target} HTTP/{version}\r\nHost: localhost\r\n{headers}\r\n".encode()


# Framing.


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    ("path", "body", "chunks"),
    [
        ("fine", b"fine", None),
        ("defaults", b"", None),
        ("declared", b"fine", None),
        ("parts", b"one two three", 3),
        ("parts_declared", b"one two three", None),
        ("part_kinds", b"one two three", 3),
    ],
)
def test_a_body_in_one_part_has_a_length_and_one_in_several_is_chunked(server, method, path, body, chunks):
    with server.connect() as client:
        response = client.request(method, f"/{path}")
        assert (response.status, response.reason, response.body) == (200, "OK", body)
        assert (response.chunks and len(response.chunks)) == chunks
        if chunks is None:
            assert response.get("content-length") == str(len(body))
        assert_fine(client)


@pytest.mark.parametrize(
    "path", ["fine", "defaults", "declared", "parts", "parts_declared", "part_kinds", "pathsend", "trailers"]
)
def test_head_has_the_fields_and_no_body(server, path):
    with server.connect() as client:
        response = client.request("HEAD", f"/{path}")
        assert (response.status, response.body) == (200, b"")
        if path in ("fine", "declared"):
            assert response.get("content-length") == "4"
        assert_fine(client)


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("path", ["status", "status_with_body"])
def test_statuses_without_a_body_have_none(server, status, path):
    with server.connect() as client:
        response = client.request(target=f"/{path}?{status}")
        assert (response.status, response.body, response.get("transfer-encoding")) == (status, b"", None)
        assert_fine(client)


@pytest.mark.parametrize(("status", "reason"), [(200, "OK"), (201, "Created"), (404, "Not Found"), (503, "Service Unavailable")])
def test_the_reason_is_that_of_the_status(server, status, reason):
    response = server.get(f"/status?{status}")
    assert (response.status, response.reason) == (status, reason)


def test_an_unknown_status_is_sent(server):
    assert server.get("/status?299").status == 299


def test_to_http_1_0_a_body_without_a_length_ends_with_the_connection(server):
    with server.connect() as client:
        client.send(request("/parts", headers="Connection: keep-alive\r\n", version="1.0"))
        response = client.read_response()
        assert (response.body, response.get("transfer-encoding"), response.says_close) == (b"one two three", None, True)


def test_to_http_1_0_a_body_with_a_length_keeps_the_connection_if_asked(server):
    with server.connect() as client:
        for _ in range(3):
            client.send(request("/fine", headers="Connection: keep-alive\r\n", version="1.0"))
            response = client.read_response()
            assert (response.body, response.get("connection")) == (b"fine", "keep-alive")
        client.send(request("/fine", version="1.0"))
        assert client.read_response().says_close
        assert client.is_closed()


def test_headers_are_sent_in_their_order_with_doubles(server):
    response = server.get("/headers")
    own = [pair for pair in response.headers if pair[0].startswith("x-")]
    assert own == [("x-one", "1"), ("x-two", "2"), ("x-one", "3"), ("x-empty", ""), ("x-latin", "\u00e4")]


def test_headers_may_be_any_iterable_of_pairs(server):
    response = server.get("/headers_as_generator")
    assert (response.get("x-one"), response.get("x-two")) == ("v", "v")


def test_the_framing_is_the_servers_whatever_the_application_says(server):
    with server.connect() as client:
        response = client.request(target="/hop_by_hop")
        assert (response.get("transfer-encoding"), response.get("content-length"), response.body) == (None, "2", b"ok")
        assert response.get("keep-alive") is None
        assert_fine(client)


def test_an_application_may_close_the_connection(server):
    with server.connect() as client:
        assert client.request(target="/close").says_close
        assert client.is_closed()


def test_date_and_server_are_there_once(server):
    response = server.get("/fine")
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", response.get("date"))
    assert response.get("server") == "bolide"
    response = server.get("/own_date_and_server")
    assert (response.get("date"), response.get("server")) == ("Thu, 01 Jan 1970 00:00:00 GMT", "own")


# Streams.


def test_an_empty_part_sends_the_head_at_once(server):
    with server.connect() as client:
        client.send(request("/head_first?head"))
        assert client.read_head().get("transfer-encoding") == "chunked"
        server.get("/open?head")
        assert list(client.read_chunks()) == [b"rest"]


def test_each_part_leaves_before_the_application_goes_on(server):
    with server.connect() as client:
        client.send(request("/step?step"))
        client.read_head()
        chunks = client.read_chunks()
        assert next(chunks) == b"one"
        server.get("/open?step")
        assert list(chunks) == [b"two"]
        assert_fine(client)


def test_two_tasks_may_send_parts_of_one_answer(server):
    with server.connect(receive_bytes=65536) as client:
        response = client.request(target="/two_senders")
        assert len(response.body) == 200 * 50_000
        assert sorted(response.body[place : place + 50_000] for place in range(0, len(response.body), 50_000)) == sorted(
            [b"a" * 50_000] * 100 + [b"b" * 50_000] * 100
        )
        assert_fine(client)


@pytest.mark.parametrize(("path", "megabytes"), [("stream", 100), ("small_parts", 40), ("one_part", 40)])
def test_send_waits_for_a_client_that_does_not_read_and_memory_stays_bounded(server, path, megabytes):
    worker = int(server.get("/pid").body)
    with server.connect(receive_bytes=65536) as client:
        memory = processes.resident_bytes(worker)
        client.send(request(f"/{path}?{megabytes}"))
        response = client.read_head()
        assert server.get("/fine").body == b"fine"
        if path != "one_part":
            # Alternately, up to the kernel's buffers; then it stops, and memory stops growing.
            wait_until(lambda: told(server, "given") == told(server, "given"), "the application to wait")
            assert told(server, "given") < HELD_BYTES
            assert processes.resident_bytes(worker) - memory < HELD_BYTES
        if response.get("transfer-encoding"):
            total = sum(len(chunk) for chunk in client.read_chunks())
        else:
            total = len(client.read_exactly(int(response.get("content-length"))))
        assert total == megabytes << 20
        assert_fine(client)


@pytest.mark.parametrize("path", ["stream", "stream_and_look"])
def test_a_client_that_never_reads_on_is_given_up_after_socket_timeout(serve, path):
    server = serve("asgi = {apps}/asgi_http.py\nsocket-timeout = 1")
    with server.connect(receive_bytes=65536) as client:
        client.send(request(f"/{path}?100&slow"))
        assert client.read_head().status == 200
        server.wait_for_log("^streamed 100&slow$")
        server.wait_for_log(rf"GET /{path}\?100&slow => generated \d+ bytes")
        assert len(client.read_to_end()) < HELD_BYTES
    assert server.get("/fine").body == b"fine"


def test_a_worker_is_idle_while_an_application_waits_after_its_head(server):
    """A worker that asked itself for turns in the meantime would use all of the time."""
    with Client(server.address()) as client:
        response = client.request(target="/head_then_wait")
    assert float(response.body) < 0.2


# Keep-alive and pipelining.


def test_requests_follow_one_another_on_a_kept_alive_connection(server):
    with server.connect() as client:
        for path in ("fine", "parts", "digest", "fine", "parts_declared", "status?204", "fine"):
            assert client.request(target=f"/{path}").status < 300


def test_pipelined_requests_are_answered_in_order(server):
    targets = ["/fine", "/parts", "/status?204", "/status?404", "/parts_declared", "/defaults"] * 20
    with server.connect() as client:
        client.send(b"".join(map(request, targets)))
        for target in targets:
            expected = int(target.split("?")[1]) if "?" in target else 200
            assert client.read_response().status == expected
        assert_fine(client)


def test_a_pipelined_request_waits_for_the_slow_one_before_it(server):
    with server.connect() as client:
        client.send(request("/slow?front") + request("/fine") + request("/slow?back") + request("/pid"))
        server.wait_for_log("^slow front has begun$")
        assert "slow back has begun" not in server.log
        assert server.get("/fine").body == b"fine"
        server.get("/open?front")
        assert client.read_response().body == b"slow front"
        assert client.read_response().body == b"fine"
        server.wait_for_log("^slow back has begun$")
        server.get("/open?back")
        assert client.read_response().body == b"slow back"
        assert client.read_response().body.isdigit()


def test_a_pipelined_request_that_comes_while_the_one_before_is_slow_is_served_next(server):
    with server.connect() as client:
        client.send(request("/slow?first"))
        server.wait_for_log("^slow first has begun$")
        client.send(request("/digest", "POST", "Content-Length: 5\r\n") + b"hel")
        assert server.get("/fine").body == b"fine"
        client.send(b"lo" + request("/fine"))
        server.get("/open?first")
        assert client.read_response().body == b"slow first"
        assert json.loads(client.read_response().body)["bytes"] == 5
        assert client.read_response().body == b"fine"


def test_much_that_is_pipelined_behind_a_slow_request_is_not_taken_in(server):
    worker = int(server.get("/pid").body)
    memory = processes.resident_bytes(worker)
    with server.connect(patience=1) as client:
        client.send(request("/slow?flood"))
        server.wait_for_log("^slow flood has begun$")
        sent = fill(client, request("/fine") * 1000, 200 << 20)
        assert sent < 200 << 20, "TCP has not stopped the client"
        assert processes.resident_bytes(worker) - memory < HELD_BYTES
        client.reset()
    server.get("/open?flood")
    assert server.get("/fine").body == b"fine"


def fill(client, data, most):
    """Sends the same data repeatedly until TCP does not accept more; returns the number of bytes."""
    sent = 0
    while sent < most:
        try:
            sent += client.socket.send(data)
        except OSError:
            break
    return sent


# The client's disconnect.


@pytest.mark.parametrize("way", ["close", "reset"])
def test_http_disconnect_comes_when_the_client_leaves(server, way):
    name = f"leaves-{way}"
    client = server.connect()
    client.send(request(f"/wait_for_end?{name}"))
    server.wait_for_log(f"^waits {name}$")
    getattr(client, way)()
    server.wait_for_log(f"^ended {name}$")
    # Called again, it returns the same.
    assert told(server, name) == ["http.request", "http.disconnect", "http.disconnect"]


@pytest.mark.parametrize("way", ["close", "reset"])
def test_http_disconnect_comes_when_the_client_leaves_within_its_body(server, way):
    client = server.connect()
    before = server.log.count("disconnected while it read")
    client.send(request("/digest", "POST", "Content-Length: 100\r\n") + b"part")
    assert server.get("/fine").body == b"fine"
    getattr(client, way)()
    server.wait_for_log("^disconnected while it read$", before + 1)


@pytest.mark.parametrize("way", ["close", "reset"])
def test_http_disconnect_comes_although_a_pipelined_request_is_waiting(server, way):
    name = f"pipelined-{way}"
    client = server.connect()
    client.send(request(f"/wait_for_end?{name}") + request("/fine"))
    server.wait_for_log(f"^waits {name}$")
    getattr(client, way)()
    server.wait_for_log(f"^ended {name}$")


def test_http_disconnect_comes_when_the_response_is_complete(server):
    assert server.get("/answer_then_read?after").body == b"answered"
    assert wait_until(lambda: told(server, "after"), "the message") == "http.disconnect"


def test_a_receive_that_waits_ends_with_the_response(server):
    assert server.get("/read_beyond?beyond").body == b"answered"
    assert wait_until(lambda: told(server, "beyond"), "the message") == [0, "http.disconnect"]


def test_send_raises_an_oserror_when_the_client_has_gone(server):
    client = server.connect(receive_bytes=65536)
    client.send(request("/send_to_nobody?gone"))
    client.read_head()
    server.wait_for_log("^waits gone$")
    client.reset()
    server.get("/open?gone")
    server.wait_for_log("^ended gone$")
    assert told(server, "gone") == ["ClientDisconnected", "OSError"]
    # Neither side has made a mistake.
    assert "an exception in GET /send_to_nobody" not in server.log_until_now()


def test_send_raises_while_it_waits_for_a_client_that_goes(server):
    client = server.connect(receive_bytes=65536)
    server.get("/open?slow-and-gone")
    client.send(request("/send_to_nobody?slow-and-gone"))
    client.read_head()
    server.wait_for_log("^waits slow-and-gone$")
    client.reset()
    server.wait_for_log("^ended slow-and-gone$")


def test_each_send_after_the_clients_end_raises(server):
    client = server.connect()
    client.send(request("/send_ignoring_the_end?deaf"))
    client.read_head()
    server.wait_for_log("^waits deaf$")
    client.reset()
    server.wait_for_log("^ended deaf$")
    assert told(server, "deaf") == ["the client has disconnected"] * 3


def test_the_clients_end_cancels_nothing(server):
    client = server.connect()
    client.send(request("/not_cancelled?calm"))
    server.wait_for_log("^waits calm$")
    client.reset()
    assert server.get("/fine").body == b"fine"
    assert told(server, "calm") is None
    server.get("/open?calm")
    server.wait_for_log("^ended calm$")
    assert told(server, "calm") == "finished"


def test_a_client_that_ends_its_side_only_gets_its_answer(server):
    with server.connect() as client:
        client.send(request("/slow?half"))
        client.end_sending()
        server.wait_for_log("^slow half has begun$")
        server.get("/open?half")
        assert client.read_response().body == b"slow half"
        assert client.is_closed()


def test_every_pipelined_request_is_answered_if_the_client_then_ends_its_side(server):
    with server.connect() as client:
        client.send(b"".join(request(f"/slow?half{number}") for number in range(3)))
        client.end_sending()
        for number in range(3):
            server.wait_for_log(f"^slow half{number} has begun$")
            server.get(f"/open?half{number}")
            assert client.read_response().body == f"slow half{number}".encode()
        assert client.is_closed()


def test_clients_that_vanish_leave_no_descriptor_behind(server):
    worker = int(server.get("/pid").body)
    server.get("/fine")
    before = descriptors(worker)
    for path in ("wait_for_end?many", "stream?50", "slow?many", "digest"):
        for _ in range(10):
            client = server.connect()
            client.send(request(f"/{path}", "POST", "Content-Length: 10\r\n") + b"x")
            client.reset()
    server.get("/open?many")
    wait_until(lambda: descriptors(worker) <= before, lambda: f"{descriptors(worker)} descriptors, {before} before")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


# Background work.


def test_work_after_the_response_does_not_hold_up_the_next_request_of_the_connection(server):
    with server.connect() as client:
        assert client.request(target="/background?work").body == b"answered"
        server.wait_for_log("^works work$")
        assert_fine(client)
        client.send(request("/background?work2") + request("/fine"))
        assert client.read_response().body == b"answered"
        assert client.read_response().body == b"fine"
        assert told(server, "work") is None
    server.get("/open?work")
    server.wait_for_log("^worked work$")
    server.get("/open?work2")
    server.wait_for_log("^worked work2$")


def test_background_work_that_fails_is_logged_and_affects_no_other_request(server):
    with server.connect() as client:
        assert client.request(target="/background_fails").body == b"answered"
        assert_fine(client)
    server.wait_for_log("an exception in GET /background_fails, after its response$")
    server.wait_for_log("RuntimeError: after the answer$")


def test_the_log_has_one_line_for_each_request_with_its_bytes(server):
    server.get("/parts?logged")
    server.wait_for_log(r"GET /parts\?logged => generated 13 bytes in \d+ msecs \(HTTP/1.1 200\)")


def test_over_a_unix_socket_all_is_the_same(serve):
    server = serve("asgi = {apps}/asgi_http.py", listen=("http-socket = {directory}/http.sock",))
    with Client(str(server.directory / "http.sock")) as client:
        for _ in range(3):
            assert client.request(target="/parts").body == b"one two three"
            assert client.request("POST", "/digest", body=b"hello").status == 200


# HEAD: the response is complete when its head has left.


@pytest.mark.parametrize(("method", "how"), [("HEAD", "length"), ("HEAD", "parts"), ("GET", "204"), ("GET", "304")])
@pytest.mark.parametrize("leaves", [True, False])
def test_an_application_gives_the_body_that_its_answer_has_not_to_its_end(server, method, how, leaves):
    name = f"silent-{next(numbers)}"
    target = f"/parts_behind_a_gate?{name}&{how}"
    with server.connect() as client:
        connection = [("Connection", "close")] if leaves else []
        answer = client.request(method, target, connection)
        assert (answer.status, answer.body) == (int(how) if how.isdigit() else 200, b"")
        if how == "length":
            assert answer.get("content-length") == "40000"
        server.wait_for_text(f"waits {name}")
        if leaves:
            assert client.is_closed()
        else:
            # The response is complete, so the connection can carry the next one.
            assert_fine(client)
    assert server.get(f"/open?{name}").text == "open"
    server.wait_for_text(f"ended {name}")
    assert json.loads(server.get(f"/told?{name}").body) == ["the work behind it"]
    line = server.wait_for_log(rf"{method} {re.escape(target)} => generated (\d+) bytes")[0]
    assert re.search(r"generated 0 bytes", line), line
    assert not [line for line in server.lines if "left" in line and name in line]


def test_parts_to_a_disconnected_client_let_other_tasks_run(server):
    name = f"silent-{next(numbers)}"
    with server.connect() as client:
        assert client.request("HEAD", f"/parts_without_a_pause?{name}").status == 200
    server.wait_for_text(f"ended {name}")
    assert json.loads(server.get(f"/told?{name}").body) > 900
