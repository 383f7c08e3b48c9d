"""`cheaper`, `idle` and `cheap`: workers are started and stopped with the load, and neither loses a request."""

import os
import signal
import threading

import pytest
from support.waiting import wait_until
from support_load import Load
from support_processes import sleeps_mostly

MAX = 4
#: The number changes quickly, for tests.
QUICK = ("--cheaper-overload", "1")


class Gate:
    """Requests that the application holds until the gate opens."""

    def __init__(self, instance, directory):
        self.instance = instance
        self.path = directory / "gate"
        self.clients = []

    def enter(self):
        """Sends one more request."""
        client = self.instance.connect()
        client.send(f"GET /wait?{self.path}{len(self.clients)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.clients.append(client)

    def wait_until_held(self, count):
        def held():
            return sum((self.path.parent / f"gate{number}.waiting").exists() for number in range(len(self.clients)))

        wait_until(lambda: held() >= count, lambda: f"{count} requests with the application, {held()} are; {self.instance.log}")

    def open(self):
        """Answers all of them."""
        for number in range(len(self.clients)):
            (self.path.parent / f"gate{number}").touch()
        for client in self.clients:
            assert client.read_response().text == "waited"


def wait_for_workers(instance, count):
    wait_until(lambda: len(instance.workers()) == count, lambda: f"{count} workers: {instance.workers()}; {instance.log}")


def test_cheaper_starts_with_cheaper_initial_workers(start):
    instance = start("--processes", str(MAX), "--cheaper", "1", "--cheaper-initial", "2", "--cheaper-overload", "1000")
    assert len(instance.workers()) == 2
    instance.wait_for_text("ready: 2 workers in")


def test_a_burst_is_met_at_once_however_long_cheaper_overload_is(start, tmp_path):
    instance = start("--processes", str(MAX), "--cheaper", "1", "--cheaper-overload", "1000")
    assert len(instance.workers()) == 1
    gate = Gate(instance, tmp_path)
    for _ in range(MAX):
        gate.enter()
    # Each of them has its own worker long before the first one is answered.
    gate.wait_until_held(MAX)
    assert len(instance.workers()) == MAX
    instance.wait_for_text("all workers are busy, and connections wait: 1 worker more, 4 of 4")
    gate.open()


def test_a_burst_adds_cheaper_step_workers_at_a_time(start, tmp_path):
    instance = start("--processes", str(MAX), "--cheaper", "1", "--cheaper-step", "3", "--cheaper-overload", "1000")
    gate = Gate(instance, tmp_path)
    gate.enter()
    gate.wait_until_held(1)
    gate.enter()
    gate.wait_until_held(2)
    instance.wait_for_text("connections wait: 3 workers more, 4 of 4")
    gate.open()


def test_workers_that_are_not_needed_go_one_by_one_and_no_request_is_lost(start):
    instance = start("--processes", str(MAX), "--cheaper", "1", "--cheaper-initial", str(MAX), *QUICK)
    with Load(instance.address(), kept_alive=1, fresh=1) as load:
        instance.wait_for_log(r"workers are free: worker \d \(pid \d+\) ends, 3 of 4 stay$")
        load.wait_for_more()
    wait_for_workers(instance, 1)
    assert load.losses == []
    assert instance.body().isdigit()


def test_a_load_that_comes_and_goes_loses_no_request(start):
    instance = start("--processes", str(MAX), "--cheaper", "1", *QUICK)
    for _ in range(2):
        with Load(instance.address(), kept_alive=4, fresh=4, target="/sleep/0.05") as load:
            wait_until(lambda: len(instance.workers()) > 1, "more workers")
            load.wait_for_more()
        assert load.losses == []
        wait_for_workers(instance, 1)


def test_a_request_in_flight_is_finished_by_a_worker_that_goes(start, tmp_path):
    instance = start("--processes", "2", "--cheaper", "1", "--cheaper-initial", "2", "--cheaper-algo", "manual")
    gate = Gate(instance, tmp_path)
    gate.enter()
    gate.enter()
    gate.wait_until_held(2)
    instance.send_signal(signal.SIGTTOU)
    instance.wait_for_log("SIGTTOU: worker")
    gate.open()
    wait_for_workers(instance, 1)


def test_signals_add_and_remove_workers_within_their_bounds(start):
    instance = start("--processes", "2")
    for number, count, said in [
        (signal.SIGTTIN, 2, "SIGTTIN: no worker is added: the maximum is 2 workers (processes)"),
        (signal.SIGTTOU, 1, "ends, 1 of 2 stay"),
        (signal.SIGTTOU, 1, "SIGTTOU: no worker is removed: the last one stays"),
        (signal.SIGTTIN, 2, "SIGTTIN: 1 worker more, 2 of 2"),
    ]:
        instance.send_signal(number)
        wait_until(lambda said=said: said in instance.log, lambda: instance.log)
        wait_for_workers(instance, count)
        assert instance.body().isdigit()


def test_a_removed_worker_is_not_replaced_when_it_ends_and_a_reload_begins_with_as_many(start):
    instance = start("--processes", "3", "--cheaper", "1", "--cheaper-initial", "3", "--cheaper-algo", "manual")
    instance.send_signal(signal.SIGTTOU)
    wait_for_workers(instance, 2)
    instance.reload(2)
    assert len(instance.workers()) == 2


def test_a_worker_that_dies_is_replaced_while_others_are_not_wanted(start):
    instance = start("--processes", "3", "--cheaper", "1", "--cheaper-algo", "manual", alarms=True)
    before = instance.worker()
    os.kill(before, signal.SIGKILL)
    instance.wait_for_replacement(before)


@pytest.mark.parametrize("algorithm", ["spare", "spare2", "backlog", "busyness"])
def test_each_algorithm_takes_workers_away_that_have_nothing_to_do(start, algorithm):
    details = ("--cheaper-idle", "1", "--cheaper-busyness-multiplier", "1")
    few = ("--processes", "3", "--cheaper", "1", "--cheaper-initial", "3")
    instance = start(*few, "--cheaper-algo", algorithm, *QUICK, *details)
    wait_for_workers(instance, 1)


def test_busyness_adds_workers_that_kept_alive_connections_need(start):
    busyness = ("--cheaper-algo", "busyness", "--cheaper-busyness-max", "30", *QUICK)
    instance = start("--processes", "2", "--cheaper", "1", *busyness)
    # One connection that always has a request in flight: no burst, but a worker that is busy all the time.
    with Load(instance.address(), kept_alive=1, fresh=0, target="/sleep/0.1") as load:
        instance.wait_for_log(r"the workers were busy for \d+ % of 1 s: 1 worker more, 2 of 2$")
    assert load.losses == []


def test_busyness_lets_workers_be_that_are_busy_for_a_share_between_both_limits(start):
    shares = ("--cheaper-busyness-min", "1", "--cheaper-busyness-max", "95", "--cheaper-busyness-verbose")
    few = ("--processes", "3", "--cheaper", "1", "--cheaper-initial", "2", "--cheaper-busyness-multiplier", "1")
    # On a busy machine nothing may be sent during a whole cycle of a second.
    instance = start(*few, "--cheaper-algo", "busyness", "--cheaper-overload", "4", *shares)
    before = set(instance.workers())
    # Requests of a twentieth of a second, one after the other, and none of them longer than a cycle.
    with Load(instance.address(), kept_alive=1, fresh=0, target="/sleep/0.05"):
        said = instance.wait_for_log(r"the workers were busy for (\d+) % of 4 s: nothing changes$", count=2)
        assert set(instance.workers()) == before
    assert 1 <= int(said[1]) <= 95


#: `busyness` with cycles of a second, in which connections queue while a worker is stopped.
BUSYNESS = ("--cheaper-algo", "busyness", "--cheaper-busyness-verbose=true", *QUICK, "--processes", str(MAX), "--cheaper", "1")


def stopped_worker(instance):
    """The only worker does not accept connections, and the master, which has last seen it idle, can't tell."""
    assert instance.body()
    instance.wait_for_log("busy for 0 % of 1 s: nothing changes$", count=2)
    (worker,) = instance.workers()
    os.kill(worker, signal.SIGSTOP)
    return worker


def test_busyness_adds_backlog_step_workers_beyond_the_backlog_alert_which_go_after_the_backlog_multiplier(start):
    alert = ("--cheaper-busyness-backlog-alert", "2", "--cheaper-busyness-backlog-step", "2")
    # With the other multiplier they would stay for a quarter of an hour.
    turns = ("--cheaper-busyness-backlog-multiplier", "1", "--cheaper-busyness-multiplier", "1000")
    late = ("--cheaper-busyness-backlog-nonzero", "1000")
    instance = start(*BUSYNESS, *alert, *turns, *late)
    worker = stopped_worker(instance)
    try:
        clients = [instance.connect() for _ in range(2)]
        instance.wait_for_log("nothing changes$", count=2)
        assert len(instance.workers()) == 1, instance.log
        clients.append(instance.connect())
        instance.wait_for_text("3 connections wait: 2 workers more, 3 of 4")
    finally:
        os.kill(worker, signal.SIGCONT)
    wait_for_workers(instance, 1)
    assert all(client.request().status == 200 for client in clients)


def test_busyness_adds_a_worker_when_a_single_connection_waits_for_backlog_nonzero(start):
    instance = start(*BUSYNESS, "--cheaper-busyness-backlog-nonzero", "2")
    worker = stopped_worker(instance)
    try:
        client = instance.connect()
        instance.wait_for_log(r"1 connections wait, for (?!1 s)\d+ s: 1 worker more, 2 of 4$")
        assert client.request().text != str(worker)
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize(("penalty", "left"), [("0", 1), ("1000", 2)])
def test_busyness_penalty_keeps_a_worker_for_longer_that_was_missed_soon_after_its_end(start, penalty, left):
    two = ("--cheaper-algo", "busyness", *QUICK, "--processes", "2", "--cheaper", "1", "--cheaper-initial", "2")
    # Requests have to come within as many cycles after the end.
    turns = ("--cheaper-busyness-multiplier", "5", "--cheaper-busyness-penalty", penalty, "--cheaper-busyness-verbose=true")
    instance = start(*two, *turns, "--cheaper-busyness-max", "30")
    instance.wait_for_log(r"ends, 1 of 2 stay$")
    with Load(instance.address(), kept_alive=1, fresh=0, target="/sleep/0.1"):
        instance.wait_for_log(r"1 worker more, 2 of 2$")
    if left == 1:
        wait_for_workers(instance, 1)
    else:
        # Twice as many idle cycles as it would have stayed for.
        instance.wait_for_log(r"busy for 0 % of 1 s: nothing changes$", count=10 + instance.log.count("busy for 0 %"))
        assert len(instance.workers()) == 2


def test_memory_beyond_cheaper_rss_limit_hard_takes_workers_away(start):
    limits = ("--cheaper-rss-limit-soft", "1000000", "--cheaper-rss-limit-hard", "2000000")
    instance = start("--processes", "3", "--cheaper", "1", "--cheaper-initial", "3", "--cheaper-overload", "1000", *limits)
    wait_for_workers(instance, 1)
    instance.wait_for_text("exceeds cheaper-rss-limit-hard: worker")


def test_cheap_starts_workers_at_the_first_connection(start):
    instance = start("--processes", "2", "--cheap")
    assert instance.workers() == []
    instance.wait_for_log(r"no worker is running yet \(cheap\): the first connection starts them$")
    assert instance.body().isdigit()
    wait_for_workers(instance, 2)


def test_an_application_that_can_not_be_loaded_ends_a_cheap_start_too(start):
    instance = start("--cheap", module="no_such_module", ready=False)
    assert instance.wait_for_exit() == 22


def ask(instance, bodies):
    bodies.append(instance.body())


def test_idle_ends_all_workers_and_the_next_connection_starts_them(start):
    instance = start("--processes", "2", "--idle", "1")
    for _ in range(2):
        wait_until(lambda: not instance.workers(), "the end of all workers")
        bodies = []
        threads = [threading.Thread(target=ask, args=(instance, bodies)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(bodies) == 4
        assert all(body.isdigit() for body in bodies)
    instance.wait_for_text("no request for 1 s (idle): all workers exit, and the next connection starts them")


def test_an_instance_without_workers_wakes_hardly_ever(start):
    """Only its one-second timers wake the master's loop: a timer that stays due would wake it hundreds of times."""
    instance = start("--processes", "2", "--idle", "1", "--cheaper", "1")
    wait_until(lambda: not instance.workers(), "the end of all workers")

    wait_until(lambda: sleeps_mostly(instance.pid), "two seconds in which it sleeps")


def test_a_request_that_takes_longer_than_idle_is_no_idle_time(start):
    # Before and after the request a busy machine may take a while.
    instance = start("--idle", "5")
    worker = instance.worker()
    assert instance.body("/sleep/7") == str(worker)
    assert "(idle)" not in instance.whole_log()


def test_die_on_idle_ends_the_instance(start):
    instance = start("--idle", "1", "--die-on-idle")
    assert instance.wait_for_exit() == 0
    instance.wait_for_text("no request for 1 s (idle, die-on-idle)")


def test_a_reload_of_an_instance_without_workers_starts_none(start):
    instance = start("--processes", "2", "--cheap")
    instance.reload(2)
    assert instance.workers() == []
    assert instance.body().isdigit()
