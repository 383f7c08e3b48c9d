"""Blocked event loops and endless requests: the log lines about them, and which process is killed."""

import contextlib
import itertools
import re
import time
from pathlib import Path

import pytest
from support.client import Closed
from support.waiting import wait_until

LOOPS = ["asyncio", "uvloop"]

#: Maximum number of times that a test blocks the loop for one report, and the wait for it after each, in seconds.
MAX_BLOCKS = 6
REPORT_SECONDS = 5

#: The `harakiri` of the shared server, in seconds.
HARAKIRI_SECONDS = 1


@pytest.fixture
def stuck(serve):
    """``stuck("loop-stall = 0.2")`` serves tests/apps/asgi_stuck.py."""

    def stuck(*lines):
        server = serve("\n".join(["asgi = {apps}/asgi_stuck.py", "chdir = {directory}", *lines]))
        # Some of these tests kill a worker on purpose.
        server.expects_alarms = True
        return server

    return stuck


def send(server, target):
    client = server.connect()
    client.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def pid_of(server):
    return int(server.get("/pid").text)


def block(server, condition, what, path="block"):
    """Blocks the loop, again if needed, until a condition on the log holds; returns how often.

    A busy machine may not run the thread that watches the loop before the loop runs again.
    """
    for times in range(1, MAX_BLOCKS + 1):
        assert server.get(f"/{path}").text == "blocked"
        with contextlib.suppress(AssertionError):
            server.wait_for(condition, what, REPORT_SECONDS)
            return times
    raise AssertionError(f"not after {MAX_BLOCKS} times: {what}; the log:\n{server.log}")


def stalls(server, words=""):
    """Returns the log of each stall that is over, from its announcement to its end, if these words are in it."""
    pattern = (
        r"^bolide: worker 1: the event loop has been blocked for \d+\.\d s, here:\n"
        r"(.*?)^bolide: worker 1: the event loop runs again, after \d+\.\d s$"
    )
    return [told for told in re.findall(pattern, server.log, re.MULTILINE | re.DOTALL) if words in told]


# loop-stall.


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", ["block", "hold_the_interpreter"])
def test_a_stuck_loop_is_told_with_the_stack_that_blocks_it(stuck, path, loop):
    server = stuck("loop-stall = 0.2", f"loop = {loop}")
    pid = pid_of(server)
    block(server, lambda: stalls(server, f"in {path}_here"), "the stall is told", path)
    # A busy machine may itself hold up the loop for so long, elsewhere.
    told = stalls(server, f"in {path}_here")[0]
    assert re.search(rf"File .*asgi_stuck\.py.*, line \d+ in {path}_here", told), told
    assert "in at_" in told
    assert pid_of(server) == pid


def test_the_tasks_that_wait_behind_it_are_named_with_the_line_where_they_wait(stuck):
    server = stuck("loop-stall = 0.2")
    for number in range(3):
        send(server, f"/wait?{number}")
        server.wait_for_log(f"^waits {number}$")
    waiting = r"^bolide: worker 1: \d+ tasks wait for the event loop, which has been blocked for \d+\.\d s$"
    block(server, lambda: re.search(waiting, server.log, re.MULTILINE), "the tasks are told")
    # Not the line of asyncio's own Event.wait().
    server.wait_for_log(r'^worker 1:   \S+: File ".*asgi_stuck\.py", line \d+, in wait_at_gate$', count=3)


@pytest.mark.parametrize("path", ["block", "hold_the_interpreter"])
def test_the_stack_stands_directly_behind_the_line_that_announces_it(stuck, path):
    server = stuck("loop-stall = 0.1")
    for number in range(4):
        send(server, f"/wait?order{number}")
        server.wait_for_log(f"^waits order{number}$")
    # A busy machine may itself hold up the loop for so long, elsewhere.
    here = f"in {path}_here"

    def is_behind(told):
        lines = told.splitlines()
        stack = itertools.takewhile(lambda line: line.startswith("  File "), lines[1:])
        is_stack = re.match(r"(Stack|Current thread|Thread) .*\(most recent call first\)", lines[0])
        return bool(is_stack) and any(here in line for line in stack)

    for count in range(1, 5):
        block(server, lambda count=count: sum(map(is_behind, stalls(server, here))) >= count, "the stall is told", path)
    # The stack is waited for 50 ms, in which a busy machine may not run the thread that has it.
    late = [told for told in stalls(server, here) if not is_behind(told)]
    assert len(late) <= 1, late


def test_many_tasks_are_counted_and_some_are_named(stuck):
    server = stuck("loop-stall = 0.2")
    server.get("/make_tasks?100")
    block(server, lambda: re.search(r"^bolide: worker 1: 10\d tasks wait", server.log, re.MULTILINE), "the tasks are told")
    server.wait_for_log(r"^worker 1:   and 8\d more$")


def test_a_stall_is_told_once_and_the_next_one_again(stuck):
    # A busy machine may delay the loop for a moment, but not for this long.
    server = stuck("loop-stall = 0.5")
    blocks = 0
    for count in (1, 2):
        blocks += block(server, lambda count=count: len(stalls(server)) >= count, "the stall is told")
        assert len(re.findall("has been blocked for .* s, here:", server.log)) <= blocks


def test_a_loop_that_turns_is_not_complained_of(stuck):
    server = stuck("loop-stall = 20")
    send(server, "/wait?long")
    server.wait_for_log("^waits long$")
    assert server.get("/block").text == "blocked"
    server.get("/sleep")
    assert "has been blocked" not in server.log_until_now()


def test_loop_stall_0_does_not_look(stuck):
    server = stuck("loop-stall = 0")
    assert server.get("/block").text == "blocked"
    assert "has been blocked" not in server.log
    worker = pid_of(server)
    names = [(thread / "comm").read_text() for thread in Path(f"/proc/{worker}/task").iterdir()]
    assert not any("watcher" in name for name in names), names


# harakiri.


@pytest.mark.parametrize("loop", LOOPS)
def test_harakiri_cancels_the_task_logs_where_it_waits_and_answers_504_and_the_worker_lives_on(stuck, loop):
    server = stuck("harakiri = 3", f"loop = {loop}")
    pid = pid_of(server)
    client = send(server, "/wait?over")
    response = client.read_response()
    assert response.status == 504
    server.wait_for_log("^cancelled over$")
    server.wait_for_log(r"^bolide: worker 1: harakiri: GET /wait\?over took \d+\.\d s; cancelling its task; it is waiting here:$")
    assert re.search(
        r'it is waiting here:\n(?:worker 1: .*\n)*worker 1:   File ".*asgi_stuck\.py", line \d+, in wait_at_gate$',
        server.log,
        re.M,
    )
    assert pid_of(server) == pid
    server.wait_for_log(r"GET /wait\?over => generated \d+ bytes in \d+ msecs \(HTTP/1\.1 504\)")
    assert "was killed" not in server.log


@pytest.fixture(scope="module")
def limited(serve_module):
    return serve_module(f"asgi = {{apps}}/asgi_stuck.py\nharakiri = {HARAKIRI_SECONDS}")


def test_harakiri_shows_the_whole_way_to_where_the_task_waits(limited):
    server = limited
    assert send(server, "/wait_deep?deep").read_response().status == 504
    told = server.wait_for_log(r"it is waiting here:\n(?:worker 1: .*\n)+")[0]
    places = [told.find(f"in {name}") for name in ("application", "at_wait_deep", "outer", "inner")]
    assert -1 not in places, told
    assert places == sorted(places)


def test_harakiri_counts_until_the_answer_has_begun(limited):
    stream = send(limited, "/begin_and_wait?stream")
    assert stream.read_head().status == 200
    # A later request has exceeded its time, so the stream would have too.
    assert send(limited, "/wait?later").read_response().status == 504
    assert limited.get("/open?stream").text == "open"
    assert list(stream.read_chunks()) == [b"begun", b"ended"]
    assert "cancelled stream" not in limited.log_until_now()


def test_harakiri_of_streams_after_the_head_has_left_closes_the_connection(stuck):
    server = stuck("harakiri = 3", "harakiri-streams = true")
    pid = pid_of(server)
    client = send(server, "/begin_and_wait?begun")
    assert client.read_head().status == 200
    assert client.read_to_end() == b"5\r\nbegun\r\n"
    server.wait_for_log("^cancelled begun$")
    assert pid_of(server) == pid


def test_harakiri_leaves_others_alone(limited):
    server = limited
    pid = pid_of(server)
    clients = [send(server, f"/wait?{number}") for number in range(3)]
    with server.connect() as quick:
        while not all(f"cancelled {number}" in server.log for number in range(3)):
            began = time.monotonic()
            text = quick.request(target="/sleep").text
            # A worker that does not get its turn for so long may cancel this one too.
            assert text == "slept" or time.monotonic() - began >= HARAKIRI_SECONDS
        assert int(quick.request(target="/pid").text) == pid
    assert [client.read_response().status for client in clients] == [504] * 3


def test_a_kept_alive_connection_serves_on_after_a_504(limited):
    server = limited
    with server.connect() as client:
        assert client.request(target="/wait?first").status == 504
        response = client.request(target="/pid")
        assert response.status == 200


def test_a_task_that_ignores_its_cancellation_can_not_answer_any_more(limited):
    server = limited
    pid = pid_of(server)
    assert send(server, "/ignore_cancellation?deaf").read_response().status == 504
    server.wait_for_log("^deaf goes on$")
    server.wait_for_log("^deaf could not answer: ClientDisconnected$")
    assert pid_of(server) == pid


def test_work_after_a_response_is_not_harakiris_business(limited):
    server = limited
    assert server.get("/answer_and_wait?later").text == "answered"
    assert send(server, "/wait?long").read_response().status == 504
    server.get("/open?later")
    server.wait_for_log("^finished later$")


def test_only_a_loop_that_can_not_turn_at_all_is_killed_and_replaced(stuck):
    # The stack comes from the worker, which must get its turn before it is killed.
    server = stuck("harakiri = 4", "loop-stall = 0.2", "processes = 2")
    pids = set()
    wait_until(lambda: pids.add(pid_of(server)) or len(pids) == 2 or None, "answers of both workers")
    client = send(server, "/hang")
    with pytest.raises(Closed):
        client.read_response()
    server.wait_for_log(r"^bolide: harakiri: killing worker \d \(pid \d+\) while it serves ")
    assert re.search(r"File .*asgi_stuck\.py.*, line \d+ in hang_here", server.log)
    wait_until(lambda: pid_of(server) not in pids, "the replacement")


def test_a_loop_that_can_not_turn_while_no_request_is_under_way_is_killed_too(stuck):
    server = stuck("harakiri = 3", "loop-stall = 0.2")
    pid = pid_of(server)
    assert server.get("/hang_later").text == "soon"
    server.wait_for_log(rf"^bolide: harakiri: killing worker 1 \(pid {pid}\) while it serves the event loop, which is blocked")
    assert wait_until(lambda: pid_of(server), "the replacement") != pid
