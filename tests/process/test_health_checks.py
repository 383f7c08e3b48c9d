"""``health-path`` while workers are busy, paused or leave: a check is answered, and no other request is lost or served twice.

Calls are held at a gate until the test opens it, so a response that is here before shows that it did not wait for the call.
"""

import contextlib
import os
import signal

import pytest
from support.http2 import Http2
from support.waiting import wait_until
from support_processes import children_of

HEALTH = "health-path = /healthz\nmaster = true\n"
#: More connections than a worker accepts for their checks (`MAX_CHECKED`, 256).
MANY = 300
MAX_CHECKED = 256
#: As many of them at least: events of listening sockets, and the check that shows the pause, count too.
MAX_ACCEPTED = 250


@pytest.fixture
def healthy(hold):
    """``healthy("threads = 2")`` serves ``tests/apps/held.py`` with a health path."""
    return lambda configuration="", **options: hold(HEALTH + configuration, **options)


def request(target, fields=""):
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode()


def check(held, client=None, method="GET"):
    """Sends a health check, on a new connection by default. Returns the status, and the word."""
    if client is not None:
        answer = client.request(method, "/healthz")
        return answer.status, answer.text
    with held.server.connect() as new:
        return check(held, new, method)


def is_held(held, *names):
    return set(names) <= set(held.in_progress())


@pytest.mark.parametrize(
    "options",
    ["", "threads = 3", "threads = auto", "processes = 2\ncheaper = 1"],
    ids=["one thread", "threads", "auto", "cheaper"],
)
def test_a_check_does_not_wait_for_the_calls_of_the_only_worker(healthy, options):
    held = healthy(options)
    calls = [f"call{number}" for number in range(3 if options == "threads = 3" else 1)]
    requests = [held.hold(call) for call in calls]
    for method, word in [("GET", "ok"), ("HEAD", ""), ("GET", "ok")]:
        assert check(held, method=method) == (200, word)
    assert is_held(held, *calls), "the answers came during the calls"
    for call, sent in zip(calls, requests, strict=True):
        held.let_through(call)
        assert sent.finish() == call
    assert check(held) == (200, "ok")
    assert held.begun() == calls


def test_a_worker_that_has_had_nothing_to_do_for_long_answers_during_its_first_call(healthy):
    held = healthy()
    for number in range(3):
        name = f"call{number}"
        first = held.hold(name)
        assert check(held) == (200, "ok")
        assert is_held(held, name)
        held.let_through(name)
        assert first.finish() == name


def test_a_check_on_a_kept_connection_does_not_wait_and_the_connection_goes_on(healthy):
    held = healthy()
    kept = held.connect()
    first = held.hold("first")
    assert [check(held, kept) for _ in range(3)] == [(200, "ok")] * 3
    assert is_held(held, "first")
    kept.send(request("/quick?behind"))
    held.let_through("first")
    assert first.finish() == "first"
    assert kept.read_response().text == "behind"
    assert check(held, kept) == (200, "ok")


def test_a_check_that_comes_byte_by_byte_is_answered_when_it_is_whole(healthy):
    held = healthy()
    first = held.hold("first")
    with held.server.connect() as client:
        client.send_byte_by_byte(request("/healthz?a=b"))
        assert client.read_response().text == "ok"
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"


def test_a_client_that_wants_the_end_of_the_connection_gets_it(healthy):
    held = healthy()
    held.hold("first")
    for sent in (request("/healthz", "Connection: close\r\n"), b"GET /healthz HTTP/1.0\r\n\r\n"):
        with held.server.connect() as client:
            client.send(sent)
            answer = client.read_response()
            assert (answer.text, answer.says_close or answer.get("connection") is None) == ("ok", True)
            assert client.is_closed()
    assert is_held(held, "first")


def test_other_requests_are_served_after_the_call_whole_and_once(healthy):
    held = healthy()
    first = held.hold("first")
    whole, pieces, half, pipelined, upload = (held.server.connect() for _ in range(5))
    whole.send(request("/quick?whole"))
    pieces.send_byte_by_byte(request("/quick?pieces"))
    half.send(request("/quick?half")[:20])
    pipelined.send(request("/quick?one") + request("/healthz") + request("/quick?two"))
    upload.send(b"POST /healthz?upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")
    assert check(held) == (200, "ok")
    assert held.begun() == ["first"]
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"
    assert whole.read_response().text == "whole"
    assert pieces.read_response().text == "pieces"
    half.send(request("/quick?half")[20:])
    assert half.read_response().text == "half"
    assert [pipelined.read_response().text for _ in range(3)] == ["one", "ok", "two"]
    assert upload.read_response().status == 200
    assert sorted(held.begun()) == sorted(["first", "whole", "pieces", "half", "one", "two", "upload"])


def test_a_client_that_leaves_during_the_call_is_forgotten(healthy):
    held = healthy()
    first = held.hold("first")
    for sent in (b"", b"GET /hea", request("/quick?gone")):
        with held.server.connect() as client:
            client.send(sent)
    assert check(held) == (200, "ok")
    held.let_through("first")
    assert first.finish() == "first"
    assert check(held) == (200, "ok")


def test_checks_are_answered_among_many_connections_that_wait(healthy):
    held = healthy()
    first = held.hold("first")
    waiting = [held.server.connect() for _ in range(MAX_CHECKED // 2)]
    for number, client in enumerate(waiting):
        # A part of a request, and a request that is not a check.
        client.send(request(f"/quick?{number}") if number % 2 else b"GET /healthz HTTP/1.1\r\n")
    assert [check(held) for _ in range(5)] == [(200, "ok")] * 5
    assert is_held(held, "first")
    waiting[0].send(b"Host: localhost\r\n\r\n")
    assert waiting[0].read_response().text == "ok"
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"
    for number, client in enumerate(waiting[1::2]):
        assert client.read_response().text == str(2 * number + 1)


def test_a_worker_accepts_a_bounded_number_of_connections_for_their_checks(healthy):
    held = healthy("listen = 400")
    first = held.hold("first")
    worker = held.in_progress()["first"]
    before = sockets_of(worker)
    waiting = [held.server.connect() for _ in range(MANY)]
    for number, client in enumerate(waiting):
        client.send(request(f"/quick?{number}", "Connection: close\r\n"))
    # The companion has accepted what it may, and the others are in the listen queue.
    wait_until(lambda: sockets_of(worker) - before >= MAX_ACCEPTED, lambda: f"connections: {sockets_of(worker) - before}")
    assert sockets_of(worker) - before <= MAX_CHECKED
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"
    assert sorted(int(client.read_response().text) for client in waiting) == list(range(MANY))
    assert check(held) == (200, "ok")


def sockets_of(process):
    """Returns the number of sockets that a process has open."""
    directory = f"/proc/{process}/fd"
    count = 0
    for number in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"{directory}/{number}").startswith("socket:")
    return count


def test_a_fork_in_a_call_keeps_the_connections_that_wait(healthy):
    held = healthy()
    forks = held.server.connect()
    held.gate("fork")
    forks.send(request("/fork-and-held/fork?forking"))
    held.wait_for("begin", "forking")
    assert check(held) == (200, "ok")
    with held.server.connect() as other:
        other.send(request("/quick?other"))
        assert check(held) == (200, "ok")
        assert is_held(held, "forking")
        held.let_through("fork")
        assert forks.read_response().text == "forking"
        assert other.read_response().text == "other"


def test_a_free_worker_gets_the_connections_that_a_busy_one_does_not_need(healthy):
    held = healthy("processes = 2")
    held.hold("first")
    busy = held.in_progress()["first"]
    for number in range(20):
        name = f"quick{number}"
        assert held.send(name).finish() == name
        assert check(held) == (200, "ok")
        assert held.find("end", name)["pid"] != busy
    assert is_held(held, "first")


def test_with_every_worker_busy_a_check_is_answered_and_other_requests_go_to_the_first_free_worker(healthy):
    held = healthy("processes = 3")
    calls = [f"call{number}" for number in range(3)]
    sent = {call: held.hold(call) for call in calls}
    pids = held.in_progress()
    assert len(set(pids.values())) == 3
    waiting = [held.send(f"waiting{number}") for number in range(5)]
    assert [check(held) for _ in range(10)] == [(200, "ok")] * 10
    assert set(held.in_progress()) == set(calls)
    held.let_through("call1")
    assert [one.finish() for one in waiting] == [f"waiting{number}" for number in range(5)]
    assert {held.find("end", f"waiting{number}")["pid"] for number in range(5)} == {pids["call1"]}
    assert is_held(held, "call0", "call2")
    for call in ("call0", "call2"):
        held.let_through(call)
        assert sent[call].finish() == call


def test_requests_that_wait_in_a_worker_survive_its_harakiri(healthy):
    held = healthy("harakiri = 4")
    held.server.expects_alarms = True
    held.hold("stuck")
    stuck = held.in_progress()["stuck"]
    waiting = [held.send(f"waiting{number}") for number in range(5)]
    assert check(held) == (200, "ok")
    assert is_held(held, "stuck")
    assert [one.finish() for one in waiting] == [f"waiting{number}" for number in range(5)]
    assert all(held.find("end", f"waiting{number}")["pid"] != stuck for number in range(5))


def test_a_reload_during_the_call_loses_nothing(healthy):
    held = healthy()
    first = held.hold("first")
    waiting = held.send("waiting")
    kept = held.server.connect()
    assert check(held, kept) == (200, "ok")
    held.server.send_signal(signal.SIGHUP)
    assert waiting.finish() == "waiting", "the new worker serves it"
    assert is_held(held, "first")
    wait_until(lambda: check(held) == (200, "ok"), "the new worker")
    assert kept.request(target="/quick?kept").text == "kept"
    held.let_through("first")
    assert first.finish() == "first"


def test_a_kept_connection_is_told_that_the_worker_drains(healthy):
    held = healthy()
    first = held.hold("first")
    kept = held.server.connect()
    assert check(held, kept) == (200, "ok")
    held.server.send_signal(signal.SIGTERM)
    answer = wait_until(lambda: drained(kept), "the end of the service")
    assert (answer.status, answer.text, answer.says_close) == (503, "draining", True)
    assert answer.get("cache-control") == "no-store"
    assert kept.is_closed()
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"
    assert held.server.wait_for_exit() == 0


def drained(client):
    answer = client.request(target="/healthz")
    return answer if answer.status != 200 else None


@pytest.mark.parametrize("application", ["wsgi", "asgi", "gevent"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_paused_worker_says_so_on_new_and_kept_connections(healthy, call, application, processes):
    options = f"processes = {processes}\n" + ("gevent = 10\ngevent-monkey-patch = true\n" if application == "gevent" else "")
    held = healthy(options, application="asgi" if application == "asgi" else "wsgi")
    kept = held.connect()
    assert pause(held, call) == 0
    waiting, half = held.send("waiting"), held.server.connect()
    half.send(request("/healthz")[:9])
    for _ in range(3):
        assert check(held) == check(held, kept) == (503, "paused")
    half.send(request("/healthz")[9:])
    assert half.read_response().text == "paused"
    kept.send(request("/quick?behind"))
    assert check(held) == (503, "paused")
    assert held.begun() == ["kept"]
    assert call("resume", held.server.process.pid)[0] == 0
    assert waiting.finish() == "waiting"
    assert kept.read_response().text == "behind"
    wait_until(lambda: check(held) == (200, "ok"), "the worker serves")
    assert check(held, kept) == (200, "ok")


def pause(held, call):
    status, _ = call("pause", held.server.process.pid)
    wait_until(lambda: check(held) == (503, "paused"), "the pause")
    return status


def test_a_worker_that_is_paused_in_a_call_says_so_during_the_call(healthy, call):
    held = healthy()
    first = held.hold("first")
    assert pause(held, call) == 0
    waiting = held.send("waiting")
    assert check(held) == (503, "paused")
    assert is_held(held, "first")
    held.let_through("first")
    assert first.finish() == "first"
    assert check(held) == (503, "paused")
    assert held.begun() == ["first"]
    assert call("resume", held.server.process.pid)[0] == 0
    assert waiting.finish() == "waiting"


def test_a_paused_worker_accepts_a_bounded_number_of_connections(healthy, call):
    held = healthy("listen = 400")
    assert pause(held, call) == 0
    (worker,) = children_of(*children_of(held.server.process.pid))
    before = sockets_of(worker)
    silent = [held.server.connect() for _ in range(100)]
    waiting = [held.send(str(number)) for number in range(MANY - 100)]
    wait_until(lambda: sockets_of(worker) - before >= MAX_ACCEPTED, lambda: f"connections: {sockets_of(worker) - before}")
    assert sockets_of(worker) - before <= MAX_CHECKED
    for client in silent:
        client.close()
    # Others have left, so there is room for a check again.
    assert check(held) == (503, "paused")
    assert call("resume", held.server.process.pid)[0] == 0
    assert [one.finish() for one in waiting] == [str(number) for number in range(MANY - 100)]


def test_a_check_on_a_socket_that_may_speak_http_2_waits_for_the_call_and_is_answered(healthy):
    held = healthy("http2 = h2c")
    first = held.hold("first")
    with Http2(held.server.connect()) as client, held.server.connect() as plain:
        plain.send(request("/healthz"))
        answer = client.begin(target="/healthz")
        held.let_through("first")
        assert first.finish() == "first"
        assert plain.read_response().text == "ok"
        client.finish(answer)
        assert answer.text == "ok"


@pytest.mark.parametrize("application", ["asgi", "gevent"])
def test_a_blocked_event_loop_does_not_delay_a_check_and_loses_no_request(healthy, application):
    # Without patches, the view blocks the hub.
    options = "gevent = 10\n" if application == "gevent" else ""
    held = healthy(options, application="asgi" if application == "asgi" else "wsgi")
    first = held.hold("first")
    waiting = held.send("waiting")
    assert [check(held) for _ in range(3)] == [(200, "ok")] * 3
    assert is_held(held, "first")
    assert held.begun() == ["first"]
    held.let_through("first")
    assert first.finish() == "first"
    assert waiting.finish() == "waiting"
    assert check(held) == (200, "ok")


def test_a_path_that_a_rule_or_a_file_has_too_is_a_warning_of_check(call, tmp_path):
    (tmp_path / "uwsgi.ini").write_text(
        "[uwsgi]\nhttp-socket = 127.0.0.1:0\nwsgi-file = app.py\nhealth-path = /healthz\n"
        "route = ^/healthz$ donotlog:\nroute = ^/other$ donotlog:\nstatic-map = /healthz=/tmp\n"
    )
    (tmp_path / "app.py").write_text("def application(environ, start_response): ...\n")
    status, said = call("check", "uwsgi.ini")
    assert status == 0
    assert "`route = ^/healthz$ donotlog:` does not apply to GET and HEAD: `health-path = /healthz` answers them first" in said
    assert "`/healthz=/tmp` does not apply to GET and HEAD" in said
    assert "/other" not in said


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("healthz", "does not begin with a slash"),
        ("/a?b", "a character that a path can't have"),
        ("/a#b", "a character that a path can't have"),
        ("/a%20b", "a character that a path can't have"),
        ("/a b", "a character that a path can't have"),
        ("/caf\u00e9", "a character that a path can't have"),
        ("/" + "a" * 255, "is 256 bytes long, and 255 are possible"),
    ],
)
def test_a_value_that_is_not_a_path_is_refused(refuse, value, words):
    refuse("health-path", value, words)
