"""Reloads and stops of ASGI applications: no request is lost, requests in flight are completed, and streams are ended
at the end.
"""

import os
import signal
from pathlib import Path

import pytest
from support.waiting import wait_until
from support_load import Load

APPLICATION = Path(__file__).resolve().parents[1] / "apps" / "asgi_shop.py"
LOOPS = ["asyncio", "uvloop"]


def write(tmp_path, version, before=""):
    text = APPLICATION.read_text()
    (tmp_path / "shop.py").write_text(f"{before}{text}\nVERSION = {version!r}\n")


@pytest.fixture
def shop(start, tmp_path):
    """``shop("--processes", 2)`` serves the application of this directory, which tests rewrite."""

    def shop(*options, **more):
        write(tmp_path, "version-1")
        return start("--asgi", "shop", *options, module=None, **more)

    return shop


def ask(instance, target):
    client = instance.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("target", ["/", "/sleep", "/parts"])
def test_reload_under_load_loses_no_request(shop, tmp_path, target, loop):
    instance = shop("--processes", "2", "--loop", loop)
    with Load(instance.address(), kept_alive=4, fresh=3, target=target) as load:
        for number in range(2, 4):
            # Each version has a different length: Python detects changes by size and by modification time in seconds.
            version = f"version-{'x' * number}"
            write(tmp_path, version)
            instance.reload(number)
            load.wait(lambda version=version: load.bodies[version] > 0, "the new version")
            load.wait_for_more()
    assert load.losses == []
    assert len(load.bodies) == 3
    # Each old worker has shut down its lifespan.
    assert instance.log.count("shutdown of") == 4


def test_an_application_that_does_not_load_leaves_the_old_generation_serving(shop, tmp_path):
    instance = shop("--processes", "2")
    with Load(instance.address()) as load:
        write(tmp_path, "broken", before="def (:\n")
        instance.send_signal(signal.SIGHUP)
        instance.wait_for_log(r"^bolide: generation 2 could not be loaded \(SyntaxError: .*\): generation 1 keeps")
        load.wait_for_more()
    assert load.losses == []
    assert set(load.bodies) == {"version-1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "reload"])
def test_a_request_in_flight_is_finished(shop, tmp_path, number):
    instance = shop()
    gate = tmp_path / "gate"
    idle = instance.connect()
    old = idle.request(target="/pid").text
    client = ask(instance, f"/file?{gate}")
    instance.wait_for_log("^waits for")
    instance.send_signal(number)
    is_stop = number == signal.SIGTERM
    # This shows that the worker has received the order.
    if is_stop:
        assert idle.is_closed()
    else:
        wait_until(lambda: idle.request(target="/pid").text != old, "the new generation has the connection that rests")
    assert "shutdown of" not in instance.log
    gate.touch()
    answer = client.read_response()
    assert (answer.status, answer.text, answer.says_close) == (200, "waited", is_stop)
    instance.wait_for_log(f"^shutdown of {old}$")
    if is_stop:
        assert client.is_closed()
        assert instance.wait_for_exit() == 0
    else:
        instance.wait_for_generation(2)
        new = str(instance.worker())
        assert [kept.request(target="/pid").text for kept in (client, idle)] == [new, new]


def test_a_stop_closes_idle_kept_alive_connections_at_once(shop):
    instance = shop("--processes", "2")
    clients = [instance.connect() for _ in range(8)]
    for client in clients:
        assert not client.request().says_close
    instance.send_signal(signal.SIGTERM)
    assert all(client.is_closed() for client in clients)
    assert instance.wait_for_exit() == 0


def drain(instance, number):
    instance.send_signal(number)
    instance.wait_for_log("^bolide: (stop: |ready: .* of generation 2 in)")


def see_the_end(instance, number):
    if number == signal.SIGHUP:
        instance.wait_for_generation(2)
        assert instance.body() == "version-1"
    else:
        assert instance.wait_for_exit() == 0


#: Signals, the seconds of reload-mercy, and what the log says when a stream is closed. At shutdown it has 3 s.
ENDS_OF_STREAMS = {
    "stop": (signal.SIGTERM, 8, "streams still open 3 s after the order to stop, closing them: 1"),
    "stop within the mercy": (signal.SIGTERM, 4, "the 4 s of reload-mercy are nearly over, closing requests: 1"),
    "reload": (signal.SIGHUP, 8, "the 8 s of reload-mercy are nearly over, closing requests: 1"),
}


@pytest.mark.parametrize(("number", "mercy", "said"), ENDS_OF_STREAMS.values(), ids=ENDS_OF_STREAMS)
def test_an_event_stream_goes_on_at_a_drain_and_its_worker_ends_in_order_before_the_mercy_does(shop, number, mercy, said):
    instance = shop("--reload-mercy", mercy)
    old = int(instance.body("/pid"))
    client = ask(instance, "/events?one")
    assert client.read_head().get("content-type") == "text/event-stream"
    chunks = client.read_chunks()
    assert next(chunks) == b"data: tick\n\n"
    drain(instance, number)
    assert next(chunks) == b"data: tick\n\n"
    # No last chunk: the client sees that this was cut off, and reconnects.
    assert b"\r\n0\r\n" not in client.read_to_end()
    instance.wait_for_log(f"^bolide: worker 1: {said}$")
    instance.wait_for_log("^events of one end$")
    instance.wait_for_log(f"^shutdown of {old}$")
    see_the_end(instance, number)
    assert "killing " not in instance.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["stop", "reload"])
def test_an_application_that_takes_no_notice_of_its_clients_end_is_killed_after_reload_mercy(shop, number):
    instance = shop("--reload-mercy", "1")
    old = int(instance.body("/pid"))
    client = ask(instance, "/deaf")
    client.read_head()
    assert next(client.read_chunks()) == b"data: tick\n\n"
    drain(instance, number)
    assert b"\r\n0\r\n" not in client.read_to_end()
    instance.wait_for_log(rf"^bolide: worker 1 \(pid {old}\) did not finish within 1 s \(reload-mercy\): killing it")
    see_the_end(instance, number)


def test_an_event_stream_whose_client_leaves_does_not_hold_up_a_reload(shop):
    instance = shop()
    client = ask(instance, "/events?one")
    client.read_head()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: ready: .* of generation 2 in")
    client.close()
    instance.wait_for_log("^events of one end$")
    instance.wait_for_generation(2)
    assert "reload-mercy" not in instance.log


def test_a_second_signal_stops_at_once(shop, tmp_path):
    instance = shop()
    client = ask(instance, f"/file?{tmp_path / 'never'}")
    instance.wait_for_log("^waits for")
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")

    def is_stopped_at_once():
        instance.send_signal(signal.SIGTERM)
        return "stopping immediately (a second signal)" in instance.log

    # A signal within a moment of the first counts as the same one.
    wait_until(is_stopped_at_once, "the second signal to count")
    assert instance.wait_for_exit() == 0
    assert client.is_closed()


def test_several_processes_serve_and_one_that_dies_is_replaced(shop):
    instance = shop("--processes", "3", alarms=True)
    clients, seen = [], set()

    def has_met_several():
        clients.append(instance.connect())
        seen.add(clients[-1].request(target="/pid").text)
        return len(seen) > 1

    wait_until(has_met_several, "several workers")
    assert seen <= {str(worker) for worker in instance.workers()}
    victim = int(clients[0].request(target="/pid").text)
    os.kill(victim, signal.SIGKILL)
    instance.wait_for_replacement(victim, count=3)
    assert instance.body() == "version-1"


def test_max_requests_replaces_a_worker_and_loses_no_request(shop):
    instance = shop("--max-requests", "50", "--min-worker-lifetime", "0")
    first = instance.worker()
    with Load(instance.address(), target="/sleep") as load:
        wait_until(lambda: first not in instance.workers(), "the worn worker's end")
        load.wait_for_more()
    assert load.losses == []


def test_after_kill_9_of_the_master_no_worker_is_left(shop, tmp_path):
    instance = shop("--processes", "2", alarms=True)
    instance.send_signal(signal.SIGKILL)
    instance.process.wait()
    instance.wait_until_gone()
