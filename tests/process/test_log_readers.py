"""A log without a reader blocks nothing, and no log line goes anywhere but to the log."""

import fcntl
import signal

import pytest
from support.server import Server
from support.waiting import TIMEOUT_SECONDS
from support_processes import descriptors_of

#: Request lines show 2 KB of a URI: these exceed a pipe plus the megabyte that may wait in memory.
LONG_TARGET = "/?" + "x" * 2000
MANY_REQUESTS = 1500
#: More than the pipe alone holds.
FILLING_REQUESTS = 60
#: So much text that adding to it takes longer than writing it.
ENDLESS_BYTES = 8 << 20


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_log_without_a_reader_blocks_no_request(threads, start):
    instance = start("--threads", threads, logging=True)
    client = instance.connect()
    instance.leave_log()
    for _ in range(MANY_REQUESTS):
        assert client.request("GET", LONG_TARGET).status == 200
    instance.read_log()
    instance.wait_for_log(r"^bolide: \d+ lines of process \d+ are lost here: the reader did not take them$")
    assert client.request("GET", "/pid/after").status == 200
    instance.wait_for_log("GET /pid/after ")
    # The lines of the others are whole: no line contains part of another.
    assert all(line.count(" => generated ") == 1 for line in instance.lines if LONG_TARGET in line)


def test_lines_that_wait_are_written_when_the_reader_is_back_though_nothing_else_happens(start):
    instance = start(logging=True)
    client = instance.connect()
    instance.leave_log()
    for number in range(FILLING_REQUESTS):
        assert client.request("GET", f"{LONG_TARGET}{number}").status == 200
    assert client.request("GET", "/pid/last").status == 200
    instance.read_log()
    instance.wait_for_log("GET /pid/last ")
    assert "are lost" not in instance.log


def test_a_log_without_a_reader_does_not_block_the_master(start):
    instance = start("--processes", "2", logging=True)
    before = set(instance.workers())
    client = instance.connect()
    instance.leave_log()
    for _ in range(FILLING_REQUESTS):
        assert client.request("GET", LONG_TARGET).status == 200
    # A status of four lines for each signal; then the master still reloads, and ends.
    for _ in range(50):
        instance.send_signal(signal.SIGUSR1)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_replacement(*before, count=2)
    instance.send_signal(signal.SIGTERM)
    instance.process.wait(timeout=TIMEOUT_SECONDS)
    instance.read_log()
    assert instance.wait_for_exit() == 0


@pytest.mark.parametrize("threads", ["1", "4"])
def test_no_line_of_the_log_goes_to_a_client_after_the_application_closed_descriptor_2(threads, start):
    instance = start("--threads", threads, logging=True)
    with instance.connect() as client:
        assert client.request("GET", "/close/2").text == "closed"
    clients = [instance.connect() for _ in range(8)]
    for number in range(3):
        for client in clients:
            answer = client.request("GET", f"/pid/{number}")
            assert (answer.status, answer.text) == (200, str(instance.worker()))
    open_now = descriptors_of(instance.worker())
    assert all(not target.startswith("socket:") for number, target in open_now.items() if number < 3)
    instance.wait_for_log("GET /pid/2 ", count=8)


def test_a_log_that_grows_without_end_does_not_hold_up_the_test_that_reads_it(tmp_path):
    instance = Server(tmp_path, arguments=[], command=["yes"]).launch()
    # A read takes less than this, so there is always more.
    fcntl.fcntl(instance.process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
    instance.wait_for(lambda: len(instance.raw_log) >= ENDLESS_BYTES, "the log has grown")
    instance.send_signal(signal.SIGKILL)
    instance.wait_for_exit()
