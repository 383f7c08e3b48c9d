"""The address of `stats`: correct content for every client, however badly it behaves."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import time
import uuid

import pytest
from support import processes
from support.statistics import connect, read_raw, read_statistics, worker_of
from support.waiting import TIMEOUT_SECONDS, wait_until

MEBIBYTE = 1024 * 1024


def address_of(instance):
    """Returns the address of the statistics from the startup messages."""
    found = instance.wait_for_log(r"^bolide: statistics at (\S+?)(?:, over HTTP)?$")[1]
    host, colon, port = found.rpartition(":")
    return (host, int(port)) if colon else found


@pytest.fixture
def serve(start):
    """Starts an instance with statistics. Returns it, and their address."""

    def serve(*arguments, stats="127.0.0.1:0", **options):
        instance = start("--stats", stats, *arguments, **options)
        return instance, address_of(instance)

    return serve


def test_requests_bytes_times_and_exceptions_are_counted(serve):
    instance, address = serve(alarms=True)
    before = worker_of(address)
    assert (before["requests"], before["tx"], before["running_time"]) == (0, 0, 0)
    for _ in range(3):
        instance.body("/sleep/0.05")
    instance.get("/no-such-function")
    worker = wait_until(lambda: (found := worker_of(address))["requests"] == 4 and found, "four requests")
    assert (worker["delta_requests"], worker["exceptions"], worker["status"], worker["accepting"]) == (4, 1, "idle", 1)
    assert worker["running_time"] >= 3 * 50_000
    assert 0 < worker["avg_rt"] <= worker["running_time"]
    assert worker["tx"] > 4 * 60
    (application,) = worker["apps"]
    assert (application["requests"], application["exceptions"], application["mountpoint"]) == (4, 1, "")


def test_a_request_in_flight_is_reported_with_its_line_and_start_time(serve, tmp_path):
    instance, address = serve("--threads", "2")
    gate = tmp_path / "gate"
    with instance.connect() as client:
        client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        worker = wait_until(lambda: (found := worker_of(address))["status"] == "busy" and found, "a busy worker")
        (core,) = [core for core in worker["cores"] if core["in_request"]]
        assert {"REQUEST_METHOD=GET", "PATH_INFO=/wait", f"REQUEST_URI=/wait?{gate}"} <= set(core["vars"])
        assert abs(core["req_info"]["request_start"] - time.time()) < 600
        assert len(worker["cores"]) == 2
        gate.touch()
        client.read_response()
    wait_until(lambda: worker_of(address)["status"] == "idle", "an idle worker")


def test_requests_that_an_asynchronous_application_has_in_its_hands_make_a_worker_busy(start, tmp_path):
    (tmp_path / "waiting.py").write_text(
        "import asyncio, os\n"
        "async def application(scope, receive, send):\n"
        "    if scope['type'] != 'http': raise ValueError\n"
        "    while not os.path.exists(scope['query_string'].decode()): await asyncio.sleep(0.01)\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'yes'})\n"
    )
    instance = start("--stats", "127.0.0.1:0", "--interface", "asgi", module="waiting")
    address = address_of(instance)
    gate = tmp_path / "gate"
    with instance.connect() as first, instance.connect() as second:
        for client in (first, second):
            client.send(f"GET /?{gate} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        worker = wait_until(lambda: (found := worker_of(address))["cores"][0]["in_request"] == 2 and found, "two requests")
        assert (worker["status"], worker["requests"]) == ("busy", 0)
        gate.touch()
        first.read_response()
        second.read_response()
    worker = wait_until(lambda: (found := worker_of(address))["requests"] == 2 and found, "two answers")
    assert (worker["status"], worker["cores"][0]["in_request"], worker["apps"][0]["requests"]) == ("idle", 0, 2)


def test_files_and_routes_are_counted_apart_from_the_application(serve, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("hello")
    arguments = ["--static-map", f"/files={tmp_path}/files", "--route", "^/gone redirect:/"]
    instance, address = serve(*arguments)
    for target, status in (("/files/a.txt", 200), ("/gone", 302), ("/pid", 200)):
        assert instance.get(target).status == status
    worker = wait_until(lambda: (found := worker_of(address))["requests"] == 3 and found, "three requests")
    (core,) = worker["cores"]
    assert (core["requests"], core["static_requests"], core["routed_requests"]) == (3, 1, 1)
    assert worker["apps"][0]["requests"] == 1


def test_clients_that_break_off_are_errors_of_reading_and_of_writing(serve):
    instance, address = serve()
    with instance.connect() as client:
        client.send(b"POST /pid HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this")
    wait_until(lambda: worker_of(address)["cores"][0]["read_errors"] == 1, "an error of reading")
    with instance.connect() as client:
        client.send(b"GET /bytes/67108864 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.read_exactly(1000)
    wait_until(lambda: worker_of(address)["cores"][0]["write_errors"] == 1, "an error of writing")


def test_the_numbers_of_a_worker_go_on_when_its_process_is_replaced(serve):
    instance, address = serve("--harakiri", "4", alarms=True)
    for _ in range(3):
        instance.body()
    first = wait_until(lambda: (found := worker_of(address))["requests"] == 3 and found, "three requests")
    with instance.connect() as client:
        client.send(b"GET /sleep/60 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.read_to_end()
    second = wait_until(lambda: (found := worker_of(address))["pid"] not in (0, first["pid"]) and found, "its replacement")
    assert (second["requests"], second["delta_requests"], second["harakiri_count"], second["respawn_count"]) == (3, 0, 1, 2)
    assert second["last_spawn"] >= first["last_spawn"]
    assert second["tx"] == first["tx"]
    wait_until(lambda: worker_of(address)["accepting"] == 1, "the replacement serves")
    instance.body()
    instance.reload(2)
    third = wait_until(lambda: (found := worker_of(address))["pid"] not in (0, second["pid"]) and found, "the next generation")
    assert (third["requests"], third["respawn_count"]) == (4, 3)


def test_memory_and_processes_are_those_that_the_kernel_tells(serve):
    instance, address = serve("--processes", "2")
    told = read_statistics(address)
    assert sorted(worker["pid"] for worker in told["workers"]) == sorted(instance.workers())
    assert (told["pid"], told["uid"], told["gid"], told["cwd"]) == (
        instance.pid,
        os.getuid(),
        os.getgid(),
        str(instance.directory),
    )
    for worker in told["workers"]:
        assert MEBIBYTE < worker["rss"] <= worker["vsz"]
        assert abs(worker["last_spawn"] - time.time()) < 6000


def test_queued_connections_are_counted_and_a_full_queue_is_logged(serve, tmp_path):
    instance, address = serve("--listen", "2")
    gate = tmp_path / "gate"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(instance.connect())
        busy.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_until(lambda: os.path.exists(f"{gate}.waiting"), "the worker is busy")
        for _ in range(3):
            stack.enter_context(instance.connect())
        told = wait_until(lambda: (found := read_statistics(address))["listen_queue"] == 3 and found, "three wait")
        (listener,) = told["sockets"]
        assert (listener["queue"], listener["max_queue"], listener["proto"], told["load"]) == (3, 2, "http", 3)
        assert listener["name"] == f"127.0.0.1:{instance.port}"
        wait_until(lambda: read_statistics(address)["listen_queue_errors"] >= 2, "it is counted")
        line = re.escape(f'listen queue of socket "127.0.0.1:{instance.port}" full (3/2)')
        assert len(re.findall(line, instance.log)) == 1
        gate.touch()
        busy.read_response()
    wait_until(lambda: read_statistics(address)["listen_queue"] == 0, "nobody waits")


def test_clients_of_http_are_answered_in_it_and_the_file_has_the_mode_of_sockets(serve, tmp_path):
    _, address = serve("--stats-http", "--stats-minified", "--stats-no-cores", "--chmod-socket=600", stats=f"{tmp_path}/stats")
    assert stat.S_IMODE(os.stat(address).st_mode) == 0o600
    head, _, body = read_raw(address, b"GET /any HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.0 200 OK"
    assert {"Content-Type: application/json", "Access-Control-Allow-Origin: *", f"Content-Length: {len(body)}"} <= set(lines)
    assert b"\n" not in body
    assert "cores" not in json.loads(body)["workers"][0]
    assert read_raw(address, b"HEAD / HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")


def test_abstract_names_are_served_and_the_file_of_a_path_goes_with_the_instance(serve, start, tmp_path):
    name = f"@bolide-stats-{uuid.uuid4().hex}"
    _, address = serve(stats=name)
    assert address == name
    assert read_statistics(name)["workers"][0]["id"] == 1
    instance = start("--stats", f"{tmp_path}/stats", "--vacuum")
    assert read_statistics(address_of(instance))["pid"] == instance.pid
    assert instance.stop() == 0
    assert not os.path.exists(tmp_path / "stats")


def test_an_address_that_can_not_be_had_is_an_error_that_says_where_it_was_asked_for(start, fail, tmp_path):
    (tmp_path / "stats").write_text("no socket")
    (tmp_path / "uwsgi.ini").write_text("[uwsgi]\nhttp-socket = 127.0.0.1:0\nmodule = probe\nstats = stats\n")
    status, lines = fail("uwsgi.ini")
    assert status == 1
    assert re.search(r"not started: uwsgi.ini:4: stats: \S+stats exists and is not a socket", lines[-1]), lines


def test_a_thousand_stalled_clients_block_no_other_client_and_delay_no_fork(serve):
    instance, address = serve("--stats-http", alarms=True)
    with contextlib.ExitStack() as stack:
        # Some send nothing, some half of a request, some garbage, and some do not read.
        said = [b"", b"GET / HTT", b"\x00\xff" * 1500, b"GET / HTTP/1.0\r\n\r\n"]
        for number in range(1000):
            client = stack.enter_context(connect(address))
            with contextlib.suppress(ConnectionError):
                client.sendall(said[number % len(said)])
        worker = instance.worker()
        processes.kill(worker)
        wait_until(lambda: [pid for pid in instance.workers() if pid != worker], "the fork of the next worker")
        assert instance.body() == str(instance.worker())

        def told():
            answer = read_raw(address, b"GET / HTTP/1.0\r\n\r\n")
            return json.loads(answer.partition(b"\r\n\r\n")[2])["workers"][0]["pid"]

        # A worker may answer before the master has its pid.
        wait_until(lambda: told() == instance.worker(), "the pid of the next worker")
        instance.send_signal(signal.SIGUSR1)
        instance.wait_for_log("^bolide: status: generation in service: 1, ")
        descriptors = len(os.listdir(f"/proc/{instance.pid}/fd"))
        assert descriptors < 150, f"the master has {descriptors} descriptors"
    wait_until(lambda: len(os.listdir(f"/proc/{instance.pid}/fd")) < 20, "all of them are closed")


def test_readers_that_take_nothing_of_a_long_answer_are_let_go(serve):
    instance, address = serve("--processes", "8", "--threads", "64")
    with contextlib.ExitStack() as stack:
        before = len(os.listdir(f"/proc/{instance.pid}/fd"))
        stalled = [stack.enter_context(connect(address)) for _ in range(20)]
        assert len(read_statistics(address)["workers"]) == 8
        wait_until(lambda: len(os.listdir(f"/proc/{instance.pid}/fd")) <= before, "their time is over")
        assert all(client.fileno() > 0 for client in stalled)


def test_the_status_signal_writes_the_same_numbers(serve):
    instance, address = serve()
    instance.body()
    wait_until(lambda: worker_of(address)["requests"] == 1, "it is counted")
    instance.send_signal(signal.SIGUSR1)
    line = r"^bolide: status: worker 1 \(pid \d+\): Serving, generation 1, 1 request, idle; 0 exceptions, \d+ MiB$"
    instance.wait_for_log(line)


def test_statsd_receives_each_number_and_the_increments_of_counters(start):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(TIMEOUT_SECONDS)
        port = collector.getsockname()[1]
        instance = start("--stats-push", f"statsd:127.0.0.1:{port},shop", "--stats-pusher-default-freq", "1")
        for _ in range(3):
            instance.body()
        told = []

        def grown():
            return sum(
                int(line[len("shop.worker.1.requests:") : -len("|c")]) for line in told if "shop.worker.1.requests:" in line
            )

        def has_memory():
            return any(re.fullmatch(r"shop\.core\.total_rss:[1-9]\d+\|g", line) for line in told)

        while grown() < 3 or not has_memory():
            told.append(collector.recv(65536).decode())
        assert grown() == 3
        assert all(re.fullmatch(r"shop\.[a-z_0-9.]+:\d+\|[cg]", line) for line in told), told


def test_a_file_is_appended_the_json_again_and_again(start, tmp_path):
    instance = start("--stats-push", "file:path=numbers,freq=1", "--stats-minified")
    instance.body()
    numbers = tmp_path / "numbers"
    wait_until(lambda: numbers.exists() and numbers.read_text().count("\n\n") >= 2, "two pushes")
    first, second = numbers.read_text().split("\n\n")[:2]
    assert json.loads(first)["pid"] == json.loads(second)["pid"] == instance.pid
    assert stat.S_IMODE(numbers.stat().st_mode) == 0o640


def test_a_place_that_is_not_known_is_refused_with_what_to_use(fail):
    status, lines = fail("--http-socket", "127.0.0.1:0", "--module", "probe", "--stats-push", "mongodb:addr=127.0.0.1:5151")
    assert status != 0
    assert "statistics can't be sent to `mongodb`" in "\n".join(lines)
    assert "statsd:ADDRESS,PREFIX" in "\n".join(lines)


def test_reloads_are_counted_and_the_reason_of_the_last_failure_is_reported(serve, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance, address = serve(module="shop")
    told = read_statistics(address)
    assert (told["reloads"], told["failed_reloads"], told["last_reload"]) == (0, 0, {})
    (tmp_path / "shop.py").write_text("raise RuntimeError('no database')\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 2 could not be loaded")
    told = wait_until(lambda: (found := read_statistics(address))["failed_reloads"] == 1 and found, "the failure")
    assert told["reloads"] == 0
    assert told["last_reload"]["outcome"] == "failed"
    assert told["last_reload"]["why"] == "generation 2 could not be loaded (RuntimeError: no database)"
    assert abs(told["last_reload"]["at"] - time.time()) < 600
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance.reload(3)
    told = wait_until(lambda: (found := read_statistics(address))["reloads"] == 1 and found, "the reload")
    assert (told["failed_reloads"], told["last_reload"]["outcome"], told["last_reload"]["why"]) == (1, "done", "")
