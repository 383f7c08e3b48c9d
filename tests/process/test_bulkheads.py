"""``bulkhead``: how many requests of some routes the application has, in all workers together. The others wait without a thread,
in the order of their arrival, and do not hold up the requests of other routes.

Calls are held at gates until the test opens them, so what has begun in the meantime did not wait for them.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.client import Closed
from support.held import get
from support.http2 import USUAL_FRAME_BYTES, Http2, secured
from support.metrics import metrics_address, value_of
from support.server import program
from support.tls import Authority, context_of
from support.waiting import wait_until
from support.websocket import WebSocket
from support_instance import COMMAND_SECONDS, reload_by_command
from support_upgrade import stop as stop_upgraded
from support_upgrade import upgrade

#: Interface -> the lines of the configuration, and the application of `hold`.
INTERFACES = {
    "wsgi": ("processes = 4", "wsgi"),
    "threads": ("processes = 2\nthreads = 3", "wsgi"),
    "gevent": ("processes = 2\ngevent = 20", "greenlets"),
    "asgi": ("processes = 2", "loop"),
}
ONE_WORKER = {"threads": ("threads = 3", "wsgi"), "gevent": ("gevent = 20", "greenlets"), "asgi": ("", "loop")}

#: Route for which every held call is limited, and one for which the call `busy` is not.
ALL = "^/held"
NOT_BUSY = "^/held/[^b]"

#: Configurations in which all threads of one worker are busy while the calls `first` and `busy` are held.
NO_THREAD_FREE = {"processes": "processes = 2", "threads": "threads = 2"}
#: No test waits that long.
LONG = "wait=500s"
BODY_BYTES = 32 << 20


@pytest.fixture
def bulkhead(hold):
    """``bulkhead("max=2")`` serves ``tests/apps/held.py``, whose calls at a gate are limited."""

    def bulkhead(limits, configuration="processes = 4", application="wsgi", route=ALL, **options):
        lines = f"master = true\nmetrics = 127.0.0.1:0\nbulkhead = name=slow,route={route},{limits}\n{configuration}"
        return hold(lines, application, **options)

    return bulkhead


@pytest.fixture
def both(bulkhead, tmp_path):
    """The same with TLS at another socket, and with HTTP/2 at both. ``http2`` and ``secured`` connect to it."""

    def both(application, limits, **options):
        authority = Authority(tmp_path / "certificates")
        shown = authority.server()
        lines = f"processes = 2\nhttps = 127.0.0.1:0,{shown.chain},{shown.key}\nhttp2 = h2c"
        held = bulkhead(limits, lines, application, **options)

        def secure(protocol):
            context = context_of(authority, alpn=[protocol])
            return secured(held.server.connect(held.server.address("https")), context, protocol=protocol)

        def http2(way):
            client = Http2(held.server.connect() if way == "plain" else secure("h2"))
            client.scheme = "http" if way == "plain" else "https"
            return client

        held.http2, held.secured = http2, lambda: secure("http/1.1")
        return held

    return both


def counts(held, master=None):
    """What the one bulkhead counts, by `bolide status`."""
    command = [*program(), "status", "--json", str(master or held.server.process.pid)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=True)
    (found,) = json.loads(done.stdout)["bulkheads"]
    return found


def wait_for_count(held, what, count):
    def described():
        return f"{what} is {count}: {counts(held)}; the log:\n{held.server.log}"

    wait_until(lambda: counts(held)[what] == count, described)


def wait_until_waiting(held, count):
    wait_for_count(held, "waiting", count)


def wait_until_queued(held):
    """Waits until a request waits, or has waited for too long already, which a busy machine may cause."""
    wait_until(lambda: counts(held)["waiting"] + counts(held)["refused_by_wait"] >= 1, lambda: f"a request waits: {counts(held)}")


def pause(seconds):
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, f"{seconds} s")


def send_waiting(held, name, count):
    """Sends a request that has to wait, as the one of this number."""
    request = held.send_held(name)
    wait_until_waiting(held, count)
    return request


def refusal(held, name):
    """The response to a request that is refused."""
    with held.server.connect() as client:
        return client.request(target=f"/held/{held.gate(name)}?{name}")


@pytest.mark.parametrize("interface", INTERFACES)
def test_as_many_requests_as_allowed_are_in_progress_in_all_workers_together(bulkhead, interface):
    held = bulkhead(f"max=2,{LONG}", *INTERFACES[interface])
    requests = [held.send(f"call{number}", "/held/gate") for number in range(8)]
    held.wait_for_progress(2)
    wait_until_waiting(held, 6)
    for ended in range(8):
        # A worker of one thread whose call is held has to end it before it begins the next request that waits there.
        wait_until(held.in_progress, "a call is in progress")
        assert counts(held)["in_flight"] <= 2
        assert len(held.in_progress()) <= 2
        held.let_through()
        held.wait_until_ended(ended + 1)
    assert sorted(request.finish() for request in requests) == [f"call{number}" for number in range(8)]
    wait_for_count(held, "in_flight", 0)
    assert (counts(held)["passed"], counts(held)["waiting"]) == (8, 0)


@pytest.mark.parametrize("interface", ["gevent", "asgi"])
def test_no_permit_stays_unused_while_requests_wait(bulkhead, interface):
    held = bulkhead(f"max=2,{LONG}", *INTERFACES[interface])
    requests = [held.send(f"call{number}", "/held/gate") for number in range(8)]
    for ended in range(6):
        held.wait_for_progress(2)
        held.let_through()
        held.wait_until_ended(ended + 1)
    held.let_through(calls=2)
    assert sorted(request.finish() for request in requests) == [f"call{number}" for number in range(8)]


def test_the_numbers_are_in_the_metrics(bulkhead):
    held = bulkhead("max=1,queue=1,wait=500s")
    held.hold("first")
    send_waiting(held, "second", 1)
    assert refusal(held, "third").status == 503
    address = metrics_address(held.server)

    def found(name, **labels):
        return value_of(address, f"bolide_bulkhead_{name}", name="slow", **labels)

    wait_until(lambda: found("rejected_total", reason="queue") == 1, "the refusal is counted")
    assert (found("requests_in_flight"), found("requests_waiting"), found("passed_total")) == (1, 1, 1)
    assert found("rejected_total", reason="wait") == 0


@pytest.mark.parametrize("interface", ONE_WORKER)
def test_requests_of_a_worker_are_called_in_the_order_in_which_they_came(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *ONE_WORKER[interface])
    requests = [held.hold("call0")]
    requests += [send_waiting(held, f"call{number}", number) for number in range(1, 6)]
    for number, request in enumerate(requests):
        held.wait_for("begin", f"call{number}")
        assert held.begun() == [f"call{before}" for before in range(number + 1)]
        held.let_through(f"call{number}")
        assert request.finish() == f"call{number}"


@pytest.mark.parametrize("interface", INTERFACES)
def test_other_requests_are_served_while_slow_ones_wait(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    others = [send_waiting(held, f"other{number}", number + 1) for number in range(5)]
    for number in range(20):
        assert held.send(f"quick{number}").finish() == f"quick{number}"
    assert set(held.in_progress()) == {"first"}
    for number in range(5):
        held.let_through(f"other{number}")
    held.let_through("first")
    assert [request.finish() for request in [first, *others]] == ["first", *(f"other{number}" for number in range(5))]


def test_a_request_beyond_the_queue_is_refused_at_once_with_the_time_to_come_back(bulkhead):
    held = bulkhead("max=1,queue=1,wait=30500ms", "processes = 3")
    held.hold("first")
    waiting = held.send_held("second")
    wait_until_waiting(held, 1)
    answer = refusal(held, "third")
    assert (answer.status, answer.get("Retry-After"), answer.get("Content-Type")) == (503, "31", "text/plain")
    assert counts(held)["refused_by_queue"] == 1
    held.server.wait_for_log(r"the bulkhead slow refuses requests with 503: 1 are in progress, and 1 requests wait already")
    del waiting


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_request_that_has_waited_for_too_long_is_refused_and_never_called(bulkhead, interface):
    held = bulkhead("max=1,wait=300ms", *INTERFACES[interface])
    first = held.hold("first")
    answer = refusal(held, "second")
    assert (answer.status, answer.get("Retry-After")) == (503, "1")
    assert counts(held)["refused_by_wait"] == 1
    wait_until_waiting(held, 0)
    held.let_through("first")
    assert first.finish() == "first"
    assert held.begun() == ["first"]


def end_busy(held, *requests):
    """Ends the calls that keep all threads busy."""
    for name in ("busy", "first"):
        held.let_through(name)
    for request in requests:
        request.finish()


@pytest.mark.parametrize("configuration", NO_THREAD_FREE.values(), ids=NO_THREAD_FREE)
def test_a_wait_ends_in_time_while_all_threads_of_its_worker_are_in_calls(bulkhead, configuration):
    held = bulkhead("max=1,wait=1s", configuration, route=NOT_BUSY)
    first = held.hold("first")
    held.gate("second")
    with held.server.connect() as client:
        client.send(b"GET /held/second?second HTTP/1.1\r\nHost: localhost\r\n\r\n")
        busy = held.hold("busy")
        answer = client.read_response()
        assert (answer.status, answer.get("Retry-After")) == (503, "1")
        assert (counts(held)["refused_by_wait"], counts(held)["waiting"]) == (1, 0)
        # The connection goes on.
        client.send(b"GET /quick?quick HTTP/1.1\r\nHost: localhost\r\n\r\n")
        end_busy(held, first, busy)
        assert client.read_response().text == "quick"
    held.server.wait_for_log(r"GET /held/second\?second .*503")
    assert held.begun() == ["first", "busy", "quick"]


@pytest.mark.parametrize("protocol", ["http", "uwsgi", "fastcgi", "scgi"])
def test_a_wait_that_ends_while_no_thread_is_free_is_answered_in_every_protocol(bulkhead, protocol):
    held = bulkhead("max=1,wait=1s", "processes = 2", route=NOT_BUSY, protocol=protocol)
    first = held.hold("first")
    second = held.send_held("second")
    busy = held.hold("busy")
    assert second.answer().status == 503
    end_busy(held, first, busy)


@pytest.mark.parametrize("way", ["tls", "http2", "http2 and tls"])
def test_a_wait_that_ends_while_no_thread_is_free_is_answered_over_tls_and_http2(both, way):
    held = both("wsgi", "max=1,wait=3s", route=NOT_BUSY)
    first = held.hold("first")
    target = f"/held/{held.gate('second')}?second"
    if way == "tls":
        with held.secured() as client:
            client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            wait_until_queued(held)
            busy = held.hold("busy")
            assert client.read_response().status == 503
            end_busy(held, first, busy)
            assert client.request(target="/quick?quick").text == "quick"
        return
    with held.http2("plain" if way == "http2" else "tls") as client:
        waiting = client.begin(target=target)
        wait_until_queued(held)
        busy = held.hold("busy")
        client.finish(waiting)
        assert waiting.status == 503
        end_busy(held, first, busy)
        assert client.request(target="/quick?quick").text == "quick"


def test_a_client_that_resets_while_no_thread_is_free_leaves_the_queue(bulkhead):
    held = bulkhead(f"max=1,{LONG}", "processes = 2", route=NOT_BUSY)
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    busy = held.hold("busy")
    second.client.reset()
    wait_until_waiting(held, 0)
    assert set(held.in_progress()) == {"first", "busy"}
    end_busy(held, first, busy)
    held.server.wait_for_log(r"GET /held/second\?second .*499")


def test_an_upload_that_is_refused_while_no_thread_is_free_has_the_rules_fields_and_the_id_of_its_log_line(bulkhead):
    lines = "request-id-answer = true\nlog-format = %(uri) %(status) id=%(request_id)\nresponse-route-run = addheader:X-Rule: 1"
    held = bulkhead("max=1,wait=1s", f"processes = 2\n{lines}", route=NOT_BUSY)
    first = held.hold("first")
    held.gate("second")
    with held.server.connect() as client:
        client.send(b"POST /held/second?second HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        busy = held.hold("busy")
        answer = client.read_response()
        assert (answer.status, answer.get("X-Rule")) == (503, "1")
        end_busy(held, first, busy)
        held.server.wait_for_log(rf"/held/second\?second 503 id={answer.get('X-Request-ID')}")
        client.send(b"hello")
        assert client.request(target="/quick?quick").text == "quick"


def test_without_a_queue_no_request_waits(bulkhead):
    held = bulkhead("max=1,queue=0", "processes = 2")
    held.hold("first")
    assert refusal(held, "second").status == 503
    assert counts(held)["waiting"] == 0


def sent_bytes(client, most):
    """Sends zeros until the server's socket takes no more, or all were sent. Returns how many were taken."""
    client.socket.setblocking(False)
    taken = 0
    piece = bytes(1 << 16)
    with contextlib.suppress(BlockingIOError):
        while taken < most:
            taken += client.socket.send(piece[: most - taken])
    client.socket.settimeout(60)
    return taken


@pytest.mark.parametrize("interface", INTERFACES)
def test_the_body_of_a_request_that_waits_is_not_read(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    held.gate("upload")
    with held.server.connect() as client:
        head = f"POST /held/upload?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
        client.send(head.encode())
        wait_until_waiting(held, 1)
        taken = 0
        # The kernel's buffers take some of it. What the server reads makes room for more.
        for _ in range(3):
            taken += sent_bytes(client, BODY_BYTES - taken)
            assert held.send("quick").finish() == "quick"
        assert taken < BODY_BYTES
        held.let_through("first")
        assert first.finish() == "first"
        client.send(bytes(BODY_BYTES - taken))
        held.wait_for("begin", "upload")
        held.let_through("upload")
        assert client.read_response().text == "upload"


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_client_that_waits_for_100_continue_gets_it_when_its_request_begins(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    held.gate("upload")
    with held.server.connect() as client:
        client.send(b"POST /held/upload?upload HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        wait_until_waiting(held, 1)
        held.let_through("upload")
        held.let_through("first")
        assert first.finish() == "first"
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.send(b"hello")
        assert client.read_response().text == "upload"


def connection_beside(held, worker):
    """Returns a connection of another worker than this, or None."""
    client = held.connect()
    return client if held.find("begin", "kept")["pid"] != worker else None


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_killed_worker_gives_back_what_it_held(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    held.server.expects_alarms = True
    held.hold("first")
    # As many that some of them wait in a worker that lives.
    others = [send_waiting(held, f"other{number}", number + 1) for number in range(8)]
    holder = held.in_progress()["first"]
    # On a busy machine all of them may wait in the same worker as the first: one waits elsewhere in any case.
    elsewhere = wait_until(lambda: connection_beside(held, holder), "a connection of another worker")
    elsewhere.send(get(f"/held/{held.gate('elsewhere')}?elsewhere"))
    wait_until_waiting(held, 9)
    held.let_through("elsewhere")
    for number in range(8):
        held.let_through(f"other{number}")
    os.kill(holder, signal.SIGKILL)
    bodies = []
    for request in others:
        with contextlib.suppress(Closed, ConnectionError):
            bodies.append(request.finish())
    wait_for_count(held, "in_flight", 0)
    with contextlib.suppress(Closed, ConnectionError):
        bodies.append(elsewhere.read_response().text)
    wait_until_waiting(held, 0)
    assert bodies, "a request of another worker was called"
    assert held.send_held("after")
    held.wait_for("begin", "after")


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_client_that_resets_while_it_waits_is_never_called(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    third = send_waiting(held, "third", 2)
    second.client.reset()
    wait_until_waiting(held, 1)
    held.let_through("third")
    held.let_through("first")
    assert (first.finish(), third.finish()) == ("first", "third")
    assert held.begun() == ["first", "third"]


def test_a_client_that_has_ended_its_side_while_it_waits_gets_its_answer(bulkhead):
    held = bulkhead(f"max=1,{LONG}")
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    second.client.end_sending()
    assert held.send("quick").finish() == "quick"
    held.let_through("second")
    held.let_through("first")
    assert (first.finish(), second.finish()) == ("first", "second")


def check_permit_is_kept(held, name):
    """The client of the call of this name has left: its permit is free when the call ends, and not before."""
    second = send_waiting(held, "second", 1)
    assert held.send("quick").finish() == "quick"
    assert (counts(held)["in_flight"], counts(held)["waiting"]) == (1, 1)
    held.let_through("second")
    held.let_through(name)
    assert second.finish() == "second"
    events = [(seen["event"], seen["name"]) for seen in held.events()]
    assert events.index(("end", name)) < events.index(("begin", "second"))
    wait_for_count(held, "in_flight", 0)


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_call_whose_client_has_left_keeps_its_permit_until_it_ends(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    held.hold("first").client.reset()
    check_permit_is_kept(held, "first")


@pytest.mark.parametrize("interface", ["asgi", "gevent"])
def test_work_after_a_failed_send_keeps_its_permit_until_it_ends(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.send("first", f"/held-stream/{held.gate('first')}")
    assert first.client.read_head().status == 200
    first.client.reset()
    held.server.wait_for_log("the client of first has left")
    check_permit_is_kept(held, "first")


@pytest.mark.parametrize("application", ["loop", "greenlets"])
def test_a_call_whose_client_has_reset_its_stream_keeps_its_permit_until_it_ends(bulkhead, application):
    interface = "http2 = h2c" + ("\ngevent = 20" if application == "greenlets" else "")
    held = bulkhead(f"max=1,{LONG}", interface, application)
    held.gate("first")
    with Http2(held.server.connect()) as client:
        stream = client.begin(target="/held/first?first")
        held.wait_for("begin", "first")
        client.reset(stream)
        client.ping()
        held.server.wait_for_log(r"GET /held/first\?first")
        check_permit_is_kept(held, "first")


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_websocket_keeps_its_permit_until_its_application_ends(bulkhead, end):
    held = bulkhead(f"max=1,{LONG}", "processes = 2", "loop")
    held.gate("socket")
    with held.server.connect() as client:
        websocket = WebSocket(client, "/held/socket?socket")
        websocket.open()
        if end == "close":
            websocket.close()
        else:
            client.reset()
        held.server.wait_for_log(r"GET /held/socket\?socket")
        check_permit_is_kept(held, "socket")


def test_a_websocket_that_is_open_has_its_permit(bulkhead):
    held = bulkhead(f"max=1,{LONG}", "processes = 2", "loop")
    held.gate("socket")
    with held.server.connect() as client:
        websocket = WebSocket(client, "/held/socket?socket")
        websocket.open()
        second = send_waiting(held, "second", 1)
        held.let_through("socket")
        assert held.send("quick").finish() == "quick"
        assert counts(held)["waiting"] == 1
        websocket.close()
        held.let_through("second")
        assert second.finish() == "second"


# In a worker with threads, `harakiri` would end the request that waits too.
@pytest.mark.parametrize("interface", ["wsgi", "gevent", "asgi"])
def test_harakiri_frees_the_permit_of_its_call(bulkhead, interface):
    lines, application = INTERFACES[interface]
    held = bulkhead(f"max=1,{LONG}", f"{lines}\nharakiri = 1", application)
    held.server.expects_alarms = True
    held.hold("first")
    # It can't begin before: the limit is one call. That it waits may last too short to be seen.
    second = held.send_held("second")
    held.let_through("second")
    assert second.finish() == "second"
    held.server.wait_for_log("harakiri: .*GET /held/first")


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_reload_loses_no_request_that_waits_and_the_limit_holds_for_both_generations(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    requests = [held.hold("call0")]
    requests += [send_waiting(held, f"call{number}", number) for number in range(1, 5)]
    reload_by_command(held.server)
    requests.append(send_waiting(held, "call5", 5))
    for number in range(6):
        assert len(held.wait_for_progress(1)) == 1
        (name,) = held.in_progress()
        held.let_through(name)
        held.wait_until_ended(number + 1)
    assert [request.finish() for request in requests] == [f"call{number}" for number in range(6)]


@pytest.mark.parametrize("interface", INTERFACES)
def test_the_limit_holds_for_the_workers_of_both_masters_during_an_upgrade(bulkhead, interface):
    lines, application = INTERFACES[interface]
    held = bulkhead(f"max=1,{LONG}", f"{lines}\npidfile = {{directory}}/shop.pid", application)
    requests = [held.hold("call0"), send_waiting(held, "call1", 1)]
    held.gate("call2")
    master = upgrade(held.directory)
    try:
        requests.append(held.send_held("call2"))
        wait_until(lambda: counts(held, master)["waiting"] == 2, lambda: f"two requests wait: {counts(held, master)}")
        assert counts(held, master)["in_flight"] == 1
        for number in range(3):
            (name,) = held.wait_for_progress(1)
            held.let_through(name)
            held.wait_until_ended(number + 1)
        assert [request.finish() for request in requests] == ["call0", "call1", "call2"]
        wait_until(lambda: counts(held, master)["in_flight"] == 0, "all permits are free")
    finally:
        stop_upgraded(held.directory)


def kept_connections(held, count):
    """Returns this many connections of each of two workers, which take turns in the list."""
    found = {}
    while len(found) < 2 or min(map(len, found.values())) < count:
        client = held.connect()
        found.setdefault(held.find("begin", "kept")["pid"], []).append(client)
    return [client for pair in zip(*found.values()) for client in pair][: 2 * count]


@pytest.mark.parametrize("interface", ["gevent", "asgi"])
def test_the_request_that_has_waited_for_longest_is_called_whatever_its_worker(bulkhead, interface):
    """A worker that does not wake in time loses its turn, which a busy machine may cause. So one of several rounds counts."""
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    clients = kept_connections(held, 4)

    def is_in_order(turn):
        names = [f"call{turn}-{number}" for number in range(len(clients))]
        first = held.hold(f"first{turn}")
        for number, (client, name) in enumerate(zip(clients, names)):
            client.send(get(f"/held/{held.gate(name)}?{name}"))
            wait_until_waiting(held, number + 1)
            held.let_through(name)
        held.let_through(f"first{turn}")
        assert first.finish() == f"first{turn}"
        assert [client.read_response().text for client in clients] == names
        return held.begun()[-len(names) :] == names

    assert any(is_in_order(turn) for turn in range(5)), held.begun()


def workers_after_an_end(held, clients, turn, younger_seconds=0):
    """Two workers have a call each, and a request waits in each. Returns how many workers have calls when one of the calls is
    over: the one in the worker of the younger request.
    """
    names = [f"{name}{turn}" for name in ("stays", "ends", "older", "younger")]
    for number, (client, name) in enumerate(zip(clients, names)):
        if number == 3:
            pause(younger_seconds)
        client.send(get(f"/held/{held.gate(name)}?{name}"))
        if number < 2:
            held.wait_for("begin", name)
        else:
            wait_until_waiting(held, number - 1)
    held.let_through(names[1])
    held.wait_for("end", names[1])
    held.wait_for_progress(2)
    workers = set(held.in_progress().values())
    for name in (names[0], *names[2:]):
        held.let_through(name)
    assert [client.read_response().text for client in clients] == names
    return len(workers)


def test_the_last_thread_of_a_worker_is_left_to_other_routes_while_a_request_waits_where_two_are_free(bulkhead):
    """A worker that does not wake in time loses its turn, which a busy machine may cause. So one of several rounds counts."""
    held = bulkhead(f"max=2,{LONG}", "processes = 2\nthreads = 2")
    clients = kept_connections(held, 2)
    assert any(workers_after_an_end(held, clients, turn) == 2 for turn in range(5)), held.events()


def test_a_request_is_not_overtaken_by_much_younger_ones_because_of_a_last_thread(bulkhead):
    held = bulkhead("max=2,wait=16s", "processes = 2\nthreads = 2")
    clients = kept_connections(held, 2)
    # A quarter of `wait`, and a little more.
    assert any(workers_after_an_end(held, clients, turn, 4.2) == 1 for turn in range(3)), held.events()


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_request_that_waits_is_served_in_a_pause(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    third = send_waiting(held, "third", 2)
    assert control(held, "pause").returncode == 0
    held.server.wait_for_log("pausing")
    held.let_through("second")
    held.let_through("first")
    assert (first.finish(), second.finish()) == ("first", "second")
    held.wait_for("begin", "third")
    third.client.reset()
    held.let_through("third")
    wait_for_count(held, "in_flight", 0)
    assert control(held, "resume").returncode == 0
    assert held.send("quick").finish() == "quick"


def control(held, command):
    arguments = [*program(), command, str(held.server.process.pid)]
    return subprocess.run(arguments, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=False)


@pytest.mark.parametrize("lines", ["processes = 2", "threads = 2"])
def test_a_permit_is_free_while_the_client_still_reads_the_file_of_an_ended_call(bulkhead, lines):
    held = bulkhead(f"max=1,{LONG}", f"{lines}\nx-sendfile = {{directory}}")
    with held.server.connect() as client:
        client.send(get("/held-file?file"))
        length = int(client.read_head().get("Content-Length"))
        wait_for_count(held, "in_flight", 0)
        second = held.hold("second")
        held.let_through("second")
        assert second.finish() == "second"
        assert client.read_exactly(length) == bytes(length)


@pytest.mark.parametrize("protocol", ["uwsgi", "fastcgi", "scgi"])
@pytest.mark.parametrize("application", ["wsgi", "loop"])
def test_requests_of_every_protocol_wait(bulkhead, protocol, application):
    held = bulkhead(f"max=1,{LONG}", "processes = 2", application, protocol=protocol)
    first = held.hold("first")
    others = [send_waiting(held, f"other{number}", number + 1) for number in range(3)]
    assert held.send("quick").finish() == "quick"
    for number in range(3):
        held.let_through(f"other{number}")
    held.let_through("first")
    assert [request.finish() for request in [first, *others]] == ["first", "other0", "other1", "other2"]


@pytest.mark.parametrize("way", ["plain", "tls"])
@pytest.mark.parametrize("application", ["wsgi", "loop"])
def test_a_stream_of_http2_waits_while_others_of_its_connection_are_served(both, application, way):
    held = both(application, "max=1,wait=500s")
    first = held.hold("first")
    with held.http2(way) as client:
        waiting = client.begin(target=f"/held/{held.gate('second')}?second")
        reset = client.begin(target=f"/held/{held.gate('third')}?third")
        wait_until_waiting(held, 2)
        assert client.request(target="/quick?quick").text == "quick"
        client.reset(reset)
        client.ping()
        wait_until_waiting(held, 1)
        held.let_through("second")
        held.let_through("first")
        assert first.finish() == "first"
        client.finish(waiting)
        assert waiting.text == "second"
    assert "third" not in held.begun()


@pytest.mark.parametrize("application", ["wsgi", "loop"])
def test_the_window_of_a_stream_that_waits_is_not_opened(both, application):
    held = both(application, "max=1,wait=500s")
    first = held.hold("first")
    with held.http2("plain") as client:
        client.read_settings()
        upload = client.begin("POST", target=f"/held/{held.gate('upload')}?upload", ends=False)
        wait_until_waiting(held, 1)
        whole = client.send_windows[upload.stream]
        # A stream that is read gets its window back when half of it was used.
        while client.send_windows[upload.stream] > whole // 4:
            client.send_data(upload, bytes(USUAL_FRAME_BYTES))
        sent = whole - client.send_windows[upload.stream]
        client.ping()
        assert client.send_windows[upload.stream] == whole - sent
        held.let_through("upload")
        held.let_through("first")
        assert first.finish() == "first"
        client.send_body(upload, bytes(100_000))
        client.finish(upload)
        assert upload.text == "upload"


@pytest.mark.parametrize("application", ["wsgi", "loop"])
def test_a_request_over_tls_waits(both, application):
    held = both(application, "max=1,wait=500s")
    first = held.hold("first")
    with held.secured() as client:
        client.send(f"GET /held/{held.gate('second')}?second HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until_waiting(held, 1)
        assert held.send("quick").finish() == "quick"
        held.let_through("second")
        held.let_through("first")
        assert (first.finish(), client.read_response().text) == ("first", "second")


def test_a_path_that_a_rule_has_changed_decides_and_answers_of_rules_do_not_count(bulkhead):
    rules = "route = ^/alias/(.*)$ rewrite:/held/$1\nroute = ^/held/none$ break:204\nhealth-path = /held/health"
    held = bulkhead("max=1,queue=0", f"processes = 2\n{rules}")
    held.gate("one")
    first = held.send("first", "/alias/one")
    held.wait_for("begin", "first")
    assert refusal(held, "two").status == 503
    assert held.server.get("/held/none").status == 204
    assert held.server.get("/held/health").status == 200
    held.let_through("one")
    assert first.finish() == "first"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("route=^/a,max=1", "`bulkhead` has no `name`"),
        ("name=a,max=1", "`bulkhead` has no `route`"),
        ("name=a,route=^/a", "`bulkhead` has no `max`"),
        ("name=a,route=^/a,max=0", "`bulkhead` has `max=0`"),
        ("name=a,route=^/a,max=1025", "`bulkhead` has `max=1025`"),
        ("name=a,route=^/a,max=1,queue=-1", "`bulkhead` has `queue=-1`"),
        ("name=a,route=^/a,max=1,wait=0", "`bulkhead` has `wait=0`"),
        ("name=a,route=^/a,max=1,wait=11m", "`bulkhead` has `wait=11m`"),
        ("name=a,route=^/(a,max=1", "is not a regular expression"),
        ("name=a b,route=^/a,max=1", "`bulkhead` has `a b` as its name"),
        ("name=a,route=^/a,max=1,most=2", "`bulkhead` has an unknown `most`"),
        ("reports", "which has no `=`"),
    ],
)
def test_what_is_wrong_is_refused(refuse, value, words):
    refuse("bulkhead", value, words)


def test_a_name_that_is_used_twice_is_refused_with_both_places(call, tmp_path):
    (tmp_path / "twice.ini").write_text(
        "[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\n"
        "bulkhead = name=a,route=^/a,max=1\nbulkhead = name=a,route=^/b,max=1\n"
    )
    status, said = call("check", "twice.ini")
    assert status != 0
    assert "twice.ini:5" in said
    assert "uses the name `a`, which the one of twice.ini:4 has" in said


def test_check_finds_bulkheads_that_can_never_act(call, tmp_path):
    (tmp_path / "idle.ini").write_text(
        "[uwsgi]\nhttp-socket = 127.0.0.1:0\nwsgi = probe:application\nprocesses = 2\n"
        "bulkhead = name=a,route=^/a,max=2\nbulkhead = name=b,route=^/b,max=1\nbulkhead = name=c,route=^/b,max=1\n"
    )
    _, said = call("check", "idle.ini")
    assert "`bulkhead` `a` can never act" in said
    assert "`bulkhead` `c` can never act: `b` has the same route and comes before it" in said
    assert "`bulkhead` `b`" not in said


def test_a_reload_with_another_limit_uses_more_permits(bulkhead):
    held = bulkhead(f"max=1,{LONG}", "processes = 4")
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    configuration = held.server.ini
    configuration.write_text(configuration.read_text().replace("max=1", "max=3"))
    reload_by_command(held.server)
    third = held.hold("third")
    held.wait_for_progress(2)
    for name in ("first", "second", "third"):
        held.let_through(name)
    assert [request.finish() for request in (first, second, third)] == ["first", "second", "third"]


def phases(held):
    """The paths of the requests in flight, with their phases, by `bolide top`."""
    command = [*program(), "top", "--once", str(held.server.process.pid)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS, check=True)
    return dict(re.findall(r"^worker \d+: \w+ ([^ ?]+)\S* \(for [^,]*, (\w+)", done.stdout, re.MULTILINE))


def wait_for_phase(held, path, phase):
    wait_until(lambda: phases(held).get(path) == phase, lambda: f"{path} is in the phase {phase}: {phases(held)}")


@pytest.mark.parametrize("interface", INTERFACES)
def test_requests_that_wait_are_among_those_in_flight(bulkhead, interface):
    held = bulkhead(f"max=1,{LONG}", *INTERFACES[interface])
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    held.gate("upload")
    with held.server.connect() as client:
        client.send(b"POST /held/upload?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        wait_until_waiting(held, 2)
        wait_for_phase(held, "/held/upload", "bulkhead")
        assert phases(held) == {"/held/first": "application", "/held/second": "bulkhead", "/held/upload": "bulkhead"}
        # On a busy machine the upload may be called before the second one.
        held.let_through("first")
        held.let_through("second")
        assert first.finish() == "first"
        wait_for_phase(held, "/held/upload", "body")
        client.send(b"hello")
        held.let_through("upload")
        assert client.read_response().text == "upload"
        assert second.finish() == "second"


def companions_ticks(held):
    """The CPU time of all companions, in clock ticks."""
    ticks = 0
    for worker in held.server.workers():
        for stat in Path(f"/proc/{worker}/task").glob("*/stat"):
            name, numbers = stat.read_text().rsplit(")", 1)
            if name.endswith("(companion"):
                ticks += sum(map(int, numbers.split()[11:13]))
    return ticks


def test_no_cpu_time_is_used_beside_long_calls_that_follow_each_other(bulkhead):
    held = bulkhead(f"max=2,{LONG}", "processes = 4", route="^/slow")
    with contextlib.ExitStack() as stack:
        # Workers have a companion when they have two connections.
        for _ in range(16):
            stack.enter_context(held.connect())
        before = companions_ticks(held)
        clients = [stack.enter_context(held.server.connect()) for _ in range(12)]
        for client in clients:
            client.send(get("/slow/200"))
        for client in clients:
            assert client.read_response().status == 200
        # The calls take 1.2 s. A thread that does not rest uses 120 ticks in that time.
        assert companions_ticks(held) - before < 20


def test_the_wait_of_a_slow_request_is_not_the_applications(bulkhead):
    held = bulkhead(f"max=1,{LONG}", "processes = 2\nslow-request = 100")
    first = held.hold("first")
    second = send_waiting(held, "second", 1)
    pause(0.5)
    held.let_through("second")
    held.let_through("first")
    assert (first.finish(), second.finish()) == ("first", "second")
    said = held.server.wait_for_log(r"slow request: GET /held/second\S* took .*: (.*) \(slow-request")
    waited = re.search(r"waiting for a permit of its bulkhead ([\d.]+) (ms|s)", said[1])
    assert waited, said[1]
    assert float(waited[1]) * {"ms": 1, "s": 1000}[waited[2]] >= 400
