"""Blocked event loops and endless requests: the log lines about them, and which process is killed."""

import re
from pathlib import Path

import pytest
from support.client import Closed
from support.waiting import wait_until

LOOPS = ["asyncio", "uvloop"]


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


# loop-stall.


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", ["block", "hold_the_interpreter"])
def test_a_stuck_loop_is_told_with_the_stack_that_blocks_it(stuck, path, loop):
    server = stuck("loop-stall = 0.2", f"loop = {loop}")
    pid = pid_of(server)
    assert server.get(f"/{path}").text == "blocked"
    said = server.wait_for_log(r"^bolide: worker 1: the event loop has been blocked for \d\.\d s, here:$")
    again = server.wait_for_log(r"^bolide: worker 1: the event loop runs again, after \d+\.\d s$")
    told = server.log[said.end() : again.start()]
    assert re.search(rf"File .*asgi_stuck\.py.*, line \d+ in {path}_here", told), told
    assert "in at_" in told
    assert pid_of(server) == pid


def test_the_tasks_that_wait_behind_it_are_named_with_the_line_where_they_wait(stuck):
    server = stuck("loop-stall = 0.2")
    for number in range(3):
        send(server, f"/wait?{number}")
        server.wait_for_log(f"^waits {number}$")
    assert server.get("/block").text == "blocked"
    server.wait_for_log(r"^bolide: worker 1: \d+ tasks wait for the event loop, which has been blocked for \d+\.\d s$")
    # Not the line of asyncio's own Event.wait().
    server.wait_for_log(r'^worker 1:   \S+: File ".*asgi_stuck\.py", line \d+, in wait_at_gate$', count=3)


@pytest.mark.parametrize("path", ["block", "hold_the_interpreter"])
def test_the_stack_stands_directly_behind_the_line_that_announces_it(stuck, path):
    server = stuck("loop-stall = 0.1")
    for number in range(4):
        send(server, f"/wait?order{number}")
        server.wait_for_log(f"^waits order{number}$")
    for count in range(1, 5):
        assert server.get(f"/{path}").text == "blocked"
        server.wait_for_log(r"^bolide: worker 1: the event loop runs again", count=count)
    lines = server.lines
    places = [place for place, line in enumerate(lines) if line.endswith(" s, here:")]
    assert len(places) >= 4
    for place in places:
        assert re.match(r"(Stack|Current thread|Thread) .*\(most recent call first\)", lines[place + 1]), lines[place : place + 3]
        stack = next(offset for offset, line in enumerate(lines[place + 2 :]) if not line.startswith("  File "))
        assert any(f"in {path}_here" in line for line in lines[place + 2 : place + 2 + stack]), lines[place : place + 9]


def test_many_tasks_are_counted_and_some_are_named(stuck):
    server = stuck("loop-stall = 0.2")
    server.get("/make_tasks?100")
    assert server.get("/block").text == "blocked"
    server.wait_for_log(r"^bolide: worker 1: 10\d tasks wait")
    server.wait_for_log(r"^worker 1:   and 8\d more$")


def test_a_stall_is_told_once_and_the_next_one_again(stuck):
    # A busy machine may delay the loop for a moment, but not for this long.
    server = stuck("loop-stall = 0.5")
    for count in (1, 2):
        assert server.get("/block").text == "blocked"
        server.wait_for_log("the event loop runs again, after", count)
        assert len(re.findall("has been blocked for .* s, here:", server.log)) == count


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
    server = stuck("harakiri = 1", f"loop = {loop}")
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
    return serve_module("asgi = {apps}/asgi_stuck.py\nharakiri = 1")


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
    server = stuck("harakiri = 1", "harakiri-streams = true")
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
            assert quick.request(target="/sleep").text == "slept"
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
    server = stuck("harakiri = 1", "loop-stall = 0.2", "processes = 2")
    pids = set()
    wait_until(lambda: pids.add(pid_of(server)) or len(pids) == 2 or None, "answers of both workers")
    client = send(server, "/hang")
    with pytest.raises(Closed):
        client.read_response()
    server.wait_for_log(r"^bolide: harakiri: killing worker \d \(pid \d+\) while it serves ")
    assert re.search(r"File .*asgi_stuck\.py.*, line \d+ in hang_here", server.log)
    wait_until(lambda: pid_of(server) not in pids, "the replacement")


def test_a_loop_that_can_not_turn_while_no_request_is_under_way_is_killed_too(stuck):
    server = stuck("harakiri = 1", "loop-stall = 0.2")
    pid = pid_of(server)
    assert server.get("/hang_later").text == "soon"
    server.wait_for_log(rf"^bolide: harakiri: killing worker 1 \(pid {pid}\) while it serves the event loop, which is blocked")
    assert wait_until(lambda: pid_of(server), "the replacement") != pid
