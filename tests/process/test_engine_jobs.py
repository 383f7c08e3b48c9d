"""Jobs of the spooler on a real redis-server, for instances of several machines (`spooler = redis://…`)."""

import os
import time

import pytest
from support.redis_server import PATIENT
from support.spooler import Shop, jobs_in, write_job
from support.waiting import wait_until

FAILING = """\
def work(job):
    name = job[b"name"].decode()
    note(name)
    if name == "deadly":
        os.kill(os.getpid(), 9)
    if name == "long":
        time.sleep(8)
    return uwsgi.SPOOL_RETRY if name == "again" else uwsgi.SPOOL_OK
uwsgi.spooler = work
"""


@pytest.fixture
def machine(serve, redis, tmp_path):
    """Starts an instance, as on a machine of its own."""

    def start(*options, spooler="spooler", query="hold-seconds=1", url=redis.url, **keywords):
        address = f"{url}?directory={{directory}}/jobs&{PATIENT}&{query}"
        return Shop(serve, tmp_path, options, spooler=f"{spooler} = {address}", **keywords)

    return start


def count(redis, kind):
    return redis.ask("ZCARD", f"{{bolide:jobs:spooler}}:{kind}")


def is_empty(redis):
    return {count(redis, kind) for kind in ("ready", "waiting", "reserved", "failed")} == {":0"}


def test_a_job_of_one_machine_is_worked_on_by_another_and_removed(machine, redis):
    writing = machine(spooler="spooler-external")
    path = writing.spool(name="one", body="content")
    assert os.path.basename(path).startswith("uwsgi_spoolfile_on_")
    assert (count(redis, "ready"), jobs_in(writing.jobs)) == (":1", [])
    working = machine()
    working.wait_for_notes("one")
    wait_until(lambda: is_empty(redis), "the end of the job")
    assert redis.ask("KEYS", "*bodies") == "*0"
    working.server.wait_for_log(r"^\[spooler \S+ pid: \d+\] done with task uwsgi_spoolfile_on_")


def test_jobs_leave_the_engine_by_their_priorities(machine):
    writing = machine(spooler="spooler-external")
    for name, priority in (("third", None), ("second", "20"), ("first", "3")):
        writing.spool(name=name, **({"priority": priority} if priority else {}))
    machine().wait_for_notes("first", "second", "third")


def test_a_job_that_asks_for_it_is_tried_again(machine):
    found = machine("spooler-frequency = 1", source=FAILING)
    found.spool(name="again")
    found.wait_for_count(3)


def test_a_job_that_kills_its_spoolers_is_given_up_and_the_others_go_on(machine, redis):
    found = machine("spooler-frequency = 1", source=FAILING)
    found.server.expects_alarms = True
    found.spool(name="deadly")
    found.spool(name="harmless")
    wait_until(lambda: count(redis, "failed") == ":1", "the job is given up")
    # A new spooler may take the deadly job before the other one if it has started only after the reservation.
    wait_until(lambda: sorted(set(found.words())) == ["deadly", "harmless"], lambda: f"the other job: {found.words()}")
    assert found.words().count("deadly") == 3


def test_a_reservation_lasts_as_long_as_its_job(machine, redis):
    # The spooler extends the reservation several times within its 5 s, so it outlasts a process that stalls for 2 s.
    found = machine("spooler-processes = 2", source=FAILING, query="hold-seconds=5")
    found.spool(name="long")
    wait_until(lambda: found.words() and is_empty(redis), "the end of the job")
    assert found.words() == ["long"]


def test_jobs_are_kept_while_the_engine_is_away_and_delivered_later(machine, redis):
    found = machine()
    found.spool(name="before")
    found.wait_for_notes("before")
    # A job whose end can't be told is done again.
    wait_until(lambda: is_empty(redis), "the end of the job")
    redis.kill()
    for name in ("kept", "kept-too"):
        path = found.spool(name=name)
        assert os.path.exists(path)
    assert len(jobs_in(found.jobs)) == 2
    redis.start()
    # Jobs of a directory are delivered in no particular order.
    wait_until(lambda: sorted(found.words()) == ["before", "kept", "kept-too"], lambda: f"{found.words()}")
    wait_until(lambda: is_empty(redis), "the end of the jobs")
    found.wait_until_empty()
    found.server.wait_for_log(r"^bolide: spooler \S+: delivered \d jobs that were kept while the engine was away$")


#: What makes a redis-server refuse to change data, and what ends it.
REFUSALS = {
    "OOM": (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
    # The permission of a script's command.
    "run this command": (["ACL", "SETUSER", "default", "-hsetnx", "-zpopmin"], ["ACL", "SETUSER", "default", "+@all"]),
}


@pytest.mark.parametrize("word", REFUSALS)
def test_jobs_are_kept_while_the_engine_refuses_them_and_delivered_later(machine, redis, word):
    refuse, allow = REFUSALS[word]
    # With a reservation of 1 s, a spooler that stalls for so long would have its job done again by the other one.
    found = machine("spooler-processes = 2", query="hold-seconds=30")
    found.spool(name="before")
    found.wait_for_notes("before")
    wait_until(lambda: is_empty(redis), "the end of the job")
    assert redis.ask(*refuse) == "+OK"
    asked = redis.calls("eval")
    for name in ("kept", "kept-too"):
        assert os.path.exists(found.spool(name=name))
    assert len(jobs_in(found.jobs)) == 2
    # Both spoolers have asked in vain several times.
    wait_until(lambda: redis.calls("eval") >= asked + 10, "more calls of the spoolers")
    refused = [line for line in found.server.lines if "refused a command" in line]
    assert [word in line for line in refused] == [True]
    assert not [line for line in found.server.lines if "can't be taken" in line or "can't be delivered" in line]
    assert redis.ask(*allow) == "+OK"
    # Jobs of a directory are delivered in no particular order.
    wait_until(lambda: sorted(found.words()) == ["before", "kept", "kept-too"], lambda: f"{found.words()}")
    wait_until(lambda: is_empty(redis), "the end of the jobs")
    found.wait_until_empty()


def test_an_idle_spooler_asks_an_engine_that_refuses_no_more_often_than_another(machine, redis):
    found = machine()
    found.spool(name="before")
    found.wait_for_notes("before")
    wait_until(lambda: is_empty(redis), "the end of the job")
    assert redis.ask(*REFUSALS["OOM"][0]) == "+OK"

    def calls_of(seconds):
        began, before = time.monotonic(), redis.calls("eval")
        wait_until(lambda: time.monotonic() - began >= seconds, "some seconds have passed")
        return redis.calls("eval") - before

    # A spooler asks once a second; with an engine that refuses it asked a hundred times.
    assert calls_of(3) <= 30


def test_a_list_of_jobs_says_that_those_on_the_server_are_not_in_it(tmp_path, call):
    lines = "[uwsgi]\nhttp = 127.0.0.1:0\nwsgi-file = shop.py\nmaster = true\n"
    (tmp_path / "shop.py").write_text("application = print\n")
    (tmp_path / "uwsgi.ini").write_text(f"{lines}spooler = redis://127.0.0.1:1/0?directory={tmp_path}/kept\n")
    status, said = call("spool", "list", "uwsgi.ini")
    assert (status, said) == (
        0,
        f"uwsgi.ini:5: the jobs on the server are not listed, only those that {tmp_path}/kept keeps for it\n",
    )
    write_job(tmp_path / "kept", name="one")
    status, said = call("spool", "list", "uwsgi.ini")
    assert status == 0
    assert f"{tmp_path}/kept: 1 waiting, 0 in progress, 0 failed\n" in said
