"""`harakiri`: a worker whose request takes too long is killed, and the log shows where it was stuck."""

import re
import signal
import threading

import pytest
from support.client import Closed
from support.waiting import wait_until
from support_load import Load

LIMIT = ("--harakiri", "3")


def test_harakiri_kills_the_worker_names_the_request_and_shows_its_python_stack(start):
    instance = start("--processes", "2", *LIMIT)
    before = set(instance.workers())
    with Load(instance.address()) as load, pytest.raises(Closed):
        instance.connect().request("GET", "/stuck/300")
    (killed,) = wait_until(lambda: before - set(instance.workers()), "the end of the worker")
    said = instance.wait_for_log(rf"^bolide: harakiri: killing worker \d \(pid {killed}\) while it serves (.*)$")
    assert re.match(r"GET /stuck/300 \(for [1-9]", said[1])
    asked = instance.log.index(f"(pid {killed}) serves GET /stuck/300")
    stack = instance.log.index("in stuck_in_the_database")
    assert asked < stack < said.start()
    instance.wait_for_text("the limit is 3 s; its Python stack:")
    wait_until(lambda: len(set(instance.workers()) - before) == 1, "the replacement")
    # Others continue: each client has lost at most its one request on the killed worker.
    assert load.answers > len(load.losses)
    assert len(load.losses) <= 5


def test_harakiri_leaves_requests_within_the_time_alone(start):
    instance = start("--harakiri", "20")
    worker = str(instance.worker())
    with Load(instance.address(), kept_alive=1, fresh=1, target="/sleep/0.3") as load:
        load.wait_for_more(12)
    assert load.losses == []
    assert set(load.bodies) == {worker}
    assert "harakiri" not in instance.whole_log()


def test_harakiri_counts_from_the_start_of_each_request_on_a_kept_alive_connection(start):
    instance = start("--harakiri", "5")
    client = instance.connect()
    bodies = {client.request("GET", "/sleep/1").text for _ in range(6)}
    assert bodies == {str(instance.worker())}
    assert "harakiri" not in instance.whole_log()


def test_harakiri_with_threads_shows_the_stack_of_the_thread_that_is_stuck(start, tmp_path):
    # The short requests beside it must stay within the limit.
    instance = start("--threads", "4", "--harakiri", "5")
    client = instance.connect()
    client.send(b"GET /stuck/300 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: instance.body("/sleep/0.1").isdigit(), "an answer beside it")

    def keep_asking():
        while instance.process.poll() is None and "killing worker" not in instance.log:
            try:
                instance.get("/sleep/0.2")
            except (Closed, OSError):
                return

    others = [threading.Thread(target=keep_asking) for _ in range(2)]
    for other in others:
        other.start()
    said = instance.wait_for_log(r"^bolide: harakiri: killing worker 1 \(pid \d+\) while it serves (.*)$")
    for other in others:
        other.join()
    assert re.match(r"GET /stuck/300 \(for ([5-9]|\d\d)", said[1])
    stack = instance.log.split("its Python stack:", 1)[1].split("bolide: harakiri:", 1)[0]
    assert "in stuck_in_the_database" in stack
    assert "do_sleep" not in stack


def test_a_request_that_never_returns_to_python_is_killed_all_the_same(start, tmp_path):
    # An endless expression, in C and with the GIL held: no other Python thread of the worker could run.
    (tmp_path / "shop.py").write_text(
        "import re\nfrom probe import application as probe\n"
        "def hold_the_lock():\n    re.match('(a+)+$', 'a' * 60 + 'b')\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/hold':\n        hold_the_lock()\n"
        "    return probe(environ, start_response)\n"
    )
    instance = start("--processes", "2", *LIMIT, module="shop")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/hold")
    instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /hold \(for [1-9]")
    instance.wait_for_text("in hold_the_lock")


def test_harakiri_ends_a_stuck_request_during_a_reload_too(start, tmp_path):
    instance = start("--harakiri", "2")
    client = instance.connect()
    client.send(f"GET /wait?{tmp_path / 'never'} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until((tmp_path / "never.waiting").exists, "the application to have the request")
    instance.reload(2)
    assert client.is_closed()
    instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /wait")


def test_a_handler_can_break_a_request_off_within_harakiri_graceful_timeout(start, tmp_path):
    (tmp_path / "graceful.py").write_text(
        "import os, signal, time\n"
        "def late(number, frame):\n    raise TimeoutError\n"
        "signal.signal(signal.SIGRTMIN, late)\n"
        "def application(environ, start_response):\n"
        "    status = '200 OK'\n"
        "    try:\n"
        "        time.sleep(60 if environ['PATH_INFO'] == '/stuck' else 0)\n"
        "    except TimeoutError:\n"
        "        status = '503 Late'\n"
        "    start_response(status, [])\n"
        "    return [str(os.getpid()).encode()]\n"
    )
    number = int(signal.SIGRTMIN)
    instance = start(*LIMIT, "--harakiri-graceful-timeout", "30", "--harakiri-graceful-signal", number, module="graceful")
    worker = str(instance.worker())
    answer = instance.get("/stuck")
    assert (answer.status, answer.text) == (503, worker)
    assert instance.body() == worker
    instance.wait_for_log(
        r"harakiri: sending SIGRTMIN\+0 to worker 1 \(pid \d+\), killing it in 30 s \(harakiri-graceful-timeout\)"
    )


def test_a_worker_that_does_not_end_within_harakiri_graceful_timeout_is_killed(start):
    instance = start("--processes", "2", *LIMIT, "--harakiri-graceful-timeout", "1")
    with pytest.raises(Closed):
        instance.connect().request("GET", "/stuck/300")
    killed = instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /stuck/300 \(for ")
    assert instance.log.index("killing it in 1 s (harakiri-graceful-timeout)") < killed.start()
    wait_until(lambda: len(instance.workers()) == 2, "the replacement")


def test_harakiri_spares_a_request_without_others_queued_behind_it(start, tmp_path):
    instance = start(*LIMIT, "--harakiri-queue-threshold", "3")
    assert instance.body("/sleep/5.5") == str(instance.worker())
    gate = tmp_path / "gate"
    stuck = instance.connect()
    stuck.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    for _ in range(3):
        instance.connect().send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert stuck.is_closed()
    instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /wait")
