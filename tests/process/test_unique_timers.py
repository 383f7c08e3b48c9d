"""Timers that fire once for several instances (`timer-engine`), on a real redis-server."""

import json
import os
import signal
import time

import pytest
from support.waiting import wait_until

CONFIGURATION = "wsgi-file = {{apps}}/unique_timer.py\nmaster = true\nchdir = {directory}\n{more}"
#: A period that does not end while a test runs.
YEAR = 365 * 86_400


@pytest.fixture
def machine(serve, redis, tmp_path):
    """Starts an instance, as on a machine of its own."""

    def start(*more, query="hold-seconds=1"):
        lines = "\n".join([f"timer-engine = {redis.url}?{query}", *more])
        return serve(CONFIGURATION.format(directory=tmp_path, more=lines))

    return start


def ticks(directory):
    """Returns the time and the instance of each call."""
    file = directory / "ticks"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(float(moment), int(parent)) for moment, parent in (line.split() for line in lines)]


def wait_for_ticks(directory, count):
    wait_until(lambda: len(ticks(directory)) >= count, f"{count} calls of the timer")


def let_period_begin(redis, name, seconds):
    """Lets the timer fire in this period, which a timer that the server does not know yet leaves out."""
    period = int(time.time()) // seconds
    redis.ask("HSET", f"{{bolide:timer:{name}}}", "done", period - 1, "length", seconds * 1000)


def ask(instance, redis):
    """Raises the signal of a timer, as the timer does when its instance asks, and waits for the answer of the server."""
    # Questions alone ask the server for its time.
    before = redis.calls("time")
    assert instance.get("/ask").text == "served"
    wait_until(lambda: redis.calls("time") > before, "a question of the instance")


@pytest.mark.parametrize("options", [(), ("env = ADDED=nothing", "timer = 17 1"), ("lazy-apps = true",), ("env = MANNER=async",)])
def test_a_timer_fires_once_for_all_machines(options, machine, tmp_path):
    for _ in range(3):
        machine(*options)
    wait_for_ticks(tmp_path, 4)
    times = sorted(moment for moment, _ in ticks(tmp_path))
    # Three instances that do not know each other would call it three times a second. A call may slip into the next second.
    assert len(times) <= times[-1] - times[0] + 3, times


def test_a_period_that_one_machine_has_fired_is_done_for_the_others(machine, redis, tmp_path):
    let_period_begin(redis, f".tick:{YEAR}", YEAR)
    # A machine that has no CPU for a while does not lose its period.
    here, there = (machine(f"env = ADDED=timer {YEAR}", query="hold-seconds=60") for _ in range(2))
    ask(here, redis)
    wait_for_ticks(tmp_path, 1)
    for instance in (here, there, here, there):
        ask(instance, redis)
    assert len(ticks(tmp_path)) == 1


def test_a_time_of_cron_fires_once_for_all_machines(machine, redis, tmp_path):
    here, there = (machine("env = ADDED=cron", query="hold-seconds=60") for _ in range(2))
    for instance in (here, there, here, there):
        ask(instance, redis)
    wait_for_ticks(tmp_path, 1)
    # A minute may have ended in the meantime.
    assert len(ticks(tmp_path)) <= 2


def test_a_machine_that_is_killed_in_a_handler_loses_the_period_to_another_one(machine, redis, tmp_path):
    let_period_begin(redis, f".tick:{YEAR}", YEAR)
    dying = machine(f"env = ADDED=timer {YEAR}", "env = MANNER=wait")
    dying.expects_alarms = True
    assert dying.get("/ask").text == "served"
    wait_for_ticks(tmp_path, 1)
    there = machine(f"env = ADDED=timer {YEAR}")
    for process in dying.processes():
        os.kill(process.pid, signal.SIGKILL)

    def fires():
        ask(there, redis)
        return len(ticks(tmp_path)) > 1

    wait_until(fires, "the other machine fires")
    assert len({parent for _, parent in ticks(tmp_path)}) == 2
    ask(there, redis)
    assert len(ticks(tmp_path)) == 2


def test_a_timer_of_each_worker_fires_on_each_machine(machine, tmp_path):
    for _ in range(2):
        machine("env = TARGET=workers")
    wait_until(lambda: len({parent for _, parent in ticks(tmp_path)}) == 2, "calls on both machines")


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_without_the_server_no_timer_fires_and_workers_serve_until_it_is_back(fault, machine, redis, call, tmp_path):
    instance = machine(query="hold-seconds=1&answer-ms=3000")
    wait_for_ticks(tmp_path, 1)
    getattr(redis, fault)()
    instance.wait_for_log(r"^bolide: engine redis\+unix://\S+ is away: ")

    def failed():
        assert instance.get().text == "served"
        (engine,) = json.loads(call("status", instance.process.pid, "--json")[1])["engines"]
        return engine["failed"]

    # A call that the server has allowed before may still be on its way to the worker; the request is served after it.
    failed()
    before = len(ticks(tmp_path))
    wait_until(lambda: failed() >= 3, "three questions without an answer")
    assert len(ticks(tmp_path)) == before
    assert len([line for line in instance.lines if "engine redis" in line]) == 1
    redis.start() if fault == "kill" else redis.thaw()
    wait_for_ticks(tmp_path, before + 2)
    instance.wait_for_log(r"^bolide: engine redis\+unix://\S+ is back after ")
