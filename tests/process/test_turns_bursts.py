"""Bursts of requests, or requests while all workers are busy: none waits for a busy worker while another is idle.

Each call is held until the test releases it, so the record, and not a clock, shows which workers were idle.
"""

import pytest
from support import processes

#: Requests per thread in a burst.
ROUNDS = 3
#: Timeout of a free worker for beginning a waiting request, in seconds; a request that waits for another's call waits as long as
#: the test.
BEGIN_SECONDS = 15

WSGI_PROTOCOLS = ["http", "uwsgi", "fastcgi", "scgi"]


def end_one_by_one(held, names, at_once):
    """Ends the calls, one worker after the other; each time a waiting one begins. Returns the number of calls of each worker."""
    served = {}
    for ended in range(len(names)):
        left = len(names) - ended
        going = held.wait_for_progress(min(at_once, left), BEGIN_SECONDS)
        # The worker that has served the fewest ends first, so that each returns while the others are busy.
        name = min(going, key=lambda name: (served.get(going[name], 0), going[name], name))
        served[going[name]] = served.get(going[name], 0) + 1
        held.let_through(name)
        held.wait_for("end", name)
    return served


def burst(hold, processes, threads, **options):
    held = hold(f"processes = {processes}\nthreads = {threads}", **options)
    at_once = processes * threads
    names = [f"call-{number:02}" for number in range(at_once * ROUNDS)]
    requests = {name: held.send_held(name) for name in names}
    served = end_one_by_one(held, names, at_once)
    assert [requests[name].finish() for name in names] == names
    return served


@pytest.mark.parametrize("protocol", WSGI_PROTOCOLS)
def test_a_burst_is_served_by_all_workers_alike(hold, protocol):
    served = burst(hold, 4, 1, protocol=protocol)
    assert sorted(served.values()) == [ROUNDS] * 4


@pytest.mark.parametrize("protocol", ["http", "uwsgi"])
def test_a_burst_is_served_by_the_threads_of_all_workers_alike(hold, protocol):
    served = burst(hold, 2, 4, protocol=protocol)
    assert sorted(served.values()) == [4 * ROUNDS] * 2


def test_a_burst_is_served_by_all_event_loops_alike_when_its_views_block_them(hold):
    served = burst(hold, 4, 1, application="asgi")
    assert sorted(served.values()) == [ROUNDS] * 4


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_requests_while_all_workers_are_busy_wait_for_the_first_free_one(hold, application):
    held = hold("processes = 4", application=application)
    names = [f"call-{number:02}" for number in range(12)]
    requests = {}
    for name in names[:4]:
        requests[name] = held.send_held(name)
        held.wait_for("begin", name)
    requests.update({name: held.send_held(name) for name in names[4:]})
    served = end_one_by_one(held, names, 4)
    assert sorted(served.values()) == [3] * 4
    assert [requests[name].finish() for name in names] == names


@pytest.mark.parametrize("protocol", WSGI_PROTOCOLS)
def test_the_death_of_a_worker_takes_no_request_with_it_but_the_one_that_it_serves(hold, protocol):
    held = hold("processes = 4", protocol=protocol)
    held.server.expects_alarms = True
    names = [f"busy-{number}" for number in range(4)]
    busy = {name: held.hold(name) for name in names}
    held.send_held("stuck")
    waiting = [held.send(f"waiting-{number}") for number in range(12)]
    # One worker returns to all waiting requests, of which the first is stuck.
    held.let_through("busy-0")
    worker = held.wait_for("begin", "stuck")["pid"]
    processes.kill(worker)
    for name in names[1:]:
        held.let_through(name)
    assert [request.finish() for request in waiting] == [f"waiting-{number}" for number in range(12)]
    assert [busy[name].finish() for name in names] == names
    held.server.wait_for_log("was killed by")


@pytest.mark.parametrize("application", ["wsgi", "asgi"])
def test_connections_that_say_nothing_keep_no_worker_from_its_share(hold, application):
    held = hold("processes = 4", application=application)
    silent = [held.server.connect() for _ in range(40)]
    names = [f"call-{number:02}" for number in range(12)]
    requests = {name: held.send_held(name) for name in names}
    served = end_one_by_one(held, names, 4)
    assert sorted(served.values()) == [3] * 4
    assert [requests[name].finish() for name in names] == names
    # They are served when they send something, by any worker.
    for number, client in enumerate(silent):
        assert client.request(target=f"/quick?silent-{number}").text == f"silent-{number}"


def test_connections_that_say_nothing_leave_the_only_thread_to_others(hold):
    held = hold()
    silent = [held.server.connect() for _ in range(100)]
    for number in range(3):
        assert held.send(f"other-{number}").finish() == f"other-{number}"
    for number, client in enumerate(silent):
        assert client.request(target=f"/quick?silent-{number}").text == f"silent-{number}"
