"""The lifespan of ASGI applications: start-up before the worker serves, shutdown after it has drained, and the handling of
failures.

Quoted sentences are those of the ASGI specification, "Lifespan Protocol".
"""

import os
import re
import signal

import pytest
from support.waiting import wait_until

#: Exit status of a startup whose application can't be served.
LOAD_FAILED = 22

LOOPS = ["asyncio", "uvloop"]


@pytest.fixture
def live(serve):
    """``live("name")`` serves the application with this name in tests/apps/asgi_lifespan.py."""

    def live(name, *lines, start=True):
        configuration = "\n".join([f"asgi = {{apps}}/asgi_lifespan.py:{name}", "chdir = {directory}", *lines])
        return serve(configuration) if start else serve.prepare(configuration)

    return live


def fails(server):
    """Starts a server that fails to serve; returns its last line."""
    server.launch()
    assert server.wait_for_exit() == LOAD_FAILED
    return server.lines[-1]


def order(server, *texts):
    """The log contains all of them, in this order."""
    places = [server.log.find(text) for text in texts]
    assert -1 not in places, (texts, server.log)
    assert places == sorted(places), (texts, server.log)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("mode", ["auto", "on"])
def test_startup_comes_before_the_worker_serves_and_shutdown_after_it(live, mode, loop):
    server = live("well_behaved", f"lifespan = {mode}", f"loop = {loop}")
    pid = server.get("/").text
    assert server.get("/state").text == f'{{"made in": "{pid}"}}'
    assert server.stop() == 0
    order(
        server,
        f"startup begins in {pid}",
        f"startup ends in {pid}",
        "bolide: ready:",
        "bolide: stop:",
        f"shutdown begins in {pid}",
        f"shutdown ends in {pid}",
        f"lifespan returns in {pid}",
    )


def test_each_worker_has_a_lifespan_of_its_own(live):
    # "In a multi-process environment there will be lifespan events in each process".
    server = live("well_behaved", "processes = 3")
    assert server.log.count("startup ends in") == 3
    assert server.stop() == 0
    assert server.log.count("lifespan returns in") == 3


def test_with_off_the_application_hears_nothing(live):
    server = live("raises", "lifespan = off")
    assert server.get("/").text.isdigit()
    assert server.stop() == 0
    assert "database" not in server.log


@pytest.mark.parametrize("name", ["refuses_the_scope", "returns_at_once", "answers_as_if_it_was_http", "raises"])
def test_with_auto_an_application_that_raises_or_returns_does_without(live, name):
    # "If an exception is raised when calling the application callable with a lifespan.startup message or a scope of type
    # lifespan, the server must continue but not send any lifespan events."
    server = live(name)
    assert server.get("/").text.isdigit()
    assert server.get("/state").text == "{}"
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "RuntimeError: no database"),
        ("refuses_the_scope", "NotImplementedError: no lifespan here"),
        ("returns_at_once", "the application's lifespan returned before 'lifespan.startup.complete', and lifespan = on"),
        ("answers_as_if_it_was_http", "RuntimeError: 'http.response.start' is not a valid lifespan message at this point"),
    ],
)
def test_with_on_an_application_that_raises_or_returns_fails_the_start(live, name, reason):
    server = live(name, "lifespan = on", start=False)
    assert reason in fails(server)
    if ":" in reason:
        assert server.log.count("Traceback (most recent call last)") == 1
        server.wait_for_text("asgi_lifespan.py")


@pytest.mark.parametrize("mode", ["auto", "on"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("says_failed", "the application's lifespan startup failed: the database is away"),
        ("says_failed_without_a_message", "the application's lifespan startup failed"),
        ("says_failed_as_starlette_does", "the application's lifespan startup failed: RuntimeError: no database"),
    ],
)
def test_startup_failed_ends_the_start_with_the_reason_in_its_last_line(live, mode, name, reason):
    # "If the server receives this message, it should log/print the message and exit."
    server = live(name, f"lifespan = {mode}", start=False)
    assert reason in fails(server)


def test_a_failure_is_logged_with_its_traceback_once(live):
    server = live("says_failed_as_starlette_does", start=False)
    fails(server)
    assert server.log.count("Traceback (most recent call last)") == 1
    server.wait_for_text("in connect")


def test_several_workers_whose_lifespan_fails_alike_say_so_once_and_the_last_line_names_the_start(live):
    server = live("says_failed_as_starlette_does", "processes = 4", start=False)
    last = fails(server)
    assert last == (
        "bolide: startup failed: the application's lifespan startup failed: RuntimeError: no database; nothing is served"
    )
    assert server.log.count("Traceback (most recent call last)") == 1, server.log


def test_the_worker_that_logs_why_the_start_fails_is_not_killed_by_the_exit_of_another_one(live):
    server = live("says_failed_and_takes_long_to_log", "processes = 4", start=False)
    assert "the database is away" in fails(server)
    assert re.findall("SlowToDescribeError: (.*)", server.log) == ["no database"]


def test_a_startup_that_exits_fails_the_start(live):
    assert "SystemExit: this machine will not do" in fails(live("exits", start=False))


def test_one_worker_whose_startup_fails_fails_the_whole_start(live):
    server = live("raises", "lifespan = on", "processes = 3", start=False)
    assert "RuntimeError: no database" in fails(server)
    assert server.processes() == []


def test_lazy_applications_have_their_lifespan_too(live):
    server = live("well_behaved", "lazy-apps = true")
    assert server.stop() == 0
    order(server, "startup ends in", "bolide: ready:", "lifespan returns in")


def test_a_reload_whose_startup_fails_leaves_the_old_generation_serving(live):
    server = live("fails_where_told", "lifespan = on", "processes = 2")
    broken = server.directory / "broken"
    broken.touch()
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(
        r"^bolide: generation 2 could not be loaded \(.*lifespan startup failed: the database is away\): generation 1 keeps"
    )
    assert server.get("/").text.isdigit()
    wait_until(lambda: len(server.processes()) == 4, "the end of the broken generation")
    assert "shutdown of" not in server.log
    broken.unlink()
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: .* of generation 3 in")
    server.wait_for_log("^shutdown of", count=2)
    assert server.get("/").text.isdigit()


def test_a_worker_whose_startup_fails_later_is_tried_again_and_the_others_serve_on(live):
    server = live("fails_where_told", "processes = 2")
    server.expects_alarms = True
    broken = server.directory / "broken"
    broken.touch()
    os.kill(int(server.get("/").text), signal.SIGKILL)
    server.wait_for_log("^bolide: worker .: the application's lifespan startup failed: the database is away$")
    assert all(server.get("/").status == 200 for _ in range(5))
    broken.unlink()
    wait_until(lambda: len(server.processes()) == 4, "a replacement")
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "reload"])
def test_shutdown_comes_when_the_last_request_is_answered(live, number):
    # "Sent to the application when the server has stopped accepting connections and closed all active connections."
    server = live("well_behaved")
    old = server.get("/").text
    holder, opener = server.connect(), server.connect()
    holder.send(b"GET /hold?door HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for_log("^holds door$")
    begin_to_open(server, opener, "door")
    drain(server, number)
    assert f"shutdown begins in {old}" not in server.log
    opener.send(b"x")
    assert opener.read_response().text == "open"
    assert holder.read_response().text == "held"
    server.wait_for_log(f"^lifespan returns in {old}$")
    if number == signal.SIGTERM:
        assert holder.is_closed()
    else:
        # The worker has no lifespan any more; the next generation starts one again.
        assert holder.request().text == server.get("/").text != old


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "reload"])
def test_shutdown_comes_after_the_work_that_follows_a_response(live, number):
    server = live("well_behaved")
    assert server.get("/left?work").text == "left"
    old = server.get("/").text
    opener = server.connect()
    begin_to_open(server, opener, "work")
    drain(server, number)
    opener.send(b"x")
    assert opener.read_response().text == "open"
    server.wait_for_log(f"^shutdown begins in {old}$")
    order(server, "after the response of work", f"shutdown begins in {old}")


def begin_to_open(server, client, name):
    """Sends a request that opens a gate when the single byte of its body follows."""
    client.send(f"POST /open?{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n".encode())
    # The worker has read that once it answers another connection which came later.
    server.get("/")


def drain(server, number):
    server.send_signal(number)
    if number == signal.SIGHUP:
        server.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    else:
        server.wait_for_log("^bolide: stop:")


def test_a_shutdown_that_hangs_is_bounded_by_reload_mercy(live):
    # Long enough for a worker that gets its turn late: the line of its application comes before the time is over.
    server = live("never_stops", "reload-mercy = 5")
    server.expects_alarms = True
    assert server.stop() == 0
    order(server, "shutdown hangs", "did not finish within 5 s (reload-mercy)")


def test_a_startup_that_hangs_can_be_stopped(live):
    server = live("never_starts", "reload-mercy = 1", start=False)
    server.expects_alarms = True
    server.launch()
    server.wait_for_log("^startup hangs$")
    server.send_signal(signal.SIGTERM)
    server.wait_for_exit()
    assert server.processes() == []


def test_a_shutdown_that_raises_is_logged_with_its_traceback(live):
    server = live("shutdown_raises")
    assert server.stop() == 0
    order(server, "an exception in the application's lifespan", "in connect", "RuntimeError: no database")


def test_shutdown_failed_is_logged(live):
    # "If the server receives this message, it should log/print the message and terminate."
    server = live("shutdown_says_failed")
    assert server.stop() == 0
    server.wait_for_text("the application's lifespan shutdown failed: the queue is full")


def test_a_lifespan_that_ends_while_the_worker_serves_is_logged_and_the_worker_serves_on(live):
    server = live("ends_while_it_serves")
    server.wait_for_log("RuntimeError: no database")
    pid = server.get("/").text
    assert server.get("/").text == pid
    assert server.stop() == 0


def test_messages_that_no_lifespan_has_are_an_exception_where_they_are_sent(live):
    server = live("sends_nonsense")
    server.wait_for_log("^refused: RuntimeError: 'lifespan.startup.done' is not a valid lifespan message at this point$")
    server.wait_for_log("^refused again: RuntimeError$")
    assert server.stop() == 0


def test_tasks_of_the_lifespan_go_on_while_requests_are_served(live):
    server = live("works_beside")
    first = server.get("/state").text.count("1")
    wait_until(lambda: server.get("/state").text.count("1") > first, "the task goes on")
    assert server.stop() == 0
