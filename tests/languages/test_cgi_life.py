"""CGI: a program is killed when its work is for no one, and no program outlives its request, its time limit or its worker.

Also what happens to requests beyond the number of programs, and to wrong answers.
"""

import os
import re
import signal
import threading
import time

import pytest
from support import processes
from support.client import Closed
from support.waiting import assert_once_below, wait_until


def pid_in(server, file):
    """Waits until a program has written its pid into a file."""
    return int(server.wait_for(lambda: file.exists() and file.read_text().strip(), f"a pid is in {file.name}"))


def is_running(pid):
    process = processes.look(pid)
    return process is not None and process.state != "Z"


@pytest.fixture
def sleeper(programs, marks):
    """A program that waits without output, with a child that does too."""
    child = f"sleep 600 &\necho $! > {marks}/child.new\nmv {marks}/child.new {marks}/child"
    body = f"{child}\necho $$ > {marks}/pid.new\nmv {marks}/pid.new {marks}/pid\nwait"
    return programs.write("sleep.sh", f"#!/bin/sh\n{body}\n")


def test_a_reset_kills_the_program_and_all_that_it_has_started(programs, sleeper, marks):
    server = programs.start()
    client = server.connect()
    client.send(b"GET /sleep.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    pids = [pid_in(server, marks / name) for name in ("pid", "child")]
    client.reset()
    wait_until(lambda: not any(map(processes.look, pids)), "both are gone")
    server.wait_for_log(r"GET /sleep.sh .*HTTP/1.1 499")


def test_a_client_that_has_only_ended_its_sending_side_gets_its_answer(programs, marks):
    programs.shell("wait.sh", f"while [ ! -e {marks}/go ]; do sleep 0.01; done\necho done")
    programs.shell("other.sh", "echo other")
    server = programs.start()
    client = server.connect()
    client.send(b"GET /wait.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    client.end_sending()
    # The worker has read the end before it serves another client.
    assert server.get("/other.sh").text == "other\n"
    (marks / "go").touch()
    assert client.read_response().text == "done\n"


def test_a_program_goes_on_without_its_client_if_it_may(programs, marks):
    begin = f"echo $$ > {marks}/pid.new\nmv {marks}/pid.new {marks}/pid"
    programs.shell(
        "wait.sh",
        f"{begin}\nwhile [ ! -e {marks}/go ]; do sleep 0.01; done\ntouch {marks}/done",
    )
    server = programs.start("cgi-do-not-kill-on-error = true")
    client = server.connect()
    client.send(b"GET /wait.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    pid = pid_in(server, marks / "pid")
    client.reset()
    server.wait_for_log(r"GET /wait.sh .*HTTP/1.1 499")
    assert is_running(pid)
    (marks / "go").touch()
    server.wait_for((marks / "done").exists, "the program has ended its work")
    wait_until(lambda: processes.look(pid) is None, "it was reaped")


def test_a_client_that_leaves_within_its_body_ends_the_program(programs, marks):
    programs.write("cat.sh", f"#!/bin/sh\necho $$ > {marks}/pid.new\nmv {marks}/pid.new {marks}/pid\nexec cat > /dev/null\n")
    server = programs.start()
    client = server.connect()
    client.send(b"POST /cat.sh HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
    pid = pid_in(server, marks / "pid")
    client.close()
    wait_until(lambda: processes.look(pid) is None, "the program is gone")


def test_a_silent_program_is_killed_with_504_and_an_endless_answer_is_cut_off(programs, sleeper, marks):
    programs.shell("begun.sh", "echo begun\nsleep 600")
    server = programs.start("cgi-timeout = 1")
    assert server.get("/sleep.sh").status == 504
    pids = [int((marks / name).read_text()) for name in ("pid", "child")]
    wait_until(lambda: not any(map(processes.look, pids)), "both are gone")
    client = server.connect()
    client.send(b"GET /begun.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(Closed):
        client.read_response()
    server.wait_for_text("sleep.sh (GET /sleep.sh) has written nothing for 1 seconds and is killed (cgi-timeout)")
    server.wait_for_text("begun.sh (GET /begun.sh) has written nothing for 1 seconds: its answer is cut off (cgi-timeout)")


def test_the_time_of_a_slow_client_does_not_count(programs):
    programs.shell("big.sh", "head -c 30000000 /dev/zero")
    server = programs.start("cgi-timeout = 1")
    client = server.connect(receive_bytes=4096)
    client.send(b"GET /big.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    client.receive()
    began = time.monotonic()
    # Longer than the time limit: the condition is the time itself.
    wait_until(lambda: time.monotonic() - began > 1.5, "the time limit has passed")
    assert len(client.read_response().body) == 30_000_000


def test_harakiri_kills_the_program(programs, sleeper, marks):
    server = programs.start("harakiri = 1")
    assert server.get("/sleep.sh").status == 504
    pids = [int((marks / name).read_text()) for name in ("pid", "child")]
    wait_until(lambda: not any(map(processes.look, pids)), "both are gone")
    server.wait_for_text("(harakiri)")


def test_requests_beyond_the_programs_wait_in_their_order(programs, marks):
    programs.shell(
        "wait.sh",
        f"while [ ! -e {marks}/$QUERY_STRING ]; do sleep 0.01; done\necho $QUERY_STRING; date +%N > {marks}/at-$QUERY_STRING",
    )
    server = programs.start("threads = 2\nstatic-map = /marks={directory}")
    clients = [server.connect() for _ in range(4)]
    # Connections that are open already; a full worker accepts none.
    for client in clients:
        assert client.request("GET", "/none.sh").status == 404
    for number, client in enumerate(clients):
        client.send(f"GET /wait.sh?{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        if number == 1:
            wait_until(lambda: len(children(server)) == 2, "two programs run")
    assert len(children(server)) == 2
    for number, client in enumerate(clients):
        (marks / str(number)).touch()
        assert client.read_response().text == f"{number}\n"
    assert re.search(r"1 worker × 2 programs \(CGI\)", server.log)


def test_a_worker_that_was_full_accepts_the_next_connection_immediately(programs):
    programs.shell("hello.sh", "echo hello")
    server = programs.start("processes = 2")

    def attempt():
        began = time.monotonic()
        clients = [threading.Thread(target=lambda: [server.get("/hello.sh") for _ in range(20)]) for _ in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return time.monotonic() - began

    # A pause of the listening socket would take longer each time.
    assert_once_below(attempt, 4)


def children(server):
    """The programs that the workers have started."""
    workers = server.workers()
    return [process.pid for process in server.processes() if process.parent in workers]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 3", "ended without output: it has exited with status 3"),
        ("kill -9 $$", "ended without output: it was ended by SIGKILL"),
        ('printf "Content-Type: text/plain\\n"', "ended within its header block, which begins with `Content-Type: text/plain`"),
        ("echo hello", "ended within its header block, which begins with `hello`"),
        ('echo "no field"; echo', "wrote a line that is not a header field: `no field`"),
        ("yes X: y", "wrote a header block of more than 65536 bytes"),
        ('printf "Status: 99\\n\\n"', "wrote a status that is none: `99`"),
        ('printf "X: a\\001b\\n\\n"', "wrote the field `X`"),
    ],
)
def test_a_wrong_answer_is_502_with_the_reason_in_the_log(programs, body, reason):
    path = programs.shell("wrong.sh", body, head=None)
    server = programs.start()
    # They are the program's.
    server.expects_alarms = True
    assert server.get("/wrong.sh").status == 502
    server.wait_for_text(f"worker 1: {path} (GET /wrong.sh) {reason}")
    wait_until(lambda: not children(server), "the program is gone")


def test_a_wrong_length_is_cut_and_told(programs):
    programs.shell("short.sh", "printf hello", head="Content-Length: 10")
    programs.shell("long.sh", "printf hello; sleep 600", head="Content-Length: 3")
    server = programs.start("cgi-timeout = 1")
    client = server.connect()
    client.send(b"GET /short.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(Closed):
        client.read_response()
    assert server.get("/long.sh").text == "hel"
    server.wait_for_text("has written an answer that is shorter than its Content-Length")
    server.wait_for_text("has written an answer that is longer than its Content-Length")
    wait_until(lambda: not children(server), "both programs are gone")


def test_standard_error_goes_to_the_log_line_by_line(programs):
    path = programs.shell(
        "talk.sh", 'echo one >&2; printf "two\\nthree" >&2; printf "\\033[2Jx\\n" >&2; head -c 10000 /dev/zero | tr "\\0" y >&2'
    )
    server = programs.start()
    assert server.get("/talk.sh").status == 200
    for line in ("one", "two", "three?[2Jx", "y" * 4096):
        server.wait_for_log(rf"^{re.escape(f'{path}: {line}')}$")


def test_an_answer_is_complete_when_the_program_closes_its_output(programs, marks):
    programs.shell("behind.sh", f"echo answer\nexec >&- 2>&-\nwhile [ ! -e {marks}/go ]; do sleep 0.01; done")
    server = programs.start()
    assert server.get("/behind.sh").text == "answer\n"
    assert len(children(server)) == 1
    (marks / "go").touch()
    wait_until(lambda: not children(server), "it was reaped")


def test_a_process_that_keeps_the_output_does_not_hold_the_answer_forever(programs):
    programs.shell("child.sh", "echo answer\nsleep 600 &")
    server = programs.start("cgi-timeout = 1")
    client = server.connect()
    client.send(b"GET /child.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(Closed):
        client.read_response()
    # A process that was killed is there until the kernel has taken it apart.
    sleeping = lambda: [process for process in server.processes() if process.name == "sleep"]  # noqa: E731
    wait_until(lambda: not children(server) and not sleeping(), "the group is gone")


def test_no_zombie_and_no_descriptor_stays(programs):
    programs.shell("hello.sh", "echo hello")
    programs.shell("none.sh", "exit 1", head=None)
    server = programs.start()
    server.expects_alarms = True
    client = server.connect()
    assert client.request("GET", "/hello.sh").status == 200
    descriptors = f"/proc/{server.worker()}/fd"
    before = len(os.listdir(descriptors))
    for number in range(200):
        assert client.request("GET", "/none.sh" if number % 10 == 0 else "/hello.sh").status in (200, 502)
    wait_until(lambda: not children(server) and len(os.listdir(descriptors)) == before, "all is as before")


@pytest.mark.parametrize("options", ["", "processes = 2\nthreads = 3"])
def test_a_reload_loses_no_request(programs, marks, options):
    programs.shell("wait.sh", f"touch {marks}/began\nwhile [ ! -e {marks}/go ]; do sleep 0.01; done\necho waited")
    programs.shell("hello.sh", "echo old")
    server = programs.start(options)
    slow = server.connect()
    slow.send(b"GET /wait.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for((marks / "began").exists, "the program runs")
    before = set(server.workers())
    server.send_signal(signal.SIGHUP)
    wait_until(lambda: set(server.workers()) - before, "the next generation has started")
    programs.shell("hello.sh", "echo new")
    assert server.get("/hello.sh").text == "new\n"
    (marks / "go").touch()
    assert slow.read_response().text == "waited\n"
    wait_until(lambda: not before & set(server.workers()), "the old workers are gone")


def test_a_killed_worker_takes_its_programs_with_it(programs, marks):
    programs.write("wait.sh", f"#!/bin/sh\necho $$ > {marks}/pid.new\nmv {marks}/pid.new {marks}/pid\nexec sleep 600\n")
    server = programs.start()
    server.expects_alarms = True
    client = server.connect()
    client.send(b"GET /wait.sh HTTP/1.1\r\nHost: a\r\n\r\n")
    pid = pid_in(server, marks / "pid")
    processes.kill(server.worker())
    wait_until(lambda: processes.look(pid) is None, "the program is gone")
    programs.shell("hello.sh", "echo hello")
    wait_until(lambda: server.workers(), "another worker has started")
    assert server.get("/hello.sh").text == "hello\n"


def test_a_stop_ends_programs_that_go_on_after_their_answer(programs):
    programs.shell("behind.sh", "echo answer\ntrap '' TERM\nexec >&- 2>&-\nsleep 600")
    server = programs.start()
    assert server.get("/behind.sh").text == "answer\n"
    assert server.stop() == 0


def test_max_requests_replaces_a_worker(programs):
    programs.shell("hello.sh", "echo hello")
    server = programs.start("max-requests = 3")
    first = server.workers()
    for _ in range(10):
        assert server.get("/hello.sh").text == "hello\n"
    wait_until(lambda: server.workers() and not set(first) & set(server.workers()), "the first worker was replaced")


def test_the_names_of_processes_say_what_they_are(programs):
    programs.shell("name.sh", "tr '\\0' ' ' < /proc/$PPID/cmdline")
    assert programs.start().get("/name.sh").text.startswith("bolide: worker 1 [programs]")
    named = programs.start("auto-procname = true\nprocname-prefix = site-")
    assert named.get("/name.sh").text.startswith("site-bolide worker 1")
