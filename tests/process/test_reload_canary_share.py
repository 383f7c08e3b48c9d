"""`reload-canary` with connections one by one: the canary gets its share, so few requests are enough to judge the new code."""

import collections
import re
import signal

import pytest
from support.client import Client
from support.waiting import wait_until
from support_canary import ASGI, LONG, NUMBERS, WSGI, outcome_of, reload_and_wait, wait_until_generation_is_gone, write
from support_instance import DONE, REFUSED
from support_load import Load

#: Long enough for a few consecutive requests, on any machine.
BRIEF_SECONDS = 5
BRIEF = ("--reload-canary", BRIEF_SECONDS)
BROKEN = "raise RuntimeError('no database')"
#: Responses to wait for, of each worker.
TURNS = 40
#: Factor: at most this many times as many connections are opened. A worker that a busy machine delays may miss its turn.
MAX_MISSED = 4


def ask(address):
    """Sends one request on a new connection, which ends with it. Returns status and body."""
    with Client(address) as client:
        answer = client.request("GET", "/", [("Connection", "close")])
        return answer.status, answer.text


@pytest.mark.parametrize("family", ["tcp", "unix"])
@pytest.mark.parametrize("old", [1, 2, 4])
@pytest.mark.parametrize(
    ("template", "options"), [(WSGI, ()), (WSGI, ("--threads", "3")), (ASGI, ())], ids=["wsgi", "threads", "asgi"]
)
def test_a_canary_has_its_turn_among_connections_that_come_one_by_one(template, options, old, family, start, tmp_path):
    write(tmp_path, "first", template)
    place = "127.0.0.1:0" if family == "tcp" else str(tmp_path / "app.sock")
    instance = start("--processes", old, *options, *LONG, module="shop", socket=place)
    address = instance.address() if family == "tcp" else place
    write(tmp_path, "second!", template)
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^bolide: canary: worker 1 ")
    # With a fair share each worker has had its turns by then; one that is woken after others gets one in hundreds.
    seen = collections.Counter()
    while seen[200, "first"] < TURNS * old or seen[200, "second!"] < TURNS:
        seen[ask(address)] += 1
        assert sum(seen.values()) < MAX_MISSED * TURNS * (old + 1), seen
    assert sum(seen.values()) == seen[200, "first"] + seen[200, "second!"], seen
    assert instance.stop() == 0


@pytest.mark.parametrize("template", [WSGI, ASGI], ids=["wsgi", "asgi"])
def test_code_that_answers_nothing_well_is_rolled_back_where_connections_come_one_by_one(template, start, tmp_path):
    write(tmp_path, "first", template)
    instance = start("--processes", "2", *LONG, module="shop", alarms=True)
    before = sorted(instance.workers())
    write(tmp_path, "second!", template, BROKEN)
    command = reload_and_wait(instance)
    seen = collections.Counter()

    def has_ended():
        status, _ = ask(instance.address())
        seen[status] += 1
        return command.poll() is not None

    wait_until(has_ended, lambda: f"the end of the reload; {seen}, the log:\n{instance.log}", look_seconds=0)
    status, said = outcome_of(command)
    found = re.search(r"canary: (\d+) of (\d+) answers were errors, .*: generation 2 is rolled back", said)
    assert (status, bool(found)) == (REFUSED, True), said
    assert 0 < int(found[1]) <= int(found[2]) <= seen[500]
    wait_until_generation_is_gone(instance, 2)
    assert sorted(instance.workers()) == before
    assert instance.body() == "first"


def test_kept_and_new_connections_continue_while_good_code_is_deployed(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *BRIEF, module="shop")
    with Load(instance.address(), kept_alive=2, fresh=1) as load:
        write(tmp_path, "second!")
        status, said = outcome_of(reload_and_wait(instance))
        assert (status, "generation 2 serves" in said) == (DONE, True), said
        instance.wait_for_log(rf"^bolide: canary: {NUMBERS}, in .*generation 2 passes$")
        instance.wait_for_generation(2)
        load.wait_for_more()
    assert load.losses == []
    assert instance.body() == "second!"


def ask_until_one_fails(address):
    wait_until(lambda: ask(address)[0] == 500, "an error of the new code", look_seconds=0)


def test_a_canary_that_has_answered_nothing_well_is_watched_once_more_and_rolled_back(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *BRIEF, module="shop", alarms=True)
    assert instance.body() == "first"
    write(tmp_path, "second!", fault=BROKEN)
    command = reload_and_wait(instance)
    # One error, which may be a coincidence, and no other request comes.
    ask_until_one_fails(instance.address())
    status, said = outcome_of(command)
    one = r"canary: 1 of 1 answer was an error, the old workers' 0 of \d+(?: since their start)?"
    instance.wait_for_log(rf"^bolide: {one}, in .*: none succeeded, watching it for {BRIEF_SECONDS} s more$")
    assert (status, bool(re.search(rf"{one}: generation 2 is rolled back", said))) == (REFUSED, True), said
    wait_until_generation_is_gone(instance, 2)
    assert instance.body() == "first"


def test_a_canary_with_a_single_failed_request_passes(start, tmp_path):
    write(tmp_path, "first")
    instance = start("--processes", "2", *BRIEF, module="shop", alarms=True)
    assert instance.body() == "first"
    write(tmp_path, "second!", fault=f"if call == 0: {BROKEN}")
    command = reload_and_wait(instance)
    ask_until_one_fails(instance.address())
    instance.wait_for_log("^bolide: canary: 1 of 1 answer .*: none succeeded, watching it for")
    wait_until(lambda: ask(instance.address()) == (200, "second!"), "a good answer of the canary", look_seconds=0)
    status, said = outcome_of(command)
    assert (status, "generation 2 serves" in said) == (DONE, True), said
    instance.wait_for_log(r"^bolide: canary: 1 of [2-9] answers was an error, .* generation 2 passes$")
    instance.wait_for_generation(2)
