"""The statements about waiting are correct: pages quote the kept results, the ideal is one queue, and its client counts from the
schedule.

Runs the benchmark suite's own programs, and none of the servers that it compares.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.ports import reserve
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
PAGE = ROOT / "docs" / "workers-and-threads.md"

#: The length of a view, in microseconds: too long to be confused with delays of the machine.
VIEW_US = 150_000
CLIENT_SECONDS = 60

if sys.version_info < (3, 11):
    pytest.skip("the benchmark suite needs Python 3.11", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import queueing  # noqa: E402


def test_the_ideal_serves_requests_in_order_with_the_first_free_server():
    requests = [(0, 100), (0, 40), (10, 100), (20, 50), (500, 70)]
    assert queueing.ideal(requests, 2) == [100, 40, 130, 130, 70]
    assert queueing.ideal(requests, 1) == [100, 140, 230, 270, 70]
    assert queueing.ideal(requests, 5) == [service for _, service in requests]


def test_loads_and_views_differ_by_a_factor_and_luck_by_the_round():
    point = queueing.Point(4, 1, 100, 80, kept=False)
    first = queueing.schedule(point, 200, 0)
    assert first == queueing.schedule(queueing.Point(4, 1, 100, 80, kept=True), 200, 0)
    assert first != queueing.schedule(point, 200, 1)
    shorter = queueing.schedule(queueing.Point(4, 1, 50, 80, kept=False), 200, 0)
    assert all(abs(2 * half - whole) <= 2 for pair in zip(shorter, first, strict=True) for half, whole in zip(*pair, strict=True))


def erlang(threads, load):
    """Returns the mean waiting in a queue in front of `threads` threads, in multiples of a view (A. K. Erlang's formula C)."""
    busy, blocked = threads * load, 1.0
    for number in range(1, threads + 1):
        blocked = busy * blocked / (number + busy * blocked)
    return blocked / (1 - load * (1 - blocked)) / (threads - busy)


def test_the_page_has_the_waiting_of_the_formula():
    rows = re.findall(r"^\| (\d+) \|((?: [\d.]+ \|){5})$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(threads) for threads, _ in rows] == [1, 2, 4, 8, 16, 32]
    for threads, cells in rows:
        shown = [float(cell) for cell in cells.strip(" |").split("|")]
        expected = [erlang(int(threads), load) for load in (0.5, 0.7, 0.8, 0.9, 0.95)]
        assert shown == pytest.approx(expected, abs=0.011)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    directory = tmp_path_factory.mktemp("programs")
    for name in ("waiting_load", "waiting_limit"):
        command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", directory / name, BENCH / f"{name}.c"]
        subprocess.run(command, check=True)
    return directory


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def free():
    with reserve() as held:
        yield held


@pytest.fixture
def ask(programs, tmp_path, request, free):
    """Sends a schedule to the queue with this many servers. Returns the client's report."""

    def asking(servers, schedule, connections):
        port = free.getsockname()[1]
        limit = subprocess.Popen([programs / "waiting_limit", str(port), str(servers)])
        request.addfinalizer(lambda: (limit.kill(), limit.wait()))
        wait_until(lambda: is_open(port), "the queue listens")
        file = tmp_path / "schedule"
        file.write_text("".join(f"{arrival} {service}\n" for arrival, service in schedule))
        command = [programs / "waiting_load", str(port), file, str(connections)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=CLIENT_SECONDS)
        return json.loads(done.stdout)

    return asking


@pytest.mark.parametrize("connections", [0, 64], ids=["new connection per request", "keep-alive connections"])
def test_the_time_of_a_request_counts_from_its_arrival_while_others_are_served(ask, connections):
    told = ask(1, [(0, VIEW_US)] * 3, connections)
    # The kernel chooses the order of requests that arrive at the same time.
    first, second, third = sorted(told["took_us"])
    assert first >= VIEW_US
    assert second >= 2 * VIEW_US
    assert third >= 3 * VIEW_US
    assert (told["failed"], told["opened"]) == (0, 3)


def test_kept_connections_carry_the_next_request(ask):
    # If a program is not scheduled for two seconds, several requests are due together, and each of them opens a connection.
    told = ask(4, [(number * 4 * VIEW_US, 1000) for number in range(8)], 1)
    assert (told["failed"], told["resent"]) == (0, 0)
    # The pool has one connection, and another is opened only while that one is busy.
    assert told["opened"] < 8
    assert all(took >= 1000 for took in told["took_us"])


def test_requests_without_an_answer_are_failures(programs, tmp_path, free):
    file = tmp_path / "schedule"
    file.write_text("0 1000\n0 1000\n")
    command = [programs / "waiting_load", str(free.getsockname()[1]), file, "0"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=CLIENT_SECONDS).stdout)
    assert (told["failed"], told["took_us"]) == (2, [-1, -1])
    assert "refused" in told["problem"]
