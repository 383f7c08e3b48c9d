"""Requests on kept connections: while the worker that owns the connection is inside calls, a free one serves them.

Each call is held until the test releases it, so the record, and not a clock, shows which worker served which request.
"""

import contextlib
import json
from pathlib import Path

import pytest
from support.held import Request, get
from support.tls import Authority, TlsClient, context_of
from support.waiting import wait_until
from support_kept import OPTIONS, Kept
from support_processes import children_of, status_field

#: Connections that are kept besides those whose calls are held.
CONNECTIONS = 6


def serving(held, name):
    """Returns the pid of the worker that has begun the call."""
    return held.wait_for("begin", name)["pid"]


def opened(held, protocol="http", count=CONNECTIONS, address=None):
    kept = [Kept(held.server, protocol, address) for _ in range(count)]
    for number, one in enumerate(kept):
        assert one.ask(f"/quick?opened-{number}") == f"opened-{number}"
    return kept


def begin_held(held, one, name):
    one.send(f"/held/{held.gate(name)}?{name}")
    return serving(held, name)


def wait_until_at_rest(pid):
    """Waits until the worker sleeps in its poll: a client has its response before the call ends, and until then
    connections move.
    """
    wait_until(lambda: status_field(pid, "State").startswith("S"), lambda: f"worker {pid} sleeps: {status_field(pid, 'State')}")


def begin_held_at(pid, held, one, name):
    """The same on a connection of this worker, which is otherwise idle."""
    wait_until_at_rest(pid)
    assert begin_held(held, one, name) == pid


@pytest.fixture
def hold_kept(hold):
    """``hold_kept("processes = 2", "fastcgi")``: a server of held calls with a protocol whose connections are kept."""

    def hold_kept(configuration, protocol="http", application="wsgi"):
        more = "" if protocol == "http" else f"{OPTIONS[protocol]} = 127.0.0.1:0"
        return hold(f"{configuration}\n{more}", application)

    return hold_kept


def ask_while_all_but_one_are_held(held, kept, protocol, threads):
    """Holds calls on as many connections as there are threads minus one; the worker with the free thread serves all others."""
    going = Kept(held.server, protocol), Kept(held.server, protocol), Kept(held.server, protocol)
    busy = [(one, f"held-{number}") for number, one in enumerate(going[: 2 * threads - 1])]
    pids = [begin_held(held, one, name) for one, name in busy]
    for turn in range(2):
        for number, one in enumerate(kept):
            name = f"call-{turn}-{number}"
            assert one.ask(f"/quick?{name}") == name
            assert pids.count(held.find("begin", name)["pid"]) < threads
    assert not [name for _, name in busy if held.find("end", name)]
    for one, name in busy:
        held.let_through(name)
        assert one.read() == name
        assert one.ask("/quick?afterwards") == "afterwards"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("protocol", OPTIONS)
def test_a_request_on_a_kept_connection_of_a_busy_worker_is_served_by_a_free_one(hold_kept, protocol, threads):
    held = hold_kept(f"processes = 2\nthreads = {threads}", protocol)
    ask_while_all_but_one_are_held(held, opened(held, protocol), protocol, threads)


def test_an_event_loop_that_a_view_blocks_gives_its_kept_connections_to_a_free_one(hold_kept):
    held = hold_kept("processes = 2", application="asgi")
    ask_while_all_but_one_are_held(held, opened(held), "http", 1)


@pytest.mark.parametrize("protocol", ["http", "uwsgi", "fastcgi", "scgi"])
def test_a_connection_that_was_opened_before_its_worker_was_busy_is_served_by_a_free_one(hold, protocol):
    held = hold("processes = 2", protocol=protocol)
    silent = [Request(held.server, protocol) for _ in range(CONNECTIONS)]
    busy = held.hold("held")
    for number, one in enumerate(silent):
        one.send(f"/quick?call-{number}")
        assert one.finish() == f"call-{number}"
    assert held.find("end", "held") is None
    held.let_through("held")
    assert busy.finish() == "held"


@pytest.mark.parametrize("protocol", OPTIONS)
def test_twelve_requests_on_kept_connections_are_shared_out_among_four_workers(hold_kept, protocol):
    held = hold_kept("processes = 4", protocol)
    kept = opened(held, protocol, 12)
    names = [f"call-{number:02}" for number in range(12)]
    for one, name in zip(kept, names):
        one.send(f"/held/{held.gate(name)}?{name}")
    served = {}
    for ended in range(12):
        going = {name: pid for name, pid in held.wait_for_progress(min(4, 12 - ended)).items() if name in names}
        # The worker that has served the fewest ends first, so that each returns while the others are busy.
        name = min(going, key=lambda name: (served.get(going[name], 0), going[name], name))
        served[going[name]] = served.get(going[name], 0) + 1
        held.let_through(name)
        held.wait_for("end", name)
    assert [one.read() for one in kept] == names
    assert sorted(served.values()) == [3] * 4


# Connections that stay.


def on_one_worker(held, count, protocol="http"):
    """Returns this many kept connections of the same worker, and its pid."""
    of_worker = {}

    def enough():
        one = Kept(held.server, protocol)
        name = f"at-{sum(map(len, of_worker.values()))}"
        assert one.ask(f"/quick?{name}") == name
        of_worker.setdefault(held.find("begin", name)["pid"], []).append(one)
        return [(pid, kept) for pid, kept in of_worker.items() if len(kept) == count]

    return wait_until(enough, f"{count} connections of one worker")[0]


@pytest.mark.parametrize("protocol", OPTIONS)
@pytest.mark.parametrize("part", ["head", "body"])
def test_a_connection_with_a_part_of_a_request_stays_at_the_worker_that_has_read_it(hold_kept, protocol, part):
    held = hold_kept("processes = 2", protocol)
    pid, (begun, busy, other) = on_one_worker(held, 3, protocol)
    data = begun.bytes_of("/quick?begun", b"x" * 100)
    cut = 10 if part == "head" else len(data) - 50
    wait_until_at_rest(pid)
    begun.client.send(data[:cut])
    # The worker has read that once it answers a later request.
    for _ in range(2):
        wait_until_at_rest(pid)
        assert busy.ask("/quick?later") == "later"
        assert held.find("begin", "later")["pid"] == pid
    begin_held_at(pid, held, busy, "held")
    begun.client.send(data[cut:])
    assert other.ask("/quick?elsewhere") == "elsewhere"
    assert held.find("begin", "elsewhere")["pid"] != pid
    assert held.find("begin", "begun") is None
    held.let_through("held")
    assert (busy.read(), begun.read()) == ("held", "begun")
    assert held.find("begin", "begun")["pid"] == pid


def test_pipelined_requests_are_answered_in_order_by_the_worker_that_has_read_them(hold_kept):
    held = hold_kept("processes = 2")
    pid, (several, other) = on_one_worker(held, 2)
    several.client.send(b"".join(several.bytes_of(f"/held/{held.gate(name)}?{name}") for name in ("first", "second", "third")))
    # On a slow machine it may have moved before it was read.
    pid = serving(held, "first")
    # More of them, still unread: they are behind the request that is being answered.
    several.send("/quick?fourth")
    assert other.ask("/quick?elsewhere") == "elsewhere"
    assert held.find("begin", "elsewhere")["pid"] != pid
    for name in ("first", "second", "third"):
        assert serving(held, name) == pid
        assert held.in_progress() == {name: pid}
        held.let_through(name)
        assert several.read() == name
    assert several.read() == "fourth"


@pytest.fixture
def hold_tls(hold, tmp_path):
    """A server of held calls that also serves TLS, and the authority for its clients."""
    authority = Authority(tmp_path / "certificates")
    shown = authority.server()
    held = hold(f"processes = 2\nhttps = 127.0.0.1:0,{shown.chain},{shown.key}")
    return held, context_of(authority)


def test_a_connection_within_tls_waits_for_the_worker_that_has_it(hold_tls):
    held, context = hold_tls
    pid, (busy, other) = on_one_worker(held, 2)
    with contextlib.ExitStack() as clients:

        def of_same_worker():
            client = clients.enter_context(TlsClient(held.server.address("https"), context))
            assert client.request(target="/quick?within").text == "within"
            return client if held.find("begin", "within")["pid"] == pid else None

        client = wait_until(of_same_worker, "a connection within TLS of the same worker")
        begin_held_at(pid, held, busy, "held")
        client.send(get("/quick?encrypted"))
        assert other.ask("/quick?elsewhere") == "elsewhere"
        assert held.find("begin", "elsewhere")["pid"] != pid
        assert held.find("begin", "encrypted") is None
        held.let_through("held")
        assert (busy.read(), client.read_response().text) == ("held", "encrypted")
        assert held.find("begin", "encrypted")["pid"] == pid


def test_a_paused_worker_neither_hands_over_nor_takes(hold_kept, call):
    held = hold_kept("processes = 2")
    master = held.server.process.pid
    pid, (busy, other) = on_one_worker(held, 2)
    begin_held_at(pid, held, busy, "held")

    def states():
        return {worker["pid"]: worker["state"] for worker in json.loads(call("status", "--json", master)[1])["workers"]}

    assert call("pause", master)[0] == 0
    wait_until(lambda: list(states().values()).count("paused") >= 1, lambda: f"the idle worker pauses: {states()}")
    other.send("/quick?waits")
    held.let_through("held")
    assert busy.read() == "held"
    wait_until(lambda: set(states().values()) == {"paused"}, lambda: f"both workers pause: {states()}")
    assert held.find("begin", "waits") is None
    assert other.is_silent()
    assert call("resume", master)[0] == 0
    assert other.read() == "waits"


# Applications that fork.


def threads_of(pid):
    return [task.read_text().strip() for task in Path(f"/proc/{pid}/task").glob("*/comm")]


def test_connections_end_when_they_are_closed_although_a_child_of_the_application_has_them_open(hold_kept):
    held = hold_kept("processes = 2")
    pid, (busy, forking, *others) = on_one_worker(held, 5)

    give_it_a_companion(held, busy, pid)
    wait_until_at_rest(pid)
    assert forking.ask(f"/forks/{held.gate('child')}?forking") == "forking"
    assert held.find("begin", "forking")["pid"] == pid
    wait_until_at_rest(pid)
    # The worker's own response ends its connection, and so does that of another worker once the connection has moved there.
    ask_for_the_end(held, forking, "here", pid)
    begin_held_at(pid, held, busy, "held")
    (elsewhere,) = workers_of(held) - {pid}
    for number, one in enumerate(others):
        ask_for_the_end(held, one, f"elsewhere-{number}", elsewhere)
    assert held.find("end", "held") is None
    held.let_through("held")
    assert busy.read() == "held"
    held.let_through("child")


def give_it_a_companion(held, busy, pid):
    """Keeps the worker busy until its companion thread exists."""

    def has_companion():
        begin_held_at(pid, held, busy, "lasting")
        held.let_through("lasting")
        assert busy.read() == "lasting"
        return "companion" in threads_of(pid)

    wait_until(has_companion, lambda: f"the worker has begun its companion: {threads_of(pid)}")


@pytest.mark.parametrize("again", [1, 3])
def test_a_worker_of_one_thread_forks_with_one_thread(again, hold_kept):
    """CPython from 3.12 on warns of other threads at a fork, and a child inherits the state of their locks."""
    held = hold_kept("processes = 2")
    pid, (busy, forking) = on_one_worker(held, 2)
    give_it_a_companion(held, busy, pid)
    for _ in range(again):
        assert forking.ask("/fork/?forking") == "1 threads, 0 warnings"


def test_a_request_behind_a_call_that_has_forked_is_served_elsewhere(hold_kept):
    held = hold_kept("processes = 2")
    pid, (busy, other) = on_one_worker(held, 2)
    give_it_a_companion(held, busy, pid)
    wait_until_at_rest(pid)
    busy.send(f"/fork-and-held/{held.gate('forked')}?forked")
    assert held.wait_for("begin", "forked")["pid"] == pid
    assert other.ask("/quick?served") == "served"
    assert held.find("begin", "served")["pid"] != pid
    assert held.find("end", "forked") is None
    held.let_through("forked")
    assert busy.read() == "forked"


def ask_for_the_end(held, one, name, pid):
    one.client.send(get(f"/quick?{name}", "Connection: close\r\n"))
    assert one.client.read_response().text == name
    assert held.find("begin", name)["pid"] == pid
    assert one.client.is_closed()


def workers_of(held):
    return {worker for prototype in children_of(held.server.process.pid) for worker in children_of(prototype)}
