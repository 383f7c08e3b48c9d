"""How an instance ends when it is told to: gracefully, at once, and always with status 0 and nothing left."""

import signal
import time

import pytest
from support.waiting import wait_until
from support_instance import port_is_free

#: How long a draining worker would wait for a next request on an idle connection, in seconds; a stop does not.
DRAIN_SECONDS = 2


def hold(instance, tmp_path, name="gate"):
    """A request that is in the application until the file is made that this returns with its connection."""
    gate = tmp_path / name
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    return client, gate


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_instance_stops_with_status_0(number, start):
    instance = start("--processes", "2")
    port = instance.port
    assert instance.stop(number) == 0
    assert instance.processes() == []
    assert port_is_free(port)
    assert "bolide: stop: requests in flight are finished" in instance.log


def test_a_stop_closes_idle_kept_alive_connections_at_once(start):
    instance = start("--processes", "2", "--threads", "2")
    clients = [instance.connect() for _ in range(8)]
    for client in clients:
        assert not client.request().says_close
    began = time.monotonic()
    instance.send_signal(signal.SIGTERM)
    assert all(client.is_closed() for client in clients)
    assert instance.wait_for_exit() == 0
    assert time.monotonic() - began < DRAIN_SECONDS


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_stop_finishes_the_request_in_flight(threads, start, tmp_path):
    instance = start("--threads", threads)
    client, gate = hold(instance, tmp_path)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    gate.touch()
    answer = client.read_response()
    assert (answer.status, answer.text) == (200, "waited")
    answered = time.monotonic()
    assert instance.wait_for_exit() == 0
    assert time.monotonic() - answered < DRAIN_SECONDS


def test_a_stop_finishes_a_request_whose_body_still_comes(start):
    instance = start()
    client = instance.connect()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345")
    # The worker has read that once it answers another connection which came later.
    instance.body()
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    client.send(b"67890")
    assert client.read_response().status == 200
    assert client.is_closed()
    assert instance.wait_for_exit() == 0


def test_a_second_signal_stops_at_once(start, tmp_path):
    instance = start("--processes", "2")
    client, _ = hold(instance, tmp_path)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    assert instance.stop(signal.SIGTERM) == 0
    assert client.is_closed()
    assert "stop at once (a second signal)" in instance.log
    assert "is killed while it serves GET /wait" in instance.log


def test_sigquit_stops_at_once(start, tmp_path):
    instance = start("--processes", "2")
    client, _ = hold(instance, tmp_path)
    assert instance.stop(signal.SIGQUIT) == 0
    assert client.is_closed()
    assert "stop at once (SIGQUIT)" in instance.log


@pytest.mark.parametrize("option", ["--reload-mercy", "--worker-reload-mercy"])
def test_reload_mercy_bounds_the_wait_for_a_request_that_does_not_end(option, start, tmp_path):
    instance = start(option, "1")
    client, _ = hold(instance, tmp_path)
    assert instance.stop() == 0
    assert client.is_closed()
    instance.wait_for_log(
        r"^bolide: worker 1 \(pid \d+\) has not finished within 1 s \(reload-mercy\), and is killed while .* GET /wait"
    )


def test_a_stop_while_the_application_is_loaded_ends_it(start, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance = start(module="slow", ready=False)
    instance.wait_for_log("^loading$")
    assert instance.stop() == 0


def test_a_stop_while_a_reload_goes_on_ends_both_generations(start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start(module="shop")
    (tmp_path / "shop.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$")
    assert instance.stop() == 0


def test_a_thread_that_the_application_left_running_does_not_keep_a_worker(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import threading, time\nfrom probe import application as probe\n"
        "def application(environ, start_response):\n"
        "    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
        "    return probe(environ, start_response)\n"
    )
    instance = start(module="shop")
    instance.body()
    assert instance.stop() == 0
    assert "reload-mercy" not in instance.log


def test_sigusr1_writes_the_state_of_each_process(start, tmp_path):
    instance = start("--processes", "2")
    hold(instance, tmp_path)
    instance.send_signal(signal.SIGUSR1)
    instance.wait_for_log(r"^bolide: status: worker \d \(pid \d+\): Serving, generation 1, \d+ requests, GET /wait\?")
    instance.wait_for_log(r"^bolide: status: worker \d \(pid \d+\): Serving, generation 1, \d+ requests, idle")
