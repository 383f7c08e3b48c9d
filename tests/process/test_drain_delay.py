"""`drain-delay`: after SIGTERM the instance serves until load balancers have noticed, and no connection is refused before."""

import contextlib
import json
import os
import re
import signal
import time

import pytest
from support.client import Closed
from support.front import LOCAL, binary
from support.http2 import Http2
from support.metrics import fetch, metrics_address, value_of
from support.waiting import wait_until
from support.websocket import WebSocket
from support_instance import DONE, REFUSED
from test_service_manager import Manager
from test_stop import hold

#: More seconds than any test lasts: only its own condition ends such a delay.
LONG = "600"
#: `drain-quiet` of tests that end with it, in seconds: a request after the log line must arrive within it.
QUIET = 5

WAITS = r"^bolide: stop: waiting for load balancers "
DRAINS = r"^bolide: stop: completing requests in flight"

ASGI = """
async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""

WAYS = {
    "WSGI": (),
    "threads": ("--threads", "4"),
    "gevent": ("--gevent", "50", "--gevent-monkey-patch"),
    "ASGI": ("--asgi", "shop:application", "--lifespan", "off"),
}


@pytest.fixture
def serve(start, tmp_path):
    """Starts an instance that does not end its delay by itself, unless `quiet` says when."""

    def serve(*options, delay=LONG, quiet="0", **more):
        (tmp_path / "shop.py").write_text(ASGI)
        module = None if "--asgi" in options else "probe"
        return start("--drain-delay", delay, "--drain-quiet", quiet, *options, module=module, **more)

    return serve


def leave(instance):
    """SIGTERM, until a worker knows of it: its answer on a new connection closes that."""
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS)
    wait_until(lambda: instance.connect().request().says_close, "a worker to leave its load balancer")


def skip(instance):
    """Another SIGTERM ends the delay, once it does not belong to the first one any more."""

    def is_over():
        if re.search(DRAINS, instance.log, re.MULTILINE):
            return True
        instance.send_signal(signal.SIGTERM)
        return False

    wait_until(is_over, "the second signal to count")
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("way", WAYS)
def test_new_connections_are_served_and_kept_ones_are_told_to_close(way, serve):
    instance = serve(*WAYS[way])
    kept, idle = instance.connect(), instance.connect()
    assert not kept.request().says_close
    leave(instance)
    answer = kept.request()
    assert (answer.status, answer.says_close) == (200, True)
    assert kept.is_closed()
    fresh = instance.connect().request()
    assert (fresh.status, fresh.says_close) == (200, True)
    assert idle.request().status == 200, "its client may not have known before"
    skip(instance)


def test_a_connection_with_a_request_in_flight_at_the_signal_is_told_with_the_next_one(serve, tmp_path):
    instance = serve("--threads", "2")
    client, gate = hold(instance, tmp_path)
    leave(instance)
    gate.touch()
    assert client.read_response().text == "waited"
    assert client.request().says_close
    skip(instance)


@pytest.mark.parametrize("way", WAYS)
def test_an_http2_client_gets_goaway_and_new_ones_are_served(way, serve):
    instance = serve("--http2", "h2c", *WAYS[way])
    kept = Http2(instance.connect())
    assert kept.request().status == 200
    leave(instance)
    kept.read_until(lambda: kept.went_away, "GOAWAY on the kept connection")
    for _ in range(2):
        # A client without the settings of the server may wait for them before its first request.
        with Http2(instance.connect()) as fresh:
            fresh.read_settings()
            assert fresh.request().status == 200
            fresh.read_until(lambda fresh=fresh: fresh.went_away, "GOAWAY behind the first request")
    skip(instance)


def test_a_websocket_stays_open_until_the_drain(serve):
    instance = serve(*WAYS["ASGI"])
    kept = WebSocket(instance.connect()).open()
    leave(instance)
    fresh = WebSocket(instance.connect()).open()
    for client in (kept, fresh):
        client.send_text("hello")
        assert client.read_message() == "hello"
    instance.send_signal(signal.SIGINT)
    for client in (kept, fresh):
        assert client.answer_close()[0] == 1001
    assert instance.wait_for_exit() == 0


def test_the_drain_begins_when_no_connection_has_arrived_for_drain_quiet(serve):
    instance = serve(quiet=QUIET)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(
        WAITS + rf"until no connection has arrived for {QUIET} s, for at most 10 min \(drain-delay\); a second SIGTERM "
    )
    # The answer may come long after the arrival.
    arrived = time.monotonic()
    assert instance.get().status == 200
    instance.wait_for_log(rf"^bolide: stop: no connection has arrived for {QUIET} s$")
    # The clock of the scoreboard may lag by some milliseconds.
    assert time.monotonic() - arrived > QUIET * 0.9
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("header", [b"", binary(command=LOCAL)], ids=["no byte", "PROXY LOCAL"])
def test_connections_without_a_request_do_not_prolong_the_delay(header, serve):
    proxied = ("--enable-proxy-protocol", "--trusted-proxies", "127.0.0.1") if header else ()
    instance = serve(*proxied, quiet=QUIET)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS)
    is_over = re.compile(rf"^bolide: stop: no connection has arrived for {QUIET} s$", re.MULTILINE)
    # As a load balancer checks a port.
    while not is_over.search(instance.log):
        with contextlib.suppress(ConnectionError), instance.connect() as check:
            check.send(header)
            check.end_sending()
            assert check.is_closed()
    assert instance.wait_for_exit() == 0


def test_health_checks_fail_and_do_not_prolong_the_delay(serve):
    instance = serve("--health-path", "/healthz", quiet=QUIET)
    assert instance.get("/healthz").text == "ok"
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS)
    # The signal is older than the worker's knowledge of it.
    wait_until(lambda: instance.get("/healthz").text == "draining", "the check to fail")
    is_over = re.compile(rf"^bolide: stop: no connection has arrived for {QUIET} s$", re.MULTILINE)
    while not is_over.search(instance.log):
        with contextlib.suppress(ConnectionError, Closed):
            answer = instance.connect().request("GET", "/healthz")
            assert (answer.status, answer.text, answer.says_close) == (503, "draining", True)
    assert instance.wait_for_exit() == 0


def test_requests_on_kept_connections_do_not_prolong_the_delay(serve):
    instance = serve(quiet=QUIET)
    kept = [instance.connect() for _ in range(4)]
    for client in kept:
        assert client.request().status == 200
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS)
    for client in kept:
        assert client.request().status == 200
    instance.wait_for_log(rf"^bolide: stop: no connection has arrived for {QUIET} s$")
    assert instance.wait_for_exit() == 0


def test_a_connection_that_waits_for_a_busy_worker_counts_as_an_arrival(serve, tmp_path):
    instance = serve(delay="1", quiet="0.1")
    client, gate = hold(instance, tmp_path)
    waiting = instance.connect()
    waiting.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: connections still arrive at the end of drain-delay, which may be too short$")
    gate.touch()
    assert client.read_response().text == "waited"
    assert waiting.read_response().status == 200, "it is served after the drain has begun, too"
    assert instance.wait_for_exit() == 0


def test_with_drain_quiet_0_the_delay_lasts_to_its_end(serve):
    instance = serve(delay="0.5")
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS + r"for 500 ms \(drain-delay\); a second SIGTERM skips this$")
    instance.wait_for_log("^bolide: stop: drain-delay is over$")
    assert time.monotonic() - began >= 0.5
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT", "stop", "stop --now", "SIGQUIT"])
def test_a_second_order_ends_the_delay(second, serve, call):
    instance = serve()
    leave(instance)
    if second == "SIGTERM":
        skip(instance)
        instance.wait_for_log(r"^bolide: stop \(SIGTERM\): not waiting for load balancers any longer$")
    elif second.startswith("SIG"):
        instance.send_signal(getattr(signal, second))
    else:
        assert call(*second.split(), instance.pid)[0] == DONE
    assert instance.wait_for_exit() == 0
    is_immediate = second in ("stop --now", "SIGQUIT")
    assert bool(re.search(DRAINS, instance.log, re.MULTILINE)) is not is_immediate


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_signals_that_do_not_wait_for_load_balancers(number, serve):
    instance = serve()
    assert instance.stop(number) == 0
    assert "load balancers" not in instance.log


def test_the_third_sigterm_stops_immediately(serve, tmp_path):
    instance = serve()
    client, _ = hold(instance, tmp_path)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log(WAITS)

    def is_stopped():
        instance.send_signal(signal.SIGTERM)
        return "stopping immediately (a second signal)" in instance.log

    wait_until(is_stopped, "another signal to count")
    assert re.search(DRAINS, instance.log, re.MULTILINE)
    assert client.is_closed()
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("command", ["reload", "reload --chain", "upgrade", "pause"])
def test_a_command_that_would_change_the_instance_is_refused(command, serve, call):
    instance = serve()
    leave(instance)
    status, said = call(*command.split(), instance.pid)
    assert (status, "it is being stopped" in said) == (REFUSED, True), said
    instance.send_signal(signal.SIGHUP)
    skip(instance)
    assert "generation 2" not in instance.log


def test_a_reload_in_progress_is_abandoned(serve, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, time\n"
        "while os.path.exists('slow'):\n    print('loading', flush=True)\n    time.sleep(0.1)\n"
        "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'ok']\n"
    )
    instance = serve("--module", "slow")
    (tmp_path / "slow").touch()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$")
    leave(instance)
    instance.wait_for_log("^bolide: reload: generation 2, which is still starting, is abandoned because the instance stops$")
    wait_until(lambda: len(instance.prototypes()) == 1, "the end of generation 2")
    assert instance.get().status == 200
    skip(instance)


def test_a_worker_that_starts_in_the_meantime_leaves_as_well(serve):
    instance = serve("--processes", "2", alarms=True)
    leave(instance)
    for worker in instance.workers():
        os.kill(worker, signal.SIGKILL)
        instance.wait_for_replacement(worker, count=2)
    for _ in range(8):
        answer = instance.connect().request()
        assert (answer.status, answer.says_close) == (200, True)
    skip(instance)


def test_a_paused_instance_stops_without_delay(serve, call):
    instance = serve()
    assert call("pause", instance.pid)[0] == DONE
    assert instance.stop() == 0
    assert "load balancers" not in instance.log


def test_an_instance_that_has_not_served_yet_stops_without_delay(serve, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance = serve("--module", "slow", ready=False)
    instance.wait_for_log("^loading$")
    assert instance.stop() == 0
    assert "load balancers" not in instance.log


def test_status_metrics_and_ready_check_show_it(serve, call):
    instance = serve("--metrics", "127.0.0.1:0")
    address = metrics_address(instance)

    def facts():
        return fetch(address, "/-/ready").status, json.loads(call("status", "--json", instance.pid)[1])["phase"]

    assert facts() == (200, "serving")
    assert value_of(address, "bolide_leaving") == 0
    leave(instance)
    assert facts() == (503, "leaving")
    # Numbers are those of at most a second ago.
    wait_until(lambda: value_of(address, "bolide_leaving") == 1, "the metric")
    skip(instance)


def test_the_service_manager_learns_of_both_times(start, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    instance = start("--drain-delay", "100", "--drain-quiet", "0.1", "--reload-mercy", "7", environment=manager.environment)
    assert manager.hears()["READY"] == "1"
    assert instance.stop() == 0
    stopping = manager.hears()
    assert stopping["STOPPING"] == "1"
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 107_000_000
    assert manager.hears() == {"STATUS": "waiting for load balancers before it stops"}
    draining = manager.hears()
    assert 7_000_000 < int(draining["EXTEND_TIMEOUT_USEC"]) < 100_000_000
    manager.socket.close()
