"""The end of an instance on request: gracefully, immediately, and always with status 0 and nothing left."""

import itertools
import signal
import socket
import time

import pytest
from support.client import Client
from support.waiting import TIMEOUT_SECONDS, assert_once_below, wait_until
from support_instance import port_is_free

#: How long a draining worker would wait for the next request on an idle connection, in seconds; shutdown does not.
DRAIN_SECONDS = 2


def hold(instance, tmp_path, name="gate", address=None):
    """Returns a request that stays in the application until a file exists, as its connection and the file."""
    gate = tmp_path / name
    client = instance.connect(address)
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    return client, gate


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_instance_stops_with_status_0(number, start, free_port):
    port = free_port()
    instance = start("--processes", "2", socket=f"127.0.0.1:{port}")
    assert instance.stop(number) == 0
    assert instance.processes() == []
    assert port_is_free(port)
    instance.wait_for_text("bolide: stop: completing requests in flight")


def test_a_stop_closes_idle_kept_alive_connections_at_once(start):
    def seconds_of_a_stop():
        instance = start("--processes", "2", "--threads", "2")
        clients = [instance.connect() for _ in range(8)]
        for client in clients:
            assert not client.request().says_close
        began = time.monotonic()
        instance.send_signal(signal.SIGTERM)
        assert all(client.is_closed() for client in clients)
        assert instance.wait_for_exit() == 0
        return time.monotonic() - began

    assert_once_below(seconds_of_a_stop, DRAIN_SECONDS)


@pytest.mark.parametrize(
    "options", [(), ("--threads", "4"), ("--gevent", "50", "--gevent-monkey-patch")], ids=["1", "4", "gevent"]
)
def test_a_stop_finishes_the_request_in_flight(options, start, tmp_path):
    names = itertools.count()

    def seconds_from_the_answer_to_the_end():
        instance = start(*options)
        client, gate = hold(instance, tmp_path, f"gate-{next(names)}")
        instance.send_signal(signal.SIGTERM)
        instance.wait_for_log("^bolide: stop: ")
        gate.touch()
        answer = client.read_response()
        assert (answer.status, answer.text) == (200, "waited")
        answered = time.monotonic()
        assert instance.wait_for_exit() == 0
        return time.monotonic() - answered

    assert_once_below(seconds_from_the_answer_to_the_end, DRAIN_SECONDS)


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

    def is_stopped_at_once():
        instance.send_signal(signal.SIGTERM)
        return "stopping immediately (a second signal)" in instance.log

    # A signal within a moment of the first counts as the same one.
    wait_until(is_stopped_at_once, "the second signal to count")
    assert client.is_closed()
    assert instance.wait_for_exit() == 0
    instance.wait_for_log(r"killing worker \d \(pid \d+\) while it serves GET /wait")


def test_a_signal_twice_in_a_moment_counts_once(start, tmp_path):
    instance = start("--processes", "2")
    client, gate = hold(instance, tmp_path)
    # Like a supervisor that signals the process and its group: two signals, because a pending one is not queued twice.
    with instance.looks_away():
        # The moment is short, and this process may have to wait between the two.
        instance.send_signal(signal.SIGTERM)
        instance.send_signal(signal.SIGINT)
    instance.wait_for_log("^bolide: stop: waiting for 1 request: GET /wait.*; a second SIGTERM stops immediately$")
    gate.touch()
    assert client.read_response().status == 200
    assert instance.wait_for_exit() == 0
    assert "stopping immediately (" not in instance.log
    assert instance.lines[-1].startswith("bolide: stopped after ")


def test_sigquit_stops_at_once(start, tmp_path):
    instance = start("--processes", "2")
    client, _ = hold(instance, tmp_path)
    assert instance.stop(signal.SIGQUIT) == 0
    assert client.is_closed()
    instance.wait_for_text("stopping immediately (SIGQUIT)")


@pytest.mark.parametrize("option", ["--reload-mercy", "--worker-reload-mercy"])
def test_reload_mercy_bounds_the_wait_for_a_request_that_does_not_end(option, start, tmp_path):
    instance = start(option, "1")
    client, _ = hold(instance, tmp_path)
    assert instance.stop() == 0
    assert client.is_closed()
    instance.wait_for_log(
        r"^bolide: worker 1 \(pid \d+\) did not finish within 1 s \(reload-mercy\): killing it while .* GET /wait"
    )


@pytest.mark.parametrize("master", [True, False], ids=["prototype", "worker"])
def test_a_stop_while_the_application_is_loaded_ends_it(master, start, tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(300)\n")
    instance = start(module="slow", ready=False, master=master)
    instance.wait_for_log("^loading$")
    assert instance.stop() == 0
    # The timeout was not reached.
    assert "reload-mercy" not in instance.log


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
    instance.wait_for_log(r"^bolide: status: worker \d \(pid \d+\): Serving, generation 1, \d+ requests?, idle")


#: The client of each kind of socket that the master binds.
PLACES = {"TCP": "127.0.0.1:0", "UNIX": "app.sock"}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("threads", ["1", "4"])
def test_during_a_stop_new_clients_are_refused_at_once(threads, place, start, tmp_path):
    instance = start("--threads", threads, socket=place)
    address = instance.address() if place.endswith(":0") else str(tmp_path / "app.sock")
    client, gate = hold(instance, tmp_path, address=address)
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    # The request in flight is still running: new connections are refused.
    wait_until(lambda: is_refused(address), "a refusal")
    gate.touch()
    assert client.read_response().text == "waited"
    assert instance.wait_for_exit() == 0


def is_refused(address):
    try:
        Client(address).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    return False


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_stop_answers_connections_that_wait_to_be_accepted(processes, start, tmp_path):
    instance = start("--processes", processes)
    held = [hold(instance, tmp_path, f"gate-{number}") for number in range(int(processes))]
    # Every worker is busy: these are in the kernel's queue, with their requests.
    waiting = [instance.connect() for _ in range(20)]
    for client in waiting:
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    for client, gate in held:
        gate.touch()
        assert client.read_response().text == "waited"
    assert all(client.read_response().status == 200 for client in waiting)
    assert instance.wait_for_exit() == 0


def test_a_stop_under_a_burst_of_new_clients_resets_no_accepted_connection(start):
    instance = start("--processes", "2")
    clients = [instance.connect() for _ in range(100)]
    for client in clients:
        client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    instance.send_signal(signal.SIGTERM)
    assert all(client.read_response().status == 200 for client in clients)
    assert instance.wait_for_exit() == 0


def test_a_socket_that_was_handed_down_is_not_shut_with_the_instance(start):
    with socket.create_server(("127.0.0.1", 0)) as handed:
        number = handed.fileno()
        instance = start(socket=f"fd://{number}", kept=[number])
        assert instance.stop() == 0
        # Its owner keeps using it, with the connections that arrived in the meantime.
        with Client(handed.getsockname()):
            handed.settimeout(TIMEOUT_SECONDS)
            handed.accept()[0].close()


#: How long a worker waits at shutdown for the rest of a request, in seconds; `reload-mercy` is far longer here.
ARRIVAL_SECONDS = 5
MERCY_SECONDS = 300


#: The beginnings of a head and of a body, which never end.
PARTS = {
    "head": b"GET / HTTP/1.1\r\nX: ",
    "body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_request_that_drips_in_does_not_cost_the_whole_mercy(part, start):
    instance = start("--reload-mercy", str(MERCY_SECONDS))
    client = instance.connect()
    client.send(part)
    assert instance.body() == str(instance.worker())
    instance.send_signal(signal.SIGTERM)
    # One more byte every moment, as long as the server reads.
    while instance.process.poll() is None and client.send(b"x"):
        client.socket.settimeout(0.2)
        try:
            if not client.receive():
                break
        except TimeoutError:
            pass
    assert instance.wait_for_exit() == 0
    assert "reload-mercy): killing it" not in instance.log


@pytest.mark.parametrize("processes", ["1"])
def test_an_interpreter_that_does_not_end_has_a_few_seconds_and_not_the_whole_mercy(processes, start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import threading, time\nfrom probe import application as probe\n"
        "def application(environ, start_response):\n"
        "    threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "    return probe(environ, start_response)\n"
    )
    instance = start("--reload-mercy", str(MERCY_SECONDS), "--processes", processes, module="shop")
    instance.body()
    assert instance.stop() == 0
    assert "reload-mercy): killing it" not in instance.log


def test_a_prototypes_interpreter_that_does_not_end_has_a_few_seconds_and_not_the_whole_mercy(start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import atexit, ctypes, os\nfrom probe import application\nprototype = os.getpid()\n"
        # A library function that holds the GIL, so that the interpreter's own timer cannot run.
        "atexit.register(lambda: os.getpid() == prototype and ctypes.PyDLL(None).sleep(300))\n"
    )
    instance = start("--reload-mercy", str(MERCY_SECONDS), module="shop", alarms=True)
    assert instance.stop() == 0
    assert "the prototype of generation 1" in instance.lines[-2]


LATE = """\
import atexit, os, time
open({directory!r} + "/loading", "w").close()
while os.path.exists({directory!r} + "/gate"):
    time.sleep(0.01)
atexit.register(time.sleep, 4)
def application(environ, start_response):
    start_response("200 OK", [])
    return [b"ok"]
"""


def test_a_worker_that_begins_to_serve_while_it_is_being_stopped_has_the_time_of_one_that_serves(start, tmp_path):
    (tmp_path / "late.py").write_text(LATE.format(directory=str(tmp_path)))
    (tmp_path / "gate").touch()
    instance = start("--pythonpath", tmp_path, "--lazy-apps", module="late", ready=False, alarms=True)
    wait_until((tmp_path / "loading").exists, "the application to be loaded")
    instance.send_signal(signal.SIGTERM)
    instance.wait_for_log("^bolide: stop: ")
    (tmp_path / "gate").unlink()
    assert instance.wait_for_exit() == 0
    # It ends by itself, or is reported as too slow to serve; the log never says that it had a minute.
    assert "did not finish within" not in instance.log
