"""Requests in greenlets: while one waits, the others of its worker are served, and each has a context of its own."""

import hashlib
import json
import re

import pytest
from support import fastcgi, processes, scgi, uwsgi
from support.client import Closed
from support.http2 import Both, Reset
from support.waiting import wait_until

GEVENT = "wsgi-file = {apps}/gevent_site.py\ngevent = 100\ngevent-monkey-patch = true\nsocket-timeout = 600"
LISTEN = tuple(f"{protocol}-socket = 127.0.0.1:0" for protocol in ("http", "uwsgi", "fastcgi", "scgi"))
MEGABYTE = bytes(range(256)) * 4096
#: Most bytes of an answer that are in memory while its client does not read, with the kernel's buffers.
HELD_BYTES = 32 << 20
WAYS = ["plain", "tls"]


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(GEVENT, listen=LISTEN)


@pytest.fixture(scope="module")
def both(serve_module, tmp_path_factory):
    return Both(serve_module, tmp_path_factory.mktemp("tls"), GEVENT)


def waits(ask, *gates, count=1):
    """Waits until this many requests wait at each gate. `ask` is a server, or a connection."""
    request = ask.get if hasattr(ask, "get") else lambda target: ask.request(target=target)

    def reached():
        now = json.loads(request("/waiting").text)
        return all(now.get(gate, 0) == count for gate in gates)

    wait_until(reached, f"{count} wait at {gates}")


def begin(server, target, method="GET"):
    client = server.connect()
    client.send(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def notes(server):
    return json.loads(server.get("/notes").text)


def closes(server, name):
    """Waits until close() of an answer was called. Returns the note of each call, with the request's user."""
    wait_until(lambda: any(note.startswith(f"closed {name} ") for note in notes(server)), f"close() of {name}")
    return [note for note in notes(server) if note.startswith(f"closed {name} ")]


def test_requests_that_wait_are_served_at_once_by_one_worker(server):
    clients = [begin(server, f"/wait/w{number}") for number in range(50)]
    waits(server, *(f"w{number}" for number in range(50)))
    for number in reversed(range(50)):
        server.get(f"/open/w{number}")
        assert clients[number].read_response().text == f"w{number}"


def test_every_pipelined_request_is_answered_if_the_client_then_ends_its_side(server):
    with server.connect() as client:
        client.send(b"".join(f"GET /wait/h{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for number in range(3)))
        client.end_sending()
        for number in range(3):
            waits(server, f"h{number}")
            server.get(f"/open/h{number}")
            assert client.read_response().text == f"h{number}"
        assert client.is_closed()


def test_a_connection_is_kept_and_its_requests_are_answered_in_order(server):
    client = server.connect()
    client.send(b"".join(f"GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for path in ("wait/k1", "fine", "wait/k2", "slept")))
    waits(server, "k1")
    server.get("/open/k1")
    assert [client.read_response().text for _ in range(2)] == ["k1", "fine"]
    waits(server, "k2")
    server.get("/open/k2")
    assert client.read_response().text == "k2"
    assert float(client.read_response().text) >= 0.1
    assert client.request(target="/fine").text == "fine"


@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_a_body_is_whole_for_a_view_that_waits_while_it_reads(server, coding):
    body = MEGABYTE * 5
    client = server.connect()
    fields = "Transfer-Encoding: chunked" if coding == "chunked" else f"Content-Length: {len(body)}"
    client.send(f"PUT /body HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n".encode())
    for place in range(0, len(body), 1 << 18):
        part = body[place : place + (1 << 18)]
        client.send(b"%x\r\n%s\r\n" % (len(part), part) if coding == "chunked" else part)
        if place == 1 << 20:
            assert server.get("/fine").text == "fine"
    client.send(b"0\r\n\r\n" if coding == "chunked" else b"")
    assert client.read_response().text == f"PUT {len(body)} {hashlib.sha256(body).hexdigest()}"


def test_a_part_of_a_stream_is_sent_while_the_next_one_waits(server):
    client = begin(server, "/stream/s1")
    assert client.read_head().status == 200
    chunks = client.read_chunks()
    assert next(chunks) == b"first of s1\n"
    waits(server, "s1")
    server.get("/open/s1")
    assert list(chunks) == [b"second of s1\n"]
    assert closes(server, "s1") == ["closed s1 as s1"]


@pytest.mark.parametrize(
    ("path", "status", "text"), [("sleepy", 200, "one,two,three"), ("late", 201, "late"), ("threads", 200, "10")]
)
def test_answers_that_sleep_are_whole(server, path, status, text):
    answer = server.get(f"/{path}")
    assert (answer.status, answer.text) == (status, text)


def test_what_write_has_written_is_sent_while_the_view_waits(server):
    client = begin(server, "/write/wr")
    assert client.read_head().status == 200
    chunks = client.read_chunks()
    assert next(chunks) == b"written,"
    waits(server, "wr")
    server.get("/open/wr")
    assert b"".join(chunks) == b"again,returned"


def test_answers_without_a_body_have_none(server):
    client = server.connect()
    answer = client.request("HEAD", "/file/1")
    assert (answer.status, answer.get("content-length")) == (200, str(len(MEGABYTE)))
    assert client.request(target="/unchanged").status == 304
    assert client.request("HEAD", "/sleepy").status == 200
    assert client.request(target="/fine").text == "fine"


def test_a_file_is_sent_whole(server):
    assert server.get("/file/5").body == MEGABYTE * 5


@pytest.mark.parametrize("path", ["large", "written", "file"])
def test_a_client_that_does_not_read_takes_memory_and_others_are_served(server, path):
    before = int(server.get("/given").text)
    memory = processes.resident_bytes(int(server.get("/pid").text))
    client = server.connect(receive_bytes=65536)
    client.send(f"GET /{path}/100 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = client.read_head()
    for _ in range(20):
        assert server.get("/fine").text == "fine"
    if path != "file":
        assert int(server.get("/given").text) - before < HELD_BYTES
    assert processes.resident_bytes(int(server.get("/pid").text)) - memory < HELD_BYTES + (100 << 20) * (path == "file")
    if head.get("transfer-encoding"):
        assert sum(len(part) for part in client.read_chunks()) == int(server.get("/given").text) - before
    else:
        assert len(client.read_exactly(100 << 20)) == 100 << 20
    assert client.request(target="/fine").text == "fine"


def test_exceptions_before_and_after_the_head_end_their_own_answer_only(server):
    held = begin(server, "/wait/unharmed")
    waits(server, "unharmed")
    client = server.connect()
    assert client.request(target="/fails_before").status == 500
    assert client.request(target="/fine").text == "fine"
    client = begin(server, "/fails_after")
    with pytest.raises(Closed) as ended:
        client.read_response()
    assert ended.value.data.endswith(b"12345")
    server.wait_for_log("ValueError: before the head$")
    server.wait_for_log("ValueError: after the head$")
    server.get("/open/unharmed")
    assert held.read_response().text == "unharmed"


@pytest.mark.parametrize(("path", "fault"), [("short", "shorter"), ("long", "longer")])
def test_an_answer_of_another_length_than_it_says_is_told(server, path, fault):
    client = begin(server, f"/{path}")
    client.read_head()
    assert client.read_exactly(5) == b"12345"
    server.wait_for_log(f"^bolide: worker 1: the application's answer to GET /{path} is {fault} than ")
    assert len([line for line in server.lines if f"GET /{path} is" in line]) == 1


def test_a_view_that_is_killed_or_whose_time_is_over_ends_its_own_request_only(server):
    pid = server.get("/pid").text
    held = begin(server, "/wait/alive")
    waits(server, "alive")
    assert server.get("/killed/never").status == 500
    assert server.get("/uncaught_timeout/never").status == 500
    assert (server.get("/timeout/never").status, server.get("/pid").text) == (504, pid)
    waits(server, "never", count=0)
    server.wait_for_text("GET /killed/never: its greenlet was killed")
    server.get("/open/alive")
    assert held.read_response().text == "alive"


def test_a_view_that_exits_has_its_worker_replaced_when_the_others_have_ended(serve):
    server = serve(GEVENT)
    pid = server.get("/pid").text
    held = begin(server, "/counted/0.5")
    assert server.get("/exits").status == 500
    assert held.read_response().text == "counted"
    wait_until(lambda: server.get("/pid").text != pid, "another worker")


def test_close_is_called_once_in_the_requests_own_context_when_its_client_leaves(server):
    client = begin(server, "/stream/gone")
    client.read_head()
    waits(server, "gone")
    client.reset()
    server.get("/open/gone")
    assert closes(server, "gone") == ["closed gone as gone"]
    client = server.connect(receive_bytes=65536)
    client.send(b"GET /large/1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_head()
    client.reset()
    assert closes(server, "large 1000") == ["closed large 1000 as no user"]


def test_each_request_has_a_context_of_its_own_and_thread_locals_of_its_greenlet(server):
    clients = [begin(server, f"/context/user{number}/together") for number in range(20)]
    waits(server, "together", count=20)
    server.get("/open/together")
    for number, client in enumerate(clients):
        assert client.read_response().text == f"no user nothing, user{number} user{number}"


def test_a_greenlet_that_serves_another_request_begins_with_an_empty_context(server):
    server.get("/open/passed")
    texts = {server.get(f"/context/again{number}/passed").text.split(",")[0] for number in range(5)}
    assert texts == {"no user nothing"}


def test_requests_reuse_greenlets_of_gevents_class(server):
    told = {server.get("/greenlet").text for _ in range(10)}
    assert len(told) < 10
    assert all(re.match("True ", text) for text in told)


def test_a_greenlet_that_a_view_spawns_outlives_its_answer(server):
    assert server.get("/spawned/sp").text == "spawned"
    waits(server, "sp")
    server.get("/open/sp")
    wait_until(lambda: "afterwards sp as no user" in notes(server), "the greenlet's note")


@pytest.mark.parametrize("protocol", [uwsgi, fastcgi, scgi], ids=["uwsgi", "fastcgi", "scgi"])
def test_other_protocols_wait_too(server, protocol):
    name = protocol.__name__.rpartition(".")[2]
    held = begin(server, f"/wait/{name}")
    waits(server, name)
    answer = protocol.ask(server.address(name), "POST", "/body", MEGABYTE)
    assert answer.body.decode() == f"POST {len(MEGABYTE)} {hashlib.sha256(MEGABYTE).hexdigest()}"
    assert protocol.ask(server.address(name), "GET", "/sleepy").body == b"one,two,three"
    server.get(f"/open/{name}")
    assert held.read_response().text == name


@pytest.mark.parametrize("way", WAYS)
def test_streams_of_one_http2_connection_wait_at_the_same_time(both, way):
    connection = both.connect(way)
    held = [connection.begin(target=f"/wait/{way}{number}") for number in range(30)]
    stream = connection.begin(target=f"/stream/{way}s")
    waits(connection, f"{way}s", *(f"{way}{number}" for number in range(30)))
    answer = connection.request("POST", "/body", body=MEGABYTE)
    assert answer.text == f"POST {len(MEGABYTE)} {hashlib.sha256(MEGABYTE).hexdigest()}"
    for number in reversed(range(30)):
        connection.request(target=f"/open/{way}{number}")
        assert connection.finish(held[number]).text == f"{way}{number}"
    connection.request(target=f"/open/{way}s")
    assert connection.finish(stream).text == f"first of {way}s\nsecond of {way}s\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_failure_and_a_reset_of_one_http2_stream_leave_the_others_alone(both, way):
    connection = both.connect(way)
    held = connection.begin(target=f"/wait/h{way}")
    left = connection.begin(target=f"/stream/l{way}")
    waits(connection, f"h{way}", f"l{way}")
    connection.reset(left)
    connection.request(target=f"/open/l{way}")
    wait_until(lambda: f"closed l{way} as l{way}" in connection.request(target="/notes").text, "close()")
    assert connection.request(target="/fails_before").status == 500
    with pytest.raises(Reset):
        connection.request(target="/fails_after")
    connection.request(target=f"/open/h{way}")
    assert connection.finish(held).text == f"h{way}"


def test_no_more_requests_than_greenlets_run_at_once_and_all_are_answered(serve):
    server = serve(GEVENT + "\nlisten = 1000")
    seen = []

    def are_full():
        clients = [begin(server, "/counted/1") for _ in range(300)]
        assert {client.read_response().text for client in clients} == {"counted"}
        seen.append(int(server.get("/most").text))
        return seen[-1] >= 100

    # On a busy machine the first calls may be over before a hundred have begun.
    wait_until(are_full, lambda: f"a hundred requests at a time: {seen}")
    assert seen[-1] == 100
