"""`max-requests` and `max-worker-lifetime`: the replacement of a worker starts first, then the worker exits, one at a time, and
no request is lost.
"""

import time

import pytest
from support.waiting import wait_until
from support_load import Load
from support_observer import Observer

PROCESSES = 2
#: A worker may be replaced as soon as it has reached its limit.
AT_ONCE = ("--min-worker-lifetime", "0")


def test_max_requests_under_load_retires_one_worker_after_the_other_and_loses_no_request(start):
    instance = start("--processes", str(PROCESSES), "--max-requests", "200", *AT_ONCE)
    with Observer(instance) as observer, Load(instance.address(), kept_alive=4, fresh=2) as load:
        wait_until(lambda: len(observer.seen) >= 8, lambda: f"eight workers, saw {observer.seen}; {instance.log}")
        # An observation may fall between any two replacements: they continue under load until one of them is seen beside its
        # predecessor.
        wait_until(lambda: observer.most > PROCESSES, "a replacement that starts before its worker has exited")
        load.wait_for_more()
    assert load.losses == []
    # One retires at a time: besides the configured number there is only its replacement.
    assert observer.most == PROCESSES + 1
    wait_until(lambda: len(instance.workers()) == PROCESSES, "the chosen number of workers")


def test_a_worker_serves_nine_tenths_of_max_requests_before_it_retires(start):
    instance = start("--max-requests", "100", *AT_ONCE)
    first = str(instance.worker())
    served = 0
    while instance.body() == first:
        served += 1
        assert served < 5000, instance.log
    # A random part of up to a tenth is subtracted, so that workers do not retire together.
    assert served >= 90


@pytest.mark.parametrize("options", [("--threads", "3"), ("--gevent", "50", "--gevent-monkey-patch")], ids=["threads", "gevent"])
def test_max_requests_with_several_at_once_loses_no_request(options, start):
    instance = start("--processes", str(PROCESSES), *options, "--max-requests", "100", *AT_ONCE)
    before = set(instance.workers())
    with Load(instance.address(), kept_alive=4, fresh=2) as load:
        wait_until(lambda: not before & set(instance.workers()), "other workers")
        load.wait_for_more()
    assert load.losses == []


def test_max_worker_lifetime_under_load_retires_workers_and_loses_no_request(start):
    instance = start("--processes", str(PROCESSES), "--max-worker-lifetime", "1")
    before = set(instance.workers())
    with Observer(instance) as observer, Load(instance.address()) as load:
        wait_until(lambda: not before & set(instance.workers()), "other workers")
        load.wait_for_more()
    assert load.losses == []
    assert observer.most <= PROCESSES + 1


def test_max_worker_lifetime_retires_an_idle_worker_too(start):
    instance = start("--max-worker-lifetime", "1")
    # On a busy machine its replacement may be there already.
    before, *_ = instance.workers()
    instance.wait_for_replacement(before)
    assert instance.body().isdigit()


def test_max_worker_lifetime_delta_lets_the_second_worker_live_longer_than_the_first(start):
    instance = start("--processes", "2", "--max-worker-lifetime", "1", "--max-worker-lifetime-delta", "1000")
    before = set(instance.workers())
    with Observer(instance) as observer:
        wait_until(lambda: len(observer.seen) >= 5, lambda: f"three replacements, saw {observer.seen}; {instance.log}")
    assert len(before & set(instance.workers())) == 1


def test_a_request_in_flight_is_finished_by_a_worker_that_retires(start, tmp_path):
    # On a busy machine the request may take a while to arrive.
    instance = start("--max-worker-lifetime", "5")
    before = instance.worker()
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    wait_until(lambda: len(instance.workers()) == 2, "its replacement")
    assert instance.body() != str(before)
    gate.touch()
    assert client.read_response().text == "waited"
    wait_until(lambda: before not in instance.workers(), "its end")


def test_a_worker_serves_for_min_worker_lifetime_whatever_max_requests_says(start):
    # Longer than a busy machine needs until requests come.
    lifetime = 6
    began = time.monotonic()
    instance = start("--max-requests", "5", "--min-worker-lifetime", str(lifetime))
    before = instance.worker()
    with Load(instance.address(), kept_alive=1, fresh=1) as load:
        load.wait_for_more(100)
        instance.wait_for_replacement(before)
    assert load.losses == []
    assert load.bodies[str(before)] > 5
    assert time.monotonic() - began >= lifetime


def test_deltas_let_later_workers_serve_longer(start):
    deltas = ("--max-requests", "50", "--max-requests-delta", "1000000", *AT_ONCE)
    instance = start("--processes", str(PROCESSES), *deltas)
    before = set(instance.workers())
    with Observer(instance) as observer, Load(instance.address()) as load:
        wait_until(lambda: len(observer.seen) >= 6, lambda: f"replacements; {instance.log}")
    assert load.losses == []
    # The first worker is replaced repeatedly, the second one stays.
    assert len(before & set(instance.workers())) == 1


def test_a_lifetime_that_is_over_before_it_may_be_is_an_error(fail):
    status, lines = fail("--module", "x", "--http", ":0", "--max-worker-lifetime", "5", "--min-worker-lifetime", "5")
    assert status != 0
    assert any("`min-worker-lifetime = 5` is not below `max-worker-lifetime`, which is 5" in line for line in lines), lines
